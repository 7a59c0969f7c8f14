/*
 * conv1d_step.c -- a causal convolution of one token, in the epilogue of the product that makes its row.
 *
 *     y = conv1d(x[:, a:b], w, bias, before, starts);   before' = the last rows of before and x
 *
 * x is a product of one row, and column by column y wants a few numbers: those of the rows before, the
 * weights. To the product they are vectors of columns. So y and the state's next version join it, in the
 * range of x's columns, as loads, maps and stores: a column's state is written behind y by the thread that
 * has it, and nobody else reads it. A launch less, and x need not be stored for it. Sums are of the same
 * order as in conv1d.cuh; x is not rounded on its way to y.
 *
 * `starts` of one sequence say whether the row is its own: if not y is 0 and the state stays. A product has
 * one such convolution, and of more rows none: a row of them would wait for the one ahead.
 */
#include "writer.h"

#include <string.h>

/* ---- What joins ---- */

/* The other result of the call of y, which nobody but one node reads; -1: there is none. */
static int other_result(const struct grouper *gr, int y)
{
    const struct node *node = gr->g->node, *n = &node[y];
    const struct uses *u = &gr->uses;
    for (int i = u->at[n->in[CONV1D_X]]; i < u->at[n->in[CONV1D_X] + 1]; i++) {
        int after = u->use[i].node;
        if (after == y || !node_same_call(n, &node[after]) || !node_result(&node[after])) continue;
        return uses_count(u, after) == 1 && node[after].output < 0 ? after : -1;
    }
    return -1;
}

/* Finds what the state becomes; false: nothing, or others read it as it was. */
static bool find_state(const struct grouper *gr, struct conv1d_step *c)
{
    const graph *g = gr->g;
    const struct uses *u = &gr->uses;
    int before = g->node[c->y].in[CONV1D_BEFORE];
    c->after = before < 0 ? -1 : other_result(gr, c->y);
    if (c->after < 0) return false;
    c->version = u->use[u->at[c->after]].node;
    const struct node *v = &g->node[c->version];
    bool next = v->op == OP_ASSIGN && v->in[ASSIGN_VALUE] == c->after && v->in[ASSIGN_STATE] == before;
    for (int i = u->at[before]; i < u->at[before + 1] && next; i++) {
        int reader = u->use[i].node;
        next = reader == c->y || reader == c->after || reader == c->version;
    }
    bool free = gr->site[c->after].role == ROLE_FREE && gr->site[c->version].role == ROLE_FREE;
    return next && free && v->output < 0;
}

/* Is what the convolution has beside x there before the product, and what has to be ahead of the version? */
static bool is_ahead(struct grouper *gr, const struct group *q, const struct conv1d_step *c)
{
    const struct node *n = &gr->g->node[c->y], *version = &gr->g->node[c->version];
    for (int i = CONV1D_W; i < n->nin; i++)
        if (n->in[i] >= 0 && (gr->view[n->in[i]].base < 0 || group_depends(gr, n->in[i], q))) return false;
    for (int i = 0; i < version->nin; i++) {
        int ahead = version->in[i];
        bool own = ahead == c->y || ahead == c->after;
        if (ahead >= 0 && !own && group_depends(gr, ahead, q)) return false;
    }
    return true;
}

static bool is_one_token(const struct group *q, const graph *g, const struct node *n)
{
    int starts = n->in[CONV1D_STARTS];
    bool one = starts < 0 || extents_equal(g->node[starts].type.dim[0], 2);
    return one && extent_is_one(q->p.dim[0]) && extent_is_one(q->p.dim[1]) &&
           !extent_reaches(type_columns(&g->node[n->in[CONV1D_W]].type), MOST_TAPS + 1);
}

/* Some of the columns are a range of whole spans; else all of them are meant. */
static bool open_range(struct group *q, const struct spot *p, int *range)
{
    bool all = extents_equal(p->columns, q->p.dim[2]);
    if (!all && !q->p.segment) q->p.segment = SEGMENT_SPAN;
    if (q->p.segment && !segment_is_whole(&q->p, p->first, p->columns)) return false;
    *range = segment_range(&q->p, p->first, p->columns);
    return *range >= 0;
}

static void add_member(struct grouper *gr, struct group *q, int value, int range)
{
    group_join(gr, q, value);
    gr->site[value].range = range;
}

bool conv1d_joins(struct grouper *gr, struct group *q, int value)
{
    const graph *g = gr->g;
    const struct node *n = &g->node[value];
    struct conv1d_step c = {.y = value};
    struct spot p;
    int range = 0;
    if (node_result(n) || q->conv1d || gr->opt->invariant || !is_one_token(q, g, n)) return false;
    if (q->p.pair != PAIR_NONE || !spot_of(gr, q, n->in[CONV1D_X], &p) || p.segmented) return false;
    if (!find_state(gr, &c) || !is_ahead(gr, q, &c)) return false;
    if (!group_can_store(gr, q, value) || !open_range(q, &p, &range)) return false;
    if (!(q->conv1d = ARENA_NEW(&gr->plan->arena, struct conv1d_step, 1))) return false;
    *q->conv1d = c;
    add_member(gr, q, value, range);
    add_member(gr, q, c.after, range);
    add_member(gr, q, c.version, range);
    q->loads += MOST_TAPS;
    q->stores += MOST_TAPS;
    return true;
}

/* ---- Steps ---- */

