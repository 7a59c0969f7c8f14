#!/bin/bash
# hijack.sh FOLDER -- nobody else's code runs, and nobody else's word counts: libraries that lie in the current
# directory under every name that is looked for, a program whose argv[0] lies, a setuid copy of the tool whose
# caller sets every variable. Makes FOLDER anew. What this machine cannot show is said.
set -u
tool=$(cd "${BUILD:-build}" && pwd)/coda
rm -rf "$1" && mkdir -p "$1" || exit 1
d=$(cd "$1" && pwd)
evil=$d/evil cases=0 bad=0
chmod 755 "$d"
mkdir -p "$d/bin" "$evil"/{,cuda/}{lib,lib64,targets/x86_64-linux/lib,glibc-hwcaps/x86-64-v2}
cp "$tool" "$d/bin/coda"
cat >"$d/evil.c" <<'END'
#include <unistd.h>
__attribute__((constructor)) static void begin(void) { if (write(2, "HIJACKED\n", 9)) return; }
END
${CC:-gcc} -shared -fPIC "$d/evil.c" -o "$d/evil.so" || exit 1
for folder in $(find "$evil" -type d); do
    for name in libcuda.so.1 libnvrtc.so.1{2,3} libnvrtc-builtins.so.1{2,3}.{0,1} libcublasLt.so.1{2,3}; do
        cp "$d/evil.so" "$folder/$name"
    done
done
printf '%%x = input f32[16,64]\n%%y = relu %%x\noutput %%y = %%y\n' >"$d/graph"
unset LD_LIBRARY_PATH CUDA_HOME CUDA_PATH CODA_CUDA_LIB CODA_LIBCUDA CODA_DUMP CODA_DEBUG

# wrong WHAT...
wrong() { echo "WRONG: $*"; bad=$((bad + 1)); }
# safe WHAT COMMAND...: from the hostile folder; its output stays in $d/out.
safe() {
    local what=$1
    shift
    cases=$((cases + 1))
    (cd "$evil" && "$@") >"$d/out" 2>&1
    ! grep -q HIJACKED "$d/out" || wrong "$what: $(grep -c HIJACKED "$d/out") libraries loaded"
}

# The control: what is asked for by its full name is loaded, so that the rest says something.
(cd / && CODA_LIBCUDA=$evil/libcuda.so.1 "$d/bin/coda" info 2>&1) | grep -q HIJACKED || wrong "the control is not loaded"

for list in : :: :/nonexistent /nonexistent: /a::/b lib ./lib . ./ ../evil 'lib;/x' '/x;lib64' '/x; '; do
    safe "LD_LIBRARY_PATH=$list" env LD_LIBRARY_PATH="$list" "$d/bin/coda" info
    grep -q 'LD_LIBRARY_PATH has "' "$d/out" || wrong "LD_LIBRARY_PATH=$list is not refused: $(sed -n 2p "$d/out")"
done
for variable in CODA_CUDA_LIB CUDA_HOME CUDA_PATH; do
    for value in . ./ .. lib lib64 cuda ./cuda cuda/lib64 ../evil ../evil/cuda; do
        safe "$variable=$value" env "$variable=$value" "$d/bin/coda" info
    done
done
for value in ./libcuda.so.1 lib/libcuda.so.1 ../evil/libcuda.so.1; do
    safe "CODA_LIBCUDA=$value" env CODA_LIBCUDA=$value "$d/bin/coda" info
    grep -q "CODA_LIBCUDA has \"$value\", which is no absolute path" "$d/out" || wrong "CODA_LIBCUDA=$value is not refused"
done

# Where no NVRTC is to be had, the last place is beside the tool: by PATH, by a relative name, by a lie.
cat >"$d/beside.sh" <<END
mount -t tmpfs tmpfs /usr/local || exit 77
cd "$evil" && PATH="$d/bin:\$PATH" coda info
../bin/coda info
(exec -a coda "$d/bin/coda" info)
(exec -a "$evil/zzz" "$d/bin/coda" info)
(exec -a ./zzz "$d/bin/coda" info)
END
if unshare -m true 2>/dev/null || unshare -rm true 2>/dev/null; then
    [ "$(id -u)" = 0 ] && user=-m || user=-rm
    safe "beside the tool" unshare $user bash "$d/beside.sh"
    grep -q '^library' "$d/out" || wrong "beside the tool: $(head -1 "$d/out")"
else
    echo "SKIPPED: beside the tool: no mount namespaces here"
fi

# The same as a setuid program, whose caller says all that can be said.
if [ "$(id -u)" = 0 ] && [ "$(id -u nobody 2>/dev/null)" ] && command -v setpriv >/dev/null; then
    open=$d/open
    mkdir -p "$open/primitives/map" && chmod 1777 "$open"
    cp "$d/evil.so" "$open/evil.so"
    echo '#error HIJACKED' >"$open/primitives/map/relu.cuh"
    printf '#!/bin/sh\necho HIJACKED >&2\n' >"$evil/coda" && chmod 755 "$evil/coda"
    cp "$tool" "$d/bin/su" && chown 54321 "$d/bin/su" && chmod 4755 "$d/bin/su"
    ln "$d/bin/su" "$evil/su" # a folder of the caller's choice
    as() { setpriv --reuid=nobody --regid=65534 --clear-groups env -i "$@"; }
    said=(CODA_CUDA_LIB="$evil/lib" CODA_LIBCUDA="$evil/libcuda.so.1" CUDA_HOME="$evil/cuda" CUDA_PATH="$evil/cuda"
        LD_LIBRARY_PATH="$evil" PATH="$evil" HOME="$open" XDG_CACHE_HOME="$open" XDG_RUNTIME_DIR="$open"
        CODA_CACHE_DIR="$open/cache" CODA_CACHE_LIMIT=1 CODA_BUNDLES="$open" CODA_RECORD="$open/record"
        CODA_DUMP="$open" CODA_DEBUG=graph,plan,cache CODA_PRIMITIVES="$open/primitives" TMPDIR="$open" CODA_SEED=1)
    as "$d/bin/su" compile "$d/graph" >"$d/plain" 2>&1
    before=$(find "$open" | sort)
    for program in "$d/bin/su" "$evil/su"; do
        safe "setuid, everything said" as "${said[@]}" "$program" compile "$d/graph"
        sed 's/ *[0-9]*\.[0-9]//' "$d/plain" | cmp -s - <(sed 's/ *[0-9]*\.[0-9]//' "$d/out") ||
            wrong "setuid: variables count: $(diff "$d/plain" "$d/out" | head -3 | tr '\n' ' ')"
        safe "setuid, info" as "${said[@]}" "$program" info
        safe "setuid, a lie" as "${said[@]}" bash -c "exec -a $evil/zzz $program info"
        for name in CUDA_INJECTION64_PATH NVTX_INJECTION64_PATH NVRTC_APPEND_FLAGS CUBLASLT_LOG_FILE; do
            safe "setuid, $name" as $name="$open/evil.so" "$program" info
            grep -q "setuid program, and \$$name is set" "$d/out" || wrong "setuid: $name is not refused"
        done
        ! unshare -m true 2>/dev/null ||
            safe "setuid, beside" unshare -m bash -c "mount -t tmpfs tmpfs /usr/local; $(declare -f as); as $program info"
    done
    [ "$before" = "$(find "$open" | sort)" ] || wrong "setuid: something was written: $(find "$open" | tr '\n' ' ')"
else
    echo "SKIPPED: setuid: only root can make such a program"
fi
[ -n "${KEEP:-}" ] || rm -rf "$d"
echo "hijack: $cases cases, $bad wrong"
[ $bad = 0 ]
