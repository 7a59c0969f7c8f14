/*
 * test_folds.c -- what coda_prepare leaves, for how long, and for whom: constants that land in what runs
 * write, plans of one model for any number of rows on one set of weights, weights that are folded once and no
 * more. Values are judged by coda_evaluate, which folds nothing.
 */
#include "executable.h"
#include "pipeline.h"
#include "rewrite.h"
#include "util_model.h"
#include "util_run.h"
#include "util_scale.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static const coda_fold folds[] = {CODA_FOLD_NONE, CODA_FOLD_COPY, CODA_FOLD_IN_PLACE};

static graph *parse(const char *text)
{
    graph *g = graph_parse(text);
    ck_assert_msg(g && !g->status, "%s: %s", text, coda_error());
    return g;
}

static coda_plan *compile(const graph *g, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    opt.fold = fold;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    return p;
}

static void expect_error(coda_status status, const char *a, const char *b)
{
    ck_assert_int_eq(status, CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), a) && strstr(coda_error(), b), "%s", coda_error());
    ck_assert_ptr_null(strchr(coda_error(), '\n'));
}

/* ---- Constants that land where each run writes ---- */

#define NORMED " %n = rms_norm %h, %g {eps=1e-5}\n%p = matmul %n, %w\noutput %y = %p\n"
#define LEAVES                                                                                               \
    "%x = input f32[4,8]\n%c = weight f32[1,8]\n%d = weight f32[1,8]\n%g = weight f32[8]\n%w = weight "      \
    "f32[8,8]\n%v = weight f32[8,8]\n%t = weight bf16[6,8]\n%i = input i32[4]\n"
static const char *const constants[] = {
    LEAVES "%h = concat %c, %x {axis=0}\n" NORMED,
    LEAVES "%s = add %c, %d\n%h = concat %s, %x, %c, %s {axis=0}\n" NORMED,
    LEAVES "%s = mul %v, %g\n%h = concat %s, %x {axis=0}\n%q = matmul %x, %s\noutput %z = %q\n" NORMED,
    LEAVES "%s = matmul %c, %v\n%h = concat %s, %x {axis=0}\n" NORMED,
    LEAVES "%s = sum %v\n%u = reshape %s {d0=1,d1=8,rank=2}\n%h = concat %u, %x {axis=0}\n" NORMED,
    LEAVES "%s = slice %v {axis=0,start=1,stop=7,step=2}\n%h = concat %x, %s {axis=0}\n" NORMED,
    LEAVES "%s = transpose %v {p0=1,p1=0}\n%h = concat %x, %s {axis=0}\n" NORMED,
    LEAVES "%s = cast %t {to=f32}\n%h = concat %s, %x {axis=0}\n" NORMED,
    LEAVES "%s = concat %c, %d {axis=0}\n%h = concat %s, %x {axis=0}\n" NORMED,
    LEAVES
    "%s = concat %c, %d {axis=0}\n%u = mul %s, %g\n%h = concat %u, %x {axis=0}\noutput %z = %s\n" NORMED,
    LEAVES "%s = add %c, %d\n%a = concat %x, %s {axis=0}\n%h = concat %s, %a {axis=0}\n" NORMED,
    LEAVES "%m = matmul %x, %v\n%h = concat %c, %m {axis=0}\n" NORMED,
    LEAVES "%k = concat %c, %x {axis=0}\n%a = attention %x, %k, %k {heads=2,kv_heads=2}\noutput %y = %a\n",
    LEAVES
    "%a = attention %c, %v, %v {heads=2,kv_heads=2}\n%h = concat %a, %x {axis=0}\noutput %z = %a\n" NORMED,
    LEAVES "output %y = %c\n",
    LEAVES "%s = mul %v, %g\noutput %y = %s\noutput %z = %s\n",
    LEAVES "%s = mul %v, %g\n%p = matmul %x, %s\noutput %y = %p\noutput %z = %s\n",
    LEAVES "%s = mul %v, %g\n%r = reshape %s {d0=4,d1=16,rank=2}\n%p = matmul %x, %s\noutput %y = %p\noutput "
           "%z = %r\n",
    LEAVES "%s = mul %v, %g\n%r = transpose %s {p0=1,p1=0}\noutput %y = %r\noutput %z = %s stride=[16,2]\n",
    LEAVES "%s = concat %c, %d {axis=0}\noutput %y = %s\noutput %z = %s\n",
    LEAVES "%s = concat %c, %d {axis=1}\n%u = silu %s\noutput %y = %u\noutput %z = %s stride=[20,1]\n",
    LEAVES "%s = mul %v, %g\noutput %a = %s\noutput %b = %s\n%p = matmul %x, %s\n%h = concat %s, %p "
           "{axis=0}\noutput %y = %h\n",
    LEAVES "%e = embedding %t, %i\noutput %y = %e\n",
    LEAVES "%s = mul %t, %t\n%e = embedding %s, %i\n%f = cast %e {to=f32}\n%h = concat %c, %f "
           "{axis=0}\noutput %z = %s\n" NORMED,
    LEAVES
    "%n = rms_norm %v, %g {eps=1e-5}\n%h = concat %n, %x {axis=0}\n%p = matmul %h, %n\noutput %y = %p\n",
    LEAVES
    "%n = rms_norm %x, %g {eps=1e-5}\n%p = matmul %n, %v\n%s = sum %v\noutput %y = %p\noutput %z = %s\n",
    LEAVES "%l = layer_norm %x, %g, %g {eps=1e-5}\n%p = matmul %l, %v\n%h = concat %v, %p {axis=0}\noutput "
           "%y = %h\n",
};

