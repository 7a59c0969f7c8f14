/*
 * lines.c -- rows programs with one number for each of a few rows become one program.
 *
 * A decode step counts on in such programs: ids, positions, lengths, slots, each of a few numbers, of which a
 * launch takes longer than all the arithmetic. Fusion (fuse.c) joins what reads each other in one shape; here
 * whole programs are put together, once all of them have taken in what they can, so that nothing is torn from
 * where it was. They walk equally many elements, dimensions of 1 aside, need not have an operand in
 * common, and neither waits for a third program that waits for the other.
 *
 * What a program of the line hands to another is no longer rounded to the dtype in which it would be stored.
 * Where bits must not tell how many rows there are, only programs of fp32 and of integers are lines.
 *
 * A thread has element i of every value, as all lie in one line. So it may write over an element of a state
 * that it alone has read, and no program that would read another one's element joins.
 */
#include "fuse.h"

enum {
    MOST_MEMBERS = 64,
    MOST_LINE_PORTS = 256, /* what they load and store: a kernel's parameters are 4 kB */
    MOST_TRIES = 16        /* lines ahead of one that it may join */
};

/* ---- Which programs are lines ---- */

/* May a member of a line read it? Of what is in parts only a statistic of rows can be finished there. */
static bool suits_operand(const struct grouper *gr, int value, int64_t elements)
{
    const struct site *s = &gr->site[value];
    const struct type *t = &gr->g->node[value].type;
    bool parts = s->partial || (s->role == ROLE_INLINE && !s->vector);
    if (group_has_column_parts(gr, value)) return false;
    if (!parts) return true;
    return extent_is_one(type_columns(t)) && extents_equal(type_rows(t), elements);
}

static bool is_member_of_line(const struct grouper *gr, const struct node *n, int64_t elements)
{
    const struct type *walked = domain_walked(gr->g, n);
    bool rows = n->op == OP_APPEND || n->op == OP_EMBEDDING;
    if (!rows && n->op != OP_MAP && n->op != OP_CAST && n->op != OP_ASSIGN) return false;
    int64_t own = line_elements(walked);
    if (!extents_equal(own, elements)) return false;
    if (rows && !extent_is_one(type_columns(walked))) return false;
    if (gr->opt->invariant && n->type.dtype != CODA_F32 && !dtype_is_index(n->type.dtype)) return false;
    for (int i = 0; i < state_operands(n); i++)
        if (n->in[i] >= 0 && !suits_operand(gr, n->in[i], elements)) return false;
    return true;
}

/* The elements that the program walks, if it is a line of each run; else -1. */
static int64_t group_line(const struct grouper *gr, const struct group *q)
{
    bool rows = q->p.kind == PROGRAM_ROWS && q->first >= 0 && !q->p.prepare && !q->finishes;
    int64_t elements = rows ? line_elements(&q->domain) : -1;
    for (int m = q->first; m >= 0 && elements > 0; m = gr->site[m].next)
        if (!is_member_of_line(gr, &gr->g->node[m], elements)) return -1;
    return elements;
}

/* ---- Which of them may be one ---- */

/* Does the node look operand i up in memory: rows that any thread may have, or scales of columns? */
static bool looks_up(const struct node *n, int i)
{
    return (n->op == OP_EMBEDDING && i == EMBEDDING_TABLE) || (n->op == OP_APPEND && i == APPEND_SCALE);
}

/* Does node r, which reads a version that `assign` writes over, read each element where the thread is that
 * then writes it? */
static bool reads_in_line(const struct grouper *gr, const struct node *r, const struct node *assign)
{
    const graph *g = gr->g;
    if (assign->op != OP_ASSIGN) return false;
    for (int i = 0; i < state_operands(r); i++) {
        bool reads = r->in[i] >= 0 && g->node[r->in[i]].state == assign->in[ASSIGN_STATE];
        if (reads && (looks_up(r, i) || line_value(g, r->in[i]) != assign->in[ASSIGN_STATE])) return false;
    }
    return true;
}

