/* util_delta.c -- gated delta rules, and what plain loops say of them. */
#include "util_delta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F32 CODA_F32
#define BF16 CODA_BF16
#define F16 CODA_F16

/* Without it rows of zeros behind a sequence have no length. */
static double eps_of(const struct delta_case *c) { return c->kind == DELTA_KEEPS ? 0 : 1e-6; }

/* clang-format off */
const struct delta_case delta_cases[] = {
    /* name           x     state seq time h kh keys values norm by_row packed kind        in place */
    {"a prompt",      BF16, F32,   2, 130, 4, 2, 64,  64, true,  false, false, DELTA_ANY,     true},
    {"a step",        BF16, F32,   3,   1, 4, 2, 128, 128, true, false, false, DELTA_ANY,     true},
    {"a draft",       BF16, BF16,  2,   8, 2, 1, 128, 128, true, false, false, DELTA_ANY,     true},
    {"fp32",          F32,  F32,   2,  65, 2, 2, 32,  40, true,  false, false, DELTA_ANY,     true},
    {"one sequence",  F32,  F32,   0,  33, 3, 1, 16,  24, false, false, false, DELTA_KEEPS,   true},
    {"repeated keys", F32,  F32,   2,  64, 2, 1, 64,  32, true,  false, false, DELTA_REPEATS, true},
    {"repeated, bf16", BF16, F32,  1, 130, 2, 1, 128, 64, true,  false, false, DELTA_REPEATS, true},
    {"forgets",       F32,  F32,   2,  63, 2, 2, 64,  32, true,  false, false, DELTA_FORGETS, true},
    {"keeps",         F16,  F32,   1,  64, 2, 1, 64,  64, true,  false, false, DELTA_KEEPS,   true},
    {"no state",      BF16, 0,     2,  17, 2, 2, 64,  64, true,  false, false, DELTA_ANY,     false},
    {"no tokens",     F32,  F32,   2,   0, 2, 1, 16,  16, true,  false, false, DELTA_ANY,     true},
    {"sixteen",       F32,  F32,   1,  16, 2, 1, 20,  50, true,  false, false, DELTA_ANY,     true},
    {"fifteen",       F16,  F16,   1,  15, 1, 1, 7,   9,  true,  false, false, DELTA_ANY,     true},
    {"of rows",       F32,  F32,   2,  40, 2, 2, 48,  32, true,  true,  false, DELTA_ANY,     true},
    {"of rows, bf16", BF16, F32,   1,  70, 2, 2, 128, 64, true,  true,  false, DELTA_FORGETS, true},
    {"wide keys",     BF16, F32,   1,  12, 2, 1, 256, 96, true,  false, false, DELTA_ANY,     true},
    {"one of each",   F32,  F32,   1,   3, 1, 1, 1,   1,  true,  false, false, DELTA_ANY,     true},
    {"packed",        BF16, F32,   5, 150, 4, 2, 64,  64, true,  false, true,  DELTA_ANY,     true},
    {"packed steps",  BF16, BF16, 12,  12, 2, 1, 128, 64, true,  false, true,  DELTA_ANY,     true},
    {"many steps",    BF16, F32,  40,   1, 8, 4, 128, 128, true, false, false, DELTA_ANY,     true},
    {"many, packed",  F16,  BF16, 40,  60, 8, 4, 128, 128, true, false, true,  DELTA_ANY,     true},
    {"packed, few",   F32,  F32,   7,   4, 2, 1, 32,  32, true,  true,  true,  DELTA_ANY,     true},
    {"packed, none",  F32,  0,     0,   9, 2, 1, 16,  16, false, false, true,  DELTA_KEEPS,   false},
    {"apart",         BF16, F32,   2,  20, 2, 1, 32,  32, true,  false, false, DELTA_ANY,     false},
    {"chunks",        BF16, F32,   1, 130, 4, 2, 128, 128, true, false, false, DELTA_ANY,     true},
    {"chunks, in turn", BF16, F32, 3, 130, 4, 2, 128, 128, true, false, false, DELTA_ANY,     true},
    {"chunks, in turn, packed", BF16, F32, 5, 300, 4, 2, 128, 128, true, false, true, DELTA_ANY, true},
    {"chunks, one",   BF16, F32,   0,  64, 1, 1, 64,  32, false, false, false, DELTA_KEEPS,   false},
    {"chunks, many",  BF16, F32,  70,  32, 4, 4, 32,  64, true,  false, false, DELTA_ANY,     true},
    {"chunks, repeated", BF16, F32, 1, 200, 2, 1, 128, 32, true, false, false, DELTA_REPEATS, false},
    {"repeated, alone, one", BF16, 0,   1, 200, 2, 2, 128, 64, true,  false, false, DELTA_REPEATS, false},
    {"repeated, alone", BF16, 0,   1, 192, 4, 2, 128, 64, true,  false, false, DELTA_REPEATS, false},
    {"chunks, repeated, alone", BF16, 0, 1, 128, 2, 1, 128, 32, true, false, false, DELTA_REPEATS, false},
    {"chunks, keep",  BF16, BF16,  2,  65, 2, 1, 64,  64, true,  false, false, DELTA_KEEPS,   true},
    {"chunks, forget", BF16, 0,    2, 129, 2, 2, 64,  32, true,  false, false, DELTA_FORGETS, false},
    {"chunks, packed", BF16, F32,  6, 260, 2, 1, 64,  64, true,  false, true,  DELTA_ANY,     true},
    {"chunks, packed, long", BF16, F32, 4, 250, 2, 1, 32, 32, false, false, true, DELTA_KEEPS, false},
    {"chunks, none",  BF16, F32,   0,  70, 2, 1, 32,  32, true,  false, true,  DELTA_ANY,     true},
};
/* clang-format on */
const int delta_case_count = ARRAY_SIZE(delta_cases);

