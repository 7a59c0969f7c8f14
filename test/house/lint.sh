#!/bin/sh
# lint.sh -- files over 800 lines, lines over 110 columns, tabs in C, blanks at line ends; and what clang-format 14
# would change, where it is installed (other versions disagree with it). coda.h, which is one file whatever it
# describes, is laid out by hand and may have 1300 lines. Fusion and lowering ask questions of numbers of rows by
# lib/plan/guards.h alone, which notes them; kernels (pairs, target_pairs) and segments of columns ask others.
sources=$(find include lib jit cache primitives examples test perf -name '*.[ch]' -o -name '*.cuh' -o -name '*.def')
awk '
    function complain(what) { print FILENAME ":" FNR ": " what; bad++ }
    FNR == (FILENAME ~ /coda\.h$/ ? 1301 : 801) { complain("more than " FNR - 1 " lines") }
    length > 110 { complain(length " columns") }
    /\t/ { complain("tab") }
    /[ \t]$/ { complain("blank at the end") }
    FILENAME ~ /lib\/plan\/[a-z_]*\.c$/ && FILENAME !~ /(guards|pairs|program|print|verify|segments)[a-z_]*\.c$/ {
        compares = "([!=<>]=|[<>%]) *"
        if ($0 ~ "(type_rows|type_elements)[(][^;]*[)] *" compares || $0 ~ "dim\\[[^;,]*\\] *" compares ||
            $0 ~ compares "[(]?(type_rows|type_elements)[(]" || $0 ~ "sample *" compares)
            complain("an extent is compared without a note: lib/plan/guards.h")
    }
    END { print bad + 0 " complaints"; exit bad > 0 }' $sources
result=$?
case $(clang-format --version 2>/dev/null) in *" 14."*)
    formatted=$(echo "$sources" | grep '\.[ch]$' | grep -v '^include/coda.h$')
    # shellcheck disable=SC2086
    clang-format --dry-run -Werror $formatted || result=1 ;;
esac
exit $result
