/*
 * encoder.c -- sentences in batches: tokens go in, one vector for each sentence comes out.
 */
#include <string.h>

#include "model.h"

enum { STEP = 8 }; /* tokens of a batch's sentences are rounded up to a multiple of this */

/* A sentence's states times its shares, added up: 1 / n of each of n tokens is their mean. */
static coda_value pooled(struct build *b, coda_value x, coda_value shares, coda_dim sentences)
{
    coda_graph *g = b->g;
    coda_value weighed = coda_mul(g, coda_cast(g, x, CODA_F32), coda_reshape(g, shares, DIMS(sentences, b->rows, 1)));
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

static int longest(const int *counts, int sentences)
{
    int n = 1;
    for (int i = 0; i < sentences; i++)
        if (counts[i] > n) n = counts[i];
    return (n + STEP - 1) / STEP * STEP;
}

static void fill(struct model *m, const int32_t *const *ids, const int *counts, int sentences, int rows,
                 enum pooling how)
{
    int32_t *to = model_input(m, "ids"), *positions = model_input(m, "positions");
    int32_t *lengths = model_input(m, "lengths");
    float *shares = model_input(m, "shares");
    for (int t = 0; t < rows; t++) positions[t] = t < m->config.positions ? t : 0;
    for (int i = 0; i < sentences; i++, to += rows, shares += rows) {
        lengths[i] = counts[i];
        for (int t = 0; t < rows; t++) {
            bool seen = t < (how == POOLING_FIRST ? 1 : counts[i]);
            to[t] = t < counts[i] ? ids[i][t] : 0;
            shares[t] = !seen ? 0 : how == POOLING_FIRST ? 1 : 1.0f / (float)counts[i];
        }
    }
}

static bool check(const struct model *m, const int32_t *const *ids, const int *counts, int sentences,
                  struct fault *f)
{
    int most = m->opt.rows < m->config.positions ? m->opt.rows : m->config.positions;
    if (!m->family->encoder) return fault_set(f, "family %s makes no vectors", m->config.family);
    for (int i = 0; i < sentences; i++) {
        if (counts[i] < 1 || counts[i] > most)
            return fault_set(f, "sentence %d has %d tokens; 1 to %d are possible", i, counts[i], most);
        for (int t = 0; t < counts[i]; t++)
            if (ids[i][t] < 0 || ids[i][t] >= m->config.vocabulary)
                return fault_set(f, "token %d is not in the vocabulary of %d", ids[i][t], m->config.vocabulary);
    }
    return true;
}

bool model_embed(struct model *m, const int32_t *const *ids, const int *counts, int sentences, enum pooling how,
                 float *to, struct fault *f)
{
    size_t width = (size_t)m->config.hidden;
    if (!check(m, ids, counts, sentences, f)) return false;
    for (int at = 0, some; at < sentences; at += some) {
        some = sentences - at < m->opt.sentences ? sentences - at : m->opt.sentences;
        int rows = longest(counts + at, some);
        fill(m, ids + at, counts + at, some, rows, how);
        if (!model_run(m, (int64_t[]){some, rows}, 2, f) ||
            !model_output(m, "vectors", to + (size_t)at * width, 0, (size_t)some * width * sizeof *to, f))
            return false;
    }
    return true;
}
