/* test_packed_weights.c -- packed weights in a graph: what plans make of them on the CPU device, against fp64
 * of the numbers that they stand for; and who may not read them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "eval.h"
#include "executable.h"
#include "pack.h"
#include "util_packed.h"
#include "util_print.h"
#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */

static graph *made(const coda_pack_format *f, int reader, const struct packed_sizes *s, bool whole)
{
    graph *g = packed_graph(f, reader, s, whole);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s: %s", packed_readers[reader].name, coda_error());
    return g;
}

/* Decoded by itself, and not by the evaluator. */
static float *decoded(const coda_pack_format *f, const struct packed_sizes *s, const uint8_t *bytes)
{
    int64_t matrices = MAX(s->batch, 1), each = coda_packed_bytes(f, s->n, s->k);
    float *w = malloc(sizeof *w * (size_t)(matrices * s->n * s->k)), *at = w;
    for (int64_t b = 0; b < matrices; b++)
        for (int64_t row = 0; row < s->n; row++, at += s->k)
            ck_assert(!coda_unpack(f, bytes + b * each, s->n, s->k, row, 0, s->k, at));
    return w;
}

static int arg_of(const graph *g, const char *name)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    int i = 0;
    for (; graph_arg(g, i, &info), strcmp(info.name, name); i++)
        ;
    return i;
}

/* The same graph of fp32 weights, evaluated. */
static void check_reference(graph *g, graph *plain, const coda_pack_format *f, const struct packed_sizes *s,
                            uint64_t seed, void **want)
{
    void **args = random_args(g, seed, true);
    int w = arg_of(g, "w");
    void *bytes = args[w];
    args[w] = decoded(f, s, bytes);
    free(bytes);
    ck_assert_msg(!graph_evaluate(plain, args), "%s", coda_error());
    for (int o = 0; o < g->outputs; o++) {
        size_t size = sizeof(double) * (size_t)type_elements(&g->node[g->output[o].value].type);
        ck_assert(!memcmp(args[g->leaves + o], want[g->leaves + o], size));
    }
    random_args_free(g, args);
}

static void check(const coda_pack_format *f, const char *word, int reader, const struct packed_sizes *s)
{
    graph *g = made(f, reader, s, false), *plain = made(f, reader, s, true);
    void **want = run_reference(g, 11);
    ck_assert_msg(want != NULL, "%s", coda_error());
    check_reference(g, plain, f, s, 11, want);
    for (int m = 0; m < RUN_MODES; m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU;
        opt.flags = run_modes[m].flags;
        opt.fold = run_modes[m].fold;
        double error = run_on_cpu(g, 11, &opt, want);
        ck_assert_msg(error >= 0 && error <= 3e-5, "%s of %s, %lld x %lld x %lld of %lld, %s: error %g %s",
                      packed_readers[reader].name, word, (long long)s->m, (long long)s->n, (long long)s->k,
                      (long long)s->batch, run_modes[m].name, error, coda_error());
    }
    random_args_free(g, want);
    graph_free(plain);
    graph_free(g);
}

START_TEST(means_its_numbers)
{
    for (int i = 0; i < packed_format_count; i++) {
        coda_pack_format f = CODA_PACK_FORMAT_INIT;
        ck_assert_msg(!coda_pack_format_find(packed_formats[i], &f), "%s", coda_error());
        for (int k = 0; k < packed_size_count; k++)
            if (scale_takes_one_in(SANITIZED ? 5 : 3, i + k + _i))
                check(&f, packed_formats[i], _i, &packed_sizes[k]);
    }
}
END_TEST

#define FORMAT "{format=int4_g128_f16, d0=48, d1=256, rank=2, to=bf16}"
#define PACKED "%p = weight u8[6336]\n%w = unpack %p " FORMAT "\n"

static coda_plan *planned(const char *text, coda_fold fold)
{
    graph *g = graph_parse(text);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    ck_assert_msg(g != NULL, "%s", coda_error());
    opt.device = CODA_DEVICE_CPU;
    opt.fold = fold;
    coda_compile(&p, g, &opt);
    graph_free(g);
    return p;
}

