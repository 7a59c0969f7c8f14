/*
 * commute.c -- which factors and shifts on a matmul's operand may move, and whether that pays.
 *
 * The operand x of a matmul is a stack of layers over some value that is written or given anyway. If
 * the whole stack moves, the matmul reads that value directly; if a column's gain must stay, the
 * gained value needs a place of its own. So moving pays
 *   - with nothing left behind: if the value under the stack has another reader, or is in memory
 *     already (a leaf, a result that is stored whole); otherwise its producer applies the stack for free;
 *   - with a gain left behind: if a GEMM writes that value, for then its epilogue writes the gained
 *     one beside it. A rows kernel would rather write the finished product, in one go.
 * And what moves has to be less than the rows that need not be moved for it.
 *
 * A residual, the sum of x and of what a product leaves, does not keep x in memory: the epilogue of that
 * product computes x again from the value under the stack. So a norm behind a residual (post-norm) moves,
 * too, although the next residual reads it.
 *
 * What moves past a matmul leaves something larger, or smaller, before it. In memory that is no value of f16
 * that an unfused plan does not write: its range ends at 65504. Hence, without CODA_FAST_FP16, no gained,
 * cast or centred value of f16 is written before its factor, and the product waits for its own in f32. bf16
 * has the range of f32. A cast to fewer bits never goes before a shift, which may cancel all that they hold.
 */
#include "commute.h"

#include "guards.h"
#include "ranges.h"

#include <stdlib.h>
#include <string.h>

/* Who reads a value: someone else, or only matmuls (as x, perhaps through layers) and residuals; with
 * weights that are all constant, or not. */
enum readers { READ_OTHERWISE, READ_BY_MATMULS, READ_BY_CONST_MATMULS };
enum writer { IN_MEMORY, BY_ROWS, BY_GEMM };

/* What moving a stack of layers leaves behind, and what lies under it. */
struct rest {
    int base, rows; /* layers whose factor is a value of each row */
    bool gain, copy, shift;
};

struct fact {
    bool constant;
    int uses;
    enum readers readers;
    bool f16;   /* a matmul reads it as f16, perhaps through layers */
    bool range; /* a slice, as ranges.h has them */
    enum writer writer;
    bool folds;          /* see carry_folds */
    struct rest rest[2]; /* of the stack from here on, with a gain left behind above it or not */
    bool reached;        /* scratch of depends() */
};

/* ---- Layers ---- */

static bool same_dims(const struct type *a, const struct type *b)
{
    return a->rank == b->rank && extents_all_equal(a->dim, b->dim, a->rank);
}

/* One value for all columns of a row. */
static bool is_row_value(const struct type *f) { return extent_is_one(type_columns(f)); }

/* One value for each column, the same for all rows: by its rank, or as a weight. Of x with a single row, a
 * tensor of its shape may be a row like x; it must not matter that there is one only, for plans of any number
 * of rows share what is folded. */
static bool is_column_value(const struct node *f, const struct type *x)
{
    bool of_columns = f->type.rank < x->rank || f->op == OP_WEIGHT;
    return of_columns && extents_equal(type_columns(&f->type), type_columns(x)) &&
           extent_is_one(type_rows(&f->type));
}

/* How `factor` varies over `base`: one of the two kinds, or none. */
static struct layer binary_layer(const graph *g, int v, int base, int factor, enum layer_kind row,
                                 enum layer_kind column)
{
    const struct type *t = &g->node[base].type;
    const struct node *f = &g->node[factor];
    enum layer_kind kind = LAYER_NONE;
    if (base != factor && type_equal(t, &g->node[v].type))
        kind = is_row_value(&f->type) ? row : is_column_value(f, t) ? column : LAYER_NONE;
    return (struct layer){kind, base, factor};
}

/*
 * What a map of two operands does to its base x. Linear in x, it is c(y) x: a scale, y = r of a row. Linear
 * in each of both, it is c x y, and x for y = 1 makes c = 1: y may be a gain of the columns, too. Linear in
 * both together and a shift of x, it is x + c y. In a sum and in a product either operand is the base.
 */
