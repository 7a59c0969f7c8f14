/* test_plan.c -- random graphs, compiled for the CPU device in every mode, against fp64: what the plan
 * computes is what the graph says. */
#include "pipeline.h"
#include "plan.h"
#include "rewrite.h"
#include "util_print.h"
#include "util_grad.h"
#include "util_run.h"
#include "util_scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static void report(const graph *g, const coda_compile_options *opt)
{
    coda_plan *p;
    struct text t = {0};
    graph_print(g, &t);
    fprintf(stderr, "%s\n", text_str(&t));
    text_free(&t);
    struct coda_compile_options only = *opt;
    only.flags |= CODA_PLAN_ONLY;
    if (coda_compile(&p, g, &only) != CODA_OK) return;
    char *s = printed_plan(p, CODA_TEXT_PLAN);
    fprintf(stderr, "%s\n", s);
    free(s);
    coda_plan_free(p);
}

/* Roundings of 16 bits on the way, beside those of the leaves. */
enum { MOST_TURNS = 4 };

static void check(graph *g, uint64_t seed, double tolerance)
{
    void **want = run_reference(g, seed);
    double base = 0;
    ck_assert_msg(want != NULL, "%s", coda_error());
    for (int m = 0; m < RUN_MODES; m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU;
        opt.flags = run_modes[m].flags;
        opt.fold = run_modes[m].fold;
        double e = run_on_cpu(g, seed, &opt, want);
        if (m == 0) base = e;
        if (e >= 0 && e <= fmax(tolerance, 2 * base)) continue;
        if (e >= 0 && e <= MOST_TURNS * run_sensitivity(g, seed, want)) continue;
        report(g, &opt);
        ck_abort_msg("seed %llu, %s: error %g (unfused %g), %s", (unsigned long long)seed, run_modes[m].name,
                     e, base, coda_error());
    }
    random_args_free(g, want);
    graph_free(g);
}

static void check_graph(uint64_t seed, const struct random_options *ro, double tolerance)
{
    graph *g = random_graph(seed, ro);
    bool ill = run_ill_conditioned(g); /* norms of two columns, say, which make much of rounding */
    if (ill && ro->dtype != CODA_F32) graph_free(g);
    else check(g, seed, ill ? 16 * tolerance : tolerance);
}