/* Columns of x in the order in which a packer has sorted k by group: one launch more, whoever made x. */
START_TEST(columns_are_sorted)
{
    static const struct {
        const char *made;
        int launches;
    } cases[] = {{"%n = rms_norm %x, %g {eps=1e-5}\n", 3},
                 {"%v = weight bf16[256,256]\n%h = matmul %x, %v\n%n = silu %h\n", 3},
                 {"%n = reshape %x {d0=-1, d1=256, rank=2}\n", 2}};
    for (int i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "%%x = input bf16[%d,256]\n%%g = weight bf16[256]\n%%i = weight i32[256]\n%s"
                 "%s%%t = transpose %%n {p0=1, p1=0}\n%%e = embedding %%t, %%i\n"
                 "%%s = transpose %%e {p0=1, p1=0}\n%%y = matmul %%s, %%w\noutput %%o = %%y\n",
                 i % 2 ? 1 : 37, PACKED, cases[i / 2].made);
        graph *g = graph_parse(text);
        ck_assert_msg(g != NULL, "%s", coda_error());
        void **want = run_reference(g, 3);
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU;
        double error = run_on_cpu(g, 3, &opt, want);
        ck_assert_msg(error >= 0 && error < 0.02, "%s: error %g %s", text, error, coda_error());
        coda_plan *p = planned(text, CODA_FOLD_COPY);
        ck_assert_msg(p && p->plan.programs == cases[i / 2].launches, "%s: %d launches", text,
                      p ? p->plan.programs : -1);
        coda_plan_free(p);
        random_args_free(g, want);
        graph_free(g);
    }
}
END_TEST

/* ---- Weights of 8 bits with a scale ---- */

/* Of rows, or of all, ahead of a product, which no copy of the weight comes ahead of. */
START_TEST(scales_of_8_bits)
{
    static const coda_dtype dtypes[] = {CODA_F8E4M3, CODA_F8E5M2, CODA_I8};
    for (int i = 0; i < 4 * ARRAY_SIZE(dtypes); i++) {
        graph *g = coda_graph_new();
        bool kn = i & 1, one = i & 2;
        coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){5, 72}),
                   w = coda_weight(g, "w", dtypes[i / 4], 2, kn ? (int64_t[]){72, 40} : (int64_t[]){40, 72}),
                   s = coda_weight(g, "s", CODA_F32, one || kn ? 1 : 2,
                                   one  ? (int64_t[]){1}
                                   : kn ? (int64_t[]){40}
                                        : (int64_t[]){40, 1});
        w = coda_mul(g, w, s);
        coda_output(g, "y", kn ? coda_matmul_kn(g, x, w) : coda_matmul(g, x, w));
        ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
        void **want = run_reference(g, 3);
        for (int m = 0; m < RUN_MODES; m++) {
            coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
            coda_plan *p;
            opt.device = CODA_DEVICE_CPU;
            opt.flags = run_modes[m].flags;
            opt.fold = run_modes[m].fold;
            double error = run_on_cpu(g, 3, &opt, want);
            ck_assert_msg(error >= 0 && error < 0.01, "%d, %s: error %g %s", i, run_modes[m].name, error,
                          coda_error());
            ck_assert(!coda_compile(&p, g, &opt));
            if (!opt.flags) ck_assert_int_eq(p->plan.programs, 1);
            ck_assert_int_eq(coda_plan_prepared(p), 0);
            coda_plan_free(p);
        }
        random_args_free(g, want);
        graph_free(g);
    }
}
END_TEST

/* What tests and tuning multiply by: about as large as was asked for. */
START_TEST(random_ones_are_numbers)
{
    enum { ROWS = 21, COLUMNS = 700 };
    float row[COLUMNS];
    for (int i = 0; i < packed_format_count; i++) {
        struct pack_format f;
        double sum = 0;
        ck_assert(!pack_find(packed_formats[i], &f));
        uint8_t *packed = malloc((size_t)pack_bytes(&f, ROWS, COLUMNS));
        pack_random(&f, ROWS, COLUMNS, 0.02, 3, packed);
        for (int r = 0; r < ROWS; r++) {
            pack_decode(&f, packed, ROWS, COLUMNS, r, 0, COLUMNS, row);
            for (int k = 0; k < COLUMNS; k++) {
                ck_assert_msg(isfinite(row[k]), "%s [%d, %d]: %g", packed_formats[i], r, k, (double)row[k]);
                sum += (double)row[k] * (double)row[k];
            }
        }
        double rms = sqrt(sum / (ROWS * COLUMNS));
        ck_assert_msg(rms > 0.005 && rms < 0.08, "%s: %g", packed_formats[i], rms);
        free(packed);
    }
}
END_TEST

