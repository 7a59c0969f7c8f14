/*
 * test_huge.c -- dimensions that no memory holds: every operation with sizes from 0 to 2^63 - 1 is planned,
 * printed and counted at once, or refused in one line with a number in it.
 *
 * A case is a graph's text whose dimensions are letters, some of them symbols with such a largest value. Each
 * is drawn many times, so that tensors have up to 2^62 bytes and a little more. What would count up to a
 * dimension runs into the timeout; what overflows is seen by the undefined behaviour sanitizer.
 * CODA_TEST_CASES sets how often each text is drawn.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { DRAWS = 40, FEWEST = 3, LETTERS = 6 };

/* A to F are dimensions, <AB2> the product of A, B and 2; $f is a float's dtype, $g another. */
static const char *const texts[] = {
    "%x = input $f[A,B]\n%w = weight $f[C,B]\n%y = matmul %x, %w\noutput %y = %y",
    "%x = input $f[A,B]\n%w = weight $g[B,C]\n%y = matmul %x, %w {kn=1}\noutput %y = %y",
    "%x = input $f[A,B,C]\n%w = input $f[A,D,C]\n%y = matmul %x, %w\noutput %y = %y",
    "%x = input $f[A,B,C,D]\n%w = weight $f[E,D]\n%y = matmul %x, %w\noutput %y = %y",
    "%x = input $f[A,B]\n%w = weight $f[C,B]\n%r = input $f[A,C]\n%b = weight $f[C]\n%y = matmul %x, %w\n"
    "%z = add %y, %b\n%g = gelu_erf %z\n%s = add %g, %r\noutput %s = %s",
    "%x = input $f[A,B]\n%w = weight $f[C,B]\n%y = matmul %x, %w\n%s = sum %y\noutput %s = %s",
    "%x = input $f[A,B]\n%w = weight $f[C,B]\n%y = matmul %x, %w\n%s = log_sum_exp %y\noutput %s = %s",
    "%x = input $f[A,B]\n%g = weight $f[B]\n%w = weight $f[<CD2>,B]\n%n = rms_norm %x, %g {eps=1e-5}\n"
    "%y = matmul %n, %w\n%r = rope %y {base=10000, head_dim=<D2>}\noutput %y = %r",
    "%x = input $f[A,B]\n%w = weight $f[<CDE2>,B]\n%y = matmul %x, %w\n"
    "%r = rope %y {base=10000, head_dim=<DE2>, rotary=<E2>, half=1}\noutput %y = %r",
    "%x = input $f[A,B]\n%g = weight $f[B]\n%w = weight $f[C,B]\n%n = layer_norm %x, %g, %g {eps=1e-5}\n"
    "%y = matmul %n, %w\noutput %y = %y",
    "%x = input $f[A,B]\n%g = weight $f[B]\n%n = layer_norm %x, %g, _ {eps=1e-5}\noutput %y = %n",
    "%x = input $f[A,B]\n%w = weight $f[C,B]\n%y = matmul %x, %w\n%n = rms_norm %y {eps=1e-5}\n"
    "%v = weight $f[D,C]\n%z = matmul %n, %v\noutput %z = %z",
    "%x = input $f[A,B,C]\n%s = softmax %x\noutput %s = %s",
    "%x = input $f[A,B]\n%s = max %x\n%t = sub %x, %s\noutput %t = %t",
    "%x = input $f[A,1]\n%y = input $f[1,B]\n%z = mul %x, %y\n%s = sum %z\noutput %z = %z\noutput %s = %s",
    "%x = input $f[A,1,B]\n%y = input $g[C,1]\n%z = add %x, %y\noutput %z = %z",
    "%x = input $f[A,<BC2>]\n%p = input i32[A]\n%r = rope %x, %p {base=10000, head_dim=<C2>, half=1}\n"
    "output %r = %r",
    "%x = input $f[A,B]\n%r = rope %x {base=10000}\noutput %r = %r",
    "%q = input $f[A,B,C]\n%k = input $f[A,D,C]\n%a = attention %q, %k, %k {causal=1}\noutput %a = %a",
    "%q = input $f[A,B,<CE>]\n%k = input $f[A,D,<CE>]\n%a = attention %q, %k, %k {heads=E, window=7}\noutput "
    "%a = "
    "%a",
    "%q = input $f[A,B,<CE>]\n%k = input $f[A,D,<CE>]\n%n = input i32[A]\n%a = attention %q, %k, %k, %n "
    "{heads=E, "
    "causal=1, window=2147483647, align=3}\noutput %a = %a",
    "%q = input $f[A,<CD>]\n%k = input $f[B,<CD>]\n%a = attention %q, %k, %k {heads=D, causal=1, align=1}\n"
    "output %a = %a",
    "%q = input $f[A,<CDE>]\n%k = input $f[B,<CD>]\n%a = attention %q, %k, %k {heads=<DE>, "
    "kv_heads=D}\noutput %a = %a",
    "%x = input $f[A,B]\n%t = input i32[A]\n%l = cross_entropy %x, %t {ignore=-100, reduction=1}\noutput %l "
    "= %l",
    "%x = input $f[A,B]\n%w = weight $f[C,B]\n%t = input i32[A]\n%y = matmul %x, %w\n"
    "%l = cross_entropy %y, %t {ignore=-100}\noutput %l = %l",
    "%e = weight $f[A,B]\n%i = input i32[C,D]\n%y = embedding %e, %i\noutput %y = %y",
    "%e = weight $f[A,B]\n%i = input i32[C]\n%y = embedding %e, %i\n%w = weight $f[D,B]\n%z = matmul %y, %w\n"
    "output %z = %z",
    "%x = input $f[A,B]\n%y = cast %x {to=$g}\noutput %y = %y",
    "%x = input $f[A,B]\n%y = slice %x {axis=0, start=C, stop=D, step=E}\n%z = relu %y\noutput %z = %z",
    "%x = input $f[A,B]\n%y = slice %x {axis=1, start=A, stop=B, step=C}\n%w = weight $f[D,B]\n"
    "%z = slice %w {axis=1, start=A, stop=B, step=C}\n%m = matmul %y, %z\noutput %z = %m",
    "%x = input $f[A,B]\n%y = slice %x {axis=0, start=A, stop=A, step=E}\n%z = slice %y {axis=1, start=B, "
    "stop=B, "
    "step=F}\noutput %z = %z",
    "%x = input $f[A,B]\n%y = input $f[A,C]\n%z = concat %x, %y {axis=1}\noutput %z = %z",
    "%x = input $f[A,B]\n%y = input $f[C,B]\n%z = concat %x, %y, %x {axis=0}\n%n = softmax %z\noutput %z = "
    "%n",
    "%x = input $f[A,B,C]\n%y = reshape %x {d0=B, d1=A, d2=C, rank=3}\n%z = silu %y\noutput %z = %z",
    "%x = input $f[A,B]\n%y = transpose %x {p0=1}\n%z = sum %y\noutput %z = %z\noutput %y = %y",
    "%x = input $f[A,B,C]\n%y = transpose %x {p0=2, p1=0, p2=1}\n%w = weight $f[D,B]\n%z = matmul %y, %w\n"
    "output %z = %z",
    "%x = input $f[A,B] stride=[C,1]\n%y = relu %x\noutput %y = %y stride=[D,1]",
    "%x = input $f[A,B] stride=[C,D]\n%w = weight $f[E,B] stride=[F,1]\n%y = matmul %x, %w\noutput %y = %y",
    "%x = input $f[A,B]\n%w = weight $f[<C2>,B]\n%y = matmul %x, %w\n%g = slice %y {axis=1, stop=C, step=1}\n"
    "%u = slice %y {axis=1, start=C, stop=<C2>, step=1} @%g\n%z = swiglu %g, %u @%g\noutput %z = %z",
    "%x = input $f[A,B]\n%w = weight $f[<C2>,B]\n%y = matmul %x, %w\n%g = slice %y {axis=1, stop=<C2>, "
    "step=2}\n%u = slice %y {axis=1, start=1, stop=<C2>, step=2} @%g\n%z = geglu %g, %u @%g\n%v = weight "
    "$f[D,C]\n"
    "%m = matmul %z, %v\n%n = rms_norm %m {eps=1e-5}\noutput %z = %n",
    "%x = input $f[A,B]\n%a = relu %x\n%b = softmax %a\n%c = softmax %b\n%d = softmax %c\noutput %a = %a\n"
    "output %b = %b\noutput %c = %c\noutput %d = %d",
    "%x = input $f[A,B,C,D,E,F]\n%y = transpose %x {p0=5, p1=3, p2=4, p3=1, p4=2}\n%s = sum %y\noutput %s = "
    "%s",
};

