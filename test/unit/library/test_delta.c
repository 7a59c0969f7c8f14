/* test_delta.c -- gated delta rules: the evaluator against loops over tokens, the CPU device against the
 * evaluator, sequences cut into runs, and what the kernels compile to. */
#include "executable.h" /* before check.h, which has a macro called fail */
#include "check_plan.h"
#include "jit.h"
#include "pipeline.h"
#include "schedule.h"
#include "util_delta.h"
#include "util_gates.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void evaluate(const struct delta_case *c, uint64_t seed)
{
    graph *g = delta_graph(c);
    ck_assert_msg(!g->status, "%s: %s", c->name, g->error);
    void **args = random_args(g, seed, true);
    double *before = delta_before(c, g, args);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s: %s", c->name, coda_error());
    ck_assert_msg(delta_difference(c, g, args, before) < 1e-12, "%s, seed %llu: differs by %g", c->name,
                  (unsigned long long)seed, delta_difference(c, g, args, before));
    free(before);
    random_args_free(g, args);
    graph_free(g);
}

static void run_on_the_host(const struct delta_case *c, uint64_t seed, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    graph *g = delta_graph(c);
    opt.flags = flags;
    void **want = run_reference(g, seed);
    double error = want ? run_on_cpu(g, seed, &opt, want) : -1;
    ck_assert_msg(error >= 0 && error <= delta_allowed(c), "%s, seed %llu: error %g %s", c->name,
                  (unsigned long long)seed, error, error < 0 ? coda_error() : "");
    if (want) random_args_free(g, want);
    graph_free(g);
}

START_TEST(evaluates) { evaluate(&delta_cases[_i], 31); }
END_TEST
START_TEST(runs_on_the_host) { run_on_the_host(&delta_cases[_i / 2], 32, _i % 2 ? CODA_NO_FUSION : 0); }
END_TEST

START_TEST(drawn_ones)
{
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + (uint64_t)scaled(60); s++) {
        const struct delta_case c = delta_draw(s);
        evaluate(&c, s);
        run_on_the_host(&c, s, 0);
    }
}
END_TEST

/* ---- What is refused ---- */

static const char leaves[] =
    "%q = input f32[6,8]\n%v = input f32[6,12]\n%d = input f32[6,2]\n%b = input f32[6,2]\n"
    "%s = input f32[2,4,6]\n%h = input bf16[6,8]\n%w = input f32[6,13]\n%n = input f32[5,8]\n"
    "%i = input i32[3]\n%u = input f32[6,8,8,8]\n";

static const struct {
    const char *line, *expected;
} refused[] = {
    {"delta %q, %q, %v, %d, %b {heads=2, key_heads=3}",
     "heads is 2, key_heads 3; both positive, and key_heads divides heads"},
    {"delta %q, %h, %v, %d, %b {heads=2}",
     "q is f32[6,8], k bf16[6,8], v f32[6,12]; k must be like q, v of its dtype"},
    {"delta %q, %n, %v, %d, %b {heads=2}",
     "q is f32[6,8], k f32[5,8], v f32[6,12]; k must be like q, v of its dtype"},
    {"delta %w, %w, %v, %d, %b {heads=2}", "q is [6,13]; 2 key_heads must have 1..256 columns each"},
    {"delta %q, %q, %w, %d, %b {heads=2}", "v is [6,13]; 2 heads must divide its columns"},
    {"delta %q, %q, %v, %v, %b {heads=2}",
     "q is [6,8] but decay is f32[6,12]; it must be f32, bf16 or f16 with q's rows and 2 or 8 columns"},
    {"delta %q, %q, %v, %d, %q {heads=2}",
     "q is [6,8] but beta is f32[6,8]; it must be f32, bf16 or f16 with q's rows and 2 columns"},
    {"delta %q, %q, %v, %n, %b {heads=2}",
     "q is [6,8] but decay is f32[5,8]; it must be f32, bf16 or f16 with q's rows and 2 or 8 columns"},
    {"delta %q, %q, %v, %d, %b, %q {heads=2}", "before is f32[6,8]; must be f32, bf16 or f16[2,4,6]"},
    {"delta %q, %q, %v, %d, %b, %s, %i {heads=2}", "before is f32[2,4,6]; must be f32, bf16 or f16[2,2,4,6]"},
    {"delta %u, %u, %u, %u, %u", "q is [6,8,8,8]; must be [B,T,columns] or [T,columns]"},
    {"delta %q, %q, %v, %d, %b {heads=2, norm=2}", "norm is 2; must be 0..1"},
    {"delta %q, %q, %v, %d, %b {heads=2, eps=-1}", "eps is -1; it must be finite and >= 0"},
    {"delta %q, %q, %v, %d, %b {heads=2, scale=inf}", "scale is inf; it must be finite"},
};