/* ---- Nothing is made of it ahead ---- */

/* Graphs that fold all they can into a weight of 16 bits, and nothing into a smaller one. */
START_TEST(nothing_folds)
{
    static const char *const weights[] = {PACKED, "%w = weight f8e4m3[48,256]\n", "%w = weight i8[48,256]\n"};
    static const char *const graphs[] = {
        "%n = rms_norm %x, %g {eps=1e-5}\n%y = matmul %n, %w\n",
        "%n = layer_norm %x, %g, %g {eps=1e-5}\n%y = matmul %n, %w\n",
        "%n = mul %x, %g\n%y = matmul %n, %w\n%a = add %x, %g\n%z = matmul %a, %w\n"
        "output %q = %z\n",
        "%s = slice %w {axis=0, start=16, stop=32, step=1}\n%n = rms_norm %x, %g {eps=1e-5}\n%y = matmul %n, "
        "%s\n",
        "%s = transpose %w {p0=1, p1=0}\n%n = rms_norm %x, %g {eps=1e-5}\n%y = matmul %n, %s {kn=1}\n"};
    static const coda_fold folds[] = {CODA_FOLD_NONE, CODA_FOLD_COPY, CODA_FOLD_IN_PLACE};
    for (int i = 0; i < ARRAY_SIZE(graphs) * ARRAY_SIZE(folds); i++) {
        char text[1024], wide[1024];
        const char *leaves = "%x = input bf16[4,256]\n%g = weight bf16[256]\n";
        const char *of = graphs[i % ARRAY_SIZE(graphs)];
        snprintf(text, sizeof text, "%s%s%soutput %%o = %%y\n", leaves, weights[_i], of);
        snprintf(wide, sizeof wide, "%s%%w = weight bf16[48,256]\n%soutput %%o = %%y\n", leaves, of);
        coda_fold fold = folds[i / ARRAY_SIZE(graphs)];
        coda_plan *p = planned(text, fold), *q = planned(wide, fold);
        ck_assert_msg(p && q, "%s: %s", text, coda_error());
        ck_assert_msg(coda_plan_prepared(p) == 0, "%s", text);
        if (fold == CODA_FOLD_COPY) ck_assert_msg(coda_plan_prepared(q) > 0, "%s", wide);
        for (int b = 0; b < p->plan.buffers; b++) ck_assert(!p->plan.buffer[b].folded);
        for (int k = 0; k < p->plan.programs; k++) ck_assert(!p->plan.program[k].prepare);
        coda_plan_free(p);
        coda_plan_free(q);
    }
}
END_TEST

/* A run reads so many bytes of it, and writes none of what it stands for. */
START_TEST(bytes_are_counted)
{
    coda_plan *p =
        planned("%x = input bf16[1,256]\n" PACKED "%y = matmul %x, %w\noutput %o = %y\n", CODA_FOLD_COPY);
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    ck_assert(!coda_plan_stats_get(p, &stats));
    ck_assert_int_eq(stats.bytes, 6336 + 2 * 256 + 2 * 48);
    ck_assert_int_eq(coda_plan_workspace(p), 0);
    coda_arg_info info = CODA_ARG_INFO_INIT;
    ck_assert(!coda_plan_arg(p, 1, &info));
    ck_assert(info.bytes == 6336 && info.dtype == CODA_U8 && info.rank == 1 && info.kind == CODA_ARG_WEIGHT);
    coda_plan_free(p);
}
END_TEST

/* ---- Who may not read it ---- */

static const struct {
    const char *text, *words;
} refused[] = {
    {"%y = relu %w\n", "relu %3 reads p, which is packed as int4_g128_f16: only products, as w, and"},
    {"%y = matmul %w, %x\n", "matmul %3 reads p"},
    {"%t = transpose %w {p0=1, p1=0}\n%c = cast %t {to=f32}\n%y = matmul %x, %c {kn=1}\n", "cast %4 reads p"},
    {"%y = reshape %w {d0=-1, rank=1}\n", "output o reads p"},
    {"%y = concat %w, %w\n", "concat %3 reads p"},
    {"%a = mul %w, %x\n%y = matmul %x, %a\n", "mul %3 reads p"},
    {"%r = reshape %w {d0=96, d1=128, rank=2}\n%h = slice %x {axis=1, start=0, stop=128, step=1}\n%y = "
     "matmul %h, "
     "%r\n",
     "matmul: w is a view of p, which is packed: of its rows of 256 columns"}};

