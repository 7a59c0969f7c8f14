// epilogue.cuh -- from accumulators to tensors: what both mainloops do after the last product.
//
// The emitted Epilogue holds the arithmetic, as functions of one row, one column and one slot; Drain
// moves the data between them and memory. For one tile:
//     prepare   row(), col() and half() fill shared memory, once for each row and column
//     drain     for each unit, 64 rows of a chunk of columns: load(), cell() and apply() for every slot,
//               store(); then merge the reductions' states across the four lanes that share a row, and save()
// Stores are direct, or staged: 16-bit tiles go through swizzled shared memory and leave by TMA, 16 rows of
// each warp, which waits for no other. Loads are direct, or fetched: the same the other way (fetch.cuh). The
// accumulators are a wgmma fragment (see ptx/wgmma.cuh) for every mainloop.
#pragma once

#include "block/fold.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/matrix.cuh"
#include "ptx/tma.cuh"
#include "tile/access.cuh"
#include "tile/columns.cuh"
#include "tile/fetch.cuh"
#include "tile/lent.cuh"
#include "tile/raster.cuh"

namespace coda {

// What an Epilogue that needs none of these inherits.
struct EpilogueDefaults {
    struct Row {};   // values of a row ...
    struct Col {};   // ... of a column of the product, ...
    struct Half {};  // ... of a column of a gated output
    struct Cell {};  // ... of a row and a column: cell() makes it of these, below() of that 8 rows above
    struct State {}; // of the reductions over a row
    static constexpr int loads = 0, stores = 0;
    static constexpr int team = 1;                // threads that call row() for a row, 1 or 32: a warp
    static constexpr int staged = 0, fetched = 0; // of the stores, of the loads, the first ones; fetched <= 1
    using Staged = bf16;
    using Fetched = bf16;
    template <class Args> DEV static Row row(const Args &, i64, i64, bool) { return {}; }
    template <class Args> DEV static Col col(const Args &, i64, i64, bool) { return {}; }
    template <class Args> DEV static Half half(const Args &, i64, i64, bool) { return {}; }
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
    DEV static void init(State &) {}
    DEV static void merge(State &, const State &) {}
    template <class Args> DEV static void save(const Args &, i64, int, const State &) {}
};

// What apply() sees of one element, or of a pair.
template <class Epilogue, int lanes> struct Slot {
    float acc[lanes];
    float in[Epilogue::loads + 1][lanes], out[Epilogue::stores + 1][lanes]; // a gated output's: lane 0
    typename Epilogue::Row row;
    typename Epilogue::Col col[lanes];
    typename Epilogue::Half half;
    typename Epilogue::Cell cell;
    int column[lanes], half_column; // counted from the thread's first column in the tile, ...
    int first, half_first;          // ... and where that is in the tensor
    bool live[lanes];               // it exists
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

    // Slot s: which octet and which of two neighbours a lane is.
    DEV static constexpr int side_of(int s, int l)
    {
        return Columns::apart ? l : Columns::lanes == 2 ? s : s / 2;
    }
    DEV static constexpr int neighbour_of(int s, int l)
    {
        return Columns::apart ? s : Columns::lanes == 2 ? l : s % 2;
    }

    // sums: of both octets. col(side, neighbour) and half(neighbour) are the values of columns. The cells are
    // made here, of those 8 rows above if it is `below` them.
    template <class Cols, class Halves>
    DEV static void apply(const float (&sums)[2][2], const Place &p, const typename Epilogue::Row &row,
                          Cols col, Halves half, const Line *in, Line *out,
                          typename Epilogue::State (&state)[chains], typename Epilogue::Cell (&cell)[slots],
                          bool below = false)
    {
#pragma unroll
        for (int s = 0; s < slots; s++) {
            Slot<Epilogue, Columns::lanes> v;
            v.row = row;
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
            Epilogue::apply(v, state[s % chains]);
#pragma unroll
            for (int i = 0; i < Epilogue::stores; i++)
#pragma unroll
                for (int l = 0; l < Columns::lanes; l++)
                    out[i].x[side_of(s, l)][neighbour_of(s, l)] = v.out[i][l];
        }
    }
};

template <class Config, class Epilogue> struct Drain {
    using Columns = typename Config::Columns;
    using Args = typename Config::Args;
    static constexpr int rows = Config::bm / (Config::pingpong ? 1 : Config::groups); // of a warpgroup
    static constexpr int blocks = rows / 64;
    static constexpr int patches = Config::bn / 16;
    static constexpr int out_columns = Columns::gated ? Config::bn / 2 : Config::bn;
    static constexpr bool has_row = !__is_empty(typename Epilogue::Row),
                          has_col = !__is_empty(typename Epilogue::Col);
    static constexpr bool has_half = !__is_empty(typename Epilogue::Half);
    static constexpr bool has_state = !__is_empty(typename Epilogue::State);

    // Staging: buffers of 64 rows and Config::unit columns, swizzled over the bytes of a row; behind them
    // those of fetched units.
    static constexpr int pitch = 2 * Config::unit, buffer_bytes = 64 * pitch;
    static constexpr int chunk_columns = Columns::apart && !Columns::gated ? Columns::chunk : Config::unit;
    static constexpr int buffers = chunk_columns / Config::unit; // of a store, for each unit
    static constexpr int loose = patches % 4 == 0 ? 4 : patches < 8 && !Epilogue::loads ? patches : 1;
    static constexpr bool whole = Epilogue::staged || Epilogue::fetched; // chunks are as wide as buffers
    static constexpr int chunk_patches = whole ? chunk_columns / (Columns::gated ? 8 : 16) : loose;
    static constexpr int chunks = patches / chunk_patches, units = chunks * blocks;
    static constexpr int chunk_width = chunk_patches * (Columns::gated ? 8 : 16);
    // Copies of a chunk's code: one where there is much (it rotates, or has wide states, in a large tile; a
    // gated one has states), and where the sums of all chunks have the same order.
    static constexpr bool is_long = Columns::lanes == 2 || sizeof(typename Epilogue::State) > sizeof(float);
    static constexpr bool is_much = is_long && blocks * Config::bn > 192;
    static constexpr int copies =
        is_much && (Columns::gated ? has_state : whole || !Columns::apart) ? 1 : chunks;
    static constexpr int pieces = Epilogue::staged * buffers; // of a unit, that are stored
    static constexpr int in_place =
        Config::lends && Epilogue::fetched ? 1 : 0; // of these, where it was fetched to
    static constexpr int own_ring = Epilogue::staged * chunk_columns <= 64 && units > 1 ? 2 : 1;
    static constexpr int fetch_slots = (Config::groups > 2 ? 64 : 128) / Config::unit;
    using Own = OwnStage<units, buffer_bytes, fetch_slots, pieces, own_ring>;
    using Stage =
        typename StageOf<Config, Own, units, buffer_bytes, Epilogue::fetched, pieces - in_place>::Type;
    static constexpr int ring = Stage::ring; // units that can be stored at one time
    static constexpr int stage_bytes = Config::lends       ? 0
                                       : Epilogue::fetched ? Own::all_bytes
                                                           : Own::store_bytes;
    static_assert(patches % chunk_patches == 0 && rows % 64 == 0 && rows <= 128);
    static_assert(!Epilogue::fetched || buffers == 1);

    // Patches whose loads are in flight together: few where accumulators leave few registers.
    static constexpr int flying = Epilogue::loads - Epilogue::fetched;
    static constexpr int flight(int n)
    {
        return n % 2 == 0 && n * flying > (blocks * Config::bn > 128 ? 2 : 8) ? flight(n / 2) : n;
    }
    static constexpr int batch = flight(chunk_patches);
    using Slots = PatchRow<Config, Epilogue>;
    using Cells = typename Epilogue::Cell[Slots::slots];
    static constexpr int chains = Slots::chains;

    struct Values { // of the tile at hand
        typename Epilogue::Row row[rows];
        typename Epilogue::Col col[Config::bn];
        typename Epilogue::Half half[Config::bn / 2];
    };

    const Args &args;
    Values &values;
    using Unit = typename Stage::Unit;
    Stage stage; // of this warpgroup
    int group;   // warpgroup, and its first row in the tile
    int first_row;
    int thread, warp, lane;

    // Made anew for each tile: no address lives in a register through the mainloop.
    DEV Drain(const Args &a, Values &v, int consumer, const Stage &buffers = {})
        : args(a), values(v), stage(buffers), group(consumer),
          first_row(Config::pingpong ? 0 : consumer * rows), thread(ptx::opaque(threadIdx.x % 128)),
          warp(ptx::uniform(thread / 32)), lane(thread % 32)
    {
    }

    // The same, but what follows from the lane is computed again: it takes no registers in between.
    DEV Drain anew() const
    {
        Drain d = *this;
        d.lane = ptx::opaque(lane);
        return d;
    }

    DEV void meet() const { ptx::named_barrier(1 + group, 128); }

    // ---- Values of rows and columns ----

    DEV void prepare(const Tile &t) const
    {
        if constexpr (has_row || has_col || has_half) {
            meet(); // the last tile's readers are done
            prepare_rows(t);
            prepare_columns(t);
            meet();
        }
    }
    DEV void prepare_rows(const Tile &t) const
    {
        if constexpr (has_row)
#pragma unroll 1
            for (int i = thread / Epilogue::team; i < rows; i += 128 / Epilogue::team) {
                const int m = t.m * Config::bm + first_row + i;
                if (m >= Config::m) break;
                const typename Epilogue::Row row = Epilogue::row(args, t.batch, m, t.n == 0);
                if (thread % Epilogue::team == 0) values.row[i] = row;
            }
    }
    DEV void prepare_columns(const Tile &t) const
    {
        if constexpr (has_col)
#pragma unroll
            for (int j = thread; j < thread + Config::bn; j += 128) {
                const int n = Columns::column(t.first, j);
                const bool inside = Config::bn % 128 == 0 || j < Config::bn;
                if (inside && n < Config::n) values.col[j] = Epilogue::col(args, t.batch, n, t.m == 0);
            }
        if constexpr (has_half)
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
            p.full.live[side] = live(Columns::gated ? (int)p.half.first + p.half.distance[0]
                                                    : (int)p.full.first + p.full.distance[side]);
        }
        p.half.live[0] = p.full.live[0], p.half.live[1] = 0;
        return p;
    }

