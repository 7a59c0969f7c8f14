/* test_priced.c -- no plan has more launches, or moves more bytes, than one kernel for each operation. */
#include "util_priced.h"
#include "util_print.h"
#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>

/* Folded weights bring vectors for their columns: of fewer rows these may be more than what is not moved. */
enum { MANY_ROWS = 500 };

static const char *const arch[] = {"sm_90a", "sm_80"};

static coda_plan_stats stats(const graph *g, const char *arch_of, unsigned flags, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.arch = arch_of;
    opt.flags = CODA_PLAN_ONLY | flags;
    opt.fold = fold;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_plan_stats_get(p, &s);
    coda_plan_free(p);
    return s;
}

static void report(const graph *g)
{
    char *text = printed_graph(g);
    fprintf(stderr, "%s\n", text);
    free(text);
}

static void expect_no_more(const graph *g, const char *name, const char *arch_of, unsigned flags,
                           coda_fold fold, bool bytes)
{
    coda_plan_stats got = stats(g, arch_of, flags, fold),
                    apart = stats(g, arch_of, flags | CODA_NO_FUSION, fold);
    /* Folding leaves a few vectors that a product's epilogue reads: less than the launch that it saves. */
    bool folded = fold != CODA_FOLD_NONE && got.launches < apart.launches;
    bool good = got.launches <= apart.launches && (!bytes || folded || got.bytes <= apart.bytes);
    if (good) return;
    report(g);
    ck_abort_msg(
        "%s, %s, flags %u, fold %d: %d launches, %lld bytes; one kernel for each operation: %d, %lld", name,
        arch_of, flags, (int)fold, got.launches, (long long)got.bytes, apart.launches,
        (long long)apart.bytes);
}

static void expect_cheap(const graph *g, uint64_t seed, const int64_t *dims)
{
    char name[64];
    const char *a = arch[seed / 2 % 2];
    unsigned flags = seed % 3 ? 0 : CODA_BATCH_INVARIANT;
    snprintf(name, sizeof name, "seed %llu, %lld x %lld rows", (unsigned long long)seed, (long long)dims[0],
             (long long)dims[1]);
    expect_no_more(g, name, a, flags, CODA_FOLD_NONE, true);
    expect_no_more(g, name, a, flags, CODA_FOLD_COPY, dims[0] * dims[1] >= MANY_ROWS);
}

START_TEST(no_plan_costs_more_than_its_operations)
{
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(800); i++) {
        int64_t dims[PRICED_DIMS];
        priced_shape(seed + i, dims);
        graph *g = priced_graph(seed + i, dims);
        ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
        expect_cheap(g, seed + i, dims);
        graph_free(g);
    }
}
END_TEST

/* One graph over symbols, in several shapes. */
START_TEST(nor_does_one_over_symbols)
{
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(100); i++) {
        graph *g = priced_graph(seed + i, NULL);
        ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
        for (uint64_t shape = 0; shape < 4; shape++) {
            int64_t dims[PRICED_DIMS];
            graph *bound;
            priced_shape(seed + 4 * i + shape, dims);
            ck_assert_msg(coda_graph_bind(&bound, g, dims, PRICED_DIMS) == CODA_OK, "%s", coda_error());
            expect_cheap(bound, seed + i, dims);
            graph_free(bound);
        }
        graph_free(g);
    }
}
END_TEST