START_TEST(others_are_refused)
{
    char text[1024];
    snprintf(text, sizeof text, "%%x = input bf16[48,256]\n%s%soutput %%o = %%y\n", PACKED, refused[_i].text);
    ck_assert_msg(!planned(text, CODA_FOLD_COPY), "%s", text);
    ck_assert_msg(strstr(coda_error(), refused[_i].words) != NULL, "%s: %s", text, coda_error());
    ck_assert_msg(!strchr(coda_error(), '\n'), "%s", coda_error());
}
END_TEST

START_TEST(has_no_gradient)
{
    for (int i = 0; i < 2; i++) {
        coda_pack_format f = CODA_PACK_FORMAT_INIT;
        graph *g = coda_graph_new();
        coda_pack_format_find("q4_k", &f);
        coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, 256}), dw,
                   ids = coda_input(g, "i", CODA_I32, 1, (int64_t[]){4});
        coda_value w = coda_weight_packed(g, "base", &f, 2, (int64_t[]){48, 256}, CODA_F32);
        coda_value y = i ? coda_embedding(g, w, ids) : coda_matmul(g, x, coda_slice(g, w, 0, 0, 16, 1));
        y = coda_row_sum(g, coda_reshape(g, y, 1, (int64_t[]){-1}));
        coda_grad(g, &y, NULL, 1, &w, 1, &dw, NULL);
        ck_assert_int_eq(coda_graph_status(g), CODA_E_UNSUPPORTED);
        ck_assert_msg(strstr(coda_error(), "on the way from %base, reads a packed") != NULL, "%s",
                      coda_error());
        graph_free(g);
    }
}
END_TEST

/* Both halves of a step read the bytes; neither hands on what they stand for. */
START_TEST(halves_read_it)
{
    for (int keep = 0; keep <= CODA_KEEP_LEAST; keep++) {
        coda_pack_format f = CODA_PACK_FORMAT_INIT;
        graph *g = coda_graph_new(), *half[2] = {NULL, NULL};
        coda_pack_format_find("q4_k", &f);
        coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){24, 256}), dx,
                   w = coda_weight_packed(g, "base", &f, 2, (int64_t[]){48, 256}, CODA_BF16),
                   y = coda_matmul(g, coda_silu(g, x), w);
        y = coda_row_sum(g, coda_reshape(g, coda_mul(g, y, y), 1, (int64_t[]){-1}));
        coda_output(g, "loss", y);
        int forward = g->outputs;
        coda_grad(g, &y, NULL, 1, &x, 1, &dx, NULL);
        coda_output(g, "dx", dx);
        coda_split_options o = {.size = sizeof o, .keep = (coda_keep)keep};
        ck_assert_msg(!coda_split(g, forward, &o, &half[0], &half[1]), "%s", coda_error());
        for (int i = 0; i < 2; i++) {
            coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
            coda_plan *p;
            opt.device = CODA_DEVICE_CPU;
            arg_of(half[i], "base");
            ck_assert_msg(!coda_compile(&p, half[i], &opt), "%s", coda_error());
            coda_plan_free(p);
            graph_free(half[i]);
        }
        graph_free(g);
    }
}
END_TEST

static const struct {
    const char *text, *words;
} wrong[] = {{"%w = unpack %p {format=int4_g128_f17, d0=48, d1=256, rank=2, to=bf16}\n", "int4_g128_f17"},
             {"%w = unpack %p {format=q4_k, d0=48, d1=256, rank=2, to=bf16}\n",
              "w is weight u8[6336]; it must be a dense weight u8[6912], [48,256] of q4_k"},
             {"%w = unpack %p {format=int4_g128_f16, d0=48, d1=256, rank=2, to=i32}\n", "f32, bf16 or f16"},
             {"%w = unpack %p {format=int4_g128_f16, d0=48, d1=256, to=bf16}\n", "it needs {format=WORD"},
             {"%w = unpack %p {format=int4_g128_f16, d0=48, d1=0, rank=2, to=bf16}\n", "dimension 1 is 0"},
             {"%w = unpack %x " FORMAT "\n", "w is input u8[6336]"}};

