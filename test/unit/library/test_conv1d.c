/* test_conv1d.c -- causal convolutions: the evaluator against loops over tokens, the CPU device against the
 * evaluator, sequences cut into runs, and what the kernels compile to. */
#include "executable.h" /* before check.h, which has a macro called fail */
#include "check_plan.h"
#include "jit.h"
#include "util_conv1d.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void evaluate(const struct conv1d_case *c, uint64_t seed)
{
    graph *g = conv1d_graph(c);
    ck_assert_msg(!g->status, "%s: %s", c->name, g->error);
    void **args = random_args(g, seed, true);
    double *before = conv1d_before(c, g, args);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s: %s", c->name, coda_error());
    ck_assert_msg(conv1d_difference(c, g, args, before) < 1e-12, "%s, seed %llu: differs by %g", c->name,
                  (unsigned long long)seed, conv1d_difference(c, g, args, before));
    free(before);
    random_args_free(g, args);
    graph_free(g);
}

static void run_on_the_host(const struct conv1d_case *c, uint64_t seed, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    graph *g = conv1d_graph(c);
    opt.flags = flags;
    void **want = run_reference(g, seed);
    double error = want ? run_on_cpu(g, seed, &opt, want) : -1;
    ck_assert_msg(error >= 0 && error <= conv1d_allowed(c), "%s, seed %llu: error %g %s", c->name,
                  (unsigned long long)seed, error, error < 0 ? coda_error() : "");
    if (want) random_args_free(g, want);
    graph_free(g);
}

START_TEST(evaluates) { evaluate(&conv1d_cases[_i], 31); }
END_TEST
START_TEST(runs_on_the_host) { run_on_the_host(&conv1d_cases[_i / 2], 32, _i % 2 ? CODA_NO_FUSION : 0); }
END_TEST

START_TEST(products_on_the_host) { run_on_the_host(&conv1d_products[_i], 33, 0); }
END_TEST

/* A map of what the kernel computes that lies in more places than the one where a kernel stores it. */
static const char *const places[] = {
    "%o = input f32[9,8]\n%c = concat %z, %o {axis=1}\noutput %c = %c\n",
    "output %z = %z\noutput %again = %z\n",
    "output %z += %z\n",
    "%s = state f32[3,16]\n%u = conv1d %x, %w, _, %s\n%a = conv1d %x, %w, _, %s {after=1} @%u\n"
    "%s1 = assign %s, %a\n%m = silu %s1\noutput %z = %z\noutput %u = %u\noutput %m = %m\n",
};

START_TEST(maps_lie_anywhere)
{
    char text[512];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    snprintf(text, sizeof text,
             "%%x = input f32[9,16]\n%%w = weight f32[16,4]\n%%y = conv1d %%x, %%w\n%%z = silu %%y\n%s",
             places[_i]);
    graph *g = graph_parse(text);
    ck_assert_msg(g != NULL, "%s", coda_error());
    void **want = run_reference(g, 35);
    ck_assert_msg(want != NULL, "%s", coda_error());
    double error = run_on_cpu(g, 35, &opt, want);
    ck_assert_msg(error >= 0 && error <= 1e-5, "error %g %s", error, error < 0 ? coda_error() : "");
    random_args_free(g, want);
    graph_free(g);
}
END_TEST

START_TEST(drawn_ones)
{
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + (uint64_t)scaled(150); s++) {
        const struct conv1d_case c = conv1d_draw(s);
        evaluate(&c, s);
        run_on_the_host(&c, s, 0);
    }
}
END_TEST

/* ---- What is refused ---- */

