/* test_caches.c -- random programs that append to caches and attend to them, by the evaluator and the CPU
 * device, against the manual's formula. CODA_TEST_CASES sets how many are drawn. */
#include <stdlib.h>

#include "util_cache.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { CASES = 200, QUICK = 40, EVALUATED = 4 /* one in so many */ };

START_TEST(caches_hold_what_was_appended)
{
    const char *given = getenv("CODA_TEST_CASES");
    int n = given ? atoi(given) : scaled(scale_is_full() ? CASES : QUICK);
    for (int i = 0; i < n; i++) {
        struct cache_case c = cache_draw(random_seed() + (uint64_t)i);
        double error = cache_run(&c, i % EVALUATED ? CACHE_ON_CPU : CACHE_BY_EVALUATION);
        ck_assert_msg(error >= 0 && error <= 1, "case %d, %s: error %g of what is allowed; %s", i,
                      cache_describe(&c), error, error < 0 || error > 1e30 ? coda_error() : "");
    }
}
END_TEST

TESTS(caches, ONE(caches_hold_what_was_appended));
