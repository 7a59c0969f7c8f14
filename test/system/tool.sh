#!/bin/sh
# tool.sh -- the tool from outside: what it prints, what it writes, and how it fails.
# Run as: test/system/tool.sh FOLDER
set -eu
out=$1
coda=${BUILD:-build}/coda
graphs=examples/graphs
mkdir -p "$out"
out=$(cd "$out" && pwd) # the cache makes its folder absolute, too

die() { echo "tool: $*"; exit 1; }

# status WANTED COMMAND...: exit status, and for failures one line that begins with "coda: ".
status() {
    wanted=$1 got=0
    shift
    "$@" >"$out/out" 2>"$out/err" || got=$?
    [ $got = "$wanted" ] || die "$*: exit status $got instead of $wanted: $(cat "$out/err")"
    [ "$wanted" = 0 ] || { [ "$(wc -l < "$out/err")" = 1 ] && grep -q '^coda: ' "$out/err"; } ||
        die "$*: not one line of error: $(cat "$out/err")"
}
prints() { grep -q -e "$1" "$out/out" || die "the output lacks $1: $(cat "$out/out")"; }
says() { grep -q -e "$1" "$out/err" || die "the error lacks $1: $(cat "$out/err")"; }

# Words of the text form: a line for each, all of one, and the near one of a name that is not known.
status 0 $coda ops; prints '^  rms_norm  *x / sqrt'; prints '^  silu  *x sigmoid(x)'; prints '^  sum_sq '; prints '^  exp2(x) '
status 0 $coda ops clip; prints 'low=float, high=float'; prints 'coda_clip, coda_apply'; prints '%r = clip %x {low=1, high=1}'
status 0 $coda ops --json; prints '^\[{"kind": "operation", "name": "input"'; prints '^ {"kind": "function"'
status 1 $coda ops swish; says 'called `swish`; here it is silu'
status 1 $coda ops Softmx; says 'do you mean softmax?'
status 2 $coda ops silu gelu; says 'not also "gelu"'
status 2 $coda ops --frobnicate; says frobnicate

# Usage.
status 0 $coda --help; prints '^usage: coda info'
for command in info explain compile run bench ops; do
    status 0 $coda $command --help; prints "^usage: coda $command"
done
status 0 $coda run x.coda --check --help; prints '^  --check  *compare'
! grep -q -e --dot "$out/out" || die 'the help of run has an option of explain'
status 0 $coda cache list --help; prints '^usage: coda cache'
status 0 $coda --version; prints '^coda [0-9]'
status 2 $coda frobnicate; says frobnicate
status 2 $coda run; says 'needs a FILE'
status 2 $coda explain $graphs/llama.coda --check; says '--check'
status 2 $coda run $graphs/llama.coda --fold; says 'needs a value'
status 2 $coda run $graphs/llama.coda --seed 12x; says 12x
status 2 $coda run a b; says 'one FILE'
status 1 $coda run /nonexistent; says /nonexistent
printf '%%x = input bf16[2,2]\n%%y = matmul %%x, %%z\n' > "$out/bad.coda"
status 1 $coda explain "$out/bad.coda"; says 'line 2'

