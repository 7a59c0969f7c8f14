/* util_rows.c -- rows programs: every kind of step, geometry and port that a kernel over rows knows. */
#include "util_rows.h"

#include <math.h>
#include <string.h>

/* A dense matrix over the domain, loaded. */
static int matrix(struct rig *r, coda_dtype t, unsigned seed)
{
    int64_t stride[CODA_MAX_RANK], n = 1;
    for (int d = r->p.rank - 1; d >= 0; n *= r->p.dim[d--]) stride[d] = n;
    return rig_load(r, rig_buffer(r, t, n, seed), 0, stride);
}

static void store_matrix(struct rig *r, int x, coda_dtype t)
{
    int64_t stride[CODA_MAX_RANK], n = 1;
    for (int d = r->p.rank - 1; d >= 0; n *= r->p.dim[d--]) stride[d] = n;
    rig_store(r, x, rig_buffer(r, t, n, 0), 0, stride);
}

/* One value for each row of a matrix domain. */
static int row_vector(struct rig *r, coda_dtype t, unsigned seed)
{
    return rig_load(r, rig_buffer(r, t, r->p.dim[0], seed), 0, DIMS(1, 0));
}

static int column_vector(struct rig *r, coda_dtype t, unsigned seed)
{
    return rig_load(r, rig_buffer(r, t, r->p.dim[1], seed), 0, DIMS(0, 1));
}

static void store_rows(struct rig *r, int x)
{
    rig_store_row(r, x, rig_buffer(r, CODA_F32, r->p.dim[0], 0), 0, DIMS(1, 0));
}

/* ---- No reduction ---- */

static void swiglu(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(64, 1024));
    int gate = matrix(r, CODA_BF16, 1), up = matrix(r, CODA_BF16, 2);
    store_matrix(r, rig_map(r, "swiglu", gate, up, NULL), CODA_BF16);
}

static void odd_silu(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(7, 13));
    store_matrix(r, rig_map(r, "silu", matrix(r, CODA_F32, 1), -1, NULL), CODA_F32);
}

static void broadcasts(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(33, 256));
    int x = matrix(r, CODA_F16, 1), scaled = rig_map(r, "mul", x, row_vector(r, CODA_F32, 2), NULL);
    int gained = rig_map(r, "mul", scaled, column_vector(r, CODA_BF16, 3), NULL);
    store_matrix(r, rig_map(r, "add", gained, matrix(r, CODA_F32, 4), NULL), CODA_F16);
}

static void transposed(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 4, DIMS(2, 3, 5, 8));
    int x = rig_load(r, rig_buffer(r, CODA_BF16, 240, 1), 0, DIMS(120, 8, 24, 1));
    int y = rig_load(r, rig_buffer(r, CODA_BF16, 240, 2), 0, DIMS(120, 40, 1, 5));
    store_matrix(r, rig_map(r, "sub", x, y, NULL), CODA_BF16);
}

/* The halves of interleaved pairs, and a slice that starts at an odd place, into part of a wider row. */
static void slices(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(6, 40));
    int pairs = rig_buffer(r, CODA_BF16, 6 * 80, 1);
    int gate = rig_load(r, pairs, 0, DIMS(80, 2)), up = rig_load(r, pairs, 1, DIMS(80, 2));
    int odd = rig_load(r, rig_buffer(r, CODA_BF16, 300, 2), 3, DIMS(47, 1));
    int sum = rig_map(r, "add", rig_map(r, "geglu", gate, up, NULL), odd, NULL);
    rig_store(r, sum, rig_buffer(r, CODA_BF16, 6 * 100, 0), 60, DIMS(100, 1));
}

/* What formulas are written in. */
static void vocabulary(struct rig *r)
{
    static const char *const name[] = {"exp",  "log",   "sqrt", "rsqrt", "abs",
                                       "sign", "floor", "ceil", "round", "logical_not"};
    rig_init(r, PROGRAM_ROWS, 2, DIMS(33, 40));
    int x = matrix(r, CODA_F32, 1);
    for (int i = 0; i < ARRAY_SIZE(name); i++) store_matrix(r, rig_map(r, name[i], x, -1, NULL), CODA_F32);
}

