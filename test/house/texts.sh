#!/bin/sh
# texts.sh -- plans and kernels have the texts that they had: digests by group, as test/golden/texts.sha256 says.
#
# build/texts makes most of them; measurements and examples leave theirs in $CODA_DUMP. Nothing asks for a GPU,
# a driver or NVRTC. Where a group differs, `build/texts 'GROUP'` prints its texts, to be compared with those of
# another tree. Run as: test/house/texts.sh [bless]
set -eu
export LC_ALL=C # of sort; the program asks for $CODA_TEST_LOCALE by itself
build=${BUILD:-build}
golden=test/golden/texts.sha256
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export CODA_LIBCUDA=libnone.so CODA_CACHE_DIR="$out/cache"
unset CODA_DEBUG CODA_PRIMITIVES

# What a program dumps, and a measurement prints. Threads dump in any order.
dumped() {
    mkdir "$out/dump"
    CODA_DUMP="$out/dump" "$@" > "$out/printed"
    ls "$out/dump" | grep -q . || { echo "texts: $* dumps nothing"; exit 1; }
    {
        (cd "$out/dump" && sha256sum -- *) | sed -E 's/^([0-9a-f]+) [ *][0-9].*-/\1  - /' | sort
        case $1 in */perf/*) cat "$out/printed" ;; esac
    } > "$out/all"
    echo "$(sha256sum < "$out/all" | cut -c-64) ${*#"$build"/}"
    rm -r "$out/dump"
}

{
    "$build/texts"
    for name in gemm fused layer; do dumped "$build/perf/$name" --plan; done
    for name in mlp custom_map cross_entropy; do dumped "$build/examples/$name"; done
} > "$out/now"

if [ "${1:-}" = bless ]; then cp "$out/now" $golden; fi
if diff $golden "$out/now" > "$out/diff"; then
    echo "texts: $(wc -l < $golden) groups as they were"
else
    sed -n 's/^[<>] [0-9a-f]* /differs: /p' "$out/diff" | sort -u
    echo "texts: $(grep -c '^[<>]' "$out/diff") lines of $golden differ; if that is meant: make bless-texts"
    exit 1
fi