/* ---- Dimensions ---- */

static int64_t near(struct random *r, int64_t n)
{
    static const int64_t step[] = {0, 0, 0, 0, -1, 1, 8, -8};
    int64_t by = step[random_below(r, 8)];
    return by < 0 && n < -by ? 0 : n > INT64_MAX - 8 ? n : n + by;
}

/* Powers of two whose product is about 2^total, each a little off now and then; some small, some 0. */
static void draw_dimensions(struct random *r, int letters, int64_t *dim)
{
    static const int64_t odd[] = {0, 1, 2, 3, 7, 16, 64, 100, 4096, INT32_MAX, INT64_MAX, (int64_t)1 << 62};
    int left = 28 + (int)random_below(r, 36);
    for (int i = 0; i < LETTERS; i++) dim[i] = 1 + random_below(r, 8);
    for (int tries = 0; tries < 4 && left > 0; tries++) {
        int i = (int)random_below(r, letters), bits = (int)random_below(r, left + 1);
        if (tries == 3) bits = left;
        if (dim[i] > 8) continue;
        dim[i] = near(r, (int64_t)1 << MIN(bits, 62));
        left -= bits;
    }
    if (random_chance(r, 25)) dim[random_below(r, letters)] = odd[random_below(r, 12)];
    if (random_chance(r, 25)) dim[random_below(r, letters)] = dim[random_below(r, letters)];
}

