// epilogue.cuh -- from accumulators to tensors: what main loops do after the last product of a tile.
//
// The emitted Epilogue holds the arithmetic, as functions of one row, one column and one slot; Drain, which
// one consumer warpgroup runs, moves the data between them and memory. For one tile:
//     prepare   row(), col() and half() fill shared memory, once for each row and column, when all that they
//               load is on its way
//     drain     for each unit, 64 rows of a chunk of columns: load(), cell() and apply() for every slot,
//               store(); then merge the reductions' states across the four lanes that share a row, and
//               save(); at the end save_columns(), of what was folded down the columns
// Stores are direct, or staged: tiles go through swizzled shared memory and leave by TMA, 16 rows of each
// warp, which waits for no other. Loads are direct, or fetched: the same the other way (fetch.cuh). The
// accumulators are a wgmma fragment (see ptx/wgmma.cuh) for every main loop.
//
// Here are the values of rows and columns, a thread's places in the tensor, and the walk over a tile. It
// stands on five files: the numbers by which a tile is cut (epilogue_layout.cuh), the arithmetic of one row
// of a patch (epilogue_slots.cuh), states of columns (epilogue_columns.cuh), what a row sees of those above
// it (rows_above.cuh), and what goes through shared memory (epilogue_staging.cuh).
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "tile/access.cuh"
#include "tile/epilogue_columns.cuh"
#include "tile/epilogue_layout.cuh"
#include "tile/epilogue_slots.cuh"
#include "tile/epilogue_staging.cuh"
#include "tile/raster.cuh"
#include "tile/resources.cuh"
#include "tile/rows_above.cuh"