static void check_in_every_fold(const graph *g, double tolerance, const char *what)
{
    void **want = run_reference(g, 5);
    ck_assert_msg(want, "%s", coda_error());
    for (int f = 0; f < ARRAY_SIZE(folds); f++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.fold = folds[f];
        double e = run_on_cpu(g, 5, &opt, want);
        ck_assert_msg(e >= 0 && e <= tolerance, "%s\nfold %d: error %g, %s", what, f, e, coda_error());
    }
    random_args_free(g, want);
}

START_TEST(constants_in_what_runs_write)
{
    graph *g = parse(constants[_i]);
    check_in_every_fold(g, 3e-3, constants[_i]);
    graph_free(g);
}
END_TEST

/* The planner's own guard: plans that leave something for runs where it does not last. */
static void damage_writer(struct plan *p, int i) { p->program[i].prepare = !p->program[i].prepare; }

START_TEST(the_verifier_sees_it)
{
    static const char text[] = LEAVES "%h = concat %c, %x {axis=0}\n%u = rms_norm %h, %g {eps=1e-5}\n"
                                      "%p = matmul %u, %w\n%s = layer_norm %x, %g, %g {eps=1e-5}\n"
                                      "%q = matmul %s, %v\noutput %y = %p\noutput %z = %q\n";
    struct plan_options o = {.fuse = true, .fold = CODA_FOLD_COPY, .target = target_rows[TARGET_H200]};
    struct rewrite_log log = {0};
    graph *g = parse(text),
          *r = rewrite(g, &(struct rewrite_options){.fuse = true, .fold = CODA_FOLD_COPY}, &log);
    struct plan p;
    int prepares = 0, seen = 0;
    rewrite_log_free(&log);
    ck_assert_int_eq(plan_build(&p, r, &o), CODA_OK);
    ck_assert_int_eq(plan_verify(&p), CODA_OK);
    for (int i = 0; i < p.programs; i++) {
        prepares += p.program[i].prepare;
        damage_writer(&p, i);
        seen += plan_verify(&p) == CODA_E_INVALID;
        damage_writer(&p, i);
    }
    ck_assert_int_eq(seen, p.programs);
    ck_assert(prepares >= 2 && prepares < p.programs);
    for (int i = 0; i < p.buffers; i++) {
        struct buffer *b = &p.buffer[i], was = *b;
        if (b->space != SPACE_PREPARED) continue;
        b->space = SPACE_WORK;
        b->offset = 0;
        ck_assert_int_eq(plan_verify(&p), CODA_E_INVALID);
        *b = was;
    }
    plan_free(&p);
    graph_free(r);
    graph_free(g);
}
END_TEST

/* ---- Plans of one model ---- */

