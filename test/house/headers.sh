#!/bin/sh
# headers.sh -- coda.h, and its parts coda_cache.h, coda_grad.h, coda_quant.h, coda_profile.h, coda_recurrent.h and coda_group.h by themselves, compile as pedantic C99 and
# C++11, each INIT macro sets the right size and nothing else, and the program in the first comment compiles. coda.hpp has each builder of coda.h, and headers.cpp,
# which uses it, compiles in C++17, 20 and 23 and runs, with exceptions and without.
# Run as: test/house/headers.sh FOLDER LIBRARY
set -eu
out=$1 library=$2
header=include/coda.h
parts="$header include/coda_cache.h include/coda_grad.h include/coda_quant.h include/coda_profile.h include/coda_recurrent.h include/coda_group.h"
mkdir -p "$out"

# One object for each CODA_..._INIT; its type is the macro's name in small letters.
macros=$(sed -n 's/^#define CODA_\([A-Z_]*\)_INIT\>.*/\1/p' $parts)
count=$(echo "$macros" | wc -w)
structs=$(cat $parts | grep -c 'size_t size; *\(/\*.*\)\?$')
{
    echo '#include <string.h>'
    echo '#include "coda.h"'
    echo 'int main(void) {'
    for m in $macros; do
        type=coda_$(echo "$m" | tr A-Z a-z)
        echo "    { static $type v = CODA_${m}_INIT, zero; if (v.size != sizeof v) return 1;"
        echo "      v.size = 0; if (memcmp(&v, &zero, sizeof v)) return 2; }"
    done
    echo '    return 0;'
    echo '}'
} > "$out/init.c"

# The lines of the first comment that stand deeper than its text.
{
    echo '#include <stdio.h>'
    echo '#include "coda.h"'
    echo 'int story(void *dx, void *dw, void *dd, void *dy, void *workspace, coda_stream stream);'
    echo 'int story(void *dx, void *dw, void *dd, void *dy, void *workspace, coda_stream stream) {'
    sed -n '1,/\*\//s/^ \*     //p' $header | sed -n '/^coda_graph/,/^coda_run/p'
    echo 'coda_plan_free(p); return 0; }'
} > "$out/story.c"

strict='-Wall -Wextra -Werror -pedantic-errors -Iinclude'
$CC -std=c99 $strict "$out/init.c" -o "$out/init_c"
for std in c++11 c++20; do $CXX -x c++ -std=$std $strict "$out/init.c" -o "$out/init_$std"; done
for program in init_c init_c++11 init_c++20; do "$out/$program"; done
$CC -std=c99 $strict -c "$out/story.c" -o "$out/story.o"
for part in cache grad quant profile; do
    $CC -std=c99 $strict -fsyntax-only include/coda_$part.h
    $CXX -x c++ -std=c++11 $strict -fsyntax-only include/coda_$part.h
done

# coda.hpp: what coda.h calls coda_NAME(coda_graph *g, ...) and returns a value.
builders=$($CC -E -P $header | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*coda_value coda_\([a-z0-9_]*\) *(coda_graph \*g,.*/\1/p')
for b in $builders; do
    grep -qE "CODA_BUILDER\($b\)|coda_$b\>" include/coda.hpp ||
        { echo "headers: coda.hpp lacks coda_$b: add CODA_BUILDER($b)"; exit 1; }
done
[ "$(echo "$builders" | wc -w)" -ge 70 ] || { echo "headers: few builders in $header: $builders"; exit 1; }
modern='-Wall -Wextra -Wconversion -Wshadow -Werror -pedantic-errors -Iinclude test/house/headers.cpp'
silent='-fno-exceptions -fno-rtti -DCODA_NO_EXCEPTIONS'
# A full run takes all; a short one takes in turns, by its seed, what differs from what it has compiled in a standard alone.
full=${CODA_FULL:+"-std=c++17 $silent"}
for how in '-std=c++17' "-std=c++2b $silent" ${full:+"$full"}; do
    $CXX $how $modern "$library" -Wl,-rpath,"$(cd "$(dirname "$library")" && pwd)" -o "$out/modern"
    "$out/modern"
done
turn=${CODA_SEED:-0}
for compiler in g++ clang++; do
    command -v $compiler >/dev/null || continue
    for std in c++17 c++20 c++2b; do
        turn=$((turn + 1))
        [ -n "${CODA_FULL:-}" ] || [ $((turn % 2)) = 0 ] || continue
        [ $std.$compiler = c++17.$CXX ] || $compiler -std=$std -fsyntax-only $modern # that one has compiled it
    done
done
[ "$count" -ge 5 ] && [ "$count" = "$structs" ] ||
    { echo "headers: $count INIT macros, $structs sized structs"; exit 1; }
echo "headers: $count INIT macros in C99, C++11 and C++20; the first program compiles;" \
    "$(echo "$builders" | wc -w) builders in coda.hpp, which runs with exceptions and without"
