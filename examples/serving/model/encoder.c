/*
 * encoder.c -- sentences in batches: tokens go in, one vector for each sentence comes out. Sentences of like
 * lengths run together, whatever their order, so that little is padding.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

enum {
    STEP = 8,  /* tokens of a batch's sentences are rounded up to a multiple of this */
    SHORT = 64 /* tokens of a sentence for which nothing is folded */
};

/* A sentence's states times its shares, added up: 1 / n of each of n tokens is their mean. */
static coda_value pooled(struct build *b, coda_value x, coda_value shares)
{
    coda_graph *g = b->g;
    coda_value weighed =
        coda_mul(g, coda_cast(g, x, CODA_F32), coda_reshape(g, shares, DIMS(b->sentences, b->rows, 1)));
    return coda_reshape(g, coda_reduce_columns(g, "sum", weighed), DIMS(b->sentences, b->c->hidden));
}

/* The layers behind the pooling. */
static coda_value dense(struct build *b, coda_value x, const struct modules *m)
{
    for (int i = 0; i < m->dense_count; i++) {
        const struct dense *d = &m->dense[i];
        snprintf(b->prefix, sizeof b->prefix, "modules.%s.", d->path);
        x = build_linear(b, coda_cast(b->g, x, b->dtype), PART({"linear", d->out}), d->in, d->bias);
        x = d->tanh ? coda_tanh(b->g, x) : x;
    }
    return coda_cast(b->g, x, CODA_F32);
}

/* RoPE wants a position for each row, so that it can run in the product that makes queries and keys. Rows of
 * a learned table are added to all sentences alike. */
static bool rotates(const struct config *c) { return c->rope.rotary > 0; }

coda_graph *encoder_graph(struct model *m, struct weights *weights, int sentences, int rows, struct fault *f)
{
    coda_graph *g = coda_graph_new();
    if (!g) return fault_set(f, "out of memory"), NULL;
    struct build b = {.g = g,
                      .c = &m->config,
                      .from = m->opt.random ? NULL : &m->files,
                      .weights = weights,
                      .fault = f,
                      .dtype = m->opt.dtype};
    b.sentences = coda_symbol(g, "B", 1, sentences, 1);
    b.rows = coda_symbol(g, "T", STEP, (rows + STEP - 1) / STEP * STEP, STEP);
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(b.sentences, b.rows));
    b.positions = rotates(&m->config) ? coda_input(g, "positions", CODA_I32, DIMS(b.sentences, b.rows))
                                      : coda_input(g, "positions", CODA_I32, DIMS(b.rows));
    b.lengths = coda_input(g, "lengths", CODA_I32, DIMS(b.sentences));
    coda_value shares = coda_input(g, "shares", CODA_F32, DIMS(b.sentences, b.rows));
    coda_value x = pooled(&b, m->family->graph(&b, ids), shares);
    coda_output(g, "vectors", dense(&b, x, &m->modules));
    if (!b.failed && coda_graph_status(g) == CODA_OK && build_done(&b)) return g;
    if (!b.failed) fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    return NULL;
}

/* Where rows are few, each product of a plan that folds would finish the statistics of all of them again,
 * which takes longer than the norms. So a short sentence has a plan of its own, over the weights as they are,
 * made when the first one comes. NULL, and a fault, if it cannot be made. */
static const coda_plan *short_plan(struct model *m, struct fault *f)
{
    struct weights weights = {0}; /* the same names */
    coda_compile_options o = device_target(&m->device);
    if (m->short_plan) return m->short_plan;
    coda_graph *g = encoder_graph(m, &weights, 1, SHORT, f);
    if (g && coda_compile(&m->short_plan, g, &o) != CODA_OK) fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    weights_free(&weights);
    return m->short_plan;
}

static const coda_plan *plan_of(struct model *m, int sentences, int rows, struct fault *f)
{
    bool is_short = sentences == 1 && rows <= SHORT && m->opt.rows >= SHORT;
    const coda_plan *p = is_short && model_fold(m) != CODA_FOLD_NONE ? short_plan(m, f) : m->plan;
    bool fits = !p || coda_plan_workspace(p) <= coda_plan_workspace(m->plan);
    return fits ? p : m->plan;
}

