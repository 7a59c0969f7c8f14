/* test_company.c -- on the CPU device, too, a row has the same bits in whatever company. */
#include "util_company.h"

#include <check.h> /* last: it has a macro named fail */

Suite *company_suite(void);

enum { POOL = 140 };

/* Asks plans of all numbers of rows, of the base, and of one number each. */
static void ask_all(struct company *c, unsigned flags)
{
    static const int64_t rows[] = {1, 2, 17, 64, 65, POOL};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU, opt.flags = flags;
    coda_plan *all = company_plan(c, 0, &opt);
    opt.policy = CODA_POLICY_NEVER;
    coda_plan *base = company_plan(c, 0, &opt);
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
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

Suite *company_suite(void)
{
    Suite *s = suite_create("company");
    TCase *t = tcase_create("rows");
    tcase_add_loop_test(t, the_same_in_all, 0, company_case_count);
    tcase_add_test(t, others_without_the_flag);
    suite_add_tcase(s, t);
    return s;
}
