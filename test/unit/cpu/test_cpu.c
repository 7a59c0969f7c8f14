/* test_cpu.c -- the CPU device against direct loops: products, every kind of step and port, attention. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "util_gemm.h"
#include "util_program.h"

#include "tests.h" /* last: Check has a macro named fail */

static void run(struct rig *r)
{
    coda_status status = rig_run(r);
    ck_assert_msg(status == CODA_OK, "%s", coda_error());
}

static void expect(const struct rig *r, int buffer, int64_t i, double want, double tolerance)
{
    double got = rig_get(r, buffer, i);
    if (isnan(want) ? isnan(got) : got == want || fabs(got - want) <= tolerance * fmax(fabs(want), 1)) return;
    ck_abort_msg("buffer %d[%lld] is %.9g, not %.9g", buffer, (long long)i, got, want);
}

static double silu(double x) { return x / (1 + exp(-x)); }

/* ---- Products ---- */

enum { BATCH = 2, M = 37, N = 41, K = 300 };

struct layout {
    const char *name;
    int64_t a[3], b[3]; /* strides of batch, row, k */
};

static const struct layout layouts[] = {
    {"dense", {M * K, K, 1}, {N * K, K, 1}},
    {"b [K,N]", {M * K, K, 1}, {N * K, 1, N}},
    {"a [K,M]", {M * K, 1, M}, {N * K, K, 1}},
    {"both", {M * K, 1, M}, {N * K, 1, N}},
    {"pitches, one weight", {M * (K + 3), K + 3, 1}, {0, K + 5, 1}},
};

static double dot(const struct rig *r, int64_t batch, int64_t m, int64_t n)
{
    const struct tensor_use *a = &r->p.a.data, *b = &r->p.b.data;
    double sum = 0;
    for (int64_t k = 0; k < r->p.k; k++)
        sum += rig_get(r, a->buffer, a->offset + batch * a->batch + m * a->row + k * a->k) *
               rig_get(r, b->buffer, b->offset + batch * b->batch + n * b->row + k * b->k);
    return sum;
}

START_TEST(products)
{
    const struct layout *l = &layouts[_i];
    struct rig r;
    rig_init(&r, PROGRAM_GEMM, 3, DIMS(BATCH, M, N));
    r.p.k = K;
    rig_operand(&r, &r.p.a, rig_buffer(&r, CODA_BF16, BATCH * M * (K + 8), 1), l->a[0], l->a[1], l->a[2]);
    rig_operand(&r, &r.p.b, rig_buffer(&r, CODA_F16, BATCH * N * (K + 8), 2), l->b[0], l->b[1], l->b[2]);
    r.p.a.data.offset = 2;
    int y = rig_buffer(&r, CODA_F32, BATCH * M * N, 0);
    rig_store(&r, rig_acc(&r), y, 0, DIMS(M * N, N, 1));
    run(&r);
    for (int64_t i = 0; i < BATCH * M * N; i++)
        expect(&r, y, i, dot(&r, i / (M * N), i / N % M, i % N), 2e-5);
    rig_free(&r);
}
END_TEST

/* A product of a [m,k] and b [n,k] in f32, ready for its epilogue. */
static int product(struct rig *r, int64_t m, int64_t n, int64_t k)
{
    rig_init(r, PROGRAM_GEMM, 3, DIMS(1, m, n));
    r->p.k = k;
    rig_operand(r, &r->p.a, rig_buffer(r, CODA_F32, m * k, 11), 0, k, 1);
    rig_operand(r, &r->p.b, rig_buffer(r, CODA_F32, n * k, 12), 0, k, 1);
    return rig_acc(r);
}

