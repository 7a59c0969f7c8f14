#!/bin/bash
# pages.sh LIBRARY -- the block of the tree's README.md that runs whole models, and each command of this unit's pages that needs
# nothing else. LIBRARY is the library's output folder, in which the programs are in serving/. A compiler that is not there
# (test/fake) stands for NVRTC.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../../.."
root=$build/serving/pages
rm -rf "$root" && mkdir -p "$root"
unset LD_LIBRARY_PATH CODA_BUNDLES CODA_DEBUG
export CODA_CUDA_LIB=$build/fake CODA_CACHE_DIR=$root/cache
. test/system/pages.sh
not_run= count=0
stories=examples/serving/stories260K

# BLOCK: two programs that write the same story.
models() {
    if ! command -v curl >/dev/null; then
        not_run="$not_run
    README.md: whole models (curl is not there)"
        return
    fi
    # A port that is free, and an end to the server whatever happens.
    commands "$1" "1i trap 'kill %1 2>/dev/null || :' EXIT
        s|chat_server [^&]*&|chat_server --port 0 $stories/stories260K.gguf >'$root/server' \&\n\
            until port=\$(sed -n 's/.*127.0.0.1:\\\\([0-9]*\\\\)\$/\\\\1/p' '$root/server' \| grep .); do kill -0 %1; sleep 0.05; done|
        s|localhost:8080|localhost:\$port|
        s|make |make --no-print-directory -s |
        s|^kill %1|echo; & ; wait %1; trap - EXIT|"
    story=', there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball.'
    [ "$(grep -c "$story" "$1.said")" = 2 ] || wrong "the two do not tell the story: $(cat "$1.said")"
    said "$1" '"completion_tokens":50'
    grep -q '^chat_server: done' "$root/server" || wrong "the server did not end well: $(cat "$root/server")"
    count=$((count + 1))
}
blocks README.md "$root/README"
found=$(grep -l 'build/serving/chat_server' "$root"/README/[0-9][0-9]) || wrong 'README.md has no block that runs the server'
models "$found"

for page in examples/serving/README.md examples/serving/*/README.md examples/serving/model/quantised.md; do
    commands_of "$page" > "$root/lines"
    while read -r command <&3; do
        case $command in
        *\ \'\') run_line; cmp "$root/line" $stories/story.txt || wrong "$page: another story than story.txt" ;;
        *serving/draw*serving/digits*) run_line ;;
        *serving/draw*) skip "files of the reader's, or gigabytes" ;;
        *embed-data*|*build/minilm*) skip 'the network, or what it has brought' ;;
        make*) skip 'this test needs what it builds' ;;
        *VIT*|*--chat*|*model.gguf*) skip "files of the reader's" ;;
        *--plan*|*--bundle*) run_line "s|FOLDER|$stories/stories260K.gguf|" ;;
        *serving/quantize*) skip 'test/model has its like' ;;
        *--random*) skip 'it takes gigabytes' ;;
        *--gpu*) skip 'a GPU' ;;
        *serving/train*|*'--cpu mine'*) skip 'test/training has its like' ;;
        *Qwen3*|*curl*|*gnuplot*|*chat_load*) skip 'test/chat has its like' ;;
        *generate*) run_line "s|FOLDER|$stories/stories260K.gguf|" ;;
        *) wrong "$page has a command that pages.sh does not know: $command" ;;
        esac
    done 3< "$root/lines"
done
[ "$count" -ge 6 ] || wrong "only $count blocks and commands are run"
echo "not run:$not_run"
echo "pages: $count blocks and commands run; $(echo "$not_run" | grep -c .) others are not"
