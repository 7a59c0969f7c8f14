/*
 * gpu_range.c -- numbers of every size on the GPU: what test_range.c asks of the CPU device, of kernels. The
 * cases of one graph are its outputs, so that few kernels do for many of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "gpu_case.h"
#include "util_device.h"
#include "util_random.h"
#include "util_range.h"
#include "util_scale.h"
#include "util_run.h"

int gpu_range(void);

static bool run(coda_graph *g, void **arg, unsigned flags, coda_fold fold)
{
    coda_plan *p;
    struct run_buffers b;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.flags = flags, opt.fold = fold;
    if (coda_compile(&p, g, &opt) != CODA_OK) return false;
    bool good = run_upload(&b, g, p, arg, true) && run_prepare(&b, p) && run_plan(&b, p);
    run_release(&b);
    coda_plan_free(p);
    return good;
}

static int try_cases(const struct range_data *d, enum range_source source,
                     const struct range_case *const *cases, int count, coda_fold fold)
{
    static const char *const from[] = {"leaf", "product", "fp32"};
    char why[256] = "";
    struct range_graph r;
    range_build(&r, d, source, cases, count);
    bool ran = run(r.g, r.arg, 0, fold), good = ran && range_right(&r, d, source, why, sizeof why);
    range_free(&r);
    return gpu_case(good, "range", "%s%s, %s, from a %s%s: %s", cases[0]->name,
                    count > 1 ? " and others" : "", dtype_name(d->t), from[source], fold ? ", folded" : "",
                    ran ? why : coda_error());
}

/* Every statistic of one x; a norm of it; and products of norms, each alone. */
static int try_dtype(coda_dtype t, double gain, double weight, bool all)
{
    static struct range_data d;
    const struct range_case *rows[16];
    int failed = 0, n = 0;
    range_fill(&d, t, gain, weight, random_seed());
    for (int i = 0; i < range_case_count; i++)
        if (!strstr(range_cases[i].name, "product")) rows[n++] = &range_cases[i];
    failed += try_cases(&d, RANGE_LEAF, rows, n, CODA_FOLD_NONE);
    failed += try_cases(&d, RANGE_PRODUCT, rows, n, CODA_FOLD_NONE);
    for (int i = 0; i < range_case_count; i++) {
        const struct range_case *c = &range_cases[i];
        if (!strstr(c->name, "product") || (!all && strstr(c->name, "two"))) continue;
        if (scale_is_thinned() && !all && !scale_takes_half(i)) continue;
        enum range_source source = c->with_cast ? RANGE_F32 : RANGE_PRODUCT;
        failed += try_cases(&d, source, &c, 1, all ? CODA_FOLD_NONE : CODA_FOLD_COPY);
        if (all) failed += try_cases(&d, source, &c, 1, CODA_FOLD_COPY);
    }
    return failed;
}

static int attention(coda_dtype t)
{
    int failed = 0;
    coda_graph *g = range_attention(t);
    for (int i = 0; i < RANGE_SCORES; i++) {
        void *arg[4];
        char why[256] = "";
        if (t == CODA_F16 && i > 7) continue; /* no fp16 makes such scores */
        range_attention_args(t, i, arg);
        bool ran = run(g, arg, 0, CODA_FOLD_NONE),
             good = ran && range_attention_right(t, i, arg, why, sizeof why);
        failed += gpu_case(good, "range", "attention, %s: %s", dtype_name(t), ran ? why : coda_error());
        for (int a = 0; a < 4; a++) free(arg[a]);
    }
    coda_graph_free(g);
    return failed;
}

int gpu_range(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&dev, err)) return gpu_case(false, "range", "%s", err);
    bool all = !device_emulated(&dev);
    bool thin = scale_is_thinned() && !all, half = scale_takes_half(0);
    int failed = try_dtype(CODA_F16, 1, 0.05, all);
    if (!thin || half) failed += attention(CODA_BF16);
    if (!thin || !half) failed += attention(CODA_F32);
    if (!all) return failed;
    failed += attention(CODA_F16) + try_dtype(CODA_F16, 300, 1e-3, all) + try_dtype(CODA_F16, 1e-4, 100, all);
    return failed + try_dtype(CODA_BF16, 1, 0.05, all) + try_dtype(CODA_F32, 1, 0.05, all);
}
