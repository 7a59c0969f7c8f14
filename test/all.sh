#!/bin/bash
# all.sh -- `make test`: every proof that needs no GPU, one step after another, and at the end the sum.
#
# A step is a command; it counts as one test, except that Check's own counts are taken where a step runs
# unit tests. Every step runs, whatever came before it. Output of good steps stays in $BUILD/test-log.
set -u
cd "$(dirname "$0")/.."
jobs=$(nproc 2>/dev/null || echo 2)
build=${BUILD:-build}
log=$build/test-log
mkdir -p $log
passed=0 failed=0
start=$SECONDS

export MAKEFLAGS= BUILD=$build # not those of the make that called
make_in() { make --no-print-directory -s -j"$jobs" "$@"; }
asan() { make_in BUILD=$build/asan SAN=address,undefined CFLAGS='-O1 -g' "$@"; }
tsan() { make_in BUILD=$build/tsan SAN=thread CFLAGS='-O1 -g' "$@"; }
# The leak checker at times dies on the thread-local memory of NVRTC, if it follows that.
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:intercept_tls_get_addr=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=suppressions=$PWD/test/tsan.supp CK_DEFAULT_TIMEOUT=300

# Adds the counts of Check's summary lines, "97%: Checks: 100, Failures: 2, Errors: 1".
count_checks() {
    read -r good bad < <(sed -n 's/^[0-9]*%: Checks: \([0-9]*\), Failures: \([0-9]*\), Errors: \([0-9]*\).*/\1 \2 \3/p' "$1" |
        awk '{ all += $1; bad += $2 + $3 } END { print all - bad, bad + 0 }')
    passed=$((passed + good)) failed=$((failed + bad))
    [ $((good + bad)) -gt 0 ]
}

# step NAME COMMAND...
step() {
    local name=$1 out=$log/${1// /-} began=$SECONDS status
    shift
    "$@" >"$out" 2>&1
    status=$?
    if ! count_checks "$out"; then
        if [ $status = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    elif [ $status != 0 ] && ! grep -q '^[0-9]*%: Checks: .*\(Failures: [1-9]\|Errors: [1-9]\)' "$out"; then
        failed=$((failed + 1)) # all checks passed and yet it failed: a sanitizer at exit
    fi
    printf '%-6s %-24s %4d s   %s\n' "$([ $status = 0 ] && echo ok || echo FAILED)" "$name" $((SECONDS - began)) \
        "$(grep -v '^Running\|^ok \|^$' "$out" | tail -1 | cut -c1-90)"
    [ $status = 0 ] || { grep -v '^Running suite' "$out" | tail -40 | sed 's/^/       | /'; }
}

# Two at one time, each of which keeps one core busy: both COMMAND COMMAND
both() {
    "$1" >"$log/$1" 2>&1 &
    local other=$! status
    "$2"
    status=$?
    wait $other || status=1
    cat "$log/$1"
    return $status
}
unit() { make_in all $build/unit && both unit_gemm unit_rest; }
unit_gemm() { CK_INCLUDE_TAGS=gemm $build/unit; } # half of the time: NVRTC
unit_rest() { CK_EXCLUDE_TAGS=gemm $build/unit; }
# Without the cases that only make NVRTC compile, which no sanitizer looks into.
unit_asan() { asan $build/asan/unit && CK_EXCLUDE_TAGS=nvrtc $build/asan/unit; }
# The suites that start threads, and the CPU device. A race ends a test's process with a status that
# Check sees.
unit_tsan() {
    tsan $build/tsan/unit || return
    for suite in $threaded; do CK_RUN_SUITE=$suite $build/tsan/unit || return; done
}
threaded="cpu $(grep -l 'pthread_create' test/unit/*/test_*.c | sed 's/.*test_\(.*\)\.c/\1/')"
hunger_and_fuzz() { asan $build/asan/oom fuzzers && both oom fuzz; }
oom() { $build/asan/oom; }
fuzz() { for f in test/fuzz/fuzz_*.c; do $build/asan/"$(basename "$f" .c)" "${FUZZ_SECONDS:-10}" || return; done; }
# The kernel cache under torture, each program short; and again where a sanitizer has something to see.
torture() { make_in all $build/torture/$1 && $build/torture/$1; }
# The GPU test of processes that start together, on a driver and a compiler that are not there.
cold_start() {
    make_in $build/gpu_tests torture-build &&
        CODA_CUDA_LIB=$PWD/$build/fake CODA_LIBCUDA=$PWD/$build/fake/libcuda.so.1 $build/gpu_tests cold
}
# The GPU tests on an SM in software. Kernels of texts that stay the same stay compiled; the seed draws
# random cases, and the schedules.
emulate() {
    make_in emulator && CODA_SEED=${CODA_SEED:-$(date +%s)} CODA_CACHE_DIR=$build/emulator/cache \
        CODA_CUDA_LIB=$PWD/$build/emulator CODA_LIBCUDA=$PWD/$build/emulator/libcuda.so.1 $build/gpu_tests
}
torture_asan() {
    asan $build/asan/torture/{damage,store,faults} || return
    for t in damage store faults; do $build/asan/torture/$t || return; done
}
torture_tsan() {
    tsan $build/tsan/torture/{cold,store} && $build/tsan/torture/cold threads && $build/tsan/torture/store
}
# Where keys meet under names of four bits: suites and programs that do not count entries.
weak_names() {
    make_in $build/weak/unit $build/weak/torture/{driver,store,hostile,versions} || return
    for suite in memo store bundle entry save trust tuning twins threads; do
        CK_EXCLUDE_TAGS=nvrtc CK_RUN_SUITE=$suite $build/weak/unit || return
    done
    for t in driver store hostile versions; do $build/weak/torture/$t || return; done
}
examples() {
    make_in all examples && for e in mlp custom_map cross_entropy; do $build/examples/$e || return; done
}
# A few cases of every operator of the ONNX suite; `make conformance` runs them all.
conformance() { make_in $build/conformance/run && $build/conformance/run test/conformance/subset; }
demo() { $build/examples/llama_block --cpu; }

step unit unit
step conformance conformance
step layers make_in layers
step exports make_in exports
step abi make_in abi
step headers make_in headers
step install test/system/install.sh $build/install
step examples examples
step tool test/system/tool.sh $build/tool
step hijack test/system/hijack.sh $build/hijack
step demo demo
step "ASan, UBSan, TSan" both unit_tsan unit_asan
step "out of memory, fuzz" hunger_and_fuzz
make_in torture-build >$log/torture-build 2>&1
for t in test/torture/*.c; do
    t=$(basename "$t" .c)
    case $t in torture | shim) ;; *) step "torture: $t" torture "$t" ;; esac
done
step "names of four bits" weak_names
step "torture with ASan" torture_asan
step "cold start, no GPU" cold_start
step "torture with TSan" torture_tsan
step "emulated GPU" emulate
# CI has no GPU: the stamp says which sources one has run.
digest=$(sed -n 's/^digest: //p' test/gpu.stamp 2>/dev/null)
if [ -z "$digest" ]; then echo 'note: there is no test/gpu.stamp: `make test-gpu` writes it'
elif [ "$digest" = "$(make_in stamp-digest)" ]; then echo "test/gpu.stamp is of these sources: $(grep -E '^(device|passed|failed):' test/gpu.stamp | tr '\n' ' ')"
else echo 'note: test/gpu.stamp is of other sources: `make test-gpu` renews it'
fi
echo "$((SECONDS - start)) s; full output in $log"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
