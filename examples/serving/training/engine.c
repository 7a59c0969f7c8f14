/*
 * engine.c -- the graphs of a step, their plans, memory and runs.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "tensor.h"
#include "train_engine.h"

enum {
    APART = 64, /* bytes from one number to the next, so that each begins as arguments do */
    NUMBERS = 4,
    SUMS = 3,
    CHUNK_ELEMENTS = 1 << 27, /* of logits, at most: 268 MB of 16 bits */
    CHUNK_ROWS = 128          /* a chunk is a multiple of it: rows of a tile */
};

/* ---- Graphs ---- */

/* What a graph of losses is made of. */
struct losses {
    struct build b;
    const struct engine *e;
    bool learns;
    coda_value states, target; /* [all rows, columns], [all rows] */
    coda_value share;          /* the cotangent of the sum of losses ... */
    coda_value scale;          /* ... of which this is a factor, or CODA_NONE */
    coda_value sum;
    coda_value d_head; /* the gradient of the head; CODA_NONE: it is not learned */
};

static int64_t rows_of(const struct engine *e) { return e->rows * e->tokens; }

static int64_t chunk_of(const struct engine *e)
{
    int64_t most = CHUNK_ELEMENTS / e->config->vocabulary / CHUNK_ROWS * CHUNK_ROWS;
    if (e->chunk) most = e->chunk;
    else if (most < CHUNK_ROWS) most = CHUNK_ROWS;
    return most < rows_of(e) ? most : rows_of(e);
}

/* The states of all targets. */
static void append_states(struct losses *l)
{
    const struct engine *e = l->e;
    coda_graph *g = l->b.g;
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(e->rows, e->tokens));
    l->b.positions = coda_input(g, "positions", CODA_I32, DIMS(e->rows, e->tokens));
    coda_value target = coda_input(g, "target", CODA_I32, DIMS(e->rows, e->tokens));
    l->b.ranges = coda_input(g, "ranges", CODA_I32, DIMS(e->rows, e->tokens, 2));
    l->states = e->family->graph(&l->b, ids);
    l->target = coda_reshape(g, target, DIMS(rows_of(e)));
}

static coda_value plus(coda_graph *g, coda_value a, coda_value b) { return a.id ? coda_add(g, a, b) : b; }

/* The losses of some rows, and where all chunks are not one, at once what they add to the gradient of the
 * head, so that their logits are needed no longer: *d_states is the gradient of their states. */
static coda_value append_chunk(struct losses *l, coda_value states, coda_value target, coda_value *d_states)
{
    coda_graph *g = l->b.g;
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    o.ignore_index = NO_TARGET;
    o.reduction = CODA_REDUCE_SUM;
    /* A view of the head, as the states may depend on it, too: it may be the table of tokens. */
    coda_value view = coda_reshape(g, l->b.head, DIMS(l->e->config->vocabulary, l->e->config->hidden));
    coda_value loss = coda_cross_entropy(g, build_head(&l->b, states, view), target, &o), x[2], dx[2];
    l->sum = plus(g, l->sum, loss);
    if (!d_states) return loss;
    bool head = l->e->adapter == 0;
    x[0] = states, x[1] = view;
    coda_grad(g, &loss, &l->share, 1, x, 1 + head, dx, NULL);
    *d_states = dx[0];
    if (head) l->d_head = plus(g, l->d_head, dx[1]);
    return loss;
}

/* Chunk by chunk. The gradient of all states, in their shape. */
static coda_value append_chunks(struct losses *l)
{
    coda_graph *g = l->b.g;
    int64_t all = rows_of(l->e), some = chunk_of(l->e), columns = l->e->config->hidden;
    int n = (int)((all + some - 1) / some);
    coda_value *parts = calloc((size_t)n, sizeof *parts),
               flat = coda_reshape(g, l->states, DIMS(all, columns));
    if (!parts) return fault_set(l->b.fault, "out of memory"), l->b.failed = true, CODA_NONE;
    for (int i = 0; i < n; i++) {
        int64_t from = i * some, to = from + some < all ? from + some : all;
        coda_value states = coda_slice(g, flat, 0, from, to, 1);
        append_chunk(l, states, coda_slice(g, l->target, 0, from, to, 1), l->learns ? &parts[i] : NULL);
    }
    coda_value d = l->learns ? coda_concat(g, 0, parts, n) : CODA_NONE;
    free(parts);
    return l->learns ? coda_reshape(g, d, DIMS(l->e->rows, l->e->tokens, columns)) : CODA_NONE;
}

/* What becomes of a gradient: it is added to what is there, or takes its place. */
static void append_output(struct losses *l, const struct moved *one)
{
    char name[200];
    snprintf(name, sizeof name, "d.%s", one->w->name);
    (l->e->accumulates ? coda_output_add : coda_output)(l->b.g, name, one->gradient);
}

