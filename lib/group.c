/*
 * group.c -- cut a graph into programs.
 *
 * Each matmul and each attention roots a program; a matmul's program then takes in, in topological
 * order, whatever its epilogue can compute while the tile is in registers: maps, casts, row
 * reductions, one pairing (rope or gating). What is left roots rows programs that grow the same way.
 * A node joins only if its other operands do not depend on the program, so programs have an order.
 */
#include "group.h"

#include <string.h>

enum { MOST_MEMBERS = 32, MOST_LOADS = 16 };

/* ---- Shapes against domains ---- */

static int64_t rows_of(const struct group *q)
{
    return q->p.kind == PROGRAM_GEMM ? q->p.dim[0] * q->p.dim[1] : type_rows(&q->domain);
}

bool group_rows_match(const struct group *q, const struct type *t) { return type_rows(t) == rows_of(q); }

struct type group_operand_type(const graph *g, const struct node *n, int i)
{
    const struct type *t = &g->node[n->in[i]].type;
    bool key = (n->op == OP_ROPE || n->op == OP_EMBEDDING || n->op == OP_REDUCE) && i == 1;
    if (!key) return *t;
    if (n->op == OP_REDUCE && t->rank == g->node[n->in[0]].type.rank) return *t;
    return type_as_rows(t);
}

/* [batch, M, N] of a value of the epilogue: its leading dimensions are M, or batch and M. */
static bool gemm_split(const struct group *q, const struct type *t, int *rows)
{
    *rows = q->p.dim[0] == 1 ? 0 : t->rank - 2;
    if (*rows < 0 || type_rows(t) != rows_of(q)) return false;
    return q->p.dim[0] == 1 || t->dim[t->rank - 2] == q->p.dim[1];
}

static bool gemm_strides(const struct group *q, const struct type *t, const int64_t *s, int64_t *out)
{
    int rows;
    if (!gemm_split(q, t, &rows)) return false;
    out[2] = t->rank ? s[t->rank - 1] : 0;
    return view_collapse(t, s, 0, rows, &out[0]) &&
           view_collapse(t, s, rows, MAX(t->rank - 1, rows), &out[1]);
}

bool group_strides(const struct group *q, const struct type *t, const int64_t *s, const struct type *as,
                   int64_t *out)
{
    int64_t wide[CODA_MAX_RANK] = {0};
    if (t->rank > as->rank) return false;
    if (as->rank == 0) {
        memset(out, 0, sizeof *out * CODA_MAX_RANK);
        return true;
    }
    view_broadcast(t, s, as, wide);
    memset(out, 0, sizeof *out * CODA_MAX_RANK);
    if (q->p.kind == PROGRAM_GEMM) return gemm_strides(q, as, wide, out);
    if (as->rank != q->domain.rank) return false;
    memcpy(out, wide, sizeof wide);
    return true;
}

enum shape { SHAPE_NO, SHAPE_TILE, SHAPE_HALF, SHAPE_ROW };

static enum shape gemm_shape(const struct group *q, const struct type *t)
{
    int rows;
    if (t->rank == 0 || !gemm_split(q, t, &rows)) return SHAPE_NO;
    int64_t columns = type_columns(t), n = q->p.dim[2];
    if (columns == n) return SHAPE_TILE;
    bool glu = q->p.pair == PAIR_GLU_INTERLEAVED || q->p.pair == PAIR_GLU_STACKED;
    return glu && columns * 2 == n ? SHAPE_HALF : SHAPE_NO;
}

static enum shape rows_shape(const struct group *q, const struct type *t)
{
    if (t->rank != q->domain.rank || t->rank == 0) return SHAPE_NO;
    for (int d = 0; d + 1 < t->rank; d++)
        if (t->dim[d] != q->domain.dim[d]) return SHAPE_NO;
    int64_t columns = type_columns(t);
    return columns == type_columns(&q->domain) ? SHAPE_TILE : columns == 1 ? SHAPE_ROW : SHAPE_NO;
}

