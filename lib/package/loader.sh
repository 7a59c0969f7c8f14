#!/bin/sh
# loader.sh LIBDIR -- lets programs find LIBDIR/libcoda.so.0 without a path. Where the loader looks into LIBDIR, its cache
# is renewed, which root may. Otherwise one line says what is needed.
libdir=$1
PATH=$PATH:/sbin:/usr/sbin
known() { ldconfig -v -N -X 2>/dev/null | grep -q "^$libdir:"; }
cached() { ldconfig -p 2>/dev/null | grep -q "=> $libdir/libcoda\.so\.0$"; }

if known && [ "$(id -u)" = 0 ] && ldconfig && cached; then exit 0; fi
if known; then echo "To let programs find $libdir/libcoda.so.0: sudo ldconfig"
else
    echo "The loader does not look into $libdir. Programs need its path:" \
        "cc first.c \$(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --cflags --libs coda) -Wl,-rpath,$libdir"
fi
