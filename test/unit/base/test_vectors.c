/* test_vectors.c -- $CODA_CPU: read once a process, so each test is one. */
#include "base.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>

START_TEST(fewer_are_chosen)
{
    static const char *const name[] = {"v2", "v3", "v4"};
    setenv("CODA_CPU", name[_i], 1);
    ck_assert_int_eq(vectors(), MIN((enum vectors)_i, vectors_most()));
    ck_assert_str_eq(vectors_name(), name[MIN(_i, (int)vectors_most())]);
    ck_assert_int_eq(vectors_check(), CODA_OK);
}
END_TEST

START_TEST(all_without_it)
{
    unsetenv("CODA_CPU");
    ck_assert_int_eq(vectors(), vectors_most());
    ck_assert_int_eq(vectors_check(), CODA_OK);
}
END_TEST

START_TEST(unknown_names)
{
    static const char *const name[] = {"V3", "avx2", "v5", "v33", "4"};
    char want[100];
    coda_graph *g;
    coda_plan *p;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    setenv("CODA_CPU", name[_i], 1);
    ck_assert_int_eq(coda_graph_parse(&g, "%x = input f32[4]\noutput %y = %x\n"), CODA_OK);
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_INVALID);
    snprintf(want, sizeof want, "CODA_CPU is \"%s\"; must be v2, v3 or v4", name[_i]);
    ck_assert_str_eq(coda_error(), want);
    ck_assert_int_eq(vectors(), vectors_most());
    coda_graph_free(g);
}
END_TEST

TESTS(vectors, EACH(fewer_are_chosen, 3), ONE(all_without_it), EACH(unknown_names, 5));
