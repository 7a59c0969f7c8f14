/*
 * conv1d_rows.c -- a causal convolution of many rows, in the epilogue of the product that makes them.
 *
 *     y = conv1d(x[:, a:b], w, bias, before)
 *
 * A row wants those above it. A warpgroup of the product has EDGE_PERIOD of them in registers, and computes
 * y, and a map of it, for all but the first few, above which it sees zeros. It also leaves these first rows
 * of x and those in front of them, the edges: the convolution's own program, which is launched all the same,
 * computes by them the rows that are wrong, and what a sequence leaves. So x is not stored, and that program
 * reads 6 rows of 128 instead of all.
 *
 * Rows of x are rounded as a tensor would hold them, and sums are of the same order: bits are those of the
 * convolution by itself, so whether it is done so may depend on the number of rows. Sequences begin where
 * periods do, or are one; packed ones begin anywhere, and are not computed so.
 */
#include "writer.h"

#include <string.h>

/* It pays from so many rows on, and elements of x that are neither stored nor read. */
enum { LEAST_ROWS = 1024, LEAST_ELEMENTS = 1 << 22 };

/* Is it there before any program runs? */
static bool is_given(const struct grouper *gr, int value)
{
    int base = value < 0 ? -1 : gr->view[value].base;
    return value < 0 || (base >= 0 && (gr->site[base].role == ROLE_LEAF || gr->site[base].is_const));
}

/* Do the nodes of the call of y alone read x? */
static bool reads_alone(const struct grouper *gr, int y, int x)
{
    const struct uses *u = &gr->uses;
    const struct node *n = &gr->g->node[y];
    for (int i = u->at[x]; i < u->at[x + 1]; i++)
        if (!node_same_call(n, &gr->g->node[u->use[i].node])) return false;
    return gr->g->node[x].output < 0;
}

/* Is the member the product, or maps of it, rows' and columns' values? */
static bool is_made_of_sums(const struct grouper *gr, const struct group *q, int member)
{
    const struct node *n = &gr->g->node[member];
    struct spot p;
    if (member == q->p.root) return true;
    if (n->op == OP_SLICE) return spot_of(gr, q, n->in[VIEW_OF], &p) && is_made_of_sums(gr, q, p.member);
    if (n->op != OP_MAP && n->op != OP_CAST) return false;
    for (int i = 0; i < n->nin; i++) {
        const struct type *t = &gr->g->node[n->in[i]].type;
        bool inside = spot_of(gr, q, n->in[i], &p);
        bool tile = !inside && extent_reaches(type_columns(t), 2) && group_has_rows(gr, n->in[i]);
        if (inside ? !is_made_of_sums(gr, q, p.member) : tile) return false;
    }
    return true;
}

/* Has the call sequences that begin where periods do, enough rows, and what the product's operands are? */
static bool suits_edges(const struct grouper *gr, const struct group *q, const struct node *n)
{
    const struct type *x = &gr->g->node[n->in[CONV1D_X]].type, *taps = &gr->g->node[n->in[CONV1D_W]].type;
    int64_t columns = type_columns(x), time = x->dim[x->rank == 3];
    bool whole = x->rank == 2 || extent_is_one(x->dim[0]) || extent_is_multiple(time, EDGE_PERIOD);
    bool types = x->dtype == q->p.a.dtype && n->type.dtype == x->dtype && dtype_is_half(x->dtype);
    bool many = extent_reaches(time, EDGE_PERIOD) && extent_reaches(q->p.dim[1], LEAST_ROWS) &&
                extent_reaches(mul_counts(q->p.dim[1], columns), LEAST_ELEMENTS);
    return n->in[CONV1D_STARTS] < 0 && whole && types && many && extent_is_multiple(columns, SEGMENT_SPAN) &&
           extent_reaches(type_columns(taps), 2) && !extent_reaches(type_columns(taps), MOST_TAPS + 1);
}

static bool suits_product(const struct grouper *gr, const struct group *q)
{
    return q->p.kind == PROGRAM_GEMM && gr->opt->fuse && !q->conv1d && !q->conv1d_rows &&
           q->p.pair == PAIR_NONE && extent_is_one(q->p.dim[0]) && operand_is_plain(&q->p.a) &&
           operand_is_plain(&q->p.b) && program_fits_units(&q->p, &gr->opt->target);
}

/* Are these columns whole spans, of which the product's last one may be a part? */
static bool is_whole(const struct program *p, int64_t first, int64_t end)
{
    int64_t span = program_span(p);
    return extent_is_multiple(first, span) &&
           (extent_is_multiple(end, span) || extents_equal(end, p->dim[2]));
}