/* Gradients of all that is learned, from that of y, and if a step is one plan what they do to the weights. */
static bool append_gradients(struct losses *l, coda_value y, coda_value dy)
{
    struct build *b = &l->b;
    int n = b->weights->count, k = 0;
    coda_value *x = calloc(2 * (size_t)n + 1, sizeof *x), *dx = x + n;
    struct moved *all = calloc((size_t)n + 1, sizeof *all);
    bool good = x && all;
    for (int i = 0; good && i < n; i++)
        if (build_learns(b, &b->weights->all[i], b->weights->all[i].name)) {
            all[k].w = &b->weights->all[i];
            x[k++] = b->weights->all[i].value;
        }
    if (good) coda_grad(b->g, &y, &dy, 1, x, k, dx, NULL);
    n = 0;
    for (int i = 0; good && i < k; i++) {
        if (x[i].id == b->head.id && l->d_head.id) dx[i] = plus(b->g, dx[i], l->d_head);
        if (dx[i].id) all[n++] = (struct moved){all[i].w, dx[i]};
    }
    if (good && l->e->whole) optimizer_append(l->e, b->g, l->scale, all, n);
    else
        for (int i = 0; i < n; i++) append_output(l, &all[i]);
    free(all);
    free(x);
    return good || fault_set(b->fault, "out of memory");
}

/* What the sum of losses counts in the gradient: 1 / targets, and in fp16 times the scale. */
static void append_share(struct losses *l)
{
    coda_graph *g = l->b.g;
    l->share = coda_input(g, "share", CODA_F32, DIMS(1));
    if (l->e->dtype != CODA_F16) return;
    l->scale = (l->e->whole ? coda_state : coda_input)(g, "scale", CODA_F32, DIMS(1));
    l->share = coda_mul(g, l->share, l->scale);
}

static bool append_losses(struct losses *l)
{
    coda_graph *g = l->b.g;
    bool whole = chunk_of(l->e) == rows_of(l->e);
    append_states(l);
    if (l->b.failed) return false;
    if (l->learns) append_share(l);
    coda_value d = CODA_NONE;
    if (whole)
        append_chunk(l, coda_reshape(g, l->states, DIMS(rows_of(l->e), l->e->config->hidden)), l->target,
                     NULL);
    else d = append_chunks(l);
    coda_output_add(g, "loss", l->sum);
    if (l->b.failed || !l->learns) return !l->b.failed;
    return whole ? append_gradients(l, l->sum, l->share) : append_gradients(l, l->states, d);
}

/* `weights` gets what it has. */
static coda_graph *loss_graph(const struct engine *e, bool learns, struct weights *weights, struct fault *f)
{
    struct losses l = {.e = e, .learns = learns};
    l.b = (struct build){.g = coda_graph_new(),
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
                         .headless = true,
                         .updates = learns && e->whole,
                         .adapter = e->adapter};
    if (!l.b.g) return fault_set(f, "out of memory"), NULL;
    bool good = append_losses(&l);
    if (good && coda_graph_status(l.b.g) != CODA_OK) good = fault_set(f, "%s", coda_error());
    if (good && build_done(&l.b)) return l.b.g;
    coda_graph_free(l.b.g);
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
    const char *const numbers[] = {"share", "rate", "unbias_m", "unbias_v"};
    const char *const sums[] = {"loss", "norm_squared", "scale_used"};
    size_t n = (size_t)(rows_of(e) + APART - 1) / APART * APART;
    for (size_t i = 0; i < 4; i++)
        if (!strcmp(info->name, inputs[i])) return e->inputs + i * n * sizeof(int32_t);
    for (size_t i = 0; i < NUMBERS; i++)
        if (!strcmp(info->name, numbers[i])) return e->numbers + i * APART;
    for (size_t i = 0; i < SUMS; i++)
        if (!strcmp(info->name, sums[i])) return e->sums + i * APART;
    if (!strcmp(info->name, "scale")) return e->params.scale;
    if (!strcmp(info->name, "scale_steps")) return e->params.scale + SCALE_STEPS;
    if (!strcmp(info->name, "grad")) return e->params.g;
    void *at = parameters_leaf(&e->params, info->name);
    if (!at) at = parameters_gradient(&e->params, info->name);
    if (!at) at = parameters_state(&e->params, info->name);
    return at ? at : flat(e, info->name);
}

/* ---- Plans ---- */

static bool compile(struct engine *e, enum plan_of which, coda_graph *g, struct fault *f)
{
    coda_compile_options o = device_target(e->device);
    if (!g) return false;
    bool good = coda_compile(&e->program[which].plan, g, &o) == CODA_OK || fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    return good;
}

static bool ready(struct engine *e, struct program *p, struct fault *f)
{
    p->workspace = e->workspace;
    p->args = calloc((size_t)coda_plan_args(p->plan) + 1, sizeof *p->args);
    if (!p->args) return fault_set(f, "out of memory");
    return arguments_bind(p->plan, p->args, memory_of, e, f) && queue_program(&e->queue, p, f);
}