/* Graphs that went wrong once. */
static const char *const texts[] = {
    /* heads are normed in the epilogue of a product of two batches; then the batches' rows are joined */
    "%x = input f16[2,24,16]\n%w = weight f16[2,192,16]\n%p = matmul %x, %w\n"
    "%q = slice %p {axis=2, stop=64, step=1}\n%h = reshape %q {d0=2, d1=24, d2=1, d3=64, rank=4}\n"
    "%n = rms_norm %h {eps=0x1p-17}\n%j = reshape %n {d0=48, d1=64, rank=2}\n%t = tanh %j\n%s = sum %t\n"
    "output %y = %s\n",
    /* the best of groups of a product's columns, and of its columns as rows */
    "%x = input f32[64,32]\n%w = weight f32[256,32]\n%y = matmul %x, %w\n%s = sigmoid %y\n"
    "%g = reshape %s {d0=64, d1=8, d2=32, rank=3}\n%t = top_k %g {k=2}\noutput %t = %t\n",
    "%x = input f32[1,8]\n%w = weight f32[64,8]\n%y = matmul %x, %w\n%g = reshape %y {d0=32, d1=2, rank=2}\n"
    "%t = top_k %g {k=1}\n%i = top_k %g {k=1, indices=1}\noutput %t = %t\noutput %i = %i\n",
    /* the sums of another attention that says that it is of the same call */
    "%q = input f32[8,64]\n%k = input f32[8,64]\n%o = attention %q, %k, %k {heads=8}\n"
    "%l = attention %q, %k, %k {heads=1, lse=1} @%o\noutput %o = %o\noutput %l = %l\n",
    "%q = input f32[8,64]\n%k = input f32[8,64]\n%z = input f32[8,64]\n%o = attention %q, %k, %k {heads=8}\n"
    "%l = attention %q, %z, %k {heads=8, lse=1} @%o\noutput %o = %o\noutput %l = %l\n",
    /* a sink far above all scores: slopes of 1 and more, keys a hundred positions away */
    "%q = input f32[1,64]\n%k = input f32[256,64]\n%s = input f32[4]\n%one = constant {to=f32, value=2}\n"
    "%m = mul %s, %s\n%slopes = add %m, %one\n%far = slice %k {stop=100, step=1}\n"
    "%z = concat %far, %k\n%o = attention %q, %z, %z, _, _, %slopes, %s {heads=4, window=356}\n"
    "%l = attention %q, %z, %z, _, _, %slopes, %s {heads=4, window=356, lse=1} @%o\noutput %o = %o\n"
    "output %l = %l\n",
    /* all that an attention may read, each in a buffer of its own, and both of its results */
    "%q = input bf16[6,64]\n%k = input f8e4m3[16,32]\n%v = input f8e4m3[16,32]\n%l = input i32[2]\n"
    "%r = input i32[6,2]\n%s = input f32[4]\n%z = input f32[4]\n%t = input i32[2,3]\n%x = input f32[2]\n"
    "%y = input f32[2]\n%b = input i32[3]\n%o = attention %q, %k, %v, %l, %r, %s, %z, %t, %x, %y, %b "
    "{heads=4, "
    "kv_heads=2, page=4, causal=1, align=3}\n%n = attention %q, %k, %v, %l, %r, %s, %z, %t, %x, %y, %b "
    "{heads=4, "
    "kv_heads=2, page=4, causal=1, align=3, lse=1} @%o\noutput %o = %o\noutput %n = %n\n",
    /* pairs of a row that repeats, which no memory holds */
    "%c = input bf16[10]\n%i = iota {n=24}\n%r = reshape %i {d0=24, d1=1, rank=2}\n%w = where %r, %c, %c\n"
    "%y = rope %w {base=10000, head_dim=10, rotary=10, heads=1}\noutput %y = %y\n",
    /* positions of no rows, which are as many as a tile of as many columns has */
    "%x = input bf16[0,4,17]\n%w = weight bf16[4,17]\n%t = input f32[0,4]\n%p = matmul %x, %w\n"
    "%s = scale %t {alpha=0x1p+6}\n%i = cast %s {to=i32}\n"
    "%y = rope %p, %i {base=10000, head_dim=4, rotary=2, heads=1}\noutput %y = %y\n",
};

START_TEST(test_went_wrong)
{
    graph *g = graph_parse(texts[_i]);
    coda_plan *p = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    ck_assert_msg(g != NULL, "%s", coda_error());
    opt.flags = CODA_PLAN_ONLY; /* its kernels are written, too */
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_plan_free(p);
    check(g, random_seed(), 2e-2);
}
END_TEST

START_TEST(test_f32)
{
    struct random_options ro = {.dtype = CODA_F32, .patterns = 4};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(300); i++) check_graph(seed + i, &ro, 2e-5);
}
END_TEST

/* Gradients have what no forward pass has: statistics of columns that maps read, values that many add to,
 * views whose order is turned round. */
static bool check_joint(uint64_t seed, const struct random_options *ro)
{
    static const char *const arch[] = {"sm_90a", "sm_80"};
    graph *g = random_graph(seed, ro);
    bool good = grad_of_outputs(g);
    for (int i = 0; good && i < ARRAY_SIZE(arch); i++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan *p = NULL;
        opt.device = CODA_DEVICE_NONE, opt.flags = CODA_PLAN_ONLY, opt.arch = arch[i];
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "seed %llu, %s: %s", (unsigned long long)seed,
                      arch[i], coda_error());
        coda_plan_free(p);
    }
    if (good && ro->dtype == CODA_F32 && random_is_small(g) && !run_ill_conditioned(g)) check(g, seed, 2e-4);
    else graph_free(g);
    return good;
}