static enum shape shape_in(const struct group *q, const struct type *t)
{
    return q->p.kind == PROGRAM_GEMM ? gemm_shape(q, t) : rows_shape(q, t);
}

/* ---- Where operands come from ---- */

static bool is_member(const struct grouper *gr, const struct group *q, int value)
{
    return gr->site[value].role == ROLE_MEMBER && &gr->group[gr->site[value].group] == q;
}

/* A reshape that only regroups rows is the same tile. */
static int same_tile(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    while (q->p.kind == PROGRAM_GEMM && g->node[value].op == OP_RESHAPE && g->node[value].type.rank > 0 &&
           type_columns(&g->node[value].type) == type_columns(&g->node[g->node[value].in[0]].type))
        value = g->node[value].in[0];
    return value;
}

/* Is slice s half of the columns of the value it cuts, as gate and up lie? */
static bool is_lane(const graph *g, const struct node *s, struct source *out)
{
    const struct type *t = &g->node[s->in[0]].type;
    int64_t n = type_columns(t), start = s->attr.i[1], step = MAX(s->attr.i[3], 1);
    if (s->op != OP_SLICE || s->attr.i[0] != t->rank - 1 || n < 2 || n % 2) return false;
    if (type_columns(&s->type) * 2 != n) return false;
    bool stacked = step == 1 && (start == 0 || start == n / 2), interleaved = step == 2 && start <= 1;
    if (n == 2) interleaved = stacked ? false : interleaved;
    out->pair = stacked ? PAIR_GLU_STACKED : PAIR_GLU_INTERLEAVED;
    out->lane = start != 0;
    return stacked || interleaved;
}

struct source group_source(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    struct source s = {.kind = SOURCE_OUTSIDE, .value = value};
    int tile = same_tile(gr, q, value);
    if (is_member(gr, q, tile)) {
        bool lost = q->p.kind == PROGRAM_GEMM && g->node[tile].op == OP_REDUCE;
        s.kind = lost ? SOURCE_NONE : SOURCE_MEMBER;
        s.value = tile;
        return s;
    }
    if (q->p.kind != PROGRAM_GEMM || g->node[tile].op != OP_SLICE) return s;
    int full = same_tile(gr, q, g->node[tile].in[0]);
    if (!is_member(gr, q, full) || g->node[full].op == OP_REDUCE || !is_lane(g, &g->node[tile], &s)) return s;
    if (gemm_shape(q, &g->node[full].type) != SHAPE_TILE) return s;
    s.kind = SOURCE_LANE;
    s.value = full;
    return s;
}

/* ---- Order ---- */

static void visit(struct grouper *gr, int value, int *stack, int *top)
{
    struct site *s = &gr->site[value];
    if (s->seen == gr->mark) return;
    s->seen = gr->mark;
    stack[(*top)++] = value;
}

static void visit_operands(struct grouper *gr, int value, int *stack, int *top)
{
    const struct node *n = &gr->g->node[value];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0) visit(gr, n->in[i], stack, top);
}

/* Does computing `value` need the program of group q? A program needs what any of its members needs. */
static bool depends_on(struct grouper *gr, int value, const struct group *q)
{
    int *stack = gr->stack, top = 0;
    gr->mark++;
    visit(gr, value, stack, &top);
    while (top) {
        int v = stack[--top];
        const struct site *s = &gr->site[v];
        if (s->role != ROLE_MEMBER) {
            visit_operands(gr, v, stack, &top);
            continue;
        }
        struct group *other = &gr->group[s->group];
        if (other == q) return true;
        if (other->seen == gr->mark) continue;
        other->seen = gr->mark;
        for (int m = other->first; m >= 0; m = gr->site[m].next) visit_operands(gr, m, stack, &top);
    }
    return false;
}

/* ---- Joining ---- */

