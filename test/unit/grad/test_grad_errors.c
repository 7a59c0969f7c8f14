/* test_grad_errors.c -- what coda_grad refuses, in one line with names and numbers; and what it does not. */
#include "util_grad.h"

#include <math.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* A graph, and its values by the names of its leaves and outputs. */
static coda_value named(const graph *g, const char *name)
{
    for (int i = 0; i < g->leaves; i++)
        if (!strcmp(g->node[g->leaf[i]].name, name)) return (coda_value){(uint32_t)g->leaf[i] + 1};
    for (int i = 0; i < g->outputs; i++)
        if (!strcmp(g->output[i].name, name)) return (coda_value){(uint32_t)g->output[i].value + 1};
    return CODA_NONE;
}

static const struct {
    const char *text;
    coda_status status;
    const char *words[3]; /* that the message has */
} refused[] = {
    {"%x = input f32 [2,8]\n%i = input i32 [2,8]\noutput %y = %i\n", CODA_E_INVALID, {"y[0]", "i32[2,8]"}},
    {"%x = input f32 [2,8]\n%r = relu %x\noutput %y = %r\n", CODA_E_INVALID, {"y[0]", "f32[2,8]", "dy[0]"}},
    {"%x = input f32 [2,8]\n%s = state f32 [2,8]\n%v = assign %s, %x\n%r = sum %v {columns=1}\n"
     "%t = sum %r\noutput %y = %t\n",
     CODA_E_UNSUPPORTED,
     {"assign", "%x", "writes to a state"}},
    {"%c = state f32 [16,8]\n%x = input f32 [1,8]\n%s = input i32 [1]\n%d = append %c, %x, %s\n"
     "%r = sum %d {columns=1}\n%t = sum %r\noutput %y = %t\n",
     CODA_E_UNSUPPORTED,
     {"append", "%x", "writes to a state"}},
    {"%x = input f32 [1,32]\n%p = input i32 [1]\n%f = input f32 [8]\n"
     "%r = rope %x, %p, %f {head_dim=16, half=1}\n%t = sum %r\noutput %y = %t\n",
     CODA_E_UNSUPPORTED,
     {"rope", "%f", "frequencies"}},
    {"%x = input f32 [1,8]\n%w = weight i8 [1,8]\n%y = matmul %x, %w\noutput %y = %y\n",
     CODA_E_UNSUPPORTED,
     {"matmul", "%w", "i8"}},
    {"%x = input f32 [1,8]\n%q = cast %x {to=f8e4m3}\n%w = weight f8e4m3 [1,8]\n%y = matmul %q, %w\n"
     "output %y = %y\n",
     CODA_E_UNSUPPORTED,
     {"matmul", "%x", "f8e4m3 by f8e4m3"}},
    {"%x = input f32 [1,8]\n%q = cast %x {to=f8e5m2}\n%y = cast %q {to=f32}\n%s = sum %y\noutput %y = %s\n",
     CODA_E_UNSUPPORTED,
     {"cast", "%x", "f8e5m2"}},
    {"%x = input f8e4m3 [1,8]\n%v = reshape %x {d0=8, rank=1}\n%y = cast %v {to=f32}\n%s = sum %y\n"
     "output %y = %s\n",
     CODA_E_UNSUPPORTED,
     {"cast", "%x", "f8e4m3"}},
    {"%x = input f32 [1,8]\n%t = exp_sum %x\noutput %y = %t\n", CODA_E_UNSUPPORTED, {"exp_sum", "%x"}},
};

START_TEST(refuses_with_names)
{
    graph *g = graph_parse(refused[_i].text);
    ck_assert_msg(g != NULL, "%s%s", refused[_i].text, coda_error());
    coda_value y = named(g, "y"), x[8], dx[8];
    for (int i = 0; i < g->leaves; i++) x[i] = (coda_value){(uint32_t)g->leaf[i] + 1};
    coda_grad(g, &y, NULL, 1, x, g->leaves, dx, NULL);
    ck_assert_msg(coda_graph_status(g) == refused[_i].status, "%s: %s", refused[_i].text, coda_error());
    for (int i = 0; i < 3 && refused[_i].words[i]; i++)
        ck_assert_msg(strstr(coda_error(), refused[_i].words[i]), "%s lacks %s", coda_error(),
                      refused[_i].words[i]);
    ck_assert(!strchr(coda_error(), '\n'));
    for (int i = 0; i < g->leaves; i++) ck_assert_uint_eq(dx[i].id, 0);
    graph_free(g);
}
END_TEST

