/*
 * lower_loss.c -- cross entropy as two statistics of a row of logits, which need not be stored.
 *
 *     cross_entropy(z, t)  ==>  nll(log_sum_exp(z), select(z, t), t)
 *     mean                 ==>  sum(nll) / sum(valid(t)),  over all rows
 *
 * nll and valid give 0 for an ignored row, nll gives NaN for a target that no class has.
 * In: verified graph. Out: no cross_entropy. Inexact: log_sum_exp is taken online.
 */
#include "rewrite.h"

/* The sum of one value for each row, as [1]. */
static int total(struct walk *w, int v, int64_t rows)
{
    int flat = graph_reshape(w->out, v, 2, (int64_t[]){1, rows});
    return graph_reshape(w->out, graph_reduce(w->out, "sum", flat, -1), 1, (int64_t[]){1});
}

static int lower(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_CROSS_ENTROPY) return RULE_COPY;
    const struct type *logits = &w->in->node[n->in[0]].type;
    struct type row = *logits;
    row.dim[row.rank - 1] = 1;
    float ignore = (float)n->attr.i[0], classes = (float)type_columns(logits);
    int z = w->map[n->in[0]], target = graph_reshape(w->out, w->map[n->in[1]], row.rank, row.dim);
    int lse = graph_reduce(w->out, "log_sum_exp", z, -1), pick = graph_reduce(w->out, "select", z, target);
    struct node nll = {.op = OP_MAP, .prim = graph_find_prim(w->out, "nll"), .nin = 3,
                       .in = (int[]){lse, pick, target}, .attr.f = {ignore, classes}, .origin = -1};
    int loss = graph_append(w->out, &nll);
    rewrite_note(w->log, "lower_loss", false, "%s: cross_entropy of %s is log_sum_exp - select",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, n->in[0]).s);
    if (n->attr.i[1] == CODA_REDUCE_NONE) return graph_reshape(w->out, loss, n->type.rank, n->type.dim);
    int sum = total(w, loss, type_rows(logits));
    if (n->attr.i[1] == CODA_REDUCE_SUM) return sum;
    int valid = graph_map(w->out, "valid", target, -1, &ignore);
    return graph_map(w->out, "div", sum, total(w, valid, type_rows(logits)), NULL);
}

graph *lower_loss(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, lower, opt, log, NULL);
}
