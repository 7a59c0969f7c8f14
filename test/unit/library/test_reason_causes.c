/*
 * test_reason_causes.c -- no reason lies: two graphs that differ in the cause which a line of
 * CODA_TEXT_REASONS names. With it the line is there; without it there is no such line, and the two programs
 * are one, or the kernel is the fast one.
 */
#include "base.h"
#include "coda.h"
#include "util_print.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plans ---- */

struct said {
    char *reasons, *plan;
    int launches;
};

static struct said plan(const char *text, unsigned flags, const char *arch)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_graph *g;
    coda_plan *p;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s\n%s", coda_error(), text);
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY | flags;
    opt.arch = arch;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s\n%s", coda_error(), text);
    coda_plan_stats_get(p, &stats);
    struct said s = {printed_plan(p, CODA_TEXT_REASONS), printed_plan(p, CODA_TEXT_PLAN), stats.launches};
    coda_plan_free(p);
    coda_graph_free(g);
    return s;
}

static void forget(struct said *s)
{
    free(s->reasons);
    free(s->plan);
}

/* A line of the kind, and in it these words. */
static bool says(const struct said *s, const char *kind, const char *words)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s ", kind);
    for (const char *line = s->reasons, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        char *one = strndup(line, (size_t)(end - line));
        bool found = strstr(one, wanted) && strstr(one, words);
        free(one);
        if (found) return true;
    }
    return false;
}

/* ---- Programs ---- */

#define PRODUCT "%x = input bf16[64,512]\n%w = weight bf16[256,512]\n%p = matmul %x, %w\n"
#define ATTEND "%y = attention %q, %k, %v {scale=0.125,heads=1,kv_heads=1}\noutput %o = %y\n"
#define HEAD "%k = input bf16[64,64]\n%v = input bf16[64,64]\n%q = input bf16[64,64]\n"

#define PACKED_HEADS(heads, columns)                                                                         \
    "%x = input bf16[64,512]\n%b = weight u8[73728]\n"                                                       \
    "%w = unpack %b {format=q4_k,d0=256,d1=512,rank=2,to=bf16}\n%p = matmul %x, %w\n"                        \
    "%s = reshape %p {d0=64,d1=" #heads ",d2=" #columns ",rank=3}\n%n = rms_norm %s\noutput %o = %n\n"