struct delta_case delta_draw(uint64_t seed)
{
    static const coda_dtype dtype[] = {CODA_F32, CODA_BF16, CODA_F16};
    struct random r = {seed};
    struct delta_case c = {.name = "drawn", .norm = true};
    c.dtype = dtype[random_below(&r, 3)];
    c.state = random_chance(&r, 80) ? dtype[random_below(&r, 3)] : (coda_dtype)0;
    c.packed = random_chance(&r, 50);
    c.sequences = random_below(&r, c.packed ? 12 : 4);
    c.time = random_below(&r, random_chance(&r, 50) ? 12 : 100);
    c.key_heads = 1 + random_below(&r, 3);
    c.heads = c.key_heads * (1 + random_below(&r, 2));
    c.keys = 1 + random_below(&r, random_chance(&r, 30) ? 140 : 40);
    c.values = 1 + random_below(&r, 70);
    c.by_row = random_chance(&r, 30);
    if (c.dtype == BF16 && random_chance(&r, 60)) { /* that goes by chunks */
        c.keys = 32 << random_below(&r, 3), c.values = 32 << random_below(&r, 2);
        c.time = random_below(&r, 200), c.by_row = false;
    }
    c.kind = (int)random_below(&r, 4);
    c.in_place = c.state && random_chance(&r, 60);
    return c;
}

/* The largest difference, of the rms: results are up to eight times that where nothing is forgotten, so a
 * rounding to bf16 is up to 8 x 2^-9 of it. */
double delta_allowed(const struct delta_case *c)
{
    coda_dtype state = c->state ? c->state : CODA_F32;
    if (c->dtype == CODA_BF16 || state == CODA_BF16) return 3e-2;
    return c->dtype == CODA_F16 || state == CODA_F16 ? 2e-3 : 1e-5;
}

/* ---- The graph ---- */

static coda_value leaf(const struct delta_case *c, graph *g, const char *name, coda_dtype t, int64_t columns)
{
    bool one = c->packed || !c->sequences;
    int64_t dim[] = {c->sequences, c->time, columns};
    return coda_input(g, name, t, 3 - one, dim + one);
}

/* Logarithms of factors: of (0, 1), 0, or 0 and -inf. */
static coda_value make_decay(const struct delta_case *c, graph *g)
{
    coda_value x = leaf(c, g, "x", CODA_F32, c->heads * (c->by_row ? c->keys : 1));
    if (c->kind == DELTA_ANY) return coda_scale(g, coda_softplus(g, x), -0.3f);
    if (c->kind != DELTA_FORGETS) return coda_scale(g, coda_abs(g, x), 0);
    coda_value one = coda_constant(g, CODA_F32, 1), none = coda_constant(g, CODA_F32, -INFINITY);
    return coda_where(g, coda_greater(g, x, one), none, coda_constant(g, CODA_F32, 0));
}

