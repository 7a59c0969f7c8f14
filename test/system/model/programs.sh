#!/bin/sh
# programs.sh BUILD -- examples/embed and examples/generate from their command lines: what they print on the CPU
# device they print on the SM in software, too; and what makes no sense is an exit status and a line.
set -eu
build=$1
here=$(pwd)
tiny=test/system/model/tiny
emulated() {
    env CODA_CACHE_DIR="$build/emulator/cache" CODA_CUDA_LIB="$here/$build/emulator" \
        CODA_LIBCUDA="$here/$build/emulator/libcuda.so.1" LD_LIBRARY_PATH="$here/$build/emulator" "$@"
}
# COMMAND...: what it says beside its output matters if it fails.
quiet() { "$@" 2>"$build/model/said" || { cat "$build/model/said" >&2 && return 1; }; }
fail() { echo "$*"; exit 1; }

# STATUS TEXT COMMAND...: the command fails so, and says that.
refused() {
    wanted=$1 text=$2 status=0
    shift 2
    said=$("$@" 2>&1 </dev/null) || status=$?
    [ $status = "$wanted" ] || fail "$*: status $status, not $wanted"
    case $said in *"$text"*) ;; *) fail "$*: '$said' does not say '$text'" ;; esac
}

generate=$build/examples/generate embed=$build/examples/embed
refused 2 usage: "$generate"
refused 2 usage: "$generate" --tokens no "$tiny/llama" 1
refused 2 usage: "$embed" --dtype f7 "$tiny/bert"
refused 1 'No such file' "$generate" --cpu --ids "$tiny/none" 1
refused 1 "'x' is no list of tokens" "$generate" --cpu --ids "$tiny/llama" '1 x'
refused 1 '0 tokens' "$generate" --cpu --ids "$tiny/llama" ''
refused 1 'token 80 is not in the vocabulary' "$generate" --cpu --ids "$tiny/llama" 80
refused 1 'makes no text' "$generate" --cpu --ids "$tiny/bert" 1
refused 1 'the model was made for 1024' "$generate" --cpu --ids --context 2000 "$tiny/llama" 1

# README's program is that, and writes what generate writes.
sed -n '/^```c$/,/^```$/p' examples/model/README.md | sed '/^```/d' >"$build/model/first.c"
${CC:-gcc} -std=c11 -D_GNU_SOURCE -Wall -Werror -Iinclude -Iexamples -Iexamples/model "$build/model/first.c" \
    "$build"/examples/model/*.o -o "$build/model/first" -L"$build" -lcoda -Wl,-rpath,"$here/$build" \
    $(pkg-config --libs jansson libpcre2-8 libutf8proc) -lm -ldl
first=$("$build/model/first" "$tiny/llama" | tr '\n' ' ')
same=$(quiet "$generate" --cpu --ids --tokens 20 "$tiny/llama" 1,17,4)
[ "$first" = "$same" ] || fail "README's program writes '$first', generate '$same'"

on_cpu=$(quiet "$generate" --cpu --ids --tokens 7 --context 8 "$tiny/llama" 1)
[ "$(echo "$on_cpu" | wc -w)" = 7 ] || fail "generate: '$on_cpu' are not 7 tokens"
on_sm=$(quiet emulated "$generate" --gpu --ids --tokens 7 --context 8 --dtype f32 "$tiny/llama" 1)
[ "$on_cpu" = "$on_sm" ] || fail "generate: '$on_cpu' on the CPU device, '$on_sm' on the emulator"

vector() { tr ' ' '\n' >"$build/model/$1" && [ "$(wc -l <"$build/model/$1")" = 32 ] || fail "embed: no vector of 32"; }
echo '5,6,7' | quiet "$embed" --cpu --ids "$tiny/bert" | vector cpu
awk '{ a += $1 * $1 } END { exit !(a > 0.99999 && a < 1.00001) }' "$build/model/cpu" || fail "embed: no length of 1"
[ -n "${CODA_FULL:-}" ] || { echo "programs: generate on the CPU device and on the emulator, embed" && exit; }
echo '5,6,7' | quiet emulated "$embed" --gpu --ids "$tiny/bert" | vector sm
paste "$build/model/cpu" "$build/model/sm" | awk '{ dot += $1 * $2 } END { exit !(dot > 0.9999) }' ||
    fail "embed: the vectors differ"
echo "programs: generate and embed on the CPU device and on the emulator"