/* Some of the columns are a range of whole spans; else all of them are meant. */
static bool open_range(struct group *q, const struct spot *p, int *range)
{
    bool all = extents_equal(p->columns, q->p.dim[2]);
    if (!all && !q->p.segment) q->p.segment = SEGMENT_SPAN;
    if (q->p.segment && !is_whole(&q->p, p->first, p->first + p->columns)) return false;
    *range = segment_range(&q->p, p->first, p->columns);
    return *range >= 0;
}

void conv1d_rows_try(struct grouper *gr, struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    struct spot p;
    int range = 0;
    if (n->op != OP_CONV1D || node_result(n) || !suits_product(gr, q) || gr->site[value].role != ROLE_FREE)
        return;
    if (!spot_of(gr, q, n->in[CONV1D_X], &p) || p.segmented || !is_made_of_sums(gr, q, p.member)) return;
    if (!suits_edges(gr, q, n) || !reads_alone(gr, value, n->in[CONV1D_X])) return;
    if (!is_given(gr, n->in[CONV1D_W]) || !is_given(gr, n->in[CONV1D_BIAS])) return;
    struct trial trial = trial_begin(q);
    if (!trial_end(&trial, open_range(q, &p, &range))) return;
    if (!(q->conv1d_rows = ARENA_NEW(&gr->plan->arena, struct conv1d_rows, 1))) return;
    *q->conv1d_rows = (struct conv1d_rows){value, -1, range, -1, q->p.dim[1]};
    q->loads += MOST_TAPS + 1;
    q->stores += 2;
}

/* ---- Lowering ---- */

/* The value that is stored for y. */
static int last_of(const struct conv1d_rows *c) { return c->map >= 0 ? c->map : c->y; }

/* As polynomials say it: rows in periods, and two of these more. */
static int add_edges(struct grouper *gr, const struct conv1d_rows *c)
{
    const struct node *n = &gr->g->node[c->y];
    int64_t above = type_columns(&gr->g->node[n->in[CONV1D_W]].type) - 1, columns = type_columns(&n->type);
    int64_t each = dtype_bytes(n->type.dtype, mul_counts(2 * above, columns)) / EDGE_PERIOD;
    struct buffer b = {.space = SPACE_WORK, .value = n->in[CONV1D_X], .first = -1, .last = -1};
    b.bytes = mul_counts(add_counts(c->rows, 2 * EDGE_PERIOD), each);
    return plan_add_buffer(gr->plan, b);
}

/* ---- What is left of the product ---- */

/* Do all that read the member, outside the program, read columns of it that are not in the range? */
static bool reads_rest(const struct writer *w, int member, const struct column_range *r, int x)
{
    const struct uses *u = &w->gr->uses;
    const graph *g = w->gr->g;
    if (g->node[member].output >= 0) return false;
    for (int i = u->at[member]; i < u->at[member + 1]; i++) {
        int n = u->use[i].node;
        const struct node *s = &g->node[n];
        if (n == x || group_holds(w->gr, w->q, n)) continue;
        if (w->gr->site[n].role != ROLE_VIEW) return false;
        if (s->op == OP_RESHAPE &&
            extents_equal(type_columns(&s->type), type_columns(&g->node[member].type))) {
            if (!reads_rest(w, n, r, x)) return false;
            continue;
        }
        int64_t first = s->attr.slice.start, end = first + type_columns(&s->type);
        if (!is_column_slice(s) || (extent_reaches(end, r->first + 1) && !extent_reaches(first, r->end)))
            return false;
    }
    return true;
}

bool conv1d_stores_rest(const struct writer *w, int value, struct column_range *rest)
{
    const struct conv1d_rows *c = w->q->conv1d_rows;
    const struct program *p = w->p;
    if (!c || !c->range || p->kind != PROGRAM_GEMM || w->gr->site[value].range ||
        w->gr->site[value].segmented)
        return false;
    const struct column_range *r = &p->range[c->range - 1];
    int64_t columns = type_columns(&w->gr->g->node[value].type);
    if (!extents_equal(columns, p->dim[2])) return false;
    if (!reads_rest(w, value, r, w->gr->g->node[c->y].in[CONV1D_X])) return false;
    rest[0] = (struct column_range){0, r->first};
    rest[1] = (struct column_range){r->end, columns};
    struct program trial = *p;
    for (int i = 0; i < 2; i++) {
        bool any = extent_reaches(rest[i].end, rest[i].first + 1);
        if (any && (!is_whole(&trial, rest[i].first, rest[i].end) ||
                    segment_range(&trial, rest[i].first, rest[i].end - rest[i].first) <= 0))
            return false;
    }
    return true;
}

