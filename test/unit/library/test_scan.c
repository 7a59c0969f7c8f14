/* test_scan.c -- selective scans: the evaluator and the CPU device against loops in fp64, states that stay
 * where they lie, and what their kernels compile to. */
#include "executable.h" /* before check.h, which has a macro called fail */
#include "check_plan.h"
#include "jit.h"
#include "util_scale.h"
#include "util_scan.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

START_TEST(evaluates)
{
    const struct scan_case *c = &scan_cases[_i];
    graph *g = scan_graph(c);
    void **args = scan_args(c, g, 31, true);
    struct scan_expected e = scan_expect(c, g, args);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s: %s", c->name, coda_error());
    double error = scan_error(c, g, args, &e, true);
    ck_assert_msg(error <= 1, "%s: the error is %g of what is allowed", c->name, error);
    scan_expected_free(&e);
    random_args_free(g, args);
    graph_free(g);
}
END_TEST

static void run_on_the_host(const struct scan_case *c, uint64_t seed, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct run_buffers b;
    coda_plan *p;
    graph *g = scan_graph(c);
    void **args = scan_args(c, g, seed, false);
    struct scan_expected e = scan_expect(c, g, args);
    opt.device = CODA_DEVICE_CPU;
    opt.flags = flags;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", c->name, coda_error());
    bool ran = run_upload(&b, g, p, args, false) && run_prepare(&b, p) && run_plan(&b, p);
    ck_assert_msg(ran, "%s: %s", c->name, coda_error());
    double error = scan_error(c, g, args, &e, false);
    ck_assert_msg(error <= 1, "%s, seed %llu: the error is %g of what is allowed", c->name,
                  (unsigned long long)seed, error);
    run_release(&b);
    scan_expected_free(&e);
    random_args_free(g, args);
    coda_plan_free(p);
    graph_free(g);
}

START_TEST(runs_on_the_host) { run_on_the_host(&scan_cases[_i / 2], 32, _i % 2 ? CODA_NO_FUSION : 0); }
END_TEST

START_TEST(runs_drawn_ones_on_the_host)
{
    uint64_t seed = random_seed();
    for (int i = 0; i < scaled(200); i++) {
        const struct scan_case c = scan_draw(seed + (uint64_t)i);
        run_on_the_host(&c, seed + (uint64_t)i, 0);
    }
}
END_TEST

START_TEST(runs_leave_the_bits_of_one)
{
    const struct scan_case *c = &scan_cut_cases[_i];
    int64_t tokens[100], left = c->tokens;
    struct random r = {random_seed()};
    int runs = 0;
    for (; left; left -= tokens[runs++])
        tokens[runs] = random_chance(&r, 50) ? 1 : random_below(&r, left + 1);
    int64_t wrong = scan_cut(c, tokens, runs, 33, false);
    ck_assert_msg(wrong == 0, "%s: %lld bytes differ in %d runs: %s", c->name, (long long)wrong, runs,
                  wrong < 0 ? coda_error() : "");
}
END_TEST

/* ---- Mistakes ---- */

