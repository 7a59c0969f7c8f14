/* test_constant.c -- numbers of a graph: the same as a tensor of the caller's with one element, wherever such
 * a one can be, and without its traffic. */
#include "rewrite.h"
#include "util_mistake.h"
#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, COLUMNS = 24, ARGS = 8 };

/* ---- A number against a tensor: $ stands for its definition ---- */

static const struct place {
    const char *value; /* {to=..., value=...} */
    const char *text;
} places[] = {
    {"f32 0.3", "%y = add %x, %c\noutput %y = %y\n"},
    {"f32 0.3", "%y = add %c, %x\noutput %y = %y\n"},
    {"bf16 1", "%d = sub %c, %h\n%y = div %c, %d\noutput %y = %y\n"},
    {"f16 0.1", "%y = mul %h, %c\noutput %y = %y\n"},
    {"f32 2", "%y = add %c, %c\noutput %y = %y\n"},
    {"f32 2", "output %y = %c\noutput %z = %c\n"},
    {"bf16 0.3", "%r = reshape %c {d0=1, d1=1, d2=1, rank=3}\n%y = mul %h, %r\noutput %y = %y\n"},
    {"bf16 0.3", "%r = reshape %c {d0=1, d1=1, rank=2}\n%y = matmul %r, %r\noutput %y = %y\n"},
    {"bf16 0.3", "%s = slice %h {axis=1, stop=1, step=1}\n%r = reshape %c {d0=1, d1=1, rank=2}\n"
                 "%p = matmul %s, %r\n%y = tanh %p\noutput %y = %y\n"},
    {"f32 -2", "%r = reshape %c {d0=1, rank=1}\n%s = reshape %x {d0=144, rank=1}\n"
               "%y = concat %r, %s, %r\noutput %y = %y\n"},
    {"bf16 3", "%m = mul %h, %c\n%p = matmul %m, %w\n%q = add %p, %c\n%y = silu %q\noutput %y = %y\n"},
    {"bf16 3", "%m = add %h, %c\n%y = matmul %m, %w\noutput %y = %y\n"},
    {"bf16 3", "%v = mul %w, %c\n%y = matmul %h, %v\noutput %y = %y\noutput %v = %v\n"},
    {"f32 4", "%s = sum %x\n%t = add %s, %c\n%y = div %x, %t\noutput %y = %y\noutput %t = %t\n"},
    {"f32 4", "%p = matmul %h, %w\n%s = sum %p\n%t = mul %s, %c\n%y = sub %p, %t\noutput %y = %y\n"},
    {"f32 4", "%r = reshape %c {d0=1, rank=1}\n%y = log_sum_exp %r\noutput %y = %y\n"},
    {"i32 2", "%y = embedding %w, %c\noutput %y = %y\n"},
    {"i32 2", "%r = reshape %c {d0=1, rank=1}\n%s = slice %x {axis=0, stop=1, step=1}\n"
              "%y = rope %s, %r {base=10, half=1}\noutput %y = %y\n"},
    {"i32 2", "%r = reshape %c {d0=1, rank=1}\n%y = attention %x, %x, %x, %r\noutput %y = %y\n"},
    {"i32 2", "%s = slice %x {axis=0, stop=1, step=1}\n%r = reshape %s {d0=24, rank=1}\n"
              "%y = cross_entropy %r, %c\noutput %y = %y\n"},
    {"f32 0.1", "%d = cast %c {to=f16}\n%y = add %x, %d\noutput %y = %y\n"},
    {"f32 nan", "%y = add %x, %c\noutput %y = %y\n"},
    {"f32 -inf", "%y = sigmoid %c\n%z = mul %x, %y\noutput %y = %z\n"},
    {"f32 0.5", "%p = matmul %h, %w\n%q = rms_norm %p {eps=0.001}\n%y = mul %q, %c\noutput %y = %y\n"},
    {"f32 1", "%a = twice %c, %c\n%y = add %x, %a\noutput %y = %y\n"},
    {"f32 1", "%y = twice %c, %x\noutput %y = %y\n"},
};

