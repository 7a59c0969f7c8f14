#!/bin/bash
# abi_policy.sh -- abi_policy.py refuses what breaks programs, and takes what does not: coda.h, or coda_cache.h, is changed in each way below,
# built as a library of empty functions, and compared with what test/abi describes.
# Run as: test/house/abi_policy.sh FOLDER
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "${out:?}"/*
wrong() { echo "WRONG: $*"; exit 1; }
tried=0 judged=0

# describe HEADER FOLDER: of a library that has each call of the header, all doing nothing.
describe() {
    mkdir -p "$2"
    {
        echo "#include \"$1\""
        ${CC:-gcc} -E -P "$1" | tr '\n' ' ' | sed 's/ *__attribute__((__format__([^)]*)))//g; s/__attribute__((visibility("default")))/\n&/g; s/;/;\n/g' |
            sed -n 's/^\(__attribute__((visibility("default"))) .*);*\)$/\1/p' | sed 's/;$/ { __builtin_trap(); }/'
    } > "$2/stub.c"
    printf 'CODA_0.1 {\n global: coda_*;\n local: *;\n};\n' > "$2/map"
    ${CC:-gcc} -g -w -shared -fPIC -fvisibility=hidden -Wl,-soname,libcoda.so.0 -Wl,--version-script="$2/map" \
        "$2/stub.c" -o "$2/libcoda.so"
    HEADER=$1 "$here/abi.sh" "$2/libcoda.so" "$2" dump
}

# try VERDICT WHAT SED...: the changed coda.h is refused with a line that says VERDICT, or `taken`. Of what is refused a
# short run takes half, by its seed.
try() {
    verdict=$1 what=$2
    shift 2
    tried=$((tried + 1))
    [ "$verdict" = taken ] || [ -n "${CODA_FULL:-}" ] || [ $(((tried + ${CODA_SEED:-0}) % 2)) = 0 ] || return 0
    judged=$((judged + 1))
    folder=$out/$tried
    mkdir -p "$folder"
    for header in coda.h coda_cache.h coda_grad.h coda_quant.h coda_profile.h coda_recurrent.h coda_group.h; do sed "$@" include/$header > "$folder/$header"; done
    [ "$verdict" = taken ] || diff -rq include "$folder" | grep -q differ || wrong "$what: sed changes nothing"
    describe "$folder/coda.h" "$folder"
    if python3 "$here/abi_policy.py" "${OLD:-$out/old}" "$folder" > "$folder/said"; then
        [ "$verdict" = taken ] || wrong "$what: taken"
    else
        [ "$verdict" != taken ] || wrong "$what: refused, $(cat "$folder/said")"
        grep -q -e "$verdict" "$folder/said" || wrong "$what: says $(cat "$folder/said")"
    fi
}

describe "$PWD/include/coda.h" "$out/old"
OLD=test/abi try taken 'the library itself' ''

# ---- Refused ----
try 'coda_relu(' 'a call is gone' '/^CODA_API coda_value coda_relu(/d'
try 'parameter 3' 'a parameter has another type' '/coda_scale(/s/float alpha/double alpha/'
try 'return type' 'a result has another type' 's/^CODA_API int coda_words(/CODA_API int64_t coda_words(/'
try 'CODA_REDUCE_NONE 1 has become CODA_REDUCE_NONE 2' 'values are swapped' 's/CODA_REDUCE_NONE = 1/CODA_REDUCE_NONE = 2/; s/CODA_REDUCE_SUM = 2/CODA_REDUCE_SUM = 1/'
try 'CODA_NO_CACHE 2 has become' 'a flag has another value' 's/CODA_NO_CACHE = 1 << 1/CODA_NO_CACHE = 1 << 9/'
try 'CODA_ALIGN_LENGTH is gone' 'an enumerator is gone' 's/CODA_ALIGN_LENGTH = 3/CODA_ALIGN_NEWEST = 3/'
try 'CODA_MAX_RANK 6 has become CODA_MAX_RANK 8' 'a macro has another value' 's/^#define CODA_MAX_RANK 6/#define CODA_MAX_RANK 8/'
try 'CODA_ROPE_OPTIONS_INIT is gone' 'a macro is gone' 's/^#define CODA_ROPE_OPTIONS_INIT/#define CODA_TURN_INIT/'
try 'coda_rope_options.rotary was' 'two fields of one type are swapped' '/^    int64_t rotary;/d; s/^    int64_t heads;     *\/\* leading.*/&\n    int64_t rotary;/'
try 'coda_rope_options.heads was' 'a field comes in between' 's/^    int64_t rotary;.*/&\n    int64_t columns;/'
try 'coda_rope_options.base was float at' 'a field has another type' '/^typedef struct coda_rope_options/,/^}/s/float base;/int base;/'
try 'coda_append_options.scale is gone' 'a field is gone' '/^typedef struct coda_append_options/,/^}/{/coda_value scale/,/\*\//d}'
try 'coda_rope_options.rotary was' 'fields are swapped, and there is a new one' '/^    int64_t rotary;/d; s/^    int64_t heads;     *\/\* leading.*/&\n    int64_t rotary;/; s/^} coda_rope_options/    int64_t more;\n&/'
try 'coda_rope_options.more lies in the padding' 'a field in the padding' 's/^} coda_rope_options/    int more;\n&/'
try 'coda_binding changes, and does not begin with its size' 'a struct without its size has grown' 's/^} coda_binding/    int64_t more;\n&/'
try 'coda_warm_options.progress was' 'a callback gets more' '/^typedef struct coda_warm_options/,/^}/s/int done, int all)/int done, int all, int failed)/'
try 'coda_value changes' 'a value is wider' '/^typedef struct coda_value/,/^}/s/uint32_t id/uint64_t id/'
try 'coda_plan_stats' 'a struct that coda fills lost a field' '/^typedef struct coda_plan_stats/,/^}/{/double flops/d}'