static const struct {
    const char *text, *expected;
} refused[] = {
    {"%x = input f32[4,6,8,8]\n%w = input f32[8,4]\n%c = conv1d %x, %w\n",
     "conv1d %c: x is [4,6,8,8]; must be [B,T,columns] or [T,columns]"},
    {"%x = input i32[6,8]\n%w = input f32[8,4]\n%c = conv1d %x, %w\n",
     "conv1d %c: x is i32[6,8]; it must be f32, bf16 or f16"},
    {"%x = input f32[6,8]\n%w = input f32[4,8]\n%c = conv1d %x, %w\n",
     "conv1d %c: x is [6,8] but w is [4,8]; it must be [8,k], k 2..16"},
    {"%x = input f32[6,8]\n%w = input f32[8,17]\n%c = conv1d %x, %w\n",
     "conv1d %c: x is [6,8] but w is [8,17]; it must be [8,k], k 2..16"},
    {"%x = input f32[6,8]\n%w = input f32[8,1]\n%c = conv1d %x, %w\n",
     "conv1d %c: x is [6,8] but w is [8,1]; it must be [8,k], k 2..16"},
    {"%x = input f32[6,8]\n%w = input f32[8,4]\n%b = input f32[4]\n%c = conv1d %x, %w, %b\n",
     "conv1d %c: x is [6,8] but bias is [4]; it must be [8]"},
    {"%x = input f32[6,8]\n%w = input f32[8,4]\n%s = input f32[1,3,8]\n%c = conv1d %x, %w, _, %s\n",
     "conv1d %c: before is f32[1,3,8]; must be f32, bf16 or f16[3,8]"},
    {"%x = input f32[2,6,8]\n%w = input f32[8,4]\n%s = input i32[2,3,8]\n%c = conv1d %x, %w, _, %s\n",
     "conv1d %c: before is i32[2,3,8]; must be f32, bf16 or f16[2,3,8]"},
    {"%x = input f32[2,6,8]\n%w = input f32[8,4]\n%t = input i32[3]\n%c = conv1d %x, %w, _, _, %t\n",
     "conv1d %c: x is [2,6,8] but starts are i32[3]; x must be [T,columns], starts i32 or i64[B+1]"},
    {"%x = input f32[6,8]\n%w = input f32[8,4]\n%t = input i32[0]\n%c = conv1d %x, %w, _, _, %t\n",
     "conv1d %c: x is [6,8] but starts are i32[0]; x must be [T,columns], starts i32 or i64[B+1]"},
    {"dim %N = 8..64\n%x = input f32[6,N]\n%w = input f32[8,4]\n%c = conv1d %x, %w\n",
     "conv1d %c: x is [6,N]; its columns must be a number, not N"},
    {"%x = input f32[6,8]\n%w = input f32[8,4]\n%c = conv1d %x, %w {after=2}\n",
     "conv1d %c: after is 2; must be 0..1"},
};

START_TEST(refuses)
{
    graph *g = graph_parse(refused[_i].text);
    ck_assert_ptr_null(g);
    ck_assert_msg(strstr(coda_error(), refused[_i].expected) != NULL, "%s", coda_error());
}
END_TEST

START_TEST(has_no_gradient)
{
    graph *g = conv1d_graph(&conv1d_cases[1]);
    coda_value y = {g->output[0].value + 1}, x = {g->leaf[0] + 1}, dx;
    coda_value dy = coda_input(g, "dy", CODA_F32, 3, g->node[y.id - 1].type.dim);
    coda_grad(g, &y, &dy, 1, &x, 1, &dx, NULL);
    ck_assert_msg(g->status && strstr(g->error, "conv1d"), "%s", g->error);
    graph_free(g);
}
END_TEST

/* ---- Sequences in pieces ---- */

enum { N = 24, K = 4, ROWS = 37 };

/* Runs `rows` tokens; the state is left. */
static void run_piece(const float *x, const float *w, float *state, float *y, int64_t rows)
{
    _Alignas(256) char workspace[1 << 14];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = coda_graph_new();
    coda_plan *p;
    coda_value of_x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){rows, N}), after;
    coda_value of_w = coda_input(g, "w", CODA_F32, 2, (int64_t[]){N, K});
    coda_value s = coda_state(g, "s", CODA_F32, 2, (int64_t[]){K - 1, N});
    coda_output(g, "y", coda_conv1d(g, of_x, of_w, CODA_NONE, s, CODA_NONE, &after));
    coda_assign(g, s, after);
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_uint_le(coda_plan_workspace(p), sizeof workspace);
    void *args[] = {(void *)x, (void *)w, state, y};
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    coda_plan_free(p);
    coda_graph_free(g);
}

START_TEST(pieces_leave_equal_bits)
{
    static _Alignas(64) float x[ROWS * N], w[N * K], y[ROWS * N], whole[ROWS * N], s[(K - 1) * N],
        left[(K - 1) * N];
    struct random r = {random_seed()};
    for (int i = 0; i < ROWS * N; i++) x[i] = (float)random_normal(&r);
    for (int i = 0; i < N * K; i++) w[i] = (float)random_normal(&r);
    run_piece(x, w, left, whole, ROWS);
    for (int64_t at = 0, rows; at < ROWS; at += rows) {
        _Alignas(64) float part[ROWS * N], out[ROWS * N];
        int64_t some = 1 + random_below(&r, 6);
        rows = MIN(some, ROWS - at);
        memcpy(part, x + at * N, sizeof *x * (size_t)(rows * N));
        run_piece(part, w, s, out, rows);
        memcpy(y + at * N, out, sizeof *y * (size_t)(rows * N));
    }
    ck_assert_mem_eq(y, whole, sizeof whole);
    ck_assert_mem_eq(s, left, sizeof left);
}
END_TEST

/* ---- Launches ---- */

/* The state is written by the launch that reads it, and a map that alone reads y is in it; no map if y is an
 * output, too, and no state if what is assigned to it is one. */
