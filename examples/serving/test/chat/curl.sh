#!/bin/sh
# curl.sh SERVER -- asks chat_server as its README says, with curl; nothing, if curl is not there.
set -eu
command -v curl >/dev/null || { echo 'curl is not there: not tested'; exit 0; }

out=$(mktemp)
"$1" --port 0 >"$out" &
server=$!
trap 'kill $server 2>/dev/null || :; rm -f "$out"' EXIT

die() { echo "curl.sh: $*" >&2; exit 1; }
ask() { # PATH WORD [curl's options]: the answer has the word
    path=$1 word=$2; shift 2
    answer=$(curl -sS --max-time 60 --retry 50 --retry-connrefused --retry-delay 1 "$url$path" "$@") || die "$path: curl failed"
    case $answer in *"$word"*) ;; *) die "$path: no $word in: $answer" ;; esac
}

until grep -q ready "$out"; do
    kill -0 $server || die "the server ended: $(cat "$out")"
    sleep 0.05
done
url=$(sed -n 's/^chat_server: \(http.*\)/\1/p' "$out")
ask /health '"status":"ok"'
ask /v1/models '"id":"tiny"'
ask /metrics 'coda_kernels_loaded{model_name="tiny"} 0'
ask /v1/completions '"completion_tokens":7' -d '{"prompt": "hello", "max_tokens": 7, "ignore_eos": true}'
messages='"messages": [{"role": "user", "content": "hello"}], "max_tokens": 32'
ask /v1/chat/completions '"role":"assistant"' -d "{$messages}"
ask /v1/chat/completions 'data: [DONE]' -N -d "{$messages, \"stream\": true}"
kill $server
wait $server || die "the server did not end well: $?"
grep -q '^chat_server: done' "$out" || die "the server did not end well: $(cat "$out")"
echo 'curl.sh: 6 answers as they should be'
