// stream.cuh -- what products of few rows have in common, whose B streams through shared memory at memory's
// pace: a ring, shares of the columns, and the epilogue of a share.
//
// Columns go by quads: those of a patch that one thread has, two neighbours in each of two octets (see
// columns.cuh). Block b takes an equal share of all quads, so that all blocks end at one time. Where the
// columns do not fill the last patch, its quads have two, one or none in an octet; the ring then has the last
// row of B once more, and nothing becomes of it.
//
// Where columns have statistics of segments, a cluster's blocks share whole segments (segments.cuh).
//
// Early: no kernel of the run writes B. So the ring is filled with B before the kernel ahead has ended, and
// the next kernel may begin with the same beside this one; half of an SM's memory is enough for that.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/tma.cuh"
#include "tile/block.cuh"
#include "tile/epilogue_slots.cuh"
#include "tile/raster.cuh"
#include "tile/ring.cuh"

namespace coda {

// A producer fills the slots, warps read them. `prepared`: a warp has prepared the epilogue.
//
// At most `in_flight` slots are on their way from memory at one time, however many are free: what all SMs
// have asked for stands in one queue, in which every small load, of A or of a row's values, would wait behind
// it.
template <int slots, int slot_bytes, int in_flight> struct StreamRing {
    alignas(128) u8 data[slots][slot_bytes];
    u64 full[slots], empty[slots], prepared;

    using Cursor = RingCursor<slots>;
    DEV static Cursor producer() { return Cursor::producer(); }
    DEV static Cursor consumer() { return Cursor::consumer(); }

    // Called by all threads of the block. So many warps will read each slot, which is full when so many
    // threads of the producer have arrived.
    DEV void init(int warps, int producers = 1)
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < slots; i++) {
                ptx::mbarrier_init(full_of({i, 0}), producers);
                ptx::mbarrier_init(ptx::shared_address(&empty[i]), warps);
            }
            ptx::mbarrier_init(ptx::shared_address(&prepared), 32);
            ptx::mbarrier_fence_init();
        }
        __syncthreads();
    }

    // Waits for that copy before the producer's next one which must have come by then. Before the first slot
    // there were none: their phase counts as over.
    DEV void wait_in_flight(Cursor at)
    {
        if constexpr (in_flight < slots) {
            const int slot = at.slot - in_flight, wraps = slot < 0;
            ptx::mbarrier_wait(ptx::shared_address(&full[wraps ? slot + slots : slot]),
                               at.parity ^ 1 ^ wraps);
        }
    }
    DEV u32 full_of(Cursor at) { return ptx::shared_address(&full[at.slot]); }
    // Called by whoever fills the slot: waits until it is free.
    DEV void wait_free(Cursor at)
    {
        wait_in_flight(at);
        ptx::mbarrier_wait(ptx::shared_address(&empty[at.slot]), at.parity);
    }
    // Called by one thread. Waits until the slot is free, says that so many bytes will come, and returns the
    // barrier that counts them.
    DEV u32 expect(Cursor at, u32 bytes)
    {
        wait_free(at);
        ptx::mbarrier_arrive_expect(full_of(at), bytes);
        return full_of(at);
    }
    // The same, called by a warp whose lanes copy.
    DEV u32 expect_in_warp(Cursor at, u32 bytes)
    {
        if (threadIdx.x % 32 == 0) expect(at, bytes);
        __syncwarp();
        return full_of(at);
    }
    // Called by all lanes of a warp: it waits until the slot is full; it has read the slot.
    DEV void wait(Cursor at) { ptx::mbarrier_wait(full_of(at), at.parity); }
    DEV void release(Cursor at)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ptx::shared_address(&empty[at.slot]));
    }

    DEV void tell_prepared() { ptx::mbarrier_arrive(ptx::shared_address(&prepared)); }
    DEV void wait_prepared() { ptx::mbarrier_wait(ptx::shared_address(&prepared), 0); }
};

// What slots see of segments, where there are none.
struct NoSegments {
    template <class Segment> DEV Segment of(int, int) const { return {}; }
};

// Shares are dealt in units of so many quads. Where statistics of segments are folded a cluster's share is
// one of whole segments, which are dealt to its blocks in such units.
template <class Config, class Epilogue, class Block, int share_quads = 1, int cluster = 1,
          bool folds_segments = false>
struct Quads {
    using Columns = typename Config::Columns;
    using Args = typename Config::Args;
    using Slots = PatchRow<Config, Epilogue>;
    using State = typename Epilogue::State;

