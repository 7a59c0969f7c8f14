/*
 * vectors.c -- which of the host's vector instructions loops may use, found out once.
 *
 * $CODA_CPU may ask for fewer than there are: to compare, and for tools that do not know them all.
 */
#include "base.h"
#include "jit.h"

#include <pthread.h>
#include <string.h>

/* ORDER vectors */
static const char *const names[] = {"v2", "v3", "v4"};

static enum vectors chosen;

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
    for (int i = 0; asked && i < ARRAY_SIZE(names); i++)
        if (!strcmp(asked, names[i])) chosen = MIN(chosen, (enum vectors)i);
}

enum vectors vectors(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

const char *vectors_name(void) { return names[vectors()]; }
