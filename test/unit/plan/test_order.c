/* test_order.c -- launches are ordered by what programs do to their tensors: writers of a version before its
 * readers, and these before the writers of the next one. */
#include "plan.h"
#include "util_random.h"

#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST_PROGRAMS = 40, MOST_USES = 6, MOST_BUFFERS = 8 };

struct bench {
    struct plan plan;
    struct program program[MOST_PROGRAMS];
    struct tensor_use use[MOST_PROGRAMS][MOST_USES];
    struct buffer buffer[MOST_BUFFERS];
    int version[MOST_BUFFERS]; /* of each buffer, so far */
};

static void bench_init(struct bench *b, int buffers)
{
    memset(b, 0, sizeof *b);
    b->plan.program = b->program;
    b->plan.buffer = b->buffer;
    b->plan.buffers = buffers;
}

static struct program *add_program(struct bench *b, int root)
{
    struct program *q = &b->program[b->plan.programs];
    *q = (struct program){.kind = PROGRAM_ROWS, .root = root, .port = b->use[b->plan.programs]};
    b->plan.programs++;
    return q;
}

static void add_use(struct program *q, enum use_role role, unsigned effect, int buffer, int version)
{
    q->port[q->ports++] = (struct tensor_use){
        .role = role, .effect = effect, .buffer = buffer, .version = version, .value = -1};
}

static void reads(struct program *q, int buffer, int version) { add_use(q, USE_LOAD, 0, buffer, version); }
static void writes(struct program *q, int buffer, int version) { add_use(q, USE_STORE, 0, buffer, version); }

static int place_of(const struct bench *b, int root)
{
    for (int i = 0; i < b->plan.programs; i++)
        if (b->plan.program[i].root == root) return i;
    ck_abort_msg("no program has root %d", root);
    return -1;
}

static void order(struct bench *b) { ck_assert_msg(plan_order(&b->plan) == CODA_OK, "%s", coda_error()); }

START_TEST(readers_come_after_writers)
{
    struct bench b;
    bench_init(&b, 1);
    reads(add_program(&b, 1), 0, 0);
    writes(add_program(&b, 2), 0, 0);
    order(&b);
    ck_assert_int_lt(place_of(&b, 2), place_of(&b, 1));
    arena_free(&b.plan.arena);
}
END_TEST

/* A state that is overwritten: whoever reads what was there runs first, whatever the roots say. */
START_TEST(overwriting_waits_for_readers)
{
    struct bench b;
    bench_init(&b, 2);
    writes(add_program(&b, 1), 0, 1);
    reads(add_program(&b, 8), 0, 0);
    reads(add_program(&b, 9), 0, 0);
    struct program *after = add_program(&b, 0);
    reads(after, 0, 1), writes(after, 1, 0);
    order(&b);
    ck_assert_int_lt(place_of(&b, 8), place_of(&b, 1));
    ck_assert_int_lt(place_of(&b, 9), place_of(&b, 1));
    ck_assert_int_lt(place_of(&b, 1), place_of(&b, 0));
    arena_free(&b.plan.arena);
}
END_TEST

/* Appending and adding write, too; a version that nobody reads still orders its writers. */
START_TEST(every_kind_of_writing_counts)
{
    static const unsigned effects[] = {EFFECT_WRITE, EFFECT_APPEND, EFFECT_ADD, EFFECT_READ | EFFECT_WRITE};
    for (int i = 0; i < ARRAY_SIZE(effects); i++) {
        struct bench b;
        bench_init(&b, 1);
        add_use(add_program(&b, 1), USE_STORE, effects[i], 0, 2);
        add_use(add_program(&b, 2), USE_STORE, effects[i], 0, 1);
        reads(add_program(&b, 3), 0, 0);
        order(&b);
        ck_assert(place_of(&b, 3) == 0 && place_of(&b, 2) == 1 && place_of(&b, 1) == 2);
        arena_free(&b.plan.arena);
    }
}
END_TEST

/* In place: a program reads a version and writes the next one, and does not wait for itself. */
START_TEST(in_place_is_no_circle)
{
    struct bench b;
    bench_init(&b, 1);
    for (int v = 2; v >= 0; v--) {
        struct program *q = add_program(&b, 10 - v);
        reads(q, 0, v), writes(q, 0, v + 1);
    }
    order(&b);
    for (int v = 0; v < 3; v++) ck_assert_int_eq(place_of(&b, 10 - v), v);
    arena_free(&b.plan.arena);
}
END_TEST

/* ---- By memory ---- */

/* Chunks: each makes a large buffer, and another program reads it, whose root comes after all of these. */
static void add_chunks(struct bench *b, int chunks, int64_t bytes)
{
    bench_init(b, chunks);
    for (int i = 0; i < chunks; i++) {
        b->buffer[i] = (struct buffer){.space = SPACE_WORK, .bytes = bytes};
        writes(add_program(b, 1 + i), i, 0);
    }
    for (int i = 0; i < chunks; i++) reads(add_program(b, 101 + i), i, 0);
}

