# ratio.gp -- a bar for each shape against the line of cuBLASLt = 1. `publish` runs it in perf/ with `card` set.
set terminal svg size 1100,420 background "white" noenhanced font "sans-serif,11"
set output sprintf("results/%s/ratio.svg", card)
set title "Time of cuBLASLt's bare products over time of libcoda's programs (bf16, 16384 tokens)"
set style fill solid 0.9 noborder
set boxwidth 0.75
set yrange [0.7:1.2]
set ytics 0.1
set grid ytics lc rgb "#dddddd"
set xtics rotate by 60 right scale 0 font ",9"
set key top left horizontal
set arrow from graph 0, first 1 to graph 1, first 1 nohead lw 1.5 lc rgb "#000000" front
ratio(g) = strcol(2) eq g ? column(1) : NaN
plot sprintf("< ./summary --bars %s", card) using 0:(ratio("gemm")):xtic(3) with boxes lc rgb "#7f7f7f" title "plain products", \
     "" using 0:(ratio("fused")) with boxes lc rgb "#1f77b4" title "one product with its epilogue", \
     "" using 0:(ratio("pattern")) with boxes lc rgb "#2ca02c" title "residual, norm, 2 products", \
     "" using 0:(ratio("layer")) with boxes lc rgb "#d62728" title "a layer"