namespace coda {

template <class Config, class Epilogue> struct Drain {
    using Columns = typename Config::Columns;
    using Args = typename Config::Args;
    using Layout = EpilogueLayout<Config, Epilogue>;
    using Staging = EpilogueStaging<Config, Epilogue>;
    using Stage = typename Layout::Stage;
    using Unit = typename Stage::Unit;
    using Slots = PatchRow<Config, Epilogue>;
    using Cells = typename Epilogue::Cell[Slots::slots];
    using Folds = EpilogueColumns<Config, Epilogue>;
    using Above = RowsAbove<Config, Epilogue>;
    static constexpr int chains = Slots::chains;

    // Samples that a warpgroup's rows of a tile belong to, at most: columns have values for each of them.
    static constexpr int samples =
        Epilogue::sampled_columns ? Samples<Epilogue::sample>::most(Layout::rows) : 1;

    // Where a warp of another kernel is to have room, nothing is kept of what is empty.
    template <class T> static constexpr int held(int n)
    {
        return Config::leaves_warp && __is_empty(T) ? 1 : n;
    }
    struct Values : Folds::Shared, Above::Shared { // of the tile at hand
        typename Epilogue::Row row[held<typename Epilogue::Row>(Layout::rows)];
        typename Epilogue::Col col[samples][held<typename Epilogue::Col>(Config::bn)];
        typename Epilogue::Half half[samples][held<typename Epilogue::Half>(Config::bn / 2)];
    };

    const Args &args;
    Values &values;
    Stage stage; // of this warpgroup
    int group;   // warpgroup, and its first row in the tile
    int first_row;
    int thread, warp, lane;

    // Made anew for each tile: no address lives in a register through the mainloop.
    DEV Drain(const Args &a, Values &v, int consumer, const Stage &buffers = {})
        : args(a), values(v), stage(buffers), group(consumer),
          first_row(Config::pingpong ? 0 : consumer * Layout::rows), thread(ptx::opaque(threadIdx.x % 128)),
          warp(ptx::uniform(thread / 32)), lane(thread % 32)
    {
    }

    // The same, but what follows from the lane is computed again: it takes no registers in between.
    DEV Drain without_cached_lane() const
    {
        Drain d = *this;
        d.lane = ptx::opaque(lane);
        return d;
    }

    DEV Staging staging() const { return {args, stage, first_row, warp, lane}; }

    DEV void meet() const { ptx::named_barrier(barrier_group + group, 128); }

    // ---- Values of rows and columns ----

    // A thread has its share of the rows and columns in turns. All that they load of a tile with one sample
    // is in flight at one time; so is most of what any other loads of rows. Beside large accumulators what is
    // loaded of columns waits: sums that a tile of the tail does not write count as if they were in use.
    static constexpr bool in_time = samples == 1 && Layout::blocks * Config::bn <= 192;
    static constexpr int row_threads = 128 / Epilogue::team; // that lead a row at one time
    static constexpr int row_turns = (Layout::rows + row_threads - 1) / row_threads;
    static constexpr int rows_ahead = row_turns < 4 ? row_turns : 4;
    static constexpr int col_turns = (Config::bn + 127) / 128, half_turns = (Config::bn / 2 + 127) / 128;
    struct Ahead {
        typename Epilogue::RowAhead row[rows_ahead];
        typename Epilogue::ColAhead col[col_turns];
        typename Epilogue::HalfAhead half[half_turns];
    };

    // Whoever has the time asks for the values of a tile before it prepares it.
    DEV void ask(const Tile &t, Ahead &ahead) const
    {
        ask_rows(t, ahead);
        if constexpr (in_time) ask_columns(t, first_sample(t), ahead);
    }
    DEV void prepare(const Tile &t) const
    {
        Ahead ahead;
        ask(t, ahead);
        prepare(t, ahead);
    }
    DEV void prepare(const Tile &t, Ahead &ahead) const
    {
        if constexpr (Layout::has_row || Layout::has_col || Layout::has_half || Layout::folds_columns) {
            meet(); // the last tile's readers are done
            if constexpr (Layout::folds_columns) Folds::begin(values, thread);
            prepare_rows(t, ahead);
            prepare_columns(t, ahead);
            meet();
        }
    }

    DEV int row_of(int turn) const { return turn * row_threads + thread / Epilogue::team; }
    // Is there such a row? If it has a warp, that asks the tensor, too.
    DEV bool row_exists(const Tile &t, int i) const
    {
        if (Epilogue::team == 32) return existing_row(t, i) == t.m * Config::bm + first_row + i;
        return Layout::rows % row_threads == 0 || i < Layout::rows;
    }
    // Rows past the end stand for the last one.
    DEV int existing_row(const Tile &t, int i) const
    {
        const int m = t.m * Config::bm + first_row + i, last = rows() - 1;
        return Config::even || m < last ? m : last;
    }
    DEV void ask_rows(const Tile &t, Ahead &ahead) const
    {
        if constexpr (Layout::has_row)
#pragma unroll
            for (int turn = 0; turn < rows_ahead; turn++) {
                if (!row_exists(t, row_of(turn))) continue;
                const int m = existing_row(t, row_of(turn));
                ahead.row[turn] = Epilogue::row_ahead(args, Samples<Epilogue::sample>::of(m, t.batch), m);
            }
    }
    // Every lane of a team takes part, whether the row exists or not; the first alone stores.
    DEV void prepare_row(const Tile &t, int i, const typename Epilogue::RowAhead &ahead) const
    {
        const int m = existing_row(t, i), batch = Samples<Epilogue::sample>::of(m, t.batch);
        const bool inside = Config::even || t.m * Config::bm + first_row + i < rows();
        const bool leads = thread % Epilogue::team == 0 && inside;
        const typename Epilogue::Row row = Epilogue::row(args, ahead, batch, m, t.n == 0 && leads);
        if (leads) values.row[i] = row;
    }
    DEV void prepare_rows(const Tile &t, const Ahead &ahead) const
    {
        if constexpr (Layout::has_row) {
#pragma unroll
            for (int turn = 0; turn < rows_ahead; turn++)
                if (row_exists(t, row_of(turn))) prepare_row(t, row_of(turn), ahead.row[turn]);
#pragma unroll 1
            for (int turn = rows_ahead; turn < row_turns; turn++) {
                const int i = row_of(turn), m = existing_row(t, i);
                if (!row_exists(t, i)) break;
                prepare_row(t, i,
                            Epilogue::row_ahead(args, Samples<Epilogue::sample>::of(m, t.batch), m));
            }
        }
    }

    // Column j of a tile, and of the tensor; what is past the end loads the last one.
    DEV static int inside(int n, i64 end) { return n < end ? n : (int)end - 1; }
    DEV void ask_columns(const Tile &t, int batch, Ahead &ahead) const
    {
        if constexpr (Layout::has_col)
#pragma unroll
            for (int i = 0; i < col_turns; i++)
                ahead.col[i] = Epilogue::col_ahead(
                    args, batch, inside(Columns::column(t.first, thread + 128 * i), Config::n));
        if constexpr (Layout::has_half)
#pragma unroll
            for (int i = 0; i < half_turns; i++)
                ahead.half[i] = Epilogue::half_ahead(
                    args, batch, inside(Columns::half_column(t.first, thread + 128 * i), Config::n / 2));
    }
    DEV void prepare_columns(const Tile &t, Ahead &ahead) const
    {
        const int first = first_sample(t);
        if constexpr (in_time) prepare_sample(t, first, 0, ahead);
        else
#pragma unroll
            for (int s = 0; s < samples; s++)
                if (samples == 1 || (first + s) * Epilogue::sample < rows())
                    prepare_sample(t, first + s, s, ahead);
    }
    DEV void prepare_sample(const Tile &t, int batch, int s, Ahead &ahead) const
    {
        if constexpr (Layout::has_col)
#pragma unroll
            for (int i = 0; i < col_turns; i++) {
                const int j = thread + 128 * i, n = Columns::column(t.first, j);
                const bool in_tile = Config::bn % 128 == 0 || j < Config::bn;
                if (!in_tile || n >= Config::n) continue;
                if constexpr (!in_time) ahead.col[i] = Epilogue::col_ahead(args, batch, n);
                values.col[s][j] = Epilogue::col(args, ahead.col[i], batch, n, t.m == 0);
            }
        if constexpr (Layout::has_half)
#pragma unroll
            for (int i = 0; i < half_turns; i++) {
                const int j = thread + 128 * i, n = Columns::half_column(t.first, j);
                const bool in_tile = Config::bn % 256 == 0 || j < Config::bn / 2;
                if (!in_tile || n >= Config::n / 2) continue;
                if constexpr (!in_time) ahead.half[i] = Epilogue::half_ahead(args, batch, n);
                values.half[s][j] = Epilogue::half(args, ahead.half[i], batch, n, t.m == 0);
            }
    }
    // The sample of the tile's first row; and of any row in it, counted from there. Rows past the end have
    // the last row's.
    DEV int first_sample(const Tile &t) const
    {
        return Samples<Epilogue::sample>::of(t.m * Config::bm + first_row, t.batch);
    }
    DEV int sample_in_tile(const Tile &t, int block, int h) const
    {
        if constexpr (samples == 1) return 0;
        constexpr bool alike = Epilogue::sample % 16 == 0; // the rows of a warp in a unit
        const int row = alike ? 64 * block + 16 * warp : row_in_group(block, h);
        const int m = t.m * Config::bm + first_row + row, last = rows() - 1;
        return Samples<Epilogue::sample>::of(m < last ? m : last, 0) - first_sample(t);
    }

    // ---- Places ----

    DEV int row_in_group(int block, int h) const { return 64 * block + 16 * warp + lane / 4 + 8 * h; }
    DEV int column_in_tile(int octet) const { return 8 * octet + 2 * (lane % 4); }

    DEV int row_in_tensor(const Tile &t, int block, int h) const
    {
        return t.m * Config::bm + first_row + row_in_group(block, h);
    }
    DEV int rows() const { return Config::rows(args); } // of the tensor
    DEV bool is_inside(const Tile &t, int block, int h) const
    {
        return Config::even || row_in_tensor(t, block, h) < rows();
    }
    // Rows past the end stand for the last one: they are loaded and computed, but not stored.
    DEV Place place(const Tile &t, int block, int h, int patch) const
    {
        Place p;
        const int m = row_in_tensor(t, block, h);
        p.m = Config::even || m < rows() ? m : rows() - 1;
        p.batch = Samples<Epilogue::sample>::of((int)p.m, t.batch);
        p.full.step = Columns::step, p.half.step = 1;
        p.full.first = Columns::column(t.first, column_in_tile(0));
        p.half.first = t.first / 2 + column_in_tile(0);
        p.half.distance[0] = 8 * patch, p.half.distance[1] = 0;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            p.full.distance[side] = Columns::distance(t.first, Columns::octet(patch, side));
            p.full.live[side] = Layout::live(Columns::gated ? (int)p.half.first + p.half.distance[0]
                                                            : (int)p.full.first + p.full.distance[side]);
        }
        p.half.live[0] = p.full.live[0], p.half.live[1] = 0;
        return p;
    }

