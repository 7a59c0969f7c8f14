#!/bin/bash
# train.sh BUILD [FULL] -- train from its command line: what makes no sense is an exit status and a line; a run that was
# killed goes on to the bits of one that was not; losses fall; generate reads what it writes. FULL: 20 kills, five of them
# inside of a checkpoint's write, and 2,000 steps.
set -eu
build=$1 full=${2:-}
root=$build/training
train=$build/train generate=$build/generate text=test/training/data/readme.txt tiny=test/model/tiny
rm -rf "$root" && mkdir -p "$root"
fail() { echo "train: $*"; exit 1; }
# COMMAND...: what it says matters if it fails.
quiet() { "$@" >"$root/said" 2>&1 || { cat "$root/said" >&2; return 1; }; }

# STATUS TEXT COMMAND...: the command fails so, and says that in one line, its last.
refused() {
    wanted=$1 line=$2 status=0
    shift 2
    said=$("$@" 2>&1 </dev/null) || status=$?
    [ $status = "$wanted" ] || fail "$*: status $status, not $wanted: $said"
    case $(echo "$said" | tail -1) in "train: "*"$line"*) ;; *) fail "$*: '$said' does not say '$line'" ;; esac
}

# ---- Command lines, and files that are not what they should be ----
refused 2 'there is no option --no; see train --help' "$train" --no
refused 2 '--steps needs a value' "$train" --steps
refused 2 '--steps cannot be "x": a whole number from 1 to' "$train" --steps x
refused 2 '--steps cannot be "1.5"' "$train" --steps 1.5
refused 2 '--steps cannot be "0"' "$train" --steps 0
refused 2 '--decay cannot be "2": a number from 0 to 1' "$train" --decay 2
refused 2 '--rate cannot be "nan"' "$train" --rate nan
refused 2 '--optimizer cannot be "sgd": adamw or muon' "$train" --optimizer sgd
refused 2 '--dtype cannot be "f64"' "$train" --dtype f64
refused 2 '--scale 3 is no power of two' "$train" --scale 3
refused 2 '--cpu and --gpu exclude each other' "$train" --cpu --gpu
refused 2 '--heads 8 is no multiple of --kv-heads 3' "$train" --kv-heads 3
refused 2 '--hidden 72 is no multiple of 2 --heads 8' "$train" --hidden 72
refused 2 '--adapters stand beside a checkpoint' "$train" --adapters 4 "$text"
refused 2 'without --tokenizer' "$train" --from "$tiny/llama" --tokenizer "$tiny/llama" "$text"
refused 2 '--batch 65536 windows of --tokens 256 are 16777216 tokens of a run' "$train" --batch 65536 --tokens 256
refused 2 '"b" is one argument too many' "$train" a b
refused 2 '--resume takes all from a' "$train" --resume a --steps 5
refused 2 '--resume takes all from a' "$train" --resume a "$text"
refused 1 'none/training.safetensors: there is no run to go on with' "$train" --cpu --resume "$root/none"
refused 1 'none.txt: No such file' "$train" --cpu --out "$root/a" "$root/none.txt"
refused 1 'no regular file, but a folder' "$train" --cpu --out "$root/a" "$root"
refused 1 'none: No such file' "$train" --cpu --out "$root/a" --from "$root/none" "$text"
refused 1 'x/y cannot be made' "$train" --cpu --out "$root/x/y" "$text"
: >"$root/empty.txt"
refused 1 'there is nothing to learn' "$train" --cpu --out "$root/a" "$root/empty.txt"
refused 1 'family bert makes no text' sh -c "cp -r $tiny/bert $root/bert; cp $text $root/bert/vocab.txt; exec $train --cpu --out $root/a --from $root/bert $text"
refused 1 'the model was made for' sh -c "cp -r $tiny/llama $root/llama; $train --cpu --out $root/bytes --steps 1 $text 2>/dev/null; cp $root/bytes/tokenizer.json $root/llama; exec $train --cpu --out $root/a --tokens 100000 --from $root/llama $text"
refused 1 'bytes has a run already: --resume' "$train" --cpu --out "$root/bytes" "$text"
: >"$root/short.txt"
if "$build/quantize" --cpu --text "$root/short.txt" "$root/bytes" "$root/fp8" >"$root/said" 2>&1; then fail 'quantize takes a text of nothing'; fi
grep -q 'short.txt: a text of 1 tokens is too short' "$root/said" && [ ! -e "$root/fp8" ] || fail "quantize: a text of nothing: $(cat "$root/said")"
"$build/quantize" --cpu --format fp8 --text "$text" --tokens 40 "$root/bytes" "$root/fp8" >"$root/said" || fail 'quantize: no checkpoint of a run'
grep -q '^perplexity of 39 tokens: [0-9.]*, before it [0-9.]*: ' "$root/said" || fail 'quantize --text: no perplexity of 39 tokens'
refused 1 'is quantised, and training wants 16 or 32 bits' "$train" --cpu --out "$root/a" --from "$root/fp8" "$text"
refused 1 'which would be written over' "$train" --cpu --out "$root/bytes" --from "$root/bytes" "$text"
refused 1 'a GGUF file of gemma2 cannot be gone on with: its ' "$train" --cpu --out "$root/a" --from "$tiny/gemma2/model.gguf" "$text"
refused 1 "there is no GPU, or no driver" env CODA_LIBCUDA=/none "$train" --gpu --out "$root/a" "$text"
rm -rf "$root/a"

