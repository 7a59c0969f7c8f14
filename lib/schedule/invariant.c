/* invariant.c -- see invariant.h. */
#include "invariant.h"

#include "epilogue_layout.h"
#include "mainloop.h"

enum { FOLDED_ROWS = 64 };

/* Columns of a stream are dealt to blocks, each of which has a state, whatever the number of rows. Else
 * columns have a state of the rows that one consumer drains. */
static bool states_keep(const struct program *p, const struct tile *t)
{
    int columns = program_state_columns(p);
    if (t->mainloop->invariant) return true;
    if (program_folds_columns(p) && group_rows(t) != FOLDED_ROWS) return false;
    if (!columns) return true;
    return t->bn % columns == 0 && t->tail_bn % columns == 0 && !program_splits_heads(p, t);
}

bool tile_keeps_bits(const struct program *p, const struct tile *t)
{
    return !p->invariant || (tile_splits(t) == 1 && !t->dealt && !t->serpentine && states_keep(p, t));
}
