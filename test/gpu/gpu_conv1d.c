/* gpu_conv1d.c -- causal convolutions on the GPU against the evaluator. With CODA_TEST_CASE only cases run
 * whose names contain it. */
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "util_conv1d.h"
#include "util_device.h"
#include "util_scale.h"

int gpu_conv1d(void);

static int check(const struct conv1d_case *c, uint64_t seed)
{
    const char *named = getenv("CODA_TEST_CASE");
    if (named && !strstr(c->name, named)) return 0;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    graph *g = conv1d_graph(c);
    void **want = run_reference(g, seed);
    double error = want ? run_on_gpu(g, seed, &opt, want) : -1;
    if (want) random_args_free(g, want);
    graph_free(g);
    return gpu_case(error >= 0 && error <= conv1d_allowed(c), "conv1d", "%s, seed %llu: error %.2e %s",
                    c->name, (unsigned long long)seed, error, error < 0 ? coda_error() : "");
}

int gpu_conv1d(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "conv1d", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    for (int i = 0; i < conv1d_case_count; i++)
        if (!few || scale_takes_one_in(3, i)) failed += check(&conv1d_cases[i], 33);
    for (int i = 0; i < conv1d_product_count; i++)
        if (!few || scale_takes_one_in(3, i)) failed += check(&conv1d_products[i], 34);
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + (uint64_t)(few ? 3 : scaled(30)); s++) {
        const struct conv1d_case c = conv1d_draw(s);
        failed += check(&c, s);
    }
    return failed;
}
