#!/bin/sh
# terminal.sh BUILD LIBRARY -- what the programs do where somebody looks, by the library's terminal_test.
set -eu
build=$(cd "$1" && pwd)
mkdir -p "$build/terminal"
exec "$2/terminal_test" "$2" "$build/terminal" \
    'loading stories260K/stories260K.gguf: ' 'plan of a prompt' \
    "$build/generate --plan --gpu stories260K/stories260K.gguf" \
    'loading test/model/tiny/bert: ' 'plan of a batch' "$build/embed --plan --gpu test/model/tiny/bert" \
    '0 of 1 answers, ' '' "$build/chat_load --requests 1 --port PORT"
