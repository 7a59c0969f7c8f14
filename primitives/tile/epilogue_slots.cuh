// epilogue_slots.cuh -- the arithmetic of an epilogue: what an Epilogue says, and what its apply() sees.
//
// The emitted Epilogue holds the arithmetic, as functions of one row, one column and one slot. PatchRow takes
// one thread's sums and loaded values in one row of a patch, deals them to slots, calls apply() for each, and
// collects what it stores. So it is common to all main loops: to those whose accumulators are a wgmma
// fragment (epilogue.cuh), and to those that stream (stream.cuh).
//
// It stands on Line and Place (access.cuh) and on the layout of a tile's columns (columns.cuh); shared memory
// and other threads it does not know.
#pragma once

#include "block/fold.cuh" // for the text of an Epilogue, which merges states by it
#include "tile/access.cuh"
#include "tile/columns.cuh"
#include "tile/moves.cuh"

namespace coda {

// What an Epilogue that needs none of these inherits.
struct EpilogueDefaults {
    struct Row {};   // values of a row ...
    struct Col {};   // ... of a column of the product, ...
    struct Half {};  // ... of a column of a gated output
    struct Cell {};  // ... of a row and a column: cell() makes it of these, below() of that 8 rows above
    struct State {}; // of the reductions over a row
    struct ColumnState {}; // of those over the columns of a slot
    // In each range of columns: states of the reductions over a segment of them, and values made of these.
    template <int range, class Any = void> struct Fold {};
    template <int range, class Any = void> struct Segment {};
    static constexpr int segment = 0, ranges = 1; // columns of a segment; ranges, of which range() names one
    DEV static int range(int) { return 0; }
    static constexpr int loads = 0, stores = 0;
    static constexpr int team = 1;                 // threads that call row() for a row: 1, 2 or 32, a warp
    static constexpr int sample = 0;               // rows of a sample, whose number is `batch`; 0: of a batch
    static constexpr bool sampled_columns = false; // col() or half() asks for it
    static constexpr bool stores_by_row = false;   // store() takes the row's values, too
    static constexpr int above = 0; // rows above its own that apply() sees in ranges that looks_up() names
    DEV static constexpr bool looks_up(int) { return false; }
    using Staged = Moves<>;       // of the stores, those that leave through shared memory
    using Fetched = Moves<>;      // of the loads, those that come so
    // What row(), col() and half() take from memory, if the place of it follows from the row or column alone:
    // row_ahead() and so on load it, of several rows and columns before the first of them is used.
    struct RowAhead {};
    struct ColAhead {};
    struct HalfAhead {};
    template <class Args> DEV static RowAhead row_ahead(const Args &, i64, i64) { return {}; }
    template <class Args> DEV static ColAhead col_ahead(const Args &, i64, i64) { return {}; }
    template <class Args> DEV static HalfAhead half_ahead(const Args &, i64, i64) { return {}; }
    template <class Args> DEV static Row row(const Args &, const RowAhead &, i64, i64, bool) { return {}; }
    template <class Args> DEV static Col col(const Args &, const ColAhead &, i64, i64, bool) { return {}; }
    template <class Args> DEV static Half half(const Args &, const HalfAhead &, i64, i64, bool) { return {}; }
    template <class OfRow, class OfCol> DEV static Cell cell(const OfRow &, const OfCol &) { return {}; }
    template <class OfRow, class OfCol> DEV static Cell below(const Cell &, const OfRow &, const OfCol &)
    {
        return {};
    }
    template <class Args, class OfRow>
    DEV static void load(const Args &, const Place &, const OfRow &, Line *)
    {
    }
    template <class Args> DEV static void store(const Args &, const Place &, const Line *) {}
    template <int range, class Args> DEV static void store(const Args &, const Place &, const Line *) {}
    DEV static void init(State &) {}
    DEV static void merge(State &, const State &) {}
    template <class Args> DEV static void save(const Args &, i64, int, const State &) {}
    DEV static void init_columns(ColumnState &) {}
    DEV static void merge_columns(ColumnState &, const ColumnState &) {}
    template <class Args, class Spot>
    DEV static void save_columns(const Args &, i64, const Spot &, const ColumnState &)
    {
    }
};

// What leaves for memory by itself, of a range of columns.
template <class Epilogue, int range, class Args>
DEV void store_lines(const Args &args, const Place &p, const typename Epilogue::Row &row, const Line *y)
{
    if constexpr (Epilogue::ranges > 1 && Epilogue::stores_by_row)
        Epilogue::template store<range>(args, p, row, y);
    else if constexpr (Epilogue::ranges > 1) Epilogue::template store<range>(args, p, y);
    else if constexpr (Epilogue::stores_by_row) Epilogue::store(args, p, row, y);
    else Epilogue::store(args, p, y);
}

// What a slot knows of its row if columns are folded: its number, and whether it exists.
template <bool folds> struct SlotRow {};
template <> struct SlotRow<true> {
    int m;
    bool inside;
};

// What apply() sees of one element, or of a pair, in a range of columns.
template <class Args, class Epilogue, int lanes, int of_range = 0>
struct Slot : SlotRow<!__is_empty(typename Epilogue::ColumnState)> {
    static constexpr int range = of_range;
    const Args *args; // for scalars among them
    typename Epilogue::template Segment<range> segment;
    float acc[lanes];
    float in[Epilogue::loads + 1][lanes], out[Epilogue::stores + 1][lanes]; // a gated output's: lane 0
    typename Epilogue::Row row;
    typename Epilogue::Col col[lanes];
    typename Epilogue::Half half;
    typename Epilogue::Cell cell;
    int column[lanes], half_column; // counted from the thread's first column in the tile, ...
    int first, half_first;          // ... and where that is in the tensor
    bool live[lanes];               // it exists
    float above[Epilogue::above + 1]; // where it looks up: its source, and those of the rows above
};

struct NoneAbove {
    DEV float operator()(int, int, int) const { return 0.0f; }
};

// One row of a patch, as one thread has it, through the arithmetic: slot after slot.
template <class Config, class Epilogue> struct PatchRow {
    using Columns = typename Config::Columns;
    // States of a row in a thread, whose updates overlap; wide ones would take too many registers.
    static constexpr int chains = sizeof(typename Epilogue::State) > 3 * sizeof(float) ? 1 : 2;
    static constexpr int slots = 4 / Columns::lanes;
    static constexpr bool has_col = !__is_empty(typename Epilogue::Col),
                          has_half = !__is_empty(typename Epilogue::Half);
    static constexpr bool has_cell = !__is_empty(typename Epilogue::Cell);
    static constexpr bool folds_columns = !__is_empty(typename Epilogue::ColumnState);

    // Slot s: which octet and which of two neighbours a lane is.
    DEV static constexpr int side_of(int s, int l)
    {
        return Columns::apart ? l : Columns::lanes == 2 ? s : s / 2;
    }
    DEV static constexpr int neighbour_of(int s, int l)
    {
        return Columns::apart ? s : Columns::lanes == 2 ? l : s % 2;
    }

    // Folds what a segment's reductions take of the values, which loads and states have no part in.
    template <int range, class Cols>
    DEV static void fold(const typename Config::Args &args, const float (&sums)[2][2], const Place &p,
                         const typename Epilogue::Row &row, Cols col,
                         typename Epilogue::template Fold<range> (&fold)[2])
    {
#pragma unroll
        for (int s = 0; s < slots; s++) {
            Slot<typename Config::Args, Epilogue, Columns::lanes, range> v;
            v.args = &args;
            v.row = row;
#pragma unroll
            for (int l = 0; l < Columns::lanes; l++) {
                const int side = side_of(s, l), e = neighbour_of(s, l);
                v.acc[l] = sums[side][e];
                v.column[l] = p.full.distance[side] + e * Columns::step;
                if constexpr (has_col) v.col[l] = col(side, e);
            }
            if constexpr (has_cell) v.cell = Epilogue::cell(row, v.col[0]);
            v.first = (int)p.full.first;
            Epilogue::template fold<range>(v, fold[s % 2]);
        }
    }

    // What of the sums the rows below are to see.
    template <int range, class Cols>
    DEV static void source(const typename Config::Args &args, const float (&sums)[2][2], const Place &p,
                           const typename Epilogue::Row &row, Cols col, float (&x)[2][2])
    {
        static_assert(Columns::lanes == 1);
#pragma unroll
        for (int s = 0; s < slots; s++) {
            const int side = side_of(s, 0), e = neighbour_of(s, 0);
            Slot<typename Config::Args, Epilogue, Columns::lanes, range> v;
            v.args = &args;
            v.row = row;
            v.acc[0] = sums[side][e];
            if constexpr (has_col) v.col[0] = col(side, e);
            x[side][e] = Epilogue::template source<range>(v);
        }
    }

    // sums: of both octets. col(side, neighbour) and half(neighbour) are the values of columns. The cells are
    // made here, of those 8 rows above if it is `below` them. A row that is not `inside` the tensor is not
    // pushed to the slots' columns.
    template <int range = 0, class Cols, class Halves, class Above = NoneAbove>
    DEV static void apply(const typename Config::Args &args, const float (&sums)[2][2], const Place &p,
                          const typename Epilogue::Row &row, Cols col, Halves half, const Line *in, Line *out,
                          typename Epilogue::State (&state)[chains], typename Epilogue::Cell (&cell)[slots],
                          bool below = false, const typename Epilogue::template Segment<range> &segment = {},
                          typename Epilogue::ColumnState *columns = nullptr, bool inside = true,
                          Above above = {})
    {
#pragma unroll
        for (int s = 0; s < slots; s++) {
            Slot<typename Config::Args, Epilogue, Columns::lanes, range> v;
            v.args = &args;
            v.row = row;
            v.segment = segment;
#pragma unroll
            for (int l = 0; l < Columns::lanes; l++) {
                const int side = side_of(s, l), e = neighbour_of(s, l);
                v.acc[l] = sums[side][e];
                v.column[l] = p.full.distance[side] + e * Columns::step;
                v.live[l] = e < p.full.live[side];
                if constexpr (has_col) v.col[l] = col(side, e);
#pragma unroll
                for (int i = 0; i < Epilogue::loads; i++) v.in[i][l] = in[i].x[side][e];
            }
            if constexpr (has_cell)
                cell[s] = below ? Epilogue::below(cell[s], row, v.col[0]) : Epilogue::cell(row, v.col[0]);
            v.cell = cell[s];
            v.half_column = p.half.distance[0] + s;
            v.first = (int)p.full.first, v.half_first = (int)p.half.first;
            if constexpr (has_half) v.half = half(s);
            if constexpr (Epilogue::looks_up(range))
#pragma unroll
                for (int j = 0; j <= Epilogue::above; j++)
                    v.above[j] = above(j, side_of(s, 0), neighbour_of(s, 0));
            if constexpr (folds_columns) {
                v.m = (int)p.m, v.inside = inside;
                Epilogue::apply(v, state[s % chains], columns[s]);
            } else Epilogue::apply(v, state[s % chains]);
#pragma unroll
            for (int i = 0; i < Epilogue::stores; i++)
#pragma unroll
                for (int l = 0; l < Columns::lanes; l++)
                    out[i].x[side_of(s, l)][neighbour_of(s, l)] = v.out[i][l];
        }
    }
};

} // namespace coda