/* The map of y that its own program computes; -1: none. */
static int map_of(const struct grouper *gr, const struct group *own)
{
    for (int m = own->first; m >= 0; m = gr->site[m].next)
        if (gr->g->node[m].op == OP_MAP) return m;
    return -1;
}

/* May the product store it, too, where it will lie? */
static bool is_stored_once(const struct grouper *gr, const struct group *q, int value)
{
    int o = gr->g->node[value].output;
    return (o < 0 || !gr->g->output[o].add) && group_can_store(gr, q, value);
}

void conv1d_rows_begin(struct grouper *gr)
{
    for (int i = 0; i < gr->groups; i++) {
        struct group *q = gr->group[i];
        struct conv1d_rows *c = q->p.kind == PROGRAM_GEMM ? q->conv1d_rows : NULL;
        if (!c) continue;
        const struct site *s = &gr->site[c->y];
        struct group *own = s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
        bool good = own && own->p.kind == PROGRAM_OWN && own->p.root == c->y && q->p.pair == PAIR_NONE;
        if (good) c->map = map_of(gr, own);
        if (!good || !is_stored_once(gr, q, last_of(c))) {
            q->conv1d_rows = NULL;
            group_close(gr, q);
            continue;
        }
        c->edges = add_edges(gr, c);
        own->conv1d_rows = c;
        gr->site[last_of(c)].version = 1;
    }
}

struct tensor_use conv1d_edges(struct writer *w, enum use_role role)
{
    const struct node *n = &w->gr->g->node[w->q->conv1d_rows->y];
    struct tensor_use u = port_new(role, w->q->conv1d_rows->edges, 0, n->type.dtype, n->in[CONV1D_X]);
    if (role == USE_OPERAND) u.stride[1] = type_columns(&n->type), u.stride[2] = 1;
    return u;
}

/* A vector of columns, from element `first` on. */
static int load(struct writer *w, const struct node *n, int operand, int64_t first, int64_t stride)
{
    const struct type *whole = &w->gr->g->node[n->in[operand]].type;
    struct type t = {.dtype = whole->dtype, .rank = 1, .dim = {type_columns(&n->type)}};
    int64_t strides[CODA_MAX_RANK] = {stride};
    return load_by(w, n->in[operand], first, &t, strides, &n->type);
}

static int write_sum(struct writer *w, const struct node *n, int value)
{
    const struct view *taps = &w->gr->view[n->in[CONV1D_W]];
    struct step s = {.kind = STEP_CONV1D, .cls = CLASS_TILE, .nin = READS_TAPS, .value = value};
    s.in[READS_X] = write_operand(w, n, CONV1D_X, &n->type);
    s.in[READS_BIAS] = -1;
    if (n->in[CONV1D_BIAS] >= 0)
        s.in[READS_BIAS] = load(w, n, CONV1D_BIAS, 0, w->gr->view[n->in[CONV1D_BIAS]].stride[0]);
    for (int j = 0; j < type_columns(&w->gr->g->node[n->in[CONV1D_W]].type); j++)
        s.in[s.nin++] = load(w, n, CONV1D_W, j * taps->stride[1], taps->stride[0]);
    s.port = add_port(w, conv1d_edges(w, USE_EDGES));
    return add_step(w, s);
}

static int write_map_of(struct writer *w, int sum, int map)
{
    const struct node *n = &w->gr->g->node[map];
    struct step s = {
        .kind = STEP_MAP, .cls = CLASS_TILE, .prim = n->prim, .nin = 1, .port = -1, .value = map};
    s.in[0] = sum;
    memcpy(s.param, n->attr.map.param, sizeof s.param);
    return add_step(w, s);
}

void write_conv1d_rows(struct writer *w)
{
    const struct conv1d_rows *c = w->q->conv1d_rows;
    const struct node *n = &w->gr->g->node[c->y];
    int value = last_of(c);
    const struct type *t = &w->gr->g->node[value].type;
    int64_t dense[CODA_MAX_RANK];
    w->range = c->range;
    int sum = write_sum(w, n, c->y);
    if (c->map >= 0) sum = write_map_of(w, sum, c->map);
    struct tensor_use port = port_new(USE_STORE, buffer_of(w->gr, value), 0, t->dtype, value);
    struct step s = {.kind = STEP_STORE, .cls = CLASS_TILE, .nin = 1, .value = value};
    dense_strides(t, dense);
    if (!domain_strides(w->q, t, dense, t, port.stride))
        w->status = fail(CODA_E_UNSUPPORTED, "plan: %%%d cannot be stored by its program's domain", value);
    s.in[0] = sum;
    s.port = add_port(w, port);
    add_step(w, s);
}
