#!/bin/bash
# deb.sh -- Debian packages: libcoda0, libcoda-dev and coda are built by dpkg-buildpackage, depend on the C library alone,
# hold what they should, and a program that is built with what they hold prints what README says.
# Run as: test/system/deb.sh FOLDER; leaves the packages there. It wants dpkg-dev and debhelper.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
rm -rf "${out:?}"/*
wrong() { echo "WRONG: $*"; exit 1; }
command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null || wrong 'no dpkg-buildpackage or no dh: .ci/deps deb'

version=$(sed -n 's/.*CODA_VERSION_STRING "\(.*\)"/\1/p' include/coda.h)
source=$out/libcoda-$version
mkdir "$source"
tar c --exclude=./build --exclude=./.git . | tar x -C "$source"
cp -r lib/package/debian "$source/debian"
printf 'libcoda (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' "$version" \
    "$(sed -n 's/^Maintainer: //p' lib/package/debian/control)" "$(date -R)" > "$source/debian/changelog"
(cd "$source" && unset MAKEFLAGS CFLAGS BUILD && dpkg-buildpackage -d -us -uc -b >"$out/log" 2>&1) || { tail -40 "$out/log"; exit 1; }

mkdir "$out/root"
for package in libcoda0 libcoda-dev coda; do
    file=$(echo "$out/${package}_${version}_"*.deb)
    [ -e "$file" ] || wrong "there is no $package"
    depends=$(dpkg-deb -f "$file" Depends | sed 's/([^)]*)//g; s/ //g')
    case $package:$depends in
    libcoda0:libc6 | coda:libc6 | libcoda-dev:libcoda0) ;;
    *) wrong "$package depends on '$depends'" ;;
    esac
    dpkg-deb -x "$file" "$out/root"
done
shlibs=$(dpkg-deb -I "$out/libcoda0_${version}_"*.deb shlibs)
case $shlibs in *"libcoda0 (>= ${version%.*}), libcoda0 (<< "*) ;; *) wrong "programs would depend on: $shlibs" ;; esac
lib=$(dirname "$(find "$out/root" -name libcoda.so.0)")
for file in "$lib"/libcoda.so "$lib"/libcoda.a "$lib"/pkgconfig/coda.pc "$lib"/cmake/coda/coda-config.cmake "$lib"/cps/coda.cps \
    "$out"/root/usr/{bin/coda,include/coda.h,include/coda_cache.h,include/coda_grad.h,include/coda_quant.h,include/coda_profile.h,include/coda_recurrent.h,include/coda_group.h,include/coda.hpp,share/coda/graphs/llama.coda,share/doc/coda/coda.html,share/man/{man1/coda.1,man3/coda_matmul.3,man3/coda_matmul_kn.3,man7/coda.7}.gz}; do
    [ -e "$file" ] || wrong "no package has $file"
done
sed -n '/^```c$/,/^```$/p' README.md | sed '/^```/d' > "$out/first.c"
flags=$(PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$out/root" pkg-config --cflags --libs coda)
${CC:-gcc} "$out/first.c" -I"$out/root/usr/include" -L"$lib" $flags -Wl,-rpath,"$lib" -o "$out/first"
[ "$("$out/first")" = 'y = 1.731 to 64.731' ] || wrong "README's program prints $("$out/first" 2>&1)"
zcat "$out/root/usr/share/doc/coda/changelog.gz" | grep -q '^libcoda (' || wrong "coda has no changelog in Debian's form"
ls "$out/root/usr/share/doc/coda/CHANGELOG.md"* >/dev/null || wrong 'coda lacks CHANGELOG.md'
rm -rf "$source" "$out/root"
echo "deb: $(cd "$out" && ls ./*.deb | wc -l) packages, which depend on the C library alone"
