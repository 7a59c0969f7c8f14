/* test_symbols.c -- rewriting before symbols have numbers, and after: the same graph. */
#include "rewrite.h"
#include "util_random.h"
#include "util_scale.h"
#include "util_symbolic.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 }; /* the shape of symbolic_shape */

static char *text_of(const graph *g)
{
    struct text t = {0};
    graph_print(g, &t);
    char *copy = strdup(text_str(&t));
    text_free(&t);
    return copy;
}

static graph *rewritten(const graph *g, coda_fold fold)
{
    struct rewrite_options opt = {.fuse = true, .fold = fold};
    return rewrite(g, &opt, NULL);
}

static void expect_same(const graph *with_symbols, const graph *r, coda_fold fold, uint64_t seed, int shape)
{
    int64_t dims[SYMBOLIC_DIMS];
    symbolic_shape(seed, shape, dims);
    graph *before = graph_bind(r, "test", dims);
    ck_assert_msg(before != NULL, "seed %llu: %s", (unsigned long long)seed, fail_message());
    graph *bound = graph_bind(with_symbols, "test", dims), *after = rewritten(bound, fold);
    char *a = text_of(before), *b = text_of(after);
    ck_assert_msg(!strcmp(a, b), "seed %llu, shape %d:\n%s\n--- but bound first\n%s",
                  (unsigned long long)seed, shape, a, b);
    free(a), free(b);
    graph_free(before), graph_free(bound), graph_free(after);
}

/* Some random graphs ask for numbers: half as many as wanted are enough, of some more if need be. */
START_TEST(binds_as_bound)
{
    uint64_t seed = random_seed();
    int done = 0, graphs = scaled(100);
    for (int i = 0; i < graphs || (2 * done < graphs && i < 10 * graphs); i++, seed++) {
        coda_fold fold = i % 2 ? CODA_FOLD_COPY : CODA_FOLD_NONE;
        uint64_t of = i % 5 ? seed : seed | SYMBOLIC_GRADIENTS;
        graph *g = symbolic_graph(of, NULL), *r = rewritten(g, fold);
        if (r) expect_same(g, r, fold, of, LARGEST);
        else ck_assert_msg(strstr(fail_message(), "needs numbers for symbols"), "%s", fail_message());
        done += r != NULL;
        graph_free(r);
        graph_free(g);
    }
    ck_assert_int_ge(2 * done, graphs);
}
END_TEST

TESTS(symbols, ONE(binds_as_bound));
