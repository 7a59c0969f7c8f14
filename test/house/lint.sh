#!/bin/sh
# lint.sh -- files over 800 lines, lines over 110 columns, tabs in C, blanks at line ends.
# `lint.sh advice`: and how many files clang-format would touch; that is not a failure.
sources=$(find include lib jit cache primitives examples test perf -name '*.[ch]' -o -name '*.cuh' -o -name '*.def')
awk '
    function complain(what) { print FILENAME ":" FNR ": " what; bad++ }
    FNR == 801 { complain("more than 800 lines") }
    length > 110 { complain(length " columns") }
    /\t/ { complain("tab") }
    /[ \t]$/ { complain("blank at the end") }
    END { print bad + 0 " complaints"; exit bad > 0 }' $sources
result=$?
if [ "${1:-}" = advice ] && command -v clang-format >/dev/null 2>&1; then
    touched=0
    for f in $(echo "$sources" | tr ' ' '\n' | grep '\.[ch]$'); do
        clang-format "$f" | cmp -s - "$f" || touched=$((touched + 1))
    done
    echo "clang-format would touch $touched files"
fi
exit $result