static coda_value make_keys(const struct delta_case *c, graph *g)
{
    coda_value k = leaf(c, g, "keys", c->dtype, c->key_heads * c->keys);
    if (c->kind != DELTA_REPEATS) return coda_scale(g, k, 1);
    int64_t columns = c->key_heads * c->keys;
    return coda_add(g, coda_scale(g, k, 0.02f), coda_input(g, "key", c->dtype, 1, &columns));
}

graph *delta_graph(const struct delta_case *c)
{
    coda_delta_options o = CODA_DELTA_OPTIONS_INIT;
    graph *g = coda_graph_new();
    bool one = !c->packed && !c->sequences;
    int64_t state[] = {c->sequences, c->heads, c->keys, c->values}, starts = c->sequences + 1;
    o.heads = c->heads, o.key_heads = c->key_heads, o.norm = c->norm, o.eps = (float)eps_of(c);
    if (!c->norm) o.scale = 0.25f;
    coda_value q = leaf(c, g, "q", c->dtype, c->key_heads * c->keys), k = make_keys(c, g);
    coda_value v = leaf(c, g, "v", c->dtype, c->heads * c->values), decay = make_decay(c, g);
    coda_value b = coda_sigmoid(g, leaf(c, g, "b", CODA_F32, c->heads)), before = CODA_NONE, after;
    if (c->kind == DELTA_REPEATS) b = coda_add(g, coda_scale(g, b, 0), coda_constant(g, CODA_F32, 1));
    if (!c->norm) b = coda_scale(g, b, 1.0f / (float)c->keys);
    coda_value at =
        c->packed ? coda_input(g, "starts", c->norm ? CODA_I32 : CODA_I64, 1, &starts) : CODA_NONE;
    if (c->state && c->in_place) before = coda_state(g, "s", c->state, 4 - one, state + one);
    else if (c->state) before = coda_input(g, "s", c->state, 4 - one, state + one);
    coda_output(g, "o", coda_delta(g, q, k, v, decay, b, before, at, &o, &after));
    coda_output(g, "k", k);
    coda_output(g, "decay", decay);
    coda_output(g, "beta", b);
    if (c->in_place) coda_assign(g, before, after);
    else coda_output(g, "after", after);
    return g;
}

graph *delta_piece(int64_t rows)
{
    enum { K = DELTA_PIECE_KEYS, V = DELTA_PIECE_VALUES, H = DELTA_PIECE_HEADS };
    coda_delta_options o = CODA_DELTA_OPTIONS_INIT;
    graph *g = coda_graph_new();
    o.heads = H, o.key_heads = 1, o.norm = 1, o.eps = 1e-6f;
    coda_value q = coda_input(g, "q", CODA_F32, 2, (int64_t[]){rows, K}), after;
    coda_value k = coda_input(g, "k", CODA_F32, 2, (int64_t[]){rows, K});
    coda_value v = coda_input(g, "v", CODA_F32, 2, (int64_t[]){rows, H * V});
    coda_value decay = coda_input(g, "decay", CODA_F32, 2, (int64_t[]){rows, H});
    coda_value beta = coda_input(g, "beta", CODA_F32, 2, (int64_t[]){rows, H});
    coda_value s = coda_state(g, "s", CODA_F32, 3, (int64_t[]){H, K, V});
    coda_output(g, "o", coda_delta(g, q, k, v, decay, beta, s, CODA_NONE, &o, &after));
    coda_assign(g, s, after);
    return g;
}

/* ---- What loops say ---- */

static int index_of(const graph *g, const char *name)
{
    for (int i = 0; i < g->leaves; i++)
        if (!strcmp(g->node[g->leaf[i]].name, name)) return i;
    for (int i = 0; i < g->outputs; i++)
        if (!strcmp(g->output[i].name, name)) return g->leaves + i;
    return -1;
}

