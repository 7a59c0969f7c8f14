#!/bin/sh
# install.sh -- `make install` into an empty folder, then a C and a C++ program that know the library
# only through pkg-config: shared and static, built and run; static also beside functions with the names of all that
# the library keeps to itself. Then `make uninstall` leaves nothing.
# Run as: test/system/install.sh FOLDER
set -eu
root=$(mkdir -p "$1" && cd "$1" && pwd)
prefix=/opt/coda
rm -rf "$root"/*
make --no-print-directory install DESTDIR="$root" PREFIX=$prefix >/dev/null

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
cp "$root/user.c" "$root/user.cc"
export PKG_CONFIG_PATH="$root$prefix/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
flags=$(pkg-config --cflags --libs coda)
static="$(pkg-config --cflags coda) $root$prefix/lib/libcoda.a $(pkg-config --static --libs-only-other --libs-only-l coda |
    sed 's/-lcoda//')"
${CC:-gcc} -std=c99 -pedantic "$root/user.c" $flags -o "$root/user_c"
${CXX:-g++} -std=c++11 -pedantic "$root/user.cc" $flags -o "$root/user_cc"
${CC:-gcc} -std=c99 "$root/user.c" $static -o "$root/user_static"

inside=${BUILD:-build}/libcoda_internal.a
make --no-print-directory -s "$inside"
nm -g --defined-only "$inside" | awk 'NF == 3 && $3 !~ /^coda_/ { print $3 }' | sort -u > "$root/names"
grep -qx graph_new "$root/names" && grep -qx arena_alloc "$root/names" || { echo "no names in $inside"; exit 1; }
{
    echo '#include <stdlib.h>'
    sed 's/.*/void &(void);\nvoid &(void) { abort(); }/' "$root/names"
} > "$root/clash.c"
${CC:-gcc} -std=c99 -fno-builtin -w "$root/user.c" "$root/clash.c" $static -o "$root/user_clash"
"$root/user_clash"
${CC:-gcc} -std=c99 -Wl,--gc-sections "$root/user.c" $static -o "$root/user_small"
"$root/user_small"
for program in user_c user_cc; do LD_LIBRARY_PATH="$root$prefix/lib" "$root/$program"; done
"$root/user_static"
sed -n '/^```c$/,/^```$/p' README.md | sed '/^```/d' > "$root/first.c" # the README's first program
${CC:-gcc} -std=c11 -Wall -Werror "$root/first.c" $flags -o "$root/first"
LD_LIBRARY_PATH="$root$prefix/lib" "$root/first" | grep -q '^y\[0\] = 0$'
"$root$prefix/bin/coda" --version
[ "$(pkg-config --modversion coda)" = "$("$root$prefix/bin/coda" --version | sed 's/coda //')" ]

make --no-print-directory uninstall DESTDIR="$root" PREFIX=$prefix >/dev/null
left=$(find "$root$prefix" ! -type d)
[ -z "$left" ] || { echo "uninstall leaves $left"; exit 1; }
echo "install: C and C++ programs build with pkg-config and run, also beside $(wc -l < "$root/names") names of the inside"
