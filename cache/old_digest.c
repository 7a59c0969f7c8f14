/* digest.c -- XXH3-128: names for keys, checksums for entries. Guards against rot, not attackers. */
#include "old.h"

#define XXH_INLINE_ALL
#if __has_include(<xxhash.h>)
#include <xxhash.h>
#else
#include "deps/include/xxhash.h" /* carried in the build folder */
#endif

void old_digest(char out[33], const void *data, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    static const unsigned char nothing;
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(size ? data : &nothing, size));
    for (int i = 0; i < 16; i++) {
        out[2 * i] = hex[c.digest[i] >> 4];
        out[2 * i + 1] = hex[c.digest[i] & 15];
    }
    out[32] = 0;
}
