# roofline.gp -- each program against what the card's data sheet promises. `publish` runs it in perf/ with `card` set.
set terminal svg size 800,500 background "white" noenhanced font "sans-serif,11"
set output sprintf("results/%s/roofline.svg", card)
set title sprintf("Roofline: %s, bf16", card)
set logscale xy
set xlabel "operations for each byte read or written"
set ylabel "TFLOP/s"
set grid lc rgb "#dddddd"
set key bottom right
peak = 989.4
bandwidth = card eq "h200" ? 4.8 : 3.35
roof(x) = x * bandwidth < peak ? x * bandwidth : peak
of(g) = sprintf("< ./summary --roof %s | grep ' %s$'", card, g)
set xrange [1:10000]
set yrange [1:2000]
plot roof(x) title sprintf("data sheet: %g TB/s, 989 TFLOP/s", bandwidth) lc rgb "#000000", \
     for [g in "small gemm fused pattern layer"] of(g) using 1:2 title g with points pt 7 ps 0.6