START_TEST(refuses)
{
    char text[1024];
    snprintf(text, sizeof text, "%s%%o = %s\n", leaves, refused[_i].line);
    graph *g = graph_parse(text);
    ck_assert_ptr_null(g);
    ck_assert_msg(strstr(coda_error(), refused[_i].expected) != NULL, "%s", coda_error());
}
END_TEST

START_TEST(has_no_gradient)
{
    graph *g = delta_graph(&delta_cases[3]);
    coda_value y = {g->output[0].value + 1}, x = {g->leaf[0] + 1}, dx;
    coda_value dy = coda_input(g, "dy", CODA_F32, 3, g->node[y.id - 1].type.dim);
    coda_grad(g, &y, &dy, 1, &x, 1, &dx, NULL);
    ck_assert_msg(g->status && strstr(g->error, "delta"), "%s", g->error);
    graph_free(g);
}
END_TEST

/* ---- Sequences in pieces ---- */

enum { K = DELTA_PIECE_KEYS, V = DELTA_PIECE_VALUES, H = DELTA_PIECE_HEADS, ROWS = 29 };

struct piece {
    _Alignas(64) float q[ROWS * K], k[ROWS * K], v[ROWS * H * V], decay[ROWS * H], beta[ROWS * H],
        o[ROWS * H * V];
};

static void run_piece(struct piece *x, float *state, int64_t rows)
{
    _Alignas(256) char workspace[1 << 14];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    graph *g = delta_piece(rows);
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_uint_le(coda_plan_workspace(p), sizeof workspace);
    void *args[] = {x->q, x->k, x->v, x->decay, x->beta, state, x->o};
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    coda_plan_free(p);
    graph_free(g);
}

static void take(float *to, const float *from, int64_t at, int64_t rows, int64_t columns)
{
    memcpy(to, from + at * columns, sizeof *to * (size_t)(rows * columns));
}

START_TEST(pieces_leave_equal_bits)
{
    static struct piece all, part;
    static _Alignas(64) float s[H * K * V], left[H * K * V];
    struct random r = {random_seed()};
    for (int i = 0; i < ROWS * K; i++)
        all.q[i] = (float)random_normal(&r), all.k[i] = (float)random_normal(&r);
    for (int i = 0; i < ROWS * H * V; i++) all.v[i] = (float)random_normal(&r);
    for (int i = 0; i < ROWS * H; i++)
        all.decay[i] = -0.1f * (float)fabs(random_normal(&r)), all.beta[i] = 0.7f;
    run_piece(&all, left, ROWS);
    for (int64_t at = 0, rows; at < ROWS; at += rows) {
        int64_t some = 1 + random_below(&r, 9);
        rows = MIN(some, ROWS - at);
        take(part.q, all.q, at, rows, K), take(part.k, all.k, at, rows, K);
        take(part.v, all.v, at, rows, H * V);
        take(part.decay, all.decay, at, rows, H), take(part.beta, all.beta, at, rows, H);
        run_piece(&part, s, rows);
        ck_assert_mem_eq(part.o, all.o + at * H * V, sizeof *s * (size_t)(rows * H * V));
    }
    ck_assert_mem_eq(s, left, sizeof left);
}
END_TEST

/* ---- Gates that are maps of rows ---- */

START_TEST(gates_on_the_host)
{
    static const unsigned flags[] = {0, CODA_NO_FUSION, CODA_BATCH_INVARIANT};
    const struct gates_case *c = &gates_cases[_i / 3];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = flags[_i % 3];
    double error = gates_error(c, random_seed(), &opt, false);
    ck_assert_msg(error >= 0 && error <= gates_allowed(c), "%s: the error is %g %s", c->name, error,
                  error < 0 ? coda_error() : "");
}
END_TEST

START_TEST(launches_of_gates)
{
    const struct gates_case *c = &gates_cases[_i];
    graph *g = gates_graph(c);
    ck_assert_msg(g != NULL, "%s: %s", c->name, coda_error());
    const coda_plan_stats stats = plan_stats_of(g, NULL);
    ck_assert_msg(stats.launches == c->launches, "%s: %d launches", c->name, (int)stats.launches);
    graph_free(g);
}
END_TEST