/* The product between < and >, which may be too large for the library, but not for the text. */
static int64_t product(const char **from, const int64_t *dim)
{
    int64_t all = 1;
    for (++*from; **from != '>'; ++*from) {
        int64_t by = isdigit((unsigned char)**from) ? **from - '0' : dim[**from - 'A'];
        if (__builtin_mul_overflow(all, by, &all)) all = INT64_MAX;
    }
    return all;
}

/* Some letters become symbols, whose largest values are the dimensions: "dim %A = 1..4096". */
static char *declare(char *to, unsigned symbols, const int64_t *dim, struct random *r)
{
    for (int i = 0; i < LETTERS; i++)
        if (symbols >> i & 1)
            to += sprintf(to, "dim %%%c = %d..%lld\n", 'A' + i, random_chance(r, 20) ? 0 : 1,
                          (long long)dim[i]);
    return to;
}

static char *fill_in(const char *from, const int64_t *dim, unsigned symbols, struct random *r)
{
    static const char *const name[] = {"f32", "bf16", "f16", "bf16"};
    const char *type[] = {name[random_below(r, 4)], name[random_below(r, 4)]};
    char *text = malloc(8192), *to = declare(text, symbols, dim, r);
    for (; *from; from++) {
        bool letter = *from >= 'A' && *from < 'A' + LETTERS;
        if (*from == '<') to += sprintf(to, "%lld", (long long)product(&from, dim));
        else if (*from == '$') to += sprintf(to, "%s", type[*++from == 'g']);
        else if (letter && symbols >> (*from - 'A') & 1) *to++ = *from;
        else if (letter) to += sprintf(to, "%lld", (long long)dim[*from - 'A']);
        else *to++ = *from;
    }
    *to = 0;
    return text;
}

