/*
 * sized.c -- copies between the caller's structs and ours.
 *
 *     caller's  | size | base fields | newer fields it knows | newer than ours |
 *     read                 copied      copied                   must be 0
 *     write                copied      copied                   becomes 0
 *
 * This is how Linux extends its system calls (copy_struct_from_user, copy_struct_to_user). Every version's
 * size is a multiple of size_t, so that no field is cut in two.
 */
#include "sized.h"

#include <string.h>

enum { SIZE_LIMIT = 4096 }; /* beyond it a size is an accident: a struct that nobody initialised */

#define X(type, last) {#type, SIZED_UP_TO(type, last), sizeof(type)},
const struct sized sized[SIZED_TYPES] = {SIZED_STRUCTS(X)};
#undef X

/* Until a version is out, its fields are the base's. Remove this with the first field after that. */
#define X(type, last) _Static_assert(SIZED_UP_TO(type, last) == sizeof(type), #type " ends with " #last);
SIZED_STRUCTS(X)
#undef X

/* What the caller's struct holds, in bytes. */
static coda_status size_of(const char *what, const struct sized *s, const void *theirs, size_t *size)
{
    memcpy(size, theirs, sizeof *size);
    if (*size == 0) *size = s->base;
    if (*size >= s->base && *size <= SIZE_LIMIT && *size % sizeof *size == 0) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: the size of a %s is %zu; INIT sets %zu", what, s->type, *size, s->whole);
}

coda_status sized_read(const char *what, const struct sized *s, void *own, const void *given)
{
    const char *theirs = given;
    size_t size;
    memset(own, 0, s->whole);
    if (!given) return CODA_OK;
    coda_status status = size_of(what, s, given, &size);
    for (size_t i = s->whole; !status && i < size; i++)
        if (theirs[i])
            status = fail(CODA_E_INVALID, "%s: byte %zu of a %s is %d; this version, %s, knows %zu bytes",
                          what, i, s->type, theirs[i], CODA_VERSION_STRING, s->whole);
    if (!status) memcpy(own, given, MIN(size, s->whole));
    return status;
}

coda_status sized_check(const char *what, const struct sized *s, const void *out)
{
    size_t size;
    return out ? size_of(what, s, out, &size) : CODA_OK;
}

void sized_write(const struct sized *s, void *out, const void *own)
{
    size_t size, head = sizeof size;
    if (!out || size_of("", s, out, &size)) return;
    memcpy((char *)out + head, (const char *)own + head, MIN(size, s->whole) - head);
    if (size > s->whole) memset((char *)out + s->whole, 0, size - s->whole);
}
