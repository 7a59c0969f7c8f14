/*
 * target_pairs.c -- facts about a target's units that decide what a GEMM may take in: which operands TMA can
 * describe, and whether the columns of a pair can meet in a thread.
 */
#include "program.h"

/* ---- Operands ---- */

/* Of one row no pitch matters, nor of one batch how far it is from others. But where a row's bits depend on
 * no other row, one has the kernel that several have. */
static enum obstacle obstacle(const struct tensor_use *o, bool invariant, int64_t batch, int64_t rows,
                              int64_t k)
{
    int64_t pitch = operand_pitch(o), outer = o->k == 1 ? rows : k;
    if (!dtype_is_half(o->dtype)) return IS_NO_HALF;
    if (o->k != 1 && o->row != 1) return HAS_NO_UNIT_STRIDE;
    if (o->offset % 8) return BEGINS_ODDLY;
    if ((outer > 1 || invariant) && (pitch % 8 || pitch <= 0)) return HAS_ODD_PITCH;
    bool one = batch <= 1 && !invariant;
    return one || (o->batch % 8 == 0 && (batch <= 1 || o->batch >= 0)) ? FITS : HAS_ODD_BATCHES;
}

enum obstacle program_a_obstacle(const struct program *p)
{
    return obstacle(&p->a, p->invariant, p->dim[0], p->dim[1], p->k);
}

enum obstacle program_b_obstacle(const struct program *p)
{
    return obstacle(&p->b, false, p->dim[0], p->dim[2], p->k);
}

bool program_has_work(const struct program *p)
{
    return p->dim[0] > 0 && p->dim[1] > 0 && p->dim[2] > 0 && p->k > 0;
}

bool program_fits_units(const struct program *p, const struct target *target)
{
    bool has = target_has(target, TARGET_TMA | TARGET_WGMMA);
    return has && program_has_work(p) && p->a.dtype == p->b.dtype && !program_a_obstacle(p) &&
           !program_b_obstacle(p);
}

/* ---- Pairs ---- */

/* [K, 2F] weights: no tensor map has every second column, or halves that start off 16 bytes. Main loops that
 * take pointers load any. */
static bool gating_fits(const struct program *p, const struct target *target)
{
    bool apart = p->pair == PAIR_GLU_STACKED && p->dim[2] / 2 % 8 == 0;
    return p->dim[2] % 2 == 0 && (apart || !operand_is_mn_major(&p->b) || !program_fits_units(p, target));
}

bool program_pairs_meet(const struct program *p, const struct target *target)
{
    if (p->pair == PAIR_NONE) return true;
    return p->pair == PAIR_HEADS ? pair_meets(p) : gating_fits(p, target);
}