struct sentence {
    const int32_t *ids;
    int count, index; /* of its vector */
};

static int by_count(const void *a, const void *b)
{
    const struct sentence *x = a, *y = b;
    return x->count != y->count ? x->count - y->count : x->index - y->index;
}

int model_longest(const struct model *m)
{
    int most = m->opt.rows < m->config.positions ? m->opt.rows : m->config.positions;
    return m->modules.limit && m->modules.limit < most ? m->modules.limit : most;
}

int model_width(const struct model *m)
{
    const struct modules *all = &m->modules;
    return all->dense_count ? all->dense[all->dense_count - 1].out : m->config.hidden;
}

static bool check(const struct model *m, const struct sentence *s, struct fault *f)
{
    int most = model_longest(m);
    if (s->count < 1 || s->count > most)
        return fault_set(f, "sentence %d has %d tokens; 1 to %d are possible", s->index, s->count, most);
    for (int t = 0; t < s->count; t++)
        if (s->ids[t] < 0 || s->ids[t] >= m->config.vocabulary)
            return fault_set(f, "token %d is not in the vocabulary of %d", s->ids[t], m->config.vocabulary);
    return true;
}

/* Of token t. */
static float share(enum pooling how, int t, int count)
{
    if (how == POOLING_FIRST) return t == 0;
    if (how == POOLING_LAST) return t == count - 1;
    return t < count ? 1.0f / (float)count : 0;
}

static void fill(struct model *m, const struct sentence *all, int sentences, int rows, enum pooling how)
{
    int32_t *to = model_input(m, "ids"), *positions = model_input(m, "positions");
    int32_t *lengths = model_input(m, "lengths");
    float *shares = model_input(m, "shares");
    for (int i = 0; i < (rotates(&m->config) ? sentences : 1); i++)
        for (int t = 0; t < rows; t++) *positions++ = t < m->config.positions ? t : 0;
    for (int i = 0; i < sentences; i++, to += rows, shares += rows) {
        int count = lengths[i] = all[i].count;
        for (int t = 0; t < rows; t++) {
            to[t] = t < count ? all[i].ids[t] : 0;
            shares[t] = share(how, t, count);
        }
    }
}

static void normalize(float *x, int n)
{
    double squares = 0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * x[i];
    for (int i = 0; i < n; i++) x[i] = (float)(x[i] / fmax(sqrt(squares), 1e-12));
}

/* A batch, whose last sentence is the longest. */
static bool embed_some(struct model *m, const struct sentence *all, int n, enum pooling how, float *to,
                       struct fault *f)
{
    int width = model_width(m);
    size_t bytes = (size_t)width * sizeof *to;
    int rows = (all[n - 1].count + STEP - 1) / STEP * STEP;
    fill(m, all, n, rows, how);
    const coda_plan *p = plan_of(m, n, rows, f);
    if (!p || !model_run_by(m, p, (int64_t[]){n, rows}, 2, f)) return false;
    for (int i = 0; i < n; i++) {
        float *vector = to + (size_t)all[i].index * (size_t)width;
        if (!model_output(m, "vectors", vector, (size_t)i * bytes, bytes, f)) return false;
        if (m->modules.normalize) normalize(vector, width);
    }
    return true;
}

bool model_embed(struct model *m, const int32_t *const *ids, const int *counts, int sentences,
                 enum pooling how, float *to, struct fault *f)
{
    struct sentence *all = calloc((size_t)sentences + 1, sizeof *all);
    bool good = m->family->encoder || fault_set(f, "family %s makes no vectors", m->config.family);
    if (m->family->images)
        good = fault_set(f, "family %s makes vectors of images, not of text", m->config.family);
    if (!all) return fault_set(f, "out of memory");
    if (how == POOLING_OF_FILES) how = m->modules.pooling;
    for (int i = 0; good && i < sentences; i++) {
        all[i] = (struct sentence){ids[i], counts[i], i};
        good = check(m, &all[i], f);
    }
    if (good) qsort(all, (size_t)sentences, sizeof *all, by_count);
    for (int at = 0, n; good && at < sentences; at += n) {
        n = sentences - at < m->opt.sentences ? sentences - at : m->opt.sentences;
        good = embed_some(m, all + at, n, how, to, f);
    }
    free(all);
    return good;
}
