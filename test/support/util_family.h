/*
 * util_family.h -- random model graphs, as whole families have them, with hostile arguments.
 *
 * A family draws where its norms stand (before, after, both, or one for both branches), which they are, how
 * heads are made (rotary, partial rotary, normed queries and keys, grouped keys, a prefix of keys and values
 * from before, a memory of padded sequences), its gates, biases, class tokens, softcaps, and its head (tied
 * to the embedding or not, logits or a loss). Sizes are small and odd. Known families have all of this as it
 * was published, and draw their sizes alone.
 */
#ifndef UTIL_FAMILY_H
#define UTIL_FAMILY_H

#include "util_random.h"

enum { FAMILY_LEAVES = 192 };

/* How a leaf is filled. */
enum fill {
    FILL_WEIGHT,   /* normal over the root of its columns */
    FILL_GAIN,     /* near 1 */
    FILL_BIAS,     /* a tenth of normal */
    FILL_NORMAL,   /* normal: keys of order 1, lest rounding decides which of them wins */
    FILL_STREAM,   /* rows of normal values times the family's magnitude; some rows 0 */
    FILL_MEMORY,   /* normal; what lies past its sequence's length is NaN, infinity or huge */
    FILL_PADDED,   /* FILL_STREAM, with NaN past its sequence's length */
    FILL_LENGTHS,  /* 0 .. limit, one for each sequence */
    FILL_INTEGERS, /* 0 .. limit - 1 */
    FILL_TARGETS   /* the same, now and then -100 */
};

struct family {
    graph *g;
    uint64_t seed;
    double magnitude; /* of the residual stream */
    int leaves;
    struct leaf_fill {
        enum fill fill;
        int64_t limit;
    } leaf[FAMILY_LEAVES]; /* in the order of coda_run */
    char name[160];        /* what was drawn, in words */
};

/* Qwen3: RMSNorm of each head of q and k, grouped keys, SwiGLU, no bias. Qwen2.5-VL's text: biases of q, k
 * and v, no norms of heads, M-RoPE by time, height and width. Qwen3-VL's: Qwen3 with M-RoPE whose sections
 * take turns. */
enum known_family { FAMILY_DRAWN, FAMILY_QWEN3, FAMILY_QWEN2_5_VL, FAMILY_QWEN3_VL, KNOWN_FAMILIES };

/* dtype of the float leaves; 0: drawn. The graph is never poisoned; free it with coda_graph_free. */
void family_make(struct family *f, uint64_t seed, coda_dtype dtype);
void family_make_known(struct family *f, enum known_family known, uint64_t seed, coda_dtype dtype);
/* Sizes are those of the number `sizes`, if it is not 0: families of other seeds have them, too, and so
 * kernels in common. */
void family_make_sized(struct family *f, enum known_family known, uint64_t seed, coda_dtype dtype,
                       uint64_t sizes);
/* As random_args(); free with random_args_free. */
void **family_args(const struct family *f, uint64_t seed, bool evaluate);

#endif
