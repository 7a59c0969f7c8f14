#!/bin/sh
# sanitize_gpu.sh [GROUP]... -- GPU tests under NVIDIA's compute-sanitizer: each group by each tool, a line each.
#
# A first run without it compiles the kernels into a folder of their own ($BUILD/sanitize), so that the slow runs only
# load them; the seed of random tests is the same in all. What a tool says goes to $BUILD/sanitize/GROUP.TOOL.
#
#     TOOLS='memcheck racecheck synccheck'   initcheck would do, too
#     CODA_TEST_CASE=WORDS                   only cases whose names have these, of groups that know it
#     LIMIT=600                              seconds for each run
#
# It fails if a tool reports an error, a test fails, or a run takes too long.
build=${BUILD:-build}
tests=$build/gpu_tests
logs=$build/sanitize
[ $# -gt 0 ] || set -- attention_grad row_sums grad
PATH=$PATH:/usr/local/cuda/bin
sanitizer=$(command -v compute-sanitizer) || {
    echo "sanitize: there is no compute-sanitizer in PATH or /usr/local/cuda/bin (package cuda-sanitizer)" >&2
    exit 2
}
mkdir -p "$logs" || exit 2
CODA_CACHE_DIR=$(cd "$logs" && pwd)/cache
CODA_SEED=${CODA_SEED:-1}
export CODA_CACHE_DIR CODA_SEED
bad=0

run() { # GROUP TOOL COMMAND...
    log=$logs/$1.$2
    group=$1 tool=$2
    shift 2
    begun=$(date +%s)
    timeout "${LIMIT:-600}" "$@" "$tests" "$group" > "$log" 2>&1
    status=$?
    passed=$(grep -E '^[0-9]+ passed' "$log" | tail -1)
    summary=$(sed -n 's/^=* *\(.*SUMMARY: .*\)/\1/p' "$log" | tail -1)
    case $status in
    0) word=ok ;;
    124) word="FAILED after ${LIMIT:-600} s" ;;
    *) word="FAILED ($status), see $log" ;;
    esac
    [ $status = 0 ] || bad=1
    echo "$group $tool: $word; ${passed:-no result}; ${summary:-no summary}; $(($(date +%s) - begun)) s"
}

for group in "$@"; do
    run "$group" alone env
    for tool in ${TOOLS:-memcheck racecheck synccheck}; do
        run "$group" "$tool" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9
    done
done
exit $bad
