#!/bin/bash
# cuda_abi.sh -- what jit/cuda_abi.h and, where there is an nccl.h, jit/nccl_abi.h declare is what NVIDIA's headers
# declare. A C file includes these and then says all of ours again under names that begin with own_. An assertion compares each size, alignment, offset and
# value, and the type of each function.
# Run as: test/house/cuda_abi.sh TOOLKIT FOLDER, where TOOLKIT/include has the headers
set -eu
toolkit=$1 out=$2 CC=${CC:-gcc}
[ -e "$toolkit/include/cuda.h" ] && [ -e "$toolkit/include/nvrtc.h" ] && [ -e "$toolkit/include/cublasLt.h" ] || {
    echo "cuda-abi: no cuda.h, nvrtc.h and cublasLt.h in '$toolkit/include': set CUDA_HOME to a toolkit"
    exit 1
}
mkdir -p "$out"

# One declaration a line, with all its members or enumerators.
lines() {
    sed '/^#/d' "$1" | $CC -E -P -xc - | tr '\n' ' ' | sed 's/  */ /g; s/[{};]/\n&\n/g' |
        awk '{ printf "%s", $0 } /^[{]$/ { deep++ } /^}$/ { deep-- } /^;$/ && !deep { print "" }' | sed 's/^ *//'
}
nccl=
[ ! -e "$toolkit/include/nccl.h" ] || nccl=jit/nccl_abi.h
{ lines jit/cuda_abi.h; lines test/fake/beside.h; [ -z "$nccl" ] || lines "$nccl"; } > "$out/all.txt"
grep -v '^typedef\|^enum' "$out/all.txt" > "$out/functions.txt"
grep '^typedef\|^enum' "$out/all.txt" > "$out/types.txt"
name='[A-Za-z_][A-Za-z_0-9]*'
types=$(sed -n "s/^typedef .*[ *}]\($name\) *;$/\1/p" "$out/types.txt")
constants=$(grep -oE '\<CU[A-Z0-9_a-z]* = |\<NVRTC_[A-Z_]* = |\<nccl[A-Za-z0-9]* = ' "$out/types.txt" | sed 's/ = //')
functions=$(sed -n "s/^[^(]*[ *]\($name\)(.*;$/\1/p" "$out/functions.txt")
# "TYPE, MEMBER"; a member that NVIDIA names otherwise, or not at all, is called reserved.
members=$(sed -n 's/^typedef \(struct\|union\) *{\(.*\)} *\(.*\);$/\3;\2/p' "$out/types.txt" | awk -F ';' '{
    for (i = 2; i < NF; i++) {
        gsub(/\[[^]]*\]/, "", $i); n = split($i, part, ",")
        for (k = 1; k <= n; k++) { m = split(part[k], word, /[ *]+/); if (word[m] != "reserved") print $1 ", " word[m] }
    }
}')

{
    cat <<'END'
#include <cuda.h>
#include <nvrtc.h>
#include <cublasLt.h>
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif
#define KIND(x) __builtin_classify_type(x)
#define NUMBER(x) __builtin_choose_expr(KIND(x) == KIND(0), x, 0)
#define SIGNED(x) ((__typeof__(NUMBER(x)))-1 < 0)
#define TYPE(t) \
    _Static_assert(sizeof(t) == sizeof(own_##t), "size of " #t); \
    _Static_assert(_Alignof(t) == _Alignof(own_##t), "alignment of " #t); \
    _Static_assert(KIND(*(t *)0) == KIND(*(own_##t *)0), "kind of " #t); \
    _Static_assert(SIGNED(*(t *)0) == SIGNED(*(own_##t *)0), "sign of " #t);
#define MEMBER(t, m) \
    _Static_assert(offsetof(t, m) == offsetof(own_##t, m), "offset of " #t "." #m); \
    _Static_assert(sizeof((*(t *)0).m) == sizeof((*(own_##t *)0).m), "size of " #t "." #m); \
    _Static_assert(KIND((*(t *)0).m) == KIND((*(own_##t *)0).m), "kind of " #t "." #m); \
    _Static_assert(SIGNED((*(t *)0).m) == SIGNED((*(own_##t *)0).m), "sign of " #t "." #m);
#define CONSTANT(c) _Static_assert((long long)(c) == (long long)(own_##c), #c);
#define FUNCTION(f) _Static_assert(__builtin_types_compatible_p(__typeof__(f), __typeof__(own_##f)), #f);
END
    sed -E "s/\<($(echo $types $constants | tr ' ' '|'))\>/own_\1/g" "$out/types.txt"
    printf 'TYPE(%s)\n' $types
    echo "$members" | sed 's/.*/MEMBER(&)/'
    printf 'CONSTANT(%s)\n' $constants
    sed -E "s/\<($(echo $functions | tr ' ' '|'))\(/own_\1(/" "$out/functions.txt"
    printf 'FUNCTION(%s)\n' $functions
} > "$out/cuda_abi.c"
$CC -std=gnu11 -fsyntax-only -Wall -Werror -I"$toolkit/include" "$out/cuda_abi.c"

# The library looks up these functions, and no others.
printf '#include "driver.h"\n#define NAME(f) FOUND f\nDRIVER_FUNCTIONS(NAME) NVRTC_FUNCTIONS(NAME) CUBLASLT_FUNCTIONS(NAME) NCCL_FUNCTIONS(NAME)\n' |
    $CC -E -P -Iinclude -Ijit - | grep -oE "FOUND $name" | sed 's/FOUND //' | sort > "$out/looked_up.txt"
{ lines jit/cuda_abi.h; lines jit/nccl_abi.h; } | sed -n "/^typedef\|^enum/d; s/^[^(]*[ *]\($name\)(.*/\1/p" | sort > "$out/declared.txt"
diff "$out/looked_up.txt" "$out/declared.txt"

count() { echo "$1" | wc -l; }
version=$(sed -n 's/^#define CUDA_VERSION *\([0-9]*\).*/\1/p' "$toolkit/include/cuda.h")
echo "cuda-abi: $(count "$functions") functions, $(count "$types") types, $(count "$members") members and" \
    "$(count "$constants") constants are those of CUDA $((version / 1000)).$((version % 1000 / 10))"
[ -n "$nccl" ] && echo "cuda-abi: NCCL's are those of $(sed -n 's/^#define NCCL_VERSION_CODE *\([0-9]*\).*/\1/p' "$toolkit/include/nccl.h")" ||
    echo "cuda-abi: NCCL's were not compared: no nccl.h in '$toolkit/include'"
