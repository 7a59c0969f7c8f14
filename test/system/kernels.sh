#!/bin/bash
# kernels.sh make|pack|unpack CACHE FOLDER -- the kernels of the GPU tests, as files that go from one machine to another.
#
#     make    compiles into CACHE, without a GPU, what $BUILD/gpu_tests wants on each card; then packs it
#     pack    writes all of CACHE to FOLDER: the seed, and a bundle, compressed, in parts of at most 15 MB
#     unpack  brings the kernels of FOLDER into CACHE, if FOLDER is there
set -eu -o pipefail
BUILD=${BUILD:-build}
cache=$2 folder=$3
export CODA_CACHE_DIR=$cache CODA_CACHE_LIMIT=-1

# A dry run of each test, as many at once as there are cores; which kernels a test wants depends on the card.
make_kernels() {
    local status=0
    export CODA_LIBCUDA=$PWD/$BUILD/dry/libcuda.so.1 CODA_COMPILE_THREADS=1 DRY_CARD
    for DRY_CARD in 'NVIDIA H200' 'NVIDIA H100'; do
        echo "kernels for an $DRY_CARD, CODA_SEED=$CODA_SEED"
        sed 's/GPU_TEST(\(.*\))/\1/' "$BUILD/test/gpu_list.h" | grep -vx 'cold\|killed\|cublaslt' |
            xargs -P "$(nproc)" -I NAME sh -c "$BUILD/gpu_tests NAME >'$cache/NAME.log' 2>&1 || { tail -3 '$cache/NAME.log'; exit 1; }" || status=1
        cat "$cache"/*.log | awk '/ kernels compiled, / { n += $1; m += $4 } / do not compile$/ { bad += $7 }
            END { printf "%d kernels compiled, %d were there, %d do not compile\n", n, m, bad }'
        rm -f "$cache"/*.log
    done
    return $status
}

pack() {
    rm -rf "$folder.part" && mkdir -p "$folder.part"
    "$BUILD/coda" cache export "$cache/all.bundle"
    xz -6 -T0 -c "$cache/all.bundle" | split -b 15M -d - "$folder.part/kernels.xz."
    rm -f "$cache/all.bundle"
    echo "$CODA_SEED" >"$folder.part/seed"
    rm -rf "$folder" && mv "$folder.part" "$folder"
    du -sh --apparent-size "$folder"
}

unpack() {
    [ -e "$folder/seed" ] || return 0
    local expand=(xz -dc)
    command -v xz >/dev/null ||
        expand=(python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer)')
    cat "$folder"/kernels.xz.* | "${expand[@]}" >"$cache/all.bundle"
    "$BUILD/coda" cache import "$cache/all.bundle"
    rm -f "$cache/all.bundle"
}

mkdir -p "$cache"
case $1 in
make) make_kernels && pack ;;
pack) pack ;;
unpack) unpack ;;
*) echo "usage: kernels.sh make|pack|unpack CACHE FOLDER" >&2; exit 2 ;;
esac
