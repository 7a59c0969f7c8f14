/*
 * name.c -- what a key, an entry or a kernel is filed under: a digest.
 *
 * A name is for finding, and proves nothing: whoever can choose texts finds two of one digest in a second.
 * So what is found is compared with all that was asked for, and is otherwise passed over. This function
 * stands alone so that tests can do with a name of a few bits, under which everything meets.
 */
#include "cache.h"

struct digest name_of(const void *a, size_t a_size, const void *b, size_t b_size)
{
    return b_size ? digest_of_two(a, a_size, b, b_size) : digest_of(a, a_size);
}
