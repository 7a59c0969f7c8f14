#!/bin/sh
# tool.sh -- the tool from outside: what it prints, what it writes, and how it fails.
# Run as: test/tool.sh FOLDER
set -eu
out=$1
coda=${BUILD:-build}/coda
graphs=examples/graphs
mkdir -p "$out"

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

# Usage.
status 0 $coda --help; prints '^usage: coda info'
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
    status 0 $coda explain "$g"; prints '^# derivation'; prints '^launches'
done
status 0 $coda explain $graphs/llama.coda --dot; prints '^digraph'
status 0 $coda explain $graphs/gpt2.coda --no-fusion
status 0 $coda explain $graphs/bert.coda --fold copy

# A plan for the GPU needs none; tuning does.
CODA_LIBCUDA=/nonexistent/libcuda.so.1; export CODA_LIBCUDA
status 0 $coda explain $graphs/gpt2.coda --device gpu; prints '^# plan'
status 1 $coda explain $graphs/gpt2.coda --autotune; says 'the CUDA driver is missing'
status 1 $coda compile $graphs/gpt2.coda --autotune; says 'the CUDA driver is missing'
unset CODA_LIBCUDA

# Runs, fused and not, in all fold modes, against fp64.
for g in $graphs/*_small.coda; do
    for how in '' '--no-fusion' '--fold copy' '--fold in-place'; do
        status 0 $coda run "$g" --check --ints 33 --seed 7 $how; prints ': pass$'
    done
done
status 1 $coda run $graphs/llama_small.coda --check --tolerance 1e-9; says differs; prints ': FAIL$'

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
npy "$out/bad.npy" '5, 3' '<f4' 60; status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says shape
npy "$out/bad.npy" '3, 5' '<c8' 120; status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says type
npy "$out/bad.npy" '2147483647, 2147483647, 2147483647' '<f4' 60
status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says elements
npy "$out/bad.npy" '3, -5' '<f4' 60; status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says shape
npy "$out/bad.npy" '3, 5' '<f4' 59; status 1 $coda run "$out/scale.coda" --input x="$out/bad.npy"; says shape
echo "tool: commands, errors, graphs and .npy files"