static graph *parse(const struct place *p, bool constant)
{
    static const char head[] =
        "map twice(2) \"DEV static float apply(float x, float y) { return x + 2 * y; }\"\n"
        "%x = input f32[6,24]\n%h = input bf16[6,24]\n%w = weight bf16[16,24]\n";
    char dtype[8], number[16], text[2048];
    graph *g;
    sscanf(p->value, "%7s %15s", dtype, number);
    if (constant)
        snprintf(text, sizeof text, "%s%%c = constant {to=%s, value=%s}\n%s", head, dtype, number, p->text);
    else snprintf(text, sizeof text, "%s%%c = input %s[]\n%s", head, dtype, p->text);
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s%s", text, coda_error());
    return g;
}

static double element(int arg, int64_t i)
{
    double scale = arg == 2 ? 0.2 : 1;
    return scale * sin((double)(7 * i + 3 * arg + 1));
}

/* Fresh arguments: data, the number if it is a tensor, and outputs full of poison. */
static void **make_args(const graph *g, const struct place *p, bool constant, int poison, bool evaluate)
{
    void **args = calloc(ARGS, sizeof *args);
    char dtype[8], number[16];
    sscanf(p->value, "%7s %15s", dtype, number);
    double value = strtod_l(number, NULL, newlocale(LC_ALL_MASK, "C", (locale_t)0));
    for (int i = 0; i < coda_graph_args(g); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_graph_arg(g, i, &a);
        int64_t n = (int64_t)a.bytes / dtype_bytes(a.dtype, 1);
        bool out = a.kind == CODA_ARG_OUTPUT;
        args[i] = malloc(MAX(a.bytes, out && evaluate ? 8 * (size_t)n : a.bytes));
        memset(args[i], poison, a.bytes);
        for (int64_t k = 0; !out && k < n; k++)
            dtype_store(a.dtype, args[i], k, !constant && i == 3 ? value : element(i, k));
    }
    return args;
}

static void free_args(void **args)
{
    for (int i = 0; i < ARGS; i++) free(args[i]);
    free(args);
}

static void *poisoned(size_t bytes, int poison)
{
    void *p = aligned_alloc(256, (bytes / 256 + 1) * 256);
    memset(p, poison, (bytes / 256 + 1) * 256);
    return p;
}

/* Two runs with memory of their own after one prepare. Returns the arguments of the second. */
static void **run(const graph *g, const struct place *p, bool constant, unsigned flags, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *plan;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = flags;
    opt.fold = fold;
    ck_assert_msg(coda_compile(&plan, g, &opt) == CODA_OK, "%s%s", p->text, coda_error());
    void **args = make_args(g, p, constant, 0xff, false), **again = make_args(g, p, constant, 0x7f, false);
    void *prepared = poisoned(coda_plan_prepared(plan), 0xff);
    void *work = poisoned(coda_plan_workspace(plan), 0xff),
         *other = poisoned(coda_plan_workspace(plan), 0x11);
    if (fold == CODA_FOLD_IN_PLACE) free(again[2]), again[2] = args[2]; /* what prepare has folded */
    ck_assert_msg(!coda_prepare(plan, args, prepared, work, NULL) &&
                      !coda_run(plan, args, prepared, work, NULL) &&
                      !coda_run(plan, again, prepared, other, NULL),
                  "%s%s", p->text, coda_error());
    int leaves = constant ? 3 : 4;
    for (int i = leaves; i < coda_graph_args(g); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_graph_arg(g, i, &a);
        ck_assert_msg(!memcmp(args[i], again[i], a.bytes), "%s: two runs differ", p->text);
    }
    if (fold == CODA_FOLD_IN_PLACE) args[2] = NULL;
    coda_prepare_forget(NULL, 0); /* memory of the next run may be where this one's was */
    free(prepared), free(work), free(other);
    free_args(args);
    coda_plan_free(plan);
    return again;
}

static bool is_evaluated(const struct place *p) { return !strstr(p->text, "twice"); }

/* A map without a reference is no number, but it is told the numbers. */
static void check_source(const graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_kernel_info k = CODA_KERNEL_INFO_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_plan_kernel(p, 0, &k), CODA_OK);
    ck_assert_msg(strstr(k.source, "user::user_twice::apply(1.0f, "), "%s", k.source);
    coda_plan_free(p);
}

