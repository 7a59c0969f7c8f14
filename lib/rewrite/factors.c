/* factors.c -- brackets of a product opened and put again; and which values are live. */
#include "factors.h"

#include "commute.h"
#include "guards.h"

#include <string.h>

enum { DEEPEST = 48 }; /* brackets within brackets; what is deeper is one factor */

/* ---- Types ---- */

static bool same_dims(const struct type *a, const struct type *b)
{
    return a->rank == b->rank && extents_all_equal(a->dim, b->dim, a->rank);
}

static bool is_one(const struct type *t)
{
    for (int d = 0; d < t->rank; d++)
        if (!extent_is_one(t->dim[d])) return false;
    return true;
}

bool rows_regroup(const struct type *a, const struct type *b)
{
    return a->rank >= 2 && b->rank >= 2 && extents_equal(type_columns(a), type_columns(b));
}

int rows_origin(const graph *g, int v)
{
    while (g->node[v].op == OP_RESHAPE &&
           rows_regroup(&g->node[v].type, &g->node[g->node[v].in[RESHAPE_X]].type))
        v = g->node[v].in[RESHAPE_X];
    return v;
}

bool is_sum(const struct node *n) { return n->op == OP_REDUCE && !strcmp(n->prim->name, "sum"); }
bool is_row_sum(const struct node *n) { return is_sum(n) && !node_folds_columns(n); }

/* ---- Brackets ---- */

/* What operand `o` of a map of type t is to the product, of which the map is a factor of the kind; false if
 * it is none of them. A weight of one row is of the columns, also where there is one row only. */
static bool kind_within(const struct type *t, const struct node *o, enum factor_kind kind,
                        enum factor_kind *found)
{
    bool of_columns = o->type.rank < t->rank || o->op == OP_WEIGHT;
    struct type row = *t;
    if (row.rank) row.dim[row.rank - 1] = 1;
    if (kind == FACTOR_FULL && of_columns && o->type.rank && extent_is_one(type_rows(&o->type)) &&
        extents_equal(type_columns(&o->type), type_columns(t)) && !extent_is_one(type_columns(t)))
        *found = FACTOR_COLUMN;
    else if (same_dims(t, &o->type)) *found = kind;
    else if (kind == FACTOR_FULL && same_dims(&row, &o->type)) *found = FACTOR_ROW;
    else if (is_one(&o->type)) *found = FACTOR_NUMBER;
    else return false;
    return true;
}

/* The factors that a product or a quotient is made of: 2, or 0. */
static int open_map(const graph *g, const struct factor *f, struct factor part[2])
{
    const struct node *n = &g->node[f->value];
    const struct prim_facts *is = &n->prim->facts;
    bool product = is->linear == 3 && is->identity == 2 && is->identity_at == 1;
    if (n->nin != 2 || !(product || is->quotient == 2)) return 0;
    for (int i = 0; i < 2; i++) {
        part[i] = (struct factor){.value = n->in[i], .divides = f->divides != (i == 1 && !product)};
        if (!kind_within(&n->type, &g->node[n->in[i]], f->kind, &part[i].kind)) return 0;
    }
    return 2;
}

static int open(const graph *g, const struct factor *f, struct factor part[2])
{
    const struct node *n = &g->node[f->value];
    const struct type *x = n->nin ? &g->node[n->in[0]].type : NULL;
    bool scales = n->op == OP_MAP && n->nin == 1 && n->prim->facts.linear == 1 && type_equal(x, &n->type) &&
                  !f->divides;
    bool widens = n->op == OP_CAST && n->type.dtype == CODA_F32 && dtype_is_half(x->dtype);
    bool regroups = n->op == OP_RESHAPE && f->kind <= FACTOR_ROW && rows_regroup(x, &n->type);
    if (n->op == OP_MAP && n->nin == 2) return open_map(g, f, part);
    if (!scales && !widens && !regroups) return 0;
    part[0] = (struct factor){n->in[0], f->kind, f->divides};
    part[1] = (struct factor){f->value, FACTOR_SCALE, f->divides};
    return 1 + scales;
}

static bool expand(const graph *g, struct factors *fs, const struct factor *f, int depth)
{
    struct factor part[2];
    int parts = f->kind == FACTOR_SCALE || depth == DEEPEST ? 0 : open(g, f, part);
    if (!parts && fs->n == MOST_FACTORS) return false;
    if (!parts) fs->f[fs->n++] = *f;
    for (int i = 0; i < parts; i++)
        if (!expand(g, fs, &part[i], depth + 1)) return false;
    return true;
}

bool factors_of(const graph *g, int v, struct factors *fs)
{
    fs->n = 0;
    return g->node[v].type.rank >= 2 && expand(g, fs, &(struct factor){.value = v}, 0);
}

/* ---- Lists ---- */

void factors_drop(struct factors *fs, int index)
{
    fs->n--;
    memmove(&fs->f[index], &fs->f[index + 1], sizeof fs->f[0] * (size_t)(fs->n - index));
}

int factors_first_full(const struct factors *fs)
{
    for (int i = 0; i < fs->n; i++)
        if (fs->f[i].kind == FACTOR_FULL && !fs->f[i].divides) return i;
    return -1;
}

struct factors factors_select(const struct factors *fs, enum factor_kind kind, bool others)
{
    struct factors some = {0};
    for (int i = 0; i < fs->n; i++)
        if ((fs->f[i].kind == kind) != others) some.f[some.n++] = fs->f[i];
    return some;
}

