/* guards.c -- see guards.h. */
#include "guards.h"

#include "base.h"

#include <stdlib.h>

static _Thread_local struct guards *current;
static _Thread_local const struct guards *followed;

bool guard_answer(enum guard_kind kind, int64_t a, int64_t b)
{
    switch (kind) {
    case GUARD_EQUAL: return a == b;
    case GUARD_REACHES: return a >= b;
    case GUARD_MULTIPLE: return b ? a % b == 0 : a == 0;
    }
    return false;
}

struct guards *guards_note(struct guards *to)
{
    struct guards *before = current;
    current = to;
    return before;
}

int guards_noted(void) { return current ? current->notes : 0; }

void guards_take_back(int notes)
{
    if (current) current->notes = MIN(current->notes, notes);
}

void guards_free(struct guards *g)
{
    free(g->note);
    *g = (struct guards){0};
}

bool guards_same(const struct guards *a, const struct guards *b)
{
    bool same = a->notes == b->notes && !a->failed && !b->failed;
    for (int i = 0; i < a->notes && same; i++)
        same = a->note[i].kind == b->note[i].kind && a->note[i].answer == b->note[i].answer;
    return same;
}

uint64_t guards_hash(const struct guards *g)
{
    uint64_t h = (uint64_t)g->notes;
    for (int i = 0; i < g->notes; i++)
        h = (h ^ (2 * (uint64_t)g->note[i].kind + g->note[i].answer)) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return h;
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

void guards_follow(const struct guards *of) { followed = of; }

/* The answer to question i, of extents as they are, or as they are where it was asked before. */
static bool follow(int i, enum guard_kind kind, int64_t a, bool answer)
{
    const struct guard *g = i < followed->notes ? &followed->note[i] : NULL;
    bool chance = kind == GUARD_EQUAL && answer && a > 1;
    if (g && g->kind == kind && (g->answer == answer || chance)) return g->answer;
    followed = NULL;
    return answer;
}

static bool ask(enum guard_kind kind, int64_t a, int64_t b)
{
    struct guards *to = current;
    bool answer = guard_answer(kind, a, b);
    if (!to || to->failed) return answer;
    if (followed) answer = follow(to->notes, kind, a, answer);
    to->failed = !has_room(to);
    if (!to->failed) to->note[to->notes++] = (struct guard){kind, answer, a, b};
    return answer;
}

bool extents_equal(int64_t a, int64_t b) { return ask(GUARD_EQUAL, a, b); }
bool extent_is_one(int64_t extent) { return ask(GUARD_EQUAL, extent, 1); }
bool extent_reaches(int64_t extent, int64_t least) { return ask(GUARD_REACHES, extent, least); }
bool extent_is_multiple(int64_t extent, int64_t of) { return ask(GUARD_MULTIPLE, extent, of); }
int64_t extent_max(int64_t a, int64_t b) { return extent_reaches(a, b) ? a : b; }

bool extents_all_equal(const int64_t *a, const int64_t *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!extents_equal(a[i], b[i])) return false;
    return true;
}
