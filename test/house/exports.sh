#!/bin/bash
# exports.sh -- what each library lets be seen is what coda.h declares. Run as: test/house/exports.sh LIBRARY...; without
# a library it lists what is declared.
set -eu
declared=$(${CC:-gcc} -E -P include/coda.h | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*visibility("default"))) *[^(]*[ *]\(coda_[a-z0-9_]*\) *(.*/\1/p' | LC_ALL=C sort)
[ -n "$declared" ] || { echo "no call is found in coda.h"; exit 1; }
[ $# -gt 0 ] || { echo "$declared"; exit; }
for library; do
    case $library in *.a) which=-g ;; *) which=-D ;; esac
    seen=$(nm $which --defined-only "$library" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort)
    [ "$seen" = "$declared" ] || {
        echo "$library: declared (<) and exported (>) differ:"
        diff <(echo "$declared") <(echo "$seen") | grep '^[<>]'
        exit 1
    }
done
echo "$(echo "$declared" | wc -l) calls of coda.h are exported by $*, and nothing else"
