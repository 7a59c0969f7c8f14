/* gpu_rows_random.c -- random graphs of maps, statistics, broadcasts and states on the GPU against fp64: see
 * test_rows_random.c. */
#include "gpu_case.h"
#include "util_device.h"
#include "util_random_rows.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_rows_random(void);

enum { GRAPHS = 200, EMULATED_GRAPHS = 12 };

static int run(uint64_t seed, const struct rows_options *options)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    graph *g = random_rows(seed, options);
    void **want = g ? run_reference(g, seed) : NULL;
    double error = want ? run_on_gpu(g, seed, &opt, want) : -1;
    bool good = error >= 0 && error <= 1e-3;
    if (want) random_args_free(g, want);
    coda_graph_free(g);
    return gpu_case(good, "rows_random", "seed %llu: error %.2e %s", (unsigned long long)seed, error,
                    good ? "" : coda_error());
}

int gpu_rows_random(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "rows_random", "%s", err);
    bool emulated = device_emulated(&device);
    int n = emulated ? scaled(EMULATED_GRAPHS) : GRAPHS;
    for (int i = 0; i < n; i++) {
        if (!gpu_mine(i)) continue;
        failed += run(random_seed() + (uint64_t)i,
                      &(struct rows_options){.operations = emulated ? 16 : 0, .elements = i % 2});
    }
    return failed;
}