START_TEST(test_gradients)
{
    struct random_options f32 = {.dtype = CODA_F32, .patterns = 3, .most_dim = 16}, mixed = {.patterns = 5};
    uint64_t seed = random_seed();
    int done = 0, graphs = scaled(200); /* of which a third are enough, of some more if need be */
    for (int i = 0; i < graphs || (3 * done <= graphs && i < 10 * graphs); i++)
        done += check_joint(seed + (uint64_t)i, i % 2 ? &f32 : &mixed);
    ck_assert_msg(3 * done > graphs, "%d of %d graphs have gradients", done, graphs);
}
END_TEST

START_TEST(test_mixed)
{
    struct random_options ro = {.patterns = 6};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(200); i++) check_graph(seed + i, &ro, 3e-2);
}
END_TEST

START_TEST(test_wide_indices)
{
    struct random_options ro[] = {{.dtype = CODA_F32, .patterns = 4, .wide = true},
                                  {.patterns = 6, .states = true, .wide = true}};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(200); i++)
        check_graph(seed + i, &ro[i % 2], i % 2 ? 3e-2 : 2e-5);
}
END_TEST

START_TEST(test_one_pattern)
{
    struct random_options ro = {.dtype = CODA_BF16, .patterns = 1, .most_dim = 96};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(300); i++) check_graph(seed + i, &ro, 2e-2);
}
END_TEST

START_TEST(test_states)
{
    struct random_options ro[] = {{.dtype = CODA_F32, .patterns = 5, .states = true},
                                  {.patterns = 6, .most_dim = 96, .states = true}};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(200); i++)
        check_graph(seed + i, &ro[i % 2], i % 2 ? 3e-2 : 2e-5);
}
END_TEST

/* What a product cannot store, or combine, in its epilogue. */
static const char *const refused[] = {
    /* segments of its columns, in turns with others */
    "%x = input f32[2,5]\n%w = weight f32[256,5]\n%p = matmul %x, %w\n%s = slice %p {axis=1, start=128, "
    "stop=192, step=1}\n"
    "%h = reshape %s {d0=2, d1=2, d2=32, rank=3}\n%g = weight f32[32]\n%n = rms_norm %h, %g {eps=1e-5}\n"
    "%a = sigmoid %n\n%c = concat %n, %a {axis=1, interleave=1}\noutput %y = %c\n",
    /* one of two columns, which is half of them, for both */
    "%x = input f32[2,24]\n%w = weight f32[2,24]\n%p = matmul %x, %w\n%u = slice %p {axis=1, start=1, "
    "stop=2, step=1}\n"
    "%y = reglu %p, %u\noutput %y = %y\n",
};

START_TEST(test_refused)
{
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, refused[_i]) == CODA_OK, "%s", coda_error());
    void **want = run_reference(g, 3);
    ck_assert_msg(want != NULL, "%s", coda_error());
    for (int m = 0; m < RUN_MODES; m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.flags = run_modes[m].flags;
        opt.fold = run_modes[m].fold;
        double e = run_on_cpu(g, 3, &opt, want);
        ck_assert_msg(e >= 0 && e < 1e-5, "%s: error %g, %s", run_modes[m].name, e, coda_error());
    }
    random_args_free(g, want);
    coda_graph_free(g);
}
END_TEST

/* ---- The planner's own guard ---- */

/* Makes step s of q read what is not there for it: false, that it has nothing to damage. */
static bool damage(struct program *q, struct step *s)
{
    int first = s->nin && s->in[0] >= 0 ? s->in[0] : -1;
    bool by_class = s->cls == CLASS_ROW && s->kind != STEP_REDUCE && first >= 0;
    struct tensor_use *port = s->port >= 0 ? &q->port[s->port] : NULL;
    if (port && use_is_indexed(port)) q->step[port->index].cls = CLASS_TILE;
    else if (s->kind == STEP_PAIR && s->nin > 2) s->nin--;
    else if (s->kind == STEP_PAIR && s->in[1] >= 0) q->step[s->in[1]].cls = CLASS_TILE;
    else if (s->kind == STEP_PAIR && q->kind == PROGRAM_ROWS) q->step[first].kind = STEP_COLUMN;
    else if (by_class) q->step[first].cls = CLASS_TILE;
    else if (s->kind == STEP_LOAD) port->buffer = -1;
    else return false;
    return true;
}