static int count_letters(const char *text)
{
    int most = 0;
    for (; *text; text++)
        if (*text >= 'A' && *text < 'A' + LETTERS) most = MAX(most, *text - 'A' + 1);
    return most;
}

/* ---- Judgement ---- */

/* One line that names a number. */
static void expect_refusal(coda_status status, const char *text)
{
    const char *line = coda_error();
    bool number = false;
    for (const char *c = line; *c; c++) number = number || isdigit((unsigned char)*c);
    ck_assert_msg(status == CODA_E_INVALID || status == CODA_E_UNSUPPORTED, "%s\n%s: %s", text,
                  coda_status_name(status), line);
    ck_assert_msg(number && !strchr(line, '\n'), "%s\nis refused with: %s", text, line);
}

static void look_at(const coda_plan *p, const char *text)
{
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    for (int what = CODA_TEXT_GRAPH; what <= CODA_TEXT_DOT; what++)
        ck_assert_msg(coda_plan_print(p, (coda_text)what, NULL, 0) > 0, "%s\n%s", text, coda_error());
    ck_assert_msg(coda_plan_print(p, CODA_TEXT_REASONS, NULL, 0) > 0, "%s\n%s", text, coda_error());
    ck_assert_int_eq(coda_plan_stats_get(p, &s), CODA_OK);
    ck_assert_msg(s.bytes >= 0 && s.bytes_unfused >= 0 && isfinite(s.flops) && s.flops >= 0,
                  "%s\n%lld bytes, %lld unfused, %g flops", text, (long long)s.bytes,
                  (long long)s.bytes_unfused, s.flops);
    ck_assert_msg(coda_plan_workspace(p) <= (size_t)1 << 62 && coda_plan_prepared(p) <= (size_t)1 << 62,
                  "%s\nworkspace %zu, prepared %zu", text, coda_plan_workspace(p), coda_plan_prepared(p));
    for (int i = 0; i < coda_plan_args(p); i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        ck_assert_int_eq(coda_plan_arg(p, i, &info), CODA_OK);
        ck_assert_uint_le(info.bytes, (size_t)1 << 62);
    }
}

/* Of shapes within the symbols' ranges: planned, or refused in one line. */
static void look_at_shapes(coda_plan *p, const char *text, struct random *r)
{
    int64_t dims[LETTERS] = {0};
    for (int tries = 0; tries < 3 && coda_plan_symbols(p); tries++) {
        for (int i = 0; i < coda_plan_symbols(p); i++) {
            coda_symbol_info s = CODA_SYMBOL_INFO_INIT;
            ck_assert_int_eq(coda_plan_symbol(p, i, &s), CODA_OK);
            int64_t to = random_chance(r, 50) ? s.most : s.most >> random_below(r, 63);
            dims[i] = MAX(s.least, to);
        }
        size_t most = coda_plan_workspace_for(p, dims);
        ck_assert_msg(most == SIZE_MAX || most <= (size_t)1 << 62, "%s\nworkspace %zu", text, most);
        if (most == SIZE_MAX) expect_refusal(CODA_E_UNSUPPORTED, text);
    }
    if (coda_plan_symbols(p) && coda_plan_print(p, CODA_TEXT_SHAPES, NULL, 0) < 0)
        expect_refusal(CODA_E_UNSUPPORTED, text);
}

static const coda_compile_options ways[] = {
    {.device = CODA_DEVICE_GPU, .arch = "sm_90a"},
    {.device = CODA_DEVICE_GPU, .arch = "sm_80", .fold = CODA_FOLD_COPY},
    {.device = CODA_DEVICE_GPU, .arch = "sm_90a", .fold = CODA_FOLD_COPY, .flags = CODA_CUBLASLT},
    {.device = CODA_DEVICE_CPU, .fold = CODA_FOLD_IN_PLACE},
    {.device = CODA_DEVICE_NONE, .arch = "sm_90a", .flags = CODA_NO_FUSION},
};

