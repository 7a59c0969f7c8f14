// raster.cuh -- the order in which output tiles are walked.
//
// Bands of Config::band tile rows are swept along N, or bands of tile columns along M (across), so that the
// tiles in flight at one time form a rectangle whose operands stay in L2. Serpentine: every second tile of a
// block is multiplied from the end of K to its beginning, so that a sweep begins with what the last one ended
// with. The blocks of a cluster walk neighbouring tiles, thus in step. Where Config::walks, the launch says
// which of these it is to be (args.walk), so that one kernel serves numbers of rows that want either.
//
// Tail: the last Config::tail tiles of each row are only Config::tail_bn wide, so that blocks end together
// although there are not as many tiles for each. They are dealt, one after the other, to the blocks that have
// a tile more; when each of these has as many as it takes to be no later than the others, to all blocks. So
// that A is still in L2 they come within their band, at the last place that is such a block's.
#pragma once

#include "divisor.cuh"
#include "types.cuh"

namespace coda {

struct Tile {
    int batch, m, n;  // in tiles
    int first, width; // columns of the product
};

// Rows that share what an epilogue has of each sample; 0: those of a batch do.
template <int rows> struct Samples {
    DEV static int of(int m, int) { return m / rows; }
    static constexpr int common_divisor(int a, int b) { return b ? common_divisor(b, a % b) : a; }
    // Samples that so many rows from a multiple of their number on may belong to.
    static constexpr int most(int n) { return (rows - common_divisor(rows, n) + n - 1) / rows + 1; }
};
template <> struct Samples<0> {
    DEV static int of(int, int batch) { return batch; }
    static constexpr int most(int) { return 1; }
};

// Blocks whose tiles are neighbours, in a row along M or along N.
template <int m, int n> struct ClusterShape {
    static constexpr int high = m, wide = n, size = m * n;
    static_assert(m == 1 || n == 1);
};

// What a Config inherits that does not say otherwise.
struct ConfigDefaults {
    using Weights = void; // of B: elements by strides; else a policy of tile/weights.cuh
    static constexpr int cluster_m = 1, cluster_n = 1, tail = 0, tail_bn = 0, state_columns = 0, states = 0;
    static constexpr int blocks = 0;
    static constexpr int b_parts = 0; // tensors besides the first in which B lies
    static constexpr bool across = false, serpentine = false, walks = false, lends = false, once = false;
    static constexpr bool dealt = false;                   // slots of K: tile/pieces.cuh
    static constexpr bool in_place = false;                // sums are scaled: tile/mixed_in_place.cuh
    static constexpr bool transposed = false; // the epilogue is applied to sums: tile/mixed_transposed.cuh
    static constexpr bool clips_a = false, scaled = false; // by blocks: tile/scales.cuh
    static constexpr bool leaves_warp = false; // registers of an SM are left for a warp of another kernel
    static constexpr bool roomy = false; // the epilogue has registers that the products have left
};

// The number of rows is an argument, from which it is made anew wherever it is wanted: no register holds it.
// So are the batches, and what divides.
template <class Config, class Cluster = ClusterShape<1, 1>> struct Raster {
    const typename Config::Args &args;

    // Tiles of a row, in full width.
    static constexpr int whole =
        (int)((Config::n - Config::tail * Config::tail_bn + Config::bn - 1) / Config::bn);
    static constexpr int columns = whole + Config::tail;
    // In clusters, which may reach past the end:
    static constexpr int wide = (columns + Cluster::wide - 1) / Cluster::wide;
    static constexpr int side = Config::across ? Cluster::wide : Cluster::high;
    static_assert(Config::band % side == 0);
    static_assert(!Config::walks || (Cluster::size == 1 && !Config::tail));
    static_assert(!Config::tail || (Cluster::size == 1 && !Config::across && !Config::batched));
    static_assert(!Config::tail || whole * Config::bn + Config::tail * Config::tail_bn == Config::n);

    // Tiles along M, and clusters; clusters of a batch, and of all.
    DEV int rows() const { return (Config::rows(args) + Config::bm - 1) / Config::bm; }
    DEV int high() const { return (rows() + Cluster::high - 1) / Cluster::high; }
    DEV u32 each() const { return (u32)high() * wide; }
    DEV u32 count() const
    {
        if constexpr (Config::batched) return each() * (u32)args.batches;
        else return each();
    }

    // The walk: its bits, then the band's tiles.
    DEV bool across() const
    {
        if constexpr (Config::walks) return args.walk & 1;
        else return Config::across;
    }
    DEV bool serpentine() const
    {
        if constexpr (Config::walks) return args.walk & 2;
        else return Config::serpentine;
    }
    DEV u32 band_size() const
    {
        if constexpr (Config::walks) return args.walk >> 2;
        else return Config::band / side;
    }

    // The band of a batch's cluster, whose length is the number of rows if it goes across.
    DEV u32 band_of(u32 i) const
    {
        if constexpr (Config::across || Config::walks) return args.divisor.quotient(i);
        else return i / (u32)(band_size() * length());
    }
    DEV u32 batch_of(u32 index) const
    {
        if constexpr (Config::batched) return args.per_batch.quotient(index);
        else return 0;
    }
    DEV int length() const { return across() ? high() : wide; }

    // The tile of the cluster's block `rank`.
    DEV Tile tile(u32 index, int rank = 0) const
    {
        if constexpr (Config::tail) return tile_or_tail(index);
        const u32 batch = batch_of(index), i = index - batch * each();
        const u32 size = band_size(), band = band_of(i), in = i - band * size * (u32)length();
        const u32 first = band * size, left = (across() ? wide : high()) - first;
        const u32 width = left < size ? left : size, x = first + in % width, y = in / width;
        const int n = (int)(across() ? x : y) * Cluster::wide + rank / Cluster::high;
        return {(int)batch, (int)(across() ? y : x) * Cluster::high + rank % Cluster::high, n, n * Config::bn,
                Config::bn};
    }

    // Of a band that begins with row `first` and has so many whole tiles, the place of its tail. The divisor
    // is the number of blocks that have a tile more.
    DEV u32 tail_place(u32 first, u32 tiles) const
    {
        constexpr u32 blocks = Config::blocks;
        constexpr u32 narrower = Config::bn - Config::tail_bn, more = (Config::bn + narrower / 2) / narrower;
        const u32 tail = first * Config::tail, dealt = more * args.divisor.number;
        const u32 block = tail < dealt ? args.divisor.rest(tail) : (tail - dealt) % blocks;
        const u32 place = (block + blocks - first * columns % blocks) % blocks;
        return place < tiles ? place + (tiles - place) / blocks * blocks : tiles;
    }
    DEV Tile tile_or_tail(u32 index) const
    {
        const u32 band = index / (Config::band * columns), first = band * Config::band, left = rows() - first;
        const u32 height = left < Config::band ? left : Config::band, tiles = height * whole,
                  tail = height * Config::tail;
        const u32 in = index % (Config::band * columns), place = tail_place(first, tiles);
        const bool in_tail = in >= place && in < place + tail;
        const u32 i = in_tail ? in - place : in < place ? in : in - tail;
        const int m = (int)(first + i % height), n = (int)(i / height);
        if (!in_tail) return {0, m, n, n * Config::bn, Config::bn};
        return {0, m, whole + n, whole * Config::bn + n * Config::tail_bn, Config::tail_bn};
    }
    DEV bool exists(const Tile &t) const
    {
        return (Cluster::high == 1 || t.m < rows()) && (columns % Cluster::wide == 0 || t.n < columns);
    }
};

} // namespace coda