START_TEST(products_of_nothing)
{
    const int64_t shapes[][3] = {{0, 5, 7}, {5, 0, 7}, {5, 7, 0}, {0, 0, 0}, {1, 1, 1}};
    for (int s = 0; s < ARRAY_SIZE(shapes); s++) {
        int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
        struct rig r;
        int acc = product(&r, m, n, k), y = rig_buffer(&r, CODA_F32, m * n, 3);
        rig_store(&r, acc, y, 0, DIMS(m * n, n, 1));
        run(&r);
        for (int64_t i = 0; i < m * n; i++) expect(&r, y, i, dot(&r, 0, i / n, i % n), 1e-6);
        rig_free(&r);
    }
}
END_TEST

START_TEST(maps_of_rows_columns_and_tiles)
{
    struct rig r;
    int acc = product(&r, 9, 20, 16);
    int scale = rig_buffer(&r, CODA_F32, 9, 1), bias = rig_buffer(&r, CODA_BF16, 20, 2);
    int residual = rig_buffer(&r, CODA_F16, 9 * 24, 3), y = rig_buffer(&r, CODA_BF16, 9 * 30, 4);
    int x = rig_map(&r, "mul", acc, rig_load(&r, scale, 0, DIMS(0, 1, 0)), NULL);
    x = rig_map(&r, "add", x, rig_load(&r, bias, 0, DIMS(0, 0, 1)), NULL);
    x = rig_map(&r, "add", rig_map(&r, "silu", x, -1, NULL), rig_load(&r, residual, 4, DIMS(0, 24, 1)), NULL);
    rig_store(&r, x, y, 5, DIMS(0, 30, 1));
    double untouched = rig_get(&r, y, 27);
    run(&r);
    for (int64_t m = 0; m < 9; m++)
        for (int64_t n = 0; n < 20; n++) {
            double v = silu(dot(&r, 0, m, n) * rig_get(&r, scale, m) + rig_get(&r, bias, n));
            expect(&r, y, 5 + m * 30 + n, v + rig_get(&r, residual, 4 + m * 24 + n), 0x1p-8);
        }
    ck_assert(rig_get(&r, y, 27) == untouched);
    rig_free(&r);
}
END_TEST

/* A store rounds to nearest even; values on the way are floats. */
START_TEST(stores_round)
{
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 1, DIMS(4));
    int x = rig_buffer(&r, CODA_F32, 4, 0), y = rig_buffer(&r, CODA_BF16, 4, 0),
        z = rig_buffer(&r, CODA_F16, 4, 0);
    const double in[] = {1 + 0x1p-8, 1 + 3 * 0x1p-8, 70000, 1e-9};
    for (int i = 0; i < 4; i++) rig_set(&r, x, i, in[i]);
    int v = rig_load(&r, x, 0, DIMS(1));
    rig_store(&r, v, y, 0, DIMS(1));
    rig_store(&r, v, z, 0, DIMS(1));
    run(&r);
    ck_assert(rig_get(&r, y, 0) == 1 && rig_get(&r, y, 1) == 1 + 0x1p-6);
    ck_assert(isinf(rig_get(&r, z, 2)) && rig_get(&r, z, 3) == 0);
    rig_free(&r);
}
END_TEST

/* The programs that GEMM kernels are tested with: within twice what those are allowed. */
START_TEST(gemm_programs)
{
    const struct gemm_case *c = &gemm_cases[_i];
    struct gemm_rig r;
    if ((double)c->batch * c->m * c->n * c->k > 3e8 || !gemm_case_taken(_i, GEMM_SIMT)) return;
    ck_assert_msg(gemm_emit(c, GEMM_SIMT, gemm_target.sms, &r) == CODA_OK, "%s: %s", c->name, coda_error());
    ck_assert(gemm_fill(&r, 5));
    ck_assert_int_eq(cpu_run(&r.plan, &r.p, r.host, NULL, NULL), CODA_OK);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t m = 0; m < c->m; m += 1 + c->m / 16) {
            double error = gemm_row_error(&r, b, m);
            ck_assert_msg(error <= 2, "%s: row %lld has %.3f of the error allowed", c->name, (long long)m,
                          error);
        }
    for (int64_t b = 0; b < c->batch; b++)
        ck_assert_msg(gemm_columns_error(&r, b) <= 2, "%s: columns of %lld", c->name, (long long)b);
    gemm_free(&r);
}
END_TEST

