// extents.cuh -- how much there is to attend: what the launch passes, so that a kernel takes any.
//
// A Config has what code depends on: heads, columns, masks, tiles. These numbers stay where launches put
// them, in constant memory: no register holds one for long.
#pragma once
#include "divisor.cuh"

namespace coda {

struct AttentionExtents {
    i64 ranges_batch, table_batch; // from a sequence to the next
    i32 batch, tq, tk;             // sequences; queries and keys of each; packed, queries of all
    i32 shift;                     // a query's position less its number, see visible.cuh
    i32 slots;                     // rows of the pool of pages
    i32 blocks, streams, bands;    // tiles of a head; heads of all sequences; their bands, see tile_walk.cuh
    i32 band;                      // heads in a band
    Divisor whole;                 // tiles of a band
};
// A launch passes numbers one behind the other, so no struct among them may end in padding.
static_assert(sizeof(AttentionExtents) == 2 * sizeof(i64) + 9 * sizeof(i32) + sizeof(Divisor));

// Elements from a sequence, a row, a head to the next.
struct AttentionStrides {
    i64 batch, time, head;
};

// Elements of what is added to scores, from a sequence, a head, a query, a key to the next; 0: it is for all.
struct AttentionBias {
    i64 batch, head, time, key;
};

} // namespace coda