try 'coda_cache_pruned.kept was' 'a field of coda_cache.h is gone' 's|removed_bytes, kept,|removed_bytes,|'

# ---- Taken: all at once, and each alone if CODA_FULL is set ----
all=()
may() { # WHAT SED
    all+=(-e "$2")
    [ -z "${CODA_FULL:-}" ] || try taken "$1" -e "$2"
}
may 'a comment' 's/This thread/Of this thread/'
may 'another name for a parameter' '/coda_scale(/s/float alpha/float factor/'
may 'a call more' 's/^CODA_API int coda_words(/CODA_API int coda_more(const coda_graph *g);\n&/'
may 'a call with a struct of its own' 's/^CODA_API int coda_word_find(/typedef struct coda_new { size_t size; int a; } coda_new;\nCODA_API int coda_new_get(coda_new *out);\n&/'
may 'options have grown' 's/^} coda_rope_options/    int64_t more;\n&/'
may 'what coda fills has grown' 's/^} coda_plan_stats/    int64_t more;\n&/'
may 'the same, twice' 's/^} coda_cache_stats/    uint64_t more, still_more;\n&/'
may 'an enumerator more' 's/CODA_REDUCE_SUM = 2/CODA_REDUCE_SUM = 2, CODA_REDUCE_MAX = 3/'
may 'a flag more' 's/CODA_NO_CACHE = 1 << 1/CODA_MORE = 1 << 20, &/'
may 'a macro more' 's/^#define CODA_MAX_RANK 6/&\n#define CODA_MAX_NAMES 3/'
may 'another patch version' 's/^#define CODA_VERSION_PATCH .*/#define CODA_VERSION_PATCH 77/'
try taken 'all of these' "${all[@]}"
try taken 'what would be refused, with another minor version' '/^CODA_API coda_value coda_relu(/d; s/^#define CODA_VERSION_MINOR .*/#define CODA_VERSION_MINOR 77/; s/CODA_REDUCE_NONE = 1/CODA_REDUCE_NONE = 7/'
echo "abi-policy: $judged changes of coda.h are judged as CHANGELOG.md has it"