/* ---- Gated units ---- */

START_TEST(gated_columns)
{
    enum { ROWS = 5, COLUMNS = 12 };
    struct rig r;
    int acc = product(&r, ROWS, COLUMNS, 8), y = rig_buffer(&r, CODA_F32, ROWS * COLUMNS / 2, 0);
    int bias = rig_buffer(&r, CODA_F32, COLUMNS / 2, 3);
    r.p.pair = _i ? PAIR_GLU_STACKED : PAIR_GLU_INTERLEAVED;
    int gated = rig_map(&r, "swiglu", rig_lane(&r, acc, 0), rig_lane(&r, acc, 1), NULL);
    int column = rig_load(&r, bias, 0, DIMS(0, 0, 1));
    r.step[column].half = true;
    rig_store(&r, rig_map(&r, "add", gated, column, NULL), y, 0, DIMS(0, COLUMNS / 2, 1));
    run(&r);
    for (int64_t m = 0; m < ROWS; m++)
        for (int64_t n = 0; n < COLUMNS / 2; n++) {
            double gate = dot(&r, 0, m, _i ? n : 2 * n), up = dot(&r, 0, m, _i ? n + COLUMNS / 2 : 2 * n + 1);
            expect(&r, y, m * COLUMNS / 2 + n, silu(gate) * up + rig_get(&r, bias, n), 1e-5);
        }
    rig_free(&r);
}
END_TEST

/* ---- Rotary embedding ---- */

/* Column c of a row at `position`, rotated by the formula of coda.h. */
static double rotated(const struct pairing *s, const double *row, int64_t c, double position)
{
    int64_t head = c / s->head_dim, h = c % s->head_dim, apart = s->half ? s->rotary / 2 : 1;
    if (head >= s->heads || h >= s->rotary) return row[c];
    int64_t pair = s->half ? h % apart : h / 2;
    bool second = s->half ? h >= apart : h % 2;
    double t = position * pow(s->base, -2.0 * (double)pair / (double)s->rotary);
    double a = row[second ? c - apart : c], b = row[second ? c : c + apart];
    return second ? a * sin(t) + b * cos(t) : a * cos(t) - b * sin(t);
}

static const struct pairing ropes[] = {
    {.head_dim = 8, .rotary = 8, .heads = 3, .base = 10000, .period = 4},
    {.head_dim = 8, .rotary = 8, .heads = 3, .half = true, .base = 10000, .period = 4},
    {.head_dim = 8, .rotary = 4, .heads = 2, .half = true, .base = 500, .period = 7},
    {.head_dim = 12, .rotary = 6, .heads = 1, .base = 500, .period = 7},
};

START_TEST(rope_in_a_product)
{
    enum { ROWS = 9, COLUMNS = 24 };
    const struct pairing *s = &ropes[_i / 2];
    struct rig r;
    int acc = product(&r, ROWS, COLUMNS, 8), y = rig_buffer(&r, CODA_F32, ROWS * COLUMNS, 0);
    int positions = rig_ids(&r, ROWS, 1000, 3);
    r.p.pair = PAIR_HEADS;
    r.p.pairing = *s;
    int at = _i % 2 ? rig_load(&r, positions, 0, DIMS(0, 1, 0)) : -1;
    rig_store(&r, rig_rope(&r, acc, at), y, 0, DIMS(0, COLUMNS, 1));
    run(&r);
    for (int64_t m = 0; m < ROWS; m++) {
        double row[COLUMNS], position = _i % 2 ? rig_get(&r, positions, m) : (double)(m % s->period);
        for (int64_t n = 0; n < COLUMNS; n++) row[n] = dot(&r, 0, m, n);
        for (int64_t n = 0; n < COLUMNS; n++)
            expect(&r, y, m * COLUMNS + n, rotated(s, row, n, position), 1e-5);
    }
    rig_free(&r);
}
END_TEST

