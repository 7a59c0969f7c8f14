/*
 * reasons_find.c -- the reason why two programs are not one. From the value that one of them writes the graph
 * is searched for the nodes by which the other reads it; what was noted of these when the writer's group, or
 * the reader's, did without them is the reason.
 */
#include "fuse.h"

int reason_rank(enum reason_kind kind)
{
    static const int rank[REASON_KINDS] = {
        9,
#define APART(NAME, name, rank, sentence, help) rank,
#define SLOW(NAME, name, sentence, help) 0,
#include "reasons.def"
    };
    return rank[kind];
}

static const struct group *resolve(const struct group *q)
{
    while (q->into) q = q->into;
    return q;
}

/* Does the reader read the node's value as what comes of others: views, parts, what it computes again? */
static bool passes(const struct grouper *gr, const struct group *reader, int n)
{
    enum role role = gr->site[n].role;
    return role == ROLE_VIEW || role == ROLE_CONCAT || role == ROLE_INLINE || group_has_again(reader, n);
}

static bool finishes(const struct grouper *gr, const struct group *q, int n)
{
    if (q->first < 0 && q->p.root == n) return true;
    for (int v = q->also; v >= 0; v = gr->site[v].also)
        if (v == n) return true;
    return false;
}

/* Is that the reason why the writer takes nothing in, whatever reads its value? */
static bool is_of_result(enum reason_kind kind)
{
    return kind == REASON_OWN_WRITES || kind == REASON_FINISHED || kind == REASON_MEASURED ||
           kind == REASON_STORED_BESIDE;
}

/* What the writer, or the reader, has after all, it was refused on the way. */
static bool counts(const struct grouper *gr, const struct refusal *r, const struct group *writer,
                   const struct group *reader, int node)
{
    const struct group *q = resolve(r->group);
    bool has = group_holds(gr, q, node);
    return (q == writer && (is_of_result(r->reason.kind) || !has)) || (q == reader && !has);
}

/* The better of the best so far and what is noted of the node; the newest of several. */
static void consider(const struct grouper *gr, const struct group *writer, const struct group *reader,
                     int node, struct reason *best)
{
    for (const struct refusal *r = gr->opt->reasons->of[node]; r; r = r->next) {
        int rank = reason_rank(r->reason.kind), known = reason_rank(best->kind);
        bool better = rank < known || (rank == known && node < best->node);
        if (better && counts(gr, r, writer, reader, node)) *best = r->reason;
    }
}

static void push(struct grouper *gr, int node, int *top)
{
    if (gr->site[node].seen == gr->mark) return;
    gr->site[node].seen = gr->mark;
    gr->stack[(*top)++] = node;
}

/* The nodes at which the search begins: the value, or all statistics that are made of its states. */
static void push_written(struct grouper *gr, const struct group *writer, int value, int *top)
{
    push(gr, value, top);
    if (!gr->site[value].partial) return;
    for (int m = writer->first; m >= 0; m = gr->site[m].next)
        if (gr->site[m].partial && group_state(gr, m) == value) push(gr, m, top);
}

/* The node by which the reader has a value that lies in memory: that itself, if it adds to what is there. */
static int reading(const struct grouper *gr, const struct group *reader, int value)
{
    if (value < 0 || group_holds(gr, reader, value)) return value;
    for (int i = gr->uses.at[value]; i < gr->uses.at[value + 1]; i++)
        if (group_holds(gr, reader, gr->uses.use[i].node)) return gr->uses.use[i].node;
    return -1;
}

/* A statistic of columns joins a pass that was there before it, so that none of its readers was refused; and
 * products add to a sum in memory one after the other, of which nobody asks for that of all before it. */
static struct reason if_nothing_is_noted(const struct grouper *gr, const struct group *writer,
                                         const struct group *reader, int value, int read)
{
    struct reason none = {.kind = REASON_NONE, .node = -1, .other = -1};
    int by = reading(gr, reader, read);
    if (by >= 0 && reader->p.kind == PROGRAM_GEMM && writer->p.kind == PROGRAM_GEMM)
        return (struct reason){.kind = REASON_ONE_PRODUCT, .node = by, .other = reader->p.root};
    if (!group_has_column_parts(gr, value) || gr->uses.at[value] == gr->uses.at[value + 1]) return none;
    const struct type *of = &gr->g->node[gr->g->node[value].in[REDUCE_X]].type;
    int first = gr->uses.use[gr->uses.at[value]].node;
    return (struct reason){REASON_COLUMN_STATISTIC, first, value, of->dim[of->rank - 2], 0};
}

struct reason reason_find(struct grouper *gr, const struct group *writer, const struct group *reader,
                          int value, int read)
{
    struct reason best = {.kind = REASON_NONE, .node = -1, .other = -1};
    int top = 0;
    gr->mark++;
    push_written(gr, writer, value, &top);
    for (int written = top; top;) {
        int v = gr->stack[--top];
        bool begins = top < written;
        if (begins) written = top;
        consider(gr, writer, reader, v, &best);
        if (!begins && !passes(gr, reader, v)) continue;
        for (int i = gr->uses.at[v]; i < gr->uses.at[v + 1]; i++) {
            int n = gr->uses.use[i].node;
            bool there = group_holds(gr, reader, n) || finishes(gr, reader, n);
            if (there || passes(gr, reader, n)) push(gr, n, &top);
        }
    }
    return best.kind == REASON_NONE ? if_nothing_is_noted(gr, writer, reader, value, read) : best;
}
