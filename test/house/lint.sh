#!/bin/sh
# lint.sh [FOLDER] -- what a machine can say of the looks of the library's sources, or of FOLDER's:
#     files over 800 lines (coda.h, the manual of graphs, plans and runs: 1150), lines over 110 columns (but a
#         primitive's registration, which is one line), tabs in C, blanks at line ends, a README.md of more than 12 kB
#     files of a room of lib, or of jit, that its README.md does not name
#     variables of the environment that ENVIRONMENT.md does not name or, of tests, test/README.md
#     multicast over NVLink, in sources and in the texts of goldens
#     headers of a CUDA toolkit, which the build does without: jit/cuda_abi.h declares what is called
#     comparisons of extents in rewriting and planning that lib/base/guards.h does not note: guards.awk
#     folders of more lines than test/house/budgets (of FOLDER: FOLDER/test/budgets) gives them
#     what clang-format 14 would change, where it is installed (other versions disagree with it), but in coda.h
#         and its parts, which are laid out by hand
all='include lib jit cache primitives examples test perf'
[ -n "${1:-}" ] || apart='-path examples/serving -prune -o' # which has a lint of its own
# shellcheck disable=SC2086
sources=$(find ${1:-$all} ${apart:-} -name '*.[ch]' -print -o -name '*.[ch]pp' -print -o -name '*.cuh' -print -o -name '*.def' -print)
awk '
    function complain(what) { print FILENAME ":" FNR ": " what; bad++ }
    FNR == (FILENAME ~ /coda\.h$/ ? 1151 : 801) { complain("more than " FNR - 1 " lines") }
    length > 110 && !/^\/\/ coda: / { complain(length " columns") }
    /\t/ { complain("tab") }
    /[ \t]$/ { complain("blank at the end") }
    /multimem|cuMulticast/ { complain("multicast over NVLink, which no kernel and no call may use") }
    /^ *# *include *<(cuda|nvrtc|cublas|nccl)/ { complain("a header of the toolkit: jit/cuda_abi.h declares what is called") }
    END { print bad + 0 " complaints"; exit bad > 0 }' $sources
result=$?
[ -n "${1:-}" ] || awk -f test/house/guards.awk lib/rewrite/*.c lib/program/*.c lib/plan/*.c lib/fuse/*.c lib/graph/view.c || result=1
# shellcheck disable=SC2086
[ -n "${1:-}" ] || ! grep -rnE 'multimem|cuMulticast' test/golden || { echo 'test/golden: multicast over NVLink'; result=1; }
# What every program has is none of ours: HOME, PATH, LD_LIBRARY_PATH.
[ -n "${1:-}" ] || {
    grep -rhoE '\benvironment\("[A-Z_0-9]+"' lib jit cache | cut -d'"' -f2 | sort -u | while read -r name; do
        case $name in HOME|PATH|LD_LIBRARY_PATH) continue ;; esac
        grep -q "$name" ENVIRONMENT.md || echo "ENVIRONMENT.md does not name $name"
    done
    grep -rhoE 'getenv\("(CODA|GPU)_[A-Z_0-9]+"' test | cut -d'"' -f2 | sort -u | while read -r name; do
        grep -q "$name" ENVIRONMENT.md test/README.md || echo "test/README.md does not name $name"
    done
} | { ! grep .; } || result=1
# `name.c`, `name.[ch]` and `name_*.c` in a page are patterns, in which NAME is any word.
[ -n "${1:-}" ] || find lib jit -name README.md -o -name '*.c' ! -path 'lib/*.c' -o -path 'lib/*/*.c' ! -path 'lib/package/*' | awk '
    { folder = $0; sub(/\/[^\/]*$/, "", folder) }
    /README.md$/ {
        page[folder] = 1
        while ((getline line < $0) > 0)
            while (match(line, /`[^` ]+`/)) {
                pattern = substr(line, RSTART + 1, RLENGTH - 2)
                line = substr(line, RSTART + RLENGTH)
                gsub(/\./, "\\.", pattern)
                gsub(/\*|NAME/, "[a-z0-9_]*", pattern)
                named[folder] = named[folder] "|" pattern
            }
        next
    }
    { file[$0] = folder }
    END {
        for (path in file) {
            name = substr(path, length(file[path]) + 2)
            if (file[path] in page && name !~ "^(" substr(named[file[path]], 2) ")$") {
                print path ": " file[path] "/README.md does not name it"
                bad = 1
            }
        }
        exit bad
    }' || result=1
budgets=${1:-test/house}${1:+/test}/budgets
# shellcheck disable=SC2086
awk -v budgets="$budgets" '
    FILENAME == budgets {
        if (/^#/ || !NF) next
        if (NF < 3 || $2 !~ /^[0-9]+$/) { print budgets ":" FNR ": a row is FOLDER LINES WHAT FOR"; bad = 1 }
        budget[$1] = $2
        next
    }
    FNR == 1 {
        mine = ""
        for (folder in budget) if (index(FILENAME, folder "/") == 1) mine = folder
    }
    mine != "" { lines[mine]++ }
    END {
        for (folder in budget)
            if (lines[folder] + 0 > budget[folder]) {
                print folder ": " lines[folder] " lines, " lines[folder] - budget[folder] " over its budget of " budget[folder] \
                    ": take lines away, or raise the budget by name, as " budgets " says"
                bad = 1
            }
        exit bad
    }' "$budgets" $sources || result=1
readme=${1:+$1/}README.md
size=$(wc -c < "$readme")
[ "$size" -le 12000 ] || { echo "$readme: $size bytes, more than 12000: which page does the new part belong on?"; result=1; }
case $(clang-format --version 2>/dev/null) in *" 14."*)
    formatted=$(echo "$sources" | grep '\.[ch]$' | grep -v '^include/')
    # shellcheck disable=SC2086
    clang-format --dry-run -Werror $formatted || result=1 ;;
esac
exit $result