static struct layer map_layer(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    const struct prim_facts *f = &n->prim->facts;
    bool scale = f->linear & 1, shift = f->jointly == 3 && f->shift & 1;
    bool product = f->linear == 3 && f->identity == 2 && f->identity_at == 1, sum = shift && f->shift == 3;
    enum layer_kind row = scale ? LAYER_ROW_SCALE : shift ? LAYER_ROW_SHIFT : LAYER_NONE;
    enum layer_kind column = product ? LAYER_COL_SCALE : shift ? LAYER_COL_SHIFT : LAYER_NONE;
    struct layer l = {LAYER_NONE, -1, -1};
    if (n->nin == 1 && scale && type_equal(&n->type, &g->node[n->in[0]].type))
        return (struct layer){LAYER_ROW_SCALE, n->in[0], -1};
    if (n->nin != 2 || row == LAYER_NONE) return l;
    l = binary_layer(g, v, n->in[0], n->in[1], row, column);
    if (l.kind != LAYER_NONE || !(product || sum)) return l;
    return binary_layer(g, v, n->in[1], n->in[0], row, column);
}

struct layer layer_of(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    if (n->type.rank >= 2 && n->op == OP_MAP) return map_layer(g, v);
    if (n->type.rank >= 2 && n->op == OP_CAST && dtype_is_float(n->type.dtype) &&
        dtype_is_float(g->node[n->in[CAST_X]].type.dtype))
        return (struct layer){LAYER_CAST, n->in[CAST_X], -1};
    return (struct layer){LAYER_NONE, -1, -1};
}

int layer_apply(struct walk *w, int v, int base)
{
    struct layer l = layer_of(w->in, v);
    struct node n = w->in->node[v];
    int in[2] = {base, l.factor < 0 ? -1 : w->map[l.factor]};
    n.in = in;
    n.origin = -1;
    return graph_append(w->out, &n);
}

/* ---- Facts ---- */

/* Is `on` at the end of the way from v that takes the least operand each time? */
static bool leads_to(const graph *g, int v, int on)
{
    while (v > on) {
        int least = v;
        for (int i = 0; i < g->node[v].nin; i++)
            if (g->node[v].in[i] >= on) least = MIN(least, g->node[v].in[i]);
        if (least == v) return false;
        v = least;
    }
    return v == on;
}

/* A backward pass asks from far away, of what its forward pass had: the way there is short. */
static bool depends(const graph *g, struct fact *f, int v, int on)
{
    if (leads_to(g, v, on)) return true;
    for (int i = on; i <= v; i++) f[i].reached = i == v;
    for (int i = v; i > on; i--)
        for (int j = 0; j < g->node[i].nin && f[i].reached; j++)
            if (g->node[i].in[j] >= on) f[g->node[i].in[j]].reached = true;
    return v >= on && f[on].reached;
}

/* A map that needs a finished statistic of its own operand cannot be part of that one's epilogue. */
static enum writer map_writer(const graph *g, struct fact *f, const struct node *n)
{
    enum writer writer = BY_ROWS;
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0 || f[n->in[i]].writer != BY_GEMM) continue;
        if (!same_dims(&g->node[n->in[i]].type, &n->type)) continue;
        writer = BY_GEMM;
        for (int j = 0; j < n->nin; j++) {
            int q = n->in[j];
            if (q < 0 || q == n->in[i] || same_dims(&g->node[q].type, &n->type)) continue;
            if (depends(g, f, q, n->in[i])) return BY_ROWS;
        }
    }
    return writer;
}

/* A product's epilogue computes with all columns, with one half of them where the other is beside it in the
 * tile, or with ranges. With a slice of others, or of rows, it computes nothing: who wants that reads it from
 * memory. */
static bool is_half(const graph *g, const struct node *n)
{
    const struct type *t = &g->node[n->in[SLICE_X]].type;
    const struct attr_slice *a = &n->attr.slice;
    int64_t columns = type_columns(t);
    if (a->axis != t->rank - 1 || a->step != 1 || !dim_is_number(columns)) return false;
    return extent_is_multiple(columns, 16) && extents_equal(2 * type_columns(&n->type), columns) &&
           (extents_equal(a->start, 0) || extents_equal(2 * a->start, columns));
}

static enum writer writer_of(const graph *g, struct fact *f, const struct node *n)
{
    switch (op_info[n->op].kind) {
    case KIND_PRODUCT: return BY_GEMM;
    case KIND_ELEMENTS:
    case KIND_PAIRS: return map_writer(g, f, n);
    case KIND_ROWS: return BY_ROWS;
    default: break;
    }
    bool part = n->op == OP_SLICE && (is_half(g, n) || f[n - g->node].range);
    if (n->op == OP_RESHAPE)
        part = extents_equal(type_columns(&n->type), type_columns(&g->node[n->in[RESHAPE_X]].type));
    return part ? f[n->in[SLICE_X]].writer : IN_MEMORY;
}