# A disk that is full: files may not have more than so many blocks of a kilobyte. What was there stays.
cp "$root/bytes/training.safetensors" "$root/before"
status=0
(trap '' XFSZ && ulimit -f 1000 && exec "$train" --cpu --out "$root/full" --steps 1 "$text") >"$root/said" 2>&1 || status=$?
[ $status = 1 ] || fail "a full disk: status $status: $(cat "$root/said")"
tail -1 "$root/said" | grep -q 'full/training.safetensors cannot be written: File too large' || fail "a full disk: $(cat "$root/said")"
[ ! -e "$root/full/training.safetensors.part" ] || fail 'a full disk: half a file is left'
# One that is damaged, and a text that has changed.
mkdir -p "$root/cut" && head -c 100000 "$root/before" >"$root/cut/training.safetensors"
refused 1 'cut/training.safetensors: ' "$train" --cpu --resume "$root/cut"
cp "$text" "$root/text.md"
quiet "$train" --cpu --out "$root/changed" --steps 1 "$root/text.md"
echo more >>"$root/text.md"
refused 1 'is not the one that' "$train" --cpu --resume "$root/changed"

# What the plans need, without a text, a folder or a GPU.
"$train" --plan --cpu --layers 1 >"$root/said" 2>&1 || fail "--plan: $(cat "$root/said")"
[ "$(grep -c '^plan of ' "$root/said")" = 3 ] || fail "--plan: $(cat "$root/said")"

