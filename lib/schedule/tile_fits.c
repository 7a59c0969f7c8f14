/*
 * tile_fits.c -- which tiles a GEMM allows: pairs that meet in a thread, registers and shared memory that
 * there are; and why it allows none.
 */
#include "epilogue_layout.h"
#include "tile_parts.h"

enum {
    MOST_STAGES = 24,
    MOST_ACCUMULATORS = 192,      /* floats of a thread, if the epilogue needs little              */
    MOST_BUSY_ACCUMULATORS = 128, /* if it loads tiles into registers                              */
    MOST_CROWDED_ACCUMULATORS = 96 /* of three consumers                                           */
};

static void explain_operand(const char *name, const struct operand *o, enum obstacle what, struct text *t)
{
    if (what == HAS_NO_UNIT_STRIDE)
        text_printf(t, "%s has strides %lld and %lld, of which one must be 1", name, (long long)o->row,
                    (long long)o->k);
    if (what == BEGINS_ODDLY)
        text_printf(t, "%s begins at element %lld, which must be a multiple of 8", name,
                    (long long)o->offset);
    if (what == HAS_ODD_PITCH)
        text_printf(t, "%s has a pitch of %lld elements, which must be a multiple of 8", name,
                    (long long)operand_pitch(o));
    if (what == HAS_ODD_BATCHES)
        text_printf(t, "%s has batches that are %lld elements apart, which must be a multiple of 8", name,
                    (long long)o->batch);
}

void tile_explain(const struct program *p, const struct machine *m, struct text *t)
{
    bool a16 = dtype_size(p->a.dtype) == 2, b16 = dtype_size(p->b.dtype) == 2;
    if (p->tile.mainloop != MAINLOOP_SIMT || !program_has_work(p)) return;
    text_append(t, "   slow: ");
    if (!m->sm90) text_append(t, "the fast kernels need sm_90a");
    else if (p->a.dtype != p->b.dtype)
        text_printf(t, "a is %s and b is %s; with a cast of %s to %s, which rounds it, the fast kernel fits",
                    dtype_name(p->a.dtype), dtype_name(p->b.dtype), a16 && !b16 ? "b" : "a",
                    dtype_name(a16 && !b16 ? p->a.dtype : b16 ? p->b.dtype : CODA_BF16));
    else if (!a16)
        text_append(t, "a and b are f32; with casts to bf16 or f16, which round, the fast kernel fits");
    else if (!tile_fits_sm90(p)) {
        explain_operand("a", &p->a, program_a_obstacle(p), t);
        if (program_a_obstacle(p) && program_b_obstacle(p)) text_append(t, "; ");
        explain_operand("b", &p->b, program_b_obstacle(p), t);
    } else if (!tile_pairs_ok(p)) text_append(t, "the columns that are paired do not meet in a thread");
    else text_append(t, "no tile has registers and shared memory for its epilogue");
    text_append(t, "\n");
}

/* ---- Widths ---- */

/* A wide tile, or a share of one, may hold pieces of heads, which are boxes of a map of whole heads. */
static bool splits_heads(const struct program *p, const struct tile *t)
{
    const struct rope_spec *r = &p->rope;
    bool whole = r->rotary == r->head_dim && p->dim[2] % r->head_dim == 0;
    return (t->bn > 128 || t->scattered) && tile_share(t) % 64 == 0 && r->head_dim % 64 == 0 && whole &&
           !operand_is_mn_major(&p->b) && (p->dim[0] == 1 || !p->b.batch);
}

/* A share is as wide as what TMA stores at once. */
static bool width_fits(const struct program *p, const struct tile *t)
{
    int block = program_is_gated(p) ? 128 : 64, share = tile_share(t);
    if (t->scattered && share % (program_is_gated(p) || program_is_half_rope(p) ? 64 : 32)) return false;
    if (program_is_half_rope(p) && share % p->rope.head_dim) return splits_heads(p, t);
    return !operand_is_mn_major(&p->b) || t->bn % block == 0;
}

/* ---- Registers and shared memory ---- */

/* Tiles that come in registers, not by TMA. */
bool program_loads_directly(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_LOAD && step_level(&p->step[i]) == LEVEL_SLOT && i != fetched_load(p))
            return true;
    return false;
}

static int accumulators(const struct tile *t)
{
    int rows = t->pingpong ? t->bm : t->bm / t->groups;
    return rows * t->bn / 128;
}

static int most_accumulators(const struct program *p, const struct tile *t)
{
    if (t->groups > 2) return MOST_CROWDED_ACCUMULATORS;
    return program_loads_directly(p) ? MOST_BUSY_ACCUMULATORS : MOST_ACCUMULATORS;
}

int tile_stages(const struct program *p, const struct tile *t, int shared_bytes)
{
    struct program q = *p;
    int fit = 0, too_many = MOST_STAGES + 1;
    q.tile = *t;
    while (too_many - fit > 1) {
        q.tile.stages = (fit + too_many) / 2;
        if (tile_shared_bytes(&q) > shared_bytes) too_many = q.tile.stages;
        else fit = q.tile.stages;
    }
    return fit;
}

/* Do the parts of a tile that a cluster's blocks load consist of whole octets, or of whole blocks of 64 if
 * the operand is MN-major? And are there tiles for all of them? */
static bool cluster_fits(const struct program *p)
{
    const struct tile *t = &p->tile;
    int cm = tile_cluster_m(t), cn = tile_cluster_n(t);
    int a_step = operand_is_mn_major(&p->a) ? 64 : 8, b_step = operand_is_mn_major(&p->b) ? 64 : 8;
    bool parts = tile_a_rows(p) % (cn * a_step) == 0 && t->bn % (cm * b_step) == 0;
    return parts && p->dim[1] > (cm - 1) * t->bm && p->dim[2] > (cn - 1) * t->bn;
}

bool tile_fits(const struct program *p)
{
    const struct tile *t = &p->tile;
    bool fits = width_fits(p, t) && (!t->tail || tail_fits(p)) && cluster_fits(p);
    return fits && accumulators(t) <= most_accumulators(p, t);
}
