/* test_grad_random.c -- gradients of random losses beside difference quotients; refusals are counted. */
#include "util_grad.h"
#include "util_scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

START_TEST(random_losses_have_their_gradients)
{
    static const struct random_options o = {.patterns = 3, .most_dim = 6, .dtype = CODA_F32, .loss = true};
    int compared = 0, rough = 0, refused = 0, n = scaled(400);
    uint64_t seed = random_seed();
    uint64_t end = seed + (uint64_t)n, last = seed + 10 * (uint64_t)n; /* of a few it may be none */
    for (uint64_t s = seed; s < end || (3 * compared <= n && s < last); s++) {
        graph *g = random_graph(s, &o);
        struct grad_check c;
        bool good = grad_compare(g, s, &c);
        ck_assert_msg(good || strstr(coda_error(), "grad"), "seed %llu: %s", (unsigned long long)s,
                      coda_error());
        if (!good && getenv("CODA_TEST_VERBOSE")) fprintf(stderr, "%s\n", coda_error());
        refused += !good;
        bool says = good && c.smooth && c.error < 1e-5 * (1 + c.scale);
        rough += good && !says;
        if (says) {
            struct text t = {0};
            bool same = fabs(c.gradient - c.difference) <= c.error + 1e-7 * c.scale;
            if (!same) graph_print(g, &t);
            ck_assert_msg(same, "seed %llu: %.12g, by differences %.12g +- %.1e, of terms of %.3g\n%s",
                          (unsigned long long)s, c.gradient, c.difference, c.error, c.scale, text_str(&t));
            compared += c.leaves > 0;
        }
        graph_free(g);
    }
    printf("%d of %d random losses compared, %d not smooth, %d refused\n", compared, n, rough, refused);
    ck_assert_msg(3 * compared > n, "%d of %d random losses", compared, n);
}
END_TEST

TESTS(grad_random, SECONDS(600), ONE(random_losses_have_their_gradients));