    // ---- Slots ----

    template <int range, int n>
    DEV void apply(const float (&acc)[n], int held, int patch, int h, const Place &p, int sample,
                   const typename Epilogue::Row &row, const Line *in, Line *out,
                   typename Epilogue::State (&state)[chains], Cells &cells,
                   typename Epilogue::ColumnState *columns, bool inside,
                   const typename Epilogue::template Segment<range> &segment,
                   const typename Above::Patch &above) const
    {
        float sums[2][2];
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i / 2][i % 2] = acc[4 * Columns::octet(held, i / 2) + 2 * h + i % 2];
        Slots::template apply<range>(
            args, sums, p, row,
            [&](int side, int e) {
                return (values.col[sample] + column_in_tile(0))[8 * Columns::octet(patch, side) + e];
            },
            [&](int s) { return (values.half[sample] + column_in_tile(0))[8 * patch + s]; }, in, out, state,
            cells, h == 1, segment, columns, inside,
            [&](int j, int side, int e) {
                if constexpr (Epilogue::above > 0) return Above::value(above, j, side, h, e);
                else return 0.0f;
            });
    }

    // ---- The walk ----

    // A warp whose rows do not exist has nothing to drain. Large tiles have few such warps.
    DEV bool has_rows(const Tile &t, int block) const
    {
        return Config::groups > 1 || Config::even ||
               t.m * Config::bm + first_row + 64 * block + 16 * warp < rows();
    }

    // `turn` counts the tiles of this warpgroup. One block's code serves all, and where it is long one
    // chunk's: the next one's sums move to where the first one's were.
    template <int n> DEV void drain(float (&acc)[Layout::blocks][n], const Tile &t, u32 turn = 0) const
    {
#pragma unroll 1
        for (int b = 0;; b++) {
            typename Epilogue::State state[2][chains];
            init(state);
#pragma unroll (Layout::unrolled_chunks)
            for (int c = 0; c < Layout::chunks; c++) {
                const Unit unit = stage.unit(turn, b * Layout::chunks + c);
                if (Layout::has_chunk(t, c)) drain_unit(acc[0], t, b, c, unit, state);
                else skip_unit(unit);
                if constexpr (Layout::unrolled_chunks == 1) advance(acc[0], c + 1);
            }
            if constexpr (Layout::has_state && !Layout::cuts_states) finish(t, b, t.n, state);
            if (b == Layout::blocks - 1) break;
#pragma unroll
            for (int i = n; i < Layout::blocks * n; i++) acc[i / n - 1][i % n] = acc[i / n][i % n];
        }
        if constexpr (Layout::folds_columns) {
            meet(); // all warps have folded theirs
            Folds::end(args, values, t, first_row, thread);
        }
    }
    // Each chunk has its own moves, as `opaque` keeps the compiler from doing all of them by selection.
    template <int n> DEV static void advance(float (&acc)[n], int chunk)
    {
        constexpr int sums = 8 * Layout::chunk_patches;
        auto at = [](int i) { return 4 * Columns::octet(i / 8, i / 4 % 2) + i % 4; }; // patch by patch
#pragma unroll
        for (int c = 1; c < Layout::chunks; c++)
            if (chunk == c) {
                ptx::opaque(c);
#pragma unroll
                for (int i = 0; i < sums; i++) acc[at(i)] = acc[at(c * sums + i)];
            }
    }
    // What does not exist: what was fetched for it is not wanted.
    DEV void skip_unit(const Unit &unit) const
    {
        if constexpr (Layout::fetches) {
            stage.await(unit);
            stage.release(unit);
        }
    }
    DEV void skip(u32 turn) const
    {
        if constexpr (Layout::fetches)
            for (int u = 0; u < Layout::units; u++) skip_unit(stage.unit(turn, u));
    }
    // A chunk's columns are all in one range; each range has code of its own.
    template <int n>
    DEV void drain_unit(const float (&acc)[n], const Tile &t, int block, int chunk, const Unit &from,
                        typename Epilogue::State (&state)[2][chains]) const
    {
        if constexpr (Epilogue::ranges == 1) drain_range<0>(acc, t, block, chunk, from, state);
        else
            choose_range<0>(Epilogue::range(t.first + chunk * Layout::chunk_width), acc, t, block, chunk,
                            from, state);
    }
    template <int range, int n>
    DEV void choose_range(int chosen, const float (&acc)[n], const Tile &t, int block, int chunk,
                          const Unit &from, typename Epilogue::State (&state)[2][chains]) const
    {
        if (range == Epilogue::ranges - 1 || range == chosen)
            drain_range<range>(acc, t, block, chunk, from, state);
        else if constexpr (range < Epilogue::ranges - 1)
            choose_range<range + 1>(chosen, acc, t, block, chunk, from, state);
    }
    template <int range, int n>
    DEV void drain_range(const float (&acc)[n], const Tile &t, int block, int chunk, const Unit &from,
                         typename Epilogue::State (&state)[2][chains]) const
    {
        typename Epilogue::template Segment<range> segment[2][Layout::segments];
        const int unit = block * Layout::chunks + chunk, slot = unit % Layout::ring;
        const Drain uncached = without_cached_lane();
        if constexpr (Layout::stages) staging().open_unit(unit, t.width < Config::bn && chunk == 0);
        if constexpr (Layout::fetches) stage.await(from);
        if constexpr (Epilogue::segment)
            if (has_rows(t, block)) uncached.template fold_segments<range>(acc, t, block, chunk, segment);
        typename Above::template Unit<Epilogue::looks_up(range)> source;
        if constexpr (Epilogue::looks_up(range))
            uncached.template look_up<range>(acc, t, block, chunk, source);
#pragma unroll
        for (int p = 0; p < Layout::chunk_patches && has_rows(t, block); p += Layout::batch)
            uncached.template drain_batch<range>(acc, t, block, chunk * Layout::chunk_patches, p, slot,
                                                 from.buffer, state, segment, source);
        if constexpr (Layout::fetches) stage.release(from);
        if constexpr (Layout::stages)
            staging().template close_unit<range>(t, chunk, block, slot, from.buffer);
    }

    // A few patches of a unit, from its patch `p`; `before` others come before the unit. All loads are issued
    // before the first is used.
    template <int range, class Segments, class Sources, int n>
    DEV void drain_batch(const float (&acc)[n], const Tile &t, int block, int before, int p, int slot,
                         u32 from, typename Epilogue::State (&state)[2][chains], const Segments &segment,
                         const Sources &source) const
    {
        const int first = before + p, held = Layout::unrolled_chunks == 1 ? p : first;
        typename Epilogue::Row row[2];
        Line in[Layout::batch][2][Epilogue::loads + 1];
        if constexpr (Layout::has_row)
            row[0] = values.row[row_in_group(block, 0)], row[1] = values.row[row_in_group(block, 1)];
#pragma unroll
        for (int i = 0; i < 2 * Layout::batch; i++)
            if (Layout::exists(t, first + i / 2))
                Epilogue::load(args, place(t, block, i % 2, first + i / 2), row[i % 2], in[i / 2][i % 2]);
        if constexpr (Layout::fetches)
#pragma unroll
            for (int i = 0; i < Layout::batch; i++) staging().get(from, p + i, in[i][0], in[i][1]);
#pragma unroll
        for (int i = 0; i < Layout::batch; i++) {
            if (!Layout::exists(t, first + i)) {
                end_state(t, block, p + i, first + i, state);
                continue;
            }
            Line out[2][Epilogue::stores + 1];
            Cells cells;
            typename Folds::Patch columns;
            if constexpr (Layout::folds_columns) Folds::init(columns);
            typename Above::Patch above;
            if constexpr (Epilogue::looks_up(range)) Above::look(above, source, p + i, lane);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const Place at = place(t, block, h, first + i);
                apply<range>(acc, held + i, first + i, h, at, sample_in_tile(t, block, h), row[h], in[i][h],
                             out[h],
                      state[h], cells, columns, !Layout::folds_columns || is_inside(t, block, h),
                             segment[h][Layout::segment_of(p + i)], above);
                if (is_inside(t, block, h)) store_lines<Epilogue, range>(args, at, row[h], out[h]);
                if constexpr (Layout::stages) staging().template put_row<range>(slot, p + i, from, h, out[h]);
            }
            if constexpr (Layout::folds_columns) Folds::fold(values, columns, first + i, warp, lane);
            if constexpr (Layout::stages) staging().template put<range>(slot, p + i, from, out[0], out[1]);
            end_state(t, block, p + i, first + i, state);
        }
    }

    // ---- Rows above ----

    // The sources of a unit's rows, and those of the rows above each warp's.
    template <int range, class Sources, int n>
    DEV void look_up(const float (&acc)[n], const Tile &t, int block, int chunk, Sources &source) const
    {
        const int before = chunk * Layout::chunk_patches;
#pragma unroll
        for (int i = 0; i < 2 * Layout::chunk_patches; i++) {
            const int p = i / 2, h = i % 2, held = Layout::unrolled_chunks == 1 ? p : before + p;
            typename Epilogue::Row row;
            if constexpr (Layout::has_row) row = values.row[row_in_group(block, h)];
            float sums[2][2], x[2][2];
#pragma unroll
            for (int k = 0; k < 4; k++)
                sums[k / 2][k % 2] = acc[4 * Columns::octet(held, k / 2) + 2 * h + k % 2];
            const int sample = sample_in_tile(t, block, h);
            Slots::template source<range>(
                args, sums, place(t, block, h, before + p), row,
                [&](int side, int e) {
                    return (values.col[sample] + column_in_tile(0))[8 * Columns::octet(before + p, side) + e];
                },
                x);
            source.row[p][0][h] = Above::pack(x[0]), source.row[p][1][h] = Above::pack(x[1]);
        }
        Above::lay(values, source, block, chunk, warp, lane);
        save_edges(t, source, block, chunk);
        meet();
        Above::get(values, source, block, chunk, warp, lane);
    }
    // Of a few warps: a store for each octet, at distances that the compiler knows.
    template <class Sources>
    DEV void save_edges(const Tile &t, const Sources &source, int block, int chunk) const
    {
        const int first = t.m * Config::bm + first_row, n = t.first + chunk * Layout::chunk_width;
        if (n >= Config::n) return;
        if (block == 0 && warp == 0) Above::save(args, source, first, n, true, lane);
        if (block == Layout::blocks - 1 && warp == 3 && first + Above::period <= rows())
            Above::save(args, source, first, n, false, lane);
        if (Above::ends(first, rows()))
            Above::save_last(args, source, n, first + row_in_group(block, 0), rows());
    }

    // ---- Segments ----

    // The statistics of a chunk's segments, before any of its values is finished: four lanes share a row.
    template <int range, int n>
    DEV void fold_segments(const float (&acc)[n], const Tile &t, int block, int chunk,
                           typename Epilogue::template Segment<range> (&segment)[2][Layout::segments]) const
    {
        using Fold = typename Epilogue::template Fold<range>;
        if constexpr (!__is_empty(Fold)) {
            const int before = chunk * Layout::chunk_patches;
#pragma unroll
            for (int i = 0; i < 2 * Layout::segments; i++) {
                const int h = i % 2, each = Layout::chunk_patches / Layout::segments, from = i / 2 * each;
                typename Epilogue::Row row;
                if constexpr (Layout::has_row) row = values.row[row_in_group(block, h)];
                Fold fold[2];
                Epilogue::template init_fold<range>(fold[0]), Epilogue::template init_fold<range>(fold[1]);
#pragma unroll
                for (int p = from; p < from + each; p++)
                    fold_patch<range>(acc, Layout::unrolled_chunks == 1 ? p : before + p, before + p, h,
                                      place(t, block, h, before + p), sample_in_tile(t, block, h), row, fold);
                Epilogue::template merge_folds<range>(fold[0], fold[1]);
                Epilogue::template merge_folds<range>(fold[0], from_lane(fold[0], 1));
                Epilogue::template merge_folds<range>(fold[0], from_lane(fold[0], 2));
                segment[h][i / 2] = Epilogue::template segment_values<range>(row, fold[0]);
                const int m = row_in_tensor(t, block, h);
                const int column = t.first + 16 * (before + from);
                if (lane % 4 == 0 && is_inside(t, block, h) && column < Config::n)
                    Epilogue::template save_segment<range>(args, t.batch, m, column, segment[h][i / 2]);
            }
        }
    }
    template <int range, int n>
    DEV void fold_patch(const float (&acc)[n], int held, int patch, int h, const Place &p, int sample,
                        const typename Epilogue::Row &row,
                        typename Epilogue::template Fold<range> (&fold)[2]) const
    {
        float sums[2][2];
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i / 2][i % 2] = acc[4 * Columns::octet(held, i / 2) + 2 * h + i % 2];
        Slots::template fold<range>(
            args, sums, p, row,
            [&](int side, int e) {
                return (values.col[sample] + column_in_tile(0))[8 * Columns::octet(patch, side) + e];
            },
            fold);
    }

    DEV static void init(typename Epilogue::State (&state)[2][chains])
    {
#pragma unroll
        for (int i = 0; i < 2 * chains; i++) Epilogue::init(state[i / chains][i % chains]);
    }
    // If this patch is the last one of a state, begins the next.
    DEV void end_state(const Tile &t, int block, int in_chunk, int in_tile,
                       typename Epilogue::State (&state)[2][chains]) const
    {
        if constexpr (Layout::cuts_states) {
            if (!Layout::ends_state(in_chunk, in_tile)) return;
            const int at = Layout::state_of(t, in_tile);
            if (at < Config::states) finish(t, block, at, state);
            init(state);
        }
    }
    // A row has states in each of four lanes; `at` is the number of what they make among all of the row's.
    DEV void finish(const Tile &t, int block, int at, typename Epilogue::State (&state)[2][chains]) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            typename Epilogue::State &all = state[h][0];
            if (chains == 2) Epilogue::merge(all, state[h][chains - 1]);
            Epilogue::merge(all, from_lane(all, 1));
            Epilogue::merge(all, from_lane(all, 2));
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const i64 row = (i64)t.batch * rows() + row_in_tensor(t, block, h);
            // Opaque, or its 64 bits would wait for this in registers from the products on.
            if (lane % 4 == 0 && is_inside(t, block, h))
                Epilogue::save(args, row, ptx::opaque(at), state[h][0]);
        }
    }
};

} // namespace coda
