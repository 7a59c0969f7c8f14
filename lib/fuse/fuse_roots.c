/*
 * fuse_roots.c -- cut a graph into programs: which nodes root one, and what becomes of the others.
 *
 * Each matmul roots a program, which takes in what it can (fuse.c), and so does each operation that has a
 * kernel of its own. What is left roots rows programs that grow the same way. Leaves and views need none; a
 * cheap map of vectors is left to those that read it.
 */
#include "fuse_own.h"

#include <math.h>
#include <string.h>

static struct group *root_new(struct grouper *gr, enum program_kind kind, int root)
{
    struct group *q = group_new(gr, kind, root);
    if (q) group_join(gr, q, root);
    return q;
}

static struct operand operand(const graph *g, int value, const struct matrix_view *v)
{
    return operand_of((struct tensor_use){.role = USE_OPERAND,
                                          .buffer = -1,
                                          .offset = v->offset,
                                          .dtype = g->node[value].type.dtype,
                                          .packing = {v->packed.format, v->packed.columns},
                                          .batch = v->batch,
                                          .row = v->row,
                                          .k = v->k,
                                          .value = value});
}

/* Where a single row says nothing of how far rows are apart: what others of its tensor would say. */
static int64_t pitch_of_one(const struct grouper *gr, int x, int64_t k)
{
    const struct view *v = &gr->view[x];
    int rank = gr->g->node[x].type.rank;
    int64_t stride = rank > 1 ? v->stride[rank - 2] : 0;
    return extents_equal(stride, 0) ? k : stride;
}

static struct group *grow_gemm(struct grouper *gr, int root, const struct matmul_view *v)
{
    const struct node *n = &gr->g->node[root];
    struct group *q = root_new(gr, PROGRAM_GEMM, root);
    if (!q) return NULL;
    struct program *p = &q->p;
    p->rank = 3;
    p->dim[0] = v->batch;
    p->dim[1] = v->m;
    p->dim[2] = v->n;
    p->k = v->k;
    p->a = operand(gr->g, n->in[MATMUL_X], &v->a);
    p->b = operand(gr->g, n->in[MATMUL_W], &v->b);
    if (p->invariant && extent_is_one(v->m) && extents_equal(v->a.row, 0))
        p->a.data.row = pitch_of_one(gr, n->in[MATMUL_X], v->k);
    group_grow(gr, q);
    return q;
}

static void root_gemm(struct grouper *gr, int root)
{
    const struct node *n = &gr->g->node[root];
    struct matmul_view v, samples;
    view_matmul(gr->g, n, gr->view, &v);
    bool split = samples_split(gr, root, &v, &samples);
    struct group *q = grow_gemm(gr, root, split ? &samples : &v);
    if (q && split && !samples_pay(gr, q)) {
        group_take_back(gr, q);
        q = grow_gemm(gr, root, &v);
    }
    if (!q) return;
    for (int i = 0; i < n->nin; i++) refuse_note(gr, q, n->in[i], REASON_OPERAND, -1, v.k, 0);
    give_back(gr, q);
}

/* A kernel of its own loads its operands, and stores its results. */
static void note_own(const struct grouper *gr, const struct group *q)
{
    const struct node *root = &gr->g->node[q->p.root];
    for (int i = 0; i < root->nin && !q->finishes_best; i++)
        if (root->in[i] >= 0) refuse_note(gr, q, root->in[i], REASON_OWN_READS, q->p.root, 0, 0);
    for (int m = q->first; m >= 0; m = gr->site[m].next) refuse_note(gr, q, m, REASON_OWN_WRITES, -1, 0, 0);
}

static void root_own(struct grouper *gr, int root)
{
    const struct own_kind *kind = own_kind_of(gr->g->node[root].op);
    bool roots = kind && gr->site[root].role == ROLE_FREE;
    struct group *q = roots ? root_new(gr, PROGRAM_OWN, root) : NULL;
    if (!q) return;
    q->p.own = kind;
    own_join(gr, q);
    note_own(gr, q);
}

/* Does it read the value, or what is made of it in a step or two? */
static bool comes_of(const struct grouper *gr, int reader, int value, int steps)
{
    const struct node *n = &gr->g->node[reader];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] == value || (steps && n->in[i] > value && comes_of(gr, n->in[i], value, steps - 1)))
            return true;
    return false;
}