    static constexpr int most_rows = Config::bm, quads = (int)(Config::n + 15) / 16 * 4;
    static constexpr bool ragged = Config::n % 16 != 0;
    static constexpr int unit = folds_segments ? Epilogue::segment / 4 : share_quads,
                         units = (quads + unit - 1) / unit, clusters = Config::blocks / cluster,
                         most_shares = (units + clusters - 1) / clusters * unit / share_quads, // of a cluster
        most_quads = (most_shares + cluster - 1) / cluster * share_quads,                      // of a block
        least_quads = units / clusters * unit / share_quads / cluster * share_quads;
    static constexpr bool segments = folds_segments;
    static_assert(Config::blocks % cluster == 0 && (cluster == 1 || segments) && unit % share_quads == 0);
    static constexpr bool has_row = !__is_empty(typename Epilogue::Row),
                          has_col = !__is_empty(typename Epilogue::Col);
    static constexpr bool has_half = !__is_empty(typename Epilogue::Half), has_state = !__is_empty(State);
    using Sample = Samples<Epilogue::sample>;
    static_assert((!ragged || Columns::lanes == 1) && !Epilogue::sampled_columns);

    struct Values {
        typename Epilogue::Row row[most_rows];
        typename Epilogue::Col col[most_quads][4];
        typename Epilogue::Half half[most_quads][2];
    };

    const Args &args;
    Values &values;
    const Block &block; // of Config::blocks
    int first_row = 0, batch_index = 0;

    DEV int rows() const { return min(Config::rows(args) - first_row, most_rows); } // that there are
    DEV int batch() const { return Config::batched ? batch_index : 0; }

    // Cluster c has the quads [first_of(c), first_of(c + 1)), block b [first(b), first(b + 1)).
    DEV static int first_of(u32 c) { return min((int)((u64)units * c / clusters) * unit, quads); }
    DEV static int first(u32 block)
    {
        const int begin = first_of(block / cluster);
        if (cluster == 1) return begin;
        const int shares = (first_of(block / cluster + 1) - begin) / share_quads;
        return begin + shares * (int)(block % cluster) / cluster * share_quads;
    }
    DEV int count() const { return first(block.index() + 1) - first(block.index()); }

    // The row of B for a column: the last one for those that are not there.
    DEV static int row_of(int column) { return ragged ? min(column, (int)Config::n - 1) : column; }

    // Where a quad lies: its patch in a tile of Columns, and its columns there.
    struct Spot {
        int tile, patch, column;
        DEV static Spot of(int quad)
        {
            constexpr int each = Config::bn / 16;
            return {quad / 4 / each * Config::bn, quad / 4 % each, 2 * (quad % 4)};
        }
        DEV int at(int side, int neighbour) const
        {
            return Columns::column(tile, column) + Columns::distance(tile, Columns::octet(patch, side)) +
                   neighbour * Columns::step;
        }
        // How many of two columns from this one on are there.
        DEV static int live(int column)
        {
            const int left = (int)Config::n - column;
            return left >= 2 ? 2 : left > 0 ? left : 0;
        }
        DEV int half_at(int neighbour) const
        {
            return Columns::half_column(tile, column) + 8 * patch + neighbour;
        }
        DEV Place place(int batch, int row) const
        {
            Place p = {Sample::of(row, batch),
                       row,
                       {Columns::column(tile, column), {}, Columns::step, {2, 2}},
                       {0, {}, 1, {2, 0}}};
            p.full.distance[0] = Columns::distance(tile, Columns::octet(patch, 0));
            p.full.distance[1] = Columns::distance(tile, Columns::octet(patch, 1));
            if constexpr (ragged)
                for (int side = 0; side < 2; side++) p.full.live[side] = live(at(side, 0));
            if constexpr (Columns::gated) p.half.first = half_at(0);
            return p;
        }
    };

    // Called by one warp, which makes the values of all rows and of this block's columns, as Drain::prepare
    // does.
    DEV void prepare() const
    {
        const int begin = first(block.index()), columns = 4 * count(), lane = threadIdx.x % 32;
        if constexpr (has_row)
#pragma unroll 1
            for (int r = lane / Epilogue::team; r < rows(); r += rows_ahead * 32 / Epilogue::team)
                prepare_rows(r);
        if constexpr (has_col)
            for (int i = lane; i < columns; i += 32) {
                const int column = Spot::of(begin + i / 4).at(i / 2 % 2, i % 2);
                if (ragged && column >= (int)Config::n) continue;
                values.col[i / 4][i % 4] =
                    Epilogue::col(args, Epilogue::col_ahead(args, batch(), column), batch(), column, true);
            }
        if constexpr (has_half)
            for (int i = lane; i < columns / 2; i += 32) {
                const int column = Spot::of(begin + i / 2).half_at(i % 2);
                values.half[i / 2][i % 2] =
                    Epilogue::half(args, Epilogue::half_ahead(args, batch(), column), batch(), column, true);
            }
    }