static const struct cause {
    const char *kind, *words; /* the numbers that must be in the line, or part of it */
    const char *with, *without;
    unsigned flags; /* with it; without it none, if the graphs are the same */
} causes[] = {
    {"transposed", "another order", PRODUCT "%t = transpose %p {p0=1,p1=0}\n%y = relu %t\noutput %o = %y\n",
     PRODUCT "%y = relu %p\noutput %o = %y\n", 0},
    {"sliced", "%5 reads %4", /* in a product's epilogue elements of other columns do not meet */
     PRODUCT "%s = slice %p {axis=1,start=0,stop=96,step=1}\n%b = input bf16[64,96]\n%y = add %s, %b\n"
             "output %o = %y\n",
     PRODUCT "%b = input bf16[64,256]\n%y = add %p, %b\noutput %o = %y\n", 0},
    {"reshaped", "cut or put together",
     "%x = input f32[4,128]\n%r = relu %x\n%s = reshape %r {d0=8,d1=64,rank=2}\n%y = softmax %s\noutput %o = "
     "%y\n",
     "%x = input f32[4,128]\n%r = relu %x\n%y = softmax %r\noutput %o = %y\n", 0},
    {"spreads", "f32[8,64,256]",
     "%x = input f32[64,256]\n%b = input f32[8,64,256]\n%r = relu %x\n%y = add %b, %r\noutput %o = %y\n"
     "output %r = %r\n",
     "%x = input f32[64,256]\n%b = input f32[64,256]\n%r = relu %x\n%y = add %b, %r\noutput %o = %y\n"
     "output %r = %r\n",
     0},
    {"row_statistic", "rows of 256 columns", PRODUCT "%y = softmax %p\noutput %o = %y\n",
     PRODUCT "%y = sigmoid %p\noutput %o = %y\n", 0},
    {"column_statistic", "columns of 64 rows",
     PRODUCT "%s = sum %p {columns=1}\n%e = exp %s\noutput %o = %e\noutput %q = %p\n",
     PRODUCT "%e = exp %p\noutput %o = %e\noutput %q = %p\n", 0},
    {"segment_width", "segments of 48 columns",
     "%x = input bf16[64,512]\n%w = weight bf16[384,512]\n%p = matmul %x, %w\n"
     "%s = reshape %p {d0=64,d1=8,d2=48,rank=3}\n%n = rms_norm %s\noutput %o = %n\n",
     "%x = input bf16[64,512]\n%w = weight bf16[384,512]\n%p = matmul %x, %w\n"
     "%s = reshape %p {d0=64,d1=6,d2=64,rank=3}\n%n = rms_norm %s\noutput %o = %n\n",
     0},
    {"segment_tile", "segments of 128 columns", PACKED_HEADS(2, 128), PACKED_HEADS(4, 64), 0},
    {"segment_alone", "any number of rows", PACKED_HEADS(4, 64), PACKED_HEADS(4, 64), CODA_BATCH_INVARIANT},
    {"part_bounds", "64 columns from 32 on",
     "%x = input bf16[64,512]\n%w = weight bf16[384,512]\n%p = matmul %x, %w\n"
     "%q = slice %p {axis=1,start=32,stop=96,step=1}\n%n = rms_norm %q\noutput %o = %n\n",
     "%x = input bf16[64,512]\n%w = weight bf16[384,512]\n%p = matmul %x, %w\n"
     "%q = slice %p {axis=1,start=64,stop=128,step=1}\n%n = rms_norm %q\noutput %o = %n\n",
     0},
    {"gates_apart", "a weight [K, N]",
     "%x = input bf16[64,512]\n%w = weight bf16[512,200]\n%p = matmul %x, %w {kn=1}\n"
     "%g = slice %p {axis=1,start=0,stop=200,step=2}\n%u = slice %p {axis=1,start=1,stop=200,step=2}\n"
     "%m = swiglu %g, %u\noutput %o = %m\n",
     "%x = input bf16[64,512]\n%w = weight bf16[200,512]\n%p = matmul %x, %w\n"
     "%g = slice %p {axis=1,start=0,stop=200,step=2}\n%u = slice %p {axis=1,start=1,stop=200,step=2}\n"
     "%m = swiglu %g, %u\noutput %o = %m\n",
     0},
    {"pairs_apart", "16 columns",
     PRODUCT "%y = rope %p {base=10000,head_dim=32,rotary=24,heads=8,half=1}\noutput %o = %y\n",
     PRODUCT "%y = rope %p {base=10000,head_dim=32,rotary=32,heads=8,half=1}\noutput %o = %y\n", 0},
    {"paired_already", "one pairing",
     "%x = input bf16[64,512]\n%w = weight bf16[512,512]\n%p = matmul %x, %w\n"
     "%g = slice %p {axis=1,start=0,stop=256,step=1}\n%u = slice %p {axis=1,start=256,stop=512,step=1}\n"
     "%m = swiglu %g, %u\n%y = rope %m {base=10000,head_dim=64,rotary=64,heads=4,half=1}\noutput %o = %y\n",
     PRODUCT "%y = rope %p {base=10000,head_dim=64,rotary=64,heads=4,half=1}\noutput %o = %y\n", 0},
    {"separate_weights", "2 products",
     PRODUCT "%v = weight bf16[128,512]\n%q = matmul %x, %v\noutput %o = %p\noutput %u = %q\n",
     "%x = input bf16[64,512]\n%w = weight bf16[384,512]\n%p = matmul %x, %w\n"
     "%a = slice %p {axis=1,start=0,stop=256,step=1}\n%b = slice %p {axis=1,start=256,stop=384,step=1}\n"
     "output %o = %a\noutput %u = %b\n",
     0},
    {"one_product", "one main loop",
     PRODUCT "%z = input bf16[64,512]\n%v = weight bf16[256,512]\n%q = matmul %z, %v\n%y = mul %p, %q\n"
             "output %o = %y\n",
     PRODUCT "%q = input bf16[64,256]\n%y = mul %p, %q\noutput %o = %y\n", 0},
    {"other_pass", "such a pass",
     "%x = input f32[64,256]\n%z = weight f32[100,256]\n%i = input i32[64]\n%a = relu %x\n"
     "%b = embedding %z, %i\n%y = add %a, %b\noutput %o = %y\n",
     "%x = input f32[64,256]\n%z = input f32[64,256]\n%a = relu %x\n%y = add %a, %z\noutput %o = %y\n", 0},
    {"concat", "one part of",
     "%x = input f32[64,256]\n%z = input f32[64,256]\n%a = relu %x\n%c = concat %a, %z {axis=1}\n%y = exp "
     "%c\n"
     "output %o = %y\n",
     "%x = input f32[64,256]\n%a = relu %x\n%y = exp %a\noutput %o = %y\n", 0},
    {"two_folds", "a pass that folds columns",
     "%x = input f32[64,4224]\n%n = softmax %x\n%y = sum %n {columns=1}\noutput %o = %n\noutput %p = %y\n",
     "%x = input f32[64,4096]\n%n = softmax %x\n%y = sum %n {columns=1}\noutput %o = %n\noutput %p = %y\n",
     0},
    {"regrouped", "in several ways",
     "%x = input f32[2,20,96]\n%z = input f32[40,96]\n%n = softmax %x\n%f = reshape %n {d0=40,d1=96,rank=2}\n"
     "%y = mul %f, %z\n%m = state f32[2,20,96]\n%m1 = assign %m, %n\noutput %y = %y\n",
     "%x = input f32[2,20,96]\n%z = input f32[2,20,96]\n%n = softmax %x\n%y = mul %n, %z\n"
     "%m = state f32[2,20,96]\n%m1 = assign %m, %n\noutput %y = %y\n",
     0},
    {"most_states", "48 floats", PRODUCT "%a = top_16 %p\n%b = top_8 %p\noutput %o = %a\noutput %q = %b\n",
     PRODUCT "%a = top_8 %p\n%b = top_8 %p\noutput %o = %a\noutput %q = %b\n", 0},
    {"look_up", "by number",
     "%t = input f32[64]\n%i = cast %t {to=i32}\n%e = weight bf16[100,256]\n%y = embedding %e, %i\n"
     "output %o = %y\n",
     "%i = input i32[64]\n%e = weight bf16[100,256]\n%y = embedding %e, %i\noutput %o = %y\n", 0},
    {"state", "another block",
     "%k = state f32[64,256]\n%i = input i32[64]\n%x = input f32[64,256]\n%r = relu %x\n"
     "%n = append %k, %r, %i\n%y = exp %n\noutput %o = %y\n",
     "%k = state f32[64,256]\n%i = input i32[64]\n%x = input f32[64,256]\n%r = relu %x\n"
     "%n = append %k, %r, %i\n%y = exp %r\noutput %o = %y\n",
     0},
    {"saves_nothing", "2 tensors",
     PRODUCT "%a = input bf16[64,256]\n%b = input bf16[64,256]\n%c = input bf16[64,256]\n%s = mul %a, %b\n"
             "%t = mul %c, %s\n%y = add %p, %t\n%z = softmax %t\noutput %o = %y\noutput %z = %z\n",
     PRODUCT "%a = input bf16[64,256]\n%b = input bf16[64,256]\n%c = input bf16[64,256]\n%s = mul %a, %b\n"
             "%t = mul %c, %s\n%y = add %p, %t\noutput %o = %y\n",
     0},
    {"operand", "K = 512",
     "%x = input bf16[64,512]\n%w = weight bf16[256,512]\n%t = tanh %x\n%p = matmul %t, %w\noutput %o = %p\n",
     PRODUCT "%t = tanh %p\noutput %o = %t\n", 0},
    {"kernel_operand", "attention",
     HEAD "%q2 = tanh %q\n"
          "%y = attention %q2, %k, %v {scale=0.125,heads=1,kv_heads=1}\noutput %o = %y\n",
     HEAD ATTEND, 0},
    {"no_fusion", "CODA_NO_FUSION", PRODUCT "%y = relu %p\noutput %o = %y\n", NULL, CODA_NO_FUSION},
    {"other_rows", "CODA_BATCH_INVARIANT",
     "%x = input f32[64,256]\n%r = relu %x\n%y = sum %r {columns=1}\noutput %o = %y\noutput %r = %r\n", NULL,
     CODA_BATCH_INVARIANT},
};

