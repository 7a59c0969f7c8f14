/*
 * decoder.c -- a text that grows: tokens go in, their keys and values stay in the caches, and the likeliest
 * next token comes out. A run of one token has one row; of more, the next of a few numbers of rows. Those in
 * front are padding, whose slots are negative, so that they keep nothing, and whose results nobody reads.
 */
#include "model.h"

static void add_top(struct build *b, int top, coda_value logits)
{
    coda_value values, ids;
    coda_top_k(b->g, logits, top, &values, &ids);
    coda_output(b->g, "top.values", values);
    coda_output(b->g, "top.ids", ids);
    coda_output(b->g, "top.log_sum", coda_log_sum_exp(b->g, logits));
}

/* Whether no layer of a decoder carries a state. */
static bool all_keep(const struct config *c)
{
    for (int l = 0; l < c->layers; l++)
        if (c->carries[l]) return false;
    return true;
}

/* Of a config that may have fewer layers. */
static coda_graph *graph_of(struct model *m, const struct config *c, struct weights *weights, struct fault *f)
{
    coda_graph *g = coda_graph_new();
    if (!g) return fault_set(f, "out of memory"), NULL;
    struct build b = {.g = g,
                      .c = c,
                      .from = m->opt.random ? NULL : &m->files,
                      .weights = weights,
                      .fault = f,
                      .dtype = m->opt.dtype,
                      .context = m->opt.context,
                      .every_row = m->opt.every_row};
    b.rows = coda_symbol(g, "T", 1, m->opt.rows, 1);
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(1, b.rows));
    b.positions = coda_input(g, "positions", CODA_I32, DIMS(1, b.rows));
    b.slots = coda_input(g, "slots", CODA_I32, DIMS(1, b.rows));
    b.lengths = coda_input(g, "lengths", CODA_I32, DIMS(1));
    if (!all_keep(c)) b.starts = coda_input(g, "starts", CODA_I32, DIMS(2));
    coda_value logits = m->family->graph(&b, ids);
    coda_output(g, "logits", logits);
    if (m->opt.top) add_top(&b, m->opt.top, logits);
    coda_output(g, "next", coda_cast(g, coda_reduce(g, "arg_max", logits, CODA_NONE), CODA_I32));
    if (!b.failed && coda_graph_status(g) == CODA_OK && build_done(&b)) return g;
    if (!b.failed) fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    return NULL;
}

coda_graph *decoder_graph(struct model *m, struct weights *weights, struct fault *f)
{
    return graph_of(m, &m->config, weights, f);
}

enum {
    PADDING = 20, /* per cent of a run's time that it may cost, unless that makes too many shapes */
    LAYERS = 4    /* that stand for all: what costs time is in proportion, but for the head */
};

/* The same graph of some layers alone, as some hundred of its shapes are planned to price them. */
static coda_plan *short_plan(struct model *m, struct fault *f)
{
    struct config few = m->config;
    struct weights weights = {0};
    coda_compile_options o = device_target(&m->device);
    coda_plan *p = NULL;
    o.flags = CODA_PLAN_ONLY;
    if (few.layers > LAYERS) few.layers = LAYERS;
    coda_graph *g = graph_of(m, &few, &weights, f);
    if (g && coda_compile(&p, g, &o) != CODA_OK) fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    weights_free(&weights);
    return p;
}

bool decoder_lengths(struct model *m, struct fault *f)
{
    coda_plan *p = short_plan(m, f);
    if (!p) return false;
    int n = MODEL_LENGTHS + 1;
    for (int percent = PADDING; n > MODEL_LENGTHS; percent *= 2)
        n = coda_plan_buckets(p, 0, percent, m->rows, MODEL_LENGTHS);
    coda_plan_free(p);
    return n > 0 || fault_set(f, "%s", coda_error());
}

/* The last of them is all that a run may have. */
static int rounded(const struct model *m, int n)
{
    int i = 0;
    while (m->rows[i] < n) i++;
    return n == 1 ? 1 : (int)m->rows[i];
}