    // Rows whose loads are in flight together: as many as the warp has registers for.
    static constexpr int row_floats = sizeof(typename Epilogue::RowAhead) / sizeof(float);
    static constexpr int rows_ahead = row_floats <= 6 ? 4 : row_floats <= 12 ? 2 : 1;
    DEV void prepare_rows(int first) const
    {
        const int lane = threadIdx.x % 32;
        const bool leads = lane % Epilogue::team == 0; // it alone stores
        typename Epilogue::RowAhead ahead[rows_ahead];
#pragma unroll
        for (int i = 0; i < rows_ahead; i++) {
            const int r = first + i * 32 / Epilogue::team, m = first_row + r;
            if (r < rows()) ahead[i] = Epilogue::row_ahead(args, Sample::of(m, batch()), m);
        }
#pragma unroll
        for (int i = 0; i < rows_ahead; i++) {
            const int r = first + i * 32 / Epilogue::team, m = first_row + r;
            if (r >= rows()) break;
            const typename Epilogue::Row row =
                Epilogue::row(args, ahead[i], Sample::of(m, batch()), m, block.index() == 0 && leads);
            if (leads) values.row[r] = row;
        }
    }

    // A quad's columns are all in one range; each has code of its own: f(In<range>{}).
    template <int of> struct In {
        static constexpr int range = of;
    };
    template <class F> DEV static void in_range(const Spot &spot, F f)
    {
        if constexpr (Epilogue::ranges == 1) f(In<0>{});
        else choose_range<0>(Epilogue::range(spot.at(0, 0)), f);
    }
    template <int range, class F> DEV static void choose_range(int chosen, F f)
    {
        if (range == Epilogue::ranges - 1 || range == chosen) f(In<range>{});
        else if constexpr (range < Epilogue::ranges - 1) choose_range<range + 1>(chosen, f);
    }

    template <class Segments>
    DEV void drain_quad(int quad, int row, const float (&sums)[2][2], State (&state)[Slots::chains],
                        const Segments &segments) const
    {
        const Spot spot = Spot::of(first(block.index()) + quad);
        in_range(spot, [&](auto in) { drain_range<in.range>(spot, quad, row, sums, state, segments); });
    }
    template <int range, class Segments>
    DEV void drain_range(const Spot &spot, int quad, int row, const float (&sums)[2][2],
                         State (&state)[Slots::chains], const Segments &segments) const
    {
        using Segment = typename Epilogue::template Segment<range>;
        const Place p = spot.place(batch(), first_row + row);
        const typename Epilogue::Row of_row = values.row[row];
        Line in[Epilogue::loads + 1], out[Epilogue::stores + 1];
        typename Epilogue::Cell cells[Slots::slots];
        Epilogue::load(args, p, of_row, in);
        Slots::template apply<range>(
            args, sums, p, of_row, [&](int side, int n) { return values.col[quad][2 * side + n]; },
            [&](int n) { return values.half[quad][n]; }, in, out, state, cells, false,
            segments.template of<Segment>(row, quad));
        store_lines<Epilogue, range>(args, p, of_row, out);
    }

    // Every `step`th of this block's quads of a row, from `begin` on. So many lanes end with the state of all
    // that they have done. sum(row, quad, x) makes x the product in a quad.
    template <int lanes, class Sum, class Segments = NoSegments>
    DEV State drain(int row, int begin, int step, Sum sum, const Segments &segments = {}) const
    {
        State state[Slots::chains];
        for (int i = 0; i < Slots::chains; i++) Epilogue::init(state[i]);
        if (row < rows())
#pragma unroll 1
            for (int quad = begin; quad < count(); quad += step) {
                float sums[2][2];
                sum(row, quad, sums);
                drain_quad(quad, row, sums, state, segments);
            }
        if (Slots::chains == 2) Epilogue::merge(state[0], state[Slots::chains - 1]);
        if constexpr (has_state)
#pragma unroll
            for (int i = 1; i < lanes; i *= 2) Epilogue::merge(state[0], from_lane(state[0], i));
        return state[0];
    }
};

} // namespace coda
