/* test_exchange_kernels.c -- which exchanges between ranks the library has kernels for, and which ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit.h"

#include "tests.h" /* last: Check has a macro named fail */

/* Compiles a graph for no device; its kernels, and whether one of them has these words. */
static int kernels_of(const char *text, unsigned flags, const char *words, bool *has)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_kernel_info info = CODA_KERNEL_INFO_INIT;
    coda_graph *g;
    coda_plan *p;
    int n = 0;
    opt.device = CODA_DEVICE_NONE, opt.flags = CODA_PLAN_ONLY | flags;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    for (*has = false; coda_plan_kernel(p, n, &info) == CODA_OK; n++)
        *has = *has || strstr(info.source, words);
    coda_plan_free(p), coda_graph_free(g);
    return n;
}

START_TEST(kernels_of_ours)
{
    static const char head[] = "%tp = group {ranks=2}\n%a = input bf16 [8,256]\n%w = weight bf16 [4096,256]\n"
                               "%x = input bf16 [8,4096]\n%z = matmul %a, %w\n%s = all_reduce %z, %tp\n";
    static const struct {
        const char *tail, *words;
        int kernels; /* with the product's */
    } cases[] = {
        {"%h = add %s, %x\n%n = rms_norm %h {eps=1e-5}\noutput %y = %n\noutput %r = %h\n",
         "RowSum<bf16, 2, 4096, 8, 2, 2048>", 2}, /* where its pieces arrive, */
        {"%h = add %s, %x\noutput %y = %h\n", "RowSum<bf16, 2, 8, 8>", 2},
        {"%h = add %s, %x\noutput %y = %h\noutput %o = %s\n", "::push(", 3}, /* but not if it is wanted */
        {"%t = all_gather %s, %tp, %s {axis=1}\noutput %y = %t\n", "exchange::Gather<2", 3},
        {"%t = reduce_scatter %x, %tp, %s {axis=0}\noutput %y = %t\noutput %o = %s\n", "::scatter(", 3},
    };
    char text[2048];
    bool has;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        snprintf(text, sizeof text, "%s%s", head, cases[i].tail);
        setenv("CODA_EXCHANGE", "own", 1);
        ck_assert_int_eq(kernels_of(text, 0, cases[i].words, &has), cases[i].kernels);
        ck_assert_msg(has, "case %d has no %s", i, cases[i].words);
        setenv("CODA_EXCHANGE", "nccl", 1);
        kernels_of(text, 0, "exchange::", &has);
        ck_assert(!has);
    }
    setenv("CODA_EXCHANGE", "two_shot", 1);
    ck_assert_int_eq(kernels_of(text, 0, "::two_shot(", &has), 3);
    ck_assert(has);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    setenv("CODA_EXCHANGE", "pigeon", 1);
    ck_assert_int_eq(coda_graph_parse(&g, text), CODA_OK);
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "CODA_EXCHANGE is \"pigeon\"; must be nccl or own"), "%s",
                  coda_error());
    unsetenv("CODA_EXCHANGE");
    coda_graph_free(g);
}
END_TEST

/* Copies are for two ranks, and for what products run beside. */
START_TEST(large_sums_beside_products_are_copied)
{
    static const struct {
        int ranks, rows;
        unsigned flags;
        bool copied;
    } cases[] = {{2, 256, CODA_OVERLAP, true},
                 {2, 255, CODA_OVERLAP, false},
                 {3, 256, CODA_OVERLAP, false},
                 {2, 256, 0, false}};
    char text[512];
    setenv("CODA_EXCHANGE", "own", 1);
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        bool has;
        snprintf(text, sizeof text,
                 "%%tp = group {ranks=%d}\n%%a = input bf16 [%d,4096]\n%%w = weight bf16 [64,4096]\n"
                 "%%s = all_reduce %%a, %%tp\n%%z = matmul %%a, %%w\noutput %%y = %%s\noutput %%o = %%z\n",
                 cases[i].ranks, cases[i].rows);
        kernels_of(text, cases[i].flags, "exchange::Copied<", &has);
        ck_assert_msg(has == cases[i].copied, "case %d", i);
    }
    unsetenv("CODA_EXCHANGE");
}
END_TEST

/* Nothing spills. */
START_TEST(kernels_fit_registers)
{
    static const char *const ways[] = {"own", "two_shot", "copies"};
    static const char text[] = "%tp = group {ranks=3}\n%x = input bf16 [64,8193]\n%y = all_reduce %x, %tp\n"
                               "%w = input bf16 [64,4096]\n%z = mul %w, %w\n%s = all_reduce %z, %tp, %y\n"
                               "%h = add %s, %w\n%n = rms_norm %h {eps=1e-5}\n%i = input bf16 [66,100]\n"
                               "%c = reduce_scatter %i, %tp, %s {axis=0}\n"
                               "%d = all_gather %i, %tp, %c {axis=1}\n"
                               "output %o = %y\noutput %p = %n\noutput %q = %c\noutput %r = %d\n";
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_kernel_info info = CODA_KERNEL_INFO_INIT;
    coda_graph *g;
    coda_plan *p;
    char why[256];
    int n = 0;
    if (!jit_nvrtc_info(why, sizeof why)) return;
    opt.device = CODA_DEVICE_NONE, opt.arch = "sm_90a";
    ck_assert_int_eq(coda_graph_parse(&g, text), CODA_OK);
    setenv("CODA_EXCHANGE", ways[_i], 1);
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    for (; coda_plan_kernel(p, n, &info) == CODA_OK; n++)
        ck_assert_msg(!info.spill_bytes, "%s spills %d bytes", info.name, info.spill_bytes);
    ck_assert_int_eq(n, 5); /* one more of an exchange, one less of what it has in it */
    unsetenv("CODA_EXCHANGE");
    coda_plan_free(p), coda_graph_free(g);
}
END_TEST

TESTS(exchange_kernels, ONE(kernels_of_ours), ONE(large_sums_beside_products_are_copied), CASE("nvrtc"),
      TAG("nvrtc"), EACH(kernels_fit_registers, 3));