/* Is it a statistic of columns of what a program further on may walk, which can then fold it, too? */
static bool is_walked_later(const struct grouper *gr, int value)
{
    const struct node *n = &gr->g->node[value];
    const struct uses *u = &gr->uses;
    if (!gr->opt->fuse || !node_folds_columns(n)) return false;
    for (int i = u->at[n->in[REDUCE_X]]; i < u->at[n->in[REDUCE_X] + 1]; i++) {
        int reader = u->use[i].node;
        bool rows = reader > value && gr->site[reader].role == ROLE_FREE;
        if (rows && gr->g->node[reader].op != OP_REDUCE && !comes_of(gr, reader, value, 2)) return true;
    }
    return false;
}

static void root_rows(struct grouper *gr, int root)
{
    const struct node *n = &gr->g->node[root];
    struct group *q = root_new(gr, PROGRAM_ROWS, root);
    if (!q) return;
    q->domain = *domain_walked(gr->g, n);
    if (q->domain.rank == 0) q->domain = type_as_rows(&q->domain);
    q->p.rank = q->domain.rank;
    memcpy(q->p.dim, q->domain.dim, sizeof q->domain.dim);
    pair_read(&q->p, gr->g, n);
    group_grow(gr, q);
    give_back(gr, q);
}

/* Has the value one element for each row of n, or one for each column? */
static bool is_vector(const struct grouper *gr, int value, const struct node *n)
{
    const struct type *t = &gr->g->node[value].type;
    int64_t columns = type_columns(t);
    bool row = t->rank == n->type.rank && extent_is_one(columns);
    bool col = extents_equal(type_elements(t), columns);
    if (gr->opt->invariant) col = col && !gr->site[value].rows; /* a row of one is no vector of all */
    return row || col;
}

/* Will one map read it, in whose program it and a map that it is of can be computed? */
static bool joins_reader(const struct grouper *gr, const struct node *n)
{
    int value = (int)(n - gr->g->node), at = gr->uses.at[value];
    bool joins = uses_count(&gr->uses, value) == 1 && rows_is_map(gr, gr->uses.use[at].node), made = false;
    for (int i = 0; i < n->nin; i++) made = made || rows_is_map(gr, n->in[i]);
    return joins && made && n->output < 0 &&
           extents_equal(type_elements(&gr->g->node[gr->uses.use[at].node].type), type_elements(&n->type));
}

/* Has the map n rows and columns, of which its operands have one each? */
static bool is_outer(const struct grouper *gr, const struct node *n)
{
    bool outer = extent_reaches(type_columns(&n->type), 2) && group_has_rows(gr, (int)(n - gr->g->node));
    return outer && !joins_reader(gr, n);
}

/* Bounds of what readers compute again: steps, and loads. */
enum {
    MOST_INLINE_STEPS = 32,
    MOST_INLINE_LOADS = 8,
    MOST_VECTOR_STEPS = 4,
    MOST_VECTOR_LOADS = 2,
    MOST_ELEMENT_STEPS = 12, /* of a single element: what corrects and clips a step of an optimizer */
    MOST_ELEMENT_LOADS = 4,
    MOST_CHAIN = 8
};

/* What computing map n again takes: false if it is too much. */
static bool count_again(const struct grouper *gr, const struct node *n, struct site *out, int steps,
                        int loads)
{
    out->steps = 1, out->loads = 0;
    for (int i = 0; i < n->nin; i++) {
        const struct site *s = &gr->site[n->in[i]];
        out->steps += s->role == ROLE_INLINE ? s->steps : s->role != ROLE_NUMBER;
        out->loads += s->role == ROLE_INLINE ? s->loads : s->role != ROLE_NUMBER;
    }
    return out->steps <= steps && out->loads <= loads;
}

/* Is operand i one of the caller's tensors of a number for each row of n, [.., 1]? */
static bool is_row_leaf(const struct grouper *gr, const struct node *n, int i)
{
    const struct node *leaf = &gr->g->node[n->in[i]];
    bool rows =
        leaf->type.rank == n->type.rank && extents_equal(type_elements(&leaf->type), type_elements(&n->type));
    return op_is_leaf(leaf->op) && rows;
}

static bool is_row_ids(const struct grouper *gr, const struct node *n, int i)
{
    return dtype_is_index(gr->g->node[n->in[i]].type.dtype) && is_row_leaf(gr, n, i);
}

