#!/bin/bash
# devices.sh BUILD [LIBRARY] -- train on a GPU, or with LIBRARY on the SM in software that is built there: its losses are the CPU
# device's but for rounding, and a run that was killed goes on to the bits of one that was not.
set -eu
build=$1 library=${2:-}
train=$build/train text=test/training/data/readme.txt steps=40
root=$build/training-on-gpu optimizers='adamw muon'
fail() { echo "train: $*"; cat "$root/said"; exit 1; }
if [ -n "$library" ]; then
    library=$(cd "$library" && pwd)
    root=$build/emulated-training steps=3
    export CODA_CACHE_DIR=$build/emulated CODA_CUDA_LIB=$library/emulator CODA_LIBCUDA=$library/emulator/libcuda.so.1
    export LD_LIBRARY_PATH=$library/emulator
    # A short run takes the optimiser that its seed draws.
    [ -n "${CODA_FULL:-}" ] || optimizers=$([ $((${CODA_SEED:-0} % 2)) = 0 ] && echo adamw || echo muon)
fi
rm -rf "$root" && mkdir -p "$root"
head -c 300 $text >"$root/text"
sizes="--tokens 16 --layers 1 --hidden 32 --heads 2 --kv-heads 1 --inner 32 --held 0.1 --evaluate 2 --save 1"
half="$sizes --steps $((steps + 5)) --batch 2 --chunk 12 --dtype f16 --scale 16777216 --scale-steps 2"
options="$sizes --steps $steps --batch 2 --accumulate 2 --dtype bf16"
# NAME OPTION...: the losses, and norms, of each step on both devices. An epoch of 270 tokens ends in a smaller batch.
compare() {
    name=$1
    shift
    "$train" --gpu "$@" --out "$root/gpu.$name" "$root/text" >"$root/said" 2>&1 || fail "$name fails"
    "$train" --cpu "$@" --out "$root/cpu.$name" "$root/text" >"$root/said" 2>&1 || fail "$name fails on the CPU"
    grep -q 'on the CPU device' "$root/said" || fail 'the CPU device is none'
    paste "$root/gpu.$name/losses.tsv" "$root/cpu.$name/losses.tsv" | awk 'NR > 1 && NR < 10 {
        n++
        if (!($2 > 3 && $2 < 8)) bad = 1 # of 256 bytes: 5.5, at first
        for (i = 2; i <= 3; i++) {
            a = $i; b = $(NF / 2 + i)
            if (a !~ /[0-9]/ && b !~ /[0-9]/) continue # of a step that is skipped
            if (!(b > 0 && a / b < 1.01 && a / b > 0.99)) bad = 1
        }
    } END { exit bad || n < 3 }' || { paste "$root"/?pu.$name/losses.tsv; fail "$name: other losses than the CPU device's"; }
}
for optimizer in $optimizers; do compare $optimizer $options --optimizer $optimizer; done
# One run a step, whose logits come by chunks; of fp16 the first steps have too large a scale.
compare chunks $sizes --steps $((steps + 3)) --batch 5 --chunk 30 --dtype bf16
compare half $half
grep -q 'nan\|inf' "$root/gpu.half/losses.tsv" || fail 'no step of fp16 was skipped'
grep -c '^[0-9]*	[0-9.]*	[0-9]' "$root/gpu.half/losses.tsv" | grep -q '^[2-9]$\|^[1-9].$' || fail 'no step of fp16 was good'
# NAME OPTION...: the files of a run of the same options, whose name is NAME, that is killed and goes on.
killed() {
    name=$1 killed=$root/killed.$1
    shift
    "$train" --gpu "$@" --out "$killed" "$root/text" >"$root/said" 2>&1 &
    process=$!
    until [ "$(wc -l 2>/dev/null <"$killed/losses.tsv" || echo 0)" -ge 2 ] || ! kill -0 $process 2>/dev/null; do sleep 0.05; done
    kill -9 $process 2>/dev/null || fail 'it was done before it was killed'
    wait $process 2>/dev/null || :
    [ "$(wc -l <"$killed/losses.tsv")" -lt "$(wc -l <"$root/gpu.$name/losses.tsv")" ] || fail 'it was killed behind its last step'
    "$train" --gpu --resume "$killed" >"$root/said" 2>&1 || fail 'it does not go on'
    for file in training.safetensors model.safetensors losses.tsv; do
        cmp "$killed/$file" "$root/gpu.$name/$file" || fail "$name: another $file"
    done
}
killed ${optimizers%% *} $options --optimizer ${optimizers%% *}
killed half $half
echo 'train: the losses of the CPU device, and the bits of runs that nobody stops'
