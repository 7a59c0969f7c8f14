/*
 * bucket_exchanges.c -- sums over ranks of small tensors are one exchange of all of them.
 *
 *     all_reduce(a), all_reduce(b), ..  ==>  parts of all_reduce(concat(a, b, ..))
 *
 * As gradients of gains and biases are, whose exchanges cost a launch and a way to the other ranks each. Only
 * of exchanges that come one behind the other, where all that they exchange is there before one of them is
 * read. In: verified graph. Out: no such two. Exact.
 */
#include "exchanges.h"

#include "guards.h"

enum {
    MOST_BYTES = 128 << 10, /* of a tensor: a larger one is worth an exchange, which others may run beside */
    MOST_JOINED = 32,
    ALIGNED = 64 /* elements: where parts begin */
};

struct run {
    int member[MOST_JOINED], members, group;
    coda_dtype dtype;
};

static bool is_small(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    if (n->op != OP_ALL_REDUCE || exchange_ranks(g, v) < 2 || !type_is_bound(&n->type)) return false;
    int64_t all = type_elements(&n->type), most = MOST_BYTES / dtype_bytes(n->type.dtype, 1);
    return extent_reaches(all, ALIGNED) && extent_is_multiple(all, ALIGNED) && !extent_reaches(all, most + 1);
}

/* Notes of each member which one is the last: there they are exchanged. */
static void close_run(struct run *r, int *last)
{
    for (int i = 0; i < r->members && r->members > 1; i++) last[r->member[i]] = r->member[r->members - 1];
    r->members = 0;
}

static bool reads(const struct node *n, const struct run *r)
{
    int count = op_is_exchange(n->op) ? EXCHANGE_BEFORE : n->nin;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < r->members; k++)
            if (n->in[i] == r->member[k]) return true;
    return false;
}

static bool find_runs(const graph *g, struct live *live, const struct rewrite_options *opt)
{
    struct run r = {.members = 0};
    int *last = ARENA_NEW(&live->arena, int, g->nodes + 1);
    (void)opt;
    for (int v = 0; v < g->nodes && last; v++) last[v] = -1;
    for (int v = 0; v < g->nodes && last; v++) {
        const struct node *n = &g->node[v];
        if (reads(n, &r)) close_run(&r, last); /* a node that is dead is copied, too */
        if (!live->is[v] || !op_is_exchange(n->op)) continue;
        bool joins = is_small(g, v);
        if (!joins || r.members == MOST_JOINED ||
            (r.members && (r.group != n->in[EXCHANGE_GROUP] || r.dtype != n->type.dtype)))
            close_run(&r, last);
        if (!joins) continue;
        r.group = n->in[EXCHANGE_GROUP], r.dtype = n->type.dtype;
        r.member[r.members++] = v;
    }
    if (last) close_run(&r, last);
    live->own = last;
    return last != NULL;
}

static bool matches(const struct walk *w, int v)
{
    const int *last = ((const struct live *)w->ctx)->own;
    return last[v] >= 0;
}

static int flat(struct walk *w, int v)
{
    int x = w->map[w->in->node[v].in[EXCHANGE_X]];
    return graph_reshape(w->out, x, 2, (int64_t[]){1, type_elements(&w->in->node[v].type)});
}

/* The part of member v, which begins at *at, with its own dims. */
static int part(struct walk *w, int all, int v, int64_t *at)
{
    const struct type *t = &w->in->node[v].type;
    struct attr_slice a = {.axis = 1, .start = *at, .stop = *at + type_elements(t), .step = 1};
    struct node n = {.op = OP_SLICE, .nin = 1, .in = &all, .attr.slice = a, .origin = -1};
    *at = a.stop;
    return all < 0 ? all : graph_reshape(w->out, graph_append(w->out, &n), t->rank, t->dim);
}

/* The last one makes all of them; who reads the others comes behind it. */
static int replace(struct walk *w, int v)
{
    const struct live *live = w->ctx;
    const int *last = live->own;
    int in[MOST_JOINED];
    if (last[v] != v) return last[v] < 0 ? RULE_COPY : RULE_DROP;
    struct node n = {.op = OP_CONCAT, .in = in, .attr.concat.axis = 1, .origin = -1};
    for (int k = 0; k <= v; k++)
        if (last[k] == v) in[n.nin++] = flat(w, k);
    rewrite_note(w->log, "bucket_exchanges", true, "%s: %d sums over ranks are one", rewrite_name(w->in, v).s,
                 n.nin);
    int all = exchange_make(w, OP_ALL_REDUCE, -1, graph_append(w->out, &n), v), own = RULE_FAILED;
    int64_t at = 0;
    for (int k = 0; k <= v && all >= 0; k++) {
        if (last[k] != v) continue;
        own = part(w, all, k, &at);
        w->map[k] = own;
    }
    return own;
}

graph *bucket_exchanges(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    for (int v = 0; v < in->nodes; v++)
        if (is_small(in, v)) return live_walk(in, replace, opt, log, matches, find_runs);
    return rewrite_nothing(in);
}
