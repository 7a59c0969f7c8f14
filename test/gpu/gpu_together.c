/*
 * gpu_together.c -- products of several streams as one launch, on the GPU: against fp64; and with
 * CODA_BATCH_INVARIANT bit for bit what a launch for each of them leaves.
 */
#include <stdio.h>

#include "executable.h"
#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"
#include "util_scale.h"
#include "util_streams.h"

int gpu_together(void);

static coda_plan *plan_of(const graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_GPU;
    opt.flags = flags;
    return coda_compile(&p, (graph *)(uintptr_t)g, &opt) ? NULL : p;
}

/* Launches of several programs. */
static int joined(const coda_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->plan.programs && p->plan.together; i++) n += p->plan.together[i] > 1;
    return n;
}

/* The bits of two plans, of which the other one has a launch for each program: CODA_OVERLAP wants that. */
static bool same_bits(const graph *g, const coda_plan *p, const coda_plan *apart, void **host)
{
    struct run_buffers b = {0};
    bool good = run_upload(&b, g, p, host, true) && run_plan(&b, p) && run_same(&b, apart);
    run_release(&b);
    return good;
}

static int check_bits(const struct streams_case *c, const graph *g, uint64_t seed)
{
    coda_plan *p = plan_of(g, CODA_BATCH_INVARIANT),
              *apart = p ? plan_of(g, CODA_BATCH_INVARIANT | CODA_OVERLAP) : NULL;
    void **host = apart ? random_args(g, seed, false) : NULL;
    int n = p ? joined(p) : -1, others = apart ? joined(apart) : -1;
    bool good = host && same_bits(g, p, apart, host);
    int failed = gpu_case(good && n == c->joined && others == 0, "together, invariant",
                          "%s: %d and %d launches of several%s%s", c->name, n, others, good ? "" : ": ",
                          good ? "" : coda_error());
    if (host) random_args_free(g, host);
    coda_plan_free(p);
    coda_plan_free(apart);
    return failed;
}

static int check_numbers(const struct streams_case *c, const graph *g, uint64_t seed)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = plan_of(g, 0);
    void **want = run_reference(g, seed);
    double error = want ? run_on_gpu(g, seed, &opt, want) : -1;
    int n = p ? joined(p) : -1;
    bool good = error >= 0 && error <= 2e-2 && n == c->joined;
    int failed = gpu_case(good, "together", "%s: %d launches of several, error %.2e %s", c->name, n, error,
                          error < 0 ? coda_error() : "");
    if (want) random_args_free(g, want);
    coda_plan_free(p);
    return failed;
}

int gpu_together(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&dev, err)) return gpu_case(false, "together", "%s", err);
    for (int i = 0; i < streams_case_count; i++) {
        if (!gpu_mine(i) || (device_emulated(&dev) && !scale_takes_half(i))) continue;
        graph *g = streams_graph(&streams_cases[i]);
        if (!g) return failed + gpu_case(false, "together", "%s", coda_error());
        failed += check_numbers(&streams_cases[i], g, 1 + (uint64_t)i);
        failed += check_bits(&streams_cases[i], g, 1 + (uint64_t)i);
        graph_free(g);
    }
    return failed;
}
