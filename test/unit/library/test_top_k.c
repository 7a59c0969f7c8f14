/* test_top_k.c -- the k largest of each row: the evaluator and the CPU device against a sort, and what their
 * kernels compile to. */
#include "executable.h" /* before check.h, which has a macro called fail */
#include "check_plan.h"
#include "jit.h"
#include "util_scale.h"
#include "util_top_k.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

START_TEST(evaluates)
{
    const struct top_k_case *c = &top_k_cases[_i];
    graph *g = top_k_graph(c);
    void **args = top_k_args(c, g, 11, true);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s: %s", c->name, coda_error());
    ck_assert_int_eq(top_k_differences(c, g, args, true), 0);
    random_args_free(g, args);
    graph_free(g);
}
END_TEST

START_TEST(runs_on_the_host)
{
    const struct top_k_case *c = &top_k_cases[_i / 2];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct run_buffers b;
    coda_plan *p;
    graph *g = top_k_graph(c);
    void **args = top_k_args(c, g, 12, false);
    opt.device = CODA_DEVICE_CPU;
    opt.flags = _i % 2 ? CODA_NO_FUSION : 0;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", c->name, coda_error());
    bool ran = run_upload(&b, g, p, args, false) && run_prepare(&b, p) && run_plan(&b, p);
    ck_assert_msg(ran, "%s: %s", c->name, coda_error());
    ck_assert_int_eq(top_k_differences(c, g, args, false), 0);
    run_release(&b);
    random_args_free(g, args);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* Values and indices of one call are one launch, with and without fusion. */
START_TEST(is_one_launch)
{
    graph *g = top_k_graph(&top_k_cases[0]);
    ck_assert_int_eq(plan_launches(g, 0), 1);
    ck_assert_int_eq(plan_launches(g, CODA_NO_FUSION), 1);
    graph_free(g);
}
END_TEST

/* What a product's epilogue can say of its tiles is not read from memory: then states of "top_" are. */
static const struct {
    const char *text;
    int fused; /* top-k that are */
} products[] = {
    {"%l = matmul %x, %w\n%v = top_k %l {k=16}\noutput %v = %v\n", 1},
    {"%l = matmul %x, %w\n%v = top_k %l {k=17}\noutput %v = %v\n", 0},
    {"%l = matmul %x, %w\n%s = scale %l {alpha=0.5}\n%v = top_k %s {k=1, indices=1}\noutput %v = %v\n"
     "output %l = %l\n",
     1},
    {"%l = matmul %x, %w\n%r = reshape %l {d0=5, d1=2, d2=64, rank=3}\n%v = top_k %r {k=3}\noutput %v = %v\n",
     1},
    {"%l = matmul %x, %w\n%r = reshape %l {d0=20, d1=32, rank=2}\n%v = top_k %r {k=3}\noutput %v = %v\n", 0},
    {"%l = matmul %x, %w\n%s = slice %l {axis=1, stop=32, step=1}\n%v = top_k %s {k=3}\noutput %v = %v\n", 0},
    {"%l = matmul %x, %w\n%a = slice %l {axis=1, stop=32, step=1}\n"
     "%b = slice %l {axis=1, start=32, stop=64, step=1}\n%s = swiglu %a, %b\n%v = top_k %s {k=4}\n"
     "output %v = %v\n",
     1},
    {"%l = matmul %x, %w\n%s = softmax %l\n%v = top_k %s {k=4}\noutput %v = %v\n", 0},
    {"%l = matmul %x, %w\n%v = top_k %l {k=16}\n%s = relu %l\n%u = top_k %s {k=8}\n%t = top_k %s {k=2}\n"
     "output %v = %v\noutput %u = %u\noutput %t = %t\n",
     2},
    {"%l = matmul %w, %w\n%v = top_k %l {k=2}\noutput %v = %v\n", 1},
};

START_TEST(products_keep_the_best_of_their_tiles)
{
    char text[1024], said[1 << 14];
    snprintf(text, sizeof text, "%%x = input bf16[10,64]\n%%w = weight bf16[64,64]\n%s", products[_i].text);
    coda_plan *p = plan_of_text(text);
    coda_plan_print(p, CODA_TEXT_PLAN, said, sizeof said);
    int fused = 0;
    for (const char *at = said; (at = strstr(at, "\n   top_")); at++) fused++;
    ck_assert_msg(fused == products[_i].fused, "%s", said);
    coda_plan_free(p);
}
END_TEST

/* Nothing spills, and ptxas has nothing to say. */
START_TEST(compiles)
{
    const struct top_k_case *c = &top_k_cases[_i];
    char why[256];
    if (!scale_takes_one_in(4, _i) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in this process */
    graph *g = top_k_graph(c);
    plan_compiles_cleanly(g, c->name, "sm_90a");
    graph_free(g);
}
END_TEST

TESTS(top_k, EACH(evaluates, top_k_case_count), EACH(runs_on_the_host, 2 * top_k_case_count),
      ONE(is_one_launch), EACH(products_keep_the_best_of_their_tiles, ARRAY_SIZE(products)), CASE("nvrtc"),
      TAG("nvrtc"), EACH(compiles, top_k_case_count));
