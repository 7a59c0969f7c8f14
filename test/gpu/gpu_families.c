/* gpu_families.c -- random models of whole families on the GPU: see test_families.c. $CODA_FAMILIES: how
 * many. */
#include <stdlib.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_family_run.h"
#include "util_scale.h"

int gpu_families(void);

/* Of SIZES sets of sizes, which the seed draws: families of equal sizes have kernels in common. */
enum { FAMILIES = 60, EMULATED_FAMILIES = 1, SIZES = 5 };

int gpu_families(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE], why[512];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    if (!device_open(&dev, err)) return gpu_case(false, "family", "%s", err);
    const char *given = getenv("CODA_FAMILIES");
    int failed = 0, n = given ? atoi(given) : device_emulated(&dev) ? scaled(EMULATED_FAMILIES) : FAMILIES;
    uint64_t seed = random_seed();
    for (int i = 0; i < n; i++) {
        struct family f;
        if (!gpu_mine(i)) continue;
        /* fewer than half of them are known ones */
        enum known_family known = (enum known_family)((seed + (uint64_t)i) % (2 * KNOWN_FAMILIES));
        family_make_sized(&f, known < KNOWN_FAMILIES ? known : FAMILY_DRAWN, seed + (uint64_t)i, 0,
                          given || device_emulated(&dev) ? 0
                                                         : 1 + (seed + (uint64_t)i) % SIZES + SIZES * seed);
        bool good = family_good(&f, &opt, why, sizeof why);
        failed += gpu_case(good, "family", "seed %llu: %s%s%s", (unsigned long long)(seed + (uint64_t)i),
                           f.name, good ? "" : ": ", good ? "" : why);
        coda_graph_free(f.g);
    }
    return failed;
}