/* A matrix against numbers of its rows, and a choice by one of these and one of the columns. */
static void comparisons(struct rig *r)
{
    static const char *const name[] = {"minimum",    "maximum", "equal",         "not_equal",   "less",
                                       "less_equal", "greater", "greater_equal", "logical_and", "logical_or"};
    rig_init(r, PROGRAM_ROWS, 2, DIMS(33, 40));
    int x = matrix(r, CODA_F32, 1), id = rig_load(r, rig_ids(r, 33, 3, 2), 0, DIMS(1, 0));
    int less = rig_map(r, "less", column_vector(r, CODA_F32, 3), id, NULL);
    int where = rig_map(r, "where", less, x, NULL);
    r->step[where].in[r->step[where].nin++] = id;
    store_matrix(r, where, CODA_BF16);
    for (int i = 0; i < ARRAY_SIZE(name); i++) store_matrix(r, rig_map(r, name[i], x, id, NULL), CODA_F32);
}

static void scalars(struct rig *r)
{
    float alpha = 0.125f;
    rig_init(r, PROGRAM_ROWS, 1, DIMS(1000));
    int one = rig_load(r, rig_buffer(r, CODA_F32, 1, 1), 0, DIMS(0));
    int x = rig_map(r, "scale", matrix(r, CODA_F32, 2), -1, &alpha);
    store_matrix(r, rig_map(r, "div", x, one, NULL), CODA_BF16);
}

static void integers(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 3, DIMS(3, 5, 20));
    int x = rig_load(r, rig_ids(r, 300, 1000, 1), 0, DIMS(100, 20, 1));
    store_matrix(r, x, CODA_I32);
    store_matrix(r, x, CODA_F32);
}

static void six_dimensions(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 6, DIMS(2, 1, 3, 2, 1, 6));
    int x = rig_load(r, rig_buffer(r, CODA_F32, 100, 1), 1, DIMS(36, 7, 12, 6, 3, 1));
    int y = rig_load(r, rig_buffer(r, CODA_F32, 100, 2), 0, DIMS(1, 0, 2, 6, 0, 12));
    store_matrix(r, rig_map(r, "mul", x, y, NULL), CODA_F32);
}

static void one_column(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(300, 1));
    int x = rig_map(r, "tanh", row_vector(r, CODA_F32, 1), -1, NULL);
    store_rows(r, x);
    rig_store(r, matrix(r, CODA_BF16, 2), rig_buffer(r, CODA_F32, 300, 0), 0, DIMS(1, 1));
}

/* A row value spread over its columns; a value that repeats, stored once. */
static void repeats(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 3, DIMS(4, 3, 16));
    int row = rig_load(r, rig_buffer(r, CODA_F32, 12, 1), 0, DIMS(3, 1, 0));
    int col = rig_load(r, rig_buffer(r, CODA_F32, 16, 2), 0, DIMS(0, 0, 1));
    int some = rig_load(r, rig_buffer(r, CODA_F32, 4, 3), 0, DIMS(1, 0, 0));
    store_matrix(r, row, CODA_F32);
    rig_store(r, col, rig_buffer(r, CODA_F32, 16, 0), 0, DIMS(0, 0, 1));
    rig_store(r, col, rig_buffer(r, CODA_F32, 12, 0), 0, DIMS(3, 1, 0));
    rig_store_row(r, some, rig_buffer(r, CODA_F32, 4, 0), 0, DIMS(1, 0, 0));
}

/* ---- Reductions ---- */

static void rms_norm(struct rig *r, coda_dtype t)
{
    float params[] = {1.0f / (float)r->p.dim[1], 1e-5f};
    int x = matrix(r, t, 1), s = rig_reduce(r, "sum_sq", x, -1),
        rstd = rig_map(r, "rsqrt_mean", s, -1, params);
    int y = rig_map(r, "mul", rig_map(r, "mul", x, rstd, NULL), column_vector(r, t, 2), NULL);
    store_matrix(r, y, t);
    store_rows(r, rstd);
}

static void rms_norm_wide(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(37, 4096));
    rms_norm(r, CODA_BF16);
}

static void rms_norm_narrow(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(50, 96));
    rms_norm(r, CODA_F32);
}

static void layer_norm(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(11, 770));
    float params[] = {1.0f / 770, 1e-5f};
    int x = rig_map(r, "add", matrix(r, CODA_BF16, 1), matrix(r, CODA_BF16, 2), NULL);
    int mean = rig_reduce(r, "mean", x, -1);
    int rstd = rig_map(r, "rsqrt_mean", rig_reduce(r, "m2", x, -1), -1, params);
    int y = rig_map(r, "mul", rig_map(r, "sub", x, mean, NULL), rstd, NULL);
    int z = rig_map(r, "add", rig_map(r, "mul", y, column_vector(r, CODA_F32, 3), NULL),
                    column_vector(r, CODA_F32, 4), NULL);
    store_matrix(r, z, CODA_BF16);
}