/* Graphs that once cost more. */
static const struct {
    const char *name, *text;
    int launches;
} texts[] = {
    {"a norm of some columns of a product, before another",
     "%x = input bf16[4096,4096]\n%v = weight bf16[576,4096]\n%a = matmul %x, %v\n"
     "%s = slice %a {axis=1,stop=512,step=1}\n%r = slice %a {axis=1,start=512,stop=576,step=1}\n"
     "%g = weight bf16[512]\n%n = rms_norm %s, %g {eps=1e-06}\n%w = weight bf16[4096,512]\n"
     "%y = matmul %n, %w\noutput %y = %y\noutput %r = %r\n",
     4},
    {"latent projections of an attention",
     "%x = input bf16[4096,7168]\n%v = weight bf16[2112,7168]\n%gq = weight bf16[1536]\n%gc = weight "
     "bf16[512]\n"
     "%gx = weight bf16[7168]\n%wq = weight bf16[24576,1536]\n%wkv = weight bf16[32768,512]\n"
     "%h = rms_norm %x, %gx {eps=1e-06}\n%a = matmul %h, %v\n%q = slice %a {axis=1,stop=1536,step=1}\n"
     "%c = slice %a {axis=1,start=1536,stop=2048,step=1}\n%k = slice %a "
     "{axis=1,start=2048,stop=2112,step=1}\n"
     "%nq = rms_norm %q, %gq {eps=1e-06}\n%q1 = matmul %nq, %wq\noutput %q = %q1\n"
     "%nc = rms_norm %c, %gc {eps=1e-06}\n%kv = matmul %nc, %wkv\noutput %kv = %kv\n"
     "%kr = rope %k {head_dim=64}\noutput %kr = %kr\n",
     7},
    {"a norm deferred behind a product, whose heads are normed then",
     "%h = input bf16[2,1024,1536]\n%r = input f32[2,1024,1]\n%m = input f32[2,1024,1]\n%wg = input "
     "f32[2,1,4608]\n"
     "%wb = input f32[2,1,4608]\n%w = weight bf16[4608,1536]\n%1 = matmul %h, %w\n%2 = mul %1, %r\n"
     "%3 = mul %m, %wg\n%4 = sub %2, %3\n%5 = add %4, %wb\n%q = slice %5 {axis=2,stop=1536,step=1}\n"
     "%k = slice %5 {axis=2,start=1536,stop=3072,step=1}\n%v = slice %5 "
     "{axis=2,start=3072,stop=4608,step=1}\n"
     "%gq = weight bf16[64]\n%gk = weight bf16[64]\n%q4 = reshape %q {rank=4,d0=2,d1=1024,d2=24,d3=64}\n"
     "%qn = rms_norm %q4, %gq {eps=1e-06}\n%q3 = reshape %qn {rank=3,d0=2,d1=1024,d2=1536}\n"
     "%k4 = reshape %k {rank=4,d0=2,d1=1024,d2=24,d3=64}\n%kn = rms_norm %k4, %gk {eps=1e-06}\n"
     "%k3 = reshape %kn {rank=3,d0=2,d1=1024,d2=1536}\n%o = attention %q3, %k3, %v {heads=24,kv_heads=24}\n"
     "output %o = %o\n",
     2},
    {"heads that are rotated, and stored in several places",
     "%x = input bf16[1000,512]\n%v = weight bf16[320,512]\n%w = weight bf16[384,320]\n%p = input i32[1000]\n"
     "%a = matmul %x, %v\n%b = matmul %a, %w\n%q = slice %b {axis=1,stop=128,step=1}\n"
     "%k = slice %b {axis=1,start=128,stop=256,step=1}\n%c = slice %b {axis=1,start=256,stop=384,step=1}\n"
     "%r = rope %q, %p {base=10000,head_dim=64,half=1}\n%s = rope %k, %p {base=10000,head_dim=64,half=1}\n"
     "%z = input bf16[1000,128]\n%o = concat %r, %z\noutput %o = %o\noutput %r = %r\noutput %s = %s\n"
     "output %c = %c\noutput %d = %z\n",
     7},
    {"a norm that rows walk: a product's states of them would be read besides",
     "%x = input bf16[512,256]\n%w = weight bf16[1024,256]\n%v = weight bf16[64,1024]\n%g = weight "
     "bf16[1024]\n"
     "%b = weight bf16[1024]\n%a = matmul %x, %w\n%n = layer_norm %a, %g, %b {eps=1e-5}\n%y = matmul %n, %v\n"
     "output %y = %y\n",
     3},
    {"a map that rows compute: to store it, too, would be one tensor more",
     "%x = input f16[64,96]\n%w = weight f16[128,96]\n%a = matmul %x, %w\n%f = cast %a {to=f32}\n"
     "%s = scale %f {alpha=0.5}\n%m = sum %s\n%y = sub %a, %m\noutput %y = %y\n",
     2},
    {"rotated columns before others, by positions that two batches share",
     "%x = input f32[2,48,64]\n%p = input i32[48]\n%w = weight f32[192,64]\n%a = matmul %x, %w\n"
     "%q = slice %a {axis=2,stop=64,step=1}\n%k = slice %a {axis=2,start=64,stop=128,step=1}\n"
     "%v = slice %a {axis=2,start=128,stop=192,step=1}\n%q1 = rope %q, %p {head_dim=16}\n"
     "%k1 = rope %k, %p {head_dim=16}\n%o = attention %q1, %k1, %v {heads=4,kv_heads=4}\noutput %o = %o\n",
     4},
    {"one segment of a product with a weight for each sample",
     "%x = input bf16[3,12,32]\n%w = input bf16[3,192,32]\n%a = matmul %x, %w\n"
     "%q = slice %a {axis=2,stop=64,step=1}\n%r = reshape %q {d0=3,d1=12,d2=1,d3=64,rank=4}\n"
     "%g = weight f32[64]\n%n = rms_norm %r, %g {eps=1e-5}\n%k = slice %a {axis=2,start=64,stop=128,step=1}\n"
     "%s = scale %k {alpha=0.5}\n%v = slice %a {axis=2,start=128,stop=192,step=1}\noutput %y = %n\n"
     "output %z = %s\noutput %v = %v\n",
     1},
    {"a norm folded into two weights, of a single row",
     "%x = input bf16[1,768]\n%g = weight bf16[768]\n%b = weight bf16[768]\n%w = weight bf16[768,768]\n"
     "%v = weight bf16[768,768]\n%n = layer_norm %x, %g, %b {eps=1e-5}\n%y = matmul %n, %w\n%z = matmul %n, "
     "%v\n"
     "output %y = %y\noutput %z = %z\n",
     3},
};

START_TEST(what_once_cost_more)
{
    graph *g = graph_parse(texts[_i].text);
    ck_assert_msg(g != NULL, "%s", coda_error());
    for (int fold = CODA_FOLD_NONE; fold <= CODA_FOLD_COPY; fold++) {
        expect_no_more(g, texts[_i].name, "sm_90a", 0, (coda_fold)fold, fold == CODA_FOLD_NONE);
        ck_assert_int_le(stats(g, "sm_90a", 0, (coda_fold)fold).launches, texts[_i].launches);
    }
    graph_free(g);
}
END_TEST

TESTS(priced, SECONDS(600), ONE(no_plan_costs_more_than_its_operations), ONE(nor_does_one_over_symbols),
      EACH(what_once_cost_more, ARRAY_SIZE(texts)));