/* A leaf, or what a run has left in an output, as dense doubles, which free() takes. */
static double *doubles(const graph *g, void **args, const char *name)
{
    int i = index_of(g, name);
    bool is_leaf = i < g->leaves;
    const struct output *o = is_leaf ? NULL : &g->output[i - g->leaves];
    const struct node *n = &g->node[is_leaf ? g->leaf[i] : o->value];
    int64_t count = type_elements(&n->type);
    double *x = malloc(sizeof *x * (size_t)(count + 1));
    for (int64_t e = 0; x && e < count; e++) {
        int64_t at = is_leaf ? e : 0, rest = e;
        for (int d = n->type.rank - 1; !is_leaf && d >= 0; rest /= n->type.dim[d--])
            at += rest % n->type.dim[d] * o->stride[d];
        x[e] = dtype_load(n->type.dtype, args[i], at);
    }
    return x;
}
/* What coda_evaluate has left in an output is doubles. */
static double *made(const graph *g, void **args, const char *name, bool evaluated)
{
    if (!evaluated) return doubles(g, args, name);
    int i = index_of(g, name);
    size_t bytes = sizeof(double) * (size_t)type_elements(&g->node[g->output[i - g->leaves].value].type);
    double *x = malloc(bytes + 1);
    return x ? memcpy(x, args[i], bytes) : NULL;
}

/* Is it of a shape that a GPU takes by chunks, and does it have so many tokens? */
static bool goes_by_chunks(const struct delta_case *c)
{
    return c->dtype == BF16 && !c->by_row && (c->keys == 32 || c->keys == 64 || c->keys == 128) &&
           c->values % 32 == 0 && c->time >= 32;
}

struct loops {
    const struct delta_case *c;
    double *q, *v, *k, *decay, *beta;
    const double *before;
    double *s, *o, *after;     /* o and after: as they should be */
    double *terms;             /* for each element of s, the sum of squares of what was added to it */
    double *change;            /* e of each row, of one head */
    double all_terms, o_terms; /* sums of squares of the terms of all states, and of o by chunks */
};

static double length(const struct loops *l, const double *x)
{
    double sum = (double)(float)eps_of(l->c); /* as options have it */
    for (int64_t i = 0; i < l->c->keys; i++) sum += x[i] * x[i];
    return l->c->norm ? sqrt(sum) : 1;
}

/* S becomes S diag(a) + k (b (v - k diag(a) S))^T, column by column, as the paper has it. */
static void token(struct loops *l, int64_t row, int64_t h)
{
    const struct delta_case *c = l->c;
    int64_t kh = h / (c->heads / c->key_heads);
    const double *q = l->q + (row * c->key_heads + kh) * c->keys,
                 *k = l->k + (row * c->key_heads + kh) * c->keys;
    double scale = c->norm ? (double)(1 / sqrtf((float)c->keys)) : 0.25, of_q = length(l, q),
           of_k = length(l, k);
    for (int64_t j = 0; j < c->values; j++) {
        double seen = 0, out = 0, want = l->v[(row * c->heads + h) * c->values + j];
        for (int64_t i = 0; i < c->keys; i++) {
            double *s = &l->s[i * c->values + j];
            double kept = exp(l->decay[c->by_row ? (row * c->heads + h) * c->keys + i : row * c->heads + h]);
            *s *= kept, l->terms[i * c->values + j] *= kept * kept;
            seen += *s * k[i] / of_k;
        }
        for (int64_t i = 0; i < c->keys; i++) {
            double *s = &l->s[i * c->values + j];
            double term = k[i] / of_k * l->beta[row * c->heads + h] * (want - seen);
            *s += term, l->terms[i * c->values + j] += term * term;
            out += *s * q[i] / of_q * scale;
        }
        l->change[row * c->values + j] = l->beta[row * c->heads + h] * (want - seen);
        l->o[(row * c->heads + h) * c->values + j] = out;
    }
}

/* What of o is summed by chunks: of each token of the chunk up to this one q k^T e, decayed. */
static void add_terms(struct loops *l, int64_t row, int64_t chunk, int64_t h)
{
    const struct delta_case *c = l->c;
    int64_t kh = h / (c->heads / c->key_heads);
    const double *q = l->q + (row * c->key_heads + kh) * c->keys;
    double kept = (c->norm ? 1 / sqrt((double)c->keys) : 0.25) / length(l, q);
    for (int64_t t = row; t >= chunk; kept *= exp(l->decay[t-- * c->heads + h])) {
        const double *k = l->k + (t * c->key_heads + kh) * c->keys;
        double dot = 0, squares = 0;
        for (int64_t i = 0; i < c->keys; i++) dot += q[i] * k[i];
        for (int64_t j = 0; j < c->values; j++)
            squares += l->change[t * c->values + j] * l->change[t * c->values + j];
        l->o_terms += squares * pow(kept * dot / length(l, k), 2);
    }
}