/* Three phases: the sum needs the mean of the row. */
static void centred(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(5, 4000));
    float inverse = 1.0f / 4000, params[] = {1.0f / 4000, 0};
    int x = matrix(r, CODA_F32, 1);
    int mean = rig_map(r, "scale", rig_reduce(r, "sum", x, -1), -1, &inverse);
    int d = rig_map(r, "sub", x, mean, NULL);
    int rstd = rig_map(r, "rsqrt_mean", rig_reduce(r, "sum_sq", d, -1), -1, params);
    store_matrix(r, rig_map(r, "mul", d, rstd, NULL), CODA_F32);
}

static void softmax(struct rig *r, int64_t rows, int64_t columns, coda_dtype t)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(rows, columns));
    int x = matrix(r, t, 1);
    int most = rig_reduce(r, "exp_max", x, -1), sum = rig_reduce(r, "exp_sum", x, -1);
    int weight = rig_map(r, "exp_sub", x, most, NULL);
    store_matrix(r, rig_map(r, "mul", weight, rig_map(r, "rcp", sum, -1, NULL), NULL), t);
}

static void softmax_odd(struct rig *r) { softmax(r, 5, 1001, CODA_F32); }
static void softmax_large(struct rig *r) { softmax(r, 3, 50000, CODA_BF16); }
static void softmax_tiny(struct rig *r) { softmax(r, 400, 16, CODA_BF16); }
static void softmax_one(struct rig *r) { softmax(r, 9, 1, CODA_F32); }

static void extremes(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(3, 100003));
    int x = matrix(r, CODA_BF16, 1);
    store_rows(r, rig_reduce(r, "max", x, -1));
    store_rows(r, rig_reduce(r, "log_sum_exp", x, -1));
    store_rows(r, rig_reduce(r, "m2", x, -1));
}

/* States wider than others, of a warp's row and of a block's. */
static void best(struct rig *r, int64_t columns)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(7, columns));
    int x = matrix(r, CODA_BF16, 1);
    store_rows(r, rig_reduce(r, "top_16", x, -1));
    store_rows(r, rig_reduce(r, "top_4", x, -1));
}
static void best_few(struct rig *r) { best(r, 100); }
static void best_many(struct rig *r) { best(r, 5003); }

static void cross_entropy(struct rig *r)
{
    float params[] = {-100, 1000};
    rig_init(r, PROGRAM_ROWS, 2, DIMS(20, 1000));
    int targets = rig_ids(r, 20, 1000, 5);
    rig_set(r, targets, 3, -100);
    rig_set(r, targets, 4, 1000);
    int x = matrix(r, CODA_BF16, 1), target = rig_load(r, targets, 0, DIMS(1, 0));
    store_rows(r, rig_map(r, "nll_loss", rig_reduce(r, "nll", x, target), target, params));
}

/* Rows that are four dimensions deep, with pitches. */
static void deep_sums(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 4, DIMS(3, 4, 5, 72));
    int x = rig_load(r, rig_buffer(r, CODA_F16, 3 * 2000, 1), 16, DIMS(2000, 80, 400, 1));
    rig_store_row(r, rig_reduce(r, "sum", x, -1), rig_buffer(r, CODA_F32, 60, 0), 0, DIMS(1, 15, 3, 0));
}

/* ---- States of a GEMM's tiles ---- */

/* Random ones as tiles leave them: counts and sums are positive, one tile of a row may hold the selected. */
static int states(struct rig *r, const char *reduce, int blocks)
{
    int64_t rows = 1;
    int size = prim_find(reduce)->state;
    for (int d = 0; d + 1 < r->p.rank; d++) rows *= r->p.dim[d];
    int b = rig_buffer(r, CODA_F32, rows * blocks * size, 7 + (unsigned)blocks);
    for (int64_t i = 0; i < rows * blocks * size; i++) {
        double x = rig_get(r, b, i);
        if (!strcmp(reduce, "select")) rig_set(r, b, i, i / blocks % blocks == i % blocks ? x : 0);
        else if (!strcmp(reduce, "m2"))
            rig_set(r, b, i, i % 3 == 0 ? (double)(i % 7) : i % 3 == 1 ? x : 3 + x);
        else if (strcmp(reduce, "max") && (size == 1 || i % size)) rig_set(r, b, i, 3 + x);
    }
    return b;
}

static int finish(struct rig *r, const char *reduce, int blocks)
{
    return rig_partial(r, reduce, states(r, reduce, blocks), blocks);
}

