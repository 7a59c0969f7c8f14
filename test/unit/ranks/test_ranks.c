/* test_ranks.c -- how long others may read what a rank has brought, and a handle that two threads bring. The
 * thread sanitizer runs this too. */
#include "ranks.h" /* before check.h, which has a macro `fail` */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { RANKS = 2 };

struct rank {
    coda_group *group;
    int x;
    coda_status status;
    bool was_read; /* behind the call that failed */
    char error[256];
};

static void make(struct rank *r)
{
    coda_group *group[RANKS];
    ck_assert_int_eq(ranks_new(group, RANKS, 20000), CODA_OK);
    for (int i = 0; i < RANKS; i++) r[i] = (struct rank){.group = group[i]};
}

static void run(struct rank *r, void *(*work)(void *))
{
    pthread_t thread[RANKS];
    for (int i = 0; i < RANKS; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, work, &r[i]), 0);
    for (int i = 0; i < RANKS; i++) pthread_join(thread[i], NULL);
}

static struct offer offer_of(const struct rank *r)
{
    return (struct offer){.operation = "sum", .outer = 1, .extent = 1, .inner = 1, .x = &r->x};
}

/* ---- A group that ends while a rank reads ---- */

static atomic_bool reads;

/* Rank 1 ends the group, so that rank 0 need not wait for it any more, and goes on reading for 20 ms. */
static void *read_slowly(void *ctx)
{
    struct rank *r = ctx;
    const struct offer mine = offer_of(r);
    const void *const *all;
    r->status = ranks_meet(r->group, &mine, &all);
    if (!r->status && ranks_rank(r->group)) {
        reads = true;
        ranks_give_up(r->group, "enough");
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        r->x = *(const int *)all[0];
        reads = false;
    }
    if (!r->status) r->status = ranks_part(r->group);
    r->was_read = reads;
    return NULL;
}

START_TEST(readers_are_waited_for)
{
    struct rank r[RANKS];
    make(r);
    r[0].x = 0x5eed;
    run(r, read_slowly);
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(r[i].status, CODA_E_DEVICE);
        ck_assert(!r[i].was_read);
        ck_assert_int_eq(r[i].x, 0x5eed);
        ranks_free(r[i].group);
    }
}
END_TEST

/* ---- One handle in two threads ---- */

static void *meet(void *ctx)
{
    struct rank *r = ctx;
    const struct offer mine = offer_of(r);
    const void *const *all;
    r->status = ranks_meet(r->group, &mine, &all);
    snprintf(r->error, sizeof r->error, "%s", coda_error());
    return NULL;
}

START_TEST(a_handle_that_comes_twice)
{
    struct rank r[RANKS];
    make(r);
    coda_group *other = r[1].group;
    r[1].group = r[0].group;
    run(r, meet);
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(r[i].status, CODA_E_INVALID);
        ck_assert_str_eq(r[i].error,
                         "rank 0 is at exchange 1 (sum) twice; each rank has a handle of its own");
    }
    ranks_free(r[0].group);
    ranks_free(other);
}
END_TEST

/* ---- Runs of plans ---- */

static const struct offer sum = {.operation = "sum"}, copy = {.operation = "copy"};
static const struct agenda plan[] = {{1, &sum, 1}, {2, &copy, 1}, {3, &copy, 1}};

static coda_status follow(const struct rank *r, int which)
{
    return ranks_follow(r->group, &plan[which], false);
}

static void make_agreed(struct rank *r)
{
    make(r);
    for (int i = 0; i < RANKS; i++)
        ck_assert(ranks_note_agreed(r[i].group, 1) && ranks_note_agreed(r[i].group, 2));
}

static void free_both(const struct rank *r)
{
    for (int i = 0; i < RANKS; i++) ranks_free(r[i].group);
}

/* However far one is ahead, as long as it is noted; the first run that differs ends the group. */
START_TEST(plans_in_another_order)
{
    struct rank r[RANKS];
    make_agreed(r);
    for (int i = 0; i < 63; i++) ck_assert(!follow(&r[0], i % 2));
    for (int i = 0; i < 62; i++) ck_assert(!follow(&r[1], i % 2));
    ck_assert_int_eq(follow(&r[1], 1), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(),
                     "run 63 of the group: rank 0 has a plan whose first exchange is sum, rank 1 "
                     "another one, whose first is copy");
    ck_assert_int_eq(follow(&r[0], 0), CODA_E_INVALID);
    free_both(r);
}
END_TEST

/* Plans that nobody has agreed on are compared where ranks meet; captured runs are in no order, nor are those
 * of which too many lie between. */
START_TEST(orders_that_nobody_compares)
{
    struct rank r[RANKS];
    make(r);
    ck_assert(!follow(&r[0], 0) && !follow(&r[1], 1));
    free_both(r);
    make_agreed(r);
    ck_assert(!ranks_follow(r[0].group, &plan[0], true));
    ck_assert(!follow(&r[1], 1) && !follow(&r[0], 0));
    free_both(r);
    make_agreed(r);
    for (int i = 0; i < 65; i++) ck_assert(!follow(&r[0], 0));
    ck_assert(!follow(&r[1], 1));
    ck_assert_int_eq(follow(&r[1], 1), CODA_E_INVALID);
    free_both(r);
    make_agreed(r);
    ck_assert(!follow(&r[0], 0)); /* one that has agreed does not meet one that has not */
    ck_assert_int_eq(follow(&r[1], 2), CODA_E_INVALID);
    free_both(r);
}
END_TEST

TESTS(ranks, ONE(readers_are_waited_for), ONE(a_handle_that_comes_twice), ONE(plans_in_another_order),
      ONE(orders_that_nobody_compares));