/* Two axes in turn, time and another: pair i of 4 turns by axis i % 2, as each has 2 of them. */
START_TEST(rope_of_two_axes_in_a_product)
{
    enum { ROWS = 5, COLUMNS = 16 };
    struct pairing s = {.head_dim = 8, .rotary = 8, .heads = 2, .half = _i % 2, .base = 100};
    struct rig r;
    int acc = product(&r, ROWS, COLUMNS, 8), y = rig_buffer(&r, CODA_F32, ROWS * COLUMNS, 0);
    int positions = rig_ids(&r, 2 * ROWS, 1000, 3);
    r.p.pair = PAIR_HEADS;
    r.p.pairing = s;
    r.p.pairing.interleaves = true;
    r.p.pairing.section[0] = r.p.pairing.section[1] = 2;
    int at = rig_load(&r, positions, 0, DIMS(0, 2, 0)), other = rig_load(&r, positions, 1, DIMS(0, 2, 0));
    int turned = rig_rope(&r, acc, at);
    r.step[turned].in[r.step[turned].nin++] = other;
    rig_store(&r, turned, y, 0, DIMS(0, COLUMNS, 1));
    run(&r);
    for (int64_t m = 0; m < ROWS; m++) {
        double row[COLUMNS];
        for (int64_t n = 0; n < COLUMNS; n++) row[n] = dot(&r, 0, m, n);
        for (int64_t n = 0; n < COLUMNS; n++) {
            double position = rig_get(&r, positions, 2 * m + (s.half ? n % 2 : n / 2 % 2));
            expect(&r, y, m * COLUMNS + n, rotated(&s, row, n, position), 1e-5);
        }
    }
    rig_free(&r);
}
END_TEST

/* ---- Statistics ---- */

/* States of tiles, finished by another program, are those of the whole row. */
static void finish_states(const char *reduce, int64_t n, int tile, double (*want)(const double *, int64_t))
{
    enum { ROWS = 6 };
    struct rig r, f;
    int blocks = (int)CEIL_DIV(n, tile), state = prim_find(reduce)->state;
    int acc = product(&r, ROWS, n, 8), states = rig_buffer(&r, CODA_F32, ROWS * blocks * state, 0);
    r.s.tile.bn = tile;
    rig_reduce_tiles(&r, reduce, acc, -1, states, blocks);
    run(&r);
    rig_init(&f, PROGRAM_ROWS, 2, DIMS(ROWS, 3));
    int in = rig_buffer(&f, CODA_F32, ROWS * blocks * state, 0), y = rig_buffer(&f, CODA_F32, ROWS, 0);
    memcpy(f.args[in], r.args[states], (size_t)f.buffer[in].bytes);
    rig_store_row(&f, rig_partial(&f, reduce, in, blocks), y, 0, DIMS(1, 0));
    run(&f);
    for (int64_t m = 0; m < ROWS; m++) {
        double row[64];
        for (int64_t i = 0; i < n; i++) row[i] = dot(&r, 0, m, i);
        expect(&f, y, m, want(row, n), 1e-5);
    }
    rig_free(&f);
    rig_free(&r);
}

static double sum_sq(const double *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i] * x[i];
    return s;
}

static double log_sum_exp(const double *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += exp(x[i]);
    return log(s);
}

static double deviations(const double *x, int64_t n)
{
    double mean = 0, s = 0;
    for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) s += (x[i] - mean) * (x[i] - mean);
    return s;
}

START_TEST(tiles_leave_states)
{
    finish_states("sum_sq", 40, 16, sum_sq);
    finish_states("sum_sq", 64, 64, sum_sq);
    finish_states("log_sum_exp", 33, 16, log_sum_exp);
    finish_states("m2", 50, 8, deviations);
}
END_TEST

