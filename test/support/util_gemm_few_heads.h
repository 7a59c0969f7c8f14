/* util_gemm_few_heads.h -- statistics of the heads of few rows, which the blocks of a cluster share. */
#ifndef UTIL_GEMM_FEW_HEADS_H
#define UTIL_GEMM_FEW_HEADS_H

/* clang-format off */
#define HEADS_OF_FEW_ROWS \
    {"heads, a row", 1, 1, 640, 512, BF, 0, 0, 0, normed_heads, PAIR_HEADS, HALF(128, 128, 4), {0}}, \
    {"heads, a row in fours", 1, 1, 1664, 1032, BF, 0, 0, 0, normed_heads, PAIR_HEADS, \
     HALF(128, 64, 11), SHARE_HEADS(128, 1032, 20, 4)}, \
    {"heads, a row in twos", 1, 1, 960, 7000, HF, 0, 0, 0, normed_heads, PAIR_HEADS, \
     NEAR(192, 64, 4), SHARE_HEADS(192, 3504, 6, 2)}, \
    {"heads, a row alone", 1, 1, 640, 264, BF, 0, 0, 0, centred_heads, 0, \
     NEAR(64, 64, 8), SHARE_HEADS(64, 264, 4, 0)}, \
    {"heads, two rows", 1, 2, 448, 1024, HF, 0, 0, 0, centred_heads, 0, \
     NEAR(64, 64, 5), SHARE_HEADS(64, 1024, 8, 4)}, \
    {"heads, a row of e4m3", 1, 1, 1664, 1040, BF_E4, 0, 0, 0, normed_heads, PAIR_HEADS, \
     HALF(128, 64, 11), MMA_HEADS(128, 20, 4)}, \
    {"heads, 16 rows of i8", 1, 16, 960, 528, HF_I8, 0, 0, 0, normed_heads, PAIR_HEADS, \
     NEAR(192, 64, 4), MMA_HEADS(192, 6, 2)}, \
    {"heads, 5 rows of e4m3, centred", 1, 5, 640, 512, BF_E4, 0, 0, 0, centred_heads, 0, \
     NEAR(64, 64, 8), MMA_HEADS(64, 24, 8)}, \
    {"heads, largest of a row", 1, 1, 640, 512, BF, 0, 0, 0, largest_of_heads, 0, \
     NEAR(64, 64, 5), SHARE_HEADS(64, 512, 4, 2)},
/* clang-format on */

#endif
