/* invariant.c -- see invariant.h. */
#include "invariant.h"

#include "mainloop.h"

enum { STATE_COLUMNS = 64, FOLDED_ROWS = 64 };

/* ---- Statistics ---- */

/* Does a reduction of whole rows round when states are merged? */
static bool rounds_states(const struct program *p)
{
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        bool rows = s->kind == STEP_REDUCE && s->axis == REDUCE_ROWS && !step_folds_segments(s);
        if (rows && !s->prim->exact) return true;
    }
    return false;
}

/* Tiles are whole spans. */
int program_state_columns(const struct program *p)
{
    int span = program_span(p);
    if (p->kind != PROGRAM_GEMM || !p->invariant || !rounds_states(p)) return 0;
    return !span || STATE_COLUMNS % span == 0 || span % STATE_COLUMNS == 0 ? STATE_COLUMNS : span;
}

/* Columns have a state of the rows that one consumer drains. */
static bool states_keep(const struct program *p, const struct tile *t)
{
    int columns = program_state_columns(p);
    if (program_folds_columns(p) && group_rows(t) != FOLDED_ROWS) return false;
    if (!columns) return true;
    return t->bn % columns == 0 && t->tail_bn % columns == 0 && !program_splits_heads(p, t);
}

/* ---- Sums ---- */

/* The first one of the table that takes any number of rows. What stands in for it is asked for tiles only
 * where it has none, which no number of rows decides. */
static const struct mainloop *loop_of(const struct program *p, const struct target *target)
{
    for (int i = 0; mainloops[i]; i++)
        if (!mainloops[i]->streams && mainloops[i]->supports(target, p)) return mainloops[i];
    return NULL;
}

bool tile_keeps_bits(const struct program *p, const struct target *target, const struct tile *t)
{
    bool whole = tile_splits(t) == 1 && !t->serpentine;
    return !p->invariant ||
           (whole && (t->mainloop == loop_of(p, target) || t->mainloop->fallback) && states_keep(p, t));
}
