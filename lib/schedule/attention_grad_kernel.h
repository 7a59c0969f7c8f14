/*
 * attention_grad_kernel.h -- what the library knows of a kernel of attention's gradients: one entry for each
 * unit of primitives/attention. A new one is a .cuh there, an attention_grad_NAME.c here, its line of
 * ATTENTION_GRAD_KERNELS, and what its Config has beside others' in emit_attention_grad.c.
 */
#ifndef ATTENTION_GRAD_KERNEL_H
#define ATTENTION_GRAD_KERNEL_H

#include "attention_grad.h"
#include "schedule.h"

/* In the order in which they are asked: the first one that fits takes a program. */
#define ATTENTION_GRAD_KERNELS(X)                                                                            \
    X(WGMMA, wgmma) /* TMA and wgmma: what mma takes, without anything beside q, k and v but a window */     \
    X(MMA, mma)     /* mma.sync: 16-bit tensors whose rows begin at multiples of 16 bytes */                 \
    X(SIMT, simt)   /* what no other takes */

enum attention_grad_kernel_index {
#define X(NAME, name) ATTENTION_GRAD_BY_##NAME,
    ATTENTION_GRAD_KERNELS(X)
#undef X
        ATTENTION_GRAD_BY_COUNT
};

struct attention_grad_tile {
    int bm, bn; /* own rows and walked ones; bm 0: no tile fits */
    int bk;     /* walked keys, where bn is of walked queries alone; else 0 */
    int stages; /* of walked rows */
    int threads;
    int residents;   /* blocks on an SM for which registers are kept; 0: the unit says it */
    bool persistent; /* as in struct schedule */
    int64_t shared_bytes;
};

struct attention_grad_kernel {
    enum attention_grad_kernel_index index;
    const char *suffix; /* of the kernel's name, and in a plan's text */
    const char *unit;   /* the template */
    bool (*fits)(const struct attention_grad_spec *s, const struct attention_spec *a,
                 const struct target *target);
    /* A tile may not depend on how many SMs there are: the bits of what is summed over rows do on it. */
    struct attention_grad_tile (*tile)(const struct attention_grad_spec *s, const struct attention_spec *a,
                                       const struct target *target);
};

#define X(NAME, name) extern const struct attention_grad_kernel attention_grad_##name;
ATTENTION_GRAD_KERNELS(X)
#undef X

/* Blocks of each kind, and how many tiles of bm keys, of bn keys and of bm queries there are: the launch has
 * them in this order. */
struct attention_grad_blocks {
    int64_t keys, queries, pairs, heads, key_tiles, walked_tiles, query_tiles;
};
struct attention_grad_blocks attention_grad_blocks(const struct attention_grad_spec *s,
                                                   const struct tile *tile);

/* attention_grad_wgmma.c: stages of walked keys in a schedule's tile, whose own are of walked queries. */
int attention_grad_key_stages(const struct attention_spec *a, const struct tile *tile, int shared_bytes);

/* The same: tiles of keys, or of queries, as grad_walk.cuh has them; 0: none of these gradients is wanted. */
struct attention_grad_walk {
    int64_t rows, streams, bands, band;
};
struct attention_grad_walk attention_grad_walk(const struct attention_grad_spec *s, const struct tile *tile,
                                               bool of_keys);

/* Bytes of a block beside rows: weights of bm x bn pairs if it keeps them, log-sum-exps and deltas. */
static inline int64_t attention_grad_beside(const struct attention_grad_spec *s,
                                            const struct attention_grad_tile *t, bool weighs)
{
    int64_t weights = weighs || attention_grad_has_sums(s) ? 4 * (int64_t)t->bm * (t->bn + 8) : 0;
    return weights + (int64_t)t->stages * 2 * 4 * MAX(t->bm, t->bn);
}

#endif
