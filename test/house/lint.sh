#!/bin/sh
# lint.sh -- files over 800 lines, lines over 110 columns, tabs in C, blanks at line ends, headers of a CUDA toolkit,
# which the build does without; and what clang-format 14 would change, where it is installed (other versions
# disagree with it). coda.h, which is one file whatever it describes, is laid out by hand and may have 1300 lines.
# README.md, which everybody reads first, has 12 kB at most.
sources=$(find include lib jit cache primitives examples test perf -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cuh' -o -name '*.def')
awk '
    function complain(what) { print FILENAME ":" FNR ": " what; bad++ }
    FNR == (FILENAME ~ /coda\.h$/ ? 1301 : 801) { complain("more than " FNR - 1 " lines") }
    length > 110 { complain(length " columns") }
    /\t/ { complain("tab") }
    /[ \t]$/ { complain("blank at the end") }
    /^ *# *include *<(cuda|nvrtc|cublas)/ { complain("a header of the toolkit: jit/cuda_abi.h declares what is called") }
    END { print bad + 0 " complaints"; exit bad > 0 }' $sources
result=$?
size=$(wc -c < README.md)
[ "$size" -le 12000 ] || { echo "README.md: $size bytes, more than 12000: which page does the new part belong on?"; result=1; }
case $(clang-format --version 2>/dev/null) in *" 14."*)
    formatted=$(echo "$sources" | grep '\.[ch]$' | grep -v '^include/coda.h$')
    # shellcheck disable=SC2086
    clang-format --dry-run -Werror $formatted || result=1 ;;
esac
exit $result
