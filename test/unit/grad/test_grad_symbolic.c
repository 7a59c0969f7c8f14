/* test_grad_symbolic.c -- gradients over symbols are, for each value, those of graphs with numbers. */
#include "util_run.h"
#include "util_scale.h"
#include "util_symbolic.h"

#include <math.h>
#include <stdio.h>

#include "tests.h" /* last: Check has a macro named fail */

/* Means of so many rows are fp32 constants in one of them. */
static const double least_error = 2e-6;

static void expect_equal(const graph *bound, const graph *numbers, uint64_t seed)
{
    void **a = run_reference(bound, seed), **b = run_reference(numbers, seed);
    ck_assert_msg(a && b && bound->outputs == numbers->outputs, "seed %llu: %s", (unsigned long long)seed,
                  coda_error());
    for (int i = 0; i < bound->outputs; i++) {
        const double *p = a[bound->leaves + i], *q = b[numbers->leaves + i];
        const struct type *t = &bound->node[bound->output[i].value].type;
        double off = 0, size = 0;
        ck_assert_str_eq(bound->output[i].name, numbers->output[i].name);
        for (int64_t e = 0; e < type_elements(t); e++) {
            if (isnan(p[e]) && isnan(q[e])) continue;
            off += (p[e] - q[e]) * (p[e] - q[e]);
            size += q[e] * q[e];
        }
        ck_assert_msg(off <= least_error * least_error * size, "seed %llu: %s is off by %.1e of %.1e",
                      (unsigned long long)seed, bound->output[i].name, sqrt(off), sqrt(size));
    }
    random_args_free(bound, a);
    random_args_free(numbers, b);
}

START_TEST(are_those_of_numbers)
{
    uint64_t seed = random_seed();
    int done = 0; /* of the shapes of one graph it may be none */
    for (int i = 0; i < scaled(60) || (!done && i < 60); i++, seed++) {
        uint64_t of = (seed & ~SYMBOLIC_WIDE) | SYMBOLIC_GRADIENTS;
        graph *g = symbolic_graph(of, NULL);
        ck_assert_msg(g->status == CODA_OK, "seed %llu: %s", (unsigned long long)seed, coda_error());
        for (int shape = 0; shape < 4; shape++) {
            int64_t dims[SYMBOLIC_DIMS];
            symbolic_shape(of, shape, dims);
            graph *bound = graph_bind(g, "test", dims), *numbers = symbolic_graph(of, dims);
            ck_assert_msg(bound && numbers->status == CODA_OK, "seed %llu: %s", (unsigned long long)seed,
                          coda_error());
            if (random_is_small(bound)) expect_equal(bound, numbers, seed), done++;
            graph_free(bound);
            graph_free(numbers);
        }
        graph_free(g);
    }
    ck_assert_int_gt(done, 0);
}
END_TEST

TESTS(grad_symbolic, SECONDS(200), ONE(are_those_of_numbers));
