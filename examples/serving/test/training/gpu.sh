#!/bin/bash
# gpu.sh BUILD -- what devices.sh asks of a GPU, and train as it comes, without a text: 200 steps there in bf16, fp16 and fp32,
# whose losses are those of the CPU device, and of each other; killed at random instants, it ends in the same bits.
set -eu
build=$1
train=$build/train root=$build/stories-on-gpu
test/training/devices.sh "$build"
rm -rf "$root" && mkdir -p "$root"
fail() { echo "train: $*"; cat "$root/said"; exit 1; }
# NAME OPTION...: a run; its last lines.
run() {
    name=$1
    shift
    "$train" "$@" --steps 200 --log 50 --save 0 --out "$root/$name" >"$root/said" 2>&1 || fail "$name fails"
    grep 'step 200' "$root/said" | sed "s/^/$name: /"
}
run gpu --gpu
text=$root/gpu/stories.txt
told="--tokenizer stories260K/stories260K.gguf --separator <|endoftext|> $text"
# A B FIRST LAST: how far the losses of two runs are from each other in the first steps, and their means in the last ones.
near() {
    paste "$root/$1/losses.tsv" "$root/$2/losses.tsv" | awk -F'\t' -v first="$3" -v last="$4" -v of="$1 and $2" 'NR > 1 {
        d = $2 / $7 - 1; if (d < 0) d = -d
        if (NR <= 21 && d > most) most = d
        if (NR > 181) { a += $2; b += $7 }
    } END {
        e = a / b - 1; if (e < 0) e = -e
        printf "%s: the losses of 20 steps within %.2e, the means of the last 20 within %.2e\n", of, most, e
        exit !(NR == 201 && most <= first && e <= last)
    }' || fail "$1 and $2: other losses"
}
for dtype in bf16 f16 f32; do run gpu.$dtype --gpu --dtype $dtype $told; done
for dtype in bf16 f32; do run cpu.$dtype --cpu --dtype $dtype $told; done # fp16 takes the CPU a minute
cmp "$root/gpu/model.safetensors" "$root/gpu.bf16/model.safetensors" || fail 'bf16 is not what a GPU trains in'
near gpu.f32 cpu.f32 1e-4 0.01
near gpu.bf16 cpu.bf16 5e-3 0.02
near gpu.bf16 gpu.f32 2e-2 0.02
near gpu.f16 gpu.f32 5e-3 0.02

RANDOM=${CODA_SEED:-$$}
echo "train: seed $RANDOM"
saved="--gpu --steps 200 --save 5 --evaluate 50 --log 200"
"$train" $saved --out "$root/whole" $told >"$root/said" 2>&1 || fail 'a run with checkpoints fails'
for kill in 1 2 3; do
    rm -rf "$root/killed"
    "$train" $saved --out "$root/killed" $told >"$root/said" 2>&1 &
    process=$!
    most=$((RANDOM % 150 + 10))
    until [ "$(wc -l 2>/dev/null <"$root/killed/losses.tsv" || echo 0)" -ge $most ] || ! kill -0 $process 2>/dev/null; do :; done
    kill -9 $process 2>/dev/null || fail 'it was done before it was killed'
    wait $process 2>/dev/null || :
    at=$(($(wc -l <"$root/killed/losses.tsv") - 1))
    "$train" --gpu --resume "$root/killed" >"$root/said" 2>&1 || fail 'it does not go on'
    for file in training.safetensors model.safetensors losses.tsv; do
        cmp "$root/killed/$file" "$root/whole/$file" || fail "kill $kill behind step $at: another $file"
    done
    echo "train: killed behind step $at, it goes on to the same bits"
done