/* One state for each bn full-width columns; a gated value has half as many. The key is the row's. */
START_TEST(states_lie_by_row_and_block)
{
    enum { ROWS = 3, COLUMNS = 24 };
    struct rig r;
    int acc = product(&r, ROWS, COLUMNS, 4), keys = rig_ids(&r, ROWS, COLUMNS, 1);
    int full = rig_buffer(&r, CODA_F32, ROWS * 3, 0), half = rig_buffer(&r, CODA_F32, ROWS * 3, 0);
    r.s.tile.bn = 8;
    r.p.pair = PAIR_GLU_STACKED;
    rig_reduce_tiles(&r, "select", acc, rig_load(&r, keys, 0, DIMS(0, 1, 0)), full, 3);
    rig_reduce_tiles(&r, "sum", rig_lane(&r, acc, 1), -1, half, 3);
    run(&r);
    for (int64_t m = 0; m < ROWS; m++)
        for (int64_t b = 0; b < 3; b++) {
            int64_t key = (int64_t)rig_get(&r, keys, m);
            expect(&r, full, m * 3 + b, key / 8 == b ? dot(&r, 0, m, key) : 0, 1e-5);
            double sum = 0;
            for (int64_t n = 4 * b; n < 4 * b + 4; n++) sum += dot(&r, 0, m, 12 + n);
            expect(&r, half, m * 3 + b, sum, 1e-5);
        }
    rig_free(&r);
}
END_TEST

START_TEST(rows_use_what_they_reduce)
{
    enum { ROWS = 7, COLUMNS = 33 };
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 2, DIMS(ROWS, COLUMNS));
    int in = rig_buffer(&r, CODA_F32, ROWS * 40, 1), y = rig_buffer(&r, CODA_F32, ROWS * COLUMNS, 0);
    int lse = rig_buffer(&r, CODA_F32, ROWS, 0), x = rig_load(&r, in, 2, DIMS(40, 1));
    int l = rig_reduce(&r, "log_sum_exp", x, -1);
    rig_store(&r, rig_map(&r, "exp_sub", x, l, NULL), y, 0, DIMS(COLUMNS, 1));
    rig_store_row(&r, l, lse, 0, DIMS(1, 0));
    run(&r);
    for (int64_t m = 0; m < ROWS; m++) {
        double row[COLUMNS];
        for (int64_t n = 0; n < COLUMNS; n++) row[n] = rig_get(&r, in, 2 + m * 40 + n);
        double want = log_sum_exp(row, COLUMNS);
        expect(&r, lse, m, want, 1e-6);
        for (int64_t n = 0; n < COLUMNS; n++) expect(&r, y, m * COLUMNS + n, exp(row[n] - want), 1e-6);
    }
    rig_free(&r);
}
END_TEST

START_TEST(rows_without_columns)
{
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 2, DIMS(4, 0));
    int in = rig_buffer(&r, CODA_F32, 0, 1), y = rig_buffer(&r, CODA_F32, 4, 3),
        z = rig_buffer(&r, CODA_F32, 4, 3);
    int x = rig_load(&r, in, 0, DIMS(0, 1));
    rig_store_row(&r, rig_reduce(&r, "sum", x, -1), y, 0, DIMS(1, 0));
    rig_store_row(&r, rig_reduce(&r, "max", x, -1), z, 0, DIMS(1, 0));
    run(&r);
    for (int64_t m = 0; m < 4; m++) expect(&r, y, m, 0, 0);
    for (int64_t m = 0; m < 4; m++) expect(&r, z, m, -INFINITY, 0);
    rig_free(&r);
}
END_TEST

/* ---- Ports ---- */

