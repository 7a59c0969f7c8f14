/*
 * vectors.c -- which of the host's vector instructions loops may use, found out once.
 *
 * $CODA_CPU may ask for fewer than there are: to compare, and for tools that do not know them all.
 */
#include "base.h"
#include "jit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ORDER vectors */
static const char *const names[] = {"v2", "v3", "v4"};

static enum vectors chosen;
static char unknown[48]; /* what $CODA_CPU says instead of a name */

enum vectors vectors_most(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
        return VECTORS_V2;
    bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    return wide ? VECTORS_V4 : VECTORS_V3;
#else
    return VECTORS_V2;
#endif
}

static void choose(void)
{
    const char *asked = jit_environment("CODA_CPU");
    chosen = vectors_most();
    if (!asked) return;
    int i = 0;
    while (i < ARRAY_SIZE(names) && strcmp(asked, names[i])) i++;
    if (i < ARRAY_SIZE(names)) chosen = MIN(chosen, (enum vectors)i);
    else snprintf(unknown, sizeof unknown, "%.40s", asked);
}

enum vectors vectors(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

coda_status vectors_check(void)
{
    vectors();
    if (!*unknown) return CODA_OK;
    return fail(CODA_E_INVALID, "CODA_CPU is \"%s\"; must be v2, v3 or v4", unknown);
}

const char *vectors_name(void) { return names[vectors()]; }
