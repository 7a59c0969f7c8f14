# serve.gp -- how long clients wait while a server starts and serves, by policy. The library's perf/publish runs it in perf/ with
# `card` set.
set terminal svg size 1000,720 background "white" noenhanced font "sans-serif,11"
set output sprintf("results/%s/serve.svg", card)
results = sprintf("results/%s/serve.json", card)
# Of a run's windows, the columns: seconds, answers, tokens, first token p50 and p99, between tokens p50 and p99.
of(label) = sprintf("< sed -n '\\|^ *{\"label\": \"%s\"|{s|\"label\": \"[a-z/]*\"||;s/\"[a-z_0-9]*\"://g;s/[{},]/ /g;s/null/NaN/g;p}' %s", label, results)
head(name) = system(sprintf("sed -n '1s/.*\"%s\": \"\\([^\"]*\\)\".*/\\1/p' %s", name, results))
clients = system(sprintf("sed -n '1s/.*\"clients\": \\([0-9]*\\).*/\\1/p' %s", results))
# When the server was ready; far outside if it never was.
ready(label) = real(system(sprintf("sed -n 's|.*\"label\": \"%s\", \"since_s\": \\([0-9.]*\\).*|\\1|p' %s | grep . || echo 1e9", label, results)))
labels = "background/cold wait/cold wait/warm"
array named[3] = ["background, empty cache", "wait, empty cache", "wait, full cache"]
array colour[3] = ["#d62728", "#1f77b4", "#7f7f7f"]
array begins[3]
do for [i = 1:3] { begins[i] = ready(word(labels, i)) }
set multiplot layout 2,1 title sprintf("%s clients from the moment that the server is ready, shape %s with random weights, on %s", clients, head("shape"), head("device"))
set logscale y
set grid ytics lc rgb "#dddddd"
set format y "%g"
set xrange [0:*]
set xlabel "seconds since the server's process was started"
set key top right opaque
do for [i = 1:3] { if (begins[i] < 1e8) { set arrow from first begins[i], graph 0 to first begins[i], graph 1 nohead dt 3 lc rgb colour[i] } }
do for [row = 4:6:2] {
    set ylabel (row == 4 ? "first token, ms" : "between tokens, ms")
    plot for [i = 1:3] of(word(labels, i)) using 1:row with lines lw 2 lc rgb colour[i] \
             title sprintf(begins[i] < 1e8 ? "%s: p50; ready after %.1f s" : "%s: not ready in time", named[i], begins[i]), \
         for [i = 1:3] of(word(labels, i)) using 1:(column(row + 1)) with lines dt 2 lc rgb colour[i] title (i == 3 ? "p99 of each" : "")
    set key off
}
unset multiplot
