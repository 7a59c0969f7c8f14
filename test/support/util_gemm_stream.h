/* util_gemm_stream.h -- few rows by the main loop stream_mma, a part of util_gemm.c: shares that are no whole
 * tiles, runs of K that are not whole, several passes, each kind of columns. */
#ifndef UTIL_GEMM_STREAM_H
#define UTIL_GEMM_STREAM_H

/* Of A, and of B. */
#define BF_E4 CODA_BF16, CODA_F8E4M3
#define HF_E4 CODA_F16, CODA_F8E4M3
#define BF_E5 CODA_BF16, CODA_F8E5M2
#define HF_E5 CODA_F16, CODA_F8E5M2
#define BF_I8 CODA_BF16, CODA_I8
#define HF_I8 CODA_F16, CODA_I8

/* clang-format off */
#define STREAM_MMA_CASES \
    {"stream mma 1", 1, 1, 1072, 520, BF, 0, 0, 8, residual, 0, {0}, STREAM_MMA(16, 7)}, \
    {"stream mma 8", 1, 8, 304, 1024, BF, 0, 0, 0, residual, 0, {0}, STREAM_MMA(16, 76)}, \
    {"stream mma 16", 1, 16, 1072, 1280, HF, 0, 0, 8, residual, 0, {0}, STREAM_MMA(16, 131)}, \
    {"stream mma 5 f32", 1, 5, 48, 264, BF, 0, 0, 0, residual_f32, 0, {0}, STREAM_MMA(16, 3)}, \
    {"stream mma 9 gelu", 1, 9, 304, 4096, BF, 0, 0, 0, bias_gelu, 0, {0}, STREAM_MMA(16, 33)}, \
    {"stream mma 7, 1999 columns loss", 1, 7, 1999, 520, HF, 0, 0, 0, loss, 0, {0}, STREAM_MMA(16, 6)}, \
    {"stream mma 16 loss", 1, 16, 2000, 1024, BF, 0, 0, 0, loss, 0, {0}, STREAM_MMA(16, 11)}, \
    {"stream mma 3, 5 columns", 1, 3, 5, 8, BF, 0, 0, 0, residual_f32, 0, {0}, STREAM_MMA(16, 1)}, \
    {"stream mma 2 rope", 1, 2, 640, 512, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4), \
     STREAM_MMA(128, 7)}, \
    {"stream mma 12 rope partial", 1, 12, 480, 264, HF, 0, 0, 0, turned_by_position, PAIR_HEADS, \
     HALF(96, 32, 4), STREAM_MMA(96, 50)}, \
    {"stream mma 16 rope near", 1, 16, 640, 768, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, \
     NEAR(128, 64, 4), STREAM_MMA(16, 33)}, \
    {"stream mma 8 gated", 1, 8, 528, 512, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, STREAM_MMA(16, 31)}, \
    {"stream mma 1 gated", 1, 1, 4096, 1032, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, \
     STREAM_MMA(16, 7)}, \
    {"stream mma 16 gated all", 1, 16, 592, 264, HF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0}, \
     STREAM_MMA(16, 60)}, \
    {"stream mma 8 gated all", 1, 8, 592, 768, BF, 0, 0, 8, gated_all, PAIR_GLU_STACKED, {0}, \
     STREAM_MMA(16, 13)}, \
    {"stream mma 4 embedded", 1, 4, 208, 512, BF, 0, 0, 0, embedded, 0, {0}, STREAM_MMA(16, 20)}, \
    {"stream mma 11 row stored", 1, 11, 304, 512, BF, 0, 0, 0, row_stored, 0, {0}, STREAM_MMA(16, 30)}, \
    {"stream mma 8 summed", 1, 8, 304, 512, BF, 0, 0, 0, summed, 0, {0}, STREAM_MMA(16, 33)}, \
    {"stream mma 16 best", 1, 16, 304, 1024, BF, 0, 0, 0, best_sixteen, 0, {0}, STREAM_MMA(16, 9)}, \
    {"stream mma scalars", 1, 9, 528, 512, BF, 0, 0, 0, by_scalars, 0, {0}, STREAM_MMA(16, 20)}, \
    {"stream mma e4m3", 1, 8, 304, 1024, BF_E4, 0, 0, 0, residual, 0, {0}, STREAM_MMA(16, 33)}, \
    {"stream mma e4m3 f16", 1, 3, 1072, 1296, HF_E4, 0, 0, 16, residual, 0, {0}, STREAM_MMA(16, 7)}, \
    {"stream mma e5m2", 1, 16, 304, 528, BF_E5, 0, 0, 0, bias_gelu, 0, {0}, STREAM_MMA(16, 11)}, \
    {"stream mma e5m2 f16", 1, 1, 309, 512, HF_E5, 0, 0, 0, residual_f32, 0, {0}, STREAM_MMA(16, 5)}, \
    {"stream mma i8", 1, 5, 304, 1040, BF_I8, 0, 0, 0, scaled, 0, {0}, STREAM_MMA(16, 33)}, \
    {"stream mma i8 f16", 1, 12, 304, 512, HF_I8, 0, 0, 0, plain_f32, 0, {0}, STREAM_MMA(16, 33)}, \
    {"stream mma e4m3 gated", 1, 8, 1056, 528, BF_E4, 0, 0, 0, gated_all, PAIR_GLU_STACKED, {0}, \
     STREAM_MMA(16, 5)}, \
    {"stream mma i8 interleaved", 1, 2, 528, 512, HF_I8, 0, 0, 0, gated, PAIR_GLU_INTERLEAVED, {0}, \
     STREAM_MMA(16, 31)}, \
    {"stream mma e4m3 rope", 1, 9, 640, 512, BF_E4, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4), \
     STREAM_MMA(128, 7)}, \
    {"stream mma e4m3, 100 rows", 1, 100, 304, 1024, BF_E4, 0, 0, 0, residual, 0, {0}, STREAM_MMA(16, 7)}, \
    {"stream mma i8, 17 rows", 1, 17, 528, 528, BF_I8, 0, 0, 0, row_stored, 0, {0}, STREAM_MMA(16, 7)}, \
    {"stream mma i8, 33 rows loss", 1, 33, 2000, 512, BF_I8, 0, 0, 0, loss, 0, {0}, STREAM_MMA(16, 6)},
/* clang-format on */

#endif
