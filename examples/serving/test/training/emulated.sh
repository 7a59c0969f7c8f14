#!/bin/bash
# emulated.sh BUILD LIBRARY -- train on the SM in software: its losses are the CPU device's but for rounding, and a run that was
# killed goes on to the bits of one that was not.
set -eu
build=$1 library=$(cd "$2" && pwd)
root=$build/emulated-training
train=$build/train
rm -rf "$root" && mkdir -p "$root"
fail() { echo "train: $*"; cat "$root/said"; exit 1; }
export CODA_CACHE_DIR=$build/emulated CODA_CUDA_LIB=$library/emulator CODA_LIBCUDA=$library/emulator/libcuda.so.1
export LD_LIBRARY_PATH=$library/emulator
head -c 300 test/training/data/readme.txt >"$root/text"
options="--steps 3 --batch 2 --accumulate 2 --tokens 16 --layers 1 --hidden 32 --heads 2 --kv-heads 1 --inner 32 --dtype bf16
    --held 0.1 --evaluate 2 --save 1"
for optimizer in adamw muon; do
    "$train" --gpu $options --optimizer $optimizer --out "$root/gpu.$optimizer" "$root/text" >"$root/said" 2>&1 || fail "$optimizer fails"
    "$train" --cpu $options --optimizer $optimizer --out "$root/cpu.$optimizer" "$root/text" >"$root/said" 2>&1 || fail "$optimizer fails on the CPU"
    grep -q 'on emulated Hopper' "$root/said" && fail 'the CPU device is none'
    paste "$root/gpu.$optimizer/losses.tsv" "$root/cpu.$optimizer/losses.tsv" | awk 'NR > 1 {
        n++
        if (!($2 > 4 && $2 < 8)) bad = 1 # of 256 bytes: 5.5
        for (i = 2; i <= 3; i++) { d = $i / $(NF / 2 + i) - 1; if (!(d < 0.01 && d > -0.01)) bad = 1 }
    } END { exit bad || n != 3 }' || { paste "$root"/?pu.$optimizer/losses.tsv; fail "$optimizer: other losses than the CPU device's"; }
done
"$train" --gpu $options --out "$root/killed" "$root/text" >"$root/said" 2>&1 &
process=$!
until [ "$(wc -l 2>/dev/null <"$root/killed/losses.tsv" || echo 0)" -ge 2 ] || ! kill -0 $process 2>/dev/null; do sleep 0.05; done
kill -9 $process 2>/dev/null || fail 'it was done before it was killed'
wait $process 2>/dev/null || :
[ "$(wc -l <"$root/killed/losses.tsv")" -lt 4 ] || fail 'it was killed behind its last step'
"$train" --gpu --resume "$root/killed" >"$root/said" 2>&1 || fail 'it does not go on'
for file in training.safetensors model.safetensors losses.tsv; do
    cmp "$root/killed/$file" "$root/gpu.adamw/$file" || fail "another $file"
done
echo 'train: the losses of the CPU device, and the bits of a run that nobody stops'