static void sequence(struct loops *l, int64_t b, int64_t first, int64_t end)
{
    int64_t state = l->c->keys * l->c->values;
    for (int64_t h = 0; h < l->c->heads; h++) {
        double *after = l->after + (b * l->c->heads + h) * state;
        if (l->before) memcpy(l->s, l->before + (after - l->after), sizeof *l->s * (size_t)state);
        else memset(l->s, 0, sizeof *l->s * (size_t)state);
        memset(l->terms, 0, sizeof *l->terms * (size_t)state);
        for (int64_t row = first; row < end; row++) {
            token(l, row, h);
            if (goes_by_chunks(l->c)) add_terms(l, row, row - (row - first) % 64, h);
        }
        for (int64_t i = 0; i < state; i++) l->all_terms += l->terms[i];
        memcpy(after, l->s, sizeof *l->s * (size_t)state);
    }
}

static double length_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static double apart(const double *got, const double *want, int64_t n, double round)
{
    double diff = 0;
    for (int64_t i = 0; i < n; i++) diff += (got[i] - want[i]) * (got[i] - want[i]);
    double error = sqrt(diff) / (length_of(want, n) + 1e-3);
    return isfinite(error) ? fmax(error - round, 0) : INFINITY;
}

static void run_loops(struct loops *l, const graph *g, void **args)
{
    const struct delta_case *c = l->c;
    double *starts = c->packed ? doubles(g, args, "starts") : NULL;
    int64_t at = 0, first;
    for (int64_t b = 0; b < (c->packed ? c->sequences : MAX(c->sequences, 1)); b++) {
        if (!c->packed) {
            sequence(l, b, b * c->time, (b + 1) * c->time);
            continue;
        }
        first = at = MAX(at, (int64_t)fmin(fmax(starts[b], 0), (double)c->time));
        sequence(l, b, first, MAX(at, (int64_t)fmin(fmax(starts[b + 1], 0), (double)c->time)));
    }
    free(starts);
}

double *delta_before(const struct delta_case *c, const graph *g, void **args)
{
    return c->state ? doubles(g, args, "s") : NULL;
}

struct delta_errors delta_errors(const struct delta_case *c, const graph *g, void **args,
                                 const double *before, bool evaluated)
{
    int64_t sequences = c->packed ? c->sequences : MAX(c->sequences, 1);
    int64_t rows = c->packed ? c->time : sequences * c->time, state = c->keys * c->values;
    int64_t n = rows * c->heads * c->values, states = sequences * c->heads * state;
    struct loops l = {.c = c, .before = before};
    l.q = doubles(g, args, "q"), l.v = doubles(g, args, "v");
    l.k = made(g, args, "k", evaluated);
    l.decay = made(g, args, "decay", evaluated), l.beta = made(g, args, "beta", evaluated);
    l.s = calloc((size_t)state, sizeof *l.s), l.terms = calloc((size_t)state, sizeof *l.terms);
    l.change = calloc((size_t)(rows * c->values) + 1, sizeof *l.change);
    l.o = calloc((size_t)n + 1, sizeof *l.o), l.after = calloc((size_t)states + 1, sizeof *l.after);
    run_loops(&l, g, args);
    double *o = made(g, args, "o", evaluated);
    double *left = c->in_place ? doubles(g, args, "s") : made(g, args, "after", evaluated);
    double round = !c->in_place || !evaluated ? 0 : c->state == F32 ? 1e-7 : c->state == F16 ? 1e-3 : 8e-3;
    struct delta_errors e = {.o = apart(o, l.o, n, 0), .after = apart(left, l.after, states, round)};
    e.terms = sqrt(l.all_terms) / (length_of(l.after, states) + 1e-3);
    e.o_terms = sqrt(l.o_terms) / (length_of(l.o, n) + 1e-3);
    double *own[] = {l.q, l.v, l.k, l.decay, l.beta, l.s, l.terms, l.change, l.o, l.after, o, left};
    for (int i = 0; i < ARRAY_SIZE(own); i++) free(own[i]);
    return e;
}

double delta_difference(const struct delta_case *c, const graph *g, void **args, const double *before)
{
    struct delta_errors e = delta_errors(c, g, args, before, true);
    return fmax(e.o, e.after);
}