START_TEST(gathered_rows)
{
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 2, DIMS(5, 6));
    int ids = rig_buffer(&r, CODA_I32, 5, 0), table = rig_buffer(&r, CODA_BF16, 3 * 8, 2);
    int y = rig_buffer(&r, CODA_F32, 30, 3);
    const int id[] = {2, 0, -1, 3, 1};
    for (int i = 0; i < 5; i++) rig_set(&r, ids, i, id[i]);
    rig_store(&r, rig_gather(&r, table, 3, 8, rig_load(&r, ids, 0, DIMS(1, 0))), y, 0, DIMS(6, 1));
    run(&r);
    for (int64_t i = 0; i < 30; i++) {
        int row = id[i / 6];
        expect(&r, y, i, row < 0 || row > 2 ? 0 : rig_get(&r, table, row * 8 + i % 6), 0);
    }
    rig_free(&r);
}
END_TEST

START_TEST(strides_of_many_dimensions)
{
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 4, DIMS(2, 3, 4, 5));
    int in = rig_buffer(&r, CODA_F32, 120, 1), row = rig_buffer(&r, CODA_F32, 6, 2),
        y = rig_buffer(&r, CODA_F32, 400, 0);
    int x = rig_load(&r, in, 0, DIMS(1, 2, 6, 24)), s = rig_load(&r, row, 0, DIMS(3, 1, 0, 0));
    rig_store(&r, rig_map(&r, "sub", x, s, NULL), y, 1, DIMS(1, 50, 10, 2));
    run(&r);
    for (int64_t i = 0; i < 120; i++) {
        int64_t a = i / 60, b = i / 20 % 3, c = i / 5 % 4, d = i % 5;
        double want = rig_get(&r, in, a + 2 * b + 6 * c + 24 * d) - rig_get(&r, row, 3 * a + b);
        expect(&r, y, 1 + a + 50 * b + 10 * c + 2 * d, want, 1e-6);
    }
    rig_free(&r);
}
END_TEST

/* A row value fills the columns of a wide store; what repeats over rows is stored by the first. */
START_TEST(stores_of_less_than_a_tile)
{
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 3, DIMS(2, 3, 4));
    int row = rig_buffer(&r, CODA_F32, 6, 1), column = rig_buffer(&r, CODA_F32, 4, 2);
    int wide = rig_buffer(&r, CODA_F32, 24, 0), narrow = rig_buffer(&r, CODA_F32, 4, 0),
        some = rig_buffer(&r, CODA_F32, 2, 0);
    int first = rig_buffer(&r, CODA_F32, 1, 0), v = rig_load(&r, row, 0, DIMS(3, 1, 0));
    int c = rig_load(&r, column, 0, DIMS(0, 0, 1));
    rig_store(&r, v, wide, 0, DIMS(12, 4, 1));
    rig_store(&r, c, narrow, 0, DIMS(0, 0, 1));
    rig_store(&r, c, first, 0, DIMS(0, 0, 0));
    rig_store_row(&r, v, some, 0, DIMS(1, 0, 0));
    run(&r);
    for (int64_t i = 0; i < 24; i++) expect(&r, wide, i, rig_get(&r, row, i / 4), 0);
    for (int64_t i = 0; i < 4; i++) expect(&r, narrow, i, rig_get(&r, column, i), 0);
    for (int64_t i = 0; i < 2; i++) expect(&r, some, i, rig_get(&r, row, 3 * i), 0);
    expect(&r, first, 0, rig_get(&r, column, 0), 0);
    rig_free(&r);
}
END_TEST

START_TEST(memory_of_three_spaces)
{
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 1, DIMS(8));
    int x = rig_buffer(&r, CODA_F32, 8, 1), work = rig_buffer(&r, CODA_F32, 16, 0);
    int ready = rig_buffer(&r, CODA_F32, 16, 0);
    float workspace[80] = {0}, prepared[80];
    for (int i = 0; i < 80; i++) prepared[i] = (float)i;
    r.buffer[work].space = SPACE_WORK;
    r.buffer[work].offset = 256;
    r.buffer[ready].space = SPACE_PREPARED;
    r.buffer[ready].offset = 256;
    int sum = rig_map(&r, "add", rig_load(&r, x, 0, DIMS(1)), rig_load(&r, ready, 1, DIMS(1)), NULL);
    rig_store(&r, sum, work, 2, DIMS(1));
    ck_assert_int_eq(cpu_run(&r.plan, &r.p, r.args, prepared, workspace), CODA_OK);
    for (int i = 0; i < 8; i++)
        ck_assert_float_eq(workspace[66 + i], (float)rig_get(&r, x, i) + prepared[65 + i]);
    ck_assert(workspace[65] == 0 && workspace[74] == 0);
    rig_free(&r);
}
END_TEST

