/*
 * mainloop_fma.c -- cp.async and fp32 multiply-adds in order of k: fp32 operands, whatever their strides, on
 * any GPU that the library knows; primitives/tile/gemm_fma.cuh.
 *
 * Its cost follows from the instructions of four k of a tile, and is fitted to the first row of targets.def:
 *     tiles of an SM * (K/4 * max(issue, passes, traffic) + exposed) + 8000, or what memory takes
 *     issue   = multiply-adds, loads and copies of a scheduler's warps, 1.16 clocks each; 1.21 with four rows
 *     passes  = 128 bytes of shared memory a clock: two for a fragment's load, and what is copied
 *     traffic = 16 (bm + bn) / l2_bytes
 *     exposed = 900 of an epilogue, 4000 if no other block multiplies meanwhile
 * At M 4096 and N and K of 384 to 1536, and at 2048 x 4096 x 4096, that is within 8 % of what was measured.
 */
#include "mainloop.h"

enum {
    STEP = 16, /* of K, in a slot */
    STAGES = 4,
    MOST_STAGES = 6,
    LEAST_STAGES = 3,
    MOST_REGISTERS = 200, /* of a thread, which has 255, for sums and fragments */
    SMALL_TILE = 64 * 64, /* elements; its steps are short, so that more are on their way */
    FEW_ROWS = 64,        /* so few have no higher tiles */
    BAND_ROWS = 1024,     /* rows of A in a raster group, which thus stay in L2 */
    WARPS = 4,            /* of a warpgroup, as an SM has schedulers */
    REGISTERS = 40,       /* of a thread, besides sums and fragments */
    SM_REGISTERS = 65536,
    OTHERS = 12, /* instructions of four k, besides multiply-adds, loads and copies, which take 4 */
    EXPOSED = 4000,
    HIDDEN = 900,
    RAGGED_ROUNDS = 4,
    FIXED = 8000 /* clocks */
};

static bool supports(const struct target *target, const struct program *p)
{
    (void)target;
    return program_has_work(p) && p->a.dtype == CODA_F32 && p->b.dtype == CODA_F32;
}

/* ---- Shared memory and registers ---- */

static struct footprint footprint(const struct program *p, const struct tile *t)
{
    int values = t->groups * values_bytes(p, group_rows(t), t->bn);
    return (struct footprint){.fixed = values, .stage = 4 * t->bk * (t->bm + t->bn), .granule = 128};
}

/* Rows and columns of a thread. */
static int thread_rows(const struct tile *t) { return group_rows(t) / 16; }
static int thread_columns(const struct tile *t) { return t->bn / 8; }

/* Registers of a thread: its sums, vectors of four k of its rows, twice, and those of some columns. */
static int registers(const struct tile *t)
{
    int rows = thread_rows(t);
    return rows * thread_columns(t) + 8 * rows + 32;
}

/* Blocks that share an SM, by registers. */
static int residents(const struct tile *t)
{
    return MAX(SM_REGISTERS / (128 * t->groups * (registers(t) + REGISTERS)), 1);
}

static bool shares_sm(const struct program *p, const struct tile *t)
{
    (void)p;
    return residents(t) > 1;
}

/* ---- Candidates ---- */

static double tile_clocks(const struct tile *t, int64_t k, const struct target *target)
{
    double rows = thread_rows(t), columns = thread_columns(t), loads = rows + columns;
    double copies = (t->bm + t->bn) / (128.0 * t->groups), pace = rows > 4 ? 1.16 : 1.21;
    double issue = t->groups * (4 * rows * columns + loads + 4 * copies + OTHERS) * pace;
    double passes = t->groups * WARPS * 2 * loads + (t->bm + t->bn) / 8.0;
    double traffic = 16.0 * (t->bm + t->bn) / target->l2_bytes;
    return (double)CEIL_DIV(k, 4) * MAX(MAX(issue, passes), traffic);
}

/* Tiles of the SM that has most. Blocks that share an SM end together in the first rounds, and make room for
 * as many at once: of a last round that is not full some SMs have all, and others none. */
static int64_t most_tiles(int64_t blocks, int residents, int sms)
{
    int64_t together = (int64_t)residents * sms, full = blocks / together;
    bool ragged = full > 0 && full < RAGGED_ROUNDS && blocks % together;
    return ragged ? (full + 1) * residents : CEIL_DIV(blocks, sms);
}

static double cost(const struct program *p, const struct tile *t, const struct target *target)
{
    double each = (double)most_tiles(program_blocks(p, t), residents(t), target->sms);
    double exposed = residents(t) > 1 ? HIDDEN : EXPOSED;
    double memory = memory_clocks(target, (double)program_bytes(p));
    return MAX(each * (tile_clocks(t, p->k, target) + exposed), memory) + FIXED;
}

static void consider(struct search *s, int bm, int bn, int groups)
{
    struct tile t = {.mainloop = &mainloop_fma, .bm = bm, .bn = bn, .bk = STEP, .groups = groups};
    int room = MIN(s->target->shared_bytes, s->target->portable_bytes),
        wanted = bm * bn > SMALL_TILE ? STAGES : MOST_STAGES;
    t.band = BAND_ROWS / bm;
    t.stages = MIN(tile_stages(s->p, &t, room), wanted);
    if (registers(&t) > MOST_REGISTERS || t.stages < LEAST_STAGES) return;
    search_add(s, &t, cost(s->p, &t, s->target));
}

static void consider_width(struct search *s, int bn)
{
    consider(s, 64, bn, 1);
    if (s->p->dim[1] <= FEW_ROWS && !s->common) return;
    consider(s, 128, bn, 1);
    consider(s, 128, bn, 2);
    consider(s, 256, bn, 2);
}

static void candidates(struct search *s, enum tile_class class)
{
    static const int width[] = {128, 96, 64, 32, 0};
    if (class == TILES_KNOWN) search_widths(s, width, consider_width);
}

const struct mainloop mainloop_fma = {.name = "fma",
                                      .kernel = "gemm_fma",
                                      .parts = true,
                                      .contested = true,
                                      .supports = supports,
                                      .candidates = candidates,
                                      .cost = cost,
                                      .footprint = footprint,
                                      .shares_sm = shares_sm,
                                      .complete = mainloop_complete,
                                      .print_config = mainloop_print_pointers};