static void expect_cause(const struct cause *c, const char *with, const char *without)
{
    struct said a = plan(with, c->flags, "sm_90a"), b = plan(without, 0, "sm_90a");
    ck_assert_msg(says(&a, c->kind, c->words), "%s, \"%s\", is not said:\n%s%s", c->kind, c->words, a.reasons,
                  a.plan);
    ck_assert_msg(!says(&b, c->kind, ""), "%s is said without the cause:\n%s", c->kind, b.reasons);
    ck_assert_msg(b.launches < a.launches, "%s: %d launches with the cause, %d without", c->kind, a.launches,
                  b.launches);
    forget(&a);
    forget(&b);
}

START_TEST(programs_join_without_the_cause)
{
    const struct cause *c = &causes[_i];
    expect_cause(c, c->with, c->without ? c->without : c->with);
}
END_TEST

/* ---- Limits: graphs of so many operations ---- */

/* A product to which n tensors are added. */
static char *sum_of(int n)
{
    struct text t = {0};
    text_append(&t, PRODUCT);
    for (int i = 0; i < n; i++) text_printf(&t, "%%a%d = input bf16[64,256]\n", i);
    for (int i = 0; i < n; i++)
        text_printf(&t, i ? "%%s%d = add %%s%d, %%a%d\n" : "%%s%d = add %%p, %%a%d\n", i, i ? i - 1 : i, i);
    text_printf(&t, "output %%o = %%s%d\n", n - 1);
    return t.str;
}

