/*
 * test_scaled_matmul.c -- products of fp8 by fp8 with scales of blocks: on the CPU device, fused or not, and
 * by the evaluator, against sums in fp64 of the formula in coda_quant.h; the graph that a checkpoint in
 * blocks of 128 x 128 takes; what is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_mistake.h"
#include "util_print.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { BLOCK = 128 };

struct size {
    int batch, m, n, k;
    bool shared; /* one w for all of the batch */
    bool turned; /* the scales lie with the blocks of K outside */
    coda_dtype a, b;
};

static const struct size sizes[] = {{1, 1, 1, 1, true, false, CODA_F8E4M3, CODA_F8E4M3},
                                    {1, 7, 129, 260, true, false, CODA_F8E4M3, CODA_F8E4M3},
                                    {3, 5, 141, 130, true, false, CODA_F8E4M3, CODA_F8E5M2},
                                    {2, 9, 257, 128, false, false, CODA_F8E5M2, CODA_F8E4M3},
                                    {2, 70, 33, 300, true, true, CODA_F8E4M3, CODA_F8E4M3},
                                    {2, 3, 130, 256, false, true, CODA_F8E4M3, CODA_F8E4M3}};

static int blocks(int n) { return (n + BLOCK - 1) / BLOCK; }

/* A product, its operands, and what it should be. */
struct rig {
    struct size s;
    int xs, ws, ss, ts, ys; /* elements */
    unsigned char *x, *w;
    float *s_x, *s_w;
    double *want, *size;
};

static void *new (size_t bytes)
{
    void *p = aligned_alloc(16, (bytes + 31) / 16 * 16);
    memset(p, 0x5a, (bytes + 31) / 16 * 16);
    return p;
}

static double scale_of(const struct rig *r, bool of_w, int batch, int row, int k)
{
    int rows = of_w ? blocks(r->s.n) : r->s.m, wide = blocks(r->s.k);
    const float *s = (of_w ? r->s_w : r->s_x) + (of_w && r->s.shared ? 0 : batch) * rows * wide;
    if (of_w) row /= BLOCK;
    return (double)(r->s.turned ? s[k / BLOCK * rows + row] : s[row * wide + k / BLOCK]);
}

static void multiply(struct rig *r)
{
    const struct size *s = &r->s;
    for (int i = 0; i < r->ys; i++) {
        int b = i / s->n / s->m, m = i / s->n % s->m, n = i % s->n;
        r->want[i] = r->size[i] = 0;
        for (int k = 0; k < s->k; k++) {
            double p = dtype_load(s->a, r->x, (b * s->m + m) * s->k + k) *
                       dtype_load(s->b, r->w, ((s->shared ? 0 : b) * s->n + n) * s->k + k) *
                       scale_of(r, false, b, m, k) * scale_of(r, true, b, n, k);
            r->want[i] += p, r->size[i] += fabs(p);
        }
    }
}

static void begin(struct rig *r, const struct size *s)
{
    struct random g = {random_seed()};
    int ones = s->shared ? 1 : s->batch;
    *r = (struct rig){.s = *s, .xs = s->batch * s->m * s->k, .ws = ones * s->n * s->k};
    r->ss = s->batch * s->m * blocks(s->k), r->ts = ones * blocks(s->n) * blocks(s->k);
    r->ys = s->batch * s->m * s->n;
    r->x = new ((size_t)r->xs), r->w = new ((size_t)r->ws);
    r->s_x = new (sizeof(float) * (size_t)r->ss), r->s_w = new (sizeof(float) * (size_t)r->ts);
    r->want = new (sizeof(double) * (size_t)r->ys), r->size = new (sizeof(double) * (size_t)r->ys);
    for (int i = 0; i < r->xs; i++) dtype_store(s->a, r->x, i, random_normal(&g) * 30);
    for (int i = 0; i < r->ws; i++) dtype_store(s->b, r->w, i, random_normal(&g) * 30);
    for (int i = 0; i < r->ss; i++) r->s_x[i] = (float)exp(random_normal(&g));
    for (int i = 0; i < r->ts; i++) r->s_w[i] = (float)exp(random_normal(&g));
    multiply(r);
}

static void end(struct rig *r)
{
    free(r->x), free(r->w), free(r->s_x), free(r->s_w), free(r->want), free(r->size);
}

/* A leaf [.., rows, columns], or a view of one that has them the other way round. */
static coda_value leaf(coda_graph *g, const char *name, bool weight, coda_dtype t, const int64_t *dim,
                       int rank, bool turned)
{
    int64_t d[3] = {dim[3 - rank], rank == 3 ? dim[1] : dim[2], dim[2]};
    if (turned) d[rank - 1] = dim[1], d[rank - 2] = dim[2];
    coda_value v = weight ? coda_weight(g, name, t, rank, d) : coda_input(g, name, t, rank, d);
    return turned ? coda_transpose(g, v, rank == 3 ? (int[]){0, 2, 1} : (int[]){1, 0}) : v;
}