static void finishing(struct rig *r)
{
    float params[] = {1.0f / 512, 1e-6f};
    rig_init(r, PROGRAM_ROWS, 2, DIMS(130, 1));
    store_rows(r, rig_map(r, "rsqrt_mean", finish(r, "sum_sq", 4), -1, params));
}

/* Every reduction, each with as many states as it likes. */
static void finishing_all(struct rig *r, int64_t rows, int lse, int m2, int sum, int select, int max)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(rows, 1));
    store_rows(r, finish(r, "log_sum_exp", lse));
    store_rows(r, finish(r, "m2", m2));
    store_rows(r, finish(r, "sum", sum));
    store_rows(r, finish(r, "select", select));
    store_rows(r, finish(r, "max", max));
}

static void finishing_one(struct rig *r) { finishing_all(r, 1, 257, 33, 31, 3, 1); }
static void finishing_few(struct rig *r) { finishing_all(r, 3, 1, 3, 33, 31, 257); }
static void finishing_eight(struct rig *r) { finishing_all(r, 8, 31, 257, 1, 33, 3); }
static void finishing_many(struct rig *r) { finishing_all(r, 1000, 31, 3, 1, 20, 17); }
static void finishing_pairs(struct rig *r) { finishing_all(r, 448, 5, 8, 7, 6, 5); }
static void finishing_halves(struct rig *r) { finishing_all(r, 130, 3, 33, 64, 1, 31); }
static void finishing_odd(struct rig *r) { finishing_all(r, 999, 3, 31, 33, 8, 5); }
static void finishing_long(struct rig *r) { finishing_all(r, 5, 1100, 513, 4000, 545, 2048); }

/* A loss from the states of its logits: what is loaded and stored is in the one column. */
static void finishing_loss(struct rig *r)
{
    float params[] = {-100, 1000};
    rig_init(r, PROGRAM_ROWS, 2, DIMS(9, 1));
    int targets = rig_ids(r, 9, 1000, 5);
    rig_set(r, targets, 3, -100);
    int nll = finish(r, "nll", 256), target = rig_load(r, targets, 0, DIMS(1, 1));
    int loss = rig_map(r, "nll_loss", nll, target, params);
    r->step[loss].cls = CLASS_TILE;
    rig_store(r, loss, rig_buffer(r, CODA_F32, 9, 0), 0, DIMS(1, 1));
}

/* Rows three dimensions deep, and a statistic of the two columns beside one that tiles made. */
static void finishing_columns(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 4, DIMS(3, 4, 5, 2));
    int x = rig_load(r, rig_buffer(r, CODA_BF16, 3 * 100, 1), 0, DIMS(100, 4, 20, 2));
    int sum = rig_reduce(r, "sum_sq", x, -1), y = rig_map(r, "sub", x, finish(r, "sum", 13), NULL);
    store_matrix(r, rig_map(r, "mul", y, sum, NULL), CODA_F32);
    rig_store_row(r, sum, rig_buffer(r, CODA_F32, 60, 0), 0, DIMS(1, 15, 3, 0));
}

static void normalising(struct rig *r, int64_t columns, int blocks)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(21, columns));
    int state = states(r, "exp_sum", blocks), most = rig_partial(r, "exp_max", state, blocks);
    int factor = rig_map(r, "rcp", rig_partial(r, "exp_sum", state, blocks), -1, NULL);
    int weight = rig_map(r, "exp_sub", matrix(r, CODA_BF16, 1), most, NULL);
    store_matrix(r, rig_map(r, "mul", weight, factor, NULL), CODA_F32);
}

static void normalising_few(struct rig *r) { normalising(r, 640, 3); }
static void normalising_warps(struct rig *r) { normalising(r, 96, 257); }
static void normalising_large(struct rig *r) { normalising(r, 40000, 33); }

/* As a layer norm does whose statistics a GEMM has made. */
static void centring(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(12, 1024));
    float params[] = {1.0f / 1024, 1e-5f};
    int state = states(r, "m2", 16), mean = rig_partial(r, "mean", state, 16);
    int rstd = rig_map(r, "rsqrt_mean", rig_partial(r, "m2", state, 16), -1, params);
    int x = rig_map(r, "sub", matrix(r, CODA_BF16, 1), mean, NULL);
    int y = rig_map(r, "mul", rig_map(r, "mul", x, rstd, NULL), column_vector(r, CODA_F32, 3), NULL);
    store_matrix(r, y, CODA_BF16);
}

