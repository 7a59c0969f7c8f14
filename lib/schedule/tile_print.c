/* tile_print.c -- a tile as a plan's text says it, which tuning keeps; and why there is no better one. */
#include "mainloop.h"

void tile_print(const struct tile *tile, struct text *t)
{
    text_append(t, tile->mainloop->name);
    if (!tile->mainloop->kernel) return;
    text_printf(t, " %dx%dx%d stages=%d groups=%d%s band=%d%s%s", tile->bm, tile->bn, tile->bk, tile->stages,
                tile->groups, tile->pingpong ? " pingpong" : "", tile->band, tile->across ? " across" : "",
                tile->serpentine ? " serpentine" : "");
    if (tile->tail) text_printf(t, " tail=%dx%d", tile->tail, tile->tail_bn);
    if (tile->blocks) text_printf(t, " blocks=%d", tile->blocks);
    if (tile->splits > 1) text_printf(t, " splits=%d%s", tile->splits, tile->scattered ? " scattered" : "");
    if (tile_cluster(tile) > 1)
        text_printf(t, " cluster=%dx%d", tile_cluster_m(tile), tile_cluster_n(tile));
    if (tile->lends) text_append(t, " lends");
}

/* ---- Why not a faster one ---- */

static void explain_operand(const char *name, const struct tensor_use *o, enum obstacle what, struct text *t)
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

void tile_explain(const struct program *p, const struct tile *tile, const struct target *target,
                  struct text *t)
{
    bool a16 = dtype_size(p->a.dtype) == 2, b16 = dtype_size(p->b.dtype) == 2;
    if (tile->mainloop != &mainloop_simt || !program_has_work(p)) return;
    text_append(t, "   slow: ");
    if (!target_has(target, TARGET_WGMMA)) text_append(t, "the fast kernels need sm_90a");
    else if (p->a.dtype != p->b.dtype)
        text_printf(t, "a is %s and b is %s; with a cast of %s to %s, which rounds it, the fast kernel fits",
                    dtype_name(p->a.dtype), dtype_name(p->b.dtype), a16 && !b16 ? "b" : "a",
                    dtype_name(a16 && !b16 ? p->a.dtype : b16 ? p->b.dtype : CODA_BF16));
    else if (!a16)
        text_append(t, "a and b are f32; with casts to bf16 or f16, which round, the fast kernel fits");
    else if (!program_fits_tma(p)) {
        explain_operand("a", &p->a, program_a_obstacle(p), t);
        if (program_a_obstacle(p) && program_b_obstacle(p)) text_append(t, "; ");
        explain_operand("b", &p->b, program_b_obstacle(p), t);
    } else if (!program_pairs_meet(p)) text_append(t, "the columns that are paired do not meet in a thread");
    else text_append(t, "no tile has registers and shared memory for its epilogue");
    text_append(t, "\n");
}