static const int64_t rows[] = {1, 2, 8, 16, 128, 2048};

static void expect_one_id(const char *text, coda_fold fold, int *with)
{
    uint64_t id = 0;
    size_t bytes = 0;
    for (int m = 0; m < ARRAY_SIZE(rows); m++) {
        graph *g = model_graph(text, rows[m]);
        ck_assert_msg(g && !g->status, "%s\n%s", coda_error(), text);
        coda_plan *p = compile(g, fold);
        if (m == 0) id = coda_plan_prepared_id(p), bytes = coda_plan_prepared(p);
        ck_assert_msg(coda_plan_prepared_id(p) == id && coda_plan_prepared(p) == bytes,
                      "fold %d: %lld rows have another id than 1\n%s", fold, (long long)rows[m], text);
        coda_plan_free(p);
        graph_free(g);
    }
    *with += id != 0;
}

enum { MANY = 50 }; /* graphs, of which a share has constants; of fewer it may be none */

START_TEST(rows_do_not_change_what_is_folded)
{
    uint64_t seed = random_seed();
    int with = 0;
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < model_count; i++) expect_one_id(models[i].text, folds[f], &with);
    ck_assert_int_ge(with, 10);
    int known = with, graphs = scaled(250);
    for (int i = 0; i < graphs; i++) {
        char *text = model_random(seed + (uint64_t)i);
        expect_one_id(text, folds[1 + i % 2], &with);
        free(text);
    }
    ck_assert_int_ge(with - known, graphs < MANY ? 0 : graphs / 8);
}
END_TEST

/* The id says what is folded: neither another weight, nor shape, nor formula, nor mode has the same. */
START_TEST(ids_differ)
{
    static const char *const text[] = {
        "%x = input f32[4,8]\n%g = weight f32[8]\n%w = weight f32[8,8]\n%n = rms_norm %x, %g {eps=1e-5}\n",
        "%x = input f32[4,8]\n%h = weight f32[8]\n%w = weight f32[8,8]\n%n = rms_norm %x, %h {eps=1e-5}\n",
        "%x = input f32[4,8]\n%g = weight f32[8]\n%w = weight f32[8,8] stride=[16,1]\n%n = rms_norm %x, %g "
        "{eps=1e-5}\n",
        "%x = input f32[4,8]\n%g = weight f32[8]\n%w = weight f32[8,8]\n%n = layer_norm %x, %g {eps=1e-5}\n",
        "%x = input f32[4,8]\n%k = weight f32[8]\n%g = scale %k {alpha=0.5}\n%w = weight f32[8,8]\n%n = "
        "rms_norm %x, %g {eps=1e-5}\n",
        "%x = input bf16[4,8]\n%g = weight bf16[8]\n%w = weight bf16[8,8]\n%n = rms_norm %x, %g {eps=1e-5}\n",
    };
    uint64_t id[3 * ARRAY_SIZE(text)];
    int n = 0;
    for (int i = 0; i < ARRAY_SIZE(text); i++)
        for (int f = 1; f < 3; f++) {
            char all[1024];
            snprintf(all, sizeof all, "%s%%p = matmul %%n, %%w\noutput %%y = %%p\n", text[i]);
            graph *g = parse(all);
            coda_plan *p = compile(g, folds[f]), *q = compile(g, CODA_FOLD_NONE);
            ck_assert(coda_plan_prepared_id(p) != 0 && coda_plan_prepared_id(q) == 0);
            bool in_place = f == 2 && coda_plan_prepared(p) == 0;
            id[n++] = coda_plan_prepared_id(p);
            for (int j = 0; j + 1 < n; j++) /* a strided weight is copied in both modes */
                ck_assert_msg(id[j] != id[n - 1] || (f == 2 && !in_place && j == n - 2), "%d and %d", j, n);
            coda_plan_free(p);
            coda_plan_free(q);
            graph_free(g);
        }
}
END_TEST

