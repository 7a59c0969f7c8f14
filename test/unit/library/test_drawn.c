/* test_drawn.c -- random graphs draw each operation, map, reduction and dtype, but for those of drawn.def. */
#include "util_random.h"

#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* Under a sanitizer these graphs say nothing that the others do not. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif
enum { GRAPHS = 4000, MOST = 256 };

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

static void expect_all(void)
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
static void count_node(const struct node *n)
{
    struct drawn *of[] = {find("op", op_info[n->op].text), find("dtype", dtype_name(n->type.dtype)),
                          n->prim ? find("prim", n->prim->name) : NULL};
    for (int i = 0; i < ARRAY_SIZE(of); i++)
        if (of[i]) of[i]->times++;
}

static const struct excuse *excuse_of(const struct drawn *d)
{
    for (int i = 0; i < ARRAY_SIZE(excuses); i++)
        if (!strcmp(excuses[i].kind, d->kind) && !strcmp(excuses[i].name, d->name)) return &excuses[i];
    return NULL;
}

START_TEST(all_is_drawn_or_excused)
{
    if (SANITIZED) return;
    expect_all();
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + GRAPHS; s++) {
        struct random_options o = {.patterns = 8, .most_dim = 8, .states = s % 2, .wide = s % 3 == 0};
        graph *g = random_graph(s, &o);
        for (int i = 0; i < g->nodes; i++) count_node(&g->node[i]);
        graph_free(g);
    }
    for (int i = 0; i < count; i++) {
        const struct excuse *e = excuse_of(&all[i]);
        ck_assert_msg(e || all[i].times,
                      "%s %s: no random graph of %d draws it, nor does drawn.def say why not", all[i].kind,
                      all[i].name, GRAPHS);
        ck_assert_msg(!e || !all[i].times, "%s %s: drawn %d times, though drawn.def says: %s", all[i].kind,
                      all[i].name, all[i].times, e ? e->why : "");
    }
}
END_TEST

START_TEST(excuses_are_of_what_there_is)
{
    expect_all();
    for (int i = 0; i < ARRAY_SIZE(excuses); i++) {
        ck_assert_msg(find(excuses[i].kind, excuses[i].name), "drawn.def has %s %s, which is gone",
                      excuses[i].kind, excuses[i].name);
        ck_assert_uint_gt(strlen(excuses[i].why), 20);
    }
}
END_TEST

TESTS(drawn, ONE(all_is_drawn_or_excused), ONE(excuses_are_of_what_there_is));
