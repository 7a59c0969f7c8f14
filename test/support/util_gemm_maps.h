/* util_gemm_maps.h -- of the table of util_gemm.c, the cases whose epilogues compare, choose, and clamp. */
#ifndef UTIL_GEMM_MAPS_H
#define UTIL_GEMM_MAPS_H

#include "util_gemm_f8.h"

/* Rows and columns say which elements come from the product; nothing that it makes is compared, so that no
 * rounding makes another choice. */
static void chosen(struct gemm_rig *r, int acc)
{
    int open = map(r, "greater_equal", load_column(r, CODA_F32, false), load_row(r, CODA_I32, 2), NULL);
    int other = load_tile(r, r->p.a.dtype, false), least = map(r, "minimum", acc, other, NULL);
    int most = map(r, "clip", map(r, "abs", least, -1, NULL), -1, (float[]){0.5f, 8});
    int y = map(r, "mul", map(r, "log", most, -1, NULL), map(r, "rsqrt", most, -1, NULL), NULL);
    int where = map(r, "where", open, y, NULL);
    r->step[where].in[r->step[where].nin++] = other;
    store(r, where);
    store(r, map(r, "exp", map(r, "maximum", map(r, "sqrt", most, -1, NULL), least, NULL), -1, NULL));
}

/* The unit of gpt-oss, with its biases. */
static void clamped(struct gemm_rig *r, int acc)
{
    int x = map(r, "add", acc, load_column(r, r->p.a.dtype, false), NULL);
    store(r, map(r, "swiglu_clamped", lane(r, x, 0), lane(r, x, 1), (float[]){1.702f, 0.75f}));
    store(r, map(r, "geglu_erf", lane(r, x, 0), lane(r, x, 1), NULL));
}

#define MAP_CASES                                                                                            \
    {"chosen", 1, 300, 520, 128, BF, 0, 0, 0, chosen, 0, {0}, PP(128, 192)},                                 \
        {"chosen, wide", 1, 300, 520, 520, HF, 0, 0, 0, chosen, 0, {0}, CO(128, 256)},                       \
        {"chosen, odd", 2, 77, 201, 101, HF, 0, 0, 0, chosen, 0, {0}, {0}},                                  \
        {"chosen, stream", 1, 2, 528, 512, BF, 0, 0, 0, chosen, 0, {0}, STREAM(16, 512, 20)},                \
        {"chosen, f32", 1, 150, 90, 51, FF, 0, 0, 0, chosen, 0, {0}, {0}},                                   \
        {"clamped", 1, 300, 528, 128, BF, 0, 0, 0, clamped, PAIR_GLU_INTERLEAVED, {0}, PP(128, 192)},        \
        {"clamped, stacked", 1, 300, 1040, 128, HF, 0, 0, 0, clamped, PAIR_GLU_STACKED, {0}, CO(128, 256)},  \
        {"clamped, stream",  1, 8, 528, 512, BF, 0, 0, 0, clamped, PAIR_GLU_INTERLEAVED, {0},                \
         SKINNY(16, 512, 31)},

#endif
