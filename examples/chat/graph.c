/*
 * graph.c -- the graph of chat_graph.h.
 */
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

/* The likeliest tokens of each sequence, log(sum(exp)) of all, and that by the temperature, less the
 * greatest. */
static void add_outputs(coda_graph *g, coda_value logits, int top, coda_value warmth)
{
    coda_value values, ids;
    coda_top_k(g, logits, top, &values, &ids);
    coda_output(g, "top.values", values);
    coda_output(g, "top.ids", ids);
    coda_output(g, "top.log_sum", coda_log_sum_exp(g, logits));
    coda_value greatest = coda_slice(g, values, 1, 0, 1, 1);
    coda_value warm = coda_mul(g, coda_sub(g, logits, greatest), warmth);
    coda_output(g, "top.warm_sum", coda_log_sum_exp(g, warm));
    coda_output(g, "logits", logits);
}

coda_graph *chat_graph(const struct runner_options *o, struct weights *weights, struct fault *f)
{
    const struct served *s = o->served;
    coda_graph *g = coda_graph_new();
    if (!g) return fault_set(f, "out of memory"), NULL;
    struct build b = {.g = g,
                      .c = &s->config,
                      .from = s->random ? NULL : &s->files,
                      .weights = weights,
                      .fault = f,
                      .dtype = o->dtype,
                      .context = o->context,
                      .page = PAGE_TOKENS,
                      .pages = o->pages};
    b.rows = coda_symbol(g, "T", 1, o->rows, 1);
    coda_dim sequences = coda_symbol(g, "B", 1, o->sequences, 1);
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(b.rows));
    add_inputs(&b, o, sequences);
    coda_value warmth = coda_input(g, "warmth", CODA_F32, DIMS(sequences, 1));
    add_outputs(g, s->family->graph(&b, ids), o->top, warmth);
    if (!b.failed && coda_graph_status(g) == CODA_OK) return g;
    if (!b.failed) fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    return NULL;
}