/* Prefill folds; decoding, and prefill of other lengths, use its weights and its memory. */
static void share(const char *text, const char *name, coda_fold fold)
{
    static const int64_t count[] = {8, 1, 128};
    struct run_buffers b[ARRAY_SIZE(count)];
    coda_plan *p[ARRAY_SIZE(count)];
    graph *g[ARRAY_SIZE(count)];
    for (int i = 0; i < ARRAY_SIZE(count); i++) {
        g[i] = model_graph(text, count[i]);
        p[i] = compile(g[i], fold);
        void **args = random_args(g[i], 3, false), **want = random_args(g[i], 3, true);
        ck_assert_msg(run_upload(&b[i], g[i], p[i], args, false), "%s", coda_error());
        int leaves = coda_graph_args(g[i]) - g[i]->outputs;
        for (int j = 0; j < leaves && i; j++) { /* the first one's weights */
            coda_arg_info info = CODA_ARG_INFO_INIT;
            coda_graph_arg(g[i], j, &info);
            if (info.kind == CODA_ARG_WEIGHT) memcpy(want[j], b[0].host[j], info.bytes);
        }
        ck_assert_msg(!coda_evaluate(g[i], want), "%s", coda_error());
        if (i == 0) ck_assert_msg(run_prepare(&b[0], p[0]), "%s", coda_error());
        else run_share(&b[i], &b[0]);
        ck_assert_msg(run_plan(&b[i], p[i]), "%s, fold %d, %lld rows: %s", name, fold, (long long)count[i],
                      coda_error());
        for (int j = 0; j < g[i]->outputs; j++)
            ck_assert_msg(run_error(g[i], j, args[leaves + j], want[leaves + j]) < 3e-2, "%s, fold %d", name,
                          fold);
        random_args_free(g[i], want);
    }
    ck_assert_msg(run_plan(&b[0], p[0]), "%s", coda_error()); /* the first again, after the others */
    for (int i = 0; i < ARRAY_SIZE(count); i++) {
        random_args_free(g[i], b[i].host);
        run_release(&b[i]);
        coda_plan_free(p[i]);
        graph_free(g[i]);
    }
}

START_TEST(plans_share_weights)
{
    for (int f = 0; f < 3; f++) share(models[_i].text, models[_i].name, folds[f]);
}
END_TEST

/* ---- Once, and no more ---- */

enum { T = 4, D = 16 };
#define NORM_AND(product) "%x = input f32[4,16]\n%g = weight f32[16]\n%w = weight f32[16,16]\n" product
static const char norm_matmul[] =
    NORM_AND("%n = rms_norm %x, %g {eps=1e-5}\n%p = matmul %n, %w\noutput %y = %p\n");
static const char plain_matmul[] =
    "%w = weight f32[16,16]\n%x = input f32[4,16]\n%p = matmul %x, %w\noutput %y = %p\n";

struct memory {
    _Alignas(256) float x[T * D], g[D], w[D * D], y[T * D], z[T * D];
    _Alignas(256) char work[1 << 14], prepared[1 << 14];
};

static void fill(struct memory *m)
{
    memset(m, 0x5f, sizeof *m);
    for (int i = 0; i < T * D; i++) m->x[i] = sinf((float)i);
    for (int i = 0; i < D; i++) m->g[i] = 1.5f + 0.5f * sinf(3 * (float)i);
    for (int i = 0; i < D * D; i++) m->w[i] = cosf(1.7f * (float)i);
}

static double expected(const struct memory *original, int i, int j)
{
    double square = 0, sum = 0;
    for (int k = 0; k < D; k++) square += (double)original->x[i * D + k] * original->x[i * D + k];
    for (int k = 0; k < D; k++)
        sum += original->x[i * D + k] / sqrt(square / D + 1e-5) * original->g[k] * original->w[j * D + k];
    return sum;
}

static void expect_right(const struct memory *m, const struct memory *original)
{
    for (int i = 0; i < T * D; i++) ck_assert_double_eq_tol(m->y[i], expected(original, i / D, i % D), 1e-5);
}

#define ARGS(m) ((void *[]){(m)->x, (m)->g, (m)->w, (m)->y})

