/* test_near.c -- the known word that is nearest, by distances worked out by hand. */
#include "near.h"

#include <stddef.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static const struct {
    const char *word, *known[3], *best;
    int distance;
} cases[] = {
    {"bias", {"bias", "gain"}, "bias", 0},
    {"bais", {"bias", "gain"}, "bias", 1},          /* neighbours are swapped */
    {"kitten", {"sitting", "mitten"}, "mitten", 1}, /* 3 and 1 */
    {"kitten", {"sitting"}, NULL, 0},               /* 3 of 7: more than a third */
    {"Softmax", {"softmax"}, "softmax", 0},         /* case does not count */
    {"rmsnorm", {"rms_norm", "layer_norm"}, "rms_norm", 1},
    {"x", {"y"}, NULL, 0},
    {"", {"y"}, NULL, 0},
    {"weight", {"weights", "weigh"}, "weights", 1}, /* the first of equals */
    {"abcdef", {"abc"}, NULL, 0},
};

START_TEST(nearest)
{
    struct near n = {.word = cases[_i].word};
    for (int k = 0; cases[_i].known[k]; k++) near_try(&n, cases[_i].known[k]);
    if (!cases[_i].best) {
        ck_assert_msg(!n.best, "%s: %s", cases[_i].word, n.best);
    } else {
        ck_assert_ptr_nonnull(n.best);
        ck_assert_str_eq(n.best, cases[_i].best);
        ck_assert_int_eq(n.distance, cases[_i].distance);
    }
}
END_TEST

/* Words longer than the table are not compared. */
START_TEST(long_words)
{
    char word[300];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = 0;
    struct near n = {.word = word};
    near_try(&n, word);
    ck_assert_ptr_null(n.best);
    word[64] = 0;
    near_try(&n, word);
    ck_assert_ptr_eq(n.best, word);
}
END_TEST

TESTS(near, EACH(nearest, ARRAY_SIZE(cases)), ONE(long_words));
