/*
 * beside.c -- which exchanges between ranks other programs may run beside: those behind which programs come
 * that do not wait for them. They have a stream of their own, one for all of a call, as each waits for the
 * one before; so exchanges of a second group would want another one, and all stay where they are.
 *
 * From the last exchange to the first: a later one that is on that stream keeps nobody else waiting.
 */
#include "own.h"
#include "plan.h"

#include <string.h>

static bool is_exchange(const struct plan *p, int i)
{
    return p->program[i].own == &own_exchange && !p->program[i].prepare;
}

static int group_of(const struct program *q)
{
    const struct exchange_spec *s = q->spec;
    return s->use[ALL_REDUCE_GROUP].buffer;
}

bool plan_has_one_group(const struct plan *p)
{
    int group = -1;
    for (int i = 0; i < p->programs; i++) {
        if (!is_exchange(p, i)) continue;
        if (group >= 0 && group_of(&p->program[i]) != group) return false;
        group = group_of(&p->program[i]);
    }
    return group >= 0;
}

/* The first program of the call's stream that waits for an exchange, or the end; 0: it is the next one. */
static int first_behind(const struct plan *p, int exchange, bool *behind)
{
    int between = 0;
    memset(behind, 0, sizeof *behind * (size_t)p->programs);
    behind[exchange] = true;
    for (int i = exchange + 1; i < p->programs; i++) {
        const struct waits *w = &p->waits[i];
        for (int k = 0; k < w->n; k++) behind[i] = behind[i] || behind[w->on[k]];
        if (p->beside[i]) continue;
        if (behind[i]) return between ? i : 0;
        between++;
    }
    return between ? p->programs : 0;
}

coda_status plan_find_beside(struct plan *p)
{
    if (!p->overlaps || !plan_has_one_group(p)) return CODA_OK;
    coda_status status = plan_find_order(p);
    bool *behind = ARENA_NEW(&p->arena, bool, p->programs + 1);
    int *beside = ARENA_NEW(&p->arena, int, p->programs + 1);
    if (!behind || !beside) return fail(CODA_E_MEMORY, "out of memory for %d programs", p->programs);
    p->beside = beside;
    for (int i = p->programs - 1; i >= 0 && !status; i--)
        if (is_exchange(p, i)) beside[i] = first_behind(p, i, behind);
    return status;
}
