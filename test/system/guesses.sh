#!/bin/sh
# guesses.sh -- what newcomers guess wrong of the tool, as guesses.txt lists it: one line of error, which says what
# was meant or where it is, and nothing else.
# Run as: test/system/guesses.sh FOLDER
set -eu
out=$1
coda=${BUILD:-build}/coda
here=$(dirname "$0")
mkdir -p "$out"

die() { echo "guesses: $*"; exit 1; }

printf '%%x = input f32[2,3]\n%%w = weight f32[4,3]\n%%y = matmul %%x, %%w @mlp\n%%z = silu %%y\noutput %%y = %%z\n' \
    > "$out/good.coda"
printf '%%x = input f32[2,3]\n%%w = weight f32[4,2]\n%%y = matmul %%x, %%w @mlp\noutput %%y = %%y\n' > "$out/matmul.coda"
printf 'dim %%T = 1..64\n%%x = input f32[T,3]\n%%z = silu %%x\noutput %%y = %%z\n' > "$out/symbol.coda"
# Version 1.0, a header of 118 bytes, and four floats of 0.
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }" > "$out/two.npy"
printf '\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000' >> "$out/two.npy"

count=0
while IFS= read -r line; do
    case $line in '' | '#'*) continue ;; esac
    wanted=${line%% | *} line=${line#* | }
    words=${line%% | *} pieces=${line#* | }
    words=$(echo "$words" | sed "s|FILE|$out/good.coda|g; s|MATMUL|$out/matmul.coda|; s|NPY|$out/two.npy|; s|SYMBOL|$out/symbol.coda|")
    got=0
    # shellcheck disable=SC2086
    $coda $words > "$out/out" 2> "$out/err" || got=$?
    [ "$got" = "$wanted" ] || die "coda $words: exit status $got instead of $wanted: $(cat "$out/err")"
    [ "$(wc -l < "$out/err")" = 1 ] && grep -q '^coda: ' "$out/err" || die "coda $words: not one line: $(cat "$out/err")"
    [ ! -s "$out/out" ] || die "coda $words: it prints, too: $(cat "$out/out")"
    while [ -n "$pieces" ]; do
        piece=${pieces%% | *}
        grep -qF -e "$piece" "$out/err" || die "coda $words: \"$piece\" is not in: $(cat "$out/err")"
        case $pieces in *' | '*) pieces=${pieces#* | } ;; *) pieces= ;; esac
    done
    count=$((count + 1))
done < "$here/guesses.txt"
echo "guesses: $count of the tool are answered in one line each"