/* A product, and the product of n tensors, which is added to it. */
static char *product_of(int n)
{
    struct text t = {0};
    text_append(&t, PRODUCT);
    for (int i = 0; i < n; i++) text_printf(&t, "%%a%d = input bf16[64,256]\n", i);
    for (int i = 1; i < n; i++)
        text_printf(&t, "%%s%d = mul %%a%d, %%%s%d\n", i, i, i > 1 ? "s" : "a", i - 1);
    text_printf(&t, "%%y = add %%p, %%s%d\noutput %%o = %%y\n", n - 1);
    return t.str;
}

static char *chain_of(int n)
{
    struct text t = {0};
    text_append(&t, "%s0 = input f32[64,256]\n");
    for (int i = 1; i <= n; i++) text_printf(&t, "%%s%d = tanh %%s%d\n", i, i - 1);
    text_printf(&t, "output %%o = %%s%d\n", n);
    return t.str;
}

static const struct limit {
    struct cause cause;
    char *(*make)(int n);
    int with, without;
} limits[] = {{{"most_operands", "17 operands", NULL, NULL, 0}, sum_of, 17, 14},
              {{"most_tiles", "6 tensors", NULL, NULL, 0}, product_of, 6, 4},
              {{"most_values", "64 values", NULL, NULL, 0}, chain_of, 65, 64}};

