// epilogue.cuh -- from accumulators to tensors: what main loops do after the last product of a tile.
//
// The emitted Epilogue holds the arithmetic, as functions of one row, one column and one slot; Drain, which
// one consumer warpgroup runs, moves the data between them and memory. For one tile:
//     prepare   row(), col() and half() fill shared memory, once for each row and column
//     drain     for each unit, 64 rows of a chunk of columns: load(), cell() and apply() for every slot,
//               store(); then merge the reductions' states across the four lanes that share a row, and save()
// Stores are direct, or staged: 16-bit tiles go through swizzled shared memory and leave by TMA, 16 rows of
// each warp, which waits for no other. Loads are direct, or fetched: the same the other way (fetch.cuh). The
// accumulators are a wgmma fragment (see ptx/wgmma.cuh) for every main loop.
//
// Here are the values of rows and columns, a thread's places in the tensor, and the walk over a tile. It
// stands on three files: the numbers by which a tile is cut (epilogue_layout.cuh), the arithmetic of one row
// of a patch (epilogue_slots.cuh), and what goes through shared memory (epilogue_staging.cuh).
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "tile/access.cuh"
#include "tile/epilogue_layout.cuh"
#include "tile/epilogue_slots.cuh"
#include "tile/epilogue_staging.cuh"
#include "tile/raster.cuh"
#include "tile/resources.cuh"

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
    static constexpr int chains = Slots::chains;

    struct Values { // of the tile at hand
        typename Epilogue::Row row[Layout::rows];
        typename Epilogue::Col col[Config::bn];
        typename Epilogue::Half half[Config::bn / 2];
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

    DEV void prepare(const Tile &t) const
    {
        if constexpr (Layout::has_row || Layout::has_col || Layout::has_half) {
            meet(); // the last tile's readers are done
            prepare_rows(t);
            prepare_columns(t);
            meet();
        }
    }
    DEV void prepare_rows(const Tile &t) const
    {
        if constexpr (Layout::has_row)
#pragma unroll 1
            for (int i = thread / Epilogue::team; i < Layout::rows; i += 128 / Epilogue::team) {
                const int m = t.m * Config::bm + first_row + i;
                if (m >= Config::m) break;
                const typename Epilogue::Row row = Epilogue::row(args, t.batch, m, t.n == 0);
                if (thread % Epilogue::team == 0) values.row[i] = row;
            }
    }
    DEV void prepare_columns(const Tile &t) const
    {
        if constexpr (Layout::has_col)
#pragma unroll
            for (int j = thread; j < thread + Config::bn; j += 128) {
                const int n = Columns::column(t.first, j);
                const bool inside = Config::bn % 128 == 0 || j < Config::bn;
                if (inside && n < Config::n) values.col[j] = Epilogue::col(args, t.batch, n, t.m == 0);
            }
        if constexpr (Layout::has_half)
#pragma unroll
            for (int j = thread; j < thread + Config::bn / 2; j += 128) {
                const int n = Columns::half_column(t.first, j);
                const bool inside = Config::bn % 256 == 0 || j < Config::bn / 2;
                if (inside && n < Config::n / 2) values.half[j] = Epilogue::half(args, t.batch, n, t.m == 0);
            }
    }

    // ---- Places ----

    DEV int row_in_group(int block, int h) const { return 64 * block + 16 * warp + lane / 4 + 8 * h; }
    DEV int column_in_tile(int octet) const { return 8 * octet + 2 * (lane % 4); }

    DEV int row_in_tensor(const Tile &t, int block, int h) const
    {
        return t.m * Config::bm + first_row + row_in_group(block, h);
    }
    // Rows past the end stand for the last one: they are loaded and computed, but not stored.
    DEV Place place(const Tile &t, int block, int h, int patch) const
    {
        Place p;
        const int m = row_in_tensor(t, block, h);
        p.batch = t.batch;
        p.m = Config::m % Config::bm == 0 || m < Config::m ? m : (int)Config::m - 1;
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

    template <int n>
    DEV void apply(const float (&acc)[n], int held, int patch, int h, const Place &p,
                   const typename Epilogue::Row &row, const Line *in, Line *out,
                   typename Epilogue::State (&state)[chains], Cells &cells) const
    {
        float sums[2][2];
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i / 2][i % 2] = acc[4 * Columns::octet(held, i / 2) + 2 * h + i % 2];
        Slots::apply(
            sums, p, row,
            [&](int side, int e) {
                return (values.col + column_in_tile(0))[8 * Columns::octet(patch, side) + e];
            },
            [&](int s) { return (values.half + column_in_tile(0))[8 * patch + s]; }, in, out, state, cells,
            h == 1);
    }

    // ---- The walk ----

    // Of a warp whose rows do not exist there is nothing to drain. Large tiles have few such warps.
    DEV bool has_rows(const Tile &t, int block) const
    {
        return Config::groups > 1 || Config::m % Config::bm == 0 ||
               t.m * Config::bm + first_row + 64 * block + 16 * warp < Config::m;
    }

    // `turn` counts the tiles of this warpgroup. One block's code serves all, and where it is long one
    // chunk's: the next one's sums move to where the first one's were.
    template <int n> DEV void drain(float (&acc)[Layout::blocks][n], const Tile &t, u32 turn = 0) const
    {
#pragma unroll 1
        for (int b = 0;; b++) {
            typename Epilogue::State state[2][chains];
#pragma unroll
            for (int i = 0; i < 2 * chains; i++) Epilogue::init(state[i / chains][i % chains]);
#pragma unroll (Layout::unrolled_chunks)
            for (int c = 0; c < Layout::chunks; c++) {
                const Unit unit = stage.unit(turn, b * Layout::chunks + c);
                if (Layout::has_chunk(t, c)) drain_unit(acc[0], t, b, c, unit, state);
                else skip_unit(unit);
                if constexpr (Layout::unrolled_chunks == 1) advance(acc[0], c + 1);
            }
            if constexpr (Layout::has_state) finish(t, b, state);
            if (b == Layout::blocks - 1) break;
#pragma unroll
            for (int i = n; i < Layout::blocks * n; i++) acc[i / n - 1][i % n] = acc[i / n][i % n];
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
        if constexpr (Epilogue::fetched) {
            stage.await(unit);
            stage.release(unit);
        }
    }
    DEV void skip(u32 turn) const
    {
        if constexpr (Epilogue::fetched)
            for (int u = 0; u < Layout::units; u++) skip_unit(stage.unit(turn, u));
    }
    template <int n>
    DEV void drain_unit(const float (&acc)[n], const Tile &t, int block, int chunk, const Unit &from,
                        typename Epilogue::State (&state)[2][chains]) const
    {
        const int unit = block * Layout::chunks + chunk, slot = unit % Layout::ring;
        const Drain uncached = without_cached_lane();
        if constexpr (Epilogue::staged) staging().open_unit(unit, t.width < Config::bn && chunk == 0);
        if constexpr (Epilogue::fetched) stage.await(from);
#pragma unroll
        for (int p = 0; p < Layout::chunk_patches && has_rows(t, block); p += Layout::batch)
            uncached.drain_batch(acc, t, block, chunk * Layout::chunk_patches, p, slot, from.buffer, state);
        if constexpr (Epilogue::fetched) stage.release(from);
        if constexpr (Epilogue::staged) staging().close_unit(t, chunk, block, slot, from.buffer);
    }

    // A few patches of a unit, from its patch `p`; `before` others come before the unit. All loads are issued
    // before the first is used.
    template <int n>
    DEV void drain_batch(const float (&acc)[n], const Tile &t, int block, int before, int p, int slot,
                         u32 from, typename Epilogue::State (&state)[2][chains]) const
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
        if constexpr (Epilogue::fetched)
#pragma unroll
            for (int i = 0; i < Layout::batch; i++) staging().get(from, p + i, in[i][0][0], in[i][1][0]);
#pragma unroll
        for (int i = 0; i < Layout::batch; i++) {
            if (!Layout::exists(t, first + i)) continue;
            Line out[2][Epilogue::stores + 1];
            Cells cells;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const Place at = place(t, block, h, first + i);
                apply(acc, held + i, first + i, h, at, row[h], in[i][h], out[h], state[h], cells);
                if (Config::m % Config::bm == 0 || row_in_tensor(t, block, h) < Config::m)
                    Epilogue::store(args, at, out[h]);
            }
            if constexpr (Epilogue::staged) staging().put(slot, p + i, from, out[0], out[1]);
        }
    }

    // A row has states in each of four lanes.
    DEV void finish(const Tile &t, int block, typename Epilogue::State (&state)[2][chains]) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            typename Epilogue::State &all = state[h][0];
            if (chains == 2) Epilogue::merge(all, state[h][chains - 1]);
            Epilogue::merge(all, from_lane(all, 1));
            Epilogue::merge(all, from_lane(all, 2));
            const int m = row_in_tensor(t, block, h);
            if (lane % 4 == 0 && m < Config::m) Epilogue::save(args, t.batch * Config::m + m, t.n, all);
        }
    }
};

} // namespace coda
