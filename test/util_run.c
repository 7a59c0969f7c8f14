/* util_run.c -- compile a graph, run it with random arguments, compare with fp64. */
#include "util_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_device.h"

enum { FEW_COLUMNS = 4 };

void **run_reference(const graph *g, uint64_t seed)
{
    void **want = random_args(g, seed, true);
    if (coda_evaluate(g, want) == CODA_OK) return want;
    random_args_free(g, want);
    return NULL;
}

double run_error(const graph *g, int output, const void *got, const double *want)
{
    const struct output *o = &g->output[output];
    const struct type *t = &g->node[o->value].type;
    double diff = 0, norm = 0;
    int64_t n = type_elements(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i;
        for (int d = t->rank - 1; d >= 0; rest /= t->dim[d--]) at += rest % t->dim[d] * o->stride[d];
        double x = dtype_load(t->dtype, got, at), y = want[i];
        if ((isnan(x) && isnan(y)) || x == y) continue;
        if (!isfinite(x) || !isfinite(y)) return INFINITY;
        diff += (x - y) * (x - y);
        norm += y * y;
    }
    return n ? sqrt(diff) / (sqrt(norm) + 0.1 * sqrt((double)n)) : 0;
}

static double worst_error(const graph *g, void **got, void **want)
{
    int leaves = coda_graph_args(g) - g->outputs;
    double worst = 0;
    for (int i = 0; i < g->outputs; i++)
        worst = fmax(worst, run_error(g, i, got[leaves + i], want[leaves + i]));
    return worst;
}

static void *poisoned(size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 511) / 256 * 256);
    if (p) memset(p, 0xff, bytes);
    return p;
}

double run_on_cpu(const graph *g, uint64_t seed, const coda_compile_options *opt, void **want)
{
    coda_plan *p;
    if (coda_compile(&p, g, opt) != CODA_OK) return -1;
    void **args = random_args(g, seed, false);
    void *prepared = poisoned(coda_plan_prepared(p)), *work = poisoned(coda_plan_workspace(p));
    bool ok = coda_prepare(p, args, prepared, work, NULL) == CODA_OK &&
              coda_run(p, args, prepared, work, NULL) == CODA_OK;
    double error = ok ? worst_error(g, args, want) : -1;
    free(prepared);
    free(work);
    random_args_free(g, args);
    coda_plan_free(p);
    return error;
}

bool run_ill_conditioned(const graph *g)
{
    for (int i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        bool centres = n->op == OP_LAYER_NORM || n->op == OP_REDUCE;
        if (centres && type_columns(&g->node[n->in[0]].type) < FEW_COLUMNS) return true;
    }
    return false;
}

graph *run_load(const char *path)
{
    coda_graph *g = NULL;
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    if (f && text && fread(text, 1, (1 << 20) - 1, f)) coda_graph_parse(&g, text);
    else fail(CODA_E_IO, "%s cannot be read", path);
    if (f) fclose(f);
    free(text);
    return g;
}

/* ---- On the device ---- */

static size_t arg_bytes(const graph *g, int i)
{
    coda_arg_info info = {0};
    coda_graph_arg(g, i, &info);
    return info.bytes;
}

static void *device_poisoned(size_t bytes)
{
    void *p = device_alloc(bytes + 256);
    if (p) device_fill(p, 0xff, bytes + 256);
    return p;
}

bool run_upload(struct run_buffers *b, const graph *g, const coda_plan *p, void **host)
{
    *b = (struct run_buffers){.host = host, .n = coda_graph_args(g)};
    b->device = calloc((size_t)b->n + 1, sizeof *b->device);
    b->prepared = device_poisoned(coda_plan_prepared(p));
    b->workspace = device_poisoned(coda_plan_workspace(p));
    bool ok = b->device && b->prepared && b->workspace;
    for (int i = 0; ok && i < b->n; i++) {
        b->device[i] = device_poisoned(arg_bytes(g, i));
        ok = b->device[i] && device_upload(b->device[i], host[i], arg_bytes(g, i));
    }
    if (!ok) fail(CODA_E_DEVICE, "no device memory for %d arguments", b->n);
    return ok;
}

bool run_download(const struct run_buffers *b, const graph *g)
{
    if (!device_wait()) return fail(CODA_E_DEVICE, "the device's work failed"), false;
    for (int i = b->n - g->outputs; i < b->n; i++)
        if (!device_download(b->host[i], b->device[i], arg_bytes(g, i)))
            return fail(CODA_E_DEVICE, "no download"), false;
    return true;
}

void run_release(struct run_buffers *b)
{
    for (int i = 0; b->device && i < b->n; i++) device_free(b->device[i]);
    free(b->device);
    device_free(b->prepared);
    device_free(b->workspace);
}

/* A second run, into poisoned outputs, must leave the same bits. */
static bool repeats(const struct run_buffers *b, const graph *g, const coda_plan *p)
{
    bool same = true;
    for (int i = b->n - g->outputs; i < b->n; i++) device_fill(b->device[i], 0xff, arg_bytes(g, i));
    device_fill(b->workspace, 0x7f, coda_plan_workspace(p));
    if (coda_run(p, b->device, b->prepared, b->workspace, NULL) != CODA_OK || !device_wait()) return false;
    for (int i = b->n - g->outputs; i < b->n; i++) {
        void *again = malloc(arg_bytes(g, i) + 1);
        device_download(again, b->device[i], arg_bytes(g, i));
        same = same && memcmp(again, b->host[i], arg_bytes(g, i)) == 0;
        free(again);
    }
    return same;
}

double run_on_gpu(const graph *g, uint64_t seed, const coda_compile_options *opt, void **want)
{
    coda_plan *p;
    struct run_buffers b;
    double error = -1;
    if (coda_compile(&p, g, opt) != CODA_OK) return -1;
    void **host = random_args(g, seed, false);
    if (run_upload(&b, g, p, host) && coda_prepare(p, b.device, b.prepared, b.workspace, NULL) == CODA_OK &&
        coda_run(p, b.device, b.prepared, b.workspace, NULL) == CODA_OK && run_download(&b, g))
        error = repeats(&b, g, p) ? worst_error(g, host, want) : -2;
    run_release(&b);
    random_args_free(g, host);
    coda_plan_free(p);
    return error;
}
