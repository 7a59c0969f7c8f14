#!/bin/sh
# demo.sh -- the demo on a machine without a GPU. With NVRTC it shows what the kernels are; without, it says in one line
# what is missing and how to get it. Its errors against fp64 are good both times.
# Run as: test/system/demo.sh BUILD FOLDER
set -eu
demo=$1/examples/llama_block out=$2
mkdir -p "$out"

good() { [ "$(grep -c '^  \(bf16\|f32\) .* good$' "$1")" = 2 ] && [ "$(tail -1 "$1")" = 'done' ]; }

"$demo" --cpu > "$out/with" 2>&1 && good "$out/with" || { cat "$out/with"; exit 1; }
grep -q '^  coda_gemm_rope .* cached ' "$out/with" || { echo 'with NVRTC no kernel is shown'; cat "$out/with"; exit 1; }
CODA_CUDA_LIB=/nonexistent "$demo" --cpu > "$out/without" 2>&1 && good "$out/without" || { cat "$out/without"; exit 1; }
lines=$(grep -c 'NVRTC is missing: .*\.ci/deps nvrtc' "$out/without") || true
[ "$lines" = 1 ] || { echo "without NVRTC $lines lines say so"; cat "$out/without"; exit 1; }
echo 'demo: with NVRTC it shows kernels, without it says what is missing, and is right both times'