static const struct {
    const char *call, *message; /* that the line has */
} mistakes[] = {
    {"scan %v, %dt, %a, %b, %b", "x is [64]; it needs rank 2 or more"},
    {"scan %i, %dt, %a, %b, %b", "x is i32[3]; it must be f32, bf16 or f16"},
    {"scan %r4, %dt, %a, %b, %b", "x is [1,2,20,64]; must be [B,T,columns] or [T,columns]"},
    {"scan %x, %x3, %a, %b, %b", "x is [20,64] but dt is [2,20,64]; all but their columns must be equal"},
    {"scan %x, %d7, %a, %b, %b", "x has 64 columns, dt 7; dt has one for each head of x"},
    {"scan %x, %dt, %a, %b16, %b", "x is f32[20,64] but b is bf16[20,16]; must be f32"},
    {"scan %x, %h8, %a, %b, %b", "x is f32[20,64] but dt is f16[20,8]; must be f32"},
    {"scan %x, %dt, %a, %b, %x", "b has 16 columns, c 64; both must have 1..256 for each of 1 groups"},
    {"scan %x, %dt, %a, %wide, %wide",
     "b has 300 columns, c 300; both must have 1..256 for each of 1 groups"},
    {"scan %x, %dt, %a, %b, %b {groups=3}", "groups is 3; it must divide 8 heads"},
    {"scan %x, %dt, %v, %b, %b", "a is f32[64]; must be f32[8] or f32[8,16]"},
    {"scan %x, %dt, %a, %b, %b, %a", "the state is f32[8,16]; must be f32 or bf16 [64,16], or [8,8,16]"},
    {"scan %x, %dt, %a, %b, %b, %s16", "the state is f16[64,16]; must be f32 or bf16 [64,16], or [8,8,16]"},
    {"scan %x, %dt, %a, %b, %b, %s, %i",
     "the state is f32[64,16]; must be f32 or bf16 [2,64,16], or [2,8,8,16]"},
    {"scan %x3, %dt3, %a, %b3, %b3, _, %i",
     "x is [2,20,64] but starts are i32[3]; x must be [T,columns], starts i32 or i64[B+1]"},
    {"scan %x, %dt, %a, %b, %b, _, %v",
     "x is [20,64] but starts are f32[64]; x must be [T,columns], starts i32 or i64[B+1]"},
    {"scan %x, %dt, %a, %b, %b, _, _, %v", "dt_bias is f32[64]; must be f32[8], one for each head"},
    {"scan %x, %dt, %a, %b, %b, _, _, _, %v", "skip is f32[64]; must be f32[8], one for each head"},
    {"scan %x, %dt, %a, %b, %b, _, _, _, _, %b",
     "x is f32[20,64] but the gate is f32[20,16]; they must be equal"},
    {"scan %x, %dt, %a, %b, %b {softplus=2}", "softplus is 2; must be 0..1"},
    {"scan %x, %dt, %a, %b, %b {after=2}", "after is 2; must be 0..1"},
};

START_TEST(refuses)
{
    char text[2048];
    snprintf(
        text, sizeof text,
        "%%x = input f32[20,64]\n%%x3 = input f32[2,20,64]\n%%dt = input f32[20,8]\n%%dt3 = input "
        "f32[2,20,8]\n%%d7 = input f32[20,7]\n%%h8 = input f16[20,8]\n%%a = weight f32[8,16]\n%%b = input "
        "f32[20,16]\n%%b3 = input f32[2,20,16]\n%%b16 = input bf16[20,16]\n%%wide = input "
        "f32[20,300]\n%%v = weight f32[64]\n%%i = input i32[3]\n%%r4 = input f32[1,2,20,64]\n%%s = state "
        "f32[64,16]\n%%s16 = state f16[64,16]\n%%y = %s\noutput %%y = %%y\n",
        mistakes[_i].call);
    graph *g = graph_parse(text);
    ck_assert_ptr_null(g);
    ck_assert_msg(strstr(coda_error(), mistakes[_i].message), "%s: %s", mistakes[_i].call, coda_error());
}
END_TEST

START_TEST(has_no_gradient)
{
    graph *g = graph_parse("%x = input f32[20,64]\n%a = weight f32[64]\n%b = input f32[20,16]\n"
                           "%y = scan %x, %x, %a, %b, %b\n%q = sum %y\n%r = sum %q {columns=1}\n"
                           "output %r = %r\n");
    ck_assert_ptr_nonnull(g);
    coda_value x = {1}, r = {(uint32_t)g->nodes}, dx;
    coda_grad(g, &r, NULL, 1, &x, 1, &dx, NULL);
    ck_assert_ptr_nonnull(g->error);
    ck_assert_msg(
        strstr(g->error, "scan %3, on the way from %x, walks its tokens in order; it has no derivative"),
        "%s", g->error);
    graph_free(g);
}
END_TEST

/* ---- Launches ---- */

/* What a state takes is written where it lies. Not where somebody else wants it, where the state is read by
 * who waits for the scan, or by the scan itself in another place, or where it is not dense. */