START_TEST(a_map_without_reference)
{
    struct prim nameless = *prim_find("silu");
    nameless.name = "mystery";
    nameless.reference = NULL;
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 1, DIMS(8));
    int x = rig_load(&r, rig_buffer(&r, CODA_F32, 8, 1), 0, DIMS(1)), y = rig_map(&r, "silu", x, -1, NULL);
    r.step[y].prim = &nameless;
    rig_store(&r, y, rig_buffer(&r, CODA_F32, 8, 0), 0, DIMS(1));
    ck_assert_int_eq(rig_run(&r), CODA_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(coda_error(), "mystery"));
    rig_free(&r);
}
END_TEST

START_TEST(same_bits_again)
{
    struct rig r;
    int acc = product(&r, 70, 50, 600), y = rig_buffer(&r, CODA_F32, 3500, 0),
        z = rig_buffer(&r, CODA_F32, 3500, 0);
    rig_store(&r, rig_map(&r, "gelu_erf", acc, -1, NULL), y, 0, DIMS(0, 50, 1));
    run(&r);
    memcpy(r.args[z], r.args[y], 3500 * sizeof(float));
    run(&r);
    ck_assert_mem_eq(r.args[z], r.args[y], 3500 * sizeof(float));
    rig_free(&r);
}
END_TEST

/* ---- Attention ---- */

static const struct attention_spec attentions[] = {
    {.batch = 2,
     .tq = 35,
     .tk = 35,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 12,
     .causal = true,
     .scale = 0.3f},
    {.batch = 1, .tq = 3, .tk = 50, .heads = 2, .kv_heads = 1, .head_dim = 8, .causal = true, .scale = 0.5f},
    {.batch = 3,
     .tq = 40,
     .tk = 40,
     .heads = 1,
     .kv_heads = 1,
     .head_dim = 5,
     .window = 7,
     .causal = true,
     .scale = 1},
    {.batch = 2, .tq = 33, .tk = 20, .heads = 2, .kv_heads = 2, .head_dim = 4, .window = 3, .scale = 1},
    {.batch = 1, .tq = 7, .tk = 3, .heads = 1, .kv_heads = 1, .head_dim = 4, .causal = true, .scale = 1},
    {.batch = 2, .tq = 5, .tk = 0, .heads = 2, .kv_heads = 1, .head_dim = 4, .scale = 1},
    {.batch = 2, .tq = 0, .tk = 6, .heads = 2, .kv_heads = 1, .head_dim = 4, .scale = 1},
};

/* [batch][time][heads * head_dim] */
static struct tensor_use heads(struct rig *r, int64_t time, int64_t count, unsigned seed)
{
    const struct attention_spec *s = &r->attention;
    int64_t width = count * s->head_dim + 2;
    int b = rig_buffer(r, seed ? CODA_BF16 : CODA_F32, s->batch * time * width + 1, seed);
    return (struct tensor_use){.role = seed ? USE_OPERAND : USE_RESULT,
                               .buffer = b,
                               .offset = 1,
                               .dtype = r->dtype[b],
                               .batch = time * width,
                               .time = width,
                               .head = s->head_dim,
                               .value = -1};
}

static double element(const struct rig *r, const struct tensor_use *v, int64_t b, int64_t t, int64_t h,
                      int64_t d)
{
    return rig_get(r, v->buffer, v->offset + b * v->batch + t * v->time + h * v->head + d);
}