static const struct {
    const char *text;
    int launches;
} plans[] = {
    {"%z = silu %y\n%s1 = assign %s, %a\noutput %z = %z\n", 1},
    {"%s1 = assign %s, %a\noutput %y = %y\n", 1},
    {"%z = silu %y\n%s1 = assign %s, %a\noutput %z = %z\noutput %y = %y\n", 2},
    {"%z = mul %y, %x\n%s1 = assign %s, %a\noutput %z = %z\n", 2},
    {"%s1 = assign %s, %a\noutput %y = %y\noutput %a = %a\n", 2},
    {"%m = relu %y\n%n = matmul %m, %p\n%t = sum %s\n%s1 = assign %s, %a\noutput %n = %n\noutput %t = %t\n",
     3},
};

START_TEST(launches)
{
    char text[1024];
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    snprintf(
        text, sizeof text, "%s%s",
        "%x = input bf16[64,48]\n%p = weight bf16[32,48]\n%w = weight bf16[48,4]\n%s = state bf16[3,48]\n"
        "%y = conv1d %x, %w, _, %s\n%a = conv1d %x, %w, _, %s {after=1} @%y\n",
        plans[_i].text);
    coda_plan *p = plan_of_text(text);
    ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
    ck_assert_int_eq(stats.launches, plans[_i].launches);
    coda_plan_free(p);
}
END_TEST

/* ---- In a product ---- */

/* Where x has so many rows a product computes most of them, and x is not stored; not if somebody else reads
 * it, sequences are packed, or begin anywhere. */
static const struct {
    const char *x, *rest;
    bool fused;
} products[] = {
    {"%x = input bf16[2048,64]", "", true},
    {"%x = input bf16[2048,64]", "%t = sum %u\noutput %t = %t\n", false},
    {"%x = input bf16[512,64]", "", false},
    {"%x = input bf16[4,512,64]", "", true},
    {"%x = input bf16[4,520,64]", "", false},
    {"%x = input f32[2048,64]", "", false},
    {"dim %T = 2048..4096\n%x = input bf16[T,64]", "", true},
};

START_TEST(products_compute_rows)
{
    char text[1024];
    const char *type = strstr(products[_i].x, "f32") ? "f32" : "bf16";
    int axis = strstr(products[_i].x, "[4,") ? 2 : 1;
    static char plan[1 << 14];
    snprintf(text, sizeof text,
             "%s\n%%p = weight %s[4096,64]\n%%w = weight %s[3072,4]\n%%m = matmul %%x, %%p\n"
             "%%u = slice %%m {axis=%d,start=0,stop=3072,step=1}\n%%y = conv1d %%u, %%w\n%%z = silu %%y\n"
             "output %%z = %%z\n%s",
             products[_i].x, type, type, axis, products[_i].rest);
    coda_plan *p = plan_of_text(text);
    ck_assert_int_gt(coda_plan_print(p, CODA_TEXT_PLAN, plan, sizeof plan), 0);
    ck_assert_msg((strstr(plan, "-> edges") != NULL) == products[_i].fused, "%s", plan);
    coda_plan_free(p);
}
END_TEST

/* ---- Kernels ---- */

/* Nothing spills, and ptxas has nothing to say. */
START_TEST(compiles)
{
    static const char *const arch[] = {"sm_80", "sm_90a"};
    const struct conv1d_case *c = &conv1d_cases[_i / ARRAY_SIZE(arch)];
    char why[256];
    if (!scale_takes_one_in(8, _i) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in this process */
    graph *g = conv1d_graph(c);
    plan_compiles_cleanly(g, c->name, arch[_i % ARRAY_SIZE(arch)]);
    graph_free(g);
}
END_TEST

START_TEST(products_compile)
{
    const struct conv1d_case *c = &conv1d_products[_i];
    char why[256];
    if (!jit_nvrtc_info(why, sizeof why)) return;
    graph *g = conv1d_graph(c);
    plan_compiles_cleanly(g, c->name, "sm_90a");
    graph_free(g);
}
END_TEST

TESTS(conv1d, EACH(evaluates, conv1d_case_count), EACH(runs_on_the_host, 2 * conv1d_case_count),
      SOME(products_on_the_host, conv1d_product_count), ONE(drawn_ones), EACH(refuses, ARRAY_SIZE(refused)),
      EACH(maps_lie_anywhere, ARRAY_SIZE(places)), ONE(has_no_gradient), ONE(pieces_leave_equal_bits),
      EACH(launches, ARRAY_SIZE(plans)), EACH(products_compute_rows, ARRAY_SIZE(products)), CASE("nvrtc"),
      TAG("nvrtc"), EACH(compiles, 2 * conv1d_case_count), SOME(products_compile, conv1d_product_count));
