/*
 * test_dump.c -- CODA_DUMP makes new files in a folder that it may trust, follows nothing, and overwrites
 * nothing. It is read once a process: each test is one.
 */
#include "base.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util_folder.h"

static char into[300];

static void set_up(void)
{
    folder_make();
    snprintf(into, sizeof into, "%s", folder_under("dump"));
    ck_assert_int_eq(mkdir(into, 0700), 0);
    setenv("CODA_DUMP", into, 1);
}

static const char *inside(const char *name)
{
    static char path[4][600];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", into, name);
    return p;
}

static void dump(const char *name, const char *text)
{
    debug_on(DEBUG_GRAPH); /* reads the environment */
    debug_stage(DEBUG_GRAPH, name, text);
}

static void expect_file(const char *path, const char *text)
{
    size_t size;
    char *got = (char *)file_read(path, &size);
    ck_assert_uint_eq(size, strlen(text));
    ck_assert_int_eq(memcmp(got, text, size), 0);
    free(got);
}

static void put(const char *path, const char *text) { file_write(path, text, strlen(text)); }

/* Nothing is written there, and coda_info_print says why. */
static void expect_refused(const char *why)
{
    char info[8192];
    int before = folder_names(into);
    dump("graph.txt", "text");
    ck_assert_int_eq(folder_names(into), before);
    ck_assert_int_gt(coda_info_print(info, sizeof info), 0);
    char *line = strstr(info, "\ndump: ");
    ck_assert_msg(line && strstr(line, " is not used: it ") && strstr(line, why), "%s", info);
}

START_TEST(numbers_go_on)
{
    dump("graph.txt", "one");
    dump("plan.txt", "two");
    expect_file(inside("00-graph.txt"), "one");
    expect_file(inside("01-plan.txt"), "two");
    put(inside("41-mine"), "mine");
    put(inside("x99-no-number"), "");
    put(inside("77"), "");
    dump("graph.txt", "three");
    expect_file(inside("42-graph.txt"), "three");
    expect_file(inside("00-graph.txt"), "one");
    ck_assert_int_eq(folder_names(into), 6);
}
END_TEST

/* What lies under the names that come next is another's: left as it is, and gone round. */
START_TEST(follows_and_overwrites_nothing)
{
    const char *victim = folder_under("victim");
    put(victim, "secret");
    ck_assert_int_eq(symlink(victim, inside("00-graph.txt")), 0);
    ck_assert_int_eq(link(victim, inside("01-graph.txt")), 0);
    ck_assert_int_eq(mkfifo(inside("02-graph.txt"), 0600), 0);
    ck_assert_int_eq(mkdir(inside("03-graph.txt"), 0700), 0);
    ck_assert_int_eq(symlink("/nonexistent/x", inside("04-graph.txt")), 0);
    dump("graph.txt", "text");
    expect_file(inside("05-graph.txt"), "text");
    expect_file(victim, "secret");
    ck_assert_int_eq(folder_names(into), 6);
}
END_TEST

START_TEST(refuses_a_folder_that_is_a_link)
{
    const char *link = folder_under("link");
    ck_assert_int_eq(symlink(into, link), 0);
    setenv("CODA_DUMP", link, 1);
    expect_refused("symbolic link");
}
END_TEST

START_TEST(refuses_no_folder)
{
    setenv("CODA_DUMP", _i ? "/dev/null" : "/nonexistent/folder", 1);
    expect_refused("no folder that can be opened");
}
END_TEST

START_TEST(refuses_a_folder_of_all)
{
    ck_assert_int_eq(chmod(into, _i ? 0702 : 0777), 0);
    expect_refused("is writable by others");
}
END_TEST

/* Like /tmp: others make files there, but do not touch ours. */
START_TEST(takes_a_sticky_folder)
{
    ck_assert_int_eq(chmod(into, 01777), 0);
    dump("graph.txt", "text");
    expect_file(inside("00-graph.txt"), "text");
}
END_TEST

START_TEST(refuses_a_strangers_folder)
{
    if (geteuid()) return; /* only root can make one */
    ck_assert_int_eq(chown(into, 12345, 12345), 0);
    expect_refused("belongs to another user");
}
END_TEST

/* Swapped between two stages: judged each time. */
START_TEST(judges_each_time)
{
    dump("graph.txt", "one");
    const char *away = folder_under("away");
    ck_assert_int_eq(rename(into, away), 0);
    ck_assert_int_eq(symlink(away, into), 0);
    dump("plan.txt", "two");
    ck_assert_int_eq(folder_names(away), 1);
}
END_TEST

TESTS(dump, AROUND(set_up, folder_remove), ONE(numbers_go_on), ONE(follows_and_overwrites_nothing),
      ONE(refuses_a_folder_that_is_a_link), EACH(refuses_no_folder, 2), EACH(refuses_a_folder_of_all, 2),
      ONE(takes_a_sticky_folder), ONE(refuses_a_strangers_folder), ONE(judges_each_time));