#define REFUSED(call, status, word)                                                                          \
    do {                                                                                                     \
        graph *g = graph_parse(text);                                                                        \
        coda_value y = named(g, "y"), x = named(g, "x"), dx = {7};                                           \
        call;                                                                                                \
        ck_assert_int_eq(coda_graph_status(g), status);                                                      \
        ck_assert_msg(strstr(coda_error(), word), "%s", coda_error());                                       \
        (void)y, (void)x, (void)dx;                                                                          \
        graph_free(g);                                                                                       \
    } while (0)

START_TEST(refuses_arguments)
{
    static const char text[] =
        "%x = input f32 [2,8]\n%z = input f32 [8]\n%h = input f16 [2,8]\n%r = relu %x\n"
        "output %y = %r\n";
    coda_value other = {999}, none = CODA_NONE;
    coda_grad_options wide = CODA_GRAD_OPTIONS_INIT, odd = CODA_GRAD_OPTIONS_INIT;
    wide.size = 5;
    odd.weights = CODA_I32;
    REFUSED(coda_grad(g, &y, NULL, 0, &x, 1, &dx, NULL), CODA_E_INVALID, "0 y and 1 x");
    REFUSED(coda_grad(g, &y, NULL, -1, &x, 1, &dx, NULL), CODA_E_INVALID, "-1 y");
    REFUSED(coda_grad(g, &y, NULL, 1, &x, -1, &dx, NULL), CODA_E_INVALID, "-1 x");
    REFUSED(coda_grad(g, NULL, NULL, 1, &x, 1, &dx, NULL), CODA_E_INVALID, "y is NULL");
    REFUSED(coda_grad(g, &y, &y, 1, NULL, 1, &dx, NULL), CODA_E_INVALID, "x is NULL");
    REFUSED(coda_grad(g, &y, &y, 1, &x, 1, NULL, NULL), CODA_E_INVALID, "dx is NULL");
    REFUSED(coda_grad(g, &y, &none, 1, &x, 1, &dx, NULL), CODA_E_INVALID, "dy[0] is CODA_NONE");
    REFUSED(coda_grad(g, &none, &y, 1, &x, 1, &dx, NULL), CODA_E_INVALID, "y[0] is CODA_NONE");
    REFUSED(coda_grad(g, &y, &y, 1, &none, 1, &dx, NULL), CODA_E_INVALID, "x[0] is CODA_NONE");
    REFUSED(coda_grad(g, &y, &other, 1, &x, 1, &dx, NULL), CODA_E_INVALID, "999");
    REFUSED(coda_value z = named(g, "z");
            coda_grad(g, &y, &z, 1, &x, 1, &dx, NULL), CODA_E_INVALID, "f32[8]");
    REFUSED(coda_value h = named(g, "h");
            coda_grad(g, &y, &h, 1, &x, 1, &dx, NULL), CODA_E_INVALID, "f16[2,8]");
    REFUSED(coda_grad(g, &y, &x, 1, &x, 1, &dx, &wide), CODA_E_INVALID, "is 5");
    REFUSED(coda_grad(g, &y, &x, 1, &x, 1, &dx, &odd), CODA_E_INVALID, "weights");
    coda_value dx = {7}, y = {1};
    coda_grad(NULL, &y, NULL, 1, &y, 1, &dx, NULL);
    ck_assert(strstr(coda_error(), "graph is NULL") && !dx.id);
}
END_TEST

/* ---- What is right ---- */

