/* test_sum.c -- outputs that runs add to: on the CPU device, in each mode, twice. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <string.h>

#include "graph.h"
#include "util_random.h"
#include "util_run.h"

enum { ROWS = 6, COLUMNS = 16, PITCH = 20 };

struct memory {
    _Alignas(256) float x[ROWS * COLUMNS], w[COLUMNS * COLUMNS], sum[ROWS * PITCH], rows[2 * ROWS];
    _Alignas(256) float y[ROWS * COLUMNS], leaf[ROWS * COLUMNS];
    _Alignas(256) char work[1 << 14], prepared[1 << 14];
};

/* A product is stored, added with a pitch, and read again; a statistic and a leaf are added. */
static coda_graph *make(void)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){ROWS, COLUMNS});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){COLUMNS, COLUMNS});
    coda_value p = coda_matmul(g, x, w);
    coda_output_add_strided(g, "sum", p, (int64_t[]){PITCH, 1});
    coda_output_add_strided(g, "rows", coda_row_sum(g, p), (int64_t[]){2, 1});
    coda_output(g, "y", coda_relu(g, p));
    coda_output_add(g, "leaf", x);
    return g;
}

static void fill(struct memory *m)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; i < ROWS * COLUMNS; i++) m->x[i] = (float)(i % 7) - 3, m->leaf[i] = 2;
    for (int i = 0; i < COLUMNS * COLUMNS; i++) m->w[i] = (float)(i % 5) - 2;
    for (int i = 0; i < ROWS * PITCH; i++) m->sum[i] = (float)i;
    for (int i = 0; i < 2 * ROWS; i++) m->rows[i] = 10;
}

static float product(const struct memory *m, int row, int column)
{
    float sum = 0;
    for (int k = 0; k < COLUMNS; k++) sum += m->x[row * COLUMNS + k] * m->w[column * COLUMNS + k];
    return sum;
}

/* What lies between the rows of a sum stays. */
static void check(const struct memory *m, int runs)
{
    for (int r = 0; r < ROWS; r++) {
        float all = 0;
        for (int c = 0; c < COLUMNS; c++) {
            float p = product(m, r, c), begin = (float)(r * PITCH + c);
            all += p;
            ck_assert_float_eq(m->sum[r * PITCH + c], begin + (float)runs * p);
            ck_assert_float_eq(m->y[r * COLUMNS + c], p > 0 ? p : 0);
            ck_assert_float_eq(m->leaf[r * COLUMNS + c], 2 + (float)runs * m->x[r * COLUMNS + c]);
        }
        for (int c = COLUMNS; c < PITCH; c++)
            ck_assert_float_eq(m->sum[r * PITCH + c], (float)(r * PITCH + c));
        ck_assert_float_eq(m->rows[2 * r], 10 + (float)runs * all);
        ck_assert_float_eq(m->rows[2 * r + 1], 10);
    }
}

START_TEST(each_run_adds)
{
    static struct memory m;
    const struct run_mode *mode = &run_modes[_i];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = make();
    coda_plan *p = NULL;
    void *args[] = {m.x, m.w, m.sum, m.rows, m.y, m.leaf};
    opt.device = CODA_DEVICE_CPU;
    opt.flags = mode->flags;
    opt.fold = mode->fold;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_uint_le(coda_plan_workspace(p), sizeof m.work);
    fill(&m);
    for (int run = 1; run <= 3; run++) {
        if (opt.fold) ck_assert_int_eq(coda_prepare(p, args, m.prepared, m.work, NULL), CODA_OK);
        ck_assert_msg(coda_run(p, args, m.prepared, m.work, NULL) == CODA_OK, "%s", coda_error());
        check(&m, run);
    }
    args[3] = m.x; /* it is written */
    ck_assert_int_eq(coda_run(p, args, m.prepared, m.work, NULL), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "sum rows") && strstr(coda_error(), "input x"), "%s", coda_error());
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

START_TEST(evaluation_adds)
{
    static struct memory m;
    static double out[4][ROWS * COLUMNS];
    coda_graph *g = make();
    fill(&m);
    for (int i = 0; i < ROWS * COLUMNS; i++) out[0][i] = i, out[1][i] = 5, out[3][i] = 7;
    void *args[] = {m.x, m.w, out[0], out[1], out[2], out[3]};
    for (int run = 1; run <= 2; run++) {
        ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s", coda_error());
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            double p = (double)product(&m, i / COLUMNS, i % COLUMNS);
            ck_assert_double_eq(out[0][i], i + run * p);
            ck_assert_double_eq(out[2][i], p > 0 ? p : 0);
            ck_assert_double_eq(out[3][i], 7 + run * (double)m.x[i]);
        }
    }
    coda_graph_free(g);
}
END_TEST

TESTS(sum, EACH(each_run_adds, RUN_ON_CUBLASLT), ONE(evaluation_adds));
