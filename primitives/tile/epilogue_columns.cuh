// epilogue_columns.cuh -- reductions down the columns of a tile.
//
// A thread folds the two rows that it has of a patch, eight lanes share out the slots of what they have of
// the same columns, and each warp merges the result into states of its own in shared memory: no register
// holds one from patch to patch. When the tile is drained the four warps' states are merged, in their order,
// and saved for the rows that this consumer has of the tile: float [batch][part of the rows][column][state].
//
// It stands on the arithmetic of a patch (epilogue_slots.cuh) and on a layout's numbers
// (epilogue_layout.cuh).
#pragma once

#include "tile/access.cuh"
#include "tile/epilogue_layout.cuh"
#include "tile/epilogue_slots.cuh"
#include "tile/raster.cuh"

namespace coda {

template <class Config, class Epilogue> struct EpilogueColumns {
    using Columns = typename Config::Columns;
    using Layout = EpilogueLayout<Config, Epilogue>;
    using Slots = PatchRow<Config, Epilogue>;
    using State = typename Epilogue::ColumnState; // of the columns of a slot
    using Patch = State[Slots::slots];
    static constexpr int lanes = Columns::lanes, slots = Slots::slots, warps = 4;
    static constexpr int entries = Layout::patches * slots * 4; // slots of a tile's row

    // Entry (patch, slot, lane % 4) of each warp; nothing if no columns are folded.
    struct None {};
    struct States { State state[warps][entries]; };
    template <bool any, class> struct SharedOf { using Type = None; };
    template <class T> struct SharedOf<true, T> { using Type = States; };
    using Shared = typename SharedOf<Layout::folds_columns, State>::Type;

    DEV static void init(Patch &s)
    {
#pragma unroll
        for (int i = 0; i < slots; i++) Epilogue::init_columns(s[i]);
    }
    // By the 128 threads of a consumer, who meet before anyone folds.
    DEV static void begin(Shared &to, int thread)
    {
        State empty;
        Epilogue::init_columns(empty);
        for (int i = thread; i < warps * entries; i += 128) to.state[i / entries][i % entries] = empty;
    }

    // Two lanes `distance` apart, which have rows of the same n slots, each get half of these.
    template <int n, int distance> DEV static State share_out(const State (&s)[n], int lane)
    {
        constexpr int left = n > 1 ? n / 2 : 1;
        const bool upper = lane & distance;
        State mine[left];
#pragma unroll
        for (int i = 0; i < left; i++) {
            mine[i] = upper ? s[n - left + i] : s[i];
            Epilogue::merge_columns(mine[i], from_lane(upper ? s[i] : s[n - left + i], distance));
        }
        if constexpr (distance > 4) return share_out<left, distance / 2>(mine, lane);
        else return mine[0];
    }
    DEV static void fold(Shared &to, const Patch &s, int patch, int warp, int lane)
    {
        const State all = share_out<slots, 16>(s, lane);
        constexpr int owners = 4 * 8 / slots; // neighbouring lanes that end with the same slot
        if (lane % owners >= 4) return;
        State &state = to.state[warp][(patch * slots + lane / owners) * 4 + lane % 4];
        State sum = state;
        Epilogue::merge_columns(sum, all);
        state = sum;
    }

    // The columns of an entry, as save_columns() sees them: a slot's, and that of a gated output.
    struct Spot {
        int column[lanes], half_column;
        bool live; // they exist, and the tile is wide enough to have them
    };
    DEV static Spot spot(const Tile &t, int entry)
    {
        const int patch = entry / (4 * slots), slot = entry / 4 % slots, at = 2 * (entry % 4);
        Spot c;
        int last = 0;
#pragma unroll
        for (int l = 0; l < lanes; l++) {
            const int octet = Columns::octet(patch, Slots::side_of(slot, l));
            const int j = 8 * octet + at + Slots::neighbour_of(slot, l);
            c.column[l] = Columns::column(t.first, j);
            last = j > last ? j : last;
        }
        c.half_column = t.first / 2 + 8 * patch + at + slot;
        const int width = Columns::gated ? 2 * (8 * patch + at + slot) : last;
        c.live = width < t.width && c.column[lanes - 1] < Config::n;
        return c;
    }
    // When all warps have folded theirs.
    DEV static void end(const typename Config::Args &args, const Shared &from, const Tile &t, int first_row,
                        int thread)
    {
        const int parts = (Config::rows(args) + Layout::rows - 1) / Layout::rows; // of the tensor's rows
        const int part = (t.m * Config::bm + first_row) / Layout::rows;
        if (Layout::rows < Config::bm && part >= parts) return; // rows past the end
        for (int i = thread; i < entries; i += 128) {
            State all = from.state[0][i];
#pragma unroll
            for (int w = 1; w < warps; w++) Epilogue::merge_columns(all, from.state[w][i]);
            const Spot c = spot(t, i);
            if (c.live) Epilogue::save_columns(args, (i64)t.batch * parts + part, c, all);
        }
    }
};

} // namespace coda
