// raster.cuh -- the order in which output tiles are walked.
//
// Bands of C::band tile rows are swept along N, so that the tiles in flight at one time form a
// rectangle whose operands stay in L2.
#pragma once

#include "types.cuh"

namespace coda {

struct Tile { int batch, m, n; }; // in tiles

template <class C> struct Raster {
    static constexpr int rows = (int)((C::m + C::bm - 1) / C::bm);
    static constexpr int columns = (int)((C::n + C::bn - 1) / C::bn);
    static constexpr u32 each = (u32)rows * columns, count = each * (u32)C::batch;

    DEV static Tile tile(u32 index)
    {
        const u32 batch = index / each, i = index % each;
        const u32 band = i / (C::band * columns), in = i % (C::band * columns);
        const u32 first = band * C::band, left = rows - first, height = left < C::band ? left : C::band;
        return {(int)batch, (int)(first + in % height), (int)(in / height)};
    }
};

} // namespace coda
