/*
 * tests.h -- Check, and a suite in a line: TESTS(NAME, ...) defines NAME_suite() of what it lists.
 *
 *     ONE(test)            a test
 *     EACH(test, count)    a test for each _i in 0..count-1; under a sanitizer for half of many, or a third
 *     RANGE(test, a, b)    a test for each _i in a..b-1
 *     SOME(test, count)    EACH, of which `make test` takes one in five by the seed, of the first six one in
 *                          three; of many, and under a sanitizer, one in fifteen and one in six
 *     CASE("nvrtc")        the rest is in a case of that name; tests before it in one named like the suite
 *
 * What holds for a case: AROUND(set_up, tear_down) runs beside each test, in its process, AROUND_ALL beside
 * all of them; SECONDS(n) is a test's limit; CK_INCLUDE_TAGS and CK_EXCLUDE_TAGS choose by TAG("nvrtc").
 */
#ifndef TESTS_H
#define TESTS_H

#include "base.h"
#include "util_scale.h"
#include <check.h>
#undef fail /* which is base.h's */

/* For each assertion that holds Check writes where it is, for its line about a test that dies. Of one in a
 * loop the first says as much; a sanitizer says it itself, and sees each of those calls. */
static inline void tests_mark(const char *file, int line)
{
    static int last;
    if (line == last || scale_is_sanitized()) return;
    last = line;
    _mark_point(file, line);
}
#define _mark_point(file, line) tests_mark(file, line)

static inline TCase *tests_case(Suite *s, const char *name)
{
    TCase *t = tcase_create(name);
    suite_add_tcase(s, t);
    return t;
}

static inline void tests_each(TCase *t, const TTest *test, int count)
{
    const int many = scale_is_thinned() ? 6 : 24;
    const bool all = !scale_is_sanitized() || count < many;
    for (int i = 0; i < count; i++)
        if (all || scale_takes_half(i)) tcase_add_loop_test(t, test, i, i + 1);
}

static inline void tests_some(TCase *t, const TTest *test, int count)
{
    enum { MANY = 24 };
    const bool sanitized = scale_is_sanitized();
    for (int i = 0; i < count; i++)
        if (sanitized || scale_is_thinned()
                ? scale_takes_one_in(3, i) && ((!sanitized && count < MANY) || scale_takes_half(i / 3))
                : true)
            tcase_add_loop_test(t, test, i, i + 1);
}

#define TESTS(name, ...)                                                                                     \
    Suite *name##_suite(void);                                                                               \
    Suite *name##_suite(void)                                                                                \
    {                                                                                                        \
        Suite *tests_suite = suite_create(#name);                                                            \
        TCase *tests_now = tests_case(tests_suite, #name);                                                   \
        __VA_ARGS__;                                                                                         \
        return tests_suite;                                                                                  \
    }                                                                                                        \
    Suite *name##_suite(void) /* and a semicolon */

#define ONE(test) tcase_add_test(tests_now, test)
#define EACH(test, count) tests_each(tests_now, test, (int)(count))
#define SOME(test, count) tests_some(tests_now, test, (int)(count))
#define RANGE(test, from, to) tcase_add_loop_test(tests_now, test, from, to)
#define CASE(name) (tests_now = tests_case(tests_suite, name))
#define AROUND(before, after) tcase_add_checked_fixture(tests_now, before, after)
#define AROUND_ALL(before, end) tcase_add_unchecked_fixture(tests_now, before, end)
#define SECONDS(n) tcase_set_timeout(tests_now, n)
#define TAG(name) tcase_set_tags(tests_now, name)

#endif
