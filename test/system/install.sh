#!/bin/bash
# install.sh -- `make install`, and programs that know the library only by what it installed. Into an empty folder, by
# pkg-config and by CMake: shared and static, in C and C++, and static beside functions with the names of all that the
# library keeps to itself. Into /usr/local of a namespace of mounts, where nothing says where the library lies. README's
# first program is among them, and prints what README says. Then `make uninstall` leaves nothing.
# Run as: test/system/install.sh FOLDER
set -eu
root=$(mkdir -p "$1" && cd "$1" && pwd)
prefix=/opt/coda
rm -rf "${root:?}"/*
CC=${CC:-gcc} CXX=${CXX:-g++} said='y = 1.731 to 64.731'
export CC CXX
unset LD_LIBRARY_PATH PKG_CONFIG_PATH

wrong() { echo "WRONG: $*"; exit 1; }
make_() { make --no-print-directory -s "$@"; }
# README's first program prints its number.
says() { [ "$("$1")" = "$said" ] || wrong "$1 does not print '$said' but $("$1" 2>&1)"; }
# COMPILER ARGUMENTS...: builds user.c, which must succeed, or README's program.
user() { "$@" -o "$root/user" && "$root/user" || wrong "$* builds no program that succeeds"; }
first() { "$@" -o "$root/first" || wrong "$* fails"; says "$root/first"; }

make_ install DESTDIR="$root" PREFIX=$prefix >/dev/null
sed -n '/^```c$/,/^```$/p' README.md | sed '/^```/d' > "$root/first.c"
grep -q '1.731 to 64.731' "$root/first.c" || wrong 'README does not say what its first program prints'

# ---- By pkg-config ----
cat > "$root/user.c" <<'END'
#include <coda.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
    int64_t dims[] = {2, 3};
    float x[] = {1, 2, 3, -1, -2, -3}, y[6] = {0};
    void *args[] = {x, y};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    coda_graph *g = coda_graph_new();
    coda_output(g, "y", coda_relu(g, coda_input(g, "x", CODA_F32, 2, dims)));
    opt.device = CODA_DEVICE_CPU;
    if (coda_compile(&p, g, &opt) != CODA_OK || coda_run(p, args, NULL, NULL, NULL) != CODA_OK)
        return puts(coda_error()), 1;
    coda_plan_free(p);
    coda_graph_free(g);
    return strcmp(coda_version(), CODA_VERSION_STRING) || y[1] != 2 || y[4] != 0;
}
END
package() { PKG_CONFIG_PATH="$root$prefix/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" pkg-config "$@" coda; }
shared="$(package --cflags --libs) -Wl,-rpath,$root$prefix/lib"
static="$(package --cflags) $root$prefix/lib/libcoda.a $(package --static --libs-only-other --libs-only-l | sed 's/-lcoda//')"
user $CC -std=c99 -pedantic "$root/user.c" $shared
user $CXX -x c++ -std=c++11 -pedantic "$root/user.c" $shared
user $CXX -std=c++17 test/house/headers.cpp $shared # coda.hpp
user $CC -std=c99 "$root/user.c" $static
user $CC -std=c99 -Wl,--gc-sections "$root/user.c" $static
if echo 'int main(void) { return 0; }' | $CC -static -x c - -o "$root/user" 2>/dev/null; then # there is a libc.a
    user $CC -static -std=c99 "$root/user.c" $(package --static --cflags --libs) 2>"$root/warnings" # of dlopen
fi

inside=${BUILD:-build}/libcoda_internal.a
make_ "$inside"
nm -g --defined-only "$inside" | awk 'NF == 3 && $3 !~ /^coda_/ { print $3 }' | sort -u > "$root/names"
grep -qx graph_new "$root/names" && grep -qx arena_alloc "$root/names" || wrong "no names in $inside"
{
    echo '#include <stdlib.h>'
    sed 's/.*/void &(void);\nvoid &(void) { abort(); }/' "$root/names"
} > "$root/clash.c"
user $CC -std=c99 -fno-builtin -w "$root/user.c" "$root/clash.c" $static

# README's program, in each language that it is in.
strict='-Wall -Wextra -Werror -pedantic'
for std in c11 c2x; do first $CC -std=$std $strict "$root/first.c" $shared; done
languages=2
for compiler in g++ clang++; do
    command -v $compiler >/dev/null || continue
    for std in c++17 c++20 c++2b; do
        first $compiler -x c++ -std=$std $strict "$root/first.c" $shared
        languages=$((languages + 1))
    done
done

