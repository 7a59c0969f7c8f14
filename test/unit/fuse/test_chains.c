/*
 * test_chains.c -- chains in which each map reads the two before it, so that more ways lead through them than
 * can be walked: 64 maps have 10^13. Wherever a product, a statistic or a vector meets one, it is planned at
 * once; what follows every way runs into the timeout.
 */
#include "coda.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

enum { MAPS = 64, TIMEOUT = 120, ROOM = 64 * MAPS };

static const char leaves[] = "%x = input bf16[96,256]\n%w = weight bf16[256,256]\n%g = weight bf16[128]\n"
                             "%t = input bf16[96,256]\n%r = input f32[96,1]\n%c = input f32[256]\n"
                             "%p = matmul %x, %w\n";

/* What the chain is made of: %b, the first of it. */
static const char *const bases[] = {
    "%b = silu %p\n",
    "%b = silu %t\n",
    "%b = silu %r\n",
    "%b = silu %c\n",
    "%b = mul %r, %c\n",
    "%f = sum_sq %p\n%b = sigmoid %f\n",
    "%f = sum_sq %t\n%b = sigmoid %f\n",
};

/* What reads %e, the end of the chain. */
static const char *const readers[] = {
    "%m = mul %p, %e\noutput %y = %m\n",
    "%m = mul %p, %e\n%q = sum_sq %m\n%n = mul %m, %q\noutput %y = %n\n",
    "%m = mul %p, %e\n%h = reshape %m {rank=3,d0=96,d1=2,d2=128}\n%n = rms_norm %h, %g {eps=1e-5}\n"
    "output %y = %n\n",
    "%m = add %t, %e\n%n = softmax %m\n%q = matmul %n, %w\noutput %y = %q\n",
};

enum { BASES = sizeof bases / sizeof *bases, READERS = sizeof readers / sizeof *readers };

static void write_graph(char *text, const char *op, int base, int reader)
{
    char *to = text + sprintf(text, "%s%s%%v0 = relu %%b\n%%v1 = sigmoid %%v0\n", leaves, bases[base]);
    for (int i = 2; i < MAPS; i++) to += sprintf(to, "%%v%d = %s %%v%d, %%v%d\n", i, op, i - 1, i - 2);
    sprintf(to, "%%e = relu %%v%d\n%s", MAPS - 1, readers[reader]);
}

static void plan(const char *text, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY | flags;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s\n%s", text, coda_error());
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s\n%s", text, coda_error());
    coda_plan_free(p);
    coda_graph_free(g);
}

START_TEST(a_chain_is_planned_at_once)
{
    static const char *const ops[] = {"add", "mul"};
    char text[ROOM];
    for (int reader = 0; reader < READERS; reader++)
        for (int i = 0; i < 2; i++) {
            write_graph(text, ops[i], _i, reader);
            plan(text, 0);
            plan(text, CODA_BATCH_INVARIANT);
        }
}
END_TEST

TESTS(chains, SECONDS(TIMEOUT), EACH(a_chain_is_planned_at_once, BASES));