START_TEST(folded_once)
{
    static struct memory m, original;
    graph *g = parse(norm_matmul), *plain = parse(plain_matmul);
    coda_plan *p = compile(g, CODA_FOLD_IN_PLACE), *twin = compile(g, CODA_FOLD_IN_PLACE),
              *copy = compile(g, CODA_FOLD_COPY), *none = compile(g, CODA_FOLD_NONE),
              *other = compile(plain, CODA_FOLD_NONE);
    fill(&m), fill(&original);
    ck_assert_int_eq(coda_plan_prepared(p), 0);
    expect_error(coda_run(p, ARGS(&m), NULL, m.work, NULL), "run: args[2] (w)", "coda_prepare first");
    ck_assert_int_eq(coda_prepare(p, ARGS(&m), NULL, m.work, NULL), CODA_OK);
    for (int i = 0; i < 2; i++) {
        coda_plan *q = i ? twin : p;
        memset(m.y, 0xff, sizeof m.y);
        ck_assert_msg(!coda_run(q, ARGS(&m), NULL, m.work, NULL), "%s", coda_error());
        expect_right(&m, &original);
        struct memory before = m;
        expect_error(coda_prepare(q, ARGS(&m), NULL, m.work, NULL), "prepare: args[2] (w)",
                     "coda_prepare_forget");
        ck_assert_mem_eq(&before, &m, sizeof m);
    }
    coda_plan_free(p); /* its weights stay folded */
    expect_error(coda_prepare(twin, ARGS(&m), NULL, m.work, NULL), "(w)", "folded in place already");
    expect_error(coda_prepare(copy, ARGS(&m), m.prepared, m.work, NULL), "(w)", "folded in place already");
    expect_error(coda_run(none, ARGS(&m), NULL, m.work, NULL), "run: args[2] (w)", "was folded in place");
    expect_error(coda_run(other, ((void *[]){m.w, m.x, m.y}), NULL, m.work, NULL), "run: args[0] (w)",
                 "was folded");
    expect_error(coda_run(other, ((void *[]){original.w, m.w + D, m.y}), NULL, m.work, NULL), "args[1] (x)",
                 "weight w");
    ck_assert_int_eq(coda_run(other, ((void *[]){original.w, m.x, m.y}), NULL, m.work, NULL), CODA_OK);
    memcpy(m.w, original.w, sizeof m.w); /* new values: folded again, when that is said */
    coda_prepare_forget(&m.w[7], 1);
    expect_error(coda_run(twin, ARGS(&m), NULL, m.work, NULL), "(w)", "coda_prepare first");
    ck_assert_int_eq(coda_run(none, ARGS(&m), NULL, m.work, NULL), CODA_OK);
    expect_right(&m, &original);
    ck_assert_int_eq(coda_prepare(twin, ARGS(&m), NULL, m.work, NULL), CODA_OK);
    ck_assert_int_eq(coda_run(twin, ARGS(&m), NULL, m.work, NULL), CODA_OK);
    expect_right(&m, &original);
    coda_prepare_forget(NULL, 0);
    coda_plan_free(twin), coda_plan_free(copy), coda_plan_free(none), coda_plan_free(other);
    graph_free(g), graph_free(plain);
}
END_TEST

/* Memory that holds other values than were left there is not what was folded, without a word. */
START_TEST(memory_used_again)
{
    static struct memory m, original;
    graph *g = parse(norm_matmul);
    coda_plan *p = compile(g, CODA_FOLD_IN_PLACE), *none = compile(g, CODA_FOLD_NONE);
    fill(&original);
    for (int i = 0; i < 3; i++) {
        fill(&m);
        ck_assert_msg(!coda_prepare(p, ARGS(&m), NULL, m.work, NULL), "%d: %s", i, coda_error());
        ck_assert_int_eq(coda_run(p, ARGS(&m), NULL, m.work, NULL), CODA_OK);
        expect_right(&m, &original);
    }
    fill(&m);
    expect_error(coda_run(p, ARGS(&m), NULL, m.work, NULL), "(w)", "coda_prepare first");
    ck_assert_int_eq(coda_run(none, ARGS(&m), NULL, m.work, NULL), CODA_OK);
    expect_right(&m, &original);
    ck_assert_int_eq(coda_prepare(p, ARGS(&m), NULL, m.work, NULL), CODA_OK);
    void *over[] = {original.x, original.g, original.w, m.w}; /* an output over what was folded */
    ck_assert_int_eq(coda_run(none, over, NULL, m.work, NULL), CODA_OK);
    expect_error(coda_run(p, ARGS(&m), NULL, m.work, NULL), "(w)", "coda_prepare first");
    coda_plan_free(p), coda_plan_free(none);
    graph_free(g);
}
END_TEST

