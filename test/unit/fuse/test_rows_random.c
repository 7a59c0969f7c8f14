/* test_rows_random.c -- whatever a graph of maps, statistics, broadcasts and states is, its plan has no more
 * launches than one for each operation, moves no more bytes, and computes what fp64 says. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */

#include "../library/check_plan.h"
#include "util_random_rows.h"
#include "util_scale.h"

enum { GRAPHS = 200, SHARES = 4 }; /* ten times as many in a full run */

static void check_costs(const graph *g, uint64_t seed)
{
    coda_plan_stats s = plan_stats_of(g, NULL);
    ck_assert_msg(s.launches <= s.launches_unfused, "seed %llu: %d launches, one for each operation %d",
                  (unsigned long long)seed, s.launches, s.launches_unfused);
    ck_assert_msg(s.bytes <= s.bytes_unfused, "seed %llu: %lld bytes, one for each operation %lld",
                  (unsigned long long)seed, (long long)s.bytes, (long long)s.bytes_unfused);
}

/* Where a row's bits say nothing of the others, either. */
static void check_invariant(const graph *g, uint64_t seed)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void **want = run_reference(g, seed);
    ck_assert_msg(want != NULL, "%s", coda_error());
    opt.flags = CODA_BATCH_INVARIANT;
    double e = run_on_cpu(g, seed, &opt, want);
    ck_assert_msg(e >= 0 && e < 1e-4, "seed %llu, invariant: error %g, %s", (unsigned long long)seed, e,
                  coda_error());
    ck_assert_int_le(plan_launches(g, CODA_BATCH_INVARIANT), plan_launches(g, CODA_NO_FUSION));
    random_args_free(g, want);
}

START_TEST(never_worse_than_one_by_one)
{
    uint64_t seed = random_seed() * 7919 + (uint64_t)_i;
    for (int i = 0; i < scaled(GRAPHS); i += SHARES) {
        uint64_t s = seed + (uint64_t)i * SHARES;
        graph *g = random_rows(s, &(struct rows_options){.elements = i % 2});
        ck_assert_msg(g != NULL, "seed %llu: %s", (unsigned long long)s, coda_error());
        check_costs(g, s);
        plan_check_modes(g, s);
        if (i % 3 == 0) check_invariant(g, s);
        coda_graph_free(g);
    }
}
END_TEST

TESTS(rows_random, SECONDS(120), EACH(never_worse_than_one_by_one, SHARES));