/* Is node n the sum, or difference, of its operand j and of what only it reads of a product? That one's
 * epilogue computes the layers again, element by element, from their base. */
static bool is_residual(const graph *g, const struct fact *f, int n, int j)
{
    const struct node *r = &g->node[n];
    if (r->op != OP_MAP || r->nin != 2 || r->prim->facts.jointly != 3) return false;
    int other = r->in[1 - j];
    return other != r->in[j] && f[other].writer == BY_GEMM && f[other].uses == 1 &&
           same_dims(&g->node[other].type, &g->node[r->in[j]].type);
}

/* How node n reads its operand j. A residual reads what it can have in any case. */
static enum readers reading(const graph *g, const struct fact *f, int n, int j)
{
    const struct node *r = &g->node[n];
    if (is_residual(g, f, n, j)) return READ_BY_CONST_MATMULS;
    if (r->op == OP_MATMUL) {
        bool as_x = j == MATMUL_X && r->in[MATMUL_W] != r->in[MATMUL_X] &&
                    extent_reaches(type_columns(&g->node[r->in[MATMUL_X]].type), 1);
        if (!as_x) return READ_OTHERWISE;
        return f[r->in[MATMUL_W]].constant ? READ_BY_CONST_MATMULS : READ_BY_MATMULS;
    }
    struct layer l = layer_of(g, n);
    return l.kind != LAYER_NONE && l.base == r->in[j] ? f[n].readers : READ_OTHERWISE;
}

static bool is_read_as_f16(const graph *g, const struct fact *f, int n, int j)
{
    const struct node *r = &g->node[n];
    if (r->op == OP_MATMUL) return g->node[r->in[j]].type.dtype == CODA_F16;
    struct layer l = layer_of(g, n);
    return l.kind != LAYER_NONE && l.base == r->in[j] && f[n].f16;
}

static void find_readers(const graph *g, struct fact *f)
{
    for (int v = 0; v < g->nodes; v++) f[v].readers = READ_BY_CONST_MATMULS;
    for (int i = 0; i < g->outputs; i++) {
        f[g->output[i].value].uses++;
        f[g->output[i].value].readers = READ_OTHERWISE;
    }
    for (int n = 0; n < g->nodes; n++)
        for (int j = 0; j < g->node[n].nin; j++)
            if (g->node[n].in[j] >= 0) f[g->node[n].in[j]].uses++;
    for (int n = g->nodes - 1; n >= 0; n--) {
        if (f[n].uses == 0) f[n].readers = READ_OTHERWISE;
        for (int j = 0; j < g->node[n].nin; j++) {
            int v = g->node[n].in[j];
            if (v < 0) continue;
            enum readers r = reading(g, f, n, j);
            f[v].readers = MIN(f[v].readers, r);
            f[v].f16 = f[v].f16 || is_read_as_f16(g, f, n, j);
        }
    }
}

static bool folds(const graph *g, const struct fact *f, int v, coda_fold fold)
{
    struct layer l = layer_of(g, v);
    if (fold == CODA_FOLD_NONE || f[v].readers != READ_BY_CONST_MATMULS) return false;
    if (l.kind == LAYER_ROW_SHIFT) return true;
    return (l.kind == LAYER_COL_SCALE || l.kind == LAYER_COL_SHIFT) && f[l.factor].constant;
}

/* Down a stack of layers, as far as they can move; of each value once, so that deep stacks cost no more. */
static struct rest find_rest(const graph *g, const struct fact *f, int v, bool gain)
{
    struct layer l = layer_of(g, v);
    bool shift = l.kind == LAYER_ROW_SHIFT || l.kind == LAYER_COL_SHIFT;
    bool stops = l.kind == LAYER_NONE || (shift && (!f[v].folds || gain));
    if (f[v].readers == READ_OTHERWISE || stops) return (struct rest){.base = v, .gain = gain};
    struct rest r = f[l.base].rest[gain || (l.kind == LAYER_COL_SCALE && !f[v].folds)];
    r.copy = r.copy || l.kind == LAYER_CAST;
    r.shift = r.shift || shift;
    r.rows += l.factor >= 0 && (l.kind == LAYER_ROW_SCALE || l.kind == LAYER_ROW_SHIFT);
    return r;
}

