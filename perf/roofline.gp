# roofline.gp -- each program against what the card's data sheet promises. Run by make perf-report in perf/.
set terminal svg size 800,500 background "white" noenhanced font "sans-serif,11"
set output "results/roofline.svg"
set title "Roofline: H200, bf16"
set logscale xy
set xlabel "operations for each byte read or written"
set ylabel "TFLOP/s"
set grid lc rgb "#dddddd"
set key bottom right
peak = 989.4
bandwidth = 4.8
roof(x) = x * bandwidth < peak ? x * bandwidth : peak
of(g) = sprintf("< ./summary --roof | grep ' %s$'", g)
set xrange [1:10000]
set yrange [1:2000]
plot roof(x) title "data sheet: 4.8 TB/s, 989 TFLOP/s" lc rgb "#000000", \
     for [g in "small gemm fused pattern layer"] of(g) using 1:2 title g with points pt 7 ps 0.6
