/* gpu_cache.c -- random programs that append to caches and attend to them, on the device, against the
 * manual's formula in fp64. */
#include "gpu_case.h"
#include "util_cache.h"
#include "util_device.h"
#include "util_scale.h"

int gpu_cache(void);

/* On the emulator most of a case is compiling its kernels. */
enum { CASES = 50, EMULATED = 3, EMULATED_FULL = 300 };

int gpu_cache(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&device, err)) return gpu_case(false, "cache", "%s", err);
    int failed = 0, few = scale_is_full() ? EMULATED_FULL : EMULATED;
    int n = device_emulated(&device) ? few : scaled(CASES);
    for (int i = 0; i < n; i++) {
        struct cache_case c = cache_draw(random_seed() + (uint64_t)i);
        double error = cache_run(&c, CACHE_ON_GPU);
        failed += gpu_case(error >= 0 && error <= 1, "cache", "case %d, %s: error %.2f of what is allowed %s",
                           i, cache_describe(&c), error, error < 0 || error > 1e30 ? coda_error() : "");
    }
    return failed;
}