START_TEST(paths_end)
{
    graph *g = graph_parse("%x = input f32 [2,8]\n%z = input f32 [2,8]\n%i = input i32 [2,8]\n"
                           "%m = arg_max %x\n%n = cast %m {to=i32}\n%f = cast %n {to=f32}\n%s = sum %z\n"
                           "%r = mul %s, %f\noutput %y = %r\n");
    ck_assert_msg(g != NULL, "%s", coda_error());
    coda_value y = named(g, "y"), x[4] = {named(g, "x"), named(g, "z"), named(g, "i"), named(g, "z")}, dx[4];
    coda_value dy = coda_input(g, "dy", CODA_F32, 2, (int64_t[]){2, 1});
    coda_grad(g, &y, &dy, 1, x, 4, dx, NULL);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    ck_assert(!dx[0].id && dx[1].id && !dx[2].id && dx[1].id == dx[3].id);
    graph_free(g);
}
END_TEST

/* A y that is an x gets its dy, beside what comes to it by other ways; dy 1 needs no value. */
START_TEST(a_y_may_be_an_x)
{
    graph *g = graph_parse("%x = input f32 [1]\n%r = scale %x {alpha=3}\noutput %y = %r\n");
    coda_value y[2] = {named(g, "y"), named(g, "x")}, dx;
    float x = 5;
    double out[2];
    coda_grad(g, y, NULL, 2, &y[1], 1, &dx, NULL);
    coda_output(g, "dx", dx);
    ck_assert_msg(coda_evaluate(g, (void *[]){&x, &out[0], &out[1]}) == CODA_OK, "%s", coda_error());
    ck_assert(out[1] == 4);
    graph_free(g);
}
END_TEST

/* NaN stays in its row; a row that is ignored gets 0 whatever it holds; one without a class is NaN. */
START_TEST(rows_keep_to_themselves)
{
    graph *g = graph_parse("%z = input f32 [4,3]\n%t = input i32 [4]\n"
                           "%l = cross_entropy %z, %t {ignore=-1, reduction=2}\noutput %y = %l\n");
    coda_value y = named(g, "y"), z = named(g, "z"), dz;
    coda_grad(g, &y, NULL, 1, &z, 1, &dz, NULL);
    coda_output(g, "dz", dz);
    float logits[12] = {1, 2, 3, NAN, 1, INFINITY, 1, 1, 1, 0, 0, 0};
    int target[4] = {2, -1, 3, 0};
    double loss, out[12];
    ck_assert_msg(coda_evaluate(g, (void *[]){logits, target, &loss, out}) == CODA_OK, "%s", coda_error());
    double sum = exp(1) + exp(2) + exp(3);
    ck_assert(fabs(out[0] - exp(1) / sum) < 1e-12 && fabs(out[2] - (exp(3) / sum - 1)) < 1e-12);
    ck_assert(out[3] == 0 && out[4] == 0 && out[5] == 0);
    ck_assert(isnan(out[6]) && isnan(out[7]) && isnan(out[8]));
    ck_assert(fabs(out[9] - (1.0 / 3 - 1)) < 1e-12 && fabs(out[10] - 1.0 / 3) < 1e-12);
    graph_free(g);
}
END_TEST

/* Weights' gradients are of the dtype that was asked for, and nothing rounds them on the way. */
START_TEST(weights_have_their_dtype)
{
    for (int k = 0; k < 2; k++) {
        graph *g = graph_parse("%x = input bf16 [4,8]\n%w = weight bf16 [6,8]\n%p = matmul %x, %w\n"
                               "output %y = %p\n");
        coda_value y = named(g, "y"), in[2] = {named(g, "x"), named(g, "w")}, dx[2];
        coda_value dy = coda_input(g, "dy", CODA_BF16, 2, (int64_t[]){4, 6});
        coda_grad_options o = CODA_GRAD_OPTIONS_INIT;
        if (k) o.weights = CODA_BF16;
        coda_grad(g, &y, &dy, 1, in, 2, dx, &o);
        ck_assert_int_eq(g->node[dx[0].id - 1].type.dtype, CODA_BF16);
        ck_assert_int_eq(g->node[dx[1].id - 1].type.dtype, k ? CODA_BF16 : CODA_F32);
        ck_assert_int_eq(g->node[dx[1].id - 1].op, OP_MATMUL);
        graph_free(g);
    }
}
END_TEST

