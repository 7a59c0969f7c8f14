// rows_above.cuh -- what an epilogue sees of the rows above its own: a causal convolution of each column.
//
// The source of an element is what apply() sees of it in Epilogue::above rows below, rounded to the operands'
// type. A warp has 16 rows of a unit; of an octet a lane has two neighbours, a word, of rows lane / 4 and
// lane / 4 + 8. What is above them is in other lanes, or, for the first rows, in the warp above, whose last
// rows come through shared memory. Above the first rows of a warpgroup's part of a tile are zeros: another
// kernel computes these rows again, from the edges that are left of each part in memory.
#pragma once

#include "tile/epilogue_layout.cuh"

namespace coda {

template <class Config, class Epilogue> struct RowsAbove {
    using Layout = EpilogueLayout<Config, Epilogue>;
    static constexpr int above = Epilogue::above, octets = 2 * Layout::chunk_patches;
    static constexpr int kept = 4 * above; // lanes of a warp that have its last rows
    static constexpr int period = 128;     // rows of a part: EDGE_PERIOD of lib/program
    static_assert(!above || (Layout::rows == period && above <= 8));

    // Of each unit and warp.
    template <int words, class Any = void> struct Last { u32 last[Layout::units][4][octets][words]; };
    template <class Any> struct Last<0, Any> {};
    struct Shared : Last<kept> {};

    // Of a unit: a thread's sources; and, in the lanes that have a warp's last rows, those of the warp above.
    template <bool looks_up, class Any = void> struct Unit {
        u32 row[octets / 2][2][2], over[octets / 2][2];
    };
    template <class Any> struct Unit<false, Any> {};
    struct Patch { u32 row[above + 1][2][2]; }; // the first one is its own

    DEV static u32 pack(const float (&x)[2]) { return pack2<typename Config::T>(x[0], x[1]); }
    DEV static float value(const Patch &p, int j, int side, int h, int e)
    {
        const Pair x = unpack2<typename Config::T>(p.row[j][side][h]);
        return e ? x.b : x.a;
    }

    DEV static void lay(Shared &s, const Unit<true> &u, int block, int chunk, int warp, int lane)
    {
        if (lane < 32 - kept) return;
#pragma unroll
        for (int i = 0; i < octets; i++)
            s.last[block * Layout::chunks + chunk][warp][i][lane - (32 - kept)] = u.row[i / 2][i % 2][1];
    }
    // The first warp's is the last one of the unit above.
    DEV static void get(const Shared &s, Unit<true> &u, int block, int chunk, int warp, int lane)
    {
        const bool any = lane >= 32 - kept && (warp || block);
        const int unit = (warp ? block : block - 1) * Layout::chunks + chunk;
#pragma unroll
        for (int i = 0; i < octets; i++) {
            u.over[i / 2][i % 2] = 0;
            if (any) u.over[i / 2][i % 2] = s.last[unit][(warp + 3) % 4][i][lane - (32 - kept)];
        }
    }
    // Four lanes have a row. Row j above is that of the lane 4 j before; who is less than 4 j from the end
    // hands on what is eight rows above its own, as it is asked by the first lanes.
    DEV static void look(Patch &to, const Unit<true> &u, int p, int lane)
    {
#pragma unroll
        for (int side = 0; side < 2; side++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const u32 own = u.row[p][side][h], upper = h ? u.row[p][side][0] : u.over[p][side];
                to.row[0][side][h] = own;
#pragma unroll
                for (int j = 1; j <= above; j++)
                    to.row[j][side][h] =
                        __shfl_sync(~0u, lane >= 32 - 4 * j ? upper : own, (lane - 4 * j) & 31);
            }
    }

    // Edges of a product, [part][2][columns / 8][above][8]: for each part the rows in front of it, and its
    // first ones; behind them the last rows of all. What lanes have of an octet lies in their order.
    template <class Args> DEV static u32 *edges(const Args &args, int place, int n)
    {
        const i64 at = (i64)place * Epilogue::edge_columns + (n - Epilogue::edge_first);
        return reinterpret_cast<u32 *>(Epilogue::edges(args) + at * above);
    }
    // A part's first rows, or its last ones, which are in front of the next.
    template <class Args>
    DEV static void save(const Args &args, const Unit<true> &u, int first, int n, bool begins, int lane)
    {
        const int part = first / period, at = begins ? lane : lane - (32 - kept);
        u32 *const to = edges(args, 2 * part + (begins ? 1 : 2), n) + at;
        if (at < 0 || at >= kept) return;
#pragma unroll
        for (int i = 0; i < octets; i++)
            to[i * kept] = begins ? u.row[i / 2][i % 2][0] : u.row[i / 2][i % 2][1];
    }
    // The last rows of all, where no part ends with them.
    DEV static bool ends(int first, int rows) { return rows % period && first + period > rows - above; }
    template <class Args>
    DEV static void save_last(const Args &args, const Unit<true> &u, int n, int m, int rows)
    {
#pragma unroll 1 // registers are short
        for (int h = 0; h < 2; h++) {
            const int r = m + 8 * h - (rows - above);
            if (r < 0 || r >= above) continue;
            u32 *const to = edges(args, (rows + period - 1) / period * 2, n) + 4 * r + threadIdx.x % 4;
#pragma unroll
            for (int i = 0; i < octets; i++)
                to[i * kept] = h ? u.row[i / 2][i % 2][1] : u.row[i / 2][i % 2][0];
        }
    }
};

} // namespace coda