static bool decode_some(struct model *m, const int32_t *ids, int n, struct fault *f)
{
    int rows = rounded(m, n), padding = rows - n;
    int32_t *to = model_input(m, "ids"), *slots = model_input(m, "slots");
    int32_t *positions = model_input(m, "positions"), *lengths = model_input(m, "lengths");
    int32_t *starts = model_input(m, "starts");
    for (int i = 0; i < rows; i++) {
        int token = i - padding;
        to[i] = token < 0 ? 0 : ids[token];
        if (slots) slots[i] = token < 0 ? -1 : m->length + token;
        if (positions) positions[i] = token < 0 ? 0 : m->length + token;
    }
    if (lengths) *lengths = m->length + n;
    if (starts) starts[0] = padding, starts[1] = rows;
    m->ran = rows;
    if (!model_begin(m, f) || !model_ran(m, model_run(m, (int64_t[]){rows}, 1, f))) return false;
    m->length += n;
    return true;
}

bool model_decode(struct model *m, const int32_t *ids, int n, int32_t *next, struct fault *f)
{
    if (m->family->encoder) return fault_set(f, "family %s makes no text", m->config.family);
    if (n < 1 || n > m->opt.context - m->length)
        return fault_set(f, "%d tokens behind %d do not fit into a context of %d", n, m->length,
                         m->opt.context);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->config.vocabulary)
            return fault_set(f, "token %d is not in the vocabulary of %d", ids[i], m->config.vocabulary);
    for (int at = 0, some; at < n; at += some) {
        some = n - at < m->opt.rows ? n - at : m->opt.rows;
        if (!decode_some(m, ids + at, some, f)) return false;
    }
    size_t last = m->opt.every_row ? (size_t)m->ran - 1 : 0;
    return model_output(m, "next", next, last * sizeof *next, sizeof *next, f);
}

bool model_logits(struct model *m, float *to, int rows, struct fault *f)
{
    size_t row = (size_t)m->config.vocabulary * sizeof *to;
    int there = m->opt.every_row ? m->ran : 1;
    if (rows < 1 || rows > there) return fault_set(f, "logits of %d rows; the last run has %d", rows, there);
    return model_output(m, "logits", to, (size_t)(there - rows) * row, (size_t)rows * row, f);
}

bool model_top(struct model *m, float *values, int32_t *ids, float *log_sum, struct fault *f)
{
    size_t top = (size_t)m->opt.top, row = m->opt.every_row ? (size_t)m->ran - 1 : 0;
    if (!top || !m->ran) return fault_set(f, "there are no likeliest tokens: the model was opened for none");
    return model_output(m, "top.values", values, row * top * sizeof *values, top * sizeof *values, f) &&
           model_output(m, "top.ids", ids, row * top * sizeof *ids, top * sizeof *ids, f) &&
           model_output(m, "top.log_sum", log_sum, row * sizeof *log_sum, sizeof *log_sum, f);
}

bool model_begin(struct model *m, struct fault *f)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    bool good = true;
    if (!m->recurrent) return true;
    if (m->length || m->lost)
        return !m->lost || fault_set(f, "a run failed, and with it the text's states: it has to begin anew");
    for (int i = 0; good && i < m->arg_count; i++)
        good = coda_plan_arg(m->plan, i, &info) == CODA_OK &&
               (info.kind != CODA_ARG_STATE || !build_is_recurrent(info.name) ||
                device_clear(&m->device, m->args[i], info.bytes));
    return good || fault_set(f, "the text's states cannot be cleared on %s", device_name(&m->device));
}

bool model_ran(struct model *m, bool good)
{
    if (!good && m->recurrent) m->lost = true;
    return good;
}

bool model_rewind(struct model *m, int length)
{
    if (length < 0 || (length >= m->length && !m->lost)) return true;
    if (m->recurrent && length) return false;
    m->length = length;
    m->lost = false;
    return true;
}
