// operands.cuh -- what TMA brings of A and B for a tile and 64 of K.
//
// An operand's tile lies in shared memory 128-byte swizzled: rows of 64 k (K-major), or blocks of
// [64 k][64 rows] (MN-major). Outside the tensor there are zeros. The blocks of a Cluster share tiles: each
// loads a part of what they share, for all.
#pragma once

#include "ptx/tma.cuh"
#include "tile/raster.cuh"
#include "tile/resources.cuh"

namespace coda {

template <class Config, class Cluster> struct Operands {
    using Columns = typename Config::Columns;
    static constexpr int a_bytes = Config::a_rows * swizzle_row, b_bytes = Config::bn * swizzle_row;

    const typename Config::Args &args;
    int place; // of this block in the cluster's tiles

    // Rows of A in a box, of Config::a_rows for which a slot has memory: where the kernel is for any number
    // of rows, no more octets than there are. A's tensor map says the same.
    DEV int a_rows() const
    {
        if constexpr (!Config::clips_a) return Config::a_rows;
        const int rows = (Config::rows(args) + 7) / 8 * 8;
        return rows < Config::a_rows ? rows : Config::a_rows;
    }
    // Bytes of a slot of a tile of so many columns.
    DEV u32 slot_bytes(int columns) const { return (a_rows() + columns) * swizzle_row; }

    // A box for this block, or for all that share it; L2 may forget it first if nobody reads it again soon.
    template <int sharers, bool once, class... At>
    DEV static void load(u32 to, const TensorMap *map, u32 bar, At... at)
    {
        if constexpr (sharers > 1) ptx::tma_multicast(to, map, bar, (1 << sharers) - 1, at...);
        else if constexpr (once) ptx::tma_load_once(to, map, bar, at...);
        else ptx::tma_load(to, map, bar, at...);
    }
    template <class... At> DEV void a_box(u32 to, u32 bar, At... at) const
    {
        load<Cluster::wide, false>(to, &args.a, bar, at...);
    }
    // With few rows (b_once) a block or two read a tile of B.
    template <class... At> DEV void b_box(u32 to, u32 bar, At... at) const
    {
        load<Cluster::high, Config::b_once>(to, &args.b, bar, at...);
    }
    // Loads one part of it, which has a map of its own.
    template <class... At> DEV void part_box(int part, u32 to, u32 bar, At... at) const
    {
        const TensorMap *map = part ? &args.more[part - 1] : &args.b;
        load<Cluster::high, Config::b_once>(to, map, bar, at...);
    }
    template <class... At> DEV void tail_box(u32 to, u32 bar, At... at) const
    {
        load<1, false>(to, &args.tail, bar, at...);
    }

    // This block's part of a tile: of its rows, or of its blocks of 64 rows.
    DEV void load_a(u32 slot, u32 bar, int k, const Tile &t) const
    {
        constexpr int share = Config::a_rows / Cluster::wide;
        const int from = place % Cluster::wide * share, m = t.m * Config::bm + from,
                  batch = Config::a_batched ? t.batch : 0;
        const u32 to = slot + from * swizzle_row;
        if constexpr (!Config::a_mn_major) a_box(to, bar, k, m, batch);
        else
            for (int i = 0; i < share / 64; i++) a_box(to + i * box_bytes, bar, m + 64 * i, k, batch);
    }
    // A gated tile has two halves, which are a dimension of B's tensor map, as are heads, and their halves.
    DEV void load_b(u32 slot, u32 bar, int k, const Tile &t) const
    {
        constexpr int half = Config::bn / 2, share = Config::bn / Cluster::high;
        const int from = place % Cluster::high * share, n = Columns::gated ? t.first / 2 : t.first;
        const int batch = Config::b_batched ? t.batch : 0;
        const u32 to = slot + from * swizzle_row;
        if constexpr (Config::b_parts > 0) load_parts(slot, bar, k, t);
        else if constexpr (Columns::split) load_pieces(slot, bar, k, t);
        else if constexpr (!Config::b_mn_major) {
            if constexpr (Config::tail) {
                if (t.width < Config::bn) return load_tail(slot, bar, k, n, batch);
            }
            if constexpr (Columns::gated) b_box(to, bar, k, n + from % half, from / half, batch);
            else b_box(to, bar, k, n + from, batch);
        } else
            for (int i = 0, row = from; i < (Config::tail ? t.width : share) / 64; i++, row += 64)
                if constexpr (Columns::gated)
                    b_box(to + i * box_bytes, bar, n + row % half, k, row / half, batch);
                else b_box(to + i * box_bytes, bar, n + row, k, batch);
    }
    // Gate and up are two parts; else a tile's columns are all of one.
    DEV void load_parts(u32 slot, u32 bar, int k, const Tile &t) const
    {
        constexpr int half = Config::bn / 2, share = Config::bn / Cluster::high;
        const int from = place % Cluster::high * share, batch = Config::b_batched ? t.batch : 0;
        const u32 to = slot + from * swizzle_row;
        if constexpr (Columns::gated) {
            constexpr int each = share < half ? share : half;
#pragma unroll
            for (int i = 0; i < share / each; i++) {
                const int row = from + i * each;
                part_box(row / half, to + i * each * swizzle_row, bar, k, t.first / 2 + row % half, batch);
            }
        } else {
            const int part = Config::part_of(t.first), first = Config::first_of(part);
            if constexpr (Columns::split) load_pieces(slot, bar, k, t, part, first);
            else part_box(part, to, bar, k, t.first - first + from, batch);
        }
    }
    DEV void load_tail(u32 slot, u32 bar, int k, int n, int batch) const
    {
        if constexpr (Columns::gated) tail_box(slot, bar, k, n, 0, batch);
        else tail_box(slot, bar, k, n, batch);
    }
    // Each block loads its share of each piece, from the part of B that begins with column `first`.
    DEV void load_pieces(u32 slot, u32 bar, int k, const Tile &t, int part = 0, int first = 0) const
    {
        constexpr int share = 64 / Cluster::high;
        const int from = place % Cluster::high * share;
        const u32 to = slot + from * swizzle_row;
        for (int i = 0, piece = (t.first - first) / 64; i < t.width / 64; i++, piece++)
            if constexpr (Config::b_parts > 0)
                part_box(part, to + i * box_bytes, bar, k, piece % Columns::pieces * 32 + from % 32,
                         from / 32, piece / Columns::pieces);
            else
                b_box(to + i * box_bytes, bar, k, piece % Columns::pieces * 32 + from % 32, from / 32,
                      piece / Columns::pieces);
    }
};

} // namespace coda
