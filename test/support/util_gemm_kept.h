/* util_gemm_kept.h -- of the table of util_gemm.c, the cases in which a row's statistics are cut alike in
 * tiles of any width. */
#ifndef UTIL_GEMM_KEPT_H
#define UTIL_GEMM_KEPT_H

static void turned_sums(struct gemm_rig *r, int acc)
{
    int x = rotate(r, rms_scale(r, acc), -1);
    store(r, x);
    reduce(r, "sum_sq", x, -1);
}

/* The epilogue of a program whose rows keep their bits. */
#define KEPT(epilogue)                                                                                       \
    static void kept_##epilogue(struct gemm_rig *r, int acc)                                                 \
    {                                                                                                        \
        r->p.invariant = true;                                                                               \
        epilogue(r, acc);                                                                                    \
    }
KEPT(residual)
KEPT(residual_f32)
KEPT(loss)
KEPT(gated_all)
KEPT(turned_sums)

#define KEPT_CASES                                                                                           \
    {"kept", 1, 300, 520, 128, BF, 0, 0, 0, kept_residual, 0, {0}, PP(128, 128)},                            \
        {"kept wide", 1, 300, 520, 128, HF, 0, 0, 0, kept_residual, 0, {0}, PP(128, 192)},                   \
        {"kept cooperative", 1, 300, 520, 128, BF, 0, 0, 0, kept_residual, 0, {0}, CO(128, 256)},            \
        {"kept tall, odd", 1, 377, 401, 64, BF, 0, 0, 0, kept_residual, 0, {0}, CO(256, 128)},               \
        {"kept narrow", 1, 9, 200, 328, BF, 0, 0, 0, kept_residual, 0, {0}, SPLIT(64, 64, 1)},               \
        {"kept f32", 2, 150, 300, 64, BF, 0, 0, 0, kept_residual_f32, 0, {0}, PP(128, 128)},                 \
        {"kept f32 wide", 2, 150, 300, 64, BF, 0, 0, 0, kept_residual_f32, 0, {0}, CO(128, 256)},            \
        {"kept tail", 1, 600, 512, 712, BF, 0, 0, 0, kept_residual, 0, {0}, TAIL(128, 192, 1, 128, 5, 3)},   \
        {"kept, lent", 1, 300, 520, 520, BF, 0, 0, 0, kept_residual, 0, {0}, LENT(128, 256, 2, false)},      \
        {"kept loss", 1, 200, 1000, 128, BF, 0, 0, 0, kept_loss, 0, {0}, PP(128, 192)},                      \
        {"kept gated all", 1,   300,         528, 128, BF, 0, 0, 0, kept_gated_all,                          \
         PAIR_GLU_STACKED, {0}, PP(128, 192)},                                                               \
        {"kept gated all, wide", 1,   300,         1040, 128, BF, 0, 0, 0, kept_gated_all,                   \
         PAIR_GLU_INTERLEAVED,   {0}, CO(128, 256)},                                                         \
        {"kept heads",      1,           200, 640, 64, BF, 0, 0, 0, kept_turned_sums, PAIR_HEADS,            \
         HALF(128, 128, 4), PP(128, 128)},                                                                   \
        {"kept heads, wide", 1,           200, 640, 64, HF, 0, 0, 0, kept_turned_sums, PAIR_HEADS,           \
         HALF(64, 32, 7),    CO(128, 256)},                                                                  \
        {"kept heads of 96", 1,           200, 480, 64, BF, 0, 0, 0, kept_turned_sums, PAIR_HEADS,           \
         HALF(96, 96, 4),    PP(128, 192)},

#include "util_gemm_latent.h" /* one of which is KEPT */

#endif
