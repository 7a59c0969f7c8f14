// appended.cuh -- which rows of a cache the run appends to, by their slots: all others are as the run before
// has left them, and may be read while kernels ahead still run.
#pragma once
#include "attention/indices.cuh"

namespace coda {

// At most 32, as many as a warp has lanes.
struct AppendedRows {
    Indices slots = nullptr;
    i32 count = 0;
};

// A warp's: each lane has the slot of one, or -1.
struct AppendedSlots {
    i32 slot;
    const i32 count;

    DEV explicit AppendedSlots(const AppendedRows &rows) : slot(-1), count(rows.count)
    {
        const i32 lane = threadIdx.x % 32;
        if (lane < count) slot = rows.slots[lane];
    }
    // Is one of them among those that some lane names, `rows` from `first` on? By all lanes, for all.
    DEV bool among(i32 first, i32 rows) const
    {
        bool found = false;
        for (i32 i = 0; i < count; i++) found |= (u32)__shfl_sync(~0u, slot, i) - (u32)first < (u32)rows;
        return __ballot_sync(~0u, found) != 0;
    }
};

} // namespace coda
