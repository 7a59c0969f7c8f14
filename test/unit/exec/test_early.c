/*
 * test_early.c -- launches that stream weights keep their blocks apart, by a machine that deals blocks:
 * each goes to the SM with the most room, and those of the oldest kernel end where there is none.
 */
#include "executable.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { SMS = 132, MOST = 232448, OF_SM = MOST + 1024, KERNELS = 3, LAUNCHES = 400 };

static const struct jit_device gpu = {.sms = SMS, .shared_bytes = MOST};

struct machine {
    int room[SMS];             /* bytes of each SM */
    int blocks[KERNELS][SMS];  /* of the last kernels, the newest first */
    int shared[KERNELS], left; /* of a block; blocks of the newest that are to come */
};

static int roomiest(const struct machine *m)
{
    int best = 0;
    for (int i = 1; i < SMS; i++) best = m->room[i] > m->room[best] ? i : best;
    return best;
}

static void deal(struct machine *m)
{
    for (int sm; m->left && m->room[sm = roomiest(m)] >= m->shared[0]; m->left--) {
        m->room[sm] -= m->shared[0];
        m->blocks[0][sm]++;
    }
}

/* All blocks of a kernel end, in any order; what waits takes their places meanwhile. */
static void end(struct machine *m, int kernel, struct random *r)
{
    int start = (int)random_below(r, SMS);
    for (int i = 0; i < SMS; i++) {
        int sm = (start + i) % SMS;
        for (; m->blocks[kernel][sm]; m->blocks[kernel][sm]--) {
            m->room[sm] += m->shared[kernel];
            deal(m);
        }
    }
}

/* Starts a launch behind the others: if it is early, as soon as all blocks ahead have begun. */
static void start(struct machine *m, const struct jit_launch *l, struct random *r)
{
    end(m, KERNELS - 1, r);
    for (int k = KERNELS - 1; k; k--) {
        memcpy(m->blocks[k], m->blocks[k - 1], sizeof m->blocks[k]);
        m->shared[k] = m->shared[k - 1];
    }
    memset(m->blocks[0], 0, sizeof m->blocks[0]);
    m->shared[0] = (int)l->shared_bytes + 1024;
    if (!l->pdl) end(m, 2, r), end(m, 1, r);
    m->left = (int)l->grid;
    deal(m);
    for (int k = KERNELS - 1; k && m->left; k--) end(m, k, r);
    ck_assert_int_eq(m->left, 0);
}

static int most_on_an_sm(const struct machine *m)
{
    int most = 0;
    for (int i = 0; i < SMS; i++) most = MAX(most, m->blocks[0][i]);
    return most;
}

/* A stream with a block for each SM; or attention, a pass over rows, a product by wgmma. */
static struct jit_launch draw(struct random *r, bool *streams)
{
    *streams = random_below(r, 3);
    if (*streams)
        return (struct jit_launch){.grid = SMS, .shared_bytes = (unsigned)(8 + random_below(r, 220)) << 10};
    static const struct jit_launch other[] = {{.grid = 64, .shared_bytes = 217088},
                                              {.grid = 1},
                                              {.grid = 128, .shared_bytes = 100 << 10},
                                              {.grid = SMS, .shared_bytes = 200 << 10}};
    return other[random_below(r, 4)];
}

static int most_together(bool apart, uint64_t seed)
{
    struct machine m = {0};
    struct random r = {seed};
    struct jit_launch l, ahead = {0};
    bool streams, before = false;
    int most = 0;
    for (int i = 0; i < SMS; i++) m.room[i] = OF_SM;
    for (int i = 0; i < LAUNCHES; i++, ahead = l, before = streams) {
        l = draw(&r, &streams);
        l.pdl = i && random_below(&r, 8);
        if (apart && streams && l.pdl) l.shared_bytes = early_shared(&l, before ? &ahead : NULL, &gpu);
        start(&m, &l, &r);
        if (streams) most = MAX(most, most_on_an_sm(&m));
    }
    return most;
}

START_TEST(early_blocks_apart)
{
    uint64_t seed = random_seed();
    ck_assert_int_eq(most_together(true, seed), 1);
    ck_assert_int_gt(most_together(false, seed), 1); /* the machine does deal several to an SM */
}
END_TEST

/* Behind attention a launch has an SM for each block; the next one's fit beside these. */
START_TEST(early_room_for_the_next)
{
    struct jit_launch out = {.grid = SMS, .shared_bytes = 110592}, up = out, few = out;
    struct launch_spec of = {.shared_bytes = 110592, .early = true, .streams = true};
    out.shared_bytes = early_shared(&out, NULL, &gpu);
    ck_assert_int_gt(2 * ((int)out.shared_bytes + 1024), OF_SM);
    ck_assert_int_eq((int)out.shared_bytes, early_most_shared(&of, &gpu));
    ck_assert_int_eq((int)early_shared(&up, &out, &gpu), 110592);
    ck_assert_int_le((int)(out.shared_bytes + up.shared_bytes) + 2048, OF_SM);
    few.grid = SMS + 1; /* some SM has two, whatever it asks for */
    ck_assert_int_eq((int)early_shared(&few, NULL, &gpu), 110592);
    few.grid = SMS / 2; /* so few columns that a block has next to nothing to do */
    ck_assert_int_eq((int)early_shared(&few, NULL, &gpu), 110592);
    of.streams = false;
    ck_assert_int_eq(early_most_shared(&of, &gpu), 110592);
}
END_TEST

TESTS(early, ONE(early_blocks_apart), ONE(early_room_for_the_next));