    // Where the tensor ends with a patch, a patch exists or it does not. This is asked also where there is
    // no end, if registers are short: the compiler does not mix the arithmetic of two patches then.
    static constexpr int most = Columns::gated ? Config::n / 2 : Config::n,
                         patch_columns = Columns::gated ? 8 : 16;
    static constexpr bool neat = most % patch_columns == 0 && (Columns::gated || !Columns::apart);
    static constexpr bool fills = Config::tail || most % out_columns == 0; // no tile reaches past the end
    static constexpr bool short_of_registers = has_state && blocks * Config::bn > 256;
    static_assert(!Config::tail ||
                  (Config::bn % 64 == 0 && Config::tail_bn % (chunk_width * (Columns::gated ? 2 : 1)) == 0));
    DEV static int out_first(const Tile &t) { return Columns::gated ? t.first / 2 : t.first; }
    DEV static bool exists(const Tile &t, int patch)
    {
        if (!neat || (fills && !short_of_registers)) return true;
        return out_first(t) + (patch + 1) * patch_columns <= most;
    }
    // Of two neighbouring columns, how many exist; the first is even.
    DEV static int live(int n)
    {
        if (neat || fills) return 2;
        return most % 2 && n + 1 == most ? 1 : n < most ? 2 : 0;
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

    // ---- Staging ----

    // Piece i of what is stored of a unit, which was fetched to `from`.
    DEV u32 piece(int slot, int i, u32 from) const
    {
        return i < in_place ? from : stage.piece(slot, i - in_place).buffer;
    }
    // One patch of a unit, whose rows of both h are top and bottom; a lane gives the address of one row.
    DEV u32 row_in_unit() const { return 16 * warp + lane % 16; }
    DEV void put(int slot, int patch, u32 from, const Line *top, const Line *bottom) const
    {
        const u32 row = row_in_unit();
#pragma unroll
        for (int i = 0; i < Epilogue::staged; i++) {
            u32 m[4], at[2];
#pragma unroll
            for (int side = 0; side < 2; side++) {
                m[2 * side] = pack2<typename Epilogue::Staged>(top[i].x[side][0], top[i].x[side][1]);
                m[2 * side + 1] =
                    pack2<typename Epilogue::Staged>(bottom[i].x[side][0], bottom[i].x[side][1]);
                const int buffer = i * buffers + octet_in_chunk(patch, side) / octets;
                at[side] = piece(slot, buffer, from) + row * pitch + swizzled(patch, side, row);
            }
            if constexpr (Columns::gated) ptx::stmatrix(at[0], m[0], m[1]);
            else ptx::stmatrix(lane < 16 ? at[0] : at[1], m[0], m[1], m[2], m[3]);
        }
    }
    DEV void get(u32 unit, int patch, Line &top, Line &bottom) const
    {
        constexpr int sides = Columns::gated ? 1 : 2;
        const u32 row = row_in_unit(), side = sides == 2 && lane >= 16;
        u32 m[2 * sides];
        ptx::ldmatrix(unit + row * pitch + swizzled(patch, side, row), m);
#pragma unroll
        for (int i = 0; i < sides; i++) {
            const Pair a = unpack2<typename Epilogue::Fetched>(m[2 * i]);
            const Pair b = unpack2<typename Epilogue::Fetched>(m[2 * i + 1]);
            top.x[i][0] = a.a, top.x[i][1] = a.b;
            bottom.x[i][0] = b.a, bottom.x[i][1] = b.b;
        }
    }
    // Of an octet in its buffer: the 16-byte pieces of a row are exchanged by the number of the 128 bytes
    // that it lies in.
    static constexpr int octets = Config::unit / 8;
    DEV static int octet_in_chunk(int patch, int side)
    {
        return (Columns::gated ? patch : Columns::octet(patch, side)) % (octets * buffers);
    }
    DEV static u32 swizzled(int patch, int side, int row)
    {
        return (octet_in_chunk(patch, side) % octets ^ row * octets / 8 % octets) << 4;
    }

    // Before a slot is overwritten TMA has read it. A tile starts with slot 0, wherever the last one ended;
    // or with slots that are handed over empty, in their order: it waits for the last piece's. After units
    // that were skipped, any slot may be the one that was left last.
    DEV void open_unit(int unit, bool after_skipped) const
    {
        if constexpr (Config::lends && pieces > in_place)
            if (unit < ring) stage.await(stage.piece(unit, pieces - in_place - 1));
        if (unit < ring && (Config::lends || unit)) return;
        if (lane == 0)
            unit && !after_skipped ? ptx::tma_store_wait_read<ring - 1>() : ptx::tma_store_wait_read<0>();
        __syncwarp();
    }
    DEV static int buffer_column(const Tile &t, int chunk, int buffer)
    {
        const int j = chunk * chunk_columns + buffer * Config::unit;
        return Columns::gated ? out_first(t) + j : Columns::column(t.first, j);
    }
    DEV void close_unit(const Tile &t, int chunk, int block, int slot, u32 from) const
    {
        const int first = first_row + 64 * block + 16 * warp;
        ptx::fence_async_shared();
        __syncwarp();
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < pieces; i++)
                ptx::tma_store(&args.stores[i / buffers], piece(slot, i, from) + 16 * warp * pitch,
                               buffer_column(t, chunk, i % buffers), t.m * Config::bm + first, t.batch);
            ptx::tma_store_commit();
        }
        __syncwarp();
    }

    // ---- The walk ----

    // Of a chunk that a tile of the tail does not have there is nothing to drain.
    DEV static bool has_chunk(const Tile &t, int chunk)
    {
        const int first = chunk * chunk_width * (Columns::gated ? 2 : 1);
        return !Config::tail || first < Config::tail_bn || t.width == Config::bn;
    }

    // Of a warp whose rows do not exist there is nothing to drain. Large tiles have few such warps.
    DEV bool has_rows(const Tile &t, int block) const
    {
        return Config::groups > 1 || Config::m % Config::bm == 0 ||
               t.m * Config::bm + first_row + 64 * block + 16 * warp < Config::m;
    }

    // `turn` counts the tiles of this warpgroup. One block's code serves all, and where it is long one
    // chunk's: the next one's sums move to where the first one's were.
    template <int n> DEV void drain(float (&acc)[blocks][n], const Tile &t, u32 turn = 0) const
    {
#pragma unroll 1
        for (int b = 0;; b++) {
            typename Epilogue::State state[2][chains];
#pragma unroll
            for (int i = 0; i < 2 * chains; i++) Epilogue::init(state[i / chains][i % chains]);
#pragma unroll copies
            for (int c = 0; c < chunks; c++) {
                const Unit unit = stage.unit(turn, b * chunks + c);
                if (has_chunk(t, c)) drain_unit(acc[0], t, b, c, unit, state);
                else skip_unit(unit);
                if constexpr (copies == 1) advance(acc[0], c + 1);
            }
            if constexpr (has_state) finish(t, b, state);
            if (b == blocks - 1) break;
#pragma unroll
            for (int i = n; i < blocks * n; i++) acc[i / n - 1][i % n] = acc[i / n][i % n];
        }
    }
    // Each chunk has its own moves, as `opaque` keeps the compiler from doing all of them by selection.
    template <int n> DEV static void advance(float (&acc)[n], int chunk)
    {
        constexpr int sums = 8 * chunk_patches;
        auto at = [](int i) { return 4 * Columns::octet(i / 8, i / 4 % 2) + i % 4; }; // patch by patch
#pragma unroll
        for (int c = 1; c < chunks; c++)
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
            for (int u = 0; u < units; u++) skip_unit(stage.unit(turn, u));
    }
    template <int n>
    DEV void drain_unit(const float (&acc)[n], const Tile &t, int block, int chunk, const Unit &from,
                        typename Epilogue::State (&state)[2][chains]) const
    {
        const int unit = block * chunks + chunk, slot = unit % ring;
        const Drain fresh = anew();
        if constexpr (Epilogue::staged) open_unit(unit, t.width < Config::bn && chunk == 0);
        if constexpr (Epilogue::fetched) stage.await(from);
#pragma unroll
        for (int p = 0; p < chunk_patches && has_rows(t, block); p += batch)
            fresh.drain_batch(acc, t, block, chunk * chunk_patches, p, slot, from.buffer, state);
        if constexpr (Epilogue::fetched) stage.release(from);
        if constexpr (Epilogue::staged) close_unit(t, chunk, block, slot, from.buffer);
    }

    // A few patches of a unit, from its patch `p`; `before` others come before the unit. All loads are issued
    // before the first is used.
    template <int n>
    DEV void drain_batch(const float (&acc)[n], const Tile &t, int block, int before, int p, int slot,
                         u32 from, typename Epilogue::State (&state)[2][chains]) const
    {
        const int first = before + p, held = copies == 1 ? p : first;
        typename Epilogue::Row row[2];
        Line in[batch][2][Epilogue::loads + 1];
        if constexpr (has_row)
            row[0] = values.row[row_in_group(block, 0)], row[1] = values.row[row_in_group(block, 1)];
#pragma unroll
        for (int i = 0; i < 2 * batch; i++)
            if (exists(t, first + i / 2))
                Epilogue::load(args, place(t, block, i % 2, first + i / 2), row[i % 2], in[i / 2][i % 2]);
        if constexpr (Epilogue::fetched)
#pragma unroll
            for (int i = 0; i < batch; i++) get(from, p + i, in[i][0][0], in[i][1][0]);
#pragma unroll
        for (int i = 0; i < batch; i++) {
            if (!exists(t, first + i)) continue;
            Line out[2][Epilogue::stores + 1];
            Cells cells;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const Place at = place(t, block, h, first + i);
                apply(acc, held + i, first + i, h, at, row[h], in[i][h], out[h], state[h], cells);
                if (Config::m % Config::bm == 0 || row_in_tensor(t, block, h) < Config::m)
                    Epilogue::store(args, at, out[h]);
            }
            if constexpr (Epilogue::staged) put(slot, p + i, from, out[0], out[1]);
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
