/*
 * main.c -- the unit tests: unit [ROOM|SUITE]...
 *
 * A file test/unit/ROOM/test_NAME.c has TESTS(NAME, ...), see tests.h; nothing else is registered, for
 * build/test/suites.h is made from the files' names. Without arguments every suite runs. Check's own
 * variables choose further: CK_RUN_SUITE, CK_RUN_CASE, CK_INCLUDE_TAGS, CK_EXCLUDE_TAGS. CODA_TEST_LOCALE
 * names a locale to run in.
 */
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"

#include <check.h> /* last: it has a macro named fail */

#define SUITE(room, name) Suite *name##_suite(void);
#include "suites.h"
#undef SUITE

static const struct {
    const char *room, *name;
    Suite *(*make)(void);
} suites[] = {
#define SUITE(room, name) {#room, #name, name##_suite},
#include "suites.h"
#undef SUITE
};

enum { SUITES = sizeof suites / sizeof *suites };

static bool is_room(const char *word)
{
    bool found = false;
    for (int i = 0; i < SUITES; i++) found = found || !strcmp(word, suites[i].room);
    return found;
}

/* Does a word name suite i, or its room? A name of both is the room's. Without words, each is meant. */
static bool is_chosen(int i, char **word)
{
    bool chosen = !*word;
    for (; *word; word++) chosen = chosen || !strcmp(*word, is_room(*word) ? suites[i].room : suites[i].name);
    return chosen;
}

/* A program may have called setlocale(): $CODA_TEST_LOCALE is a locale that it could have asked for, of
 * $LOCPATH. No test may notice. */
static bool choose_locale(void)
{
    const char *name = getenv("CODA_TEST_LOCALE");
    if (!name || setlocale(LC_ALL, name)) return true;
    fprintf(stderr, "unit: no locale %s in $LOCPATH; `make locales` makes it, in build/locale\n", name);
    return false;
}

int main(int argc, char **argv)
{
    SRunner *runner = srunner_create(NULL);
    int chosen = 0;
    (void)argc;
    if (!choose_locale()) return EXIT_FAILURE;
    random_seed();                           /* one for all tests, each of which is a process */
    setenv("CK_DEFAULT_TIMEOUT", "1800", 0); /* seconds: ends what hangs, on a machine at load 20, too */
    for (int i = 0; i < SUITES; i++)
        if (is_chosen(i, argv + 1)) srunner_add_suite(runner, suites[i].make()), chosen++;
    if (chosen) srunner_run_all(runner, CK_ENV);
    else fprintf(stderr, "unit: %s is neither a room nor a suite of test/unit\n", argv[1]);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed || !chosen ? EXIT_FAILURE : EXIT_SUCCESS;
}
