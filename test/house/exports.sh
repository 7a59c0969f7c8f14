#!/bin/bash
# exports.sh -- what each library lets be seen is what coda.h declares, in a shared one under the version of coda.h.
# Run as: test/house/exports.sh LIBRARY...; without a library it lists what is declared.
set -eu
declared=$(${CC:-gcc} -E -P include/coda.h | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*visibility("default"))) *[^(]*[ *]\(coda_[a-z0-9_]*\) *(.*/\1/p' | LC_ALL=C sort)
[ -n "$declared" ] || { echo "no call is found in coda.h"; exit 1; }
[ $# -gt 0 ] || { echo "$declared"; exit; }
minor=$(sed -n 's/.*CODA_VERSION_STRING "\([0-9]*\.[0-9]*\).*/\1/p' include/coda.h)
for library; do
    case $library in *.a) which=-g version= ;; *) which=-D version=@@CODA_$minor ;; esac
    want=$(echo "$declared" | sed "s/\$/$version/" | LC_ALL=C sort)
    seen=$(nm $which --defined-only "$library" | awk 'NF == 3 && $3 !~ /^CODA_[0-9.]+$/ { print $3 }' | LC_ALL=C sort)
    [ "$seen" = "$want" ] || {
        echo "$library: declared (<) and exported (>) differ:"
        diff <(echo "$want") <(echo "$seen") | grep '^[<>]'
        exit 1
    }
done
echo "$(echo "$declared" | wc -l) calls of coda.h are exported by $*, and nothing else; shared as CODA_$minor"
