/* gpu_indices.c -- integers of 64 bits on the GPU against fp64. */
#include <stdio.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_indices.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_indices(void);

static int run(const struct index_case *c, const graph *g, const struct run_mode *m)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    uint64_t seed = random_seed();
    void **want = run_reference(g, seed);
    opt.flags = m->flags;
    opt.fold = m->fold;
    double error = want ? run_on_gpu(g, seed, &opt, want) : -1;
    bool good = error >= 0 && error <= c->tolerance;
    random_args_free(g, want);
    return gpu_case(good, "indices", "%s, %s: error %.2e %s", c->name, m->name, error,
                    good ? "" : coda_error());
}

int gpu_indices(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "indices", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    for (int i = 0; i < index_case_count; i++) {
        if (few && !scale_takes_half(i)) continue;
        graph *g = graph_parse(index_cases[i].text);
        if (!g) failed += gpu_case(false, "indices", "%s: %s", index_cases[i].name, coda_error());
        for (int m = few; g && m < RUN_MODES; m += few ? RUN_MODES : 1)
            failed += run(&index_cases[i], g, &run_modes[m]);
        graph_free(g);
    }
    return failed;
}