static void join(struct grouper *gr, struct group *q, int value)
{
    struct site *s = &gr->site[value];
    s->role = ROLE_MEMBER;
    s->group = (int)(q - gr->group);
    s->next = -1;
    if (q->first < 0) q->first = value;
    else gr->site[q->last].next = value;
    q->last = value;
    q->members++;
    s->partial = q->p.kind == PROGRAM_GEMM && gr->g->node[value].op == OP_REDUCE;
}

static bool outside_ok(struct grouper *gr, struct group *q, const struct node *n, int i)
{
    int value = n->in[i];
    struct type t = group_operand_type(gr->g, n, i), as = n->type;
    int64_t out[CODA_MAX_RANK];
    struct view v;
    if (n->op == OP_REDUCE) as.dim[as.rank - 1] = type_columns(&gr->g->node[n->in[0]].type);
    if (!view_of(gr->g, value, &v) || !group_strides(q, &t, v.stride, &as, out)) return false;
    return !depends_on(gr, value, q);
}

/* Another statistic of a tensor that a rows program walks anyway. */
static bool is_sibling(const struct grouper *gr, const struct group *q, const struct node *n)
{
    if (q->p.kind != PROGRAM_ROWS || n->op != OP_REDUCE) return false;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        for (int i = 0; i < gr->g->node[m].nin; i++)
            if (gr->g->node[m].in[i] == n->in[0]) return true;
    return false;
}

/* The operands of n: some inside the group, the rest reachable from outside. */
static bool operands_ok(struct grouper *gr, struct group *q, const struct node *n, enum pair_kind *pair,
                        int *full)
{
    int inside = 0, lanes = 0;
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        struct source s = group_source(gr, q, n->in[i]);
        if (s.kind == SOURCE_NONE) return false;
        inside += s.kind == SOURCE_MEMBER || s.kind == SOURCE_LANE;
        if (s.kind == SOURCE_OUTSIDE && !outside_ok(gr, q, n, i)) return false;
        if (s.kind != SOURCE_LANE) continue;
        if (lanes++ && (s.pair != *pair || s.value != *full)) return false;
        *pair = s.pair;
        *full = s.value;
    }
    return inside > 0 || is_sibling(gr, q, n);
}

static bool try_pair(struct group *q, enum pair_kind pair, int full)
{
    if (q->p.pair == pair && (pair == PAIR_NONE || q->paired == full)) return true;
    if (q->p.pair != PAIR_NONE) return false;
    q->p.pair = pair;
    q->paired = full;
    if (tile_pairs_ok(&q->p)) return true;
    q->p.pair = PAIR_NONE;
    q->paired = -1;
    return false;
}

static struct rope_spec rope_of(const graph *g, const struct node *n)
{
    const struct type *t = &g->node[n->in[0]].type;
    int64_t head_dim = n->attr.i[0] ? n->attr.i[0] : type_columns(t);
    return (struct rope_spec){
        .head_dim = head_dim,
        .rotary = n->attr.i[1] ? n->attr.i[1] : head_dim,
        .heads = n->attr.i[2] ? n->attr.i[2] : head_dim ? type_columns(t) / head_dim : 0,
        .half = n->attr.i[3] != 0,
        .base = n->attr.f[0],
        .period = t->rank >= 2 ? t->dim[t->rank - 2] : 1,
    };
}

static bool try_rope(struct grouper *gr, struct group *q, const struct node *n)
{
    struct source s = group_source(gr, q, n->in[0]);
    if (s.kind != SOURCE_MEMBER || q->p.pair != PAIR_NONE) return false;
    q->p.rope = rope_of(gr->g, n);
    return try_pair(q, PAIR_ROPE, s.value);
}

/* Every place that the value must be stored to is a matrix over the group's domain. */
static bool stores_ok(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    const struct type *t = &g->node[value].type;
    int64_t out[CODA_MAX_RANK], stride[CODA_MAX_RANK];
    for (int i = 0; i < g->outputs; i++)
        if (g->output[i].value == value && !group_strides(q, t, g->output[i].stride, t, out)) return false;
    for (int c = value + 1; c < g->nodes; c++)
        for (int i = 0; g->node[c].op == OP_CONCAT && i < g->node[c].nin; i++) {
            dense_strides(&g->node[c].type, stride);
            if (g->node[c].in[i] == value && !group_strides(q, t, stride, t, out)) return false;
        }
    return true;
}