START_TEST(programs_join_below_the_limit)
{
    const struct limit *l = &limits[_i];
    char *with = l->make(l->with), *without = l->make(l->without);
    expect_cause(&l->cause, with, without);
    free(with);
    free(without);
}
END_TEST

/* ---- Kernels ---- */

static const struct kernel_cause {
    const char *kind, *words;
    const char *with, *without; /* the cause, in place of the $ of the graph */
    const char *graph;
    const char *fast; /* words of a plan whose kernel is the fast one */
    const char *arch; /* with the cause */
} kernels[] = {
    {"head_dim", "head_dim is 100", "200", "208",
     "%q = input bf16[64,$]\n%k = input bf16[64,$]\n%v = input bf16[64,$]\n"
     "%y = attention %q, %k, %v {scale=0.125,heads=2,kv_heads=2}\noutput %o = %y\n",
     " sm90", "sm_90a"},
    {"head_dim_most", "264, and the fast kernels take 256", "264", "256",
     "%q = input bf16[64,$]\n%k = input bf16[64,$]\n%v = input bf16[64,$]\n" ATTEND, " sm90", "sm_90a"},
    {"head_dim_most", "head_dim is 576", "576", "192",
     "%q = input bf16[64,$]\n%k = input bf16[64,$]\n%v = input bf16[64,$]\n" ATTEND, " sm90", "sm_90a"},
    {"attention_dtype", "%q is f32", "f32", "bf16",
     "%q = input $[64,64]\n%k = input $[64,64]\n%v = input $[64,64]\n" ATTEND, " sm90", "sm_90a"},
    {"attention_align", "68 elements", "68", "72",
     "%q = input bf16[64,64] stride=[$,1]\n%k = input bf16[64,64]\n%v = input bf16[64,64]\n" ATTEND, " sm90",
     "sm_90a"},
    {"attention_8_bits", "16 queries", "64", "16",
     "%q = input bf16[$,64]\n%k = input f8e4m3[256,64]\n%v = input f8e4m3[256,64]\n" ATTEND, " sm90",
     "sm_90a"},
    {"attention_8_bits_head", "128 at most", "192", "128",
     "%q = input bf16[1,$]\n%k = input f8e4m3[256,$]\n%v = input f8e4m3[256,$]\n" ATTEND, " sm90", "sm_90a"},
    {"attention_arch", "no TMA", "64", "64",
     "%q = input bf16[$,64]\n%k = input bf16[64,64]\n%v = input bf16[64,64]\n" ATTEND, " sm90", "sm_80"},
    {"product_mixed", "%x is f32 and %w is bf16", "f32", "bf16",
     "%x = input $[128,256]\n%w = weight bf16[512,256]\n%y = matmul %x, %w\noutput %o = %y\n", "tile sm90",
     "sm_90a"},
    {"product_8_bits", "%w is i8", "264", "272",
     "%x = input bf16[512,$]\n%w = weight i8[4096,$]\n%y = matmul %x, %w\noutput %o = %y\n", "tile sm90",
     "sm_90a"},
    {"product_packed", "%2 is packed", "f16", "bf16",
     "%x = input $[512,256]\n%p = weight u8[589824]\n%w = unpack %p "
     "{format=q4_k,d0=4096,d1=256,rank=2,to=$}\n%y = matmul %x, %w\noutput %o = %y\n",
     "tile sm90", "sm_90a"},
    {"product_fp8", "%x is f8e5m2 and %w is f8e4m3", "264", "272",
     "%x = input f8e5m2[128,$]\n%w = weight f8e4m3[512,$]\n%y = matmul %x, %w\noutput %o = %y\n", "tile sm90",
     "sm_90a"},
    {"product_f32", "both operands are f32", "f32", "bf16",
     "%x = input $[128,256]\n%w = weight $[512,256]\n%y = matmul %x, %w\noutput %o = %y\n", "tile sm90",
     "sm_90a"},
    {"product_pitch", "260 elements", "260", "264",
     "%x = input bf16[128,256] stride=[$,1]\n%w = weight bf16[512,256]\n%y = matmul %x, %w\noutput %o = %y\n",
     "tile sm90", "sm_90a"},
    {"product_begin", "element 4", "start=4,stop=260", "start=8,stop=264",
     "%h = input bf16[128,264]\n%x = slice %h {axis=1,$,step=1}\n%w = weight bf16[512,256]\n"
     "%y = matmul %x, %w\noutput %o = %y\n",
     "tile sm90", "sm_90a"},
    {"product_strides", "512 and 2", "stop=512,step=2", "stop=256,step=1",
     "%x = input bf16[128,256]\n%h = weight bf16[512,512]\n%w = slice %h {axis=1,start=0,$}\n"
     "%y = matmul %x, %w\noutput %o = %y\n",
     "tile sm90", "sm_90a"},
    {"product_batch", "batches of %x are 32772", "32772", "32776",
     "%x = input bf16[4,128,256] stride=[$,256,1]\n%w = input bf16[4,512,256]\n%y = matmul %x, %w\n"
     "output %o = %y\n",
     "tile sm90", "sm_90a"},
    {"product_arch", "no wgmma", "128", "128",
     "%x = input bf16[$,256]\n%w = weight bf16[512,256]\n%y = matmul %x, %w\noutput %o = %y\n", "tile sm90",
     "sm_80"},
};

