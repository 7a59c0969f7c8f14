/* test_scalar.c -- numbers that each run reads from host memory. */
#include <coda.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { ROWS = 6, COLUMNS = 40 };

static int64_t const shape[] = {ROWS, COLUMNS};

/* y = x t + n, z = w t. */
static coda_graph *graph_of_scalars(void)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 2, shape), w = coda_weight(g, "w", CODA_F32, 1, shape + 1);
    coda_value t = coda_scalar(g, "t", CODA_F32), n = coda_scalar(g, "n", CODA_I32);
    coda_output(g, "y", coda_add(g, coda_mul(g, x, t), n));
    coda_output(g, "z", coda_mul(g, w, t));
    return g;
}

static coda_plan *compile(const coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_CPU;
    opt.fold = CODA_FOLD_COPY;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    return p;
}

struct memory {
    _Alignas(16) float x[ROWS * COLUMNS], w[COLUMNS], y[ROWS * COLUMNS], z[COLUMNS];
    float t;
    int32_t n;
};

static coda_status run(const coda_plan *p, struct memory *m, const void *t)
{
    void *args[] = {m->x, m->w, (void *)t, &m->n, m->y, m->z};
    void *work = aligned_alloc(256, (coda_plan_workspace(p) + 256) / 256 * 256);
    coda_status status = coda_run(p, args, NULL, work, NULL);
    free(work);
    return status;
}

START_TEST(each_run_has_its_values)
{
    coda_graph *g = graph_of_scalars();
    coda_plan *p = compile(g);
    struct memory m;
    ck_assert_uint_eq(coda_plan_prepared(p), 0); /* w t is no constant */
    for (int i = 0; i < ROWS * COLUMNS; i++) m.x[i] = (float)(i % 17) - 8;
    for (int i = 0; i < COLUMNS; i++) m.w[i] = (float)i;
    for (int round = 0; round < 3; round++) {
        m.t = 0.5f + (float)round, m.n = 7 - 3 * round;
        ck_assert_msg(!run(p, &m, &m.t), "%s", coda_error());
        for (int i = 0; i < ROWS * COLUMNS; i++) ck_assert_float_eq(m.y[i], fmaf(m.x[i], m.t, (float)m.n));
        for (int i = 0; i < COLUMNS; i++) ck_assert_float_eq(m.z[i], m.w[i] * m.t);
    }
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

START_TEST(they_are_arguments)
{
    coda_graph *g = graph_of_scalars();
    coda_plan *p = compile(g);
    coda_arg_info a = CODA_ARG_INFO_INIT;
    static struct memory m;
    ck_assert(!coda_plan_arg(p, 3, &a));
    ck_assert(a.kind == CODA_ARG_SCALAR && a.dtype == CODA_I32 && a.rank == 0 && a.bytes == 4);
    ck_assert_int_eq(run(p, &m, NULL), CODA_E_INVALID);
    ck_assert_ptr_nonnull(strstr(coda_error(), "args[2] (t, 4 bytes) is NULL"));
    ck_assert_int_eq(run(p, &m, (char *)&m.t + 1), CODA_E_INVALID);
    ck_assert_ptr_nonnull(strstr(coda_error(), "not a multiple of 4"));
    ck_assert_int_eq(run(p, &m, m.y + 1), CODA_E_INVALID);
    ck_assert_ptr_nonnull(strstr(coda_error(), "overlaps scalar t"));
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* The text form; and whoever wants memory gets a copy. */
START_TEST(all_operations_take_them)
{
    static const char text[] = "%x = input f32[3,4]\n%t = scalar f32\n%n = scalar i32\n"
                               "%a = reshape %t {d0=1, d1=1, rank=2}\n%r = reshape %n {d0=1, rank=1}\n"
                               "%c = concat %a, %a {axis=1}\n%e = embedding %x, %r\n"
                               "output %c = %c\noutput %e = %e\noutput %t2 = %t\n";
    coda_graph *g;
    float x[12], t = 2.5f, c[2], e[4], copy;
    int32_t n = 2;
    ck_assert_msg(!coda_graph_parse(&g, text), "%s", coda_error());
    char printed[600];
    ck_assert_int_gt(coda_graph_print(g, printed, sizeof printed), 0);
    ck_assert_ptr_nonnull(strstr(printed, "%n = scalar i32\n"));
    coda_plan *p = compile(g);
    for (int i = 0; i < 12; i++) x[i] = (float)i;
    _Alignas(16) float ax[12], ac[4], ae[4], at[4];
    memcpy(ax, x, sizeof x);
    void *args[] = {ax, &t, &n, ac, ae, at},
         *work = aligned_alloc(256, coda_plan_workspace(p) / 256 * 256 + 256);
    ck_assert_msg(!coda_run(p, args, NULL, work, NULL), "%s", coda_error());
    memcpy(c, ac, sizeof c), memcpy(e, ae, sizeof e), copy = at[0];
    ck_assert(c[0] == t && c[1] == t && copy == t);
    for (int i = 0; i < 4; i++) ck_assert_float_eq(e[i], (float)(8 + i));
    free(work);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

START_TEST(others_are_refused)
{
    coda_graph *g = coda_graph_new();
    coda_scalar(g, "t", CODA_BF16);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "scalar t: its dtype is bf16; must be f32 or i32");
    coda_graph_free(g);
}
END_TEST

TESTS(scalar, ONE(each_run_has_its_values), ONE(they_are_arguments), ONE(all_operations_take_them),
      ONE(others_are_refused));