# What needs no data.
status 0 $coda info; prints '^library: coda'; prints '^nvrtc:'; prints '^cache:'
for g in $graphs/*.coda; do
    status 0 $coda explain "$g"; prints '^# derivation'; prints '^@0 -> @[0-9]* '; prints '^launches'
done
# The same as a page.
for g in $graphs/*.coda; do
    status 0 $coda explain "$g"; cp "$out/out" "$out/told"
    status 0 $coda explain "$g" --html "$out/page.html"; [ ! -s "$out/out" ] || die "explain --html prints, too"
    python3 test/system/page.py "$out/page.html" "$out/told" > "$out/page" || die "$g as a page: $(cat "$out/page")"
done
odd="$out/<i>&\"'.coda"
cp $graphs/llama_small.coda "$odd"
status 0 $coda explain "$odd"; cp "$out/out" "$out/told"
status 0 $coda explain "$odd" --html "$out/page.html"
python3 test/system/page.py "$out/page.html" "$out/told" > "$out/page" || die "odd names as a page: $(cat "$out/page")"
grep -q "<h1>$(echo "$out" | sed 's/[&<>]/X/g')/&lt;i&gt;&amp;&quot;&#39;.coda</h1>" "$out/page.html" || die 'a name is not escaped'
status 0 $coda explain "$odd" --html -; cmp "$out/page.html" "$out/out" || die "--html - is not what --html FILE writes"
status 1 $coda explain $graphs/llama.coda --html /nonexistent/page.html; says 'No such file'
status 2 $coda explain $graphs/llama.coda --html; says 'needs a value'
status 0 $coda explain $graphs/llama.coda --dot; prints '^digraph'
status 0 $coda explain $graphs/gpt2.coda --no-fusion
status 0 $coda explain $graphs/gpt2.coda --invariant; prints ' invariant$'
status 0 $coda explain $graphs/gpt2.coda --fold copy; prints '^carry_row_scale'
status 0 $coda explain $graphs/gpt2.coda --fold copy --no-deferral
! grep -q '^carry_' "$out/out" || die "--no-deferral: $(cat "$out/out")"
status 0 $coda explain $graphs/bert.coda --fold copy

# A plan for the GPU needs none; tuning does.
CODA_LIBCUDA=/nonexistent/libcuda.so.1; export CODA_LIBCUDA
status 0 $coda explain $graphs/gpt2.coda --device gpu; prints '^# plan'
status 1 $coda explain $graphs/gpt2.coda --autotune; says 'the CUDA driver is missing'
status 1 $coda compile $graphs/gpt2.coda --autotune; says 'the CUDA driver is missing'
status 1 $coda compile $graphs/gpt2.coda --max-autotune; says 'the CUDA driver is missing'
unset CODA_LIBCUDA

# Symbols get their numbers on the command line.
sed '/^%x = /s/\[[0-9]*,/[T,/; 1i dim %T = 1..64' $graphs/llama_small.coda > "$out/symbolic.coda"
status 0 $coda explain "$out/symbolic.coda" --dim T=33; prints '^launches'
status 0 $coda run "$out/symbolic.coda" --dim T=33 --check; prints '\[33,.*: pass$'
status 1 $coda run "$out/symbolic.coda"; says 'T has no value: --dim T=N'
status 1 $coda run "$out/symbolic.coda" --dim T=65; says 'T is 65; must be 1..64'
status 1 $coda run "$out/symbolic.coda" --dim U=3 --dim T=3; says 'no symbol "U"'
status 1 $coda run "$out/symbolic.coda" --dim T=3x; says '"3x" is no number'
# ... or ranges, for all shapes.
status 0 $coda explain "$out/symbolic.coda" --dim T=1..48; prints '^# shapes'; prints 'tiles for 1..48 rows'
prints '^   base sm90'; prints '^kernels   [1-9][0-9]* for all shapes'
status 0 $coda explain "$out/symbolic.coda" --dim 'T=8..4096 step 8'; prints 'tiles for 1..4096 rows'; prints ' 3..8$'
status 0 $coda explain "$out/symbolic.coda" --dim T=1..48 --dot; prints '^digraph'
status 1 $coda explain "$out/symbolic.coda" --dim T=9..8; says 'its values are 9..8'
status 1 $coda explain "$out/symbolic.coda" --dim T=1..; says 'line 1'
status 1 $coda explain "$out/symbolic.coda" --dim U=1..8; says 'no symbol "U"'
status 1 $coda run "$out/symbolic.coda" --dim T=1..8; says 'a run has one value, not 1..8'

# Runs, fused and not, in all fold modes, against fp64.
for g in $graphs/*_small.coda; do
    for how in '' '--no-fusion' '--fold copy' '--fold in-place'; do
        status 0 $coda run "$g" --check --ints 33 --seed 7 $how; prints ': pass$'
    done
done
status 1 $coda run $graphs/llama_small.coda --check --tolerance 1e-9; says differs; prints ': FAIL$'

# A profile: each launch of the plan, sums, rates; as JSON by its schema. What a time is, is nobody's business here.
status 0 $coda bench $graphs/llama_small.coda --rounds 1; prints '^device    cpu v[234]$'; prints '^copy  *[0-9.]* GB/s'
prints '^@5  *gemm .*%$'; prints '^     gemm batch=1 m=64 n=256 k=688: add$'; prints '^     makes %y$'
prints '^sum  '; prints '^run  '; prints '^gap '; prints '^least .* of 1 runs$'
[ "$(grep -c '^@' "$out/out")" = 6 ] || die "6 launches are not 6 lines: $(cat "$out/out")"
for how in '' '--no-fusion' '--fold copy' '--seed 3 --ints 5'; do
    status 0 $coda bench $graphs/gpt2_small.coda --rounds 2 --json $how
    python3 test/system/schema.py examples/coda/bench.schema.json < "$out/out" > "$out/schema" || die "--json: $(cat "$out/schema")"
done
status 0 $coda bench "$out/symbolic.coda" --dim T=33 --rounds 1 --json; prints '"dims": {"T": 33}'
python3 test/system/schema.py examples/coda/bench.schema.json < "$out/out" > "$out/schema" || die "--dim: $(cat "$out/schema")"
sed 's/= matmul .*/& @layers.0/' $graphs/llama_small.coda > "$out/scoped.coda"
status 0 $coda bench "$out/scoped.coda" --rounds 1; prints '^     makes %.* in layers.0$'
status 1 $coda bench "$out/symbolic.coda"; says 'T has no value: --dim T=N'
status 1 $coda bench "$out/symbolic.coda" --dim T=1..8; says 'a run has one value'
status 2 $coda bench $graphs/llama_small.coda --rounds 0; says '--rounds cannot be "0"'
status 2 $coda bench $graphs/llama_small.coda --rounds 10001; says '10001'
status 2 $coda bench $graphs/llama_small.coda --check; says '--check'
status 2 $coda run $graphs/llama_small.coda --json; says '--json'
CODA_LIBCUDA=/nonexistent/libcuda.so.1 status 1 $coda bench $graphs/llama_small.coda --device gpu; says 'the CUDA driver is missing'

