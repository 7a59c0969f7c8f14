/* test_template_guards.c -- what planning asked of a few shapes says for which others the answers are the
 * same. */
#include "template_guards.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { BASE = 40, STEP = 3, FAR = 7, OWN = 11, LIMIT = 64, EQUAL = 100, RANGE = 200 };
enum { MOST = SKELETON_POINTS + 2 };

/* A plan that is cut in another way from LIMIT on, and where rows equal a number. Degree 2 if `squares`. */
static int ask(int64_t rows, bool squares)
{
    int answers = 0;
    answers += extent_reaches(2 * rows + 1, LIMIT);
    answers += 2 * extents_equal(squares ? rows * rows : rows, squares ? 10000 : EQUAL);
    if (!extent_is_one(rows)) answers += 4 * extent_reaches(rows + 7, rows);
    answers += 8 * extents_equal(3, 3);
    answers += 16 * extent_is_multiple(rows + 1, 7) + 32 * extent_is_multiple(8 * rows, 4);
    return answers;
}

static int64_t rows_at(int64_t at) { return BASE + STEP * at; }

static enum finding find(struct template_guards *c, bool squares, int degree, int64_t first)
{
    struct guards asked[MOST] = {{NULL, 0, 0, false}};
    const struct guards *all[MOST] = {NULL};
    int64_t proof[2][SKELETON_VARIABLES] = {{FAR}, {OWN}};
    int points = degree + 1;
    for (int i = 0; i < points + 2; i++) {
        guards_note(&asked[i]);
        ask(rows_at(first + (i < points ? i : proof[i - points][0])), squares);
        guards_note(NULL);
        all[i] = &asked[i];
    }
    enum finding found = template_guards_find(c, all, 1, points, proof, 2);
    for (int i = 0; i < points + 2; i++) guards_free(&asked[i]);
    return found;
}

/* They hold where all answers are as they were, and nowhere else. */
static void expect_exact(const struct template_guards *c, bool squares)
{
    int held = 0;
    for (int64_t at = -RANGE; at < RANGE; at++) {
        bool hold = template_guards_hold(c, &at, false),
             same = ask(rows_at(at), squares) == ask(BASE, squares);
        ck_assert_msg(hold == same, "%lld rows: %d", (long long)rows_at(at), hold);
        held += hold;
    }
    ck_assert(held > 0 && held < 2 * RANGE);
}

START_TEST(exact)
{
    struct template_guards c = {0};
    ck_assert_int_eq(find(&c, _i, 1 + _i, 0), FOUND);
    expect_exact(&c, _i);
    ck_assert_uint_gt(template_guards_bytes(&c), 0);
    template_guards_free(&c);
}
END_TEST

/* Approximately, what equals a number by chance fits the template, and what is beyond a limit does not. */
START_TEST(approximate)
{
    struct template_guards c = {0};
    const int64_t equals = (EQUAL - BASE) / STEP, below = -3;
    ck_assert_int_eq(find(&c, false, 1, 0), FOUND);
    ck_assert(!template_guards_hold(&c, &equals, false) && template_guards_hold(&c, &equals, true));
    ck_assert(!template_guards_hold(&c, &below, true));
    template_guards_free(&c);
}
END_TEST

/* What is of a higher degree, and plans on both sides of the limit, are told. */
START_TEST(refused)
{
    struct template_guards c = {0};
    ck_assert_int_eq(find(&c, true, 1, 0), HAS_HIGHER_DEGREE);
    ck_assert_int_eq(find(&c, false, 1, -3), HAS_NONE);
    template_guards_free(&c);
}
END_TEST

/* A cubic polynomial and a product of three coordinates, modulo 2^64. */
static int64_t cubic(const int64_t *at)
{
    uint64_t x = (uint64_t)at[0], y = (uint64_t)at[1], z = (uint64_t)at[2];
    return (int64_t)(x * x * x - 5 * x * x + 11 * x * y * z + 7 * y * y * z - 3 * z * z * z + 13 * y + 1);
}

/* What a few small values determine holds for coordinates of up to 2^62, whose binomials pass 2^127. */
START_TEST(huge_coordinates)
{
    int64_t value[SKELETON_POINTS], at[SKELETON_VARIABLES];
    struct random r = {random_seed()};
    for (int i = 0; i < SKELETON_POINTS; i++) {
        skeleton_point(SKELETON_VARIABLES, i, at);
        value[i] = cubic(at);
    }
    struct skeleton_number n = skeleton_number(SKELETON_VARIABLES, SKELETON_POINTS, value);
    for (int i = 0; i < 1000; i++) {
        uint64_t term[SKELETON_POINTS];
        for (int v = 0; v < SKELETON_VARIABLES; v++) {
            at[v] = random_below(&r, INT64_C(1) << (1 + random_below(&r, 62)));
            if (random_chance(&r, 50)) at[v] = -at[v];
        }
        skeleton_terms(SKELETON_VARIABLES, SKELETON_POINTS, at, term);
        ck_assert_msg(skeleton_value(&n, term) == cubic(at), "at %lld, %lld, %lld", (long long)at[0],
                      (long long)at[1], (long long)at[2]);
    }
}
END_TEST

TESTS(template_guards, EACH(exact, 2), ONE(approximate), ONE(refused), ONE(huge_coordinates));