/* As many registers as loads and states ahead of them can want. */
static void centring_large(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(2, 32768));
    float params[] = {1.0f / 32768, 1e-5f};
    int x = rig_map(r, "sub", matrix(r, CODA_BF16, 1), finish(r, "log_sum_exp", 512), NULL);
    int rstd = rig_map(r, "rsqrt_mean", finish(r, "m2", 512), -1, params);
    store_matrix(r, rig_map(r, "mul", x, rstd, NULL), CODA_BF16);
}

/* ---- Tables ---- */

static int table(struct rig *r, int64_t rows, int64_t columns, int id)
{
    return rig_gather(r, rig_buffer(r, CODA_BF16, rows * columns, 3), rows, columns, id);
}

static int ids(struct rig *r)
{
    int b = rig_ids(r, r->p.dim[0], 100, 1);
    rig_set(r, b, 0, -1);
    rig_set(r, b, 1, 100);
    rig_set(r, b, 2, 99);
    return rig_load(r, b, 0, DIMS(1, 0));
}

static void embedding(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(40, 512));
    store_matrix(r, table(r, 100, 512, ids(r)), CODA_BF16);
}

static void embedding_odd(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(40, 33));
    store_matrix(r, table(r, 100, 33, ids(r)), CODA_F32);
}

static void embedding_norm(struct rig *r)
{
    float params[] = {1.0f / 768, 1e-5f};
    rig_init(r, PROGRAM_ROWS, 2, DIMS(40, 768));
    int x = rig_map(r, "add", table(r, 100, 768, ids(r)), matrix(r, CODA_BF16, 4), NULL);
    int rstd = rig_map(r, "rsqrt_mean", rig_reduce(r, "sum_sq", x, -1), -1, params);
    store_matrix(r, rig_map(r, "mul", x, rstd, NULL), CODA_BF16);
}

/* ---- Rotary embedding ---- */

/* Positions are of so many numbers; 0: there are none. */
static int turned(struct rig *r, int x, struct pairing spec, int axes)
{
    int ids = axes ? rig_ids(r, 48 * axes, 100000, 2) : -1, at[STEP_MAX_INPUTS] = {-1};
    spec.base = 10000;
    spec.period = 24;
    r->p.pairing = spec;
    for (int i = 0; i < axes; i++) at[i] = rig_load(r, ids, i, DIMS(24 * axes, axes, 0));
    int turned = rig_rope(r, x, at[0]);
    for (int i = 1; i < axes; i++) r->step[turned].in[r->step[turned].nin++] = at[i];
    return turned;
}
static void rope(struct rig *r, struct pairing spec, int64_t columns, int axes)
{
    rig_init(r, PROGRAM_ROWS, 3, DIMS(2, 24, columns));
    store_matrix(r, turned(r, matrix(r, CODA_BF16, 1), spec, axes), CODA_BF16);
}

/* A norm of all heads ahead of it: the row's team makes its turns once. */
static void rope_normed(struct rig *r, coda_dtype dtype, struct pairing spec, int64_t columns, int axes)
{
    float params[] = {1.0f / (float)columns, 1e-5f};
    rig_init(r, PROGRAM_ROWS, 3, DIMS(2, 24, columns));
    int x = matrix(r, dtype, 1), rstd = rig_map(r, "rsqrt_mean", rig_reduce(r, "sum_sq", x, -1), -1, params);
    store_matrix(r, turned(r, rig_map(r, "mul", x, rstd, NULL), spec, axes), dtype);
}
static void rope_normed_axes(struct rig *r)
{
    struct pairing spec = {.head_dim = 128, .rotary = 128, .heads = 20, .section = {22, 21, 21}};
    rope_normed(r, CODA_BF16, spec, 2560, 3);
}
static void rope_normed_half(struct rig *r)
{
    rope_normed(r, CODA_F16, (struct pairing){.head_dim = 96, .rotary = 64, .heads = 7, .half = true}, 1056,
                1);
}
static void rope_normed_pairs(struct rig *r) /* no thread stays at one place of its head */
{
    rope_normed(r, CODA_BF16, (struct pairing){.head_dim = 88, .rotary = 40, .heads = 14}, 1320, 1);
}
static void rope_normed_alone(struct rig *r) /* one column a thread and turn, more pairs than threads */
{
    rope_normed(r, CODA_BF16, (struct pairing){.head_dim = 515, .rotary = 514, .heads = 4}, 2061, 0);
}

/* Turned ahead of the row's statistic. */
static void rope_summed(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 3, DIMS(2, 24, 1024));
    struct pairing spec = {.head_dim = 64, .rotary = 64, .heads = 16};
    int y = turned(r, matrix(r, CODA_BF16, 1), spec, 1);
    store_matrix(r, rig_map(r, "sub", y, rig_reduce(r, "max", y, -1), NULL), CODA_F16);
}