/* Do maps alone read a number of each row, over the row's columns, perhaps through maps of such numbers? */
static bool is_spread(const struct grouper *gr, int value, int depth)
{
    const struct uses *u = &gr->uses;
    if (gr->g->node[value].output >= 0 || depth == 0) return false;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int reader = u->use[i].node;
        if (gr->g->node[reader].op != OP_MAP) return false;
        bool wide = extent_reaches(type_columns(&gr->g->node[reader].type), 2);
        if (!wide && !is_spread(gr, reader, depth - 1)) return false;
    }
    return uses_count(u, value) > 0;
}

/* Is it a number for each row, of maps, which a program further on that walks these rows may take in? */
static bool is_taken_later(const struct grouper *gr, int value)
{
    return gr->opt->fuse && rows_is_map(gr, value) && extent_is_one(type_columns(&gr->g->node[value].type)) &&
           is_spread(gr, value, MOST_CHAIN);
}

/* A map of [.., 1] values, one of which is still in pieces, or ids, as masks are, or of the caller's, if it
 * is read over columns and coda_prepare does not compute it; or of a row vector and a column vector, or of
 * columns' numbers: computed again by each reader. */
static bool is_inline(const struct grouper *gr, const struct node *n, struct site *out)
{
    if (n->op != OP_MAP || n->type.rank == 0) return false;
    bool pieces = false, counts = false, leaves = true;
    for (int i = 0; i < n->nin; i++) {
        const struct site *s = &gr->site[n->in[i]];
        if (!is_vector(gr, n->in[i], n)) return false;
        counts = counts || (gr->g->node[n->in[i]].op == OP_IOTA && extent_reaches(type_columns(&n->type), 2));
        pieces = pieces || (s->partial && !group_has_column_parts(gr, n->in[i])) || s->role == ROLE_INLINE ||
                 is_row_ids(gr, n, i);
        leaves = leaves && (s->role == ROLE_NUMBER || is_row_leaf(gr, n, i));
    }
    int value = (int)(n - gr->g->node);
    pieces = pieces || (leaves && !gr->site[value].is_const && is_spread(gr, value, MOST_CHAIN));
    if (!count_again(gr, n, out, MOST_INLINE_STEPS, MOST_INLINE_LOADS)) return false;
    return gr->opt->fuse && (is_outer(gr, n) || counts || (pieces && extent_is_one(type_columns(&n->type))));
}

/* Does the reader repeat the value: over rows, or what is given over the elements of a vector? */
static bool repeats(const struct grouper *gr, int value, int reader)
{
    const struct type *over = &gr->g->node[reader].type;
    bool vector = over->rank == 1 && extent_reaches(over->dim[0], 2);
    return group_repeats(gr, value, reader) || (vector && gr->site[value].given);
}

/* Do maps alone read the value, each over other rows than its own? To store it takes a launch, and to compute
 * one that is as small as itself again takes a few loads that threads of a row share. */
static bool is_broadcast(const struct grouper *gr, int value, int depth)
{
    const graph *g = gr->g;
    const struct type *t = &g->node[value].type;
    if (g->node[value].output >= 0 || depth == 0) return false;
    for (int i = gr->uses.at[value]; i < gr->uses.at[value + 1]; i++) {
        int reader = gr->uses.use[i].node;
        bool fits =
            group_is_one(gr, value) || extents_equal(type_columns(&g->node[reader].type), type_columns(t));
        if (g->node[reader].op != OP_MAP || !fits) return false;
        if (!repeats(gr, value, reader) && !is_broadcast(gr, reader, depth - 1)) return false;
    }
    return uses_count(&gr->uses, value) > 0;
}

/* A map of vectors, of all rows or of each sample's, which all of its readers broadcast: 1 + scale. */
static bool is_vector_map(const struct grouper *gr, int value, struct site *out)
{
    const struct node *n = &gr->g->node[value];
    if ((n->op != OP_MAP && n->op != OP_CAST) || !gr->opt->fuse || gr->site[value].is_const) return false;
    for (int i = 0; i < n->nin; i++) {
        const struct site *s = &gr->site[n->in[i]];
        if (s->partial || (s->role == ROLE_INLINE && !s->vector)) return false;
    }
    bool one = gr->site[value].given;
    int steps = one ? MOST_ELEMENT_STEPS : MOST_VECTOR_STEPS;
    return count_again(gr, n, out, steps, one ? MOST_ELEMENT_LOADS : MOST_VECTOR_LOADS) &&
           is_broadcast(gr, value, steps);
}