START_TEST(a_chunk_dies_before_the_next_one)
{
    enum { CHUNKS = 6 };
    for (int by_size = 0; by_size < 2; by_size++) {
        struct bench b;
        add_chunks(&b, CHUNKS, 1 << 20);
        b.plan.by_size = by_size;
        order(&b);
        ck_assert(b.plan.rearranged == by_size);
        for (int i = 0; i < CHUNKS; i++) {
            ck_assert_int_eq(place_of(&b, 1 + i), by_size ? 2 * i : i);
            ck_assert_int_eq(place_of(&b, 101 + i), by_size ? 2 * i + 1 : CHUNKS + i);
        }
        arena_free(&b.plan.arena);
    }
}
END_TEST

/* It is the graph's order where that keeps no more, or little more. */
START_TEST(little_memory_moves_nothing)
{
    struct bench b;
    add_chunks(&b, 4, 1 << 10);
    b.buffer[4] = (struct buffer){.space = SPACE_WORK, .bytes = 1 << 20}; /* next to what it keeps */
    b.plan.buffers = 5;
    writes(add_program(&b, 0), 4, 0);
    reads(add_program(&b, 200), 4, 0);
    b.plan.by_size = true;
    order(&b);
    ck_assert(!b.plan.rearranged);
    for (int i = 1; i < b.plan.programs; i++)
        ck_assert_int_lt(b.plan.program[i - 1].root, b.plan.program[i].root);
    arena_free(&b.plan.arena);
}
END_TEST

START_TEST(circles_are_refused)
{
    struct bench b;
    bench_init(&b, 2);
    struct program *p = add_program(&b, 1), *q = add_program(&b, 2);
    reads(p, 0, 0), writes(p, 1, 0);
    reads(q, 1, 0), writes(q, 0, 0);
    ck_assert_int_eq(plan_order(&b.plan), CODA_E_UNSUPPORTED);
    ck_assert_str_eq(coda_error(), "plan: programs 0..2 wait for each other");
    arena_free(&b.plan.arena);
}
END_TEST

/* ---- Random ---- */

/* A program as it may stand in a sequence: it reads what is there, and writes new versions. */
static void random_program(struct bench *b, struct random *r, int root)
{
    struct program *q = add_program(b, root);
    bool touched[MOST_BUFFERS] = {false};
    for (int i = 0; i < 3; i++) {
        int buffer = (int)random_below(r, b->plan.buffers);
        bool write = random_chance(r, 40), read = !write || random_chance(r, 50);
        if (touched[buffer]) continue;
        touched[buffer] = true;
        if (read) reads(q, buffer, b->version[buffer]);
        if (write) writes(q, buffer, ++b->version[buffer]);
    }
}

static bool is_writer(const struct tensor_use *u) { return use_effect(u) != EFFECT_READ; }

/* Must who uses `u` run before who uses `v`? */
static bool precedes(const struct tensor_use *u, const struct tensor_use *v)
{
    if (u->buffer != v->buffer) return false;
    if (u->version != v->version) return u->version < v->version && (is_writer(u) || is_writer(v));
    return is_writer(u) && !is_writer(v);
}

static bool may_follow(const struct program *first, const struct program *second)
{
    for (int i = 0; i < second->ports; i++)
        for (int j = 0; j < first->ports; j++)
            if (precedes(&second->port[i], &first->port[j])) return false;
    return true;
}

static void shuffle(struct random *r, int *x, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)random_below(r, i + 1), t = x[i];
        x[i] = x[j], x[j] = t;
    }
}

START_TEST(random_sequences_keep_their_effects)
{
    struct random r = {random_seed() + (uint64_t)_i};
    static struct bench b;
    int root[MOST_PROGRAMS], n = 2 + (int)random_below(&r, MOST_PROGRAMS - 2);
    for (int i = 0; i < n; i++) root[i] = i;
    shuffle(&r, root, n);
    bench_init(&b, 1 + (int)random_below(&r, MOST_BUFFERS));
    for (int i = 0; i < n; i++) random_program(&b, &r, root[i]);
    order(&b);
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            ck_assert_msg(may_follow(&b.plan.program[i], &b.plan.program[j]), "seed %llu: roots %d and %d",
                          (unsigned long long)random_seed(), b.plan.program[i].root, b.plan.program[j].root);
    arena_free(&b.plan.arena);
}
END_TEST

TESTS(order, ONE(readers_come_after_writers), ONE(overwriting_waits_for_readers),
      ONE(every_kind_of_writing_counts), ONE(in_place_is_no_circle), ONE(circles_are_refused),
      ONE(a_chunk_dies_before_the_next_one), ONE(little_memory_moves_nothing),
      EACH(random_sequences_keep_their_effects, 200));