static const struct {
    const char *text;
    int launches;
} plans[] = {
    {"%s = state f32[64,16]\n" /* it reads what it writes over */
     "%y = scan %x, %dt, %a, %b, %c, %s\n%t = scan %x, %dt, %a, %b, %c, %s {after=1} @%y\n"
     "%u = assign %s, %t\noutput %y = %y\n",
     1},
    {"%s = state f32[64,16]\n"
     "%y = scan %x, %dt, %a, %b, %c\n%t = scan %x, %dt, %a, %b, %c {after=1} @%y\n"
     "%u = assign %s, %t\noutput %y = %y\n",
     1},
    {"%s = state f32[64,16]\n" /* nobody wants y */
     "%t = scan %x, %dt, %a, %b, %c, %s {after=1}\n%u = assign %s, %t\n",
     1},
    {"%s = state f32[64,16]\n" /* the caller does, too */
     "%y = scan %x, %dt, %a, %b, %c, %s\n%t = scan %x, %dt, %a, %b, %c, %s {after=1} @%y\n"
     "%u = assign %s, %t\noutput %y = %y\noutput %t = %t\n",
     2},
    {"%s = state f32[64,16]\n" /* who reads the old state waits for y */
     "%y = scan %x, %dt, %a, %b, %c, %s\n%t = scan %x, %dt, %a, %b, %c, %s {after=1} @%y\n"
     "%m = transpose %y {p0=1, p1=0}\n%q = slice %m {axis=1, start=0, stop=16, step=1}\n%r = add %q, %s\n"
     "%u = assign %s, %t\noutput %y = %y\noutput %r = %r\n",
     3},
    {"%s = state f32[64,16]\n" /* it begins with another one */
     "%o = input f32[64,16]\n%y = scan %x, %dt, %a, %b, %c, %o\n"
     "%t = scan %x, %dt, %a, %b, %c, %o {after=1} @%y\n%u = assign %s, %t\noutput %y = %y\n",
     1},
    {"%s = state f32[64,16]\n" /* decays are the state, too, as each thread reads them when it begins */
     "%y = scan %x, %dt, %s, %b, %c, %s\n%t = scan %x, %dt, %s, %b, %c, %s {after=1} @%y\n"
     "%u = assign %s, %t\noutput %y = %y\n",
     2},
    {"%s = state f32[64,16] stride=[17,1]\n"
     "%y = scan %x, %dt, %a, %b, %c\n%t = scan %x, %dt, %a, %b, %c {after=1} @%y\n"
     "%u = assign %s, %t\noutput %y = %y\n",
     2},
};

START_TEST(launches)
{
    char text[1024];
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    snprintf(text, sizeof text,
             "%%x = input f32[20,64]\n%%dt = input f32[20,64]\n%%a = weight f32[64,16]\n"
             "%%b = input f32[20,16]\n%%c = input f32[20,16]\n%s",
             plans[_i].text);
    coda_plan *p = plan_of_text(text);
    ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
    ck_assert_int_eq(stats.launches, plans[_i].launches);
    coda_plan_free(p);
    graph *g = graph_parse(text);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    void **want = run_reference(g, 34);
    ck_assert_ptr_nonnull(want);
    double error = run_on_cpu(g, 34, &opt, want);
    ck_assert_msg(error >= 0 && error < 1e-4, "%g: %s", error, coda_error());
    random_args_free(g, want);
    graph_free(g);
}
END_TEST

/* ---- Kernels ---- */

/* Whole tiles come and go by maps of six tensors, unless sequences are packed or the target has none. */
START_TEST(tiles_have_maps)
{
    static const struct {
        const char *name, *arch;
        int maps;
    } want[] = {
        {"mamba in tiles", "sm_90a", 6}, {"packed tiles", "sm_90a", 0}, {"mamba in tiles", "sm_80", 0}};
    const struct scan_case *c = scan_cases;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    int maps = 0;
    while (strcmp(c->name, want[_i].name) != 0) c++;
    graph *g = scan_graph(c);
    opt.device = CODA_DEVICE_NONE, opt.arch = want[_i].arch, opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < p->plan.programs; i++) maps += p->program[i].emitted.maps;
    ck_assert_int_eq(maps, want[_i].maps);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* Nothing spills, and ptxas has nothing to say. */
START_TEST(compiles)
{
    static const char *const arch[] = {"sm_80", "sm_86", "sm_89", "sm_90a"};
    const struct scan_case *c = &scan_cases[_i / ARRAY_SIZE(arch)];
    char why[256];
    if (!scale_takes_one_in(8, _i) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in this process */
    graph *g = scan_graph(c);
    plan_compiles_cleanly(g, c->name, arch[_i % ARRAY_SIZE(arch)]);
    graph_free(g);
}
END_TEST

TESTS(scan, SOME(evaluates, scan_case_count), SOME(runs_on_the_host, 2 * scan_case_count),
      ONE(runs_drawn_ones_on_the_host), EACH(runs_leave_the_bits_of_one, scan_cut_case_count),
      EACH(refuses, ARRAY_SIZE(mistakes)), ONE(has_no_gradient), EACH(launches, ARRAY_SIZE(plans)),
      EACH(tiles_have_maps, 3), CASE("nvrtc"), TAG("nvrtc"), EACH(compiles, 4 * scan_case_count));