START_TEST(mistakes_are_named)
{
    char text[512];
    snprintf(text, sizeof text, "%%p = weight u8[6336]\n%%x = input u8[6336]\n%s", wrong[_i].text);
    ck_assert(!graph_parse(text));
    ck_assert_msg(strstr(coda_error(), wrong[_i].words) != NULL, "%s: %s", text, coda_error());
}
END_TEST

/* What coda_weight_packed refuses, of a graph that has a symbol, `dim` -2. */
static const struct {
    const char *name, *format;
    int rank;
    int64_t dims[2]; /* 0, 0: NULL */
    coda_dtype t;
    const char *words;
} arguments[] = {
    {NULL, "q4_k", 2, {16, 256}, CODA_BF16, "weight: the name is NULL"},
    {"w", NULL, 2, {16, 256}, CODA_BF16, "weight w: the packed format is NULL"},
    {"w",
     "q4_k",
     2,
     {0, 0},
     CODA_BF16,
     "weight w: rank is 2 but dims are NULL; a packed weight has 2..6 dims"},
    {"w", "q4_k", 1, {16}, CODA_BF16, "weight w: rank is 1; a packed weight has 2..6 dims"},
    {"w", "q4_k", 2, {0, 256}, CODA_BF16, "weight w: unpack: dimension 0 is 0; must be >= 1"},
    {"w", "q4_k", 2, {16, -2}, CODA_BF16, "weight w: dimension 1 is symbolic; a packed weight's are numbers"},
    {"w", "q4_k", 2, {16, -1}, CODA_BF16, "weight w: unpack: dimension 1 is -1; must be >= 1"},
    {"w", "q4_k", 2, {16, 256}, CODA_I32, "weight w: unpack: its dtype is i32; must be f32, bf16 or f16"},
    {"w",
     "q4_k",
     2,
     {INT64_C(1) << 40, INT64_C(1) << 40},
     CODA_BF16,
     "weight w: unpack result: bf16[1099511627776,1099511627776] does not fit"}};

START_TEST(arguments_are_checked)
{
    const int64_t *dims = arguments[_i].dims;
    coda_graph *g = coda_graph_new();
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    ck_assert_int_eq(coda_symbol(g, "T", 1, 9, 1), -2);
    if (arguments[_i].format) ck_assert(!coda_pack_format_find(arguments[_i].format, &f));
    coda_weight_packed(g, arguments[_i].name, arguments[_i].format ? &f : NULL, arguments[_i].rank,
                       dims[0] || dims[1] ? dims : NULL, arguments[_i].t);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_msg(!strncmp(coda_error(), arguments[_i].words, strlen(arguments[_i].words)), "%s, not: %s",
                  coda_error(), arguments[_i].words);
    coda_graph_free(g);
}
END_TEST

/* ---- Its text ---- */

START_TEST(text_and_back)
{
    for (int i = 0; i < packed_format_count; i++) {
        coda_pack_format f = CODA_PACK_FORMAT_INIT;
        ck_assert(!coda_pack_format_find(packed_formats[i], &f));
        graph *g = made(&f, 0, &packed_sizes[3], false);
        struct text t = {0}, u = {0};
        graph_print(g, &t);
        graph *h = graph_parse(text_str(&t));
        ck_assert_msg(h != NULL, "%s: %s", text_str(&t), coda_error());
        graph_print(h, &u);
        ck_assert_str_eq(text_str(&t), text_str(&u));
        ck_assert(attr_equal(&g->node[1], &h->node[1]) || attr_equal(&g->node[2], &h->node[2]));
        text_free(&t);
        text_free(&u);
        graph_free(g);
        graph_free(h);
    }
}
END_TEST

TESTS(packed_weights, SECONDS(60), EACH(means_its_numbers, packed_reader_count), ONE(columns_are_sorted),
      ONE(scales_of_8_bits), ONE(random_ones_are_numbers), EACH(nothing_folds, 3), ONE(bytes_are_counted),
      EACH(others_are_refused, ARRAY_SIZE(refused)), ONE(has_no_gradient), ONE(halves_read_it),
      EACH(mistakes_are_named, ARRAY_SIZE(wrong)), EACH(arguments_are_checked, ARRAY_SIZE(arguments)),
      ONE(text_and_back));
