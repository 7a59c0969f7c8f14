#!/bin/sh
# headers.sh -- coda.h compiles as pedantic C99 and C++11, each of its INIT macros sets the right size and
# nothing else, and the program in its first comment compiles. Run as: test/house/headers.sh FOLDER
set -eu
out=$1
header=include/coda.h
mkdir -p "$out"

# One object for each CODA_..._INIT; its type is the macro's name in small letters.
macros=$(sed -n 's/^#define CODA_\([A-Z_]*\)_INIT\>.*/\1/p' $header)
count=$(echo "$macros" | wc -w)
structs=$(grep -c 'size_t size; *\(/\*.*\)\?$' $header)
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
[ "$count" -ge 5 ] && [ "$count" = "$structs" ] ||
    { echo "headers: $count INIT macros, $structs sized structs"; exit 1; }
echo "headers: $count INIT macros in C99, C++11 and C++20; the first program compiles"
