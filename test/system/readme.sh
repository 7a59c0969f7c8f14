#!/bin/bash
# readme.sh -- every block of code in README.md is run, from the tree that `make install` has made: programs know the
# library by pkg-config and the line that the installation prints, commands find `coda` in its bin, and no LD_LIBRARY_PATH
# is set. Fragments stand in a program (test/system/readme), and a block that is not in the table below is an error. A
# compiler that is not there (test/fake) stands for NVRTC. So are the lines of other pages that need nothing else.
# Run as: test/system/readme.sh BUILD FOLDER
set -eu
build=$1
root=$(mkdir -p "$2" && cd "$2" && pwd)
rm -rf "${root:?}"/*
CC=${CC:-gcc} here=$(pwd)
unset LD_LIBRARY_PATH PKG_CONFIG_PATH NO_COLOR CLICOLOR_FORCE CODA_BUNDLES CODA_DEBUG
. test/system/pages.sh

line=$(make --no-print-directory -s install BUILD="$build" PREFIX="$root/own" | sed -n 's/^The loader does not look into .*: cc first.c/ /p')
[ -n "$line" ] || wrong 'make install does not print how programs find the library'
make --no-print-directory -s BUILD="$build" "$build/fake/libnvrtc.so.13"
CODA_CUDA_LIB=$here/$build/fake CODA_CACHE_DIR=$root/cache PATH=$root/own/bin:$PATH
export CODA_CUDA_LIB CODA_CACHE_DIR PATH
[ "$(command -v coda)" = "$root/own/bin/coda" ] || wrong "coda is $(command -v coda)"

# FILE: a program, which is built and run; prints what that prints.
program() { eval "$CC -std=c11 -Wall -Wextra -Werror -x c '$1' -x none -o '$1.out' $line" && "$1.out" || wrong "$1 fails"; }
# BLOCK FRAME: a fragment in the program around it; "..." divides it into two.
fragment() {
    awk -v block="$1" '
        /^@[12]$/ { for (part = 1; (getline text < block) > 0;) if (text == "...") break; else print text
                    next }
        { print }' "test/system/readme/$2.c.in" > "$1.c"
    program "$1.c"
}

# ---- README.md, block by block ----

# What the picture says of bytes is what the plan says.
picture() {
    total=$(coda explain examples/graphs/llama.coda | sed -n 's/^total *//p')
    numbers=$(grep -o '[0-9]* kernels, *[0-9]* MB' "$1" | tr -s ' ' | tr -dc '0-9 \n' | xargs)
    expected=$(echo "$total" | awk '{ printf "%d %.0f %d %.0f", $1, $5, $4, $10 }')
    [ "$numbers" = "$expected" ] || wrong "README's picture says $numbers, coda explain $expected: $total"
}
first() { [ "$(program "$1")" = "y = $(sed -n 's|.*/\* \([0-9.]* to [0-9.]*\): x + 1.*|\1|p' "$1")" ] || wrong "README's program prints $(program "$1")"; }
demo() {
    [ "$(cut -d '#' -f 1 "$1" | xargs)" = 'make demo make test' ] || wrong "this block is no longer make demo and make test"
    make --no-print-directory demo BUILD="$build" DEMO=--cpu > "$1.said" 2>&1 || wrong "make demo: $(tail -5 "$1.said")"
    said "$1" '^done$'
} # `make test` is what runs this
tool() {
    commands "$1"
    said "$1" '^library: coda'; said "$1" '^# derivation'; said "$1" '^[1-9][0-9]* kernels for all shapes'
    said "$1" ': pass$'; said "$1" "^directory  $root/cache"
}
bundle() {
    rm -rf "$root/cache"
    commands "$1" "s|model.bundle|$root/&|g; 2s|^|rm -rf '$root/cache'; CODA_CUDA_LIB=/nonexistent |"
    said "$1" ' entries, '
    [ "$(grep -c '^coda_.* cached ' "$1.said")" = "$(grep -c '^coda_' "$1.said")" ] || wrong "not all are cached: $(cat "$1.said")"
}
models() { not_run="$not_run
    README.md: whole models (examples/serving/test/pages.sh)"; }

not_run= count=0
seen=
blocks README.md "$root/README"
for block in "$root"/README/[0-9][0-9]; do
    case $(head -1 "$block") in
    'x ─ rms_norm'*) name=picture; picture "$block" ;;
    'make demo '*) name=demo; demo "$block" ;;
    '#include <coda.h>') name=first; first "$block" ;;
    'coda_value cache = '*) name=caches; fragment "$block" caches ;;
    'coda_dim t = '*) name=shapes; fragment "$block" shapes ;;
    'coda info '*) name=tool; tool "$block" ;;
    'coda cache export '*) name=bundle; bundle "$block" ;;
    'make -C examples/serving') name=models; models "$block" ;;
    *) wrong "README.md has a block that readme.sh does not run: $(cat "$block")" ;;
    esac
    case " $seen " in *" $name "*) wrong "README.md has a second block like $name: $(cat "$block")" ;; esac
    seen="$seen $name" count=$((count + 1))
done
for name in picture demo first caches shapes tool bundle models; do
    case " $seen " in *" $name "*) ;; *) wrong "README.md no longer has the block that readme.sh calls $name" ;; esac
done

# ---- Commands of the tool within a line, and commands of other pages ----
for page in README.md perf/tuning.md; do
    grep -o '`coda [a-z]* [^`]*\.coda[^`]*`' $page | tr -d '`' | sort -u > "$root/inline"
    while read -r command; do
        case $command in *autotune*) skip 'a GPU'; continue ;; esac
        eval "$command" >/dev/null 2>"$root/error" || wrong "$page: $command: $(cat "$root/error")"
        count=$((count + 1))
    done < "$root/inline"
done

for page in cache/README.md perf/tuning.md ENVIRONMENT.md examples/README.md; do
    commands_of "$page" > "$root/lines"
    while read -r command <&3; do
        case $command in
        *\ ./server*) skip "files of the reader's" ;;
        man\ *) skip 'man, which may not be there' ;;
        coda\ *|*--bundle*|*--plan*) run_line "s|prefill.coda|examples/graphs/llama.coda|; s|decode.coda|examples/graphs/llama_cache.coda|" ;;
        *) wrong "$page has a command that readme.sh does not know: $command" ;;
        esac
    done 3< "$root/lines"
done
echo "not run:$not_run"
echo "readme: $count blocks and commands run, each from what was installed; $(echo "$not_run" | grep -c .) others are not"
