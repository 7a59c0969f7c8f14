// raster.cuh -- the order in which output tiles are walked.
//
// Bands of C::band tile rows are swept along N, so that the tiles in flight at one time form a
// rectangle whose operands stay in L2. The blocks of a cluster walk neighbouring tiles, thus in step.
#pragma once

#include "types.cuh"

namespace coda {

struct Tile { int batch, m, n; }; // in tiles

// Blocks whose tiles are neighbours, in a row along M or along N.
template <int m, int n> struct Cluster {
    static constexpr int high = m, wide = n, size = m * n;
    static_assert(m == 1 || n == 1);
};

template <class C, class X = Cluster<1, 1>> struct Raster {
    static constexpr int rows = (int)((C::m + C::bm - 1) / C::bm);
    static constexpr int columns = (int)((C::n + C::bn - 1) / C::bn);
    // In clusters, which may reach past the end:
    static constexpr int high = (rows + X::high - 1) / X::high, wide = (columns + X::wide - 1) / X::wide;
    static constexpr int most = C::band / X::high;
    static constexpr u32 each = (u32)high * wide, count = each * (u32)C::batch;
    static_assert(C::band % X::high == 0);

    // Of the cluster's block `rank`.
    DEV static Tile tile(u32 index, int rank = 0)
    {
        const u32 batch = index / each, i = index % each;
        const u32 band = i / (most * wide), in = i % (most * wide);
        const u32 first = band * most, left = high - first, height = left < most ? left : most;
        return {(int)batch, (int)(first + in % height) * X::high + rank % X::high,
                (int)(in / height) * X::wide + rank / X::high};
    }
    DEV static bool exists(const Tile &t)
    {
        return (rows % X::high == 0 || t.m < rows) && (columns % X::wide == 0 || t.n < columns);
    }
};

} // namespace coda
