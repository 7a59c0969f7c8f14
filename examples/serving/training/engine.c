/*
 * engine.c -- the graphs of a step, their plans, memory and runs.
 */
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "tensor.h"
#include "train_engine.h"

enum { SUMS = 64 /* bytes between the two sums, so that each begins as arguments do */ };

/* ---- Graphs ---- */

/* The sum of the losses of a run's targets. */
static coda_value append_loss(struct build *b, const struct engine *e)
{
    coda_graph *g = b->g;
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    o.ignore_index = NO_TARGET;
    o.reduction = CODA_REDUCE_SUM;
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(e->rows, e->tokens));
    b->positions = coda_input(g, "positions", CODA_I32, DIMS(e->rows, e->tokens));
    coda_value target = coda_input(g, "target", CODA_I32, DIMS(e->rows, e->tokens));
    b->ranges = coda_input(g, "ranges", CODA_I32, DIMS(e->rows, e->tokens, 2));
    coda_value logits = e->family->graph(b, ids);
    return b->failed ? CODA_NONE : coda_cross_entropy(g, logits, target, &o);
}

static bool is_learned(const struct build *b, const struct weight *w)
{
    return w->stored_count && (!b->adapter || strstr(w->name, ".adapter."));
}

/* Gradients of all that is learned, each added to what is there. */
static bool append_gradients(struct build *b, coda_value loss)
{
    coda_graph *g = b->g;
    int n = b->weights->count, k = 0;
    coda_value *x = calloc(2 * (size_t)n + 1, sizeof *x), *dx = x + n;
    if (!x) return fault_set(b->fault, "out of memory");
    coda_value share = coda_reshape(g, coda_scalar(g, "share", CODA_F32), DIMS(1));
    for (int i = 0; i < n; i++)
        if (is_learned(b, &b->weights->all[i])) x[k++] = b->weights->all[i].value;
    coda_grad(g, &loss, &share, 1, x, k, dx, NULL);
    for (int i = k = 0; i < n; i++) {
        char name[200];
        if (!is_learned(b, &b->weights->all[i])) continue;
        snprintf(name, sizeof name, "d.%s", b->weights->all[i].name);
        if (dx[k].id) coda_output_add(g, name, dx[k]);
        k++;
    }
    free(x);
    return true;
}

/* `weights` gets what it has. */
static coda_graph *loss_graph(const struct engine *e, bool learns, struct weights *weights, struct fault *f)
{
    struct build b = {.g = coda_graph_new(),
                      .c = e->config,
                      .from = e->from,
                      .weights = weights,
                      .fault = f,
                      .dtype = e->dtype,
                      .context = (int)e->tokens,
                      .rows = e->tokens,
                      .sentences = e->rows,
                      .every_row = true,
                      .packed = true,
                      .adapter = e->adapter};
    if (!b.g) return fault_set(f, "out of memory"), NULL;
    coda_value loss = append_loss(&b, e);
    coda_output_add(b.g, "loss", loss);
    bool good = !b.failed && (!learns || append_gradients(&b, loss));
    if (good && coda_graph_status(b.g) != CODA_OK) good = fault_set(f, "%s", coda_error());
    if (good && build_done(&b)) return b.g;
    coda_graph_free(b.g);
    return NULL;
}

/* ---- Memory ---- */

/* An argument of the optimiser: "GROUP.p", of the group's part of the memory, or a number. */
static void *flat(struct engine *e, const char *name)
{
    static const char *const groups[] = {"vector.", "table.", "muon."};
    struct parameters *p = &e->params;
    const char *dot = strrchr(name, '.');
    int64_t first = -1;
    for (int i = 0; i < GROUP_FROZEN; i++)
        if (!strncmp(name, groups[i], strlen(groups[i]))) first = p->begin[i];
    if (first < 0 || !dot) return NULL;
    const char *at = strchr(name, '.') + 1; /* "p", or of a matrix "NAME.p" */
    if (at <= dot) {
        char whole[200];
        snprintf(whole, sizeof whole, "%.*s", (int)(dot - at), at);
        for (int i = 0; i < p->n; i++)
            for (int k = 0, rows = 0; k < p->all[i].w->stored_count; rows += (int)p->all[i].w->rows[k++])
                if (!strcmp(p->all[i].w->stored[k], whole))
                    first = p->all[i].first + rows * (int64_t)p->all[i].w->columns;
    }
    switch (dot[1]) {
    case 'g': return p->g + first * 4;
    case 'p': return p->p + first * 4;
    case 'm': return p->m + first * 4;
    case 'v': return p->v + first * 4;
    case 'w': return p->w + first * 2;
    }
    return NULL;
}

static void *memory_of(void *context, const coda_arg_info *info)
{
    struct engine *e = context;
    const char *const inputs[] = {"ids", "positions", "target", "ranges"};
    size_t n = (size_t)(e->rows * e->tokens + SUMS - 1) / SUMS * SUMS;
    for (size_t i = 0; i < 4; i++)
        if (!strcmp(info->name, inputs[i])) return e->inputs + i * n * sizeof(int32_t);
    if (!strcmp(info->name, "loss")) return e->sums;
    if (!strcmp(info->name, "norm_squared")) return e->sums + SUMS;
    if (!strcmp(info->name, "share")) return &e->share;
    if (!strcmp(info->name, "rate")) return &e->rates.rate;
    if (!strcmp(info->name, "unbias_m")) return &e->rates.unbias_m;
    if (!strcmp(info->name, "unbias_v")) return &e->rates.unbias_v;
    if (!strcmp(info->name, "grad")) return e->params.g;
    if (info->kind == CODA_ARG_WEIGHT) return parameters_leaf(&e->params, info->name);
    void *gradient = parameters_gradient(&e->params, info->name);
    return gradient ? gradient : flat(e, info->name);
}

