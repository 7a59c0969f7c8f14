/*
 * gathered_rows.c -- a row's statistic over columns that ranks have apart is merged of theirs.
 *
 *     sum(all_gather(x))          ==>  all_reduce(sum(x))            sum_sq likewise
 *     max(all_gather(x))          ==>  max(all_gather(max(x)))       log_sum_exp and mean likewise
 *     nll(all_gather(x), t)       ==>  log_sum_exp(l) - sum(s)
 *         where (l, s) = all_gather(log_sum_exp(x), select(x, t), select(x, t - N), ..)
 *
 * x has N columns of P N, and all_gather is along them. The loss of a vocabulary that is shared out moves
 * 1 + P numbers for each row, not N: each rank takes the logits of targets as every rank would, of which the
 * r-th of rank r are the right ones, as its place among the gathered tells. Only where nobody reads what is
 * gathered otherwise. In: verified graph. Out: no such statistic. Inexact: another order.
 */
#include "exchanges.h"

#include <string.h>

#include "guards.h"

enum { MOST_STATISTICS = 2, MOST_PARTS = 8 };
enum { LEAST_CLASSES = 1024 }; /* of a rank: for fewer the launches that a loss has more are not worth it */

/* How the statistics of parts make that of all. */
enum merge { MERGE_NONE, MERGE_ADD, MERGE_AGAIN, MERGE_TARGET };

static enum merge merge_of(const graph *g, const struct node *n, int ranks)
{
    static const struct {
        const char *name;
        enum merge merge;
    } all[] = {{"sum", MERGE_ADD},   {"sum_sq", MERGE_ADD},        {"mean", MERGE_AGAIN},
               {"max", MERGE_AGAIN}, {"log_sum_exp", MERGE_AGAIN}, {"nll", MERGE_TARGET}};
    enum merge merge = MERGE_NONE;
    if (n->op != OP_REDUCE || n->attr.reduce.columns) return merge;
    for (int i = 0; i < ARRAY_SIZE(all); i++)
        if (!strcmp(n->prim->name, all[i].name)) merge = all[i].merge;
    int64_t columns = merge == MERGE_TARGET ? type_columns(&g->node[n->in[REDUCE_X]].type) : 0;
    bool pays = merge != MERGE_TARGET || (ranks <= MOST_PARTS && dim_is_number(columns) &&
                                          extent_reaches(columns, LEAST_CLASSES * ranks));
    return pays ? merge : MERGE_NONE;
}

/* Are all who read the exchange v such statistics, and few? */
static bool is_for_statistics(const struct walk *w, int v)
{
    const struct live *live = w->ctx;
    const struct node *n = &w->in->node[v];
    int ranks = exchange_ranks(w->in, v), most = 0;
    if (n->op != OP_ALL_GATHER || ranks < 2 || exchange_axis(n) != n->type.rank - 1 || n->output >= 0)
        return false;
    for (int i = live->uses.at[v]; i < live->uses.at[v + 1]; i++) {
        const struct use *u = &live->uses.use[i];
        const struct node *by = &w->in->node[u->node];
        if (!live->is[u->node] || (op_is_exchange(by->op) && u->operand == EXCHANGE_BEFORE)) continue;
        if (u->operand != REDUCE_X || merge_of(w->in, by, ranks) == MERGE_NONE || ++most > MOST_STATISTICS)
            return false;
    }
    return dim_is_number(type_columns(&n->type)) && extent_reaches(type_columns(&n->type), ranks + 1);
}

static bool matches(const struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    return n->op == OP_REDUCE && w->in->node[n->in[REDUCE_X]].op == OP_ALL_GATHER &&
           is_for_statistics(w, n->in[REDUCE_X]) &&
           merge_of(w->in, n, exchange_ranks(w->in, n->in[REDUCE_X])) != MERGE_NONE;
}

static int slice(struct walk *w, int v, int64_t start, int64_t step)
{
    if (v < 0) return v;
    const struct type *t = &w->out->node[v].type;
    struct attr_slice a = {.axis = t->rank - 1, .start = start, .stop = type_columns(t), .step = step};
    struct node n = {.op = OP_SLICE, .nin = 1, .in = &v, .attr.slice = a, .origin = -1};
    return graph_append(w->out, &n);
}

static int cast(struct walk *w, int v, coda_dtype to)
{
    struct node n = {.op = OP_CAST, .nin = 1, .in = &v, .attr.cast.to = to, .origin = -1};
    return v < 0 ? v : graph_append(w->out, &n);
}

/* The targets as rank p sees them. */
static int targets_of(struct walk *w, int target, int64_t first)
{
    if (!first) return target;
    coda_dtype t = w->out->node[target].type.dtype;
    int by = graph_constant(w->out, CODA_F32, (float)first);
    return cast(w, graph_map(w->out, "sub", cast(w, target, CODA_F32), by, NULL), t);
}

/* Columns: log_sum_exp of x, and the logits that would be the targets' on each rank. */
static int loss_of_target(struct walk *w, int x, int target, int like)
{
    int ranks = exchange_ranks(w->in, like), part[1 + MOST_PARTS];
    int64_t columns = type_columns(&w->out->node[x].type);
    part[0] = graph_reduce(w->out, "log_sum_exp", x, -1);
    for (int p = 0; p < ranks; p++) {
        int own = targets_of(w, target, p * columns);
        if (own < 0) return own;
        part[1 + p] = graph_reduce(w->out, "select", x, own);
    }
    struct node n = {.op = OP_CONCAT, .nin = 1 + ranks, .in = part, .origin = -1};
    n.attr.concat.axis = w->out->node[x].type.rank - 1;
    int all = exchange_make(w, OP_ALL_GATHER, (int)n.attr.concat.axis, graph_append(w->out, &n), like);
    int sum = graph_reduce(w->out, "log_sum_exp", slice(w, all, 0, 1 + ranks), -1);
    int logit = graph_reduce(w->out, "sum", slice(w, all, 1, 2 + ranks), -1);
    return all < 0 ? all : graph_map(w->out, "sub", sum, logit, NULL);
}

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    if (!matches(w, v)) return RULE_COPY;
    int e = n->in[REDUCE_X], from = g->node[e].in[EXCHANGE_X], x = w->map[from];
    enum merge merge = merge_of(g, n, exchange_ranks(g, e));
    rewrite_note(w->log, "gathered_rows", false, "%s: %s of all ranks' %s is merged of each rank's",
                 rewrite_name(g, v).s, n->prim->name, rewrite_name(g, from).s);
    if (merge == MERGE_TARGET) return loss_of_target(w, x, w->map[n->in[REDUCE_KEY]], e);
    int row = graph_reduce(w->out, n->prim->name, x, -1);
    if (merge == MERGE_ADD) return exchange_make(w, OP_ALL_REDUCE, -1, row, e);
    int all = exchange_make(w, OP_ALL_GATHER, exchange_axis(&g->node[e]), row, e);
    return all < 0 ? all : graph_reduce(w->out, n->prim->name, all, -1);
}

graph *gathered_rows(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return exchange_walk(in, replace, opt, log, matches);
}