START_TEST(is_a_tensor_of_one)
{
    const struct place *p = &places[_i];
    static const struct {
        unsigned flags;
        coda_fold fold;
    } ways[] = {
        {CODA_NO_FUSION, CODA_FOLD_NONE}, {0, CODA_FOLD_NONE}, {0, CODA_FOLD_COPY}, {0, CODA_FOLD_IN_PLACE}};
    graph *number = parse(p, true), *tensor = parse(p, false);
    int outputs = number->outputs;
    ck_assert_int_eq(coda_graph_args(number) + 1, coda_graph_args(tensor));
    if (!is_evaluated(p)) {
        check_source(number);
        coda_graph_free(number), coda_graph_free(tensor);
        return;
    }
    void **want = make_args(tensor, p, false, 0, true), **same = make_args(number, p, true, 0, true);
    ck_assert_int_eq(coda_evaluate(tensor, want), CODA_OK);
    ck_assert_int_eq(coda_evaluate(number, same), CODA_OK);
    for (int way = 0; way < ARRAY_SIZE(ways); way++) {
        void **got = run(number, p, true, ways[way].flags, ways[way].fold);
        void **plain = run(tensor, p, false, ways[way].flags, CODA_FOLD_NONE);
        for (int o = 0; o < outputs; o++) {
            coda_arg_info a = CODA_ARG_INFO_INIT;
            coda_graph_arg(number, 3 + o, &a);
            int64_t n = (int64_t)a.bytes / dtype_bytes(a.dtype, 1);
            ck_assert(!memcmp(want[4 + o], same[3 + o], 8 * (size_t)n));
            if (way == 0) ck_assert_msg(!memcmp(got[3 + o], plain[4 + o], a.bytes), "%s", p->text);
            double error = run_error(number, o, got[3 + o], want[4 + o]);
            ck_assert_msg(error < 0.01, "%s: way %d, output %d: error %g", p->text, way, o, error);
        }
        free_args(got);
        free_args(plain);
    }
    free_args(want);
    free_args(same);
    coda_graph_free(number), coda_graph_free(tensor);
}
END_TEST

/* ---- What it costs ---- */

static coda_plan_stats stats_of(coda_value (*make)(coda_graph *g, coda_value x))
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    coda_plan *p;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){ROWS, COLUMNS});
    coda_output(g, "y", make(g, x));
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_plan_args(p), 2);
    ck_assert_uint_eq(coda_plan_workspace(p), 0);
    coda_plan_stats_get(p, &s);
    coda_plan_free(p);
    coda_graph_free(g);
    return s;
}

static coda_value with_numbers(coda_graph *g, coda_value x)
{
    coda_value c = coda_constant(g, CODA_F32, 0.3);
    return coda_relu(g, coda_sub(g, coda_constant(g, CODA_F32, 1), coda_mul(g, x, coda_add(g, c, c))));
}
static coda_value without(coda_graph *g, coda_value x) { return coda_relu(g, x); }

START_TEST(costs_no_traffic)
{
    coda_plan_stats with = stats_of(with_numbers), plain = stats_of(without);
    ck_assert_int_eq(with.launches, plain.launches);
    ck_assert_int_eq(with.bytes, plain.bytes);
}
END_TEST

/* ---- Values, equality ---- */

START_TEST(is_rounded_as_by_a_cast)
{
    static const struct {
        coda_dtype t;
        double value, rounded;
    } cases[] = {{CODA_F32, 0.1, 0.1f},       {CODA_BF16, 0.1, 0x1.9ap-4},  {CODA_F16, 0.1, 0x1.998p-4},
                 {CODA_F16, 65519, 65504},    {CODA_F16, 65520, INFINITY},  {CODA_F16, 0x1p-25, 0},
                 {CODA_BF16, 257, 256},       {CODA_BF16, 259, 260},        {CODA_I32, -16777215, -16777215},
                 {CODA_F32, 1e300, INFINITY}, {CODA_BF16, -1e39, -INFINITY}};
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        coda_graph *g = coda_graph_new();
        coda_value c = coda_constant(g, cases[i].t, cases[i].value);
        double y;
        coda_dtype t;
        coda_output(g, "y", c);
        ck_assert_int_eq(coda_value_shape(g, c, NULL, &t), 0);
        ck_assert_int_eq(t, cases[i].t);
        ck_assert_int_eq(coda_evaluate(g, (void *[]){&y}), CODA_OK);
        ck_assert_msg(y == cases[i].rounded, "%d: %a", i, y);
        coda_graph_free(g);
    }
}
END_TEST

