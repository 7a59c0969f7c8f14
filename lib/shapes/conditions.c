/* conditions.c -- see conditions.h. */
#include "conditions.h"

#include <stdlib.h>
#include <string.h>

/* A question of numbers that differ among the shapes of a form, and its answer. */
struct condition {
    enum guard_kind kind;
    bool answer;
    struct skeleton_number a, b;
};

void conditions_free(struct conditions *c)
{
    free(c->all);
    *c = (struct conditions){0};
}

size_t conditions_bytes(const struct conditions *c) { return sizeof *c->all * (size_t)c->n; }

bool conditions_hold(const struct conditions *c, const int64_t *at)
{
    uint64_t term[SKELETON_POINTS];
    bool hold = true;
    skeleton_terms(c->variables, c->points, at, term);
    for (int i = 0; i < c->n && hold; i++) {
        const struct condition *q = &c->all[i];
        hold = guard_answer(q->kind, skeleton_value(&q->a, term), skeleton_value(&q->b, term)) == q->answer;
    }
    return hold;
}

/* ---- Finding them ---- */

static bool same_questions(const struct guards *a, const struct guards *b)
{
    bool same = a->notes == b->notes && !a->failed && !b->failed;
    for (int i = 0; i < a->notes && same; i++)
        same = a->note[i].kind == b->note[i].kind && a->note[i].answer == b->note[i].answer;
    return same;
}

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
static bool is_proved(const struct conditions *c, const struct condition *q, const int64_t *a,
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
static bool add(struct conditions *c, const struct condition *q)
{
    for (int i = 0; i < c->n; i++)
        if (!memcmp(&c->all[i], q, sizeof *q)) return true; /* NOLINT: padding is 0 */
    struct condition *wider = realloc(c->all, sizeof *wider * ((size_t)c->n + 1));
    if (!wider) return false;
    c->all = wider;
    memcpy(&wider[c->n++], q, sizeof *q);
    return true;
}

enum finding conditions_find(struct conditions *c, const struct guards *const *asked, int variables,
                             int points, int64_t (*proof)[SKELETON_VARIABLES], int proofs)
{
    enum { MOST_PROOFS = 4 };
    int64_t a[SKELETON_POINTS + MOST_PROOFS], b[SKELETON_POINTS + MOST_PROOFS];
    c->n = 0, c->variables = variables, c->points = points;
    for (int k = 1; k < points + proofs; k++)
        if (!same_questions(asked[0], asked[k])) return HAS_NONE;
    for (int i = 0; i < asked[0]->notes; i++) {
        struct condition q;
        if (!numbers_of(asked, points + proofs, i, a, b)) continue;
        memset(&q, 0, sizeof q); /* padding too */
        q.kind = asked[0]->note[i].kind, q.answer = asked[0]->note[i].answer;
        q.a = skeleton_number(variables, points, a);
        q.b = skeleton_number(variables, points, b);
        if (!is_proved(c, &q, a + points, b + points, proof, proofs)) return HAS_HIGHER_DEGREE;
        if (!add(c, &q)) return HAS_NONE;
    }
    return FOUND;
}
