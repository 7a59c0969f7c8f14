/*
 * gpu_unusual.c -- on the GPU against fp64: dimensions of 0, more of everything than one kernel has room for,
 * and models of equal layers, which share their kernels.
 */
#include <stdio.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"
#include "util_scale.h"
#include "util_unusual.h"

int gpu_unusual(void);

static int run(const graph *g, const char *name, int n, unsigned flags, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void **want = run_reference(g, 7);
    opt.flags = flags;
    opt.fold = fold;
    double error = want ? run_on_gpu(g, 7, &opt, want) : -1;
    bool good = error >= 0 && error < 1e-4;
    random_args_free(g, want);
    return gpu_case(good, "unusual", "%s of %d: error %.2e %s", name, n, error, good ? "" : coda_error());
}

/* The emulator compiles slowly: at each limit, one beyond. */
static int limits(bool emulated)
{
    int failed = 0;
    for (int i = 0; i < unusuals; i++) {
        const struct unusual *u = &unusual[i];
        if (!gpu_mine(i)) continue;
        if (emulated && (!u->light || !scale_takes_one_in(3, i))) continue;
        for (int k = emulated; k < (emulated ? 2 : 6) && u->most[k] && u->most[k] < 10000; k++) {
            graph *g = u->make(u->most[k]);
            failed += run(g, u->name, u->most[k], 0, CODA_FOLD_NONE);
            graph_free(g);
        }
    }
    return failed;
}

static int empties(bool emulated)
{
    const char *name;
    int failed = 0;
    graph *g;
    for (int i = 0; (g = unusual_empty(i, &name)); i++) {
        bool wanted =
            gpu_mine(i) && coda_graph_status(g) == CODA_OK && (!emulated || scale_takes_one_in(5, i));
        if (wanted) failed += run(g, name, i, i % 2 ? CODA_NO_FUSION : 0, CODA_FOLD_NONE);
        graph_free(g);
    }
    return failed;
}

static int equal_layers(const char *block, int layers)
{
    char path[64], name[64];
    snprintf(path, sizeof path, "examples/graphs/%s.coda", block);
    snprintf(name, sizeof name, "layers of %s", block);
    graph *one = run_load(path), *g = one ? unusual_layers(one, layers) : NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void **want = g ? run_reference(g, 3) : NULL;
    opt.flags = CODA_NO_FUSION;
    double unfused = want ? run_on_gpu(g, 3, &opt, want) : -1;
    int failed = want ? 0 : gpu_case(false, "unusual", "%d %s: %s", layers, name, coda_error());
    for (int fold = CODA_FOLD_NONE; want && fold <= CODA_FOLD_COPY; fold++) {
        if (scale_is_thinned() && !scale_takes_half(fold)) continue;
        opt.flags = 0;
        opt.fold = (coda_fold)fold;
        double error = run_on_gpu(g, 3, &opt, want);
        bool good = unfused >= 0 && error >= 0 && error <= 1.5 * unfused + 1e-3;
        failed += gpu_case(good, "unusual", "%d %s, fold %d: error %.2e (unfused %.2e) %s", layers, name,
                           fold, error, unfused, good ? "" : coda_error());
    }
    random_args_free(g, want);
    graph_free(g);
    graph_free(one);
    return failed;
}

int gpu_unusual(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&dev, err)) return gpu_case(false, "unusual", "%s", err);
    bool emulated = device_emulated(&dev);
    int failed = limits(emulated) + empties(emulated);
    if (emulated) return failed + equal_layers("bert_small", 2);
    if (gpu_mine(0)) failed += equal_layers("llama_small", 4);
    return gpu_mine(1) ? failed + equal_layers("bert_small", 4) : failed;
}
