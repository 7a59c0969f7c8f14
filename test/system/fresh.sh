#!/bin/bash
# fresh.sh -- what README promises, as somebody new meets it: on a Debian 12 that has nothing but its essential packages, gcc,
# make and xxHash, `make all`, `make install` and README's program as C; then, with g++, clang, CMake and pkg-config added, the
# same as C++ 17, 20 and 23, coda.hpp, projects of CMake and pkg-config, and static programs. Nobody says where the library
# lies: it is installed in /usr/local. Each program prints the number that README has.
# Run as: test/system/fresh.sh FOLDER; it wants root, debootstrap and a network, and leaves FOLDER/log. $DEBIAN is the mirror.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
root=$(mktemp -d) # not below the build folder, where make looks for dependency files
trap 'rm -rf --one-file-system "$root"' EXIT
mirror=${DEBIAN:-http://deb.debian.org/debian}
wrong() { echo "WRONG: $*"; exit 1; }
[ "$(id -u)" = 0 ] || { echo 'fresh: not tried, this is not root'; exit 0; }
command -v debootstrap >/dev/null || { echo 'fresh: not tried, there is no debootstrap'; exit 0; }

chmod 755 "$root"
debootstrap --variant=minbase bookworm "$root" "$mirror" > "$out/log" 2>&1 || wrong "debootstrap: $(tail -3 "$out/log")"
mkdir "$root/src"
tar c --exclude=./build --exclude=./.git . | tar x -C "$root/src"
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true

# inside COMMAND: by a shell in there, with nothing of this machine's environment, and mounts that go with it.
inside() {
    {
        echo "+ $1"
        unshare -m sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive sh -ec "$1"' \
            "$root" "$1"
    } >> "$out/log" 2>&1
}
need() { inside "$1" || wrong "$1: $(tail -5 "$out/log")"; }
install() { need "apt-get install -y -qq --no-install-recommends $*"; }
programs=0
# A program is built by COMMAND as /tmp/p, and prints README's number.
prints() {
    need "cd /tmp && rm -f p && $1"
    need '[ "$(/tmp/p)" = "y = 1.731 to 64.731" ] || { /tmp/p; exit 1; }'
    programs=$((programs + 1))
}

need 'apt-get update -qq'
install gcc libc6-dev make libxxhash-dev
for absent in g++ c++ clang pkg-config cmake python3 perl6 nvcc; do
    if inside "command -v $absent"; then wrong "$absent is there already"; fi
done
sed -n '/^```c$/,/^```$/p' README.md | sed '/^```/d' > "$root/tmp/first.c"
cp test/house/headers.cpp "$root/tmp"
need 'cd /src && make -j"$(nproc)" all'
need 'cd /src && make -s install > /tmp/said'
[ ! -s "$root/tmp/said" ] || wrong "make install says: $(cat "$root/tmp/said")"
prints 'gcc first.c -lcoda -o p'
prints 'gcc -std=c11 -pedantic-errors -Wall -Wextra -Werror first.c -lcoda -o p'
need 'coda --version && coda ops silu && coda run /usr/local/share/coda/graphs/llama_small.coda --check'

install g++ clang pkg-config cmake
flags='$(pkg-config --cflags --libs coda)'
prints "cc first.c $flags -o p" # as README has it
for compiler in g++ clang++; do
    for std in 17 20 2b; do
        prints "$compiler -x c++ -std=c++$std -Wall -Wextra -Werror first.c $flags -o p"
        need "cd /tmp && $compiler -std=c++$std headers.cpp $flags -o modern && ./modern" # coda.hpp
    done
done
prints "clang first.c $flags -o p"
prints 'cc first.c /usr/local/lib/libcoda.a -pthread -ldl -lm -o p'
prints 'cc -static first.c $(pkg-config --static --cflags --libs coda) -o p'
prints 'g++ -static -x c++ -std=c++17 first.c $(pkg-config --static --cflags --libs coda) -o p'
mkdir -p "$root/tmp/project"
cat > "$root/tmp/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(first LANGUAGES C CXX)
find_package(coda 0.1 CONFIG REQUIRED)
add_executable(first ../first.c)
target_link_libraries(first coda::coda)
add_executable(first_static ../first.c)
target_link_libraries(first_static coda::static)
file(COPY_FILE ${CMAKE_CURRENT_SOURCE_DIR}/../first.c ${CMAKE_CURRENT_BINARY_DIR}/first.cpp)
foreach(std 17 20 23)
  add_executable(first_cxx${std} ${CMAKE_CURRENT_BINARY_DIR}/first.cpp)
  set_target_properties(first_cxx${std} PROPERTIES CXX_STANDARD ${std} CXX_STANDARD_REQUIRED ON)
  target_link_libraries(first_cxx${std} coda::coda)
endforeach()
END
need 'cmake -S /tmp/project -B /tmp/project/build && cmake --build /tmp/project/build'
for name in first first_static first_cxx17 first_cxx20 first_cxx23; do prints "cp project/build/$name p"; done
cat > "$root/tmp/Makefile" <<'END'
CFLAGS = $(shell pkg-config --cflags coda)
LDLIBS = $(shell pkg-config --libs coda)
p: first
	cp first p
END
prints 'make p'
if inside 'ldd /tmp/project/build/first_static | grep coda'; then wrong 'first_static wants the shared library'; fi
need 'pkg-config --exact-version=$(coda --version | cut -d" " -f2) coda'
for variable in LD_LIBRARY_PATH PKG_CONFIG_PATH; do
    if inside "env | grep ^$variable="; then wrong "$variable is set"; fi
done
if inside 'readelf -d /tmp/p | grep -i runpath'; then wrong 'a program was built with a path'; fi

need 'cd /src && make -s uninstall'
left=$(find "$root/usr/local" -name '*coda*' ! -type d)
[ -z "$left" ] || wrong "uninstall leaves $left"
echo "fresh: make all on Debian 12 with gcc, make and xxHash alone; $programs programs print README's number"