/* Columns' numbers, which programs of rows have anyway. */
static bool is_counted(const struct grouper *gr, int value, struct site *out)
{
    out->steps = 1, out->loads = 0;
    return gr->opt->fuse && gr->g->node[value].op == OP_IOTA;
}

/* Does a reader combine pairs of its columns, perhaps of a view? A program of rows loads both from memory. */
static bool is_paired(const struct grouper *gr, int value)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int reader = u->use[i].node;
        enum op op = gr->g->node[reader].op;
        if (op_is_view(op) ? is_paired(gr, reader) : op_combines_pairs(op) && u->use[i].operand == ROPE_X)
            return true;
    }
    return false;
}

/* What each reader computes again, instead of a program that stores it. */
static void find_inline(struct grouper *gr, int value)
{
    struct site *s = &gr->site[value];
    if (s->role != ROLE_FREE || state_is_read(gr->g, &gr->g->node[value]) || is_paired(gr, value)) return;
    s->vector = is_counted(gr, value, s) || is_vector_map(gr, value, s) || level_find(gr, value, s);
    if (s->vector || is_inline(gr, &gr->g->node[value], s)) s->role = ROLE_INLINE;
}

/* Constants, and fused what references make of them, in fp32 as kernels would. */
static bool is_number(const struct grouper *gr, const struct node *n, float *out)
{
    double in[PRIM_MAX_INPUTS] = {0}, param[PRIM_MAX_PARAMS];
    float number = n->op == OP_CONSTANT ? n->attr.constant.value : 0;
    bool map = n->op == OP_MAP && n->prim->reference;
    if (n->op != OP_CONSTANT && !(gr->opt->fuse && (map || n->op == OP_CAST))) return false;
    for (int i = 0; i < n->nin; i++) {
        if (!group_number(gr, n->in[i], &number)) return false;
        in[i] = number;
    }
    for (int i = 0; map && i < PRIM_MAX_PARAMS; i++) param[i] = n->attr.map.param[i];
    if (n->op == OP_CAST && (dtype_is_index(n->type.dtype) || dtype_is_f8(n->type.dtype))) {
        int64_t whole;
        dtype_store(n->type.dtype, &whole, 0, number);
        number = (float)dtype_load(n->type.dtype, &whole, 0);
    }
    *out = map ? (float)n->prim->reference(in, param) : number;
    return true;
}

/* As long as no symbols say which: inputs of more than a vector, and integers for each row, have rows. */
static bool is_of_rows(const struct node *n)
{
    return op_is_input(n->op) && (n->type.rank > 1 || dtype_is_index(n->type.dtype));
}

/* Statistics of columns have no rows. */
static unsigned find_rows(const struct grouper *gr, const struct node *n)
{
    unsigned rows = is_of_rows(n) ? OF_INPUTS : 0;
    bool folds = node_folds_columns(n);
    for (int i = 0; i < n->nin && !folds; i++) rows |= n->in[i] < 0 ? 0 : gr->site[n->in[i]].rows;
    return n->rows ? n->rows | (rows & OF_INPUTS) : rows;
}

/* Is it a single element, of the caller's or made of such alone? */
static bool is_given(const struct grouper *gr, int value)
{
    const struct node *n = &gr->g->node[value];
    bool given = group_is_one(gr, value) &&
                 (op_is_leaf(n->op) || n->op == OP_CONSTANT || n->op == OP_MAP || op_is_view(n->op));
    for (int i = 0; i < n->nin && given; i++) given = gr->site[n->in[i]].given;
    return given;
}

