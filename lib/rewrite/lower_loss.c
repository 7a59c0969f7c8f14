/*
 * lower_loss.c -- cross entropy as one statistic of a row of logits, which need not be stored.
 *
 *     cross_entropy(z, t)  ==>  l = nll_loss(nll(z, t), t)
 *     mean                 ==>  sum(l / rows) / (sum(valid(t)) / rows),  over all rows
 *
 * nll_loss and valid give 0 for an ignored row, nll_loss gives NaN for a target that no class has. The mean
 * is divided before it is summed: it overflows only where it is itself too large. In: verified graph. Out: no
 * cross_entropy. Inexact: nll is taken online.
 */
#include "walk.h"

/* The sum of one value for each row, as [1]. */
static int total(struct walk *w, int v, int64_t rows)
{
    if (!dim_is_number(rows)) return rewrite_needs_numbers(w, "a sum of rows");
    int flat = graph_reshape(w->out, v, 2, (int64_t[]){1, rows});
    return graph_reshape(w->out, graph_reduce(w->out, "sum", flat, -1), 1, (int64_t[]){1});
}

static int lower(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_CROSS_ENTROPY) return RULE_COPY;
    const struct attr_cross_entropy *a = &n->attr.cross_entropy;
    const struct type *logits = &w->in->node[n->in[CROSS_ENTROPY_LOGITS]].type;
    struct type row = *logits;
    row.dim[row.rank - 1] = 1;
    float ignore = (float)a->ignore, classes = (float)type_columns(logits);
    int z = w->map[n->in[CROSS_ENTROPY_LOGITS]],
        target = graph_reshape(w->out, w->map[n->in[CROSS_ENTROPY_TARGETS]], row.rank, row.dim);
    int nll = graph_reduce(w->out, "nll", z, target);
    int loss = graph_map(w->out, "nll_loss", nll, target, (float[]){ignore, classes});
    rewrite_note(w->log, "lower_loss", false, "%s: cross_entropy of %s is the nll of its targets",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, n->in[CROSS_ENTROPY_LOGITS]).s);
    int64_t rows = type_rows(logits);
    if (a->reduction == LOSS_ROWS) return graph_reshape(w->out, loss, n->type.rank, n->type.dim);
    if (a->reduction == LOSS_SUM) return total(w, loss, rows);
    float part = rewrite_part(w, rows);
    int valid = graph_map(w->out, "valid", target, -1, &ignore);
    int share = graph_map(w->out, "scale", total(w, valid, rows), -1, &part);
    return graph_map(w->out, "div", total(w, graph_map(w->out, "scale", loss, -1, &part), rows), share, NULL);
}

graph *lower_loss(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, lower, opt, log, NULL);
}