static bool sees(const struct rig *r, int64_t b, int64_t i, int64_t j)
{
    const struct attention_spec *s = &r->attention;
    int64_t position = i + s->tk - s->tq;
    if (attention_has(s, ATTENTION_LENGTHS) && j >= (int64_t)rig_get(r, s->use[ATTENTION_LENGTHS].buffer, b))
        return false;
    return (!s->causal || j <= position) && (s->window == 0 || j > position - s->window);
}

/* o[b][i][h][d] as the header says it. */
static double attended(const struct rig *r, int64_t b, int64_t i, int64_t h, int64_t d)
{
    const struct attention_spec *s = &r->attention;
    int64_t shared = h / (s->heads / s->kv_heads);
    double sum = 0, all = 0;
    for (int64_t j = 0; j < s->tk; j++) {
        double score = 0;
        if (!sees(r, b, i, j)) continue;
        for (int64_t c = 0; c < s->head_dim; c++)
            score += element(r, &s->use[ATTENTION_Q], b, i, h, c) *
                     element(r, &s->use[ATTENTION_K], b, j, shared, c);
        all += exp(s->scale * score);
        sum += exp(s->scale * score) * element(r, &s->use[ATTENTION_V], b, j, shared, d);
    }
    return all > 0 ? sum / all : 0;
}

START_TEST(attention)
{
    struct rig r;
    rig_init(&r, PROGRAM_OWN, 0, DIMS(0));
    r.p.own = &own_attention;
    struct attention_spec *s = r.p.spec;
    *s = attentions[_i / 2];
    s->use[ATTENTION_Q] = heads(&r, s->tq, s->heads, 1);
    s->use[ATTENTION_K] = heads(&r, s->tk, s->kv_heads, 2);
    s->use[ATTENTION_V] = heads(&r, s->tk, s->kv_heads, 3);
    s->use[ATTENTION_O] = heads(&r, s->tq, s->heads, 0);
    for (int i = ATTENTION_LENGTHS; i < ATTENTION_USES; i++)
        if (i != ATTENTION_O)
            s->use[i] = (struct tensor_use){.role = USE_BESIDE, .buffer = -1, .stride = {1}};
    if (_i % 2) s->use[ATTENTION_LENGTHS].buffer = rig_ids(&r, s->batch, (int)s->tk + 2, 4);
    if (_i % 2) rig_set(&r, s->use[ATTENTION_LENGTHS].buffer, 0, 0);
    run(&r);
    for (int64_t i = 0; i < s->batch * s->tq * s->heads * s->head_dim; i++) {
        int64_t d = i % s->head_dim, h = i / s->head_dim % s->heads, t = i / s->head_dim / s->heads;
        double want = attended(&r, t / s->tq, t % s->tq, h, d);
        int64_t at = s->use[ATTENTION_O].offset + t / s->tq * s->use[ATTENTION_O].batch +
                     t % s->tq * s->use[ATTENTION_O].time + h * s->use[ATTENTION_O].head + d;
        expect(&r, s->use[ATTENTION_O].buffer, at, want, 1e-5);
    }
    rig_free(&r);
}
END_TEST

TESTS(cpu, EACH(products, ARRAY_SIZE(layouts)), ONE(products_of_nothing), ONE(maps_of_rows_columns_and_tiles),
      ONE(stores_round), SOME(gemm_programs, gemm_case_count), EACH(gated_columns, 2),
      EACH(rope_in_a_product, 2 * ARRAY_SIZE(ropes)), EACH(rope_of_two_axes_in_a_product, 2),
      ONE(tiles_leave_states), ONE(states_lie_by_row_and_block), ONE(rows_use_what_they_reduce),
      ONE(rows_without_columns), ONE(gathered_rows), ONE(strides_of_many_dimensions),
      ONE(stores_of_less_than_a_tile), ONE(memory_of_three_spaces), ONE(a_map_without_reference),
      ONE(same_bits_again), EACH(attention, 2 * ARRAY_SIZE(attentions)));
