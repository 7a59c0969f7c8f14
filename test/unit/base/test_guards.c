/* test_guards.c -- answers to questions of extents that follow those of another shape. */
#include "guards.h"

#include "tests.h" /* last: Check has a macro named fail */

/* The questions of a shape whose symbol is n, beside 8 and 1; bit i is the answer to number i. */
static unsigned ask(int64_t n, struct guards *notes)
{
    struct guards *before = guards_note(notes);
    unsigned answers = extents_equal(n, 8);
    answers |= (unsigned)extents_equal(8, 8) << 1;
    answers |= (unsigned)extent_reaches(n, 4) << 2;
    answers |= (unsigned)extents_equal(n, 8) << 3;
    guards_note(before);
    return answers;
}

START_TEST(follows_what_is_apart)
{
    struct guards apart = {0}, own = {0};
    ck_assert_uint_eq(ask(8, NULL), 15);
    ck_assert_uint_eq(ask(9, &apart), 2 + 4);
    guards_follow(&apart);
    ck_assert_uint_eq(ask(8, &own), 2 + 4);
    ck_assert(guards_same(&apart, &own));
    guards_follow(NULL);
    ck_assert_uint_eq(ask(8, &own), 15);
    guards_free(&apart);
    guards_free(&own);
}
END_TEST

/* Equal ones stay so, and after another answer all are as they are. */
START_TEST(follows_nothing_else)
{
    struct guards apart = {0}, own = {0};
    ask(3, &apart); /* which does not reach 4 */
    guards_follow(&apart);
    ck_assert_uint_eq(ask(8, &own), 2 + 4 + 8);
    guards_follow(NULL);
    own.notes = apart.notes = 0;
    ask(8, &apart);
    guards_follow(&apart);
    ck_assert_uint_eq(ask(9, &own), 2 + 4);
    guards_follow(NULL);
    guards_free(&apart);
    guards_free(&own);
}
END_TEST

/* What is 1 is left out of a walk, and what is 0 lies anyhow: that is no chance. */
START_TEST(one_is_no_chance)
{
    struct guards apart = {0}, own = {0}, *before = guards_note(&apart);
    ck_assert(!extent_is_one(5) && !extents_equal(0, 5));
    guards_follow(&apart);
    guards_note(&own);
    ck_assert(extent_is_one(1));
    guards_follow(&apart);
    own.notes = 0;
    ck_assert(extents_equal(0, 0));
    guards_follow(NULL);
    guards_note(before);
    guards_free(&apart);
    guards_free(&own);
}
END_TEST

TESTS(guards, ONE(follows_what_is_apart), ONE(follows_nothing_else), ONE(one_is_no_chance));