START_TEST(equal_numbers_are_one)
{
    struct rewrite_options ro = {.fuse = true};
    graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 1, (int64_t[]){4});
    coda_value a = coda_add(g, x, coda_constant(g, CODA_F32, 2)),
               b = coda_add(g, x, coda_constant(g, CODA_F32, 2));
    coda_value c = coda_add(g, x, coda_constant(g, CODA_F32, -2)),
               d = coda_add(g, x, coda_constant(g, CODA_F16, 2));
    coda_output(g, "p", a), coda_output(g, "q", b), coda_output(g, "r", c), coda_output(g, "s", d);
    graph *r = rewrite(g, &ro, NULL);
    ck_assert_ptr_nonnull(r);
    ck_assert_int_eq(r->nodes, 1 + 3 + 3);
    ck_assert_int_eq(r->output[0].value, r->output[1].value);
    graph_free(r);
    coda_graph_free(g);
}
END_TEST

/* ---- Refused with one line ---- */

static const struct {
    const char *text, *message;
} wrong[] = {
    {"%y = matmul %x, %c", "line 3: matmul: w is []; it needs rank 2 or more"},
    {"%y = rms_norm %x, %c", "line 3: rms_norm: x is [4,8] but gain is []; it must be [8]"},
    {"%y = concat %x, %c",
     "line 3: concat: operand 0 is f32[4,8] but operand 1 is f32[]; only axis 0 may differ"},
    {"%y = rope %x, %c",
     "line 3: rope: x is [4,8] but positions are f32[]; must be i32 or i64 with x's leading dimensions"
     " or [4]"},
    {"%y = slice %c {axis=0}", "line 3: slice: x is []; it has no axis 0"},
    {"%y = softmax %c", "line 3: softmax: x is []; it needs rank 1 or more"},
    {"%y = constant {to=f32}", "line 3: constant: it needs {to=DTYPE, value=NUMBER}"},
    {"%y = constant {value=1}", "line 3: constant: it needs {to=DTYPE, value=NUMBER}"},
    {"%y = constant {to=i32, value=0.5}", "line 3: constant: 0.5 is no i32 below 2^24"},
    {"%y = constant {to=i32, value=16777216}", "line 3: constant: 16777216 is no i32 below 2^24"},
    {"%y = constant {to=i32, value=nan}", "line 3: constant: nan is no i32 below 2^24"},
    {"%y = constant %c {to=f32, value=1}", "line 3: constant: takes 0 operands, got 1"},
};

START_TEST(is_refused)
{
    char text[512];
    coda_graph *g;
    snprintf(text, sizeof text, "%%x = input f32[4,8]\n%%c = constant {to=f32, value=1}\n%s\n",
             wrong[_i].text);
    ck_assert_int_eq(coda_graph_parse(&g, text), CODA_E_INVALID);
    ck_assert_str_eq(mistake_plain(coda_error()), wrong[_i].message);
}
END_TEST

START_TEST(calls_are_refused)
{
    static const struct {
        int t;
        double value;
    } bad[] = {{77, 1}, {0, 1}, {CODA_I32, 16777217}, {CODA_I32, 0.1}, {CODA_I32, 1e30}, {CODA_I32, NAN}};
    for (int i = 0; i < ARRAY_SIZE(bad); i++) {
        coda_graph *g = coda_graph_new();
        ck_assert_uint_eq(coda_constant(g, (coda_dtype)bad[i].t, bad[i].value).id, 0);
        ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
        ck_assert(!strncmp(mistake_plain(coda_error()), "constant: ", 10) && !strchr(coda_error(), '\n'));
        coda_graph_free(g);
    }
    ck_assert_uint_eq(coda_constant(NULL, CODA_F32, 1).id, 0);
    ck_assert_str_eq(coda_error(), "constant: the graph is NULL");
}
END_TEST

TESTS(constant, EACH(is_a_tensor_of_one, ARRAY_SIZE(places)), ONE(costs_no_traffic),
      ONE(is_rounded_as_by_a_cast), ONE(equal_numbers_are_one), EACH(is_refused, ARRAY_SIZE(wrong)),
      ONE(calls_are_refused));