START_TEST(prepared_memory_is_known)
{
    static struct memory m, original, elsewhere;
    graph *g = parse(norm_matmul), *h = model_graph(models[0].text, 4);
    coda_plan *p = compile(g, CODA_FOLD_COPY), *twin = compile(g, CODA_FOLD_COPY);
    fill(&m), fill(&original), fill(&elsewhere);
    ck_assert(coda_plan_prepared(p) > 0 && coda_plan_prepared_id(p) == coda_plan_prepared_id(twin));
    expect_error(coda_run(p, ARGS(&m), m.prepared, m.work, NULL), "run: prepared memory",
                 "has not been prepared");
    for (int i = 0; i < 2; i++) /* again and again: the weights are as they were */
        ck_assert_int_eq(coda_prepare(p, ARGS(&m), m.prepared, m.work, NULL), CODA_OK);
    ck_assert_int_eq(coda_run(twin, ARGS(&m), m.prepared, m.work, NULL), CODA_OK);
    expect_right(&m, &original);
    memcpy(elsewhere.prepared, m.prepared, sizeof m.prepared);
    expect_error(coda_run(p, ARGS(&m), elsewhere.prepared, m.work, NULL), "prepared memory",
                 "coda_prepare_adopt");
    ck_assert_int_eq(coda_prepare_adopt(p, ARGS(&m), elsewhere.prepared), CODA_OK);
    ck_assert_int_eq(coda_run(p, ARGS(&m), elsewhere.prepared, m.work, NULL), CODA_OK);
    expect_right(&m, &original);
    coda_plan *llama = compile(h, CODA_FOLD_COPY);
    size_t bytes = coda_plan_prepared(llama);
    char *large = aligned_alloc(256, bytes + 256 - bytes % 256);
    void **args = random_args(h, 1, false);
    int n = coda_graph_args(h);
    for (int i = 0; i < n; i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        coda_graph_arg(h, i, &info);
        void *aligned = aligned_alloc(256, (info.bytes + 255) / 256 * 256);
        memcpy(aligned, args[i], info.bytes);
        free(args[i]);
        args[i] = aligned;
    }
    void *work = aligned_alloc(256, (coda_plan_workspace(llama) + 255) / 256 * 256 + 256);
    ck_assert_msg(!coda_prepare(llama, args, large, work, NULL), "%s", coda_error());
    expect_error(coda_run(p, ARGS(&m), large, m.work, NULL), "prepared memory",
                 "another coda_plan_prepared_id");
    ck_assert_int_eq(coda_run(llama, args, large, work, NULL), CODA_OK);
    ck_assert_int_eq(coda_prepare(p, ARGS(&m), large + 256, m.work, NULL), CODA_OK); /* over a part of it */
    expect_error(coda_run(llama, args, large, work, NULL), "prepared memory", "not been prepared");
    free(work), free(large);
    random_args_free(h, args);
    coda_plan_free(p), coda_plan_free(twin), coda_plan_free(llama);
    graph_free(g), graph_free(h);
}
END_TEST

