/* guards.c -- see guards.h. */
#include "guards.h"

#include "base.h"

#include <stdlib.h>

bool guard_answer(enum guard_kind kind, int64_t a, int64_t b)
{
    return kind == GUARD_EQUAL ? a == b : a >= b;
}

void guards_free(struct guards *g)
{
    free(g->note);
    *g = (struct guards){0};
}

static bool has_room(struct guards *g)
{
    if (g->notes < g->capacity) return true;
    int wider = MAX(64, 2 * g->capacity);
    struct guard *note = realloc(g->note, sizeof *note * (size_t)wider);
    if (!note) return false;
    g->note = note, g->capacity = wider;
    return true;
}

static bool ask(struct guards *to, enum guard_kind kind, int64_t a, int64_t b)
{
    bool answer = guard_answer(kind, a, b);
    if (!to || to->failed) return answer;
    to->failed = !has_room(to);
    if (!to->failed) to->note[to->notes++] = (struct guard){kind, answer, a, b};
    return answer;
}

bool extents_equal(struct guards *to, int64_t a, int64_t b) { return ask(to, GUARD_EQUAL, a, b); }
bool extent_is_one(struct guards *to, int64_t extent) { return ask(to, GUARD_EQUAL, extent, 1); }
bool extent_reaches(struct guards *to, int64_t extent, int64_t least)
{
    return ask(to, GUARD_REACHES, extent, least);
}

bool extents_all_equal(struct guards *to, const int64_t *a, const int64_t *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!extents_equal(to, a[i], b[i])) return false;
    return true;
}
