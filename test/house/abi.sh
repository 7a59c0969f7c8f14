#!/bin/bash
# abi.sh -- the binary interface is the one that test/abi describes: calls, structs and enums by libabigail, the
# value of each constant by the compiler, and the names of all macros. A difference fails, also one that breaks nobody:
# `make bless-abi` describes what there is now, and the diff belongs into the commit that meant it. It refuses what breaks
# programs that are built already (abi_policy.py), unless BREAK=1 says that no release has had it. Calls have the
# version of lib/package/libcoda.map, CODA_0.1: exact until 1.0, so that a minor version that changes calls also changes
# their version, and the loader refuses programs that were built with another one. exports.sh compares it with coda.h.
# Run as: test/house/abi.sh LIBRARY FOLDER [bless | dump]; HEADER is include/coda.h, or another
# one, with its parts coda_cache.h, coda_grad.h, coda_quant.h, coda_profile.h, coda_recurrent.h and coda_group.h beside it.
set -eu
library=$1 out=$2 what=${3:-}
header=${HEADER:-include/coda.h}
parts=("${header%/*}"/coda_{cache,grad,quant,profile,recurrent,group}.h)
command -v abidw >/dev/null || { echo "abi: there is no libabigail: .ci/deps installs it"; exit 1; }
mkdir -p "$out"

# The public types alone, without what depends on the compiler, the machine or the place of a source.
abidw $(printf -- '--header-file %s ' "$header" "${parts[@]}") --drop-private-types --exported-interfaces-only --no-architecture \
    --no-comp-dir-path --no-corpus-path --no-elf-needed --no-show-locs --no-write-default-sizes \
    --out-file "$out/coda.xml" "$library"
grep -q "class-decl name='coda_plan_stats' size-in-bits" "$out/coda.xml" ||
    { echo "abi: $library has no debug information: build it with -g"; exit 1; }

# Enumerators, also of enums without a name, which no call mentions, numbers among the macros, and names of the others.
{
    printf '#include <stdio.h>\n#include "%s"\n#define P(name) printf("%%s %%lld\\n", #name, (long long)(name));\n' \
        "$(realpath "$header")"
    echo 'int main(void) {'
    ${CC:-gcc} -E -P "$header" | tr '\n' ' ' | grep -o 'enum[^{;()]*{[^}]*}' | grep -o '\<CODA_[A-Z0-9_]*' |
        grep -v '_$' | awk '!seen[$0]++ { print "P(" $0 ")" }'
    sed -n 's/^#define \(CODA_[A-Z_]*\) [0-9]*$/P(\1)/p' "$header" "${parts[@]}"
    sed -n 's/^#define \(CODA_[A-Z_]*\) [^0-9].*$/puts("\1");/p' "$header" "${parts[@]}" | sort -u
    echo 'return 0; }'
} > "$out/constants.c"
${CC:-gcc} "$out/constants.c" -o "$out/constants"
"$out/constants" > "$out/constants.txt"
[ "$what" != dump ] || exit 0

policy() { python3 "$(dirname "$0")/abi_policy.py" test/abi "$out"; }
if [ "$what" = bless ]; then
    policy || [ -n "${BREAK:-}" ] || { echo 'abi: this breaks programs: see CHANGELOG.md; if no release has had it: BREAK=1'; exit 1; }
    cp "$out/coda.xml" "$out/constants.txt" test/abi
    echo "abi: test/abi describes $library"
    exit 0
fi
same=1
abidiff --harmless test/abi/coda.xml "$out/coda.xml" || same=
diff test/abi/constants.txt "$out/constants.txt" || same=
[ -n "$same" ] || { policy || true; echo "abi: the interface has changed; if that is meant: make bless-abi"; exit 1; }
echo "abi: $(grep -c '<elf-symbol' "$out/coda.xml") calls, $(grep -c "size-in-bits.*is-struct" "$out/coda.xml") structs and" \
    "$(wc -l < "$out/constants.txt") constants as described"
