/* util_scan.c -- graphs of selective scans, and what plain loops in fp64 say of them. */
#include "util_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F32 CODA_F32
#define BF16 CODA_BF16
#define F16 CODA_F16
#define GATED SCAN_GATED
#define BEGINS SCAN_BEGINS
#define ROW SCAN_ONE_ROW
#define HEADS SCAN_BY_HEADS

/* clang-format off */
#define MAMBA  (SCAN_EACH | MAMBA2)
#define MAMBA2 (SCAN_SOFTPLUS | SCAN_BIASED | SCAN_SKIPS)
#define STATES (SCAN_BEGINS | SCAN_KEEPS)
const struct scan_case scan_cases[] = {
    /* name                  x          dt         state     B    L    H   P  G    N  packed */
    {"mamba",                BF16, BF16, F32,  1,  65,  72,  1, 1,  16, 0, MAMBA | STATES},
    {"mamba with a gate",    BF16, F32,  F32,  2,  17,  40,  1, 1,  16, 0, MAMBA | GATED},
    {"mamba in one row",     F16,  F16,  F32,  2,  16,  40,  1, 1,  16, 0, MAMBA | GATED | ROW | STATES},
    {"mamba in fp32",        F32,  F32,  F32,  0, 130,  33,  1, 1,  16, 0, MAMBA | STATES},
    {"mamba step",           BF16, BF16, F32,  3,   1, 129,  1, 1,  16, 0, MAMBA | STATES},
    {"mamba packed",         BF16, BF16, F32,  0, 130,  24,  1, 1,  16, 7, MAMBA | STATES},
    {"one state",            F32,  F32,  F32,  2,   5,  70,  1, 1,   1, 0, SCAN_EACH},
    {"states of each head",  BF16, F32,  F32,  2,  15,   5,  7, 1,  20, 0, MAMBA | STATES | HEADS},
    {"many states",          F32,  F32,  F32,  1,   4,   6,  3, 2, 256, 0, MAMBA | STATES},
    {"heads",                BF16, BF16, F32,  2,  63,   4, 32, 1,  64, 0, MAMBA2 | STATES | HEADS},
    {"heads with a gate",    BF16, F32,  F32,  1,  64,   2, 64, 1, 128, 0, MAMBA2 | GATED | BEGINS},
    {"heads in one row",     F16,  F16,  F32,  2,  65,   4, 16, 2,  32, 0, MAMBA2 | ROW | STATES},
    {"groups of heads",      BF16, F32,  F32,  1, 130,   6, 32, 3,  64, 0, MAMBA2 | STATES},
    {"heads in fp32",        F32,  F32,  F32,  2, 130,   3, 24, 1,  48, 0, MAMBA2 | STATES},
    {"step of heads",        BF16, BF16, F32,  5,   1,   4, 64, 1, 128, 0, MAMBA2 | STATES},
    {"two steps of heads",   BF16, BF16, F32,  2,   2,   4, 64, 2, 128, 0, MAMBA2 | STATES},
    {"odd heads",            F16,  F32,  F32,  1,   3,   3, 13, 3,   5, 0, STATES},
    {"packed heads",         BF16, F32,  F32,  0, 200,   4, 32, 2,  64, 5, MAMBA2 | STATES},
    {"many packed",          BF16, F32,  F32,  0,  90,   2, 16, 1,  16, 70, MAMBA2 | STATES},
    {"states in bf16",       BF16, BF16, BF16, 2,  40,   4, 32, 1,  64, 0, MAMBA2 | STATES},
    {"no tokens",            BF16, BF16, F32,  2,   0,   4, 32, 1,  64, 0, MAMBA2 | STATES},
    {"no tokens of mamba",   F32,  F32,  F32,  1,   0,  40,  1, 1,  16, 0, MAMBA | BEGINS},
    {"no sequences",         F32,  F32,  F32,  0,   7,  40,  1, 1,  16, -1, MAMBA | STATES},
    {"a long one",           BF16, F32,  F32,  1, 700,  16,  1, 1,  16, 0, MAMBA | STATES},
    {"long heads",           BF16, F32,  F32,  1, 700,   2, 32, 1,  32, 0, MAMBA2 | STATES},
    {"mamba in tiles",       BF16, F32,  F32,  2, 131,  56,  1, 1,  16, 0, MAMBA | GATED | STATES},
    {"tiles of one row",     F16,  F16,  BF16, 1, 200,  48,  1, 2,  16, 0, MAMBA | GATED | ROW | STATES},
    {"packed tiles",         BF16, BF16, F32,  0, 300,  24,  1, 1,  16, 2, MAMBA | STATES},
    {"wide heads",           BF16, BF16, F32,  2, 200,   3, 64, 3, 128, 0, MAMBA2 | GATED | STATES},
    {"packed wide heads",    BF16, F32,  F32,  0, 300,   2, 128, 1, 32, 3, MAMBA2 | STATES},
    {"packed heads of two",  BF16, F32,  F32,  0, 300,   2, 128, 1, 64, 3, MAMBA2 | STATES},
};
const int scan_case_count = ARRAY_SIZE(scan_cases);