static void assign_fixed_roles(struct grouper *gr)
{
    const graph *g = gr->g;
    for (int i = 0; i < g->nodes; i++) {
        struct site *s = &gr->site[i];
        enum op op = g->node[i].op;
        const struct node *n = &g->node[i];
        s->buffer = s->accumulator_buffer = s->group = s->next = s->step = s->again_in = s->row_in = -1;
        bool given = op_is_leaf(op) || op == OP_UNPACK;
        s->role = given ? ROLE_LEAF : op_is_view(op) ? ROLE_VIEW : op == OP_CONCAT ? ROLE_CONCAT : ROLE_FREE;
        s->rows = find_rows(gr, n);
        s->given = is_given(gr, i);
        s->version = op_is_version(op) ? gr->site[n->in[VERSION_OF]].version + 1 : 0;
        if (s->role == ROLE_FREE && is_number(gr, n, &s->number)) s->role = ROLE_NUMBER;
        s->is_const = gr->opt->fold != CODA_FOLD_NONE && !op_is_input(op) && op != OP_IOTA &&
                      !node_is_small(n) && !s->apart;
        for (int j = 0; j < n->nin; j++)
            s->is_const = s->is_const && (n->in[j] < 0 || gr->site[n->in[j]].is_const);
    }
    for (int i = 0; i < g->leaves; i++) gr->site[g->leaf[i]].is_const = false;
    /* What lies in an output, or in a concat that a run computes, is written by each run: insert_copies.c. */
    for (int i = 0; i < g->outputs; i++) gr->site[g->output[i].value].is_const = false;
    for (int i = 0; i < g->nodes; i++)
        for (int j = 0; j < g->node[i].nin && g->node[i].op == OP_CONCAT && !gr->site[i].is_const; j++)
            gr->site[g->node[i].in[j]].is_const = false;
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
        if (op_is(op, KIND_LOWERED))
            return fail(CODA_E_UNSUPPORTED, "plan: %%%d is a %s that no rewrite lowered", i,
                        op_info[op].text);
    }
    return CODA_OK;
}

/* Where the parts of concats begin. */
static bool find_parts(struct grouper *gr)
{
    const graph *g = gr->g;
    int parts = 0;
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op == OP_CONCAT) gr->site[i].part = parts, parts += g->node[i].nin;
    gr->part = ARENA_NEW(&gr->plan->arena, int64_t, parts + 1);
    for (int i = 0; i < g->nodes && gr->part; i++) {
        const struct node *n = &g->node[i];
        int64_t start = 0;
        for (int j = 0; j < n->nin && n->op == OP_CONCAT; j++) {
            int64_t extent = g->node[n->in[j]].type.dim[n->attr.concat.axis];
            gr->part[gr->site[i].part + j] = start;
            start += n->attr.concat.interleave ? extent_reaches(extent, 1) : extent;
        }
    }
    return gr->part;
}

static bool find_apart(struct grouper *gr)
{
    bool *parts = ARENA_NEW(&gr->plan->arena, bool, gr->g->nodes + 1);
    if (!parts) return false;
    graph_find_parts(gr->g, parts);
    for (int i = 0; i < gr->g->nodes; i++) gr->site[i].apart = parts[i];
    return true;
}

coda_status fuse_graph(struct grouper *gr, struct plan *p, const struct plan_options *opt)
{
    const graph *g = p->graph;
    *gr = (struct grouper){.g = g, .opt = opt, .plan = p};
    gr->site = ARENA_NEW(&p->arena, struct site, g->nodes);
    gr->view = ARENA_NEW(&p->arena, struct view, g->nodes);
    gr->stack = ARENA_NEW(&p->arena, int, g->nodes + 1);
    gr->queue = ARENA_NEW(&p->arena, int, g->nodes + 1);
    bool read = uses_find(&gr->uses, &p->arena, g, OP_COUNT) &&
                uses_find(&gr->statistics, &p->arena, g, OP_REDUCE) &&
                uses_find_ahead(&gr->ahead, &p->arena, g);
    if (p->arena.failed || !read || !find_parts(gr))
        return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", g->nodes);
    coda_status status = check_lowered(g);
    if (status) return status;
    for (int i = 0; i < g->nodes; i++) view_extend(g, i, gr->view);
    if (opt->fuse && !find_apart(gr)) return fail(CODA_E_MEMORY, "out of memory for %d nodes", g->nodes);
    assign_fixed_roles(gr);
    group_find_horizons(gr);
    for (int i = g->nodes - 1; i >= 0; i--) /* the last product takes a value that two could take */
        if (op_is_product(g->node[i].op)) root_gemm(gr, i);
    fuse_take_in(gr);
    for (int i = 0; i < g->nodes; i++) {
        root_own(gr, i);
        find_inline(gr, i);
    }
    fuse_short_columns(gr);
    for (int i = 0; i < g->nodes; i++)
        if (gr->site[i].role == ROLE_FREE && !is_walked_later(gr, i) && !is_taken_later(gr, i))
            root_rows(gr, i);
    for (int i = 0; i < g->nodes; i++)
        if (gr->site[i].role == ROLE_FREE) root_rows(gr, i);
    fuse_merge_rows(gr);
    fuse_rows_again(gr);
    fuse_join_finishing(gr);
    fuse_join_lines(gr);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", g->nodes);
    return CODA_OK;
}