static bool plan(const char *text, struct random *r)
{
    coda_graph *g;
    coda_status status = coda_graph_parse(&g, text);
    if (status) {
        expect_refusal(status, text);
        return false;
    }
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++) {
        coda_compile_options opt = ways[i];
        coda_plan *p;
        opt.size = sizeof opt;
        opt.flags |= CODA_PLAN_ONLY;
        status = coda_compile(&p, g, &opt);
        if (status) expect_refusal(status, text);
        else look_at(p, text), look_at_shapes(p, text, r);
        coda_plan_free(p);
    }
    coda_graph_free(g);
    return true;
}

START_TEST(huge)
{
    const char *times = getenv("CODA_TEST_CASES"), *text = texts[_i];
    int draws = times ? atoi(times) : scaled(DRAWS), most = 20 * (draws > DRAWS ? draws : DRAWS), good = 0;
    struct random r = {random_seed() * 1000003u + (uint64_t)_i};
    for (int i = 0; i < draws || (good < FEWEST && i < most); i++) {
        int64_t dim[LETTERS];
        draw_dimensions(&r, count_letters(text), dim);
        unsigned symbols = random_chance(&r, 50) ? 1u << random_below(&r, LETTERS) | (i % 4 ? 1 : 2) : 0;
        char *filled = fill_in(text, dim, symbols & ((1u << count_letters(text)) - 1), &r);
        if (getenv("CODA_TEST_VERBOSE")) fprintf(stderr, "%s\n", filled);
        good += plan(filled, &r);
        free(filled);
    }
    ck_assert_msg(good >= FEWEST, "%s\nonly %d of %d are graphs", text, good, most);
}
END_TEST

/* ---- Nothing, many times over: rows without columns, and batches without rows, are no work ---- */

static const char *const empty[] = {
    "%x = input $f[A,0]\n%y = relu %x\noutput %y = %y",
    "%x = input $f[A,0]\n%n = softmax %x\n%m = rms_norm %n {eps=1e-5}\noutput %m = %m",
    "%x = input $f[A,B,0]\n%y = input $f[A,B,0]\n%z = concat %x, %y {axis=2}\noutput %z = %z",
    "%x = input $f[A,B,0]\n%y = transpose %x {p0=2, p1=0, p2=1}\n%z = silu %y\noutput %z = %z",
    "%x = input $f[A,B,0,8]\n%w = weight $f[8,8]\n%y = matmul %x, %w\noutput %y = %y",
    "%x = input $f[A,0,8]\n%w = input $f[A,8,8]\n%y = matmul %x, %w\noutput %y = %y",
    "%x = input $f[A,0]\n%w = weight $f[0,0]\n%y = matmul %x, %w\n%z = gelu_tanh %y\noutput %z = %z",
    "%q = input $f[A,0,8]\n%k = input $f[A,B,8]\n%a = attention %q, %k, %k {causal=1}\noutput %a = %a",
    "%q = input $f[0,A,8]\n%k = input $f[0,B,8]\n%a = attention %q, %k, %k {heads=2, window=3}\n"
    "output %a = %a",
};

/* Arguments without elements may be NULL, but here some have elements that nobody may touch. */
static void run_empty(const char *text)
{
    coda_graph *g;
    coda_plan *p;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void *args[4] = {(void *)4096, (void *)4096, (void *)4096, (void *)4096};
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s\n%s", text, coda_error());
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s\n%s", text, coda_error());
    ck_assert_msg(coda_run(p, args, NULL, (void *)4096, NULL) == CODA_OK, "%s\n%s", text, coda_error());
    coda_plan_free(p);
    coda_graph_free(g);
}

START_TEST(many_rows_of_nothing)
{
    static const int64_t sizes[][2] = {{(int64_t)1 << 40, 1}, {1, (int64_t)1 << 40}, {1 << 20, 1 << 20}};
    struct random r = {7};
    for (int i = 0; i < 3; i++) {
        char *text = fill_in(empty[_i], sizes[i], 0, &r);
        run_empty(text);
        free(text);
    }
}
END_TEST

TESTS(huge, EACH(huge, ARRAY_SIZE(texts)), EACH(many_rows_of_nothing, ARRAY_SIZE(empty)));
