/* test_together.c -- which products are one launch, and how its blocks are shared out. */
#include "executable.h"
#include "schedule.h"
#include "util_random.h"
#include "util_streams.h"

#include "tests.h" /* last: Check has a macro named fail */

/* ---- Blocks ---- */

/* Tiles of 128 x 256 of the products of an MM-DiT block at D 1536, 1024 and 333 rows twice, and others; and
 * after how many tiles all of 132 SMs end. */
static const struct {
    int64_t tiles[2], turns, blocks[2];
} shared[] = {{{288, 108}, 3, {96, 36}},
              {{96, 36}, 1, {96, 36}},
              {{384, 144}, 4, {96, 36}},
              {{1, 1}, 1, {1, 1}},
              {{133, 1}, 2, {67, 1}}};

START_TEST(blocks_are_shared_out)
{
    int64_t blocks[2];
    ck_assert_int_eq(launch_shares(shared[_i].tiles, 2, 132, blocks), shared[_i].turns);
    ck_assert_int_eq(blocks[0], shared[_i].blocks[0]);
    ck_assert_int_eq(blocks[1], shared[_i].blocks[1]);
}
END_TEST

/* All run at once, have enough turns, and one turn fewer would not do. */
START_TEST(any_blocks_are_shared_out)
{
    struct random r = {random_seed()};
    for (int k = 0; k < 10000; k++) {
        int64_t tiles[MOST_TOGETHER], blocks[MOST_TOGETHER], all = 0, fewer = 0;
        int members = 1 + (int)random_below(&r, MOST_TOGETHER), sms = 1 + (int)random_below(&r, 200);
        for (int i = 0; i < members; i++) tiles[i] = 1 + random_below(&r, 3000);
        int64_t turns = launch_shares(tiles, members, sms, blocks);
        for (int i = 0; i < members; i++) {
            ck_assert_int_ge(blocks[i] * turns, tiles[i]);
            all += blocks[i];
            fewer += turns > 1 ? (tiles[i] + turns - 2) / (turns - 1) : 0;
        }
        ck_assert_int_le(all, sms > members ? sms : members);
        ck_assert_msg(turns == 1 || fewer > sms, "%d programs on %d SMs: %lld turns, and one fewer would do",
                      members, sms, (long long)turns);
    }
}
END_TEST

/* ---- Plans ---- */

static coda_plan *plan_of(coda_graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY | flags;
    opt.arch = "sm_90a";
    ck_assert_msg(g && coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_graph_free(g);
    return p;
}

static int joined(const coda_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->plan.programs; i++)
        n += plan_leader(&p->plan, i) == i && plan_together(&p->plan, i) > 1;
    return n;
}

static int launches(const coda_plan *p)
{
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    ck_assert_int_eq(coda_plan_stats_get(p, &s), CODA_OK);
    return s.launches;
}

START_TEST(streams_are_joined)
{
    const struct streams_case *c = &streams_cases[_i];
    coda_plan *p = plan_of(streams_graph(c), 0), *apart = plan_of(streams_graph(c), CODA_OVERLAP);
    ck_assert_msg(joined(p) == c->joined, "%s: %d launches of several programs", c->name, joined(p));
    ck_assert_int_eq(p->plan.programs, apart->plan.programs);
    ck_assert_int_eq(launches(apart), apart->plan.programs);
    ck_assert_int_le(launches(p), launches(apart) - c->joined);
    coda_plan_free(p);
    coda_plan_free(apart);
}
END_TEST

/* Alike but for one thing each, or one waits for the other. */
static const char *const different[] = {
    "%x = input bf16[100,128]\n%w = weight bf16[128,128]\n%v = weight bf16[128,128]\n"
    "%a = matmul %x, %w\n%y = matmul %a, %v\noutput %y = %y\n",
    "%x = input bf16[100,128]\n%z = input bf16[60,128]\n%w = weight bf16[128,128]\n%v = weight "
    "bf16[192,128]\n"
    "%a = matmul %x, %w\n%b = matmul %z, %v\noutput %a = %a\noutput %b = %b\n",
    "%x = input bf16[100,128]\n%z = input bf16[60,128]\n%w = weight bf16[128,128]\n%v = weight "
    "bf16[128,128]\n"
    "%p = matmul %x, %w\n%a = relu %p\n%q = matmul %z, %v\n%b = gelu_tanh %q\noutput %a = %a\noutput %b = "
    "%b\n",
    "%x = input bf16[100,128]\n%z = input f16[60,128]\n%w = weight bf16[128,128]\n%v = weight f16[128,128]\n"
    "%a = matmul %x, %w\n%b = matmul %z, %v\noutput %a = %a\noutput %b = %b\n",
    "%x = input bf16[100,128]\n%z = input bf16[60,192]\n%w = weight bf16[128,128]\n%v = weight "
    "bf16[128,192]\n"
    "%a = matmul %x, %w\n%b = matmul %z, %v\noutput %a = %a\noutput %b = %b\n",
};

START_TEST(others_are_not)
{
    coda_graph *g = NULL;
    ck_assert_msg(coda_graph_parse(&g, different[_i]) == CODA_OK, "%s", coda_error());
    coda_plan *p = plan_of(g, 0);
    ck_assert_int_eq(joined(p), 0);
    coda_plan_free(p);
}
END_TEST

/* Programs of one launch that hand on a value are no plan. */
START_TEST(who_waits_is_no_member)
{
    static int together[] = {2, 0};
    coda_graph *g = NULL;
    ck_assert_int_eq(coda_graph_parse(&g, different[0]), CODA_OK);
    coda_plan *p = plan_of(g, 0);
    ck_assert_int_eq(p->plan.programs, 2);
    ck_assert_int_eq(plan_verify(&p->plan), CODA_OK);
    p->plan.together = together;
    ck_assert_int_eq(plan_verify(&p->plan), CODA_E_INVALID);
    coda_plan_free(p);
}
END_TEST

TESTS(together, EACH(blocks_are_shared_out, ARRAY_SIZE(shared)), ONE(any_blocks_are_shared_out),
      EACH(streams_are_joined, streams_case_count), EACH(others_are_not, ARRAY_SIZE(different)),
      ONE(who_waits_is_no_member));