static bool may_join(struct grouper *gr, struct group *q, int value)
{
    const graph *g = gr->g;
    const struct node *n = &g->node[value];
    const struct node *root = &g->node[q->p.root];
    if (gr->site[value].role != ROLE_FREE || gr->site[value].is_const != gr->site[q->p.root].is_const)
        return false;
    if (!gr->opt->fuse && n->origin != root->origin) return false;
    if (q->members >= MOST_MEMBERS || q->loads + n->nin > MOST_LOADS) return false;
    if (n->op == OP_ROPE) return q->p.kind == PROGRAM_GEMM;
    return n->op == OP_MAP || n->op == OP_CAST || n->op == OP_REDUCE;
}

static bool try_join(struct grouper *gr, struct group *q, int value)
{
    const graph *g = gr->g;
    const struct node *n = &g->node[value];
    enum pair_kind pair = PAIR_NONE;
    int full = -1;
    if (!may_join(gr, q, value) || !operands_ok(gr, q, n, &pair, &full)) return false;
    enum pair_kind before = q->p.pair;
    if (pair != PAIR_NONE && !try_pair(q, pair, full)) return false;
    if (n->op == OP_ROPE && !try_rope(gr, q, n)) return false;
    const struct type *t = n->op == OP_REDUCE ? &g->node[n->in[0]].type : &n->type;
    enum shape shape = shape_in(q, t);
    bool ok = shape != SHAPE_NO && stores_ok(gr, q, value);
    if (n->op == OP_REDUCE) ok = ok && shape != SHAPE_ROW;
    if (!ok) {
        if (before == PAIR_NONE) q->p.pair = PAIR_NONE, q->paired = -1;
        return false;
    }
    join(gr, q, value);
    q->loads += n->nin - 1;
    return true;
}

static void grow(struct grouper *gr, struct group *q)
{
    const struct decision *d = plan_decision(gr->opt, q->p.root);
    if (d && d->apart) return;
    for (int i = q->p.root + 1; i < gr->g->nodes; i++) try_join(gr, q, i);
}

/* ---- Roots ---- */

static struct group *new_group(struct grouper *gr, enum program_kind kind, int root)
{
    struct group *q = &gr->group[gr->groups++];
    *q = (struct group){.first = -1, .last = -1, .paired = -1};
    q->p.kind = kind;
    q->p.root = root;
    q->p.scratch = -1;
    q->p.prepare = gr->site[root].is_const;
    join(gr, q, root);
    return q;
}

static void root_gemm(struct grouper *gr, int root)
{
    const struct node *n = &gr->g->node[root];
    struct matmul_view v;
    struct group *q = new_group(gr, PROGRAM_GEMM, root);
    struct program *p = &q->p;
    view_matmul(gr->g, n, &v);
    p->rank = 3;
    p->dim[0] = v.batch;
    p->dim[1] = v.m;
    p->dim[2] = v.n;
    p->k = v.k;
    p->a = (struct operand){-1,    v.a.offset, gr->g->node[n->in[0]].type.dtype, v.a.batch, v.a.row,
                            v.a.k, false,      n->in[0]};
    p->b = (struct operand){-1,    v.b.offset, gr->g->node[n->in[1]].type.dtype, v.b.batch, v.b.row,
                            v.b.k, false,      n->in[1]};
    grow(gr, q);
}

static void root_rows(struct grouper *gr, int root)
{
    const struct node *n = &gr->g->node[root];
    struct group *q = new_group(gr, PROGRAM_ROWS, root);
    q->domain = n->op == OP_REDUCE ? gr->g->node[n->in[0]].type : n->type;
    if (q->domain.rank == 0) q->domain = type_as_rows(&q->domain);
    q->p.rank = q->domain.rank;
    memcpy(q->p.dim, q->domain.dim, sizeof q->domain.dim);
    if (n->op == OP_ROPE) q->p.rope = rope_of(gr->g, n);
    grow(gr, q);
}