/* Frequencies, every third of a vector, a scale and the inverse. */
static void rope_by_frequencies(struct rig *r, struct pairing spec, int64_t columns)
{
    rope(r, spec, columns, 1);
    int64_t pairs = spec.rotary / 2;
    struct tensor_use port = {.role = USE_FREQUENCIES, .dtype = CODA_F32, .value = -1, .table_stride = 3};
    port.buffer = rig_buffer(r, CODA_F32, 3 * pairs, 5);
    port.table_rows = pairs;
    for (int64_t i = 0; i < pairs; i++) rig_set(r, port.buffer, 3 * i, 0.9 - 0.01 * (double)i);
    r->port[r->p.ports] = port;
    for (int i = 0; i < r->p.steps; i++)
        if (r->step[i].kind == STEP_PAIR) r->step[i].port = r->p.ports;
    r->p.ports++;
    r->p.pairing.scale = 0.75f;
    r->p.pairing.inverse = true;
}
static void rope_frequencies_half(struct rig *r)
{
    rope_by_frequencies(r, (struct pairing){.head_dim = 64, .rotary = 64, .heads = 3, .half = true}, 256);
}
static void rope_frequencies_odd(struct rig *r)
{
    rope_by_frequencies(r, (struct pairing){.head_dim = 11, .rotary = 6, .heads = 3}, 44);
}

/* Positions on several axes: columns of one matrix. */
static void rope_on_axes(struct rig *r)
{
    struct pairing spec = {.head_dim = 64, .rotary = 64, .heads = 3, .half = true, .section = {8, 12, 12}};
    rope(r, spec, 256, 3);
}
static void rope_on_axes_in_turn(struct rig *r)
{
    struct pairing spec = {
        .head_dim = 11, .rotary = 10, .heads = 3, .section = {2, 1, 1, 1}, .interleaves = true};
    rope(r, spec, 44, 4);
}
static void rope_on_axes_pairs(struct rig *r)
{
    struct pairing spec = {.head_dim = 64, .rotary = 32, .heads = 4, .section = {9, 7}, .interleaves = true};
    rope(r, spec, 256, 2);
}

static void rope_half(struct rig *r)
{
    rope(r, (struct pairing){.head_dim = 64, .rotary = 64, .heads = 4, .half = true}, 256, 0);
}
static void rope_pairs(struct rig *r)
{
    rope(r, (struct pairing){.head_dim = 64, .rotary = 64, .heads = 4}, 256, 1);
}
static void rope_partial(struct rig *r)
{
    rope(r, (struct pairing){.head_dim = 64, .rotary = 32, .heads = 2, .half = true}, 256, 1);
}
static void rope_partial_pairs(struct rig *r)
{
    rope(r, (struct pairing){.head_dim = 48, .rotary = 24, .heads = 3}, 192, 0);
}
static void rope_odd(struct rig *r)
{
    rope(r, (struct pairing){.head_dim = 11, .rotary = 6, .heads = 3, .half = true}, 44, 1);
}
static void rope_odd_pairs(struct rig *r)
{
    rope(r, (struct pairing){.head_dim = 11, .rotary = 6, .heads = 3}, 44, 0);
}

/* ---- Columns ---- */

/* `parts` states of each column, of the domain's matrices. */
static void fold(struct rig *r, const char *reduce, int x, int parts)
{
    int64_t n = parts * r->p.dim[r->p.rank - 1] * prim_find(reduce)->state;
    for (int d = 0; d + 2 < r->p.rank; d++) n *= r->p.dim[d];
    rig_reduce_columns(r, reduce, x, rig_buffer(r, CODA_F32, n, 0), parts);
}

/* A gain's and a bias's gradients, and what they are of. */
static void columns_wide(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(700, 520));
    int dy = matrix(r, CODA_BF16, 1),
        x = rig_map(r, "mul", matrix(r, CODA_BF16, 2), row_vector(r, CODA_F32, 3), NULL);
    int dx = rig_map(r, "mul", dy, column_vector(r, CODA_BF16, 4), NULL);
    fold(r, "sum_sq", rig_map(r, "mul", dy, x, NULL), 3);
    fold(r, "max", dy, 3);
    store_matrix(r, dx, CODA_BF16);
}

static void columns_odd(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(1001, 37));
    int x = matrix(r, CODA_F32, 1);
    fold(r, "log_sum_exp", x, 4);
    fold(r, "arg_max", x, 4);
    fold(r, "m2", x, 4);
}

