/* compile.h -- what compile.c, key.c and sources.c share. */
#ifndef COMPILE_H
#define COMPILE_H

#include "driver.h"

/* sources.c -- the primitives as NVRTC takes them: names and texts, and a digest over both. Loaded
 * once; NULL with the reason in err if memory ran out. */
struct sources {
    int count;
    const char **names, **texts;
    char digest[33];
};
const struct sources *sources_open(char *err);

/* key.c -- everything that can change the cubin, as text; malloc'd, NULL if memory ran out. */
struct key_parts {
    int nvrtc_major, nvrtc_minor;
    const char *nvrtc_build;
    const char *arch;
    const char *const *options; /* NULL at the end; no paths                                       */
    const char *primitives;     /* digest                                                          */
    const char *symbol, *text;
};
char *key_print(const struct key_parts *k);

#endif
