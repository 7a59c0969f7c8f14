/* attention_tile.h -- the tile of an attention kernel, and which of the two kernels runs it. */
#ifndef ATTENTION_TILE_H
#define ATTENTION_TILE_H

#include "plan.h"

#define ATTENTION_MOST_TIME ((int64_t)1 << 30) /* positions are 32-bit in the kernels              */
#define ATTENTION_MOST_BLOCKS ((int64_t)1 << 30)

struct attention_tile {
    bool wgmma;             /* attention_sm90.cuh, TMA + wgmma; else attention_simt.cuh            */
    int bm, bn;             /* queries and keys of a tile; bm 0: no tile fits                      */
    int stages;             /* wgmma: of the ring of keys and values                               */
    int threads;            /* of a block                                                          */
    int64_t shared_bytes;   /* of a block, which the emitted text asserts                          */
    int64_t blocks;         /* tiles of queries; 0: nothing to do                                  */
};

/* The tile on this target: on Hopper's units, if they can run it. */
struct attention_tile attention_tile(const struct attention_spec *a, const struct target *target);
bool attention_is_empty(const struct attention_spec *a);
bool attention_fits_wgmma(const struct attention_spec *a, const struct target *target);

#endif
