/*
 * encoder.c -- sentences in batches: tokens go in, one vector for each sentence comes out. Sentences of like
 * lengths run together, whatever their order, so that little is padding.
 */
#include <stdlib.h>

#include "model.h"

enum { STEP = 8 }; /* tokens of a batch's sentences are rounded up to a multiple of this */

/* A sentence's states times its shares, added up: 1 / n of each of n tokens is their mean. */
static coda_value pooled(struct build *b, coda_value x, coda_value shares, coda_dim sentences)
{
    coda_graph *g = b->g;
    coda_value weighed =
        coda_mul(g, coda_cast(g, x, CODA_F32), coda_reshape(g, shares, DIMS(sentences, b->rows, 1)));
    return coda_reshape(g, coda_reduce_columns(g, "sum", weighed), DIMS(sentences, b->c->hidden));
}

coda_graph *encoder_graph(struct model *m, struct fault *f)
{
    coda_graph *g = coda_graph_new();
    if (!g) return fault_set(f, "out of memory"), NULL;
    struct build b = {.g = g,
                      .c = &m->config,
                      .from = &m->files,
                      .weights = &m->weights,
                      .fault = f,
                      .dtype = m->opt.dtype};
    m->opt.rows = (m->opt.rows + STEP - 1) / STEP * STEP;
    coda_dim sentences = coda_symbol(g, "B", 1, m->opt.sentences, 1);
    b.rows = coda_symbol(g, "T", STEP, m->opt.rows, STEP);
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(sentences, b.rows));
    b.positions = coda_input(g, "positions", CODA_I32, DIMS(b.rows));
    b.lengths = coda_input(g, "lengths", CODA_I32, DIMS(sentences));
    coda_value shares = coda_input(g, "shares", CODA_F32, DIMS(sentences, b.rows));
    coda_output(g, "vectors", pooled(&b, m->family->graph(&b, ids), shares, sentences));
    if (!b.failed && coda_graph_status(g) == CODA_OK) return g;
    if (!b.failed) fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    return NULL;
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
    return m->opt.rows < m->config.positions ? m->opt.rows : m->config.positions;
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

static void fill(struct model *m, const struct sentence *all, int sentences, int rows, enum pooling how)
{
    int32_t *to = model_input(m, "ids"), *positions = model_input(m, "positions");
    int32_t *lengths = model_input(m, "lengths");
    float *shares = model_input(m, "shares");
    for (int t = 0; t < rows; t++) positions[t] = t < m->config.positions ? t : 0;
    for (int i = 0; i < sentences; i++, to += rows, shares += rows) {
        int count = lengths[i] = all[i].count;
        for (int t = 0; t < rows; t++) {
            bool seen = t < (how == POOLING_FIRST ? 1 : count);
            to[t] = t < count ? all[i].ids[t] : 0;
            shares[t] = !seen ? 0 : how == POOLING_FIRST ? 1 : 1.0f / (float)count;
        }
    }
}

/* A batch, whose last sentence is the longest. */
static bool embed_some(struct model *m, const struct sentence *all, int n, enum pooling how, float *to,
                       struct fault *f)
{
    size_t bytes = (size_t)m->config.hidden * sizeof *to;
    int rows = (all[n - 1].count + STEP - 1) / STEP * STEP;
    fill(m, all, n, rows, how);
    if (!model_run(m, (int64_t[]){n, rows}, 2, f)) return false;
    for (int i = 0; i < n; i++) {
        float *vector = to + (size_t)all[i].index * (size_t)m->config.hidden;
        if (!model_output(m, "vectors", vector, (size_t)i * bytes, bytes, f)) return false;
    }
    return true;
}

bool model_embed(struct model *m, const int32_t *const *ids, const int *counts, int sentences,
                 enum pooling how, float *to, struct fault *f)
{
    struct sentence *all = calloc((size_t)sentences + 1, sizeof *all);
    bool good = m->family->encoder || fault_set(f, "family %s makes no vectors", m->config.family);
    if (!all) return fault_set(f, "out of memory");
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
