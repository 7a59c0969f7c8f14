#!/bin/sh
# manual.sh TOOL FOLDER -- the manual, made of coda.h, of what `TOOL ops` says, of ENVIRONMENT.md and of the grammar in
# graph_parse.c: man pages FOLDER/man3/coda_*.3 and FOLDER/man7/coda.7, and all of it in one page, FOLDER/coda.html.
set -eu
tool=$1 folder=$2
here=$(dirname "$0")
version=$(sed -n 's/.*CODA_VERSION_STRING "\(.*\)"/\1/p' include/coda.h)
rm -rf "$folder"
mkdir -p "$folder/man3" "$folder/man7"
"$tool" ops --json > "$folder/words.json"
make_() { # WHAT SETTINGS
    awk -f "$here/header.awk" -f "$here/$1.awk" -v version="$version" -v folder="$folder" \
        include/coda.h include/coda_cache.h include/coda_grad.h include/coda_quant.h include/coda_profile.h include/coda_recurrent.h include/coda_group.h "$folder/words.json" ENVIRONMENT.md lib/graph/graph_parse.c
}
make_ man
make_ html > "$folder/coda.html.part"
rm "$folder/words.json"
mv "$folder/coda.html.part" "$folder/coda.html" # last: the target of make
