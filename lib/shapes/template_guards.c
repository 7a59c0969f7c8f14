/* template_guards.c -- see template_guards.h. */
#include "template_guards.h"

#include <stdlib.h>
#include <string.h>

/* A question of numbers that differ among the shapes of a template, and its answer. */
struct template_guard {
    enum guard_kind kind;
    bool answer;
    struct skeleton_number a, b;
};

void template_guards_free(struct template_guards *c)
{
    free(c->all);
    *c = (struct template_guards){0};
}

size_t template_guards_bytes(const struct template_guards *c) { return sizeof *c->all * (size_t)c->n; }

bool template_guards_hold(const struct template_guards *c, const int64_t *at, bool approximate)
{
    uint64_t term[SKELETON_POINTS];
    bool hold = true;
    skeleton_terms(c->variables, c->points, at, term);
    for (int i = 0; i < c->n && hold; i++) {
        const struct template_guard *q = &c->all[i];
        if (approximate && q->kind == GUARD_EQUAL && !q->answer) continue;
        hold = guard_answer(q->kind, skeleton_value(&q->a, term), skeleton_value(&q->b, term)) == q->answer;
    }
    return hold;
}

/* ---- Finding them ---- */

/* The numbers of question i of each shape; false: they are the same in all. */
static bool numbers_of(const struct guards *const *asked, int shapes, int i, int64_t *a, int64_t *b)
{
    bool varies = false;
    for (int k = 0; k < shapes; k++) {
        const struct guard *g = &asked[k]->note[i];
        a[k] = g->a, b[k] = g->b;
        varies = varies || a[k] != a[0] || b[k] != b[0];
    }
    return varies;
}

/* Are the numbers at the proofs what the polynomials say? */
static bool is_proved(const struct template_guards *c, const struct template_guard *q, const int64_t *a,
                      const int64_t *b, int64_t (*proof)[SKELETON_VARIABLES], int proofs)
{
    bool good = true;
    for (int k = 0; k < proofs && good; k++) {
        uint64_t term[SKELETON_POINTS];
        skeleton_terms(c->variables, c->points, proof[k], term);
        good = skeleton_value(&q->a, term) == a[k] && skeleton_value(&q->b, term) == b[k];
    }
    return good;
}

/* Adds it, unless it is there; false: out of memory. */
static bool add(struct template_guards *c, const struct template_guard *q)
{
    for (int i = 0; i < c->n; i++)
        if (!memcmp(&c->all[i], q, sizeof *q)) return true; /* NOLINT: padding is 0 */
    struct template_guard *wider = realloc(c->all, sizeof *wider * ((size_t)c->n + 1));
    if (!wider) return false;
    c->all = wider;
    memcpy(&wider[c->n++], q, sizeof *q);
    return true;
}

/* Is the answer the same everywhere, as the two differ by a number, or what varies is multiples? */
static bool is_constant(const struct template_guard *q)
{
    const int64_t *a = q->a.difference, *b = q->b.difference;
    bool same = !memcmp(a + 1, b + 1, sizeof q->a.difference - sizeof *a), multiples = q->b.terms == 1;
    for (int i = 1; i < q->a.terms && multiples; i++) multiples = a[i] % *b == 0;
    return q->kind == GUARD_MULTIPLE ? multiples : same;
}

enum finding template_guards_find(struct template_guards *c, const struct guards *const *asked, int variables,
                                  int points, int64_t (*proof)[SKELETON_VARIABLES], int proofs)
{
    enum { MOST_PROOFS = 4 };
    int64_t a[SKELETON_POINTS + MOST_PROOFS], b[SKELETON_POINTS + MOST_PROOFS];
    c->n = 0, c->variables = variables, c->points = points;
    for (int k = 1; k < points + proofs; k++)
        if (!guards_same(asked[0], asked[k])) return k < points ? HAS_NONE : HAS_HIGHER_DEGREE;
    for (int i = 0; i < asked[0]->notes; i++) {
        struct template_guard q;
        if (!numbers_of(asked, points + proofs, i, a, b)) continue;
        memset(&q, 0, sizeof q); /* padding too */
        q.kind = asked[0]->note[i].kind, q.answer = asked[0]->note[i].answer;
        q.a = skeleton_number(variables, points, a);
        q.b = skeleton_number(variables, points, b);
        if (!is_proved(c, &q, a + points, b + points, proof, proofs)) return HAS_HIGHER_DEGREE;
        if (!is_constant(&q) && !add(c, &q)) return HAS_NONE;
    }
    return FOUND;
}
