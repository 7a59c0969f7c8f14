# serve.gp -- how long clients wait while a server starts and serves, by policy. Run by perf/publish in perf/.
set terminal svg size 1000,640 background "white" noenhanced font "sans-serif,11"
set output "results/serve.svg"
# Of a file's windows, the columns: seconds, answers, tokens, first token p50 and p99, between tokens p50 and p99.
of(policy, label) = sprintf("< sed -n '/^ *{\"label\": \"%s\"/{s/\"label\": \"[a-z]*\"//;s/\"[a-z_0-9]*\"://g;s/[{},]/ /g;s/null/NaN/g;p}' results/serve_%s.json", label, policy)
device = system("sed -n '1s/.*\"device\": \"\\([^\"]*\\)\".*/\\1/p' results/serve_wait.json")
shape = system("sed -n '1s/.*\"shape\": \"\\([^\"]*\\)\".*/\\1/p' results/serve_wait.json")
clients = system("sed -n '1s/.*\"clients\": \\([0-9]*\\).*/\\1/p' results/serve_wait.json")
set multiplot layout 2,2 title sprintf("%s clients, shape %s with random weights, on %s", clients, shape, device)
set logscale y
set grid ytics lc rgb "#dddddd"
set format y "%g"
set xlabel "seconds since the server was started"
set key top right opaque
first = 1
do for [row in "4 6"] {
    set ylabel (row + 0 == 4 ? "first token, ms" : "between tokens, ms")
    do for [label in "cold warm"] {
        set title (label eq "cold" ? "no kernel in the cache" : "all kernels in the cache")
        if (!first) { set key off }
        first = 0
        plot of("wait", label) using 1:int(row) with lines lw 2 lc rgb "#1f77b4" title "wait, p50", \
             of("wait", label) using 1:(column(int(row) + 1)) with lines dt 2 lc rgb "#1f77b4" title "p99", \
             of("background", label) using 1:int(row) with lines lw 2 lc rgb "#d62728" title "background, p50", \
             of("background", label) using 1:(column(int(row) + 1)) with lines dt 2 lc rgb "#d62728" title "p99"
    }
}
unset multiplot
