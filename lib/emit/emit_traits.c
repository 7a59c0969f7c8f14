/*
 * emit_traits.c -- what the text of a product depends on, among products that differ in numbers of rows and
 * what follows from them, as those of one form do (pipeline.h). Numbers that launches pass are none of it;
 * what schedules make of the others is, and so are the comparisons by which emitters print one thing or
 * another. Texts of other programs depend on too much: they are printed, and compared.
 */
#include "emit.h"
#include "emit_epilogue.h"
#include "mainloop.h"

/* The program is the same but for rows, which its launches pass, as in emit_gemm_key.c. The layout of its
 * epilogue follows from the tile, and from whether positions go evenly. */
static bool gemm_traits(struct traits *t, const struct program *p, const struct schedule *s)
{
    const struct tile *tile = &s->tile;
    if (!tile->most_rows || !tile->mainloop->tma || p->dim[0] != 1 || p->sample || !program_has_work(p))
        return false;
    const int64_t number[] = {p->dim[1] > 1, printer_period(p) > 0, pair_steps_evenly(p)};
    traits_add(t, tile, sizeof *tile);
    traits_add(t, number, sizeof number);
    for (int i = 0; i < p->ports; i++) {
        const struct tensor_use *u = &p->port[i];
        const int passed[] = {printer_passes_table(u), u->role == USE_PARTIAL_STORE ? u->blocks : 0};
        traits_add(t, passed, sizeof passed);
        if (use_is_indexed(u) && !printer_passes_table(u)) return false;
    }
    return !printer_period(p) || printer_passes_period(p);
}

/* Tensors at one address may share an argument. */
static void add_addresses(struct traits *t, const struct program *p)
{
    const struct tensor_use *u, *other;
    for (int i = 0; (u = program_use(p, i)); i++) {
        int16_t first = 0;
        for (; (other = program_use(p, first)) != u; first++)
            if (other->buffer == u->buffer && use_start(other) == use_start(u)) break;
        traits_add(t, &first, sizeof first);
    }
}

bool emit_traits(struct traits *t, const struct program *p, const struct schedule *s)
{
    t->size = 0;
    t->lost = false;
    if (p->kind != PROGRAM_GEMM) return false;
    add_addresses(t, p);
    return gemm_traits(t, p, s) && !t->lost;
}