/* The text with a word in place of each $. */
static char *filled(const char *text, const char *word)
{
    struct text t = {0};
    for (; *text; text++) {
        if (*text == '$') text_append(&t, word);
        else text_printf(&t, "%c", *text);
    }
    return t.str;
}

START_TEST(kernels_are_fast_without_the_cause)
{
    const struct kernel_cause *c = &kernels[_i];
    char *with = filled(c->graph, c->with), *without = filled(c->graph, c->without);
    struct said a = plan(with, 0, c->arch), b = plan(without, 0, "sm_90a");
    ck_assert_msg(says(&a, c->kind, c->words), "%s, \"%s\", is not said:\n%s%s", c->kind, c->words, a.reasons,
                  a.plan);
    ck_assert_msg(!strstr(a.plan, c->fast), "%s: the kernel is fast:\n%s", c->kind, a.plan);
    ck_assert_msg(strncmp(b.reasons, "; 0 pairs", 9) == 0 && !strchr(b.reasons, '@'), "%s: without it\n%s",
                  c->kind, b.reasons);
    ck_assert_msg(strstr(b.plan, c->fast) != NULL, "%s: without it\n%s", c->kind, b.plan);
    forget(&a);
    forget(&b);
    free(with);
    free(without);
}
END_TEST

/* ---- Bytes ---- */

/* What is handed on is written once and read by each use; what an output holds is written anyway. */
START_TEST(bytes_are_those_of_a_run)
{
    struct said a = plan(PRODUCT "%y = softmax %p\noutput %o = %y\n", 0, "sm_90a");
    struct said b = plan(PRODUCT "%y = softmax %p\noutput %o = %y\noutput %q = %p\n", 0, "sm_90a");
    ck_assert_msg(says(&a, "row_statistic", " 65536 B "), "%s", a.reasons);
    ck_assert_msg(says(&b, "row_statistic", " 32768 B "), "%s", b.reasons);
    forget(&a);
    forget(&b);
}
END_TEST

TESTS(reason_causes, EACH(programs_join_without_the_cause, ARRAY_SIZE(causes)),
      EACH(programs_join_below_the_limit, ARRAY_SIZE(limits)),
      EACH(kernels_are_fast_without_the_cause, ARRAY_SIZE(kernels)), ONE(bytes_are_those_of_a_run));
