/* attention_tile.h -- the tile of an attention kernel, and whether Hopper's units can run it. */
#ifndef ATTENTION_TILE_H
#define ATTENTION_TILE_H

#include "plan.h"

#define ATTENTION_MOST_TIME ((int64_t)1 << 30) /* positions are 32-bit in the kernels              */
#define ATTENTION_MOST_BLOCKS ((int64_t)1 << 30)

struct attention_tile {
    int bn, stages, groups;
};
struct attention_tile attention_tile(int64_t head_dim);
int64_t attention_shared(const struct attention_spec *a, struct attention_tile t); /* bytes        */
int64_t attention_blocks(const struct attention_spec *a, int64_t bm); /* tiles of bm queries       */
bool attention_is_empty(const struct attention_spec *a);
bool attention_fits_sm90(const struct attention_spec *a, const struct machine *m);

#endif
