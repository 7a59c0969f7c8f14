/*
 * target_pairs.c -- facts about a target's units that decide what a GEMM may take in: which operands TMA can
 * describe, and whether the columns of a pair can meet in a thread.
 */
#include "guards.h"
#include "program.h"

/* ---- Operands ---- */

/* The pitch of a single row does not matter, nor how far a single batch is from others. But where a row's
 * bits depend on no other row, one has the kernel that several have. */
static enum obstacle obstacle(const struct tensor_use *o, bool invariant, int64_t batch, int64_t rows,
                              int64_t k)
{
    bool row = extent_is_one(o->k);
    int64_t pitch = row ? o->row : o->k, outer = row ? rows : k;
    bool f8 = dtype_is_f8(o->dtype);
    int unit = f8 ? 16 : 8; /* elements of 16 bytes */
    if (use_is_packed(o)) return IS_PACKED;
    if (!dtype_is_half(o->dtype) && !f8) return IS_NO_HALF;
    if (!row && (f8 || !extent_is_one(o->row))) return f8 ? IS_NOT_K_MAJOR : HAS_NO_UNIT_STRIDE;
    if (!extent_is_multiple(o->offset, unit)) return BEGINS_ODDLY;
    bool even = extent_is_multiple(pitch, unit) && extent_reaches(pitch, 1);
    if (!even && (invariant || extent_reaches(outer, 2))) return HAS_ODD_PITCH;
    bool one = !extent_reaches(batch, 2);
    if (one && !invariant) return FITS;
    return extent_is_multiple(o->batch, unit) && (one || extent_reaches(o->batch, 0)) ? FITS
                                                                                      : HAS_ODD_BATCHES;
}

enum obstacle program_a_obstacle(const struct program *p)
{
    return obstacle(&p->a.data, p->invariant, p->dim[0], p->dim[1], p->k);
}

enum obstacle program_b_obstacle(const struct program *p)
{
    return obstacle(&p->b.data, false, p->dim[0], p->dim[2], p->k);
}

bool program_has_work(const struct program *p)
{
    return extent_reaches(p->dim[0], 1) && extent_reaches(p->dim[1], 1) && extent_reaches(p->dim[2], 1) &&
           extent_reaches(p->k, 1);
}

bool program_fits_units(const struct program *p, const struct target *target)
{
    bool has = target_has(target, TARGET_TMA | TARGET_WGMMA);
    return has && program_has_work(p) && p->a.dtype == p->b.dtype && dtype_is_half(p->a.dtype) &&
           !program_a_obstacle(p) && !program_b_obstacle(p);
}

bool program_is_f8(const struct program *p) { return dtype_is_f8(p->a.dtype) && dtype_is_f8(p->b.dtype); }

bool program_fits_f8_units(const struct program *p, const struct target *target)
{
    bool has = target_has(target, TARGET_TMA | TARGET_WGMMA);
    return has && program_has_work(p) && program_is_f8(p) && !program_a_obstacle(p) && !program_b_obstacle(p);
}

/* ---- Pairs ---- */

/* [K, 2F] weights: no tensor map has every second column, or halves that start off 16 bytes. Main loops that
 * take pointers load any. */
static bool gating_fits(const struct program *p, const struct target *target)
{
    bool apart = p->pair == PAIR_GLU_STACKED && extent_is_multiple(p->dim[2], 16);
    return extent_is_multiple(p->dim[2], 2) &&
           (apart || !operand_is_mn_major(&p->b.data) || !program_fits_units(p, target));
}

bool program_pairs_meet(const struct program *p, const struct target *target)
{
    if (p->pair == PAIR_NONE) return true;
    return p->pair == PAIR_HEADS ? pair_meets(p) : gating_fits(p, target);
}
