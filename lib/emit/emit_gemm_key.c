/*
 * emit_gemm_key.c -- what the text of a product depends on: its program but for what launches pass.
 *
 * A product of one batch whose tile is for any number of rows passes that number, how many states tiles have
 * left of a row, the rows of tables, and what positions are counted by. Of the rows its text then says
 * whether there is more than one, and what the schedule made of them, which all is in the key. A field that
 * is forgotten in blank_program makes keys differ where texts are equal; one that is blanked there may not be
 * printed: test_known.c compares.
 */
#include "emit.h"
#include "emit_epilogue.h"
#include "emit_gemm.h"
#include "mainloop.h"

#include <string.h>

/* ... and whether a row's position is its number. */
static bool blank_program(struct program *blank, struct arena *a, const struct program *p)
{
    *blank = *p;
    blank->port = ARENA_NEW(a, struct tensor_use, p->ports + 1);
    if (!blank->port) return false;
    memcpy(blank->port, p->port, sizeof *p->port * (size_t)p->ports);
    blank->dim[1] = MIN(p->dim[1], 2);
    blank->a.batch = blank->b.batch = 0;
    blank->pairing.period = printer_period(p) > 0;
    for (int i = 0; i < p->ports; i++) {
        blank->port[i].stride[0] = 0;
        if (printer_passes_table(&p->port[i])) blank->port[i].table_rows = 0;
    }
    return true;
}

/* What identities leave out, as schedules decide it; what a kernel merges is passed. */
static bool add_states(struct identity *id, struct arena *a, const struct program *p)
{
    bool good = true;
    for (int i = 0; i < p->ports && good; i++)
        if (p->port[i].role == USE_PARTIAL_STORE)
            good = identity_add(id, a, &p->port[i].blocks, sizeof p->port[i].blocks);
    return good;
}

static bool add_schedule(struct identity *id, struct arena *a, const struct program *p,
                         const struct schedule *s)
{
    const struct epilogue_layout *l = &s->layout;
    const int64_t numbers[] = {s->shared_bytes, s->threads,   s->cluster,      s->persistent,   s->early,
                               s->pdl,          l->unit,      l->row_team,     l->a_rows,       l->states,
                               l->splits_heads, l->maps_tail, l->steps_evenly, l->state_columns};
    size_t steps = (size_t)p->steps;
    return identity_add(id, a, &s->tile, sizeof s->tile) && identity_add(id, a, numbers, sizeof numbers) &&
           identity_add(id, a, l->level, steps * sizeof *l->level) &&
           identity_add(id, a, l->crosses, steps * sizeof *l->crosses) &&
           identity_add(id, a, l->moved, steps * sizeof *l->moved) &&
           identity_add(id, a, &l->stores, sizeof l->stores) &&
           identity_add(id, a, &l->loads, sizeof l->loads);
}

bool emit_gemm_key(struct identity *out, struct arena *a, const struct plan *plan, const struct program *p,
                   const struct schedule *s)
{
    const struct tile *t = &s->tile;
    bool any_rows = t->most_rows || t->mainloop == &mainloop_skinny;
    struct program blank;
    if (!any_rows || p->dim[0] != 1 || p->sample || !s->grid) return false;
    return blank_program(&blank, a, p) && identity_of(out, a, plan, &blank) && add_states(out, a, p) &&
           add_schedule(out, a, p, s);
}
