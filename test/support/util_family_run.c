/* util_family_run.c -- runs a family in every mode and judges it. */
#include "util_family_run.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_device.h"
#include "util_run.h"

/* ---- Judging ---- */

/* How far one output is from fp64: of all of it, and of the worst row, each by its own norm. */
struct distance {
    double all, row;
};

/* The element of a dense or strided output. */
static double element(const graph *g, int output, const void *base, int64_t i)
{
    const struct output *o = &g->output[output];
    const struct type *t = &g->node[o->value].type;
    int64_t at = 0;
    for (int d = t->rank - 1; d >= 0; i /= t->dim[d--]) at += i % t->dim[d] * o->stride[d];
    return dtype_load(t->dtype, base, at);
}

enum { FEW = 8 }; /* columns: the norm of a row of fewer may be all but 0 by chance */

static double largest(coda_dtype t) { return t == CODA_F16 ? 65504 : FLT_MAX / 2; }

/* Elements that fp64 or the unfused plan leaves without a finite value are not compared. */
static struct distance measure(const graph *g, int output, const void *got, const void *unfused,
                               const double *want)
{
    const struct type *t = &g->node[g->output[output].value].type;
    int64_t n = type_elements(t), cols = MAX(type_columns(t), 1);
    struct distance d = {0, 0};
    double diff = 0, norm = 0;
    for (int64_t row = 0; row < n / cols; row++) {
        double row_diff = 0, row_norm = 0;
        for (int64_t i = row * cols; i < (row + 1) * cols; i++) {
            if (!(fabs(want[i]) <= largest(t->dtype)) || !isfinite(element(g, output, unfused, i))) continue;
            double x = element(g, output, got, i), off = isfinite(x) ? x - want[i] : INFINITY;
            row_diff = hypot(row_diff, off);
            row_norm = hypot(row_norm, want[i]);
        }
        diff = hypot(diff, row_diff);
        norm = hypot(norm, row_norm);
        if (row_diff > 0 && cols >= FEW) d.row = fmax(d.row, row_diff / fmax(row_norm, 1e-37));
    }
    if (diff > 0) d.all = diff / fmax(norm, 1e-37);
    return d;
}

static double tolerance(const graph *g)
{
    double most = 1e-4;
    for (int i = 0; i < g->nodes; i++) {
        coda_dtype t = g->node[i].type.dtype;
        if (op_is_leaf(g->node[i].op)) most = fmax(most, t == CODA_BF16 ? 4e-2 : t == CODA_F16 ? 1e-2 : 0);
    }
    return most;
}

/* ---- Running ---- */

/* In 16 bits a few columns less their mean may be all but rounding: such a row, and what comes of it, is
 * judged with all the others only. */
static bool judge(const struct family *f, void **got, void **unfused, void **want, char *why, size_t size)
{
    const graph *g = f->g;
    double allowed = device_dry() ? INFINITY : tolerance(g);
    bool no_rows = allowed >= 1e-2 && run_ill_conditioned(g);
    for (int i = 0; i < g->outputs; i++) {
        int at = f->leaves + i;
        struct distance mine = measure(g, i, got[at], unfused[at], want[at]);
        struct distance plain = measure(g, i, unfused[at], unfused[at], want[at]);
        if (mine.all <= fmax(allowed, 2 * plain.all) &&
            (no_rows || mine.row <= fmax(4 * allowed, 3 * plain.row)))
            continue;
        snprintf(why, size, "output %s: error %.2e, of a row %.2e; unfused %.2e, %.2e; allowed %.0e",
                 g->output[i].name, mine.all, mine.row, plain.all, plain.row, allowed);
        return false;
    }
    return true;
}

static bool failed(char *why, size_t size, const char *what)
{
    snprintf(why, size, "%s: %s", what, coda_error());
    return false;
}

/* `args` gets the outputs. */
static bool run_mode(const struct family *f, const coda_compile_options *opt, const struct run_mode *m,
                     void **args, char *why, size_t size)
{
    coda_compile_options own = *opt;
    struct run_buffers b;
    coda_plan *p;
    own.flags |= m->flags;
    own.fold = m->fold;
    if (coda_compile(&p, f->g, &own) != CODA_OK) return failed(why, size, m->name);
    bool good = run_upload(&b, f->g, p, args, opt->device == CODA_DEVICE_GPU) && run_prepare(&b, p) &&
                run_plan(&b, p);
    if (!good) failed(why, size, m->name);
    run_release(&b);
    coda_plan_free(p);
    return good;
}

bool family_good(const struct family *f, const coda_compile_options *opt, char *why, size_t size)
{
    void **want = family_args(f, f->seed, true), **unfused = family_args(f, f->seed, false);
    bool good = device_dry() || coda_evaluate(f->g, want) == CODA_OK || failed(why, size, "evaluate");
    if (good) good = run_mode(f, opt, &run_modes[0], unfused, why, size);
    for (int i = 0; good && i < RUN_MODES; i++) {
        void **got = family_args(f, f->seed, false);
        char reason[400];
        good = run_mode(f, opt, &run_modes[i], got, reason, sizeof reason) &&
               judge(f, got, unfused, want, reason, sizeof reason);
        if (!good) snprintf(why, size, "%s: %s", run_modes[i].name, reason);
        random_args_free(f->g, got);
    }
    random_args_free(f->g, unfused);
    random_args_free(f->g, want);
    return good;
}