/* ---- Kernels ---- */

/* A warp has lines of memory where warps fill all SMs and registers have room. */
START_TEST(lanes_of_steps)
{
    static const struct {
        struct delta_case c;
        int groups, warps, residents;
    } known[] = {
        {{"many", CODA_BF16, CODA_F32, 9, 1, 32, 16, 128, 128, true, .in_place = true}, 4, 4, 2},
        {{"many, packed", CODA_F16, CODA_BF16, 64, 64, 32, 16, 128, 128, true, .packed = true}, 4, 4, 2},
        {{"drafts", CODA_BF16, CODA_F32, 9, 8, 32, 16, 128, 128, true, .in_place = true}, 4, 4, 2},
        {{"fewer", CODA_BF16, CODA_F32, 8, 1, 32, 16, 128, 128, true, .in_place = true}, 8, 4, 4},
        {{"one", CODA_BF16, CODA_F32, 1, 1, 32, 16, 128, 128, true, .in_place = true}, 8, 1, 8},
        {{"fp32", CODA_F32, CODA_F32, 64, 1, 32, 16, 128, 128, true, .in_place = true}, 8, 4, 4},
        {{"of rows", CODA_BF16, CODA_F32, 64, 1, 32, 32, 128, 128, true, .by_row = true}, 8, 4, 4},
        {{"few keys", CODA_BF16, CODA_F32, 64, 1, 32, 16, 64, 128, true, .in_place = true}, 8, 4, 4},
        {{"few values", CODA_BF16, CODA_F32, 64, 1, 32, 16, 128, 64, true, .in_place = true}, 8, 4, 4},
        {{"wide keys", CODA_BF16, CODA_F32, 64, 1, 32, 16, 256, 128, true, .in_place = true}, 16, 4, 4},
    };
    const struct plan_options o = {.fuse = true, .target = target_rows[TARGET_H200]};
    for (int i = 0; i < ARRAY_SIZE(known); i++) {
        struct plan p;
        graph *g = delta_graph(&known[i].c);
        ck_assert_msg(plan_build(&p, g, &o) == CODA_OK, "%s: %s", known[i].c.name, coda_error());
        int at = 0;
        while (at < p.programs - 1 && p.program[at].kind != PROGRAM_OWN) at++;
        const struct schedule *s = &p.schedule[at];
        ck_assert_msg(s->tile.bk == known[i].groups && s->tile.groups == known[i].warps &&
                          s->residents == known[i].residents,
                      "%s: %d groups, %d warps, %d residents", known[i].c.name, s->tile.bk, s->tile.groups,
                      s->residents);
        plan_free(&p);
        graph_free(g);
    }
}
END_TEST

/* Nothing spills, and ptxas has nothing to say. */
START_TEST(compiles)
{
    static const char *const arch[] = {"sm_80", "sm_90a"};
    const struct delta_case *c = &delta_cases[_i / ARRAY_SIZE(arch)];
    char why[256];
    if (!scale_takes_one_in(8, _i) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in this process */
    graph *g = delta_graph(c);
    plan_compiles_cleanly(g, c->name, arch[_i % ARRAY_SIZE(arch)]);
    graph_free(g);
}
END_TEST

START_TEST(compiles_gates)
{
    static const char *const arch[] = {"sm_80", "sm_90a"};
    const struct gates_case *c = &gates_cases[_i / ARRAY_SIZE(arch)];
    char why[256];
    if (!scale_takes_one_in(8, _i) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in this process */
    graph *g = gates_graph(c);
    plan_compiles_cleanly(g, c->name, arch[_i % ARRAY_SIZE(arch)]);
    graph_free(g);
}
END_TEST

TESTS(delta, SOME(evaluates, delta_case_count), SOME(runs_on_the_host, 2 * delta_case_count), ONE(drawn_ones),
      EACH(refuses, ARRAY_SIZE(refused)), ONE(has_no_gradient), ONE(pieces_leave_equal_bits),
      EACH(gates_on_the_host, 3 * gates_case_count), EACH(launches_of_gates, gates_case_count),
      ONE(lanes_of_steps), CASE("nvrtc"), TAG("nvrtc"), EACH(compiles, 2 * delta_case_count),
      EACH(compiles_gates, 2 * gates_case_count));