double delta_parts(const struct delta_case *c, const graph *g, void **args, const double *before)
{
    coda_dtype state = c->state ? c->state : F32;
    struct delta_errors e = delta_errors(c, g, args, before, false);
    double of_state = state == BF16 ? 1e-2 : state == F16 ? 2e-3 : 1e-5;
    double of_o = c->dtype == BF16 ? 1e-2 : c->dtype == F16 ? 2e-3 : 1e-5;
    /* By chunks a term of o is a product of two factors that are rounded to a bf16. One of a state has two
     * for each, within 2^-18, whose errors cancel as terms do but for a fourth. The header promises twice
     * that, as roundings may all go one way. */
    if (state == F32 && goes_by_chunks(c)) of_state = fmax(of_state, 0x1p-20 * e.terms);
    if (goes_by_chunks(c)) of_o = fmax(of_o, 0x1p-8 * e.o_terms);
    return fmax(e.o / of_o, e.after / of_state);
}

/* ---- Runs of one sequence ---- */

/* Rows `first` on of what a whole sequence has, into a piece of it, or back; and its other leaves. */
static void copy_rows(const graph *whole, void **of, const graph *piece, void **to, int64_t first, bool back)
{
    for (int i = 0; i < whole->leaves + whole->outputs; i++) {
        bool is_leaf = i < whole->leaves;
        const struct type *t =
            &piece->node[is_leaf ? piece->leaf[i] : piece->output[i - whole->leaves].value].type;
        bool is_rows = t->rank == 2;
        size_t bytes = (size_t)dtype_bytes(t->dtype, type_elements(t));
        size_t row = is_rows ? (size_t)dtype_bytes(t->dtype, t->dim[1]) : 0;
        char *in_whole = (char *)of[i] + row * (size_t)first;
        bool is_state = is_leaf && piece->node[piece->leaf[i]].op == OP_STATE;
        if (back && (!is_leaf || is_state)) memcpy(in_whole, to[i], bytes);
        if (!back && is_leaf) memcpy(to[i], in_whole, bytes);
    }
}

double delta_cut(const struct delta_case *c, const int64_t *tokens, int runs, uint64_t seed,
                 bool (*run)(const graph *g, void **args))
{
    graph *g = delta_graph(c);
    void **all = random_args(g, seed, false);
    double *before = delta_before(c, g, all);
    int64_t first = 0;
    bool good = true;
    for (int i = 0; i < runs && good; first += tokens[i++]) {
        struct delta_case part = *c;
        part.time = tokens[i];
        graph *of = delta_graph(&part);
        void **args = random_args(of, seed, false);
        copy_rows(g, all, of, args, first, false);
        good = run(of, args);
        if (good) copy_rows(g, all, of, args, first, true);
        random_args_free(of, args);
        graph_free(of);
    }
    double error = good && first == c->time ? delta_parts(c, g, all, before) : -1;
    free(before);
    random_args_free(g, all);
    graph_free(g);
    return error;
}

/* ---- A sequence among others ---- */

/* Bytes of leaf i, or of the output behind all leaves; 0: a run leaves nothing there. */
static int64_t bytes_of(const graph *g, int i, bool left)
{
    bool is_leaf = i < g->leaves;
    const struct node *n = &g->node[is_leaf ? g->leaf[i] : g->output[i - g->leaves].value];
    return is_leaf && left && n->op != OP_STATE ? 0 : dtype_bytes(n->type.dtype, type_elements(&n->type));
}

int64_t delta_company(const struct delta_case *c, uint64_t seed, bool (*run)(const graph *g, void **args))
{
    struct delta_case alone = *c;
    alone.sequences = 1;
    graph *g = delta_graph(c), *of = delta_graph(&alone);
    void **all = random_args(g, seed, false), **one = random_args(of, seed + 1, false);
    int64_t differ = 0;
    for (int i = 0; i < of->leaves; i++) memcpy(one[i], all[i], (size_t)bytes_of(of, i, false));
    bool good = run(g, all) && run(of, one);
    for (int i = 0; i < of->leaves + of->outputs; i++)
        for (int64_t k = 0; k < bytes_of(of, i, true); k++)
            differ += ((const char *)all[i])[k] != ((const char *)one[i])[k];
    random_args_free(g, all), random_args_free(of, one);
    graph_free(g), graph_free(of);
    return good ? differ : -1;
}