static coda_graph *build(const struct size *s)
{
    int64_t xd[] = {s->batch, s->m, s->k}, wd[] = {s->batch, s->n, s->k};
    int64_t sd[] = {s->batch, s->m, blocks(s->k)}, td[] = {s->batch, blocks(s->n), blocks(s->k)};
    int rank = s->shared ? 2 : 3;
    coda_graph *g = coda_graph_new();
    coda_value x = leaf(g, "x", false, s->a, xd, 3, false), w = leaf(g, "w", true, s->b, wd, rank, false);
    coda_value sx = leaf(g, "x_scale", false, CODA_F32, sd, 3, s->turned);
    coda_value sw = leaf(g, "w_scale", true, CODA_F32, td, rank, s->turned);
    coda_output(g, "y", coda_scaled_matmul(g, x, sx, w, sw));
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    return g;
}

static void run(coda_graph *g, unsigned flags, void *const *args)
{
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    o.device = CODA_DEVICE_CPU;
    o.flags = flags;
    ck_assert_msg(coda_compile(&p, g, &o) == CODA_OK, "%s", coda_error());
    void *workspace = aligned_alloc(256, (coda_plan_workspace(p) + 511) / 256 * 256);
    memset(workspace, 0xa5, (coda_plan_workspace(p) + 511) / 256 * 256);
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    free(workspace);
    coda_plan_free(p);
}

START_TEST(products_against_fp64)
{
    struct rig r;
    begin(&r, &sizes[_i]);
    coda_graph *g = build(&r.s);
    float *y = new (sizeof *y * (size_t)r.ys);
    double *exact = new (sizeof *exact * (size_t)r.ys);
    for (int plain = 0; plain < 2; plain++) {
        memset(y, 0xff, sizeof *y * (size_t)r.ys);
        run(g, plain ? CODA_NO_FUSION : 0, (void *[]){r.x, r.w, r.s_x, r.s_w, y});
        for (int i = 0; i < r.ys; i++)
            ck_assert_msg(fabs((double)y[i] - r.want[i]) <= 0x1p-20 * r.size[i], "%d is %g, not %g", i,
                          (double)y[i], r.want[i]);
    }
    ck_assert_msg(coda_evaluate(g, (void *[]){r.x, r.w, r.s_x, r.s_w, exact}) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < r.ys; i++) ck_assert(fabs(exact[i] - r.want[i]) <= 1e-13 * r.size[i]);
    coda_graph_free(g);
    free(y), free(exact);
    end(&r);
}
END_TEST

/* ---- As a checkpoint in blocks has it ---- */

enum { M = 5, N = 200, K = 384 };

/* Activations by groups of 128 columns, a weight in blocks, its scale, bf16 behind it: against the product of
 * what the numbers mean. Rounding of x to e4m3 is at most 2^-4 of each number. */
START_TEST(a_layer_of_blocks)
{
    struct random random = {random_seed()};
    _Alignas(16) float x[M * K], ws[6];
    _Alignas(16) unsigned char w[N * K];
    _Alignas(16) uint16_t y[M * N];
    for (int i = 0; i < M * K; i++) x[i] = (float)(random_normal(&random) * exp(i % K / 128 * 3));
    for (int i = 0; i < N * K; i++) dtype_store(CODA_F8E4M3, w, i, random_normal(&random) * 30);
    for (int i = 0; i < 6; i++) ws[i] = (float)exp(random_normal(&random) - 5);
    coda_graph *g = coda_graph_new();
    coda_value scale, q = coda_quantize_rows(g, coda_input(g, "x", CODA_F32, 2, (int64_t[]){M, K}),
                                             CODA_F8E4M3, 128, &scale);
    coda_value in = coda_weight(g, "w", CODA_F8E4M3, 2, (int64_t[]){N, K});
    coda_value blocks = coda_weight(g, "w_scale", CODA_F32, 2, (int64_t[]){2, 3});
    coda_value v = coda_scaled_matmul(g, q, scale, in, blocks);
    coda_output(g, "y", coda_cast(g, v, CODA_BF16));
    memset(y, 0xff, sizeof y);
    run(g, 0, (void *[]){x, w, ws, y});
    for (int i = 0; i < M * N; i++) {
        double want = 0, size = 0, got = dtype_load(CODA_BF16, y, i);
        for (int k = 0; k < K; k++) {
            double p = (double)x[i / N * K + k] * dtype_load(CODA_F8E4M3, w, i % N * K + k) *
                       (double)ws[i % N / 128 * 3 + k / 128];
            want += p, size += fabs(p);
        }
        ck_assert_msg(fabs(got - want) <= (0x1p-4 + 0x1p-7) * size, "%d is %g, not %g", i, got, want);
    }
    coda_graph_free(g);
}
END_TEST

