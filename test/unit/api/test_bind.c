/* test_bind.c -- arguments by name: in any order, and every mistake refused with the name. */
#include "coda.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { ROWS = 4, WIDTH = 8, ARGS = 4 };

static float x[ROWS * WIDTH], w[WIDTH * WIDTH], bias[WIDTH], y[ROWS * WIDTH];

/* y = x w^T + bias; leaves in an order that is not the alphabet's. */
static coda_plan *plan_of(bool symbol)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = coda_graph_new();
    coda_plan *p;
    coda_dim rows = symbol ? coda_symbol(g, "T", 1, ROWS, 1) : ROWS;
    coda_value vx = coda_input(g, "x", CODA_F32, 2, (int64_t[]){rows, WIDTH});
    coda_value vw = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){WIDTH, WIDTH});
    coda_value vb = coda_weight(g, "bias", CODA_F32, 1, (int64_t[]){WIDTH});
    coda_output(g, "y", coda_bias(g, coda_matmul(g, vx, vw), vb));
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_graph_free(g);
    return p;
}

#define GOOD                                                                                                 \
    {"y", y, sizeof y}, {"bias", bias, sizeof bias}, {"x", x, sizeof x}, { "w", w, sizeof w }

START_TEST(any_order)
{
    coda_plan *p = plan_of(false);
    void *args[ARGS] = {0}, *workspace = aligned_alloc(256, (coda_plan_workspace(p) + 511) / 256 * 256);
    const coda_binding list[] = {GOOD};
    ck_assert_msg(coda_bind(args, p, list, ARGS, NULL) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < ARGS; i++) ck_assert_ptr_eq(args[coda_plan_find(p, list[i].name)], list[i].data);
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)i;
    for (int i = 0; i < WIDTH; i++) w[i * WIDTH + i] = 2, bias[i] = (float)-i;
    memset(y, 0xff, sizeof y);
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < ROWS * WIDTH; i++)
        ck_assert_msg(y[i] == 2.0f * (float)i - (float)(i % WIDTH), "y[%d] is %g", i, (double)y[i]);
    free(workspace);
    coda_plan_free(p);
}
END_TEST

/* What is wrong with a list, and the line that says so. */
static const struct {
    coda_binding list[ARGS + 1];
    int count;
    const char *line;
} wrong[] = {
    {{GOOD}, 3, "bind: w is not bound"},
    {{GOOD}, 1, "bind: x and 2 other arguments are not bound"},
    {{{"y", y, 0}, {"w", w, 0}}, 2, "bind: x and 1 other argument are not bound"},
    {{GOOD, {"x", x, 0}}, 5, "bind: x is bound twice"},
    {{{"bais", bias, 0}}, 1, "bind: none of the plan's 4 arguments is called \"bais\"; do you mean bias?"},
    {{{"BIAS", bias, 0}}, 1, "bind: none of the plan's 4 arguments is called \"BIAS\"; do you mean bias?"},
    {{{"gain", bias, 0}},
     1,
     "bind: none of the plan's 4 arguments is called \"gain\"; coda_plan_arg has their names"},
    {{{"w", w, sizeof w - 1}}, 1, "bind: w has 255 bytes; the plan wants 256"},
    {{{NULL, w, 0}}, 1, "bind: the name of bindings[0] is NULL"},
    {{{"w", w, 0}}, -1, "bind: count is -1; must be >= 0"},
};

START_TEST(mistakes)
{
    coda_plan *p = plan_of(_i % 2);
    void *args[ARGS];
    memset(args, 0xff, sizeof args);
    ck_assert_int_eq(coda_bind(args, p, wrong[_i].list, wrong[_i].count, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), wrong[_i].line);
    for (int i = 0; i < ARGS && wrong[_i].count >= 0; i++) /* nothing that coda_run would take for memory */
        ck_assert(!args[i] || args[i] == x || args[i] == w || args[i] == bias || args[i] == y);
    coda_plan_free(p);
}
END_TEST

START_TEST(null)
{
    coda_plan *p = plan_of(false);
    void *args[ARGS];
    ck_assert_int_eq(coda_bind(NULL, p, NULL, 0, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: args is NULL");
    ck_assert_int_eq(coda_bind(args, NULL, NULL, 0, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: plan is NULL");
    ck_assert_int_eq(coda_bind(args, p, NULL, 1, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: bindings is NULL");
    coda_plan_free(p);
}
END_TEST

/* Sizes of a plan with symbols are those of dims, or of the largest. */
START_TEST(shapes)
{
    coda_plan *p = plan_of(true);
    void *args[ARGS];
    const int64_t one = 1, three = 3, many = ROWS + 1;
    const size_t row = sizeof(float) * WIDTH;
    coda_binding list[] = {{"x", x, row}, {"w", w, sizeof w}, {"bias", bias, sizeof bias}, {"y", y, 3 * row}};
    ck_assert_msg(coda_bind(args, p, list, ARGS, &one) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_bind(args, p, list, ARGS, &three), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: x has 32 bytes; the plan wants 96");
    ck_assert_int_eq(coda_bind(args, p, list, ARGS, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: x has 32 bytes; the plan wants 128");
    ck_assert_int_eq(coda_bind(args, p, list, ARGS, &many), CODA_E_INVALID);
    ck_assert_ptr_nonnull(strstr(coda_error(), "T"));
    coda_plan_free(p);
}
END_TEST

TESTS(bind, ONE(any_order), EACH(mistakes, ARRAY_SIZE(wrong)), ONE(null), ONE(shapes));