static void find_facts(const graph *g, struct fact *f, const bool *range, coda_fold fold)
{
    for (int v = 0; v < g->nodes; v++) {
        const struct node *n = &g->node[v];
        f[v].constant = !op_is_input(n->op) && !node_is_small(n);
        for (int i = 0; i < n->nin; i++)
            if (n->in[i] >= 0 && !f[n->in[i]].constant) f[v].constant = false;
        f[v].range = range[v];
        f[v].writer = writer_of(g, f, n);
    }
    find_readers(g, f);
    for (int v = 0; v < g->nodes; v++) {
        f[v].folds = folds(g, f, v, fold);
        for (int gain = 0; gain < 2; gain++) f[v].rest[gain] = find_rest(g, f, v, gain);
    }
}

struct fact *carry_facts(const graph *in, coda_fold fold)
{
    struct fact *facts = calloc((size_t)in->nodes + 1, sizeof *facts);
    bool *range = ranges_find(in);
    if (facts && range) find_facts(in, facts, range, fold);
    else fail(CODA_E_MEMORY, "rewrite: out of memory"), free(facts), facts = NULL;
    free(range);
    return facts;
}

graph *carry_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                  struct rewrite_log *log)
{
    struct fact *facts = carry_facts(in, opt->fold);
    if (!facts) return NULL;
    graph *out = rewrite_walk(in, rule, opt, log, facts);
    free(facts);
    return out;
}

/* ---- Questions ---- */

bool carry_folds(const struct walk *w, int v)
{
    const struct fact *f = w->ctx;
    return f[v].folds;
}

/* The dtype that holds a value: of a float cast to f32, that before it. */
static coda_dtype held_in(const graph *g, int v)
{
    coda_dtype t = g->node[v].type.dtype;
    bool widened = layer_of(g, v).kind == LAYER_CAST && t == CODA_F32;
    return widened ? g->node[g->node[v].in[CAST_X]].type.dtype : t;
}

/* May what is left behind be written as it is? */
static bool keeps_range(const struct walk *w, int v, const struct rest *r)
{
    const struct fact *f = w->ctx;
    coda_dtype from = held_in(w->in, r->base), to = w->in->node[v].type.dtype;
    bool narrows = from != to && to != CODA_F32;
    bool centred = layer_of(w->in, r->base).kind == LAYER_ROW_SHIFT;
    if (narrows && r->shift) return false;
    return !f[v].f16 || w->opt->fast_f16 || !(r->gain || narrows || centred);
}

/* A product's epilogue leaves a number for each tile of a row that has LEAST_FOLDED columns. Tiles have 16
 * or more; of few rows 4 or more, but then there are as many tiles as SMs. */
enum { LEAST_FOLDED = 36, LEAST_TILE = 16, LEAST_OF_FEW = 4 };

static int64_t most_tiles(int64_t columns, const struct target *target)
{
    int sms = target ? target->sms : target_rows[0].sms;
    return MAX(CEIL_DIV(columns, LEAST_TILE), MIN(CEIL_DIV(columns, LEAST_OF_FEW), sms));
}

/* Is a row of what need not be written, or read, more than its values that move, in f32, which one kernel
 * writes and each product reads? Where a gain is left behind, it is a row that is not read for a statistic.
 * */
static bool rows_are_wide(struct walk *w, const struct fact *f, int v, const struct rest *r)
{
    int64_t columns = type_columns(&w->in->node[v].type), values = (int64_t)r->rows * (1 + f[v].uses);
    if (!r->rows) return true;
    if (!dim_is_number(columns)) return rewrite_needs_numbers(w, "the price of a row's factor"), false;
    if (r->gain && !extent_reaches(columns, LEAST_FOLDED)) return false;
    if (r->gain) values *= most_tiles(columns, w->opt->target);
    return extent_reaches(dtype_bytes(w->in->node[v].type.dtype, columns), 4 * values);
}

bool carry_pays(struct walk *w, int v)
{
    const struct fact *f = w->ctx;
    if (f[v].readers == READ_OTHERWISE) return false;
    struct rest r = f[v].rest[false];
    if (!keeps_range(w, v, &r) || (f[r.base].uses == 1 && f[r.base].writer != IN_MEMORY)) return false;
    return ((!r.gain && !r.copy) || f[r.base].writer == BY_GEMM) && rows_are_wide(w, f, v, &r);
}

bool carry_is_constant(const struct fact *f, int v) { return f[v].constant; }
int carry_uses(const struct fact *f, int v) { return f[v].uses; }

bool carry_depends(const graph *g, struct fact *f, int v, int on) { return depends(g, f, v, on); }

bool carry_pays_beside(struct walk *w, const struct fact *f, int v, int base, int rows)
{
    struct rest r = {.base = base, .rows = rows, .gain = true};
    return f[base].writer == BY_GEMM && f[base].uses > 1 && rows_are_wide(w, f, v, &r);
}