/* Matrices three dimensions deep, of which a row value is stored, too. */
static void columns_of_matrices(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 5, DIMS(2, 3, 1, 50, 24));
    int x = rig_load(r, rig_buffer(r, CODA_F16, 7200, 1), 0, DIMS(3600, 24, 0, 72, 1));
    int y = rig_load(r, rig_buffer(r, CODA_F32, 7200, 2), 0, DIMS(1, 2, 0, 144, 6));
    int row =
        rig_map(r, "silu", rig_load(r, rig_buffer(r, CODA_F32, 300, 3), 0, DIMS(150, 1, 0, 3, 0)), -1, NULL);
    fold(r, "sum_sq", rig_map(r, "mul", rig_map(r, "add", x, y, NULL), row, NULL), 7);
    rig_store_row(r, row, rig_buffer(r, CODA_F32, 300, 0), 0, DIMS(150, 50, 0, 1, 0));
}

static void columns_few(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(1, 3));
    fold(r, "sum", matrix(r, CODA_BF16, 1), 1);
}
static void columns_one(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(2000, 1));
    fold(r, "max", rig_load(r, rig_buffer(r, CODA_F32, 2000, 1), 0, DIMS(1, 1)), 2);
}
/* More parts than rows would fill. */
static void columns_in_parts(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 3, DIMS(2, 9, 300));
    fold(r, "max", matrix(r, CODA_BF16, 1), 6);
}

/* ---- Rows and columns in one walk ---- */

/* Sums down columns of what a row's statistic is of, and of what is made of that: a second walk of the
 * row. */
static void both(struct rig *r, int64_t rows, int64_t columns, coda_dtype t, int parts)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(rows, columns));
    int x = matrix(r, t, 1), p = rig_map(r, "mul", x, matrix(r, t, 2), NULL);
    int most = rig_reduce(r, "max", p, -1), d = rig_map(r, "sub", p, most, NULL);
    fold(r, "sum_sq", p, parts);
    fold(r, "sum_sq", d, parts);
    fold(r, "max", x, parts);
    store_matrix(r, d, CODA_BF16);
    rig_store_row(r, most, rig_buffer(r, CODA_F32, rows, 0), 0, DIMS(1, 0));
}

static void both_wide(struct rig *r) { both(r, 70, 4096, CODA_BF16, 5); }
static void both_warps(struct rig *r) { both(r, 333, 200, CODA_F16, 4); }
static void both_odd(struct rig *r) { both(r, 77, 1037, CODA_F32, 3); }
static void both_few(struct rig *r) { both(r, 500, 3, CODA_F32, 2); }

/* Of matrices three dimensions deep, with a statistic that tiles have left. */
static void both_of_matrices(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 4, DIMS(2, 3, 50, 24));
    int x = rig_load(r, rig_buffer(r, CODA_F16, 7200, 1), 0, DIMS(3600, 24, 72, 1));
    int y = rig_map(r, "mul", x, finish(r, "sum", 5), NULL), sum = rig_reduce(r, "sum_sq", y, -1);
    fold(r, "sum_sq", rig_map(r, "add", x, sum, NULL), 7);
    rig_store_row(r, sum, rig_buffer(r, CODA_F32, 300, 0), 0, DIMS(150, 50, 1, 0));
}

static int finished(struct rig *r, const char *reduce, int parts)
{
    int64_t n = parts * r->p.dim[0] * r->p.dim[2] * prim_find(reduce)->state;
    int buffer = rig_buffer(r, CODA_F32, n, (unsigned)parts + 1);
    for (int64_t i = 0; i < n; i++) rig_set(r, buffer, i, fabs(rig_get(r, buffer, i)) + 0.5);
    return rig_partial_columns(r, reduce, buffer, parts);
}

/* Each with as many states as it likes; together they make a value. */
static void columns_finished(struct rig *r, int64_t columns, int lse, int m2, int sum)
{
    rig_init(r, PROGRAM_ROWS, 3, DIMS(3, 1, columns));
    int a = finished(r, "log_sum_exp", lse), b = finished(r, "m2", m2), c = finished(r, "sum", sum);
    int gain = rig_load(r, rig_buffer(r, CODA_BF16, columns, 5), 0, DIMS(0, 0, 1));
    store_matrix(r, rig_map(r, "mul", a, gain, NULL), CODA_BF16);
    store_matrix(r, rig_map(r, "add", b, c, NULL), CODA_F32);
}
static void columns_finished_few(struct rig *r) { columns_finished(r, 37, 1, 3, 4); }
static void columns_finished_many(struct rig *r) { columns_finished(r, 264, 9, 130, 65); }
static void columns_finished_none(struct rig *r) { columns_finished(r, 8, 0, 0, 0); }

