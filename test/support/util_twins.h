/* util_twins.h -- pairs of texts that have the same 256-bit digest, made as somebody would who wants them. */
#ifndef UTIL_TWINS_H
#define UTIL_TWINS_H

#include <stddef.h>

/* `before`, some padding, the bytes of twin 0 or 1, again some, `after`: malloc'd. Both of a pair are as long
 * and have one digest, whatever stands around. The bytes are no NUL, line end or quote. */
char *twin_text(const char *before, int which, const char *after);
/* Where the bytes begin in it. Twin 0 and twin 1 differ in this bit of that one of them. */
size_t twin_at(const char *before);
enum { TWIN_DIFFERS = 6, TWIN_BIT = 64 };

#endif
