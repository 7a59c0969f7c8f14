/*
 * test_waits.c -- a program waits for what it must come after, no less and no more: compared with every pair
 * of programs that touch one tensor, or bytes of the workspace that two tensors share.
 */
#include "pipeline.h"
#include "rewrite.h"
#include "util_random.h"
#include "util_scale.h"

#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST = 512 };

/* ---- Against all pairs ---- */

struct pairs {
    const struct plan *p;
    bool after[MOST][MOST]; /* transitively, by plan.waits */
    int by_version, by_memory, several;
};

static bool writes(const struct tensor_use *u) { return use_effect(u) != EFFECT_READ; }

static bool share_bytes(const struct buffer *a, const struct buffer *b)
{
    return a->space == SPACE_WORK && b->space == SPACE_WORK && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* 0: neither has to come first; 1: by the version of a tensor; 2: by its place. */
static int conflict(const struct plan *p, const struct tensor_use *u, const struct tensor_use *v)
{
    if (!writes(u) && !writes(v)) return 0;
    if (u->buffer != v->buffer) return share_bytes(&p->buffer[u->buffer], &p->buffer[v->buffer]) ? 2 : 0;
    if (use_effect(u) == EFFECT_ADD || use_effect(v) == EFFECT_ADD) return 1; /* one sum after the other */
    return u->version != v->version || writes(u) != writes(v);
}

static int must_follow(const struct plan *p, int i, int d)
{
    const struct tensor_use *u, *v;
    int why = 0;
    for (int a = 0; (u = program_use(&p->program[d], a)); a++)
        for (int b = 0; (v = program_use(&p->program[i], b)); b++) why |= conflict(p, u, v);
    return why;
}

static void close_over(struct pairs *all, int i)
{
    const struct waits *w = &all->p->waits[i];
    memset(all->after[i], 0, sizeof all->after[i]);
    for (int k = 0; k < w->n; k++) {
        ck_assert(w->on[k] >= 0 && w->on[k] < i && (!k || w->on[k] < w->on[k - 1]));
        all->after[i][w->on[k]] = true;
        for (int d = 0; d < w->on[k]; d++) all->after[i][d] |= all->after[w->on[k]][d];
    }
}

static void check(struct pairs *all, uint64_t seed)
{
    const struct plan *p = all->p;
    ck_assert_int_le(p->programs, MOST);
    for (int i = 0; i < p->programs; i++) {
        const struct waits *w = &p->waits[i];
        close_over(all, i);
        for (int d = 0; d < i; d++) {
            bool same = p->program[d].prepare == p->program[i].prepare;
            ck_assert_msg(same || !all->after[i][d], "seed %llu: @%d waits for @%d of another call",
                          (unsigned long long)seed, i, d);
            ck_assert_msg(!same || all->after[i][d] || !must_follow(p, i, d),
                          "seed %llu: @%d does not wait for @%d", (unsigned long long)seed, i, d);
        }
        for (int k = 0; k < w->n; k++) {
            int why = must_follow(p, i, w->on[k]);
            bool implied = false;
            for (int o = 0; o < w->n; o++) implied = implied || all->after[w->on[o]][w->on[k]];
            ck_assert_msg(why && !implied, "seed %llu: @%d need not say that it waits for @%d",
                          (unsigned long long)seed, i, w->on[k]);
            all->by_version += why & 1, all->by_memory += why == 2;
        }
        all->several += w->n > 1;
    }
}

START_TEST(as_all_pairs_say)
{
    static struct pairs all;
    uint64_t seed = random_seed();
    int graphs = scaled(400);
    for (int i = 0; i < graphs; i++) {
        static const coda_fold folds[] = {CODA_FOLD_NONE, CODA_FOLD_COPY, CODA_FOLD_IN_PLACE};
        const struct random_options ro = {.patterns = 4 + i % 20, .states = i % 2};
        graph *g = random_graph(seed + (uint64_t)i, &ro);
        struct rewrite_options rewriting = {.fuse = i % 3 > 0,
                                            .fold = i % 3 ? folds[i / 3 % 3] : CODA_FOLD_NONE};
        struct plan_options o = {.fuse = rewriting.fuse,
                                 .fold = rewriting.fold,
                                 .cublaslt = i % 5 == 0,
                                 .target = target_rows[TARGET_H200]};
        struct rewrite_log log = {0};
        graph *r = rewrite(g, &rewriting, &log);
        struct plan p;
        rewrite_log_free(&log);
        ck_assert_msg(plan_build(&p, r, &o) == CODA_OK, "%s", coda_error());
        all.p = &p;
        check(&all, seed + (uint64_t)i);
        plan_free(&p);
        graph_free(r);
        graph_free(g);
    }
    bool seen = all.by_version > graphs && all.by_memory > graphs / 4 && all.several > graphs / 4;
    ck_assert_msg(seen || SANITIZED, "%d by version, %d by memory, %d with several", all.by_version,
                  all.by_memory, all.several); /* of a sanitizer's few graphs nothing follows */
}
END_TEST

/* ---- Plans by hand ---- */

struct bench {
    struct plan plan;
    struct buffer *buffer;
    struct program *program;
    struct tensor_use *use; /* two of each program */
};

static void bench_init(struct bench *b, int programs, int buffers)
{
    *b = (struct bench){.buffer = calloc((size_t)buffers, sizeof *b->buffer),
                        .program = calloc((size_t)programs, sizeof *b->program),
                        .use = calloc(2 * (size_t)programs, sizeof *b->use)};
    b->plan.program = b->program, b->plan.programs = programs;
    b->plan.buffer = b->buffer, b->plan.buffers = buffers;
    for (int i = 0; i < programs; i++)
        b->program[i] = (struct program){.kind = PROGRAM_ROWS, .port = &b->use[2 * i]};
}

static void add_use(struct bench *b, int program, enum use_role role, int buffer)
{
    struct program *q = &b->program[program];
    q->port[q->ports++] = (struct tensor_use){.role = role, .buffer = buffer, .value = -1};
}

static void bench_free(struct bench *b)
{
    arena_free(&b->plan.arena);
    free(b->buffer), free(b->program), free(b->use);
}

/* Each program reads what the one before it has written, in two places that take turns. */
START_TEST(a_long_chain)
{
    enum { PROGRAMS = 9000 };
    struct bench b;
    bench_init(&b, PROGRAMS, PROGRAMS);
    for (int i = 0; i < PROGRAMS; i++) {
        b.buffer[i] = (struct buffer){.space = SPACE_WORK, .bytes = 256, .offset = i % 2 * 256};
        if (i) add_use(&b, i, USE_LOAD, i - 1);
        add_use(&b, i, USE_STORE, i);
    }
    ck_assert_int_eq(plan_find_waits(&b.plan), CODA_OK);
    for (int i = 0; i < PROGRAMS; i++) {
        const struct waits *w = &b.plan.waits[i];
        bool first = i % 4096 == 0; /* of a block: what an earlier one implies is not known there */
        ck_assert(w->n >= (i > 0) && w->n <= (i > 0) + (first && i > 1));
        ck_assert(!i || w->on[0] == i - 1);
    }
    bench_free(&b);
}
END_TEST

START_TEST(places_are_not_taken_early)
{
    for (int apart = 0; apart < 2; apart++) {
        struct bench b;
        bench_init(&b, 3, 2);
        b.buffer[0] = (struct buffer){.space = SPACE_WORK, .bytes = 512};
        b.buffer[1] = (struct buffer){.space = SPACE_WORK, .bytes = 256, .offset = apart ? 512 : 256};
        add_use(&b, 0, USE_STORE, 0), add_use(&b, 1, USE_STORE, 1), add_use(&b, 2, USE_LOAD, 0);
        ck_assert_int_eq(plan_find_waits(&b.plan), apart ? CODA_OK : CODA_E_INVALID);
        if (!apart)
            ck_assert_str_eq(coda_error(), "plan: @2 uses buffer 0, whose bytes another one has taken");
        bench_free(&b);
    }
}
END_TEST

/* What is added to one memory is added in the order of launches. */
START_TEST(sums_wait_for_each_other)
{
    struct bench b;
    bench_init(&b, 5, 1);
    b.buffer[0] = (struct buffer){.space = SPACE_WORK, .bytes = 256};
    for (int i = 0; i < 3; i++) add_use(&b, i, USE_STORE, 0);
    b.use[2].effect = b.use[4].effect = EFFECT_ADD;
    add_use(&b, 3, USE_LOAD, 0), add_use(&b, 4, USE_LOAD, 0);
    ck_assert_int_eq(plan_find_waits(&b.plan), CODA_OK);
    for (int i = 0; i < 5; i++) ck_assert_int_eq(b.plan.waits[i].n, i > 0);
    for (int i = 1; i < 5; i++) ck_assert_int_eq(b.plan.waits[i].on[0], MIN(i - 1, 2));
    bench_free(&b);
}
END_TEST

TESTS(waits, SECONDS(120), ONE(as_all_pairs_say), ONE(a_long_chain), ONE(places_are_not_taken_early),
      ONE(sums_wait_for_each_other));