/* Two readings of one state. */
static void columns_finished_twice(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 3, DIMS(1, 1, 300));
    int most = finished(r, "exp_max", 33), buffer = r->port[r->step[most].port].buffer;
    int sum = rig_partial_columns(r, "exp_sum", buffer, 33);
    store_matrix(r, rig_map(r, "div", most, sum, NULL), CODA_F32);
}

/* ---- Empty ---- */

static void no_columns(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 2, DIMS(10, 0));
    int x = matrix(r, CODA_F32, 1);
    store_rows(r, rig_reduce(r, "sum", x, -1));
    store_rows(r, rig_reduce(r, "max", x, -1));
    store_matrix(r, x, CODA_F32);
}

static void no_rows(struct rig *r)
{
    rig_init(r, PROGRAM_ROWS, 3, DIMS(2, 0, 64));
    store_matrix(r, rig_map(r, "relu", matrix(r, CODA_F32, 1), -1, NULL), CODA_F32);
}

const struct rows_case rows_cases[] = {
    {"swiglu", swiglu},
    {"odd silu", odd_silu},
    {"broadcasts", broadcasts},
    {"vocabulary", vocabulary},
    {"comparisons", comparisons},
    {"transposed", transposed},
    {"slices", slices},
    {"scalars", scalars},
    {"integers", integers},
    {"six dimensions", six_dimensions},
    {"one column", one_column},
    {"repeats", repeats},
    {"rms norm, wide", rms_norm_wide},
    {"rms norm, narrow", rms_norm_narrow},
    {"layer norm", layer_norm},
    {"centred", centred},
    {"softmax, odd", softmax_odd},
    {"softmax, large", softmax_large},
    {"softmax, tiny", softmax_tiny},
    {"softmax, one column", softmax_one},
    {"extremes", extremes},
    {"best", best_few},
    {"best, many", best_many},
    {"cross entropy", cross_entropy},
    {"deep sums", deep_sums},
    {"finishing", finishing},
    {"finishing, one row", finishing_one},
    {"finishing, few rows", finishing_few},
    {"finishing, eight rows", finishing_eight},
    {"finishing, many rows", finishing_many},
    {"finishing, pairs of lanes", finishing_pairs},
    {"finishing, half warps", finishing_halves},
    {"finishing, odd rows", finishing_odd},
    {"finishing, long rows", finishing_long},
    {"finishing, loss", finishing_loss},
    {"finishing, columns", finishing_columns},
    {"normalising", normalising_few},
    {"normalising, warps", normalising_warps},
    {"normalising, large", normalising_large},
    {"centring", centring},
    {"centring, large", centring_large},
    {"embedding", embedding},
    {"embedding, odd", embedding_odd},
    {"embedding, norm", embedding_norm},
    {"rope, half", rope_half},
    {"rope, normed axes", rope_normed_axes},
    {"rope, normed half", rope_normed_half},
    {"rope, normed pairs", rope_normed_pairs},
    {"rope, normed alone", rope_normed_alone},
    {"rope, summed", rope_summed},
    {"rope, pairs", rope_pairs},
    {"rope, partial", rope_partial},
    {"rope, partial pairs", rope_partial_pairs},
    {"rope, odd", rope_odd},
    {"rope, odd pairs", rope_odd_pairs},
    {"rope, frequencies", rope_frequencies_half},
    {"rope, odd frequencies", rope_frequencies_odd},
    {"rope, axes", rope_on_axes},
    {"rope, odd axes in turn", rope_on_axes_in_turn},
    {"rope, axes of pairs", rope_on_axes_pairs},
    {"columns", columns_wide},
    {"columns, odd", columns_odd},
    {"columns, matrices", columns_of_matrices},
    {"columns, few", columns_few},
    {"columns, one", columns_one},
    {"columns, parts", columns_in_parts},
    {"rows and columns", both_wide},
    {"rows and columns, warps", both_warps},
    {"rows and columns, odd", both_odd},
    {"rows and columns, few", both_few},
    {"rows and columns, matrices", both_of_matrices},
    {"columns finished", columns_finished_few},
    {"columns finished, many states", columns_finished_many},
    {"columns finished, no states", columns_finished_none},
    {"columns finished, twice", columns_finished_twice},
    {"no columns", no_columns},
    {"no rows", no_rows},
};
const int rows_case_count = ARRAY_SIZE(rows_cases);