static bool is_vector(const struct type *t, const struct type *whole)
{
    int64_t columns = type_columns(t);
    bool row = t->rank == whole->rank && columns == 1, col = type_elements(t) == columns;
    return row || col;
}

/* A map of [.., 1] values, one of which is still in pieces, or of a row vector and a column vector:
 * computed again by each reader. */
static bool is_inline(const struct grouper *gr, const struct node *n)
{
    if (n->op != OP_MAP || n->type.rank == 0) return false;
    bool pieces = false, outer = type_columns(&n->type) > 1 && type_rows(&n->type) > 1;
    for (int i = 0; i < n->nin; i++) {
        const struct site *s = &gr->site[n->in[i]];
        const struct type *t = &gr->g->node[n->in[i]].type;
        if (!is_vector(t, &n->type)) return false;
        pieces = pieces || s->partial || s->role == ROLE_INLINE;
    }
    return gr->opt->fuse && (outer || (pieces && type_columns(&n->type) == 1));
}

static void assign_fixed_roles(struct grouper *gr)
{
    const graph *g = gr->g;
    for (int i = 0; i < g->nodes; i++) {
        struct site *s = &gr->site[i];
        enum op op = g->node[i].op;
        s->buffer = s->state_buffer = s->group = s->next = -1;
        s->role = op_is_leaf(op)    ? ROLE_LEAF
                  : op_is_view(op)  ? ROLE_VIEW
                  : op == OP_CONCAT ? ROLE_CONCAT
                                    : ROLE_FREE;
        s->is_const = gr->opt->fold != CODA_FOLD_NONE && !op_is_leaf(op) && graph_is_const(g, i);
    }
    for (int i = 0; i < g->outputs; i++) gr->site[g->output[i].value].is_const = false;
    for (int i = 0; i < g->nodes; i++) /* what depends on a run-time value runs at run time */
        for (int j = 0; j < g->node[i].nin; j++) {
            int v = g->node[i].in[j];
            if (v >= 0 && !op_is_leaf(g->node[v].op) && !gr->site[v].is_const) gr->site[i].is_const = false;
        }
}

static coda_status check_lowered(const graph *g)
{
    for (int i = 0; i < g->nodes; i++) {
        enum op op = g->node[i].op;
        if (op == OP_RMS_NORM || op == OP_LAYER_NORM || op == OP_SOFTMAX || op == OP_CROSS_ENTROPY)
            return fail(CODA_E_UNSUPPORTED, "plan: %%%d is a %s that no rewrite lowered", i,
                        op_info[op].text);
    }
    return CODA_OK;
}

coda_status plan_group(struct plan *p, const graph *g, const struct plan_options *opt)
{
    struct grouper gr = {.g = g, .opt = opt, .plan = p};
    gr.site = ARENA_NEW(&p->arena, struct site, g->nodes);
    gr.group = ARENA_NEW(&p->arena, struct group, g->nodes + 1);
    gr.stack = ARENA_NEW(&p->arena, int, g->nodes + 1);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", g->nodes);
    coda_status status = check_lowered(g);
    if (status) return status;
    assign_fixed_roles(&gr);
    for (int i = g->nodes - 1; i >= 0; i--) /* the last product takes a value that two could take */
        if (g->node[i].op == OP_MATMUL) root_gemm(&gr, i);
    for (int i = 0; i < g->nodes; i++) {
        if (g->node[i].op == OP_ATTENTION) new_group(&gr, PROGRAM_ATTENTION, i);
        if (gr.site[i].role == ROLE_FREE && is_inline(&gr, &g->node[i])) gr.site[i].role = ROLE_INLINE;
    }
    for (int i = 0; i < g->nodes; i++)
        if (gr.site[i].role == ROLE_FREE) root_rows(&gr, i);
    return build_programs(&gr);
}