const struct scan_case scan_cut_cases[] = {
    {"mamba",                BF16, BF16, F32,  0,  70,  40,  1, 1,  16, 0, MAMBA | STATES},
    {"heads in fp32",        F32,  F32,  F32,  0,  70,   3, 24, 1,  48, 0, MAMBA2 | STATES},
    {"steps of heads",       BF16, BF16, F32,  0,   8,   4, 32, 2, 128, 0, MAMBA2 | STATES | GATED},
    {"mamba in tiles",       BF16, BF16, F32,  0, 250,  40,  1, 1,  16, 0, MAMBA | STATES | GATED},
};
const int scan_cut_case_count = ARRAY_SIZE(scan_cut_cases);
/* clang-format on */

struct scan_case scan_draw(uint64_t seed)
{
    static const coda_dtype dtype[] = {CODA_F32, CODA_BF16, CODA_F16};
    static const int64_t tokens[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
    struct random r = {seed};
    struct scan_case c = {.name = "drawn", .dtype = dtype[random_below(&r, 3)]};
    c.dt = random_chance(&r, 50) ? CODA_F32 : c.dtype;
    c.state = random_chance(&r, 15) ? CODA_BF16 : CODA_F32;
    c.flags = (unsigned)random_below(&r, 2 * SCAN_BY_HEADS);
    if (random_chance(&r, 30)) c.sequences = 1 + random_below(&r, 40);
    c.batch = c.sequences ? 0 : random_below(&r, 4);
    c.tokens = tokens[random_below(&r, ARRAY_SIZE(tokens))];
    c.groups = 1 + random_below(&r, 3);
    c.heads = c.groups * (1 + random_below(&r, 4));
    c.head_dim = random_chance(&r, 50) ? 1 + random_below(&r, 40) : (int64_t)8 << random_below(&r, 4);
    c.states = random_chance(&r, 50) ? 1 + random_below(&r, 70) : (int64_t)1 << random_below(&r, 9);
    if (c.flags & SCAN_EACH) c.heads *= 4, c.head_dim = 1 + c.head_dim % 3;
    return c;
}

/* ---- The graph ---- */

enum { X, DT, B, C, GATE, ROWS };

static int64_t width(const struct scan_case *c, int rows)
{
    int64_t x = c->heads * c->head_dim, n = c->groups * c->states;
    return (int64_t[]){x, c->dt == c->dtype ? c->heads : 0, n, n, x}[rows];
}

static bool has(const struct scan_case *c, unsigned flag) { return c->flags & flag; }

static coda_value rows_of(const struct scan_case *c, graph *g, const char *name, coda_dtype t, int64_t n)
{
    return coda_input(g, name, t, 2 + (c->batch > 0),
                      c->batch ? (int64_t[]){c->batch, c->tokens, n} : (int64_t[]){c->tokens, n});
}

/* Columns of one tensor, in the order of a model's product: [gate | x | b | c | dt]. */
static void columns_of(const struct scan_case *c, graph *g, coda_value *out)
{
    static const int order[] = {GATE, X, B, C, DT};
    int64_t all = 0, at = 0;
    for (int i = 0; i < ROWS; i++) all += width(c, i);
    coda_value whole = rows_of(c, g, "rows", c->dtype, all);
    for (int i = 0; i < ROWS; at += width(c, order[i++]))
        if (width(c, order[i])) out[order[i]] = coda_slice(g, whole, -1, at, at + width(c, order[i]), 1);
}

static coda_value of_heads(const struct scan_case *c, graph *g, const char *name, unsigned flag)
{
    return has(c, flag) ? coda_weight(g, name, CODA_F32, 1, &c->heads) : CODA_NONE;
}

static coda_value state_of(const struct scan_case *c, graph *g)
{
    int64_t dim[4], sequences = c->sequences ? MAX(c->sequences, 0) : c->batch;
    int rank = 0;
    if (!has(c, SCAN_BEGINS)) return CODA_NONE;
    if (c->sequences || c->batch) dim[rank++] = sequences;
    dim[rank++] = has(c, SCAN_BY_HEADS) ? c->heads : c->heads * c->head_dim;
    if (has(c, SCAN_BY_HEADS)) dim[rank++] = c->head_dim;
    dim[rank++] = c->states;
    return has(c, SCAN_KEEPS) ? coda_state(g, "state", c->state, rank, dim)
                              : coda_input(g, "state", c->state, rank, dim);
}

graph *scan_graph(const struct scan_case *c)
{
    static const char *const name[ROWS] = {"x", "dt", "b", "c", "gate"};
    graph *g = coda_graph_new();
    coda_value in[ROWS] = {CODA_NONE}, after;
    coda_scan_options o = CODA_SCAN_OPTIONS_INIT;
    int64_t starts = MAX(c->sequences, 0) + 1;
    if (has(c, SCAN_ONE_ROW)) columns_of(c, g, in);
    for (int i = 0; i < ROWS; i++)
        if (!in[i].id)
            in[i] = rows_of(c, g, name[i], i == DT ? c->dt : c->dtype, i == DT ? c->heads : width(c, i));
    coda_value a = coda_weight(g, "a", CODA_F32, 1 + has(c, SCAN_EACH), (int64_t[]){c->heads, c->states});
    coda_value state = state_of(c, g);
    coda_value at = c->sequences ? coda_input(g, "starts", CODA_I32, 1, &starts) : CODA_NONE;
    o.groups = c->groups, o.softplus = has(c, SCAN_SOFTPLUS);
    o.dt_bias = of_heads(c, g, "bias", SCAN_BIASED);
    o.skip = of_heads(c, g, "skip", SCAN_SKIPS);
    if (has(c, SCAN_GATED)) o.gate = in[GATE];
    coda_value y = coda_scan(g, in[X], in[DT], a, in[B], in[C], state, at, &o, &after);
    coda_output(g, "y", y);
    if (has(c, SCAN_BEGINS) && has(c, SCAN_KEEPS)) coda_assign(g, state, after);
    else coda_output(g, "after", after);
    return g;
}

static int leaf(const graph *g, const char *name)
{
    for (int i = 0; i < g->leaves; i++)
        if (!strcmp(g->node[g->leaf[i]].name, name)) return i;
    return -1;
}

/* ---- Arguments ---- */

/* Without softplus d is what there is: small, and of one sign, so that no state grows beyond bounds. */
static void scale_steps(const struct scan_case *c, const graph *g, void **args)
{
    int dt = leaf(g, "dt"), rows = leaf(g, "rows");
    if (has(c, SCAN_SOFTPLUS)) return;
    int64_t n = c->dt == c->dtype && rows >= 0 ? 0 : type_elements(&g->node[g->leaf[dt]].type);
    for (int64_t i = 0; i < n; i++) dtype_store(c->dt, args[dt], i, fabs(dtype_load(c->dt, args[dt], i)) / 8);
    int64_t columns = rows < 0 ? 0 : type_columns(&g->node[g->leaf[rows]].type);
    for (int64_t i = 0; n == 0 && i < MAX(c->batch, 1) * c->tokens; i++)
        for (int64_t k = columns - c->heads; k < columns; k++)
            dtype_store(c->dt, args[rows], i * columns + k,
                        fabs(dtype_load(c->dt, args[rows], i * columns + k)) / 8);
}

void **scan_args(const struct scan_case *c, const graph *g, uint64_t seed, bool evaluate)
{
    struct random r = {seed + 1};
    void **args = random_args(g, seed, evaluate);
    int a = leaf(g, "a"), bias = leaf(g, "bias"), starts = leaf(g, "starts");
    for (int64_t i = 0; i < type_elements(&g->node[g->leaf[a]].type); i++)
        dtype_store(CODA_F32, args[a], i, -exp(2 * random_normal(&r) - 1));
    for (int64_t i = 0; bias >= 0 && i < c->heads; i++) { /* some beyond where softplus is the identity */
        double v = random_chance(&r, 5) ? 25 : 2 * random_normal(&r) - 3;
        dtype_store(CODA_F32, args[bias], i, has(c, SCAN_SOFTPLUS) ? v : fabs(v) / 32);
    }
    for (int64_t i = 0; i <= MAX(c->sequences, 0) && starts >= 0; i++) {
        int64_t step = (c->tokens + 2) / MAX(c->sequences, 1);
        dtype_store(CODA_I32, args[starts], i, (double)(i * step + random_below(&r, step + 2) - 1));
    }
    scale_steps(c, g, args);
    return args;
}

/* ---- What loops say ---- */

/* Where a token's columns of one operand are. */
struct rows {
    coda_dtype dtype;
    const void *base;
    int64_t first, pitch;
};

static struct rows find(const struct scan_case *c, const graph *g, void **args, int which)
{
    static const char *const name[ROWS] = {"x", "dt", "b", "c", "gate"};
    static const int order[] = {GATE, X, B, C, DT};
    int whole = leaf(g, "rows"), own = leaf(g, name[which]);
    int64_t at = 0;
    if (own >= 0)
        return (struct rows){which == DT ? c->dt : c->dtype, args[own], 0,
                             type_columns(&g->node[g->leaf[own]].type)};
    for (int i = 0; order[i] != which; i++) at += width(c, order[i]);
    return (struct rows){c->dtype, args[whole], at, type_columns(&g->node[g->leaf[whole]].type)};
}

static double at(const struct rows *r, int64_t row, int64_t column)
{
    return dtype_load(r->dtype, r->base, r->first + row * r->pitch + column);
}

static double number(const graph *g, void **args, const char *name, int64_t i)
{
    int l = leaf(g, name);
    return l < 0 ? 0 : dtype_load(g->node[g->leaf[l]].type.dtype, args[l], i);
}

struct loops {
    const struct scan_case *c;
    const graph *g;
    void **args;
    struct rows in[ROWS];
};

/* Column k of the tokens from `row` below `end`. */
static void walk(const struct loops *l, int64_t k, int64_t row, int64_t end, double *s, double *y)
{
    const struct scan_case *c = l->c;
    int64_t h = k / c->head_dim, columns = c->heads * c->head_dim;
    int64_t of = h / (c->heads / c->groups) * c->states;
    for (; row < end; row++) {
        double d = at(&l->in[DT], row, h) + number(l->g, l->args, "bias", h), x = at(&l->in[X], row, k),
               sum = 0;
        if (has(c, SCAN_SOFTPLUS)) d = fmax(d, 0) + log1p(exp(-fabs(d)));
        for (int64_t n = 0; n < c->states; n++) {
            double a = number(l->g, l->args, "a", has(c, SCAN_EACH) ? h * c->states + n : h);
            s[n] = exp(d * a) * s[n] + d * at(&l->in[B], row, of + n) * x;
            sum += s[n] * at(&l->in[C], row, of + n);
        }
        sum += number(l->g, l->args, "skip", h) * x;
        if (has(c, SCAN_GATED)) {
            double z = at(&l->in[GATE], row, k);
            sum *= z / (1 + exp(-z));
        }
        y[row * columns + k] = sum;
    }
}

struct scan_expected scan_expect(const struct scan_case *c, const graph *g, void **args)
{
    struct loops l = {c, g, args, {{0}}};
    int64_t columns = c->heads * c->head_dim,
            sequences = c->sequences ? MAX(c->sequences, 0) : MAX(c->batch, 1);
    int64_t rows = MAX(c->batch, 1) * c->tokens, first = 0, end = 0;
    struct scan_expected e = {calloc((size_t)(rows * columns) + 1, sizeof(double)),
                              calloc((size_t)(sequences * columns * c->states) + 1, sizeof(double))};
    for (int i = 0; i < ROWS; i++)
        if (i != GATE || has(c, SCAN_GATED)) l.in[i] = find(c, g, args, i);
    if (c->sequences) end = (int64_t)fmax(0, fmin(number(g, args, "starts", 0), (double)c->tokens));
    for (int64_t b = 0; b < sequences; b++) {
        first = c->sequences ? end : b * c->tokens;
        end = c->sequences
                  ? (int64_t)fmax((double)first, fmin(number(g, args, "starts", b + 1), (double)c->tokens))
                  : first + c->tokens;
        for (int64_t k = 0; k < columns; k++) {
            double *s = e.after + (b * columns + k) * c->states;
            for (int64_t n = 0; n < c->states; n++)
                s[n] = number(g, args, "state", (b * columns + k) * c->states + n);
            walk(&l, k, first, end, s, e.y);
        }
    }
    return e;
}

void scan_expected_free(struct scan_expected *e)
{
    free(e->y);
    free(e->after);
}

/* The worst of all, or four times the root of their mean square, which one unlucky element does not move. */
static double error_of(coda_dtype t, const void *got, const double *want, int64_t n)
{
    double sum = 0, worst = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += want[i] * want[i];
    double rms = sqrt(sum / (double)MAX(n, 1)) + 1e-30;
    for (int64_t i = 0; i < n; i++) {
        double x = t ? dtype_load(t, got, i) : ((const double *)got)[i];
        if (t == CODA_F16 && fabs(want[i]) > 65000) continue; /* it may be an infinity */
        double off = fabs(x - want[i]) / (rms + fabs(want[i]));
        worst = off <= worst ? worst : isfinite(off) ? off : INFINITY;
        squares += off * off;
    }
    return fmax(worst, 4 * sqrt(squares / (double)MAX(n, 1)));
}

/* Of bf16: what products of chunks round, gates multiply by up to five here. Of 16 draws of wide heads one
 * element of 76,800 was off by 3.5e-2 at worst. */
double scan_error(const struct scan_case *c, const graph *g, void **args, const struct scan_expected *e,
                  bool evaluate)
{
    int64_t columns = c->heads * c->head_dim,
            sequences = c->sequences ? MAX(c->sequences, 0) : MAX(c->batch, 1);
    bool keeps = has(c, SCAN_BEGINS) && has(c, SCAN_KEEPS);
    coda_dtype left = has(c, SCAN_BEGINS) ? c->state : CODA_F32;
    const void *after = args[keeps ? leaf(g, "state") : g->leaves + 1];
    double y = error_of(evaluate ? (coda_dtype)0 : c->dtype, args[g->leaves], e->y,
                        MAX(c->batch, 1) * c->tokens * columns);
    double s =
        error_of(evaluate && !keeps ? (coda_dtype)0 : left, after, e->after, sequences * columns * c->states);
    y /= evaluate ? 1e-12 : c->dtype == CODA_F32 ? 2e-5 : c->dtype == CODA_F16 ? 2e-2 : 6e-2;
    s /= evaluate && !keeps ? 1e-12 : left == CODA_F32 ? 1e-5 * fmax(1, (double)c->tokens / 64) : 2e-2;
    return fmax(y, s);
}

/* ---- Runs ---- */

/* Rows of the whole's arguments from `first` on, and its state. */
static bool run_piece(const struct scan_case *whole, const graph *all, void **args, int64_t first,
                      int64_t tokens, bool on_gpu)
{
    struct scan_case c = *whole;
    struct run_buffers b;
    coda_plan *p = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    c.tokens = tokens;
    if (!on_gpu) opt.device = CODA_DEVICE_CPU;
    graph *g = scan_graph(&c);
    void **part = calloc((size_t)(g->leaves + g->outputs) + 1, sizeof *part);
    for (int i = 0; i < g->leaves + g->outputs; i++) {
        const struct type *t =
            i < g->leaves ? &g->node[g->leaf[i]].type : &g->node[g->output[i - g->leaves].value].type;
        bool rows = i >= g->leaves || g->node[g->leaf[i]].op == OP_INPUT;
        part[i] = (char *)args[i] + (rows ? dtype_bytes(t->dtype, first * type_columns(t)) : 0);
    }
    bool good = all->leaves == g->leaves && coda_compile(&p, g, &opt) == CODA_OK;
    good = good && run_upload(&b, g, p, part, on_gpu);
    if (good) {
        good = run_prepare(&b, p) && run_plan(&b, p);
        run_release(&b);
    }
    free(part);
    coda_plan_free(p);
    graph_free(g);
    return good;
}

int64_t scan_cut(const struct scan_case *c, const int64_t *tokens, int runs, uint64_t seed, bool on_gpu)
{
    graph *g = scan_graph(c);
    void **once = scan_args(c, g, seed, false), **cut = scan_args(c, g, seed, false);
    int64_t first = 0, wrong = 0;
    bool good = run_piece(c, g, once, 0, c->tokens, on_gpu);
    for (int i = 0; i < runs && good; first += tokens[i++])
        good = run_piece(c, g, cut, first, tokens[i], on_gpu);
    int state = leaf(g, "state");
    int64_t y = dtype_bytes(c->dtype, c->tokens * c->heads * c->head_dim);
    int64_t s = dtype_bytes(c->state, type_elements(&g->node[g->leaf[state]].type));
    for (int64_t i = 0; i < y; i++) wrong += ((char *)once[g->leaves])[i] != ((char *)cut[g->leaves])[i];
    for (int64_t i = 0; i < s; i++) wrong += ((char *)once[state])[i] != ((char *)cut[state])[i];
    random_args_free(g, once);
    random_args_free(g, cut);
    graph_free(g);
    return good && first == c->tokens ? wrong : -1;
}
