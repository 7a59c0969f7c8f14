/* gpu_sample.c -- columns drawn on the GPU against the formula. */
#include <stdio.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_scale.h"
#include "util_sample.h"

int gpu_sample(void);

/* Results that are wrong; -1 with the message set. */
static int64_t run(const struct sample_case *c, const graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct run_buffers b;
    coda_plan *p;
    opt.flags = flags;
    if (coda_compile(&p, g, &opt) != CODA_OK) return -1;
    void **args = sample_args(c, g, 13, false);
    bool ran = run_upload(&b, g, p, args, true) && run_prepare(&b, p) && run_plan(&b, p);
    int64_t wrong = ran ? sample_differences(c, g, args, false) : -1;
    run_release(&b);
    random_args_free(g, args);
    coda_plan_free(p);
    return wrong;
}

int gpu_sample(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "sample", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    for (int i = 0; i < 2 * sample_case_count; i++) {
        const struct sample_case *c = &sample_cases[i / 2];
        bool plain = i % 2;
        if (few && !(scale_takes_one_in(3, i) && scale_takes_half(i / 3))) continue;
        graph *g = sample_graph(c);
        int64_t wrong = run(c, g, plain ? CODA_NO_FUSION : 0);
        failed += gpu_case(wrong == 0, "sample", "%s%s: %lld results differ %s", c->name,
                           plain ? ", unfused" : "", (long long)wrong, wrong < 0 ? coda_error() : "");
        graph_free(g);
    }
    return failed;
}