START_TEST(the_verifier_sees_misread_steps)
{
    static const char *const text =
        "%t = weight f32[9,8]\n%i = input i32[4]\n%g = weight f32[8]\n%w = weight f32[16,8]\n"
        "%e = embedding %t, %i\n%r = rope %e, %i {head_dim=8}\n%q = rope %e {head_dim=4}\n"
        "%k = state f32[6,8]\n%k1 = append %k, %q, %i\n"
        "%n = rms_norm %r, %g {eps=1e-5}\n%p = matmul %n, %w\noutput %y = %p\noutput %z = %q\n"
        "%o = input i32[4,2]\n%u = rope %e, %o {section0=1, section1=3}\noutput %u = %u\n";
    coda_graph *g;
    int seen = 0;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    for (int fuse = 0; fuse < 2; fuse++) {
        struct plan_options o = {.fuse = fuse, .target = target_rows[TARGET_H200]};
        struct rewrite_log log = {0};
        graph *r = rewrite(g, &(struct rewrite_options){.fuse = fuse}, &log);
        struct plan p;
        rewrite_log_free(&log);
        ck_assert_int_eq(plan_build(&p, r, &o), CODA_OK);
        for (int i = 0; i < p.programs; i++) {
            struct program *q = &p.program[i];
            struct step step[64];
            struct tensor_use port[64];
            ck_assert(q->steps <= 64 && q->ports <= 64);
            for (int k = 0; k < q->steps; k++) {
                memcpy(step, q->step, sizeof *step * (size_t)q->steps);
                memcpy(port, q->port, sizeof *port * (size_t)q->ports);
                if (!damage(q, &q->step[k])) continue;
                ck_assert_msg(plan_verify(&p) == CODA_E_INVALID, "step %d of @%d", k, i);
                memcpy(q->step, step, sizeof *step * (size_t)q->steps);
                memcpy(q->port, port, sizeof *port * (size_t)q->ports);
                ck_assert_int_eq(plan_verify(&p), CODA_OK);
                seen++;
            }
        }
        plan_free(&p);
        graph_free(r);
    }
    ck_assert_int_ge(seen, 16);
    graph_free(g);
}
END_TEST

/* A map of row values that readers compute again, one of whose operands repeats over batches: a product whose
 * batches and rows are one dimension can't read it there, and takes the map's result from memory. */
START_TEST(a_vector_repeats_over_batches)
{
    static const char text[] =
        "%x = input f32[3,5,1]\n%w = weight f32[1,4]\n%h = matmul %x, %w {kn=1}\n%v = weight f32[1,4]\n"
        "%y = matmul %h, %v\n%s = softmax %y\n%r = input f32[1,5,1]\n%a = add %s, %r\n%u = weight f32[2,1]\n"
        "%p = matmul %a, %u\n%q = silu %p\n%t = weight f32[1,2]\n%z = matmul %q, %t\n%o = add %z, %a\n"
        "output %o = %o\n";
    for (int m = 0; m < RUN_MODES; m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        graph *g = graph_parse(text);
        void **want = g ? run_reference(g, 1) : NULL;
        ck_assert_msg(want != NULL, "%s", coda_error());
        opt.device = CODA_DEVICE_CPU, opt.flags = run_modes[m].flags, opt.fold = run_modes[m].fold;
        double e = run_on_cpu(g, 1, &opt, want);
        ck_assert_msg(e >= 0 && e < 2e-5, "%s: %g %s", run_modes[m].name, e, coda_error());
        random_args_free(g, want);
        graph_free(g);
    }
}
END_TEST

TESTS(plan, EACH(test_went_wrong, ARRAY_SIZE(texts)), ONE(test_f32), ONE(test_gradients), ONE(test_mixed),
      ONE(test_states), EACH(test_refused, ARRAY_SIZE(refused)), ONE(a_vector_repeats_over_batches),
      ONE(test_wide_indices), ONE(test_one_pattern), ONE(the_verifier_sees_misread_steps));
