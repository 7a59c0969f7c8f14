/*
 * graph.c -- the graph of chat_graph.h.
 */
#include <pthread.h>

#include "chat_graph.h"

static void add_inputs(struct build *b, const struct runner_options *o, coda_dim sequences)
{
    coda_graph *g = b->g;
    b->positions = coda_input(g, "positions", CODA_I32, DIMS(b->rows));
    b->slots = coda_input(g, "slots", CODA_I32, DIMS(b->rows));
    b->starts = coda_input(g, "starts", CODA_I32, DIMS(coda_dim_add(g, sequences, 1)));
    b->lengths = coda_input(g, "lengths", CODA_I32, DIMS(sequences));
    b->table = coda_input(g, "table", CODA_I32, DIMS(sequences, o->context / PAGE_TOKENS));
    b->last = coda_input(g, "last", CODA_I32, DIMS(sequences));
}

/* A token of each sequence, drawn as its request wants it. */
static void add_draw(coda_graph *g, coda_value logits, coda_dim sequences)
{
    coda_sample_options o = CODA_SAMPLE_OPTIONS_INIT;
    coda_value logprob, seeds = coda_input(g, "seeds", CODA_I32, DIMS(sequences, 2));
    coda_value places = coda_input(g, "places", CODA_I32, DIMS(sequences));
    o.temperature = coda_input(g, "temperature", CODA_F32, DIMS(sequences));
    o.top_k = coda_input(g, "top_k", CODA_I32, DIMS(sequences));
    o.top_p = coda_input(g, "top_p", CODA_F32, DIMS(sequences));
    coda_output(g, "chosen.id", coda_sample(g, logits, seeds, places, &o, &logprob));
    coda_output(g, "chosen.logprob", logprob);
}

/* The likeliest tokens of each sequence, and log(sum(exp)) of all. */
static void add_likeliest(coda_graph *g, coda_value logits, int top)
{
    coda_value values, ids;
    coda_top_k(g, logits, top, &values, &ids);
    coda_output(g, "top.values", values);
    coda_output(g, "top.ids", ids);
    coda_output(g, "top.log_sum", coda_log_sum_exp(g, logits));
    coda_output(g, "logits", logits);
}

static coda_graph *graph_of(const struct runner_options *o, const struct config *c, struct weights *weights,
                            struct fault *f)
{
    const struct served *s = o->served;
    coda_graph *g = coda_graph_new();
    if (!g) return fault_set(f, "out of memory"), NULL;
    struct build b = {.g = g,
                      .c = c,
                      .from = s->random ? NULL : &s->files,
                      .weights = weights,
                      .fault = f,
                      .dtype = o->dtype,
                      .context = o->context,
                      .page = PAGE_TOKENS,
                      .pages = o->pages};
    b.rows = coda_symbol(g, "T", 1, o->rows, 1);
    coda_dim sequences = b.texts = coda_symbol(g, "B", 1, o->sequences, 1);
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(b.rows));
    add_inputs(&b, o, sequences);
    coda_value logits = s->family->graph(&b, ids);
    add_draw(g, logits, sequences);
    add_likeliest(g, logits, o->top);
    if (!b.failed && coda_graph_status(g) == CODA_OK && build_done(&b)) return g;
    if (!b.failed) fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    return NULL;
}

/* Which tensors a graph has used is noted beside them. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

coda_graph *chat_graph(const struct runner_options *o, const struct config *c, struct weights *weights,
                       struct fault *f)
{
    pthread_mutex_lock(&turn);
    coda_graph *g = graph_of(o, c, weights, f);
    pthread_mutex_unlock(&turn);
    return g;
}
