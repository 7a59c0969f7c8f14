/* util_gemm_latent.h -- of the table of util_gemm.c, the cases that leave statistics of ranges of columns. */
#ifndef UTIL_GEMM_LATENT_H
#define UTIL_GEMM_LATENT_H

KEPT(latent_vectors)

/* clang-format off */
#define TURNED(name, batch, m, n, k, t, rope, tile) \
    {"heads, latent" name, batch, m, n, k, t, 0, 0, 0, latent_vectors, PAIR_HEADS, rope(64, 64, 0), tile}
#define FEW(name, m, tile) \
    {"heads, latent, " name, 1, m, 704, 512, BF, 0, 0, 0, latent_vectors, 0, NEAR(64, 64, 0), tile}
#define LATENT_CASES \
    TURNED("", 1, 200, 704, 64, BF, NEAR, PP(128, 192)), \
    TURNED(", cooperative", 1, 300, 704, 64, HF, HALF, CO(128, 256)), \
    TURNED(", 256 rows", 1, 300, 832, 64, BF, NEAR, CO(256, 128)), \
    TURNED(", batches", 2, 100, 704, 64, BF, NEAR, PP(64, 128)), \
    TURNED(", lent", 1, 300, 704, 520, BF, NEAR, LENT(128, 256, 2, false)), \
    TURNED(", split", 1, 16, 704, 512, BF, NEAR, SPLIT(64, 128, 2)), \
    TURNED(", scattered", 1, 100, 1024, 512, BF, HALF, SCATTER(64, 128, 1, 2)), \
    TURNED(", tail", 1, 300, 704, 584, BF, NEAR, TAIL(128, 192, 1, 128, 5, 3)), \
    TURNED(", few rows", 1, 3, 704, 512, BF, NEAR, {0}), \
    TURNED(", f32", 1, 70, 448, 64, FF, NEAR, {0}), \
    {"heads, latent, kept", 1, 200, 704, 64, BF, 0, 0, 0, kept_latent_vectors, PAIR_HEADS, NEAR(64, 64, 0), \
     PP(128, 192)}, \
    FEW("stream", 1, STREAM(16, 512, 20)), FEW("stream 9", 9, SKINNY(16, 512, 20)),
/* clang-format on */

#endif