# ---- Losses fall, and what is written is read ----
# The mean loss of steps FROM to TO of a run.
mean() { awk -v from="$2" -v to="$3" 'NR > 1 && $1 >= from && $1 <= to { sum += $2; n++ } END { printf "%.4f", sum / n }' "$1/losses.tsv"; }
# A OP B, of numbers.
holds() { awk "BEGIN { exit !($1) }"; }
learn() { quiet "$train" --cpu --batch 1 --tokens 128 "$@"; }
learn --out "$root/short" --steps 120 "$text"
first=$(mean "$root/short" 1 10) last=$(mean "$root/short" 111 120)
holds "$first > 4 && $last < 3.2" || fail "the loss goes from $first to $last in 120 steps"
grep -q '<polyline' "$root/short/loss.svg" || fail 'no picture of the loss'
said=$("$generate" --cpu --tokens 20 "$root/short" 'The library' 2>/dev/null) || fail 'generate does not read what train writes'
[ ${#said} -ge 10 ] || fail "generate writes '$said'"
# Muon, accumulation, 16 bits, a checkpoint's tokenizer, documents, samples; then the checkpoint goes on, whole and by adapters.
learn --out "$root/muon" --steps 60 --optimizer muon "$text"
holds "$(mean "$root/muon" 51 60) < $(mean "$root/muon" 1 10) - 1" || fail "Muon: $(mean "$root/muon" 1 10) to $(mean "$root/muon" 51 60)"
learn --out "$root/words" --steps 40 --accumulate 3 --tokenizer stories260K/stories260K.gguf --separator '#' --sample 40 "$text"
holds "$(mean "$root/words" 31 40) < $(mean "$root/words" 1 10) - 1" || fail "words: $(mean "$root/words" 1 10) to $(mean "$root/words" 31 40)"
grep -q 'step 40 writes: ' "$root/said" || fail "no sample: $(cat "$root/said")"
learn --out "$root/half" --steps 40 --dtype bf16 "$text"
holds "$(mean "$root/half" 31 40) < $(mean "$root/half" 1 10) - 1" || fail "bf16: $(mean "$root/half" 1 10) to $(mean "$root/half" 31 40)"
learn --out "$root/whole" --steps 20 --from "$root/short" --rate 0.001 "$text"
learn --out "$root/beside" --steps 20 --from "$root/short" --adapters 4 "$text"
for run in whole beside; do
    holds "$(mean "$root/$run" 1 20) < $last + 0.3" || fail "$run: goes on with $(mean "$root/$run" 1 20) from $last"
done
"$generate" --cpu --tokens 5 "$root/beside" 'The library' >/dev/null 2>&1 || fail 'generate does not read weights and adapters'

# A GGUF file goes on, with rows and names as safetensors have them: at a rate of 0 it tells the story that it told.
learn --out "$root/story" --steps 1 --rate 0 --from stories260K/stories260K.gguf "$text"
[ "$("$generate" --cpu --tokens 256 "$root/story" '' 2>/dev/null)" = "$(cat stories260K/story.txt)" ] || fail 'stories260K tells another story'

# ---- Kills ----
# What a run leaves is what one leaves that nobody stops: weights, states, losses.
options="--cpu --steps 20 --batch 2 --accumulate 2 --tokens 64 --evaluate 7 --save 1 --log 20"
quiet "$train" $options --out "$root/whole_run" "$text"
compare() {
    for file in training.safetensors model.safetensors losses.tsv loss.svg; do
        cmp "$root/whole_run/$file" "$root/killed/$file" || fail "$1: another $file"
    done
}
# COMMAND...: is killed by the function `instant`, which is given its process.
kill_at() {
    "$@" >"$root/said" 2>&1 &
    process=$!
    instant $process
    kill -9 $process 2>/dev/null || :
    wait $process 2>/dev/null || :
}
go_on() {
    if [ -e "$root/killed/training.safetensors" ]; then "$@" "$train" --cpu --resume "$root/killed"
    else rm -rf "$root/killed" && "$@" "$train" $options --out "$root/killed" "$text"; fi
}
RANDOM=${CODA_SEED:-$$}
echo "train: seed $RANDOM"
anywhere() { sleep "$((RANDOM % 2)).$((RANDOM % 900 + 100))"; }
# Half a file is there, with bytes of it.
inside() {
    for _ in $(seq $((RANDOM % 8))); do until [ -e "$root/killed/losses.tsv.part" ] || ! kill -0 "$1" 2>/dev/null; do :; done; done
    until [ -s "$root/killed/training.safetensors.part" ] || ! kill -0 "$1" 2>/dev/null; do :; done
}
kills=2 writes=1 count=0 cut=0
[ -z "$full" ] || kills=20 writes=5
while [ $count -lt $kills ] || [ $cut -lt $writes ]; do
    [ $count -lt 200 ] || fail "$cut of $count kills were inside of a write"
    rm -rf "$root/killed"
    if [ $cut -lt $writes ]; then instant() { inside "$1"; }; else instant() { anywhere; }; fi
    go_on kill_at
    [ ! -s "$root/killed/training.safetensors.part" ] || cut=$((cut + 1))
    count=$((count + 1))
    if [ $((count % 3)) = 0 ]; then instant() { anywhere; }; go_on kill_at; fi # and once more, of one that goes on
    go_on quiet
    compare "kill $count"
done

# SIGTERM: the step that it is at is done, and kept. Again, if it was done before.
for _ in 1 2 3 4 5 6 7 8 9; do
    rm -rf "$root/killed"
    "$train" $options --save 0 --log 1 --out "$root/killed" "$text" >"$root/said" 2>&1 &
    process=$!
    until grep -q 'step 1 of' "$root/said" || ! kill -0 $process 2>/dev/null; do sleep 0.02; done
    kill -TERM $process 2>/dev/null || :
    wait $process || fail "SIGTERM: status $?: $(cat "$root/said")"
    grep -q 'the checkpoint is' "$root/said" || break
done
tail -1 "$root/said" | grep -q "stopped behind step .*; train --resume $root/killed goes on" || fail "SIGTERM: $(cat "$root/said")"
quiet "$train" --cpu --resume "$root/killed"
cmp "$root/whole_run/model.safetensors" "$root/killed/model.safetensors" || fail 'SIGTERM: other weights'

# ---- The text of the tree's README as it was, 2,000 steps of 128 bytes ----
if [ -n "$full" ]; then
    learn --out "$root/long" --steps 2000 --save 0 "$text"
    last=$(mean "$root/long" 1901 2000)
    holds "$last <= 1.8" || fail "a loss of $last after 2,000 steps"
    echo "train: a loss of $last after 2,000 steps"
    quiet "$train" --cpu --steps 200 --out "$root/stories"
    [ "$(grep -c 'endoftext' "$root/stories/stories.txt")" -ge 100 ] || fail 'no stories are drawn'
    holds "$(mean "$root/stories" 191 200) < $(mean "$root/stories" 1 10) - 2" || fail 'stories are not learned'
fi
echo "train: $count kills, $cut of them inside of a checkpoint's write, end in the same bits"
