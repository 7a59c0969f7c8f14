/*
 * test_workers.c -- loops on threads that stay: every item once, from many threads at once, in loops of
 * loops, in children of fork(), while the process exits; and no more threads than a loop wanted.
 */
#include "base.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ITEMS = 1000 };

static int threads_here(void)
{
    int n = -2; /* . and .. */
    DIR *d = opendir("/proc/self/task");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static void count(void *ctx, int64_t i) { atomic_fetch_add(&((atomic_int *)ctx)[i], 1); }

/* Whether each of n items is run once. */
static bool runs_each_once(int64_t n)
{
    atomic_int *seen = calloc(MOST_ITEMS, sizeof *seen);
    bool good = seen;
    if (seen) parallel_for(n, count, seen);
    for (int64_t i = 0; i < MOST_ITEMS && seen; i++) good = good && seen[i] == (i < n);
    free(seen);
    return good;
}

START_TEST(each_item_once)
{
    static const int64_t items[] = {0, 1, 2, 3, 63, 64, 65, MOST_ITEMS};
    for (int threads = 1; threads <= PARALLEL_MOST; threads = threads < 4 ? threads + 1 : 4 * threads) {
        parallel_limit(threads);
        for (int round = 0; round < 20; round++)
            for (int i = 0; i < ARRAY_SIZE(items); i++) ck_assert(runs_each_once(items[i]));
    }
    parallel_limit(0);
}
END_TEST

static void inner(void *ctx, int64_t i)
{
    (void)i;
    parallel_limit(3);
    if (!runs_each_once(50)) atomic_store((atomic_bool *)ctx, true);
    parallel_limit(0);
}

START_TEST(loops_of_loops)
{
    atomic_bool wrong = false;
    parallel_limit(4);
    for (int round = 0; round < 20; round++) parallel_for(20, inner, &wrong);
    parallel_limit(0);
    ck_assert(!wrong);
}
END_TEST

static void *many_loops(void *wrong)
{
    parallel_limit(4);
    for (int round = 0; round < 200; round++)
        if (!runs_each_once(1 + round % 40)) atomic_store((atomic_bool *)wrong, true);
    return NULL;
}

START_TEST(callers_at_once)
{
    enum { CALLERS = 6 };
    pthread_t caller[CALLERS];
    atomic_bool wrong = false;
    for (int i = 0; i < CALLERS; i++)
        ck_assert_int_eq(pthread_create(&caller[i], NULL, many_loops, &wrong), 0);
    for (int i = 0; i < CALLERS; i++) pthread_join(caller[i], NULL);
    ck_assert(!wrong);
}
END_TEST

START_TEST(threads_stay)
{
    int before = threads_here();
    parallel_limit(1);
    ck_assert(runs_each_once(MOST_ITEMS));
    ck_assert_int_eq(threads_here(), before); /* one thread starts none */
    parallel_limit(5);
    ck_assert(runs_each_once(MOST_ITEMS));
    int after = threads_here();
    ck_assert(after > before || before >= 5);
    for (int i = 0; i < 2000; i++) ck_assert(runs_each_once(5));
    ck_assert_int_eq(threads_here(), after);
    parallel_limit(0);
}
END_TEST

/* ---- Where each item was run ---- */

static pthread_t self;
static void note_others(void *ctx, int64_t i)
{
    (void)i;
    if (!pthread_equal(self, pthread_self())) atomic_store((atomic_bool *)ctx, true);
}

START_TEST(small_loops_run_alone)
{
    atomic_bool others = false;
    self = pthread_self();
    parallel_limit(8);
    for (int i = 0; i < 100; i++) parallel_work(100, 1000, note_others, &others);
    ck_assert(!others);
    parallel_limit(0);
}
END_TEST

static void wait_for_others(void *ctx, int64_t i)
{
    note_others(ctx, i);
    for (int ms = 0; ms < 60000 && !atomic_load((atomic_bool *)ctx); ms++) usleep(1000);
}

/* Another thread comes to an item that waits for that: within a minute, however busy the machine is. */
static bool others_come(void)
{
    atomic_bool others = false;
    self = pthread_self();
    parallel_limit(2);
    parallel_for(2, wait_for_others, &others);
    parallel_limit(0);
    return others;
}

START_TEST(large_loops_do_not) { ck_assert(others_come()); }
END_TEST

/* ---- Processes ---- */

static int status_of(pid_t child)
{
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* The thread sanitizer ends a child of many threads that starts some. The address sanitizer's allocator has
 * locks that a fork leaves as they are (in GCC 12): if another thread was allocating, threads of the child
 * wait for ever, in the sanitizer's free(). */
#if defined __SANITIZE_THREAD__
enum { CHILDREN = 0, BUSY_CHILDREN = 0 };
#elif defined __SANITIZE_ADDRESS__
enum { CHILDREN = 10, BUSY_CHILDREN = 0 };
#else
enum { CHILDREN = 10, BUSY_CHILDREN = 20 };
#endif

/* A child has no workers, and starts its own. */
START_TEST(children_of_fork)
{
    ck_assert(others_come());
    for (int round = 0; round < CHILDREN; round++) {
        pid_t child = fork();
        if (!child) {
            alarm(100); /* rather than hang */
            _exit(others_come() && runs_each_once(MOST_ITEMS) ? 0 : 1);
        }
        ck_assert_int_eq(status_of(child), 0);
    }
    ck_assert(others_come());
}
END_TEST

/* While another thread is anywhere in a loop. */
START_TEST(children_of_a_busy_process)
{
    pthread_t caller;
    atomic_bool wrong = false;
    ck_assert_int_eq(pthread_create(&caller, NULL, many_loops, &wrong), 0);
    for (int round = 0; round < BUSY_CHILDREN; round++) {
        pid_t child = fork();
        if (!child) {
            alarm(100);
            _exit(others_come() ? 0 : 1);
        }
        ck_assert_int_eq(status_of(child), 0);
    }
    pthread_join(caller, NULL);
    ck_assert(!wrong);
}
END_TEST

static void *endless_loops(void *wrong)
{
    for (;;) many_loops(wrong);
    return NULL;
}

START_TEST(exit_beside_loops)
{
    enum { STATUS = 7 };
    for (int round = 0; round < CHILDREN / 2; round++) {
        pid_t child = fork();
        if (!child) {
            static atomic_bool wrong;
            pthread_t caller;
            alarm(100);
            bool started = others_come() && !pthread_create(&caller, NULL, endless_loops, &wrong);
            usleep(5000);
            exit(started ? STATUS : 1);
        }
        ck_assert_int_eq(status_of(child), STATUS);
    }
}
END_TEST

TESTS(workers, SECONDS(300), ONE(each_item_once), ONE(loops_of_loops), ONE(callers_at_once),
      ONE(threads_stay), ONE(small_loops_run_alone), ONE(large_loops_do_not), ONE(children_of_fork),
      ONE(children_of_a_busy_process), ONE(exit_beside_loops));
