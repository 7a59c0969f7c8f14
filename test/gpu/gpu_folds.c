/*
 * gpu_folds.c -- weights on the GPU are folded in place once: by no plan twice, read by no plan that was made
 * for others, and memory that was freed and allocated again is another, also at the same address.
 */
#include <stdio.h>
#include <string.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"

int gpu_folds(void);

enum { T = 32, D = 64, F = 128, ARGS = 4, WORK = 1 << 16 }; /* workspace enough for all plans */

static coda_graph *make(void)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){T, D});
    coda_value gain = coda_weight(g, "gain", CODA_BF16, 1, (int64_t[]){D});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){F, D});
    coda_output(g, "y", coda_matmul(g, coda_rms_norm(g, x, gain, 1e-5f), w));
    return g;
}

static coda_plan *compile(const coda_graph *g, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.fold = fold;
    return coda_compile(&p, g, &opt) == CODA_OK ? p : NULL;
}

struct memory {
    void *args[ARGS], *work, *prepared;
};

static bool take(struct memory *m, const coda_plan *p)
{
    bool ok = true;
    for (int i = 0; i < ARGS; i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        coda_plan_arg(p, i, &info);
        m->args[i] = device_alloc(info.bytes);
        ok = ok && m->args[i] && device_fill(m->args[i], 0x3c, info.bytes);
    }
    m->work = device_alloc(WORK);
    m->prepared = device_alloc(coda_plan_prepared(p) + 1);
    return ok && m->work && m->prepared;
}

static void give_back(struct memory *m)
{
    device_wait();
    for (int i = 0; i < ARGS; i++) device_free(m->args[i]);
    device_free(m->work);
    device_free(m->prepared);
}

static bool refused(coda_status status, const char *why)
{
    return status == CODA_E_INVALID && strstr(coda_error(), "(w)") && strstr(coda_error(), why);
}

static coda_status prepare(const coda_plan *p, const struct memory *m)
{
    return coda_prepare(p, m->args, m->prepared, m->work, NULL);
}

static coda_status run(const coda_plan *p, const struct memory *m)
{
    return coda_run(p, m->args, m->prepared, m->work, NULL);
}

int gpu_folds(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    struct memory m;
    if (!device_open(&device, err)) return gpu_case(false, "folds", "%s", err);
    coda_graph *g = make();
    coda_plan *p = compile(g, CODA_FOLD_IN_PLACE), *twin = compile(g, CODA_FOLD_IN_PLACE),
              *none = compile(g, CODA_FOLD_NONE);
    if (!p || !twin || !none || coda_plan_workspace(none) > WORK || !take(&m, p))
        return gpu_case(false, "folds", "%s", coda_error());
    int failed =
        gpu_case(refused(run(p, &m), "coda_prepare first"), "folds", "not folded yet: %s", coda_error());
    bool once = !prepare(p, &m) && !run(p, &m) && !run(twin, &m);
    failed += gpu_case(once, "folds", "two plans run on what one of them has folded");
    failed += gpu_case(refused(prepare(twin, &m), "already"), "folds", "a second time: %s", coda_error());
    failed += gpu_case(refused(run(none, &m), "was folded"), "folds", "by another plan: %s", coda_error());
    int again = 0, same = 0;
    for (int i = 0; i < 20; i++) { /* without coda_prepare_forget */
        void *before = m.args[2];
        give_back(&m);
        if (!take(&m, p)) return failed + gpu_case(false, "folds", "no memory");
        same += before == m.args[2];
        again += !run(none, &m) && !prepare(p, &m) && !run(p, &m);
    }
    failed +=
        gpu_case(again == 20, "folds", "allocated again, %d times of 20 at the same address: %d good %s",
                 same, again, again == 20 ? "" : coda_error());
    coda_prepare_forget(m.args[2], 1);
    failed += gpu_case(!run(none, &m) && !prepare(twin, &m), "folds", "forgotten, and folded again");
    give_back(&m);
    coda_plan_free(p), coda_plan_free(twin), coda_plan_free(none);
    coda_graph_free(g);
    return failed;
}
