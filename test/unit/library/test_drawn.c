/*
 * test_drawn.c -- random graphs draw each operation, map, reduction and dtype, and their plans each main
 * loop, attention kernel and operation with a kernel of its own, but for those of drawn.def.
 */
#include "attention_kernel.h"
#include "executable.h"
#include "mainloop.h"
#include "util_random.h"
#include "util_scale.h"

#include <inttypes.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { GRAPHS = 40000, PLANS = 16000, MOST = 256 };

struct drawn {
    const char *kind, *name;
    int times;
};

static struct drawn all[MOST];
static int count;

static const struct excuse {
    const char *kind, *name, *why;
} excuses[] = {
#define NOT_DRAWN(kind, name, why) {#kind, #name, why},
#include "drawn.def"
#undef NOT_DRAWN
};

static void expect(const char *kind, const char *name)
{
    ck_assert_int_lt(count, MOST);
    all[count++] = (struct drawn){kind, name, 0};
}

/* By the index of struct attention_kernel. */
static const char *const attention_names[] = {
#define X(NAME, name) #name,
    ATTENTION_KERNELS(X)
#undef X
};

static void expect_kernels(void)
{
    for (int i = 0; mainloops[i]; i++) expect("mainloop", mainloops[i]->name);
    for (int i = 0; i < ATTENTION_BY_COUNT; i++) expect("attention", attention_names[i]);
#define X(NAME, name) expect("own", #name);
    OWN_KERNELS(X)
#undef X
}

static void expect_words(void)
{
    for (int i = 0; i < OP_COUNT; i++) expect("op", op_info[i].text);
    for (int i = 0; i < prim_count; i++) expect("prim", prim_table[i].name);
#define DTYPE(NAME, name, ...) expect("dtype", #name);
#include "dtypes.def"
#undef DTYPE
}

static struct drawn *find(const char *kind, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(all[i].kind, kind) && !strcmp(all[i].name, name)) return &all[i];
    return NULL;
}

/* A map that a graph defines is in no list. */
static void count_one(const char *kind, const char *name)
{
    struct drawn *d = find(kind, name);
    if (d) d->times++;
}

static void count_node(const struct node *n)
{
    count_one("op", op_info[n->op].text), count_one("dtype", dtype_name(n->type.dtype));
    if (n->prim) count_one("prim", n->prim->name);
}

static void count_program(const struct program *q, const struct schedule *s)
{
    if (q->kind == PROGRAM_GEMM && s->tile.mainloop) count_one("mainloop", s->tile.mainloop->name);
    if (q->own) count_one("own", q->own->name);
    if (s->attention) count_one("attention", attention_names[s->attention->index]);
}

static const struct excuse *excuse_of(const struct drawn *d)
{
    for (int i = 0; i < ARRAY_SIZE(excuses); i++)
        if (!strcmp(excuses[i].kind, d->kind) && !strcmp(excuses[i].name, d->name)) return &excuses[i];
    return NULL;
}

static void expect_drawn(const char *by, int graphs)
{
    for (int i = 0; i < count; i++) {
        const struct excuse *e = excuse_of(&all[i]);
        ck_assert_msg(e || all[i].times, "%s %s: no %s of %d draws it, nor does drawn.def say why not",
                      all[i].kind, all[i].name, by, graphs);
        ck_assert_msg(!e || !all[i].times, "%s %s: drawn %d times, though drawn.def says: %s", all[i].kind,
                      all[i].name, all[i].times, e ? e->why : "");
    }
}

static bool misses_some(void)
{
    bool misses = false;
    for (int i = 0; i < count; i++) misses = misses || (!all[i].times && !excuse_of(&all[i]));
    return misses;
}

/* Graphs are drawn until each was there: the rarest are in one of 500. */
START_TEST(all_is_drawn_or_excused)
{
    if (SANITIZED) return; /* these graphs say nothing there that the others do not */
    count = 0;
    expect_words();
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + GRAPHS && misses_some(); s++) {
        struct random_options o = {.patterns = 8, .most_dim = 8, .states = s % 2, .wide = s % 3 == 0};
        graph *g = random_graph(s, &o);
        ck_assert_msg(!coda_graph_status(g), "seed %" PRIu64 ": %s", s, coda_error());
        for (int i = 0; i < g->nodes; i++) count_node(&g->node[i]);
        graph_free(g);
    }
    expect_drawn("random graph", GRAPHS);
}
END_TEST

/* Plans are made until each was there, in turns for architectures with Hopper's features and without. */
START_TEST(all_kernels_are_planned_or_excused)
{
    if (SANITIZED) return;
    count = 0;
    expect_kernels();
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + PLANS && misses_some(); s++) {
        const struct random_options o = {.states = s % 2, .most_dim = s % 3 ? 0 : 256};
        graph *g = random_graph(s, &o);
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan *p = NULL;
        opt.device = CODA_DEVICE_NONE, opt.flags = CODA_PLAN_ONLY, opt.arch = s % 4 ? "sm_90a" : "sm_80";
        ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
        for (int i = 0; i < p->plan.programs; i++) count_program(&p->plan.program[i], &p->plan.schedule[i]);
        coda_plan_free(p), graph_free(g);
    }
    expect_drawn("plan of a random graph", PLANS);
}
END_TEST

START_TEST(excuses_are_of_what_there_is)
{
    count = 0;
    expect_words(), expect_kernels();
    for (int i = 0; i < ARRAY_SIZE(excuses); i++) {
        ck_assert_msg(find(excuses[i].kind, excuses[i].name), "drawn.def has %s %s, which is gone",
                      excuses[i].kind, excuses[i].name);
        ck_assert_uint_gt(strlen(excuses[i].why), 20);
    }
}
END_TEST

TESTS(drawn, ONE(all_is_drawn_or_excused), ONE(all_kernels_are_planned_or_excused),
      ONE(excuses_are_of_what_there_is));