/* One program quantises bf16 where it lies, the other one multiplies and rounds. */
START_TEST(a_layer_is_two_launches)
{
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    coda_plan *p = NULL;
    coda_graph *g = coda_graph_new();
    coda_value scale, x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){M, K});
    coda_value q = coda_quantize_rows(g, x, CODA_F8E4M3, 128, &scale);
    coda_value w = coda_weight(g, "w", CODA_F8E4M3, 2, (int64_t[]){N, K});
    coda_value t = coda_weight(g, "t", CODA_F32, 2, (int64_t[]){2, 3});
    coda_output(g, "y", coda_cast(g, coda_scaled_matmul(g, q, scale, w, t), CODA_BF16));
    o.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &o) == CODA_OK, "%s", coda_error());
    coda_plan_stats_get(p, &s);
    ck_assert_int_eq(s.launches, 2);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- Mistakes ---- */

static const struct {
    const char *text, *line;
} mistakes[] = {
    {"%x = input bf16[4,160]\n%w = weight f8e4m3[144,160]\n%s = input f32[4,2]\n%t = weight f32[2,2]\n",
     "scaled_matmul: x is bf16[4,160]; it must be f8e4m3 or f8e5m2 of rank 2 or more"},
    {"%x = input f8e4m3[4,160]\n%w = weight i8[144,160]\n%s = input f32[4,2]\n%t = weight f32[2,2]\n",
     "scaled_matmul: w is i8[144,160]; it must be f8e4m3 or f8e5m2 of rank 2 or more"},
    {"%x = input f8e4m3[4,160]\n%w = weight f8e4m3[144,128]\n%s = input f32[4,2]\n%t = weight f32[2,2]\n",
     "scaled_matmul: x is [4,160] but w is [144,128]; inner sizes 160 and 128 differ"},
    {"%x = input f8e4m3[2,4,160]\n%w = weight f8e4m3[3,144,160]\n%s = input f32[2,4,2]\n"
     "%t = weight f32[3,2,2]\n",
     "scaled_matmul: x is [2,4,160] but w is [3,144,160]; leading dimensions differ"},
    {"%x = input f8e4m3[4,160]\n%w = weight f8e4m3[144,160]\n%s = input f32[4,1]\n%t = weight f32[2,2]\n",
     "scaled_matmul: x is [4,160] but x_scale is f32[4,1]; blocks of 1 x 128 have scales of f32[4,2]"},
    {"%x = input f8e4m3[4,160]\n%w = weight f8e4m3[144,160]\n%s = input f32[4,2]\n%t = weight f32[144,2]\n",
     "scaled_matmul: w is [144,160] but w_scale is f32[144,2]; blocks of 128 x 128 have scales of f32[2,2]"},
    {"%x = input f8e4m3[4,160]\n%w = weight f8e4m3[144,160]\n%s = input f32[4,2]\n%t = weight bf16[2,2]\n",
     "scaled_matmul: w is [144,160] but w_scale is bf16[2,2]; blocks of 128 x 128 have scales of f32[2,2]"},
};

START_TEST(what_does_not_fit_is_said)
{
    char text[400];
    coda_graph *g = NULL;
    snprintf(text, sizeof text, "%s%%p = scaled_matmul %%x, %%w, %%s, %%t\noutput %%y = %%p\n",
             mistakes[_i].text);
    ck_assert_int_eq(coda_graph_parse(&g, text), CODA_E_INVALID);
    const char *said = strstr(coda_error(), "x is"), *want = strstr(mistakes[_i].line, ": ") + 2;
    if (!said || strncmp(want, "x is", 4)) said = strstr(coda_error(), "w is");
    ck_assert_msg(said && !strncmp(said, want, strlen(want)), "%s", coda_error());
}
END_TEST

START_TEST(there_is_no_derivative)
{
    coda_graph *g = coda_graph_new();
    coda_value scale, x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, 256});
    coda_value q = coda_quantize_rows(g, x, CODA_F8E4M3, 128, &scale);
    coda_value y = coda_scaled_matmul(g, q, scale, coda_weight(g, "w", CODA_F8E4M3, 2, (int64_t[]){64, 256}),
                                      coda_weight(g, "t", CODA_F32, 2, (int64_t[]){1, 2}));
    coda_value dx, dy = coda_input(g, "dy", CODA_F32, 2, (int64_t[]){4, 64});
    coda_grad(g, &y, &dy, 1, &x, 1, &dx, NULL);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_UNSUPPORTED);
    ck_assert_msg(strstr(coda_error(), "multiplies fp8 by scales of blocks; it has no derivative"), "%s",
                  coda_error());
    coda_graph_free(g);
}
END_TEST

TESTS(scaled_matmul, EACH(products_against_fp64, ARRAY_SIZE(sizes)), ONE(a_layer_of_blocks),
      ONE(a_layer_is_two_launches), EACH(what_does_not_fit_is_said, ARRAY_SIZE(mistakes)),
      ONE(there_is_no_derivative));