# Random slots of an append are distinct: here all that there are.
printf '%s\n' '%k = state f32[8,4]' '%x = input f32[8,4]' '%i = input i32[8]' '%n = append %k, %x, %i' \
    '%s = cast %i {to=f32}' 'output %slots = %s' > "$out/append.coda"
for seed in 1 2 3; do
    status 0 $coda run "$out/append.coda" --check --seed $seed --output slots="$out/slots.npy"; prints '^k .*: pass$'
    [ "$(tail -c 32 "$out/slots.npy" | od -An -v -w4 -tf4 | sort -u | wc -l)" = 8 ] || die "slots are drawn twice"
done

# .npy files: what goes out comes back in.
cat > "$out/scale.coda" <<'END'
%x = input f32[3,5]
%y = scale %x {alpha=2}
output %y = %y
END
status 0 $coda run "$out/scale.coda" --output y="$out/y.npy"
status 0 $coda run "$out/scale.coda" --input x="$out/y.npy" --output y="$out/y4.npy"
[ "$(head -c 6 "$out/y4.npy" | tail -c 5)" = NUMPY ] && [ "$(wc -c < "$out/y4.npy")" = $((128 + 60)) ] || die "y4.npy is malformed"
status 1 $coda run "$out/scale.coda" --input z="$out/y.npy"; says '"z"'
status 1 $coda run "$out/scale.coda" --output z="$out/y.npy"; says '"z"'
status 1 $coda run "$out/scale.coda" --input x=/nonexistent; says 'cannot be opened'
for n in 0 5 9 10 40 127 128 187; do
    head -c $n "$out/y.npy" > "$out/cut.npy"
    status 1 $coda run "$out/scale.coda" --input x="$out/cut.npy"; says cut.npy
done
npy() { # npy FILE SHAPE TYPE BYTES: a file with this header and that many zero bytes
    header="{'descr': '$3', 'fortran_order': False, 'shape': ($2), }"
    printf '\223NUMPY\001\000\166\000%-117s\n' "$header" > "$1"
    head -c "$4" /dev/zero >> "$1"
}
npy "$out/good.npy" '3, 5' '<f8' 120; status 0 $coda run "$out/scale.coda" --input x="$out/good.npy"; prints 'rms 0'
# int64: 2^32, -1 and 2 stay what they are; as ids, two of them name no row.
printf '%s\n' '%i = input i64[3]' '%s = state i64[3]' '%t = input f32[3,1]' '%n = assign %s, %i' \
    '%e = embedding %t, %i' 'output %e = %e' > "$out/ids.coda"
npy "$out/ids.npy" '3,' '<i8' 4
printf '\1\0\0\0\377\377\377\377\377\377\377\377\2\0\0\0\0\0\0\0' >> "$out/ids.npy"
status 0 $coda run "$out/ids.coda" --check --input i="$out/ids.npy" --output s="$out/s.npy"; prints '^e .*: pass$'
[ "$(tail -c 24 "$out/s.npy" | od -An -v -td8 | tr -s ' \n' ' ')" = ' 4294967296 -1 2 ' ] || die "int64 is not what it was"
head -c 128 "$out/s.npy" | grep -q "'descr': '<i8'" || die "s.npy is not of int64"
npy "$out/bad.npy" '5, 3' '<f4' 60; status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says shape
npy "$out/bad.npy" '3, 5' '<c8' 120; status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says type
npy "$out/bad.npy" '2147483647, 2147483647, 2147483647' '<f4' 60
status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says elements
npy "$out/bad.npy" '3, -5' '<f4' 60; status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says shape
npy "$out/bad.npy" '3, 5' '<f4' 59; status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says shape