# ---- By CMake, from a tree that has been moved ----
mkdir -p "$root/cmake"
cat > "$root/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(first LANGUAGES C)
find_package(coda ${ASKED} CONFIG REQUIRED)
add_executable(first ../first.c)
target_link_libraries(first coda::coda)
add_executable(first_static ../first.c)
target_link_libraries(first_static coda::static)
END
configure() { cmake -S "$root/cmake" -B "$root/cmake/$1" -DASKED="$1" -DCMAKE_PREFIX_PATH="$2" >"$root/cmake/log" 2>&1; }
by_cmake() { # FOLDER: where the library was installed
    configure 0.1 "$1" && cmake --build "$root/cmake/0.1" >"$root/cmake/log" 2>&1 || { cat "$root/cmake/log"; exit 1; }
    says "$root/cmake/0.1/first"
    says "$root/cmake/0.1/first_static"
    rm -r "$root/cmake/0.1"
}
if command -v cmake >/dev/null; then
    by_cmake "$root$prefix"
    for other in 0.2 0.1.999 1; do
        configure $other "$root$prefix" && wrong "CMake takes this for version $other"
        grep -q 'version: 0\.1' "$root/cmake/log" || wrong "of version $other CMake says: $(cat "$root/cmake/log")"
    done
else echo 'no cmake: find_package was not tried'
fi

# ---- What else is there ----
"$root$prefix/bin/coda" --version
[ "$(package --modversion)" = "$("$root$prefix/bin/coda" --version | sed 's/coda //')" ]
for page in man1/coda.1 man3/coda_matmul.3 man3/coda_matmul_kn.3 man7/coda.7; do
    [ -s "$root$prefix/share/man/$page" ] || wrong "there is no $page"
done
grep -q 'id="coda_matmul_kn"' "$root$prefix/share/doc/coda/coda.html" || wrong 'no reference in share/doc/coda'
"$root$prefix/bin/coda" explain "$root$prefix/share/coda/graphs/llama.coda" >/dev/null
cps=$root$prefix/lib/cps/coda.cps
grep -q "\"version\": \"$(package --modversion)\"" "$cps" || wrong "no version in $cps"
for path in $(grep -o '"@prefix@/[^"]*"' "$cps" | tr -d '"' | sort -u); do
    [ -e "$root$prefix${path#@prefix@}" ] || wrong "$cps names $path, which is not there"
done
if grep -rq '@[A-Z]*@' "$root$prefix"/lib/{pkgconfig,cmake,cps}; then wrong 'a word was not filled in'; fi

make_ uninstall DESTDIR="$root" PREFIX=$prefix >/dev/null
left=$(find "$root$prefix" ! -type d -o -path '*coda*/coda')
[ -z "$left" ] || wrong "uninstall leaves $left"

# ---- In a folder that the loader does not know: the line that it prints is all that is needed ----
line=$(make_ install PREFIX="$root/own" | sed -n 's/^The loader does not look into .*: cc first.c/ /p')
[ -n "$line" ] || wrong 'install into a folder that the loader does not know prints no command'
eval "first $CC $root/first.c $line"

# ---- In /usr/local, with nothing else there, and an /etc of its own for the loader's cache ----
cat > "$root/local.sh" <<'END'
set -eu
mount -t tmpfs none /usr/local
mount -t tmpfs none /var/cache/ldconfig 2>/dev/null || true
cp -a /etc /usr/local 2>/dev/null || true # what may not be read is not needed
mount --bind /usr/local/etc /etc
printed=$(make --no-print-directory -s install PREFIX=/usr/local)
[ -z "$printed" ] || { echo "install into /usr/local prints: $printed"; exit 1; }
$CC -std=c11 "$1/first.c" $(pkg-config --cflags --libs coda) -o "$1/first"
$CXX -x c++ -std=c++17 "$1/first.c" $(pkg-config --cflags --libs coda) -o "$1/first_cc"
if command -v cmake >/dev/null; then
    cmake -S "$1/cmake" -B "$1/cmake/local" >/dev/null
    cmake --build "$1/cmake/local" >/dev/null
    "$1/cmake/local/first"
    "$1/cmake/local/first_static"
fi
"$1/first"
"$1/first_cc"
coda --version >/dev/null
END
where=
for enter in 'unshare -m' 'unshare -rm'; do
    $enter sh -c 'mount -t tmpfs none /usr/local && command -v $CC && command -v make' >/dev/null 2>&1 || continue
    case $root in /usr/local/*) continue ;; esac
    printed=$($enter sh "$root/local.sh" "$root") || wrong "in /usr/local: $printed"
    [ -z "$(echo "$printed" | grep -vxF "$said")" ] || wrong "in /usr/local programs print $printed"
    where=', also in /usr/local with no path to it' && break
done
[ -n "$where" ] || echo 'no namespace of mounts: /usr/local was not tried'
echo "install: C and C++ programs build with pkg-config and CMake and run$where; beside $(wc -l < "$root/names") names" \
    "of the inside; README's program in $languages languages"
