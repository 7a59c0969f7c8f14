// sequences.cuh -- where the rows of packed sequences begin and end.
//
// Rows starts[b] below starts[b + 1] are those of sequence b. A start counts as 0 if it is negative, as
// `time` if it is more, and as an earlier one if that is more. A warp looks at 32 starts at a time; all its
// lanes call these together.
#pragma once
#include "types.cuh"

namespace coda {

struct RowStrides {
    i64 batch, time;
};

struct SequenceRows {
    i32 index; // of the sequence; -1 or `sequences`: rows of none
    u32 first, end;
};

template <class Index> struct PackedSequences {
    const Index *starts;
    i64 stride;
    u32 sequences, time;

    DEV u32 start(u32 i) const
    {
        const i64 at = (i64)starts[i * stride];
        return at < 0 ? 0 : at < time ? (u32)at : time;
    }
    DEV static u32 warp_max(u32 x)
    {
#pragma unroll
        for (i32 d = 1; d < 32; d *= 2) {
            const u32 y = __shfl_xor_sync(~0u, x, d);
            x = x < y ? y : x;
        }
        return x;
    }

    // The rows of sequence b.
    DEV SequenceRows rows_of(u32 b) const
    {
        u32 first = 0;
#pragma unroll 1
        for (u32 i = 0; i <= b; i += 32) {
            const u32 own = i + threadIdx.x % 32, at = own <= b ? start(own) : 0;
            first = at > first ? at : first;
        }
        first = warp_max(first);
        const u32 end = start(b + 1);
        return {(i32)b, first, end > first ? end : first};
    }

    // The last sequence b whose first row / length + b is `part` at most; index -1: there is none.
    DEV SequenceRows find_part(u32 part, u32 length) const
    {
        SequenceRows found = {-1, 0, 0};
        u32 first = 0;
#pragma unroll 1
        for (u32 i = 0; i < sequences; i += 32) {
            const u32 lane = threadIdx.x % 32, own = i + lane;
            u32 at = own < sequences ? start(own) : 0;
            at = at > first ? at : first;
#pragma unroll
            for (u32 d = 1; d < 32; d *= 2) {
                const u32 before = __shfl_sync(~0u, at, lane < d ? lane : lane - d);
                at = at > before ? at : before;
            }
            const u32 past = __ballot_sync(~0u, own >= sequences || at / length + own > part);
            const i32 many = past ? __ffs(past) - 1 : 32;
            if (many) found = {(i32)i + many - 1, __shfl_sync(~0u, at, many - 1), 0};
            if (many < 32) break;
            first = __shfl_sync(~0u, at, 31);
        }
        if (found.index < 0) return found;
        const u32 end = start(found.index + 1);
        found.end = end > found.first ? end : found.first;
        return found;
    }

    // Which has the row, which is below `time`.
    DEV SequenceRows find(u32 row) const
    {
        u32 first = 0;
#pragma unroll 1
        for (u32 i = 0; i <= sequences; i += 32) {
            const u32 lane = threadIdx.x % 32, own = i + lane, at = own <= sequences ? start(own) : 0;
            const u32 past = __ballot_sync(~0u, own <= sequences && at > row);
            const u32 found = past ? __ffs(past) - 1 : 32, most = warp_max(lane < found ? at : 0);
            first = most > first ? most : first;
            if (past) return {(i32)(i + found) - 1, first, __shfl_sync(~0u, at, found)};
        }
        return {(i32)sequences, first, time};
    }
};

} // namespace coda
