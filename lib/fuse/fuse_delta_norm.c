/*
 * fuse_delta_norm.c -- the gated norm behind the delta rule, of a few tokens.
 *
 *     y = (o / sqrt(mean(o^2) + eps)) gain silu(z),    the mean over a head's columns
 *
 * Gated DeltaNet (arXiv 2412.06464) has it behind the rule. Of a few tokens it is a launch of its own. A
 * block of the kernel that goes token by token has all columns of a head then, and a token's sum of squares
 * is one exchange between its warps. o, which nobody else reads, is not stored, and so not rounded. With
 * CODA_BATCH_INVARIANT a row's bits would tell how many there are.
 */
#include "delta.h"
#include "fuse_own.h"

enum { MOST_COLUMNS = 128, LANES_COLUMNS = 16, LEAST_BLOCKS = 128 };

static bool is_map(const struct node *n, const char *name)
{
    return n->op == OP_MAP && n->prim == prim_find(name);
}

/* The only reader of a value that is no output; -1. */
static int reader_of(const struct grouper *gr, int value)
{
    bool one = uses_count(&gr->uses, value) == 1 && gr->g->node[value].output < 0;
    return one ? gr->uses.use[gr->uses.at[value]].node : -1;
}

/* value times something else, which is `other`; -1: it is read by another node. */
static int product_of(const struct grouper *gr, int value, int *other)
{
    int y = reader_of(gr, value);
    if (y < 0 || !is_map(&gr->g->node[y], "mul")) return -1;
    const int *in = gr->g->node[y].in;
    *other = in[in[0] == value];
    return *other == value ? -1 : y;
}

static bool add(struct delta_norm *to, int member)
{
    if (member >= 0) to->member[to->members++] = member;
    return member >= 0;
}

/* o by heads, whose squares are summed, and by whose length it is divided: the quotient; -1. */
static int find_quotient(const struct grouper *gr, int by_head, struct delta_norm *to)
{
    const struct node *node = gr->g->node;
    const struct uses *u = &gr->uses;
    int squares = -1, quotient = -1;
    if (uses_count(u, by_head) != 2 || node[by_head].output >= 0) return -1;
    for (int i = u->at[by_head]; i < u->at[by_head + 1]; i++) {
        const struct node *n = &node[u->use[i].node];
        bool folds = n->op == OP_REDUCE && !n->attr.reduce.columns && n->prim == prim_find("sum_sq");
        if (folds) squares = u->use[i].node;
        else quotient = u->use[i].node;
    }
    int root = squares < 0 ? -1 : reader_of(gr, squares);
    if (root < 0 || quotient < 0 || !is_map(&node[root], "rsqrt_mean") || reader_of(gr, root) != quotient)
        return -1;
    if (!is_map(&node[quotient], "mul")) return -1;
    to->inv_n = node[root].attr.map.param[0], to->eps = node[root].attr.map.param[1];
    add(to, squares), add(to, root), add(to, quotient);
    return quotient;
}

/* silu(z) of a z that lies in memory as rows of adjacent heads. */
static bool find_gate(const struct grouper *gr, int gate, const struct type *like, struct delta_norm *to)
{
    const struct node *n = &gr->g->node[gate];
    if (!is_map(n, "silu") || uses_count(&gr->uses, gate) != 1 || n->output >= 0 || state_is_read(gr->g, n))
        return false;
    to->z = n->in[0];
    const struct type *t = &gr->g->node[to->z].type;
    const struct view *v = &gr->view[to->z];
    int last = t->rank - 1;
    bool alike = t->rank == like->rank && t->dtype == like->dtype && v->base >= 0;
    return alike && extents_equal(type_columns(t), type_columns(like)) && extent_is_one(v->stride[last]) &&
           extents_equal(v->stride[last - 1], type_columns(like)) && add(to, gate);
}

static bool is_gain(const struct grouper *gr, int value, int64_t columns)
{
    const struct node *n = &gr->g->node[value];
    return gr->site[value].role == ROLE_LEAF && n->type.rank == 1 && !node_is_written(n) &&
           extents_equal(n->type.dim[0], columns) && extent_is_one(gr->view[value].stride[0]);
}

bool delta_norm_find(const struct grouper *gr, const struct node *rule, int o, struct delta_norm *to)
{
    const struct node *node = gr->g->node;
    int by_head = reader_of(gr, o), gate;
    *to = (struct delta_norm){.members = 0};
    if (by_head < 0 || node[by_head].op != OP_RESHAPE) return false;
    const struct type *t = &node[by_head].type;
    if (t->rank != node[o].type.rank + 1 || !extents_equal(t->dim[t->rank - 2], rule->attr.delta.heads))
        return false;
    int quotient = find_quotient(gr, by_head, to);
    int scaled = quotient < 0 ? -1 : product_of(gr, quotient, &to->gain);
    if (scaled < 0 || !is_gain(gr, to->gain, type_columns(t))) return false;
    to->y = product_of(gr, scaled, &gate);
    if (to->y < 0 || node[to->y].type.dtype != node[o].type.dtype || !group_has_one_place(gr, to->y) ||
        !find_gate(gr, gate, t, to))
        return false;
    return add(to, scaled) && add(to, to->y);
}

/* Has the kernel blocks of whole heads, and these enough of them, or states before it waits? */
static bool suits(const struct grouper *gr, const struct node *rule)
{
    const graph *g = gr->g;
    const struct type *q = &g->node[rule->in[DELTA_Q]].type, *v = &g->node[rule->in[DELTA_V]].type;
    int starts = rule->in[DELTA_STARTS];
    int64_t heads = rule->attr.delta.heads, columns = type_columns(v) / heads;
    int64_t sequences = starts < 0 ? 1 : g->node[starts].type.dim[0] - 1;
    bool few = !extent_reaches(q->dim[q->rank - 2], mul_counts(DELTA_LEAST_CHUNK, sequences));
    bool by_head = extents_equal(type_columns(&g->node[rule->in[DELTA_DECAY]].type), heads);
    bool whole = extent_is_multiple(columns, LANES_COLUMNS) && !extent_reaches(columns, MOST_COLUMNS + 1) &&
                 !extent_reaches(type_columns(q), MOST_COLUMNS * rule->attr.delta.key_heads + 1);
    return few && by_head && whole &&
           (starts < 0 || extent_reaches(mul_counts(sequences, heads), LEAST_BLOCKS));
}

void delta_norm_join(struct grouper *gr, struct group *q)
{
    const struct node *rule = &gr->g->node[q->p.root];
    struct delta_norm of;
    if (!gr->opt->fuse || gr->opt->invariant || node_result(rule) || !suits(gr, rule)) return;
    if (!delta_norm_find(gr, rule, q->p.root, &of) || group_depends(gr, of.z, q)) return;
    for (int i = 0; i < of.members; i++)
        if (gr->site[of.member[i]].role != ROLE_FREE || gr->site[of.member[i]].is_const) return;
    for (int i = 0; i < of.members; i++) group_join(gr, q, of.member[i]);
}
