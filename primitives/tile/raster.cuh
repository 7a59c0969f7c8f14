// raster.cuh -- the order in which output tiles are walked.
//
// Bands of C::band tile rows are swept along N, or bands of tile columns along M (across), so that the tiles
// in flight at one time form a rectangle whose operands stay in L2. Serpentine: every second tile of a block
// is multiplied from the end of K to its beginning, so that a sweep begins with what the last one ended with.
// The blocks of a cluster walk neighbouring tiles, thus in step.
#pragma once

#include "types.cuh"

namespace coda {

struct Tile { int batch, m, n; }; // in tiles

// Blocks whose tiles are neighbours, in a row along M or along N.
template <int m, int n> struct Cluster {
    static constexpr int high = m, wide = n, size = m * n;
    static_assert(m == 1 || n == 1);
};

// What a Config inherits that does not say otherwise.
struct WalkDefaults {
    static constexpr int cluster_m = 1, cluster_n = 1;
    static constexpr bool across = false, serpentine = false, lends = false, once = false;
};

template <class C, class X = Cluster<1, 1>> struct Raster {
    static constexpr int rows = (int)((C::m + C::bm - 1) / C::bm);
    static constexpr int columns = (int)((C::n + C::bn - 1) / C::bn);
    // In clusters, which may reach past the end:
    static constexpr int high = (rows + X::high - 1) / X::high, wide = (columns + X::wide - 1) / X::wide;
    static constexpr int side = C::across ? X::wide : X::high;
    static constexpr int most = C::band / side, length = C::across ? high : wide; // of a band
    static constexpr u32 each = (u32)high * wide, count = each * (u32)C::batch;
    static_assert(C::band % side == 0);

    // Of the cluster's block `rank`.
    DEV static Tile tile(u32 index, int rank = 0)
    {
        const u32 batch = index / each, i = index % each;
        const u32 band = i / (most * length), in = i % (most * length);
        const u32 first = band * most, left = (C::across ? wide : high) - first;
        const u32 width = left < most ? left : most, x = first + in % width, y = in / width;
        return {(int)batch, (int)(C::across ? y : x) * X::high + rank % X::high,
                (int)(C::across ? x : y) * X::wide + rank / X::high};
    }
    DEV static bool exists(const Tile &t)
    {
        return (rows % X::high == 0 || t.m < rows) && (columns % X::wide == 0 || t.n < columns);
    }
};

} // namespace coda