/* ---- Plans ---- */

static bool compile(struct engine *e, enum plan_of which, coda_graph *g, struct fault *f)
{
    coda_compile_options o = device_target(e->device);
    if (!g) return false;
    bool good = coda_compile(&e->plan[which], g, &o) == CODA_OK || fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    return good;
}

static bool bind(struct engine *e, enum plan_of which, struct fault *f)
{
    e->args[which] = calloc((size_t)coda_plan_args(e->plan[which]) + 1, sizeof *e->args[which]);
    if (!e->args[which]) return fault_set(f, "out of memory");
    return arguments_bind(e->plan[which], e->args[which], memory_of, e, f);
}

static bool allocate(struct engine *e, struct fault *f)
{
    size_t most = 0, n = (size_t)(e->rows * e->tokens + SUMS - 1) / SUMS * SUMS;
    for (int i = 0; i < PLANS; i++) {
        size_t bytes = coda_plan_workspace(e->plan[i]);
        most = bytes > most ? bytes : most;
    }
    e->inputs = device_alloc(e->device, 5 * n * sizeof(int32_t));
    e->sums = device_alloc(e->device, 2 * SUMS);
    e->workspace = device_alloc(e->device, most);
    if (!e->inputs || !e->sums || !e->workspace)
        return fault_set(f, "there is no memory for %zu bytes of scratch on %s", most,
                         device_name(e->device));
    return true;
}

static void count_flops(struct engine *e)
{
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    if (coda_plan_stats_get(e->plan[PLAN_LEARN], &stats) == CODA_OK) e->flops = stats.flops;
}

bool engine_open(struct engine *e, struct fault *f)
{
    struct weights learned = {0}, judged = {0};
    coda_graph *g = loss_graph(e, true, &learned, f);
    const struct parameters_how how = {e->how.muon, e->adapter != 0, e->only_plan};
    bool good = g && parameters_open(&e->params, &learned, e->device, how, f);
    weights_free(&learned);
    if (!good) coda_graph_free(g);
    good =
        good && compile(e, PLAN_LEARN, g, f) && compile(e, PLAN_JUDGE, loss_graph(e, false, &judged, f), f);
    weights_free(&judged);
    good = good && compile(e, PLAN_IMPROVE, optimizer_graph(e, f), f);
    if (good) count_flops(e);
    if (e->only_plan || !good) return good;
    good = allocate(e, f);
    for (int i = 0; good && i < PLANS; i++) good = bind(e, (enum plan_of)i, f);
    return good;
}

void engine_close(struct engine *e)
{
    if (!e->device) return;
    for (int i = 0; i < PLANS; i++) {
        coda_plan_free(e->plan[i]);
        free(e->args[i]);
    }
    device_free(e->device, e->inputs);
    device_free(e->device, e->sums);
    device_free(e->device, e->workspace);
    parameters_close(&e->params);
}

/* ---- Runs ---- */

static bool run(struct engine *e, enum plan_of which, struct fault *f)
{
    return coda_run(e->plan[which], e->args[which], NULL, e->workspace, NULL) == CODA_OK ||
           fault_set(f, "%s", coda_error());
}

static bool run_batch(struct engine *e, enum plan_of which, const struct batch *b, struct fault *f)
{
    if (!device_write(e->device, e->inputs, b->ids, b->bytes))
        return fault_set(f, "tokens cannot be copied to %s", device_name(e->device));
    return run(e, which, f);
}

static bool clear_sums(struct engine *e, struct fault *f)
{
    return device_clear(e->device, e->sums, 2 * SUMS) ||
           fault_set(f, "memory on %s cannot be cleared", device_name(e->device));
}

static bool read_sums(struct engine *e, float sums[2], struct fault *f)
{
    return (device_read(e->device, &sums[0], e->sums, sizeof *sums) &&
            device_read(e->device, &sums[1], e->sums + SUMS, sizeof *sums)) ||
           fault_set(f, "the loss cannot be copied from %s", device_name(e->device));
}

bool engine_begin(struct engine *e, int64_t targets, struct fault *f)
{
    e->share = targets ? 1 / (float)targets : 0;
    size_t bytes = (size_t)e->params.count * sizeof(float);
    return (device_clear(e->device, e->params.g, bytes) && clear_sums(e, f)) ||
           fault_set(f, "gradients on %s cannot be cleared", device_name(e->device));
}

bool engine_learn(struct engine *e, const struct batch *b, struct fault *f)
{
    return run_batch(e, PLAN_LEARN, b, f);
}

bool engine_improve(struct engine *e, const struct rates *r, double *loss, double *norm, struct fault *f)
{
    float sums[2];
    e->rates = *r;
    if (!run(e, PLAN_IMPROVE, f) || !read_sums(e, sums, f)) return false;
    *loss = (double)sums[0] * (double)e->share;
    *norm = sqrt((double)sums[1]);
    return true;
}

bool engine_judge(struct engine *e, const struct batch *b, double *sum, struct fault *f)
{
    float sums[2];
    if (!clear_sums(e, f) || !run_batch(e, PLAN_JUDGE, b, f) || !read_sums(e, sums, f)) return false;
    *sum += (double)sums[0];
    return true;
}