/* A vector of columns, or one number, of what `value` has from element `first` on. */
static int load(struct writer *w, const struct node *n, int operand, int64_t first, int64_t stride, bool one)
{
    const struct type *whole = &w->gr->g->node[n->in[operand]].type;
    struct type t = {.dtype = whole->dtype, .rank = !one, .dim = {type_columns(&n->type)}};
    int64_t strides[CODA_MAX_RANK] = {stride};
    return load_by(w, n->in[operand], first, &t, strides, &n->type);
}

struct operand_step {
    int step;
    float number; /* IMMEDIATE */
};

static int map_of(struct writer *w, const char *name, int n, const struct operand_step *in)
{
    struct step s = {
        .kind = STEP_MAP, .prim = prim_find(name), .nin = n, .port = -1, .value = w->q->conv1d->y};
    int first = -1;
    for (int i = 0; i < n; i++) {
        s.in[i] = in[i].step, s.immediate[i] = in[i].number;
        if (in[i].step == IMMEDIATE) continue;
        enum step_class c = w->p->step[in[i].step].cls;
        s.cls = first < 0 || c == s.cls ? c : CLASS_TILE;
        first = i;
    }
    return add_step(w, s);
}

static int map_two(struct writer *w, const char *name, int x, int y)
{
    return map_of(w, name, 2, (struct operand_step[]){{x, 0}, {y, 0}});
}

static int map_number(struct writer *w, const char *name, int x, float y)
{
    return map_of(w, name, 2, (struct operand_step[]){{x, 0}, {IMMEDIATE, y}});
}

/* Is the row the sequence's? -1: it is. */
static int is_own_row(struct writer *w, const struct node *n)
{
    if (n->in[CONV1D_STARTS] < 0) return -1;
    int64_t stride = w->gr->view[n->in[CONV1D_STARTS]].stride[0];
    int first = load(w, n, CONV1D_STARTS, 0, 0, true), end = load(w, n, CONV1D_STARTS, stride, 0, true);
    return map_two(w, "logical_and", map_number(w, "less_equal", first, 0),
                   map_number(w, "greater_equal", end, 1));
}

static int if_own(struct writer *w, int own, int x, int otherwise)
{
    if (own < 0) return x;
    struct operand_step in[] = {{own, 0}, {x, 0}, {otherwise, 0}};
    return map_of(w, "where", 3, in);
}

/* The rows that a sum is of: those before, by an operand's last two strides, then x. */
static void write_rows(struct writer *w, const struct node *n, int kept, int *row)
{
    int before = n->in[CONV1D_BEFORE], rank = w->gr->g->node[before].type.rank;
    const int64_t *stride = w->gr->view[before].stride;
    for (int j = 0; j < kept; j++)
        row[j] = load(w, n, CONV1D_BEFORE, j * stride[rank - 2], stride[rank - 1], false);
    row[kept] = write_operand(w, n, CONV1D_X, &n->type);
}

static int write_sum(struct writer *w, const struct node *n, int kept, const int *row)
{
    int bias = n->in[CONV1D_BIAS], sum = -1;
    const int64_t *taps = w->gr->view[n->in[CONV1D_W]].stride;
    if (bias >= 0) sum = load(w, n, CONV1D_BIAS, 0, w->gr->view[bias].stride[0], false);
    for (int j = 0; j <= kept; j++) {
        int by = load(w, n, CONV1D_W, j * taps[1], taps[0], false), part = map_two(w, "mul", by, row[j]);
        sum = sum < 0 ? part : map_two(w, "add", part, sum);
    }
    return sum;
}

static int kept_rows(const graph *g, const struct conv1d_step *c)
{
    return (int)type_columns(&g->node[g->node[c->y].in[CONV1D_W]].type) - 1;
}

int write_conv1d_step(struct writer *w, int value)
{
    struct conv1d_step *c = w->q->conv1d;
    const struct node *n = &w->gr->g->node[c->y];
    int kept = kept_rows(w->gr->g, c), row[MOST_TAPS];
    if (value != c->y) return c->row[kept - 1];
    int own = is_own_row(w, n);
    write_rows(w, n, kept, row);
    int sum = write_sum(w, n, kept, row);
    for (int j = 0; j < kept; j++) c->row[j] = if_own(w, own, row[j + 1], row[j]);
    return if_own(w, own, sum, IMMEDIATE);
}

void store_conv1d_state(struct writer *w, int version, int buffer)
{
    const struct conv1d_step *c = w->q->conv1d;
    const struct node *n = &w->gr->g->node[version];
    int rank = n->type.rank, kept = kept_rows(w->gr->g, c);
    const struct type row = {.dtype = n->type.dtype, .rank = 1, .dim = {type_columns(&n->type)}};
    int64_t stride[CODA_MAX_RANK] = {n->stride[rank - 1]};
    for (int j = 0; j < kept; j++) {
        struct tensor_use port = port_new(USE_STORE, buffer, j * n->stride[rank - 2], row.dtype, version);
        struct step s = {.kind = STEP_STORE, .cls = CLASS_TILE, .nin = 1, .value = version};
        port.version = w->gr->site[version].version;
        if (!domain_strides(w->q, &row, stride, &row, port.stride))
            w->status = fail(CODA_E_UNSUPPORTED, "plan: a state of %%%d has no strides", c->y);
        s.in[0] = c->row[j];
        s.port = add_port(w, port);
        add_step(w, s);
    }
}
