/* test_company.c -- on the CPU device, too, a row has the same bits in whatever company. */
#include "util_company.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { POOL = 140 };

/* Asks plans of all numbers of rows, of the base, and of one number each; of these a sanitizer sees half. */
static void ask_all(struct company *c, unsigned flags)
{
    static const int64_t rows[] = {1, 2, 15, 16, 63, 64, 65, POOL};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU, opt.flags = flags;
    coda_plan *all = company_plan(c, 0, &opt);
    opt.policy = CODA_POLICY_NEVER;
    coda_plan *base = company_plan(c, 0, &opt);
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        if (SANITIZED && flags && !scale_takes_half(i)) continue;
        coda_plan *one = company_plan(c, rows[i], &opt);
        ck_assert_msg(company_ask(c, one, rows[i]), "%s", coda_error());
        ck_assert_msg(company_ask(c, all, rows[i]), "%s", coda_error());
        ck_assert_msg(company_ask(c, base, rows[i]), "%s", coda_error());
        coda_plan_free(one);
    }
    coda_plan_free(all);
    coda_plan_free(base);
}

START_TEST(the_same_in_all)
{
    struct company c;
    if (company_cases[_i].large) return;
    ck_assert_msg(company_open(&c, &company_cases[_i], POOL, 7, false), "%s", coda_error());
    ask_all(&c, CODA_BATCH_INVARIANT);
    ck_assert_msg(!c.different, "%s: %d of %d%s", company_cases[_i].name, c.different, c.compared, c.first);
    ck_assert(company_makes_sense(&c));
    company_close(&c);
}
END_TEST

/* Statistics of other tiles are rounded otherwise: the test above can fail. */
START_TEST(others_without_the_flag)
{
    struct company c;
    ck_assert_msg(company_open(&c, &company_cases[0], POOL, 7, false), "%s", coda_error());
    ask_all(&c, 0);
    ck_assert_int_gt(c.different, 0);
    company_close(&c);
}
END_TEST

/* ---- Random graphs ---- */

static const int64_t row_counts[] = {1, 2, 15, 16, 63, 64, 4096, 4097};
enum { FEW_COUNTS = 6, FULL_GRAPHS = 1000, GRAPHS = 60 };

static void expect(bool good, uint64_t seed, const char *what, const char *more)
{
    ck_assert_msg(good, "CODA_SEED of the graph is %llu: %s %s", (unsigned long long)seed, what, more);
}

static coda_plan *plan_of(const struct company *c, int64_t rows, const coda_compile_options *opt,
                          uint64_t seed)
{
    coda_plan *p = company_plan(c, rows, opt);
    expect(p, seed, "no plan:", coda_error());
    return p;
}

/* In a plan of one row for each sample nothing tells an input of samples from one of rows. */
static bool has_samples_of_rows(const graph *g)
{
    bool found = false;
    for (int i = 0; i < g->leaves; i++) {
        const struct node *n = &g->node[g->leaf[i]];
        found = found || (n->op == OP_INPUT && n->type.rank == 3 && dim_is_number(n->type.dim[0]) &&
                          n->type.dim[1] == 1);
    }
    return found;
}

/* All numbers of rows, in any order, by a plan of all and by one of each. */
static void ask_random(struct company *c, struct random *r, const coda_compile_options *opt, uint64_t seed)
{
    int counts = c->pool > row_counts[FEW_COUNTS] ? ARRAY_SIZE(row_counts) : FEW_COUNTS;
    coda_plan *all = plan_of(c, 0, opt, seed);
    int64_t first = random_below(r, counts);
    for (int i = 0; i < counts; i++) {
        int64_t rows = row_counts[(first + 5 * i) % counts];
        bool told = rows > 1 || !has_samples_of_rows(c->graph);
        coda_plan *one = told ? plan_of(c, rows, opt, seed) : NULL;
        expect(!told || company_ask(c, one, rows), seed, "a plan of its rows fails:", coda_error());
        expect(!c->different, seed, "a plan of its rows", c->first);
        expect(company_ask(c, all, rows), seed, "a plan of all fails:", coda_error());
        expect(!c->different, seed, "a plan of all", c->first);
        coda_plan_free(one);
    }
    coda_plan_free(all);
}

START_TEST(random_graphs)
{
    uint64_t seed = random_seed() + 1000003 * (uint64_t)_i;
    int graphs = scale_is_full() ? FULL_GRAPHS / 4 : scaled(GRAPHS / 4);
    for (int i = 0; i < graphs; i++, seed++) {
        struct random r = {seed};
        struct company c;
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU, opt.flags = CODA_BATCH_INVARIANT, opt.fold = (coda_fold)(i % 3);
        bool most = i % 16 == 0 && (!scale_is_thinned() || (seed + (uint64_t)_i) % 4 == 0);
        int64_t pool = scale_is_full() || most ? COMPANY_MOST_ROWS : row_counts[FEW_COUNTS - 1] + 6;
        expect(company_open_graph(&c, company_graph(seed), pool, seed, false), seed, "", coda_error());
        ask_random(&c, &r, &opt, seed);
        company_close(&c);
    }
}
END_TEST

TESTS(company, SOME(the_same_in_all, company_case_all), ONE(others_without_the_flag), EACH(random_graphs, 4),
      SECONDS(3000));
