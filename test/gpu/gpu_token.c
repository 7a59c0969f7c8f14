/* gpu_token.c -- one token of a layer of Mamba on the GPU against the evaluator. With CODA_TEST_CASE only
 * cases run whose names contain it. */
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_scale.h"
#include "util_token.h"

int gpu_token(void);

static int check(const struct token_case *c, uint64_t seed)
{
    const char *named = getenv("CODA_TEST_CASE");
    if (named && !strstr(c->name, named)) return 0;
    double error = token_error(c, seed, NULL, true);
    return gpu_case(error >= 0 && error <= 1, "token", "%s, seed %llu: the error is %g of what is allowed %s",
                    c->name, (unsigned long long)seed, error, error < 0 ? coda_error() : "");
}

int gpu_token(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "token", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    uint64_t seed = random_seed();
    for (int i = 0; i < token_case_count; i++)
        if (!few || scale_takes_one_in(3, i)) failed += check(&token_cases[i], 43);
    for (uint64_t s = seed; s < seed + (uint64_t)(few ? 3 : scaled(20)); s++) {
        const struct token_case c = token_draw(s);
        failed += check(&c, s);
    }
    return failed;
}