# A line for each launch, with what the program is, its bytes, and on the CPU device the time that it took.
CODA_DEBUG=launch status 0 $coda run $graphs/llama_small.coda
[ "$(wc -l < "$out/err")" = 6 ] || die "6 launches are not 6 lines: $(cat "$out/err")"
says '^coda launch: @1 gemm batch=1 m=64 n=512 k=256 rope: rope; 360448 bytes, [0-9.]* ms$'
says '^coda launch: @2 attention batch=1 tq=64 tk=64 heads=4 kv_heads=2 head_dim=64 causal; 98304 bytes, [0-9.]* ms$'
CODA_DEBUG=launch status 0 $coda run $graphs/llama_small.coda --fold copy; says ' ms, by coda_prepare$'
CODA_DEBUG=,plans,1 status 0 $coda run $graphs/llama_small.coda
says '^coda: CODA_DEBUG has no word "plans"; its words are graph,rewrite,plan,source,cache,launch$'; says 'no word "1"'
# A profiler that listens (test/fake/nvtx.c) gets a range for each program, with its scope; without one, or if it does not
# want to, there is none, and nothing fails.
${CC:-gcc} -O1 -Wall -Wno-cast-function-type -Werror -shared -fPIC test/fake/nvtx.c -o "$out/nvtx.so"
NVTX_INJECTION64_PATH=$out/nvtx.so FAKE_NVTX=$out/ranges status 0 $coda run "$out/scoped.coda"
[ "$(grep -c '^push coda ' "$out/ranges")" = 6 ] && [ "$(grep -c '^pop coda 0$' "$out/ranges")" = 6 ] || die "6 programs are not 6 ranges: $(cat "$out/ranges")"
grep -q '^push coda gemm batch=1 m=64 n=256 k=688: add in layers.0$' "$out/ranges" || die "a range lacks its scope: $(cat "$out/ranges")"
rm "$out/ranges"
for tool in "$out/nvtx.so" "$out/none.so" nvtx.so test/system/tool.sh "$out/scoped.coda"; do
    FAKE_NVTX_REFUSES=1 NVTX_INJECTION64_PATH=$tool FAKE_NVTX=$out/ranges status 0 $coda run "$out/scoped.coda"
    [ ! -e "$out/ranges" ] || die "$tool got ranges"
