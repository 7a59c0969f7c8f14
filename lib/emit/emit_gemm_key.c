/*
 * emit_gemm_key.c -- what the text of a product depends on, but for what launches pass.
 *
 * A product of one batch whose tile is for any number of rows passes that number, how many states tiles have
 * left of a row, the rows of tables, and what positions are counted by. Its text then says whether there is
 * more than one row, whether positions are counted, and how. The key has that, and what the schedule made of
 * the rows. A number that a key leaves out may not be printed: test_kernel_table.c compares.
 *
 * Products of plans of one form (pipeline.h) differ in their rows alone, and what follows from them: their
 * traits are the tile, what the text says of the rows, and the comparisons by which emitters print one thing
 * or another. The layout of an epilogue follows from these. Texts of other programs depend on too much: they
 * are printed, and compared.
 */
#include "emit.h"
#include "emit_epilogue.h"
#include "mainloop.h"
#include "variants.h"

static bool add_rows(struct identity *id, struct arena *a, const struct program *p)
{
    const int64_t number[] = {p->dim[1] > 1, printer_period(p) > 0, pair_steps_evenly(p)};
    return identity_add(id, a, number, sizeof number);
}

/* ---- Of any plan ---- */

static bool blank_program(struct program *blank, struct arena *a, const struct program *p)
{
    if (!variants_blank(blank, a, p)) return false;
    blank->pairing.period = 0;
    for (int i = 0; i < p->ports; i++) {
        struct tensor_use *u = &blank->port[i];
        if (printer_passes_table(u)) u->table_rows = 0;
        if (u->role == USE_PARTIAL_LOAD) u->blocks = 0;
    }
    return true;
}

static bool add_schedule(struct identity *id, struct arena *a, const struct program *p,
                         const struct schedule *s)
{
    const struct epilogue_layout *l = &s->layout;
    const int64_t numbers[] = {s->shared_bytes, s->threads,      s->cluster,   s->persistent,   s->early,
                               s->leaves_warp,  s->pdl,          l->unit,      l->row_team,     l->a_rows,
                               l->states,       l->splits_heads, l->maps_tail, l->state_columns};
    size_t steps = (size_t)p->steps;
    return tile_identify(id, a, &s->tile) && identity_add(id, a, numbers, sizeof numbers) &&
           identity_add(id, a, l->level, steps * sizeof *l->level) &&
           identity_add(id, a, l->crosses, steps * sizeof *l->crosses) &&
           identity_add(id, a, l->moved, steps * sizeof *l->moved) &&
           identity_add(id, a, &l->stores, sizeof l->stores) &&
           identity_add(id, a, &l->loads, sizeof l->loads);
}

bool emit_key(struct identity *out, struct arena *a, const struct plan *plan, const struct program *p,
              const struct schedule *s)
{
    const struct tile *t = &s->tile;
    struct program blank;
    bool any_rows =
        p->kind == PROGRAM_GEMM && (t->most_rows || (t->mainloop->streams && !t->mainloop->unrolls));
    if (!any_rows || p->dim[0] != 1 || p->sample || !s->grid) return false;
    return blank_program(&blank, a, p) && identity_decided(out, a, plan->buffer, &blank) &&
           add_rows(out, a, p) && add_schedule(out, a, p, s);
}

/* ---- Of plans of one form ---- */

/* The first use that has the address of use i: tensors at one address may share an argument. */
static int first_at(const struct program *p, int i)
{
    const struct tensor_use *u = program_use(p, i), *other;
    int first = 0;
    while ((other = program_use(p, first)) != u)
        if (other->buffer == u->buffer && use_start(other) == use_start(u)) break;
        else first++;
    return first;
}

bool emit_traits(struct identity *out, struct arena *a, const struct program *p, const struct schedule *s)
{
    enum { OPERANDS = 2 };
    const struct tile *t = &s->tile;
    int first[OPERANDS + KERNEL_MAX_POINTERS], blocks[KERNEL_MAX_POINTERS], uses = OPERANDS + p->ports;
    *out = (struct identity){0};
    if (p->kind != PROGRAM_GEMM || !t->most_rows || !t->mainloop->tma || p->dim[0] != 1 || p->sample ||
        p->ports > KERNEL_MAX_POINTERS || !program_has_work(p) ||
        (printer_period(p) && !printer_passes_period(p)))
        return false;
    for (int i = 0; i < uses; i++) first[i] = first_at(p, i);
    for (int i = 0; i < p->ports; i++) {
        const struct tensor_use *u = &p->port[i];
        if (use_is_indexed(u) && !printer_passes_table(u)) return false;
        blocks[i] = u->role == USE_PARTIAL_STORE ? u->blocks : 0;
    }
    return tile_identify(out, a, t) && add_rows(out, a, p) &&
           identity_add(out, a, first, sizeof *first * (size_t)uses) &&
           identity_add(out, a, blocks, sizeof *blocks * (size_t)p->ports);
}