/* May operand i of node n, a member, be what it is when `other` is part of n's program? */
static bool operand_allows(struct grouper *gr, const struct node *n, int i, const struct group *own,
                           const struct group *other)
{
    const graph *g = gr->g;
    int value = line_value(g, n->in[i]);
    bool written_over = op_is_version(n->op) && i == 0;
    if (group_holds(gr, own, value)) return true;
    if (!group_holds(gr, other, value)) return !group_depends(gr, n->in[i], other);
    if (i >= state_operands(n)) return reads_in_line(gr, &g->node[value], n);
    return !written_over && !looks_up(n, i) && g->node[value].op != OP_APPEND;
}

static bool members_allow(struct grouper *gr, const struct group *q, const struct group *other)
{
    for (int m = q->first; m >= 0; m = gr->site[m].next) {
        const struct node *n = &gr->g->node[m];
        for (int i = 0; i < n->nin; i++)
            if (n->in[i] >= 0 && !operand_allows(gr, n, i, q, other)) return false;
    }
    return true;
}

/* At least as many as the ports of its program. */
static int count_ports(const struct grouper *gr, const struct group *q)
{
    int ports = q->stores + q->members;
    for (int m = q->first; m >= 0; m = gr->site[m].next) ports += state_operands(&gr->g->node[m]);
    return ports;
}

static bool may_be_one(struct grouper *gr, const struct group *a, const struct group *b)
{
    if (a->members + b->members > MOST_MEMBERS) return false;
    if (count_ports(gr, a) + count_ports(gr, b) > MOST_LINE_PORTS) return false;
    return members_allow(gr, a, b) && members_allow(gr, b, a);
}

/* ---- Putting them together ---- */

static void become_line(struct group *q, int64_t elements)
{
    q->line = true;
    q->flat = false; /* values that group rows otherwise are lines themselves */
    q->domain.rank = q->p.rank = 2;
    q->domain.dim[0] = q->p.dim[0] = elements;
    q->domain.dim[1] = q->p.dim[1] = 1;
}

/* What a program has taken in for a value may come ahead of its root, and another one's root may read it: of
 * a line all values are as they are ordered in the graph. */
static void order_members(struct grouper *gr, struct group *q)
{
    int root = q->first, before = -1;
    for (int m = gr->site[root].next; m >= 0 && m < root; m = gr->site[m].next) before = m;
    if (before < 0) return;
    q->p.root = q->first = gr->site[root].next;
    gr->site[root].next = gr->site[before].next;
    gr->site[before].next = root;
    if (q->last == before) q->last = root;
}

/* Groups without members are gone. */
static void drop_empty(struct grouper *gr)
{
    int kept = 0;
    for (int i = 0; i < gr->groups; i++) {
        struct group *q = gr->group[i];
        if (q->first < 0) continue;
        q->index = kept;
        for (int m = q->first; m >= 0; m = gr->site[m].next) gr->site[m].group = kept;
        gr->group[kept++] = q;
    }
    gr->groups = kept;
}

/* Group i joins the last line of so many elements that it can be part of. */
static bool join_line(struct grouper *gr, const int64_t *elements, int i)
{
    for (int j = i - 1, tries = 0; j >= 0 && elements[i] > 0 && tries < MOST_TRIES; j--) {
        struct group *line = gr->group[j], *q = gr->group[i];
        if (!extents_equal(elements[j], elements[i]) || (++tries && !may_be_one(gr, line, q))) continue;
        group_absorb(gr, line, q);
        order_members(gr, line);
        become_line(line, elements[j]);
        return true;
    }
    return false;
}

void fuse_join_lines(struct grouper *gr)
{
    int64_t *elements = ARENA_NEW(&gr->plan->arena, int64_t, gr->groups + 1);
    if (!elements || !gr->opt->fuse) return;
    for (int i = 0; i < gr->groups; i++) {
        elements[i] = group_line(gr, gr->group[i]);
        if (join_line(gr, elements, i)) elements[i] = -1;
    }
    drop_empty(gr);
}