done
# A trace: JSON, with the plan and each program of the CPU device.
ln -sf "$out/scoped.coda" "$out/link.json"
CODA_TRACE=$out/trace.json status 0 $coda run "$out/scoped.coda"
[ "$(grep -c '"name": "gemm batch' "$out/trace.json")" = 4 ] || die "4 products are not 4 events: $(cat "$out/trace.json")"
grep -q '"name": "gemm batch=1 m=64 n=256 k=688: add in layers.0", "cat": "coda", "ph": "X", "ts": [0-9.]*, "dur": [0-9.]*,' "$out/trace.json" ||
    die "no program in the trace: $(cat "$out/trace.json")"
grep -q '"name": "coda_compile"' "$out/trace.json" || die "no plan in the trace: $(cat "$out/trace.json")"
${CC:-gcc} -O1 -Wall -Werror test/system/json.c -o "$out/json"
"$out/json" < "$out/trace.json" || die "the trace is no JSON: $(cat "$out/trace.json")"
for file in /nonexistent/trace.json "$out" "$out/link.json"; do
    CODA_TRACE=$file status 0 $coda run "$out/scoped.coda"
    says "^coda: CODA_TRACE: $file cannot be opened: "
done
CODA_TRACE=/dev/full CODA_DUMP=/nonexistent status 0 $coda run "$out/scoped.coda"
says '^coda: CODA_TRACE: /dev/full cannot be written: No space left on device$'
says '^coda: CODA_DUMP: /nonexistent is no folder that can be opened'
grep -q matmul "$out/scoped.coda" || die 'a trace followed a link'
device=$(cd "${BUILD:-build}" && pwd)/emulator # an SM in software: a launch has begun, and takes what it takes
if [ -e "$device/libcuda.so.1" ]; then
    LD_LIBRARY_PATH=$device CODA_LIBCUDA=$device/libcuda.so.1 CODA_CUDA_LIB=$device CODA_CACHE_DIR=$out/launches \
        CODA_DEBUG=launch status 0 $coda run "$out/scale.coda" --device gpu
    says '^coda launch: @0 coda_rows_scale, rows \[3,5\]: scale; 120 bytes$'
    LD_LIBRARY_PATH=$device CODA_LIBCUDA=$device/libcuda.so.1 CODA_CUDA_LIB=$device CODA_CACHE_DIR=$out/launches \
        NVTX_INJECTION64_PATH=$out/nvtx.so FAKE_NVTX=$out/ranges status 0 $coda run "$out/scale.coda" --device gpu
    grep -q '^push coda coda_rows_scale: rows \[3,5\]: scale$' "$out/ranges" || die "no kernel's name: $(cat "$out/ranges")"
    LD_LIBRARY_PATH=$device CODA_LIBCUDA=$device/libcuda.so.1 CODA_CUDA_LIB=$device CODA_CACHE_DIR=$out/launches \
        status 0 $coda bench "$out/scale.coda" --device gpu --rounds 1 --json; prints '"kernel": "coda_rows_scale"'
fi
status 0 $coda run $graphs/llama_small.coda; [ ! -s "$out/err" ] || die "launches without CODA_DEBUG: $(cat "$out/err")"

# The cache. A compiler that is not there (test/fake) fills it; small graphs give small caches.
make --no-print-directory -s BUILD="${BUILD:-build}" "${BUILD:-build}/fake/libnvrtc.so.13"
${CC:-gcc} -O1 -Wall -Werror test/system/json.c -o "$out/json"
json() { "$out/json" ${1:+"$1"} < "$out/out" || die "no JSON with $1: $(cat "$out/out")"; }
CODA_CUDA_LIB=$(cd "${BUILD:-build}/fake" && pwd)
CODA_CACHE_DIR=$out/cache
export CODA_CUDA_LIB CODA_CACHE_DIR
unset CODA_BUNDLES CODA_RECORD XDG_CACHE_HOME
chmod -R u+w "$out/cache" 2>/dev/null || :
rm -rf "$out/cache" "$out/other" "$out/two" "$out/range" "$out/none" "$out/empty" "$out"/*.bundle "$out/used.keys"
first=$graphs/llama_small.coda second=$graphs/gpt2_small.coda
entries() { find "${1:-$out/cache}" -type f -path '*/v[0-9]*/*/*' | wc -l; }

status 0 $coda cache --help; prints '^usage: coda cache'
status 2 $coda cache frobnicate; says frobnicate
status 2 $coda cache list --dry-run; says '--dry-run'
status 2 $coda cache list a b; says '"b"'
status 2 $coda cache explain; says 'needs a NAME'
status 2 $coda cache explain a b c; says '"c"'
status 2 $coda cache export; says 'needs a BUNDLE'
status 2 $coda cache import; says 'needs a BUNDLE'
status 2 $coda cache export a --keys; says 'needs a value'
status 2 $coda cache export a --json; says '--json'
status 2 $coda cache prune; says 'needs --max-size'
for n in '' -1 x 1x 1KK 9999999999G; do status 2 $coda cache prune --max-size "$n"; says 'cannot be'; done
for n in '' 1m 1.5d; do status 2 $coda cache prune --older-than "$n"; says 'cannot be'; done
for n in '' 1a a-b; do status 2 $coda cache export "$out/x" --c-array "$n"; says 'cannot be'; done
status 1 $coda cache list; says "$out/cache"
[ ! -e "$out/cache" ] || die "who only looks made a folder"
status 1 $coda cache list --cache-dir /dev/null/none; says 'none'
status 1 $coda cache verify /nonexistent; says 'cannot be opened'

CODA_RECORD=$out/used.keys status 0 $coda compile $first; prints coda_gemm
n=$(entries)
[ "$n" -gt 2 ] || die "$n entries after a compilation"
[ "$(sort -u "$out/used.keys" | grep -c '^kernel [0-9a-f]\{64\} sm_90a coda_')" = "$n" ] ||
    die "the record is not of $n kernels: $(cat "$out/used.keys")"
status 0 $coda compile $first; prints cached
CODA_CACHE_LIMIT=1K status 0 $coda compile $first --cache-dir "$out/small"; says 'kernels* .*not kept in .*/small: there is no room below the limit$'
status 0 $coda compile $first --cache-dir /dev/null; says '^coda: no kernel is kept: /dev/null cannot be opened'
status 0 $coda cache list; prints 'kernel  sm_90a'; prints "^$n entries"
status 0 $coda cache list --json; json
[ "$(grep -c '"name"' "$out/out")" = "$n" ] || die "the list is not of $n entries"
name=$(sed -n '2s/.*"name": "\([0-9a-f]*\)".*/\1/p' "$out/out")
other=$(sed -n '3s/.*"name": "\([0-9a-f]*\)".*/\1/p' "$out/out")
status 0 $coda cache stat; prints "^directory  $out/cache"; prints "^kernel     $n,"
status 0 $coda cache stat --json; json kernel.entries; json cache; prints "\"entries\": $n,"
CODA_BUNDLES=/nonexistent/a status 0 $coda cache stat; prints '^problem .*/nonexistent/a'
status 0 $coda cache stat --json
for counter in $(sed -n '/"memory_hits"/,$s/^ *"\([a-z_]*\)".*/\1/p' "$out/out"); do
    grep -q "\`$counter\`" cache/README.md || die "cache/README.md does not say what $counter counts"
done
status 0 $coda cache verify; prints '^0 rejected'
status 0 $coda cache explain "$name"; prints '^arch sm_90a'; prints '^#include'
status 0 $coda cache explain "$name" --json; json note
status 0 $coda cache explain "$name" "$other"; prints '^text '; prints '^symbol'
status 0 $coda cache explain "$name" "$other" --json; json differences
status 0 $coda cache explain "$name" "$name"; prints 'the same'
status 1 $coda cache explain 0123456789abcdef0; says 'no entry'
status 1 $coda cache explain ''; says 'several'

# Out as a bundle and in again, by directory, by record and by graph: the same bytes.
status 0 $coda cache export "$out/all.bundle"; prints "^$n entries"
status 0 $coda cache export "$out/keys.bundle" --keys "$out/used.keys"; prints "^$n entries"
status 0 $coda cache export "$out/graph.bundle" --graph $first; prints "^$n entries"
cmp "$out/all.bundle" "$out/keys.bundle" && cmp "$out/all.bundle" "$out/graph.bundle" || die 'bundles differ'
status 0 $coda cache export "$out/none.bundle" --arch sm_80; prints '^0 entries'
status 0 $coda cache export "$out/two.bundle" --graph $first --arch sm_80,sm_90a --cache-dir "$out/two"
status 0 $coda cache stat "$out/two.bundle"; prints '^arch sm_80$'; prints '^arch sm_90a$'
status 0 $coda cache export "$out/one.bundle" --arch sm_90a --cache-dir "$out/two"
cmp "$out/all.bundle" "$out/one.bundle" || die 'one architecture of two is not what it was'
status 1 $coda cache export "$out/none.bundle" --graph $first --arch sm_90a,sm_1; says 'sm_1'
printf 'kernel %064d\nno line of a record\n' 7 > "$out/unknown.keys"
status 1 $coda cache export "$out/none.bundle" --keys "$out/unknown.keys"; says '1 keys'
status 1 $coda cache export "$out/no/folder/x.bundle"; says 'cannot be written'
status 0 $coda cache list "$out/all.bundle"; prints "^$n entries"
status 0 $coda cache list "$out/all.bundle" --json; json
status 0 $coda cache stat "$out/all.bundle"; prints '^library '; prints '^arch sm_90a'; prints '^nvrtc '
status 0 $coda cache stat "$out/all.bundle" --json; json manifest
status 0 $coda cache verify "$out/all.bundle"
head -c 1000 "$out/all.bundle" > "$out/cut.bundle"
status 1 $coda cache import "$out/cut.bundle"; says 'instead of'
status 0 $coda cache import "$out/all.bundle" --cache-dir "$out/other"; prints "$n of $n entries"
[ "$(entries "$out/other")" = "$n" ] || die "$(entries "$out/other") entries imported"
CODA_CUDA_LIB=/nonexistent status 0 $coda compile $first --cache-dir "$out/other"; prints cached
CODA_CUDA_LIB=/nonexistent CODA_BUNDLES=$out/all.bundle status 0 $coda compile $first --cache-dir "$out/none"
prints cached
status 0 $coda cache verify --cache-dir "$out/other"; prints '^0 rejected'

# A graph over a range: the cache, or the bundle, is warm for every shape, and without a compiler none is missed.
status 0 $coda compile "$out/symbolic.coda" --dim T=1..48 --cache-dir "$out/range"
prints '^[1-9][0-9]* kernels for all shapes'
all=$(sed -n 's/ kernels for all shapes$//p' "$out/out")
[ "$(grep -c '^coda_' "$out/out")" = "$all" ] && ! grep -q cached "$out/out" || die "not $all new kernels: $(cat "$out/out")"
status 0 $coda compile "$out/symbolic.coda" --dim T=1..48 --cache-dir "$out/range"
[ "$(grep -c cached "$out/out")" = "$all" ] || die "not $all kernels in the cache: $(cat "$out/out")"
status 0 $coda cache export "$out/range.bundle" --graph "$out/symbolic.coda" --cache-dir "$out/range"
prints '^[1-9][0-9]* entries'
for t in 1 2 7 8 9 16 17 31 33 48; do
    status 0 $coda compile "$out/symbolic.coda" --dim T=$t..$t --cache-dir "$out/range"; prints cached
    ! grep '^coda_' "$out/out" | grep -qv cached || die "T=$t wants another kernel: $(cat "$out/out")"
done
for t in 1..64 1..1 63..64; do
    CODA_CUDA_LIB=/nonexistent CODA_BUNDLES=$out/range.bundle status 0 $coda compile "$out/symbolic.coda" --dim T=$t \
        --cache-dir "$out/none"
    prints 'kernels for all shapes'
done
CODA_CUDA_LIB=/nonexistent status 1 $coda compile "$out/symbolic.coda" --dim T=1..48 --cache-dir "$out/empty"; says NVRTC

# Into whatever the name is: a link stays, a mode stays, a FIFO or a device is written to.
mkdir -p "$out/links" && rm -f "$out"/links/* && cp "$out/one.bundle" "$out/links/file" && chmod 600 "$out/links/file"
printf old > "$out/links/file"; ln -s file "$out/links/link"; mkfifo "$out/links/fifo"
status 0 $coda cache export "$out/links/link"
[ -L "$out/links/link" ] && [ "$(stat -c %a "$out/links/file")" = 600 ] || die 'export: the link or the mode is gone'
cmp "$out/all.bundle" "$out/links/file" || die 'export: what the link leads to differs'
cat "$out/links/fifo" > "$out/links/got" & 
status 0 $coda cache export "$out/links/fifo"; wait
[ -p "$out/links/fifo" ] && cmp "$out/all.bundle" "$out/links/got" || die 'export: the FIFO'
$coda cache export /dev/stdout 2>"$out/err" | cmp - "$out/all.bundle" || die 'export: a pipe'
$coda cache export /dev/stdout 2>"$out/err" >"$out/links/got" && cmp "$out/links/got" "$out/all.bundle" || die 'export: standard output'
says "^$n entries"
status 0 $coda cache export /dev/null; [ -c /dev/null ] || die 'export: /dev/null is gone'
status 1 $coda cache export /dev/full; says 'No space'
[ "$(ls -A "$out/links" | wc -l)" = 4 ] || die "export: litter: $(ls -A "$out/links")"

# Whoever cannot be told anything is told so by the status, and by one line, in every command.
mutely() { # mutely COMMAND...: with an output that is full, and with none
    for how in full none; do
        got=0
        if [ $how = full ]; then "$@" >/dev/full 2>"$out/err" || got=$?; else "$@" >&- 2>"$out/err" || got=$?; fi
        [ $got = 1 ] && [ "$(wc -l < "$out/err")" = 1 ] && grep -q '^coda: standard output' "$out/err" ||
            die "$*: output $how: status $got, $(cat "$out/err")"
    done
}
for command in --help --version info "explain $first" "explain $first --dot" "compile $first" \
    "run $graphs/llama_small.coda" "cache --help" "cache list" "cache list --json" "cache stat" "cache stat --json" \
    "cache verify" "cache verify --json" "cache explain $name" "cache explain $name --json" "cache explain $name $other" \
    "cache explain $name $other --json" "cache list $out/all.bundle" "cache stat $out/all.bundle" \
    "cache export $out/mute.bundle" "cache import $out/all.bundle --cache-dir $out/other" "cache prune --max-size 1G" \
    "cache prune --max-size 1G --json" "cache clear --dry-run" "cache clear --dry-run --json"; do
    mutely $coda $command
done
# A file that is written meanwhile is not where the output goes, whatever descriptors were closed.
status 0 $coda run "$out/scale.coda" --output y="$out/y.npy"
$coda run "$out/scale.coda" --output y="$out/y2.npy" <&- >&- 2>&- && die 'closed output: no status'
cmp "$out/y.npy" "$out/y2.npy" || die 'the output went into a file'

# What a terminal gets are characters: names with escapes, control characters, and bytes that are no text.
odd=$(printf 'a\033[31m\001\177\233\303\050 "\\ \303\274')
clean() { # no control characters but tabs and line feeds, and nothing that is no UTF-8
    ! LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')" "$1" || die "control characters in $1"
    iconv -f UTF-8 -t UTF-8 "$1" >/dev/null 2>&1 || die "no UTF-8 in $1"
}
mkdir -p "$out/$odd"
cp "$out/all.bundle" "$out/$odd/b"
status 0 $coda cache import "$out/$odd/b" --cache-dir "$out/$odd/c"; clean "$out/out"
status 0 $coda cache stat --cache-dir "$out/$odd/c"; clean "$out/out"; prints '\\x1b\[31m\\x01\\x7f\\x9b\\xc3('
status 0 $coda cache stat --json --cache-dir "$out/$odd/c"; clean "$out/out"; json cache
CODA_BUNDLES="$out/$odd/none" status 0 $coda cache stat; clean "$out/out"
CODA_BUNDLES="$out/$odd/none" status 0 $coda cache stat --json; clean "$out/out"; json cache
status 1 $coda explain "$out/$odd/none"; clean "$out/err"
status 2 $coda "$odd"; clean "$out/err"
status 2 $coda cache list --json --"$odd"; clean "$out/err"
status 1 $coda run "$out/scale.coda" --input "x=$(printf 'a\nb')"; clean "$out/err"
CODA_CACHE_LIMIT=1e9 status 0 $coda cache stat; prints 'CODA_CACHE_LIMIT is "1e9"'
CODA_CACHE_LIMIT=1KB status 0 $coda cache stat --json; prints '"limit": 1024,'

# What promises to be larger than it is.
truncate -s 4G "$out/sparse"
for command in "explain $out/sparse" "cache stat $out/sparse" "cache import $out/sparse" "cache export $out/x.bundle --keys $out/sparse" \
    "run $out/scale.coda --input x=$out/sparse"; do (ulimit -v 1000000; status 1 $coda $command) || exit 1; done
status 1 $coda explain /dev/zero; says '256 MB'

# As an array in a program.
status 0 $coda cache export "$out/array.c" --c-array model_kernels
cat >> "$out/array.c" <<'END'
#include <stdio.h>
int main(void) { return fwrite(model_kernels, 1, model_kernels_size, stdout) != model_kernels_size; }
END
${CC:-gcc} -Wall -Werror "$out/array.c" -o "$out/array" && "$out/array" | cmp - "$out/all.bundle" || die 'the array differs'

# Damage is found, told and removed.
file=$(find "$out/cache" -type f -path "*$(echo "$name" | cut -c5-)")
printf x | dd of="$file" bs=1 seek=200 conv=notrunc 2>/dev/null
status 1 $coda cache verify; says '1 of'; prints 'rejected: digest'
status 1 $coda cache export "$out/some.bundle"; says '1 damaged'; prints "^$((n - 1)) entries"
status 1 $coda cache verify --json; json faults
status 0 $coda cache prune --damaged --dry-run; prints '^would remove 1 entries'
status 0 $coda cache verify --remove --json; json removed; prints '"removed": 1'
status 0 $coda cache verify; prints '^0 rejected'

# Less.
status 0 $coda compile $second
n=$(entries)
status 0 $coda cache prune --older-than 1h; prints '^removed 0 entries'
find "$out/cache" -type f -exec touch -d '2 days ago' {} +
status 0 $coda cache list; prints '48 h\|2 d'
status 0 $coda cache prune --older-than 1d --dry-run --json; json removed; prints "\"removed\": $n,"
status 0 $coda cache prune --max-size 0 --dry-run; prints '; 0 stay, 0 B'
[ "$(entries)" = "$n" ] || die 'a dry run removes'
status 0 $coda cache prune --max-size 20K; prints '^removed'
[ "$(du -s --block-size=1K --exclude='.*' "$out/cache" | cut -f1)" -lt 400 ] && [ "$(entries)" -lt "$n" ] || die 'prune'
status 0 $coda cache clear --dry-run; prints '^would remove'
status 0 $coda cache clear --json; json kept
[ "$(entries)" = 0 ] || die 'clear leaves entries'
status 0 $coda cache stat; prints '^entries    0'
echo "tool: commands, errors, graphs, .npy files, the cache and bundles"
