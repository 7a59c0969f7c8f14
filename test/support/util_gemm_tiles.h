/* util_gemm_tiles.h -- short names of tiles, dtypes and pairings, for the table of util_gemm.c. */
#ifndef UTIL_GEMM_TILES_H
#define UTIL_GEMM_TILES_H

#define PP(m, n)                                                                                             \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .pingpong = true, .band = 8    \
    }
#define F8(m, n, consumers, blocks, high, wide)                                                              \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma_f8, .bm = m, .bn = n, .bk = 128, .groups = consumers, .band = 8,         \
        .splits = blocks, .cluster_m = high, .cluster_n = wide                                               \
    }
#define CO(m, n)                                                                                             \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .band = 8                      \
    }
#define SPLIT(m, n, blocks)                                                                                  \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 1, .band = 8, .splits = blocks    \
    }
#define SCATTER(m, n, consumers, blocks)                                                                     \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = consumers, .band = 8,             \
        .splits = blocks, .scattered = true                                                                  \
    }
#define THREE(m, n, high, wide)                                                                              \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 3, .band = 4, .cluster_m = high,  \
        .cluster_n = wide                                                                                    \
    }
#define SHARED(m, n, turns, high, wide)                                                                      \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .pingpong = turns, .band = 4,  \
        .cluster_m = high, .cluster_n = wide                                                                 \
    }
/* Bands of `w` columns, and K to and fro. */
#define SQUARE(m, n, turns, w, high, wide)                                                                   \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .pingpong = turns, .band = w,  \
        .across = true, .serpentine = true, .cluster_m = high, .cluster_n = wide                             \
    }
/* The last tiles of each row are narrower: so many, so wide. */
#define TAIL(m, n, count, width, parts, rows)                                                                \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .pingpong = true,              \
        .band = rows, .tail = count, .tail_bn = width, .blocks = parts                                       \
    }
/* The ring lends slots to the epilogue. */
#define LENT(m, n, consumers, turns)                                                                         \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = consumers, .pingpong = turns,     \
        .band = 8, .lends = true                                                                             \
    }
/* GEMV, whose blocks share segments of `n` columns in clusters. */
#define SHARE_HEADS(n, piece, parts, cluster)                                                                \
    {                                                                                                        \
        .mainloop = &mainloop_gemv, .bm = 1, .bn = n, .bk = piece, .groups = 2, .band = 1, .blocks = parts,  \
        .cluster_n = cluster                                                                                 \
    }
#define STREAM(n, piece, parts)                                                                              \
    {                                                                                                        \
        .mainloop = &mainloop_gemv, .bm = 1, .bn = n, .bk = piece, .groups = 2, .band = 1, .blocks = parts   \
    }
#define PACED(n, piece, parts, slots)                                                                        \
    {                                                                                                        \
        .mainloop = &mainloop_gemv, .bm = 1, .bn = n, .bk = piece, .groups = 2, .band = 1, .blocks = parts,  \
        .window = slots                                                                                      \
    }
#define SKINNY(n, piece, parts)                                                                              \
    {                                                                                                        \
        .mainloop = &mainloop_skinny, .bm = 1, .bn = n, .bk = piece, .groups = 2, .band = 1, .blocks = parts \
    }
#define SKINNY_SPLIT(n, piece, parts, cluster)                                                               \
    {                                                                                                        \
        .mainloop = &mainloop_skinny, .bm = 1, .bn = n, .bk = piece, .groups = 2, .band = 1,                 \
        .blocks = parts, .splits = cluster                                                                   \
    }
/* The same of stream_mma. */
#define MMA_HEADS(n, parts, cluster)                                                                         \
    {                                                                                                        \
        .mainloop = &mainloop_stream_mma, .bm = 1, .bn = n, .bk = 512, .groups = 2, .band = 1,               \
        .blocks = parts, .cluster_n = cluster                                                                \
    }
#define STREAM_MMA(n, parts)                                                                                 \
    {                                                                                                        \
        .mainloop = &mainloop_stream_mma, .bm = 1, .bn = n, .bk = 512, .groups = 2, .band = 1,               \
        .blocks = parts                                                                                      \
    }
#define BF CODA_BF16, CODA_BF16
#define HF CODA_F16, CODA_F16
#define FF CODA_F32, CODA_F32
#define HALF(hd, rot, h)                                                                                     \
    {                                                                                                        \
        .head_dim = hd, .rotary = rot, .heads = h, .half = true, .base = 10000, .period = 48                 \
    }
#define NEAR(hd, rot, h)                                                                                     \
    {                                                                                                        \
        .head_dim = hd, .rotary = rot, .heads = h, .half = false, .base = 500000, .period = 48               \
    }

#include "util_gemm_stream.h" /* cases of a main loop */

#endif