static bool allocate(struct engine *e, struct fault *f)
{
    size_t most = 0, n = 5 * ((size_t)(rows_of(e) + APART - 1) / APART * APART) * sizeof(int32_t);
    for (int i = 0; i < PLANS; i++) {
        size_t bytes = e->program[i].plan ? coda_plan_workspace(e->program[i].plan) : 0;
        most = bytes > most ? bytes : most;
    }
    e->inputs = device_alloc(e->device, n);
    e->numbers = device_alloc(e->device, NUMBERS * APART);
    e->sums = device_alloc(e->device, SUMS * APART);
    e->workspace = device_alloc(e->device, most);
    if (!e->inputs || !e->numbers || !e->sums || !e->workspace)
        return fault_set(f, "there is no memory for %zu bytes of scratch on %s", most,
                         device_name(e->device));
    return queue_open(&e->queue, e->device, n > NUMBERS * APART ? n : NUMBERS * APART, SUMS * APART, f);
}

static void count_flops(struct engine *e)
{
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    if (coda_plan_stats_get(e->program[PLAN_LEARN].plan, &stats) == CODA_OK) e->flops = stats.flops;
}

/* The scale of the loss at first, and the steps that were good with it. */
static bool write_scale(struct engine *e, struct fault *f)
{
    float scale = (float)e->how.scale;
    return !e->params.scale || device_write(e->device, e->params.scale, &scale, sizeof scale) ||
           fault_set(f, "the scale of the loss cannot be copied to %s", device_name(e->device));
}

bool engine_open(struct engine *e, struct fault *f)
{
    struct weights learned = {0}, judged = {0};
    coda_graph *g = loss_graph(e, true, &learned, f);
    const struct parameters_how how = {e->how.muon, e->adapter != 0, e->only_plan, e->whole};
    bool good = g && parameters_open(&e->params, &learned, e->device, how, f);
    weights_free(&learned);
    if (!good) coda_graph_free(g);
    good =
        good && compile(e, PLAN_LEARN, g, f) && compile(e, PLAN_JUDGE, loss_graph(e, false, &judged, f), f);
    weights_free(&judged);
    good = good && (e->whole || compile(e, PLAN_IMPROVE, optimizer_graph(e, f), f));
    if (good) count_flops(e);
    if (e->only_plan || !good) return good;
    good = allocate(e, f) && write_scale(e, f);
    for (int i = 0; good && i < PLANS; i++) good = !e->program[i].plan || ready(e, &e->program[i], f);
    return good;
}

void engine_close(struct engine *e)
{
    if (!e->device) return;
    if (e->queue.device) queue_wait(&e->queue, &(struct fault){{0}});
    for (int i = 0; i < PLANS; i++) queue_program_free(&e->queue, &e->program[i]);
    queue_close(&e->queue);
    char *memory[] = {e->inputs, e->numbers, e->sums, e->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) device_free(e->device, memory[i]);
    parameters_close(&e->params);
}

/* ---- Runs ---- */

static bool run_batch(struct engine *e, enum plan_of which, const struct batch *b, struct fault *f)
{
    return queue_upload(&e->queue, e->inputs, b->ids, b->bytes, f) &&
           queue_run(&e->queue, &e->program[which], f);
}

bool engine_begin(struct engine *e, int64_t targets, const struct rates *r, struct fault *f)
{
    char numbers[NUMBERS * APART] = {0};
    double share = targets ? 1 / (double)targets : 0;
    const float values[NUMBERS] = {(float)share, r->rate, r->unbias_m, r->unbias_v};
    for (int i = 0; i < NUMBERS; i++) memcpy(numbers + i * APART, &values[i], sizeof *values);
    e->share[e->begun++ % DOWNLOADS] = share;
    size_t bytes = e->accumulates ? (size_t)e->params.count * sizeof(float) : 0;
    return queue_upload(&e->queue, e->numbers, numbers, sizeof numbers, f) &&
           queue_clear(&e->queue, e->sums, SUMS * APART, f) && queue_clear(&e->queue, e->params.g, bytes, f);
}

bool engine_learn(struct engine *e, const struct batch *b, struct fault *f)
{
    return run_batch(e, PLAN_LEARN, b, f);
}

bool engine_improve(struct engine *e, struct fault *f)
{
    return (e->whole || queue_run(&e->queue, &e->program[PLAN_IMPROVE], f)) &&
           queue_download(&e->queue, e->sums, SUMS * APART, f);
}

static double number_at(const char *numbers, int i)
{
    float x;
    memcpy(&x, numbers + i * APART, sizeof x);
    return (double)x;
}

bool engine_result(struct engine *e, struct result *r, struct fault *f)
{
    const char *sums = queue_downloaded(&e->queue, f);
    if (!sums) return false;
    *r = (struct result){number_at(sums, 0) * e->share[e->taken++ % DOWNLOADS], sqrt(number_at(sums, 1)),
                         number_at(sums, 2)};
    return true;
}

bool engine_judge(struct engine *e, const struct batch *b, double *sum, struct fault *f)
{
    if (!queue_clear(&e->queue, e->sums, SUMS * APART, f) || !run_batch(e, PLAN_JUDGE, b, f) ||
        !queue_download(&e->queue, e->sums, SUMS * APART, f))
        return false;
    const char *sums = queue_downloaded(&e->queue, f);
    if (sums) *sum += number_at(sums, 0);
    return sums != NULL;
}
