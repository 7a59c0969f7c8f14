/* test_log_softmax.c -- the logarithm of a softmax: its text, its refusals, and its numbers where the
 * textbook's log(e^x / sum) has none. */
#include "base.h" /* before check.h, which has a macro called fail */

#include "util_mistake.h"
#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <string.h>

enum { ROWS = 5, COLUMNS = 4 };

START_TEST(prints_and_refuses)
{
    coda_graph *g = coda_graph_new();
    char text[256];
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){ROWS, COLUMNS});
    coda_output(g, "y", coda_log_softmax(g, x));
    ck_assert(coda_graph_print(g, text, sizeof text) < (int64_t)sizeof text);
    ck_assert_str_eq(text, "%x = input bf16[5,4]\n%1 = log_softmax %x  ; bf16[5,4]\noutput %y = %1\n");
    coda_graph_free(g);
    g = coda_graph_new();
    x = coda_log_softmax(g, coda_input(g, "ids", CODA_I32, 1, (int64_t[]){COLUMNS}));
    ck_assert_uint_eq(x.id, 0);
    ck_assert_str_eq(mistake_plain(coda_error()), "log_softmax: x is i32[4]; it must be f32, bf16 or f16");
    coda_graph_free(g);
    ck_assert_uint_eq(coda_log_softmax(NULL, x).id, 0);
}
END_TEST

/* e^y adds up to 1, however large or far apart x is; rows of inf, NaN or -inf alone are NaN. */
START_TEST(numbers)
{
    const float x[ROWS][COLUMNS] = {{1e6f, 1e6f, 1e6f, 1e6f},
                                    {-3e4f, 0, -INFINITY, 0},
                                    {0, 1000, -1000, 1},
                                    {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                                    {1, INFINITY, 2, 3}};
    const float want[ROWS][COLUMNS] = {{-1.3862944f, -1.3862944f, -1.3862944f, -1.3862944f},
                                       {-30000.693f, -0.6931472f, -INFINITY, -0.6931472f},
                                       {-1000, 0, -2000, -999},
                                       {NAN, NAN, NAN, NAN},
                                       {NAN, NAN, NAN, NAN}};
    static char workspace[1 << 16];
    float y[ROWS][COLUMNS];
    void *args[] = {(void *)x, y};
    double reference[ROWS][COLUMNS];
    coda_graph *g = coda_graph_new();
    coda_plan *p;
    coda_output(g, "y", coda_log_softmax(g, coda_input(g, "x", CODA_F32, 2, (int64_t[]){ROWS, COLUMNS})));
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    o.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &o) == CODA_OK, "%s", coda_error());
    ck_assert_uint_le(coda_plan_workspace(p), sizeof workspace);
    ck_assert_int_eq(coda_run(p, args, NULL, workspace, NULL), CODA_OK);
    ck_assert_int_eq(coda_evaluate(g, (void *[]){(void *)x, reference}), CODA_OK);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        float w = (&want[0][0])[i], got = (&y[0][0])[i];
        double r = (&reference[0][0])[i], allow = 1e-6 * fabs((double)w);
        bool good = isnan(w) ? isnan(got) : got == w || fabs((double)got - (double)w) <= allow;
        bool right = isnan(w) ? isnan(r) : r == (double)w || fabs(r - (double)w) <= allow;
        ck_assert_msg(good, "element %d is %.9g; must be %.9g", i, (double)got, (double)w);
        ck_assert_msg(right, "element %d of fp64 is %.9g; must be %.9g", i, r, (double)w);
    }
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(log_softmax, ONE(prints_and_refuses), ONE(numbers));