/* Folded by another process, say. */
START_TEST(folded_weights_are_adopted)
{
    static struct memory m, original;
    graph *g = parse(norm_matmul);
    coda_plan *p = compile(g, CODA_FOLD_IN_PLACE);
    fill(&m), fill(&original);
    for (int i = 0; i < D * D; i++) m.w[i] *= m.g[i % D];
    ck_assert_int_eq(coda_prepare_adopt(p, ARGS(&m), NULL), CODA_OK);
    expect_error(coda_prepare(p, ARGS(&m), NULL, m.work, NULL), "(w)", "already");
    ck_assert_int_eq(coda_run(p, ARGS(&m), NULL, m.work, NULL), CODA_OK);
    expect_right(&m, &original);
    ck_assert_int_eq(coda_prepare_adopt(NULL, ARGS(&m), NULL), CODA_E_INVALID);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* Weights of which a fold that failed may have written a part. */
START_TEST(half_folded)
{
    static struct memory m;
    graph *g = parse(norm_matmul);
    coda_plan *p = compile(g, CODA_FOLD_IN_PLACE);
    struct program *fold = &p->plan.program[0];
    fill(&m);
    ck_assert(fold->prepare);
    for (int i = 0; i < fold->steps; i++)
        if (fold->step[i].kind == STEP_MAP) {
            struct prim *nameless = arena_alloc(&p->arena, sizeof *nameless);
            *nameless = *fold->step[i].prim;
            nameless->reference = NULL;
            fold->step[i].prim = nameless;
        }
    ck_assert_int_eq(coda_prepare(p, ARGS(&m), NULL, m.work, NULL), CODA_E_UNSUPPORTED);
    expect_error(coda_run(p, ARGS(&m), NULL, m.work, NULL), "(w)", "half folded");
    expect_error(coda_prepare(p, ARGS(&m), NULL, m.work, NULL), "(w)", "half folded");
    coda_prepare_forget(m.w, sizeof m.w);
    expect_error(coda_run(p, ARGS(&m), NULL, m.work, NULL), "(w)", "coda_prepare first");
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* ---- Many threads ---- */

enum { THREADS = 8, TURNS = 200 };

struct client {
    const coda_plan *p, *none;
    struct memory *m, *original;
    bool good;
};

static bool is_right(const struct client *c)
{
    for (int i = 0; i < T * D; i++)
        if (!(fabs(c->m->y[i] - expected(c->original, i / D, i % D)) < 1e-5)) return false;
    return true;
}

/* Each its own weights, which it folds, uses and loads again, while the others change the registry. */
static void *work(void *arg)
{
    struct client *c = arg;
    struct memory *m = c->m;
    c->good = true;
    for (int i = 0; i < TURNS && c->good; i++) {
        fill(m);
        c->good = !coda_run(c->none, ARGS(m), NULL, m->work, NULL) && is_right(c) &&
                  !coda_prepare(c->p, ARGS(m), NULL, m->work, NULL) &&
                  coda_prepare(c->p, ARGS(m), NULL, m->work, NULL) == CODA_E_INVALID &&
                  !coda_run(c->p, ARGS(m), NULL, m->work, NULL) && is_right(c) &&
                  coda_run(c->none, ARGS(m), NULL, m->work, NULL) == CODA_E_INVALID;
        if (i % 2) coda_prepare_forget(m->w, sizeof m->w);
    }
    return NULL;
}

START_TEST(threads_fold)
{
    static struct memory m[THREADS], original;
    struct client c[THREADS];
    pthread_t thread[THREADS];
    graph *g = parse(norm_matmul);
    coda_plan *p = compile(g, CODA_FOLD_IN_PLACE), *none = compile(g, CODA_FOLD_NONE);
    fill(&original);
    for (int i = 0; i < THREADS; i++) c[i] = (struct client){p, none, &m[i], &original, false};
    for (int i = 0; i < THREADS; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, work, &c[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) ck_assert(c[i].good);
    coda_plan_free(p), coda_plan_free(none);
    graph_free(g);
}
END_TEST

/* ---- Which originals a run still reads ---- */

static const struct {
    const char *text;
    coda_fold fold;
    const char *unread; /* by their names, with a space behind each */
} originals[] = {
    {LEAVES "%n = rms_norm %x, %g {eps=1e-5}\n%p = matmul %n, %w\noutput %y = %p\n", CODA_FOLD_NONE,
     "c d v t i "},
    {LEAVES "%n = rms_norm %x, %g {eps=1e-5}\n%p = matmul %n, %w\noutput %y = %p\n", CODA_FOLD_COPY,
     "c d g w v t i "},
    {LEAVES "%n = rms_norm %x, %g {eps=1e-5}\n%p = matmul %n, %w\noutput %y = %p\n", CODA_FOLD_IN_PLACE,
     "c d g v t i "},
    /* w is folded, and read as it is */
    {LEAVES "%s = mul %w, %g\n%p = matmul %x, %s\n%q = matmul %p, %w\noutput %y = %q\n", CODA_FOLD_COPY,
     "c d g v t i "},
    /* a weight that is a result is copied by each run; one that a run gathers from is read */
    {LEAVES "%e = embedding %t, %i\noutput %y = %e\noutput %z = %c\n", CODA_FOLD_COPY, "x d g w v "},
    {LEAVES "%s = add %c, %d\n%q = mul %x, %s\noutput %y = %q\n", CODA_FOLD_COPY, "c d g w v t i "},
    {"%x = input f32[4,8]\n%u = input f32[8]\n%s = state f32[4,8]\n%k = scalar f32\n%a = add %s, %x\n%n = "
     "assign %s, %a\n"
     "output %y = %x\n",
     CODA_FOLD_COPY, "u "},
    {"dim %T = 1..4\n%x = input f32[T,8]\n%g = weight f32[8]\n%w = weight f32[8,8]\n%u = weight f32[8]\n"
     "%n = rms_norm %x, %g {eps=1e-5}\n%p = matmul %n, %w\noutput %y = %p\n",
     CODA_FOLD_COPY, ""},
};

START_TEST(unread_originals)
{
    graph *g = parse(originals[_i].text);
    coda_plan *p = compile(g, originals[_i].fold);
    char names[64] = "";
    for (int i = 0; i < coda_plan_args(p); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT, of_graph = CODA_ARG_INFO_INIT;
        ck_assert_int_eq(coda_plan_arg(p, i, &a), CODA_OK);
        ck_assert_int_eq(coda_graph_arg(g, i, &of_graph), CODA_OK);
        ck_assert_int_eq(of_graph.unread, 0);
        if (a.unread) snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", a.name);
    }
    ck_assert_str_eq(names, originals[_i].unread);
    graph_free(g);
    coda_plan_free(p);
}
END_TEST

/* What is freed behind coda_prepare: runs take NULL, or an address that is nobody's or another's, and
 * coda_prepare asks for it. */
START_TEST(originals_that_are_gone)
{
    graph *g = parse(originals[1].text);
    coda_plan *p = compile(g, CODA_FOLD_COPY);
    float x[32], y[32], again[32], weight[64];
    void *work = aligned_alloc(256, 4096), *prepared = aligned_alloc(256, 4096), *args[9];
    ck_assert(coda_plan_workspace(p) <= 4096 && coda_plan_prepared(p) <= 4096);
    for (int i = 0; i < 64; i++) weight[i] = (float)(i % 7) - 3, x[i % 32] = (float)(i % 5) - 1;
    for (int i = 0; i < 9; i++) args[i] = weight;
    args[0] = x, args[8] = y;
    ck_assert_int_eq(coda_prepare(p, args, prepared, work, NULL), CODA_OK);
    ck_assert_int_eq(coda_run(p, args, prepared, work, NULL), CODA_OK);
    args[8] = again;
    void *const gone[] = {NULL, (void *)(uintptr_t)0x13, again};
    for (int k = 0; k < 3; k++) {
        memset(again, 0xff, sizeof again);
        for (int i = 1; i < 8; i++) args[i] = gone[k];
        ck_assert_msg(coda_run(p, args, prepared, work, NULL) == CODA_OK, "%d: %s", k, coda_error());
        ck_assert_mem_eq(y, again, sizeof y);
    }
    for (int i = 1; i < 8; i++) args[i] = NULL;
    expect_error(coda_prepare(p, args, prepared, work, NULL), "prepare: args[1] (c,", "is NULL");
    args[0] = NULL;
    expect_error(coda_run(p, args, prepared, work, NULL), "run: args[0] (x,", "is NULL");
    free(work), free(prepared);
    graph_free(g);
    coda_plan_free(p);
}
END_TEST

TESTS(folds, EACH(constants_in_what_runs_write, ARRAY_SIZE(constants)), ONE(the_verifier_sees_it),
      ONE(rows_do_not_change_what_is_folded), ONE(ids_differ), EACH(plans_share_weights, model_count),
      ONE(folded_once), ONE(memory_used_again), ONE(prepared_memory_is_known),
      ONE(folded_weights_are_adopted), ONE(half_folded), ONE(threads_fold),
      EACH(unread_originals, ARRAY_SIZE(originals)), ONE(originals_that_are_gone));