bool factors_take(struct factors *a, const struct factors *b)
{
    for (int i = 0; i < b->n; i++) {
        int j = 0;
        while (j < a->n && !(a->f[j].value == b->f[i].value && a->f[j].kind == b->f[i].kind &&
                             a->f[j].divides == b->f[i].divides))
            j++;
        if (j == a->n) return false;
        factors_drop(a, j);
    }
    return true;
}

bool factors_equal(const struct factors *a, const struct factors *b)
{
    struct factors rest = *a;
    return a->n == b->n && factors_take(&rest, b);
}

/* A statistic that comes out of a map which is never 0, perhaps widened or reshaped. */
static bool is_never_zero(const graph *g, int v)
{
    while (g->node[v].op == OP_RESHAPE) v = g->node[v].in[RESHAPE_X];
    return g->node[v].op == OP_MAP && g->node[v].prim->facts.nonzero;
}

bool factors_are_rows(const graph *g, const struct factors *fs)
{
    for (int i = 0; i < fs->n; i++) {
        bool rows = fs->f[i].kind == FACTOR_ROW || fs->f[i].kind == FACTOR_NUMBER;
        if (!rows || !is_never_zero(g, fs->f[i].value)) return false;
    }
    return true;
}

/* ---- Values ---- */

int rows_as(struct walk *w, int y, const struct type *like)
{
    if (y < 0) return RULE_FAILED;
    struct type t = *like, own = w->out->node[y].type;
    t.dim[t.rank - 1] = type_columns(&own);
    return same_dims(&t, &own) ? y : graph_reshape(w->out, y, t.rank, t.dim);
}

static int scaled(struct walk *w, int y, const struct factor *f)
{
    struct node n = w->in->node[f->value];
    if (y < 0) return RULE_FAILED;
    n.in = &y;
    n.origin = -1;
    return graph_append(w->out, &n);
}

int factors_apply(struct walk *w, int y, const struct factors *fs, const struct type *like)
{
    for (int i = 0; i < fs->n && y >= 0; i++) {
        const struct factor *f = &fs->f[i];
        int v = w->map[f->value];
        if (f->kind == FACTOR_FULL || f->kind == FACTOR_ROW) v = rows_as(w, v, like);
        if (f->kind == FACTOR_SCALE) y = scaled(w, y, f);
        else y = v < 0 ? RULE_FAILED : graph_map(w->out, f->divides ? "div" : "mul", y, v, NULL);
    }
    return y;
}

int factors_widen(struct walk *w, int y, const struct type *like)
{
    struct node cast = {.op = OP_CAST, .nin = 1, .in = &y, .attr.cast.to = CODA_F32, .origin = -1};
    if (y < 0 || like->dtype != CODA_F32 || w->out->node[y].type.dtype == CODA_F32) return y;
    return graph_append(w->out, &cast);
}

int factors_multiply(struct walk *w, struct factors fs, const struct type *like)
{
    int first = factors_first_full(&fs);
    int y = factors_widen(w, rows_as(w, w->map[fs.f[first].value], like), like);
    factors_drop(&fs, first);
    return factors_apply(w, y, &fs, like);
}

/* ---- What is live ---- */

static bool find_live(const graph *g, struct live *live)
{
    live->is = ARENA_NEW(&live->arena, bool, g->nodes + 1);
    if (!live->is || !uses_find(&live->uses, &live->arena, g, OP_COUNT)) return false;
    for (int n = 0; n < g->nodes; n++) live->is[n] = g->node[n].output >= 0 || op_is_version(g->node[n].op);
    for (int n = g->nodes - 1; n >= 0; n--) {
        int count = op_is_exchange(g->node[n].op) ? EXCHANGE_BEFORE : g->node[n].nin;
        for (int i = 0; i < count && live->is[n]; i++)
            if (g->node[n].in[i] >= 0) live->is[g->node[n].in[i]] = true;
    }
    return true;
}

int live_uses(const struct live *live, int v)
{
    int n = 0;
    for (int i = live->uses.at[v]; i < live->uses.at[v + 1]; i++) n += live->is[live->uses.use[i].node];
    return n;
}

graph *live_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                 struct rewrite_log *log, bool (*matches)(const struct walk *w, int v),
                 bool (*prepare)(const graph *in, struct live *live, const struct rewrite_options *opt))
{
    struct live live = {0};
    struct walk look = {.in = in, .opt = opt, .ctx = &live};
    graph *out = NULL;
    bool found = false;
    if (find_live(in, &live) && (!prepare || prepare(in, &live, opt)) && !live.arena.failed) {
        for (int v = 0; v < in->nodes && !found; v++) found = live.is[v] && matches(&look, v);
        out = found ? rewrite_walk(in, rule, opt, log, &live) : rewrite_nothing(in);
    } else fail(CODA_E_MEMORY, "rewrite: out of memory");
    arena_free(&live.arena);
    return out;
}

/* ---- Questions ---- */

bool is_computed(const graph *g, int v)
{
    while (op_is_view(g->node[v].op)) v = g->node[v].in[VIEW_OF];
    const struct node *n = &g->node[v];
    if (n->op == OP_CONCAT)
        for (int i = 0; i < n->nin; i++)
            if (is_computed(g, n->in[i])) return true;
    return op_is(n->op, KIND_ELEMENTS) || op_is(n->op, KIND_PAIRS) || op_is(n->op, KIND_PRODUCT);
}