/* Beside a frozen weight only an adapter's products are appended (Hu et al., arXiv 2106.09685). */
START_TEST(frozen_weights_cost_nothing)
{
    graph *g = graph_parse("%x = input bf16 [16,32]\n%w = weight bf16 [24,32]\n%a = weight bf16 [4,32]\n"
                           "%b = weight bf16 [24,4]\n%p = matmul %x, %w\n%q = matmul %x, %a\n"
                           "%r = matmul %q, %b\n%s = add %p, %r\noutput %y = %s\n");
    coda_value y = named(g, "y"), in[2] = {named(g, "a"), named(g, "b")}, dx[2];
    coda_value dy = coda_input(g, "dy", CODA_BF16, 2, (int64_t[]){16, 24});
    int before = g->nodes, products = 0;
    coda_grad(g, &y, &dy, 1, in, 2, dx, NULL);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    for (int v = before; v < g->nodes; v++) products += g->node[v].op == OP_MATMUL;
    ck_assert_int_eq(products, 3);
    graph_free(g);
}
END_TEST

/* A sum along more elements than a kernel counts has a gradient of them all, if their number has factors. */
START_TEST(long_sums_have_gradients)
{
    static const struct {
        int64_t dims[2];
        const char *refused;
    } cases[] = {{{4096, 8192}, NULL}, {{1, 33554467}, "33554467 times"}, {{3, 1 << 24}, NULL}};
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        graph *g = graph_new();
        int64_t line[] = {1, cases[i].dims[0] * cases[i].dims[1]};
        coda_value x = coda_input(g, "x", CODA_BF16, 2, cases[i].dims), dx;
        coda_value y = coda_reshape(g, coda_row_sum(g, coda_reshape(g, x, 2, line)), 1, (int64_t[]){1});
        coda_grad(g, &y, NULL, 1, &x, 1, &dx, NULL);
        if (cases[i].refused) {
            ck_assert_int_eq(coda_graph_status(g), CODA_E_UNSUPPORTED);
            ck_assert_msg(strstr(coda_error(), cases[i].refused), "%s", coda_error());
        } else {
            ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
            ck_assert(type_agrees(&g->node[dx.id - 1].type, &g->node[x.id - 1].type));
        }
        graph_free(g);
    }
}
END_TEST

/* The text of a graph with gradients is a fixed point. */
START_TEST(text_is_a_fixed_point)
{
    graph *g = grad_loss(
        "%x = input f32 [2,3,8]\n%w = weight f32 [16,8]\n%g = weight f32 [8]\n"
        "%n = rms_norm %x, %g {eps=1e-5}\n%p = matmul %n, %w\n%r = reshape %p {rank=2, d0=6, d1=16}\n"
        "%a = slice %r {axis=1, start=0, stop=8, step=1}\n"
        "%b = slice %r {axis=1, start=8, stop=16, step=1}\n%m = mul %a, %b\noutput %y = %m\n");
    coda_value y = named(g, "loss"), x[3] = {named(g, "x"), named(g, "w"), named(g, "g")}, dx[3];
    coda_grad(g, &y, NULL, 1, x, 3, dx, NULL);
    for (int i = 0; i < 3; i++) coda_output(g, (const char *[]){"dx", "dw", "dg"}[i], dx[i]);
    struct text once = {0}, twice = {0};
    graph_print(g, &once);
    graph *again = graph_parse(text_str(&once));
    ck_assert_msg(again != NULL, "%s\n%s", coda_error(), text_str(&once));
    graph_print(again, &twice);
    ck_assert_str_eq(text_str(&once), text_str(&twice));
    text_free(&once);
    text_free(&twice);
    graph_free(again);
    graph_free(g);
}
END_TEST

TESTS(grad_errors, EACH(refuses_with_names, ARRAY_SIZE(refused)), ONE(refuses_arguments), ONE(paths_end),
      ONE(a_y_may_be_an_x), ONE(rows_keep_to_themselves), ONE(weights_have_their_dtype),
      ONE(frozen_weights_cost_nothing), ONE(long_sums_have_gradients), ONE(text_is_a_fixed_point));
