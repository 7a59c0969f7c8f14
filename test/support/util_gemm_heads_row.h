/* util_gemm_heads_row.h -- statistics of the heads of a row or two, which the blocks of a cluster share. */
#ifndef UTIL_GEMM_HEADS_ROW_H
#define UTIL_GEMM_HEADS_ROW_H

/* clang-format off */
#define HEADS_OF_A_ROW \
    {"heads, a row", 1, 1, 640, 512, BF, 0, 0, 0, normed_heads, PAIR_HEADS, HALF(128, 128, 4), {0}}, \
    {"heads, a row in fours", 1, 1, 1664, 1032, BF, 0, 0, 0, normed_heads, PAIR_HEADS, \
     HALF(128, 64, 11), SHARE_HEADS(128, 1032, 20, 4)}, \
    {"heads, a row in twos", 1, 1, 960, 7000, HF, 0, 0, 0, normed_heads, PAIR_HEADS, \
     NEAR(192, 64, 4), SHARE_HEADS(192, 3504, 6, 2)}, \
    {"heads, a row alone", 1, 1, 640, 264, BF, 0, 0, 0, centred_heads, 0, \
     NEAR(64, 64, 8), SHARE_HEADS(64, 264, 4, 0)}, \
    {"heads, two rows", 1, 2, 448, 1024, HF, 0, 0, 0, centred_heads, 0, \
     NEAR(64, 64, 5), SHARE_HEADS(64, 1024, 8, 4)}, \
    {"heads, largest of a row", 1, 1, 640, 512, BF, 0, 0, 0, largest_of_heads, 0, \
     NEAR(64, 64, 5), SHARE_HEADS(64, 512, 4, 2)},
/* clang-format on */

#endif
