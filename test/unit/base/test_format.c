/*
 * test_format.c -- numbers are printed and read alike, whatever locale the program or the thread asked for.
 *
 * The expected texts are those of the C standard in the locale "C".
 */
#include "base.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_locale.h"

static const char *failed(const char *text, double x)
{
    fail(CODA_E_INVALID, "%s: %.2f", text, x);
    return fail_message();
}

#include "tests.h" /* last: Check has a macro named fail */

static void expect(const char *want, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void expect(const char *want, const char *format, ...)
{
    char line[128];
    struct text t = {0};
    struct arena a = {0};
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    ck_assert_int_eq(format_print(line, sizeof line, format, args), (int)strlen(want));
    ck_assert_str_eq(line, want);
    text_vprintf(&t, format, again);
    ck_assert_str_eq(text_str(&t), want);
    ck_assert_str_eq(arena_format(&a, "%s|%g", line, 0.5) + strlen(want), "|0.5");
    ck_assert_str_eq(failed(line, 2.25) + strlen(want), ": 2.25");
    va_end(args), va_end(again);
    text_free(&t), arena_free(&a);
}

static void expect_all(void)
{
    expect("1.5", "%g", 1.5);
    expect("0x1.8p+0f", "%af", 1.5);
    expect("1234567.250 us", "%.3f us", 1234567.25);
    expect("-1.5e-07, 3", "%.1e, %d", -1.5e-7, 3);
    expect("0.100000001", "%.9g", (double)0.1f);
    expect("1234567", "%lld", 1234567LL);
    expect("I i", "%c %s", 'I', "i");
    expect("inf nan", "%g %g", (double)INFINITY, fabs(NAN));
}

static void expect_read(const char *text, double want, const char *rest)
{
    char *end;
    ck_assert(format_read_double(text, &end) == want);
    ck_assert_str_eq(end, rest);
    ck_assert(format_read_float(text, &end) == (float)want);
    ck_assert_str_eq(end, rest);
}

static void expect_reading(void)
{
    expect_read("1.5", 1.5, "");
    expect_read("1,5", 1, ",5");
    expect_read("0x1.8p+1;", 3, ";");
    expect_read("-2.5e-1 us", -0.25, " us");
    expect_read("1.000.5", 1, ".5");
}

/* Of the whole program. */
START_TEST(program)
{
    for (int i = 0; i < test_locales(); i++) {
        char before[64], now[64];
        if (!setlocale(LC_ALL, test_locale(i))) continue;
        snprintf(before, sizeof before, "%.1f", 1.5);
        expect_all();
        expect_reading();
        snprintf(now, sizeof now, "%.1f", 1.5); /* theirs is as it was */
        ck_assert_str_eq(before, now);
    }
}
END_TEST

/* Of this thread alone. */
START_TEST(thread)
{
    for (int i = 0; i < test_locales(); i++) {
        if (!setlocale(LC_ALL, test_locale(i))) continue;
        locale_t l = duplocale(LC_GLOBAL_LOCALE); /* glibc's newlocale() leaks memory if $LOCPATH is set */
        setlocale(LC_ALL, "C");
        ck_assert(l != (locale_t)0);
        locale_t before = uselocale(l);
        expect_all();
        expect_reading();
        ck_assert(uselocale(before) == l);
        freelocale(l);
    }
}
END_TEST

/* What $CODA_TEST_LOCALE promises is there: else these tests show nothing. */
START_TEST(has_a_comma)
{
    const char *name = getenv("CODA_TEST_LOCALE");
    if (!name || (strncmp(name, "de_DE", 5) && strncmp(name, "tr_TR", 5))) return;
    ck_assert_str_eq(localeconv()->decimal_point, ",");
}
END_TEST

TESTS(format, ONE(program), ONE(thread), ONE(has_a_comma));
