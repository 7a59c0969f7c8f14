// stream_mma.cuh -- C = A B^T for few rows of A, 8 or 16 a block: B streams through shared memory at memory's
// pace and is the 16 rows of mma.sync, whose 8 columns are rows of A.
//
//     producer    one thread: copies tiles, 16 rows of B, into a ring, a chunk, `bk` elements, of K at a time
//     supplier    one thread: copies the same chunk of A into a ring of its own
//     preparer    a warp: the epilogue's values of rows and columns, while the others multiply
//     consumers   warps: of each chunk warp w multiplies the quarter w % 4, of every second tile
//
// K is outside, rows are inside: all tiles of a pass advance along K together. So a warp has the sums of its
// tiles in registers over all of K, and of A no more than its quarter of a chunk, which serves all its tiles.
// At the end of a pass the sums of the four quarters meet in shared memory, where they are added in their
// order: what a row of A gets depends neither on how many there are, nor on how columns are dealt to blocks.
// A block with more tiles than a pass has walks K again for the others.
//
// Each block has a share of the columns (see stream.cuh), for so many rows of A. Where A has more, neighbour
// blocks have the same share, so that L2 has B for all but the first of them. A tile is four of a share's
// quads: row r of it is the neighbour r % 2 of quad r % 8 / 2, in octet r / 8 of its patch.
#pragma once

#include "tile/packed_rows.cuh"
#include "tile/resources.cuh"
#include "tile/stream.cuh"

namespace coda {

// Of the blocks that have a share each.
struct SharedOut {
    u32 share;
    DEV u32 index() const { return share; }
};

template <class Config, class Epilogue> struct StreamMma {
    using Columns = typename Config::Columns;
    using Args = typename Config::Args;
    using Quads = coda::Quads<Config, Epilogue, SharedOut>;
    using Spot = typename Quads::Spot;
    using Fragments = typename Config::Fragments; // HalfRows, ByteRows, or PackedRows

    static constexpr int warps = 4 * Config::groups, threads = 32 * warps; // of consumers
    static constexpr int quarters = 4, halves = warps / quarters;          // of K, of tiles
    static constexpr int bk = Config::bk, run = bk / quarters;
    static constexpr int most_rows = Quads::most_rows, octets = most_rows / 8; // of A
    static constexpr int chunks = (int)((Config::k + bk - 1) / bk);
    static constexpr bool ragged = Config::k % bk != 0;
    // Tiles of packed weights are the patches, from an even one on: two of them have two blocks of records.
    static constexpr bool packed = Fragments::packed;
    static constexpr int most_tiles = (Quads::most_quads + (packed ? 7 : 0) + 3) / 4, passes = Config::passes;
    static constexpr int even_tiles = (most_tiles + 2 * passes - 1) / (2 * passes) * 2,
                         pass_tiles = packed ? even_tiles : (most_tiles + passes - 1) / passes, // of a block
        own_tiles = (pass_tiles + halves - 1) / halves;                                         // of a warp
    // Octets of a patch are the halves of a block of records, or the same half of both.
    static constexpr bool across = Columns::apart && Columns::step == 1,
                          by_turns = packed && Columns::step == 2;
    static constexpr int depth = Config::depth;                    // tiles of a slot
    static constexpr int slots = (pass_tiles + depth - 1) / depth; // of a chunk
    static_assert(most_rows == 8 || most_rows == 16);

    using Right = typename Fragments::template Right<octets, run>;
    static constexpr int right_pitch = 2 * bk + Fragments::pad;
    using Ring = StreamRing<Config::stages, depth * Fragments::tile_bytes, Config::window>;
    using RightRing = StreamRing<Config::right_stages, most_rows * right_pitch, Config::right_stages>;
    struct Shared {
        Ring ring;
        RightRing right;
        alignas(16) float parts[quarters][most_rows][4 * pass_tiles][4];
        alignas(16) float sums[passes > 1 ? most_rows : 1][passes > 1 ? 4 * passes *pass_tiles : 1][4];
        typename Quads::Values values;
    };
    static_assert(shared_fits<Shared>(Config::shared_bytes));

    const Args &args;
    Shared &s;
    const SharedOut block;
    const int first_row; // of A

    DEV Quads quads() const { return Quads{args, s.values, block, first_row}; }
    DEV int rows() const { return quads().rows(); } // that there are
    DEV int count() const { return quads().count(); }

    // Quads of the first tile that are not of this block.
    DEV int shift() const { return packed ? Quads::first(block.index()) % 8 : 0; }
    // Tiles that a pass has of this block, the last of which may lack quads, too.
    DEV int tiles_of(int pass) const
    {
        return clamp((shift() + count() + 3) / 4 - pass * pass_tiles, 0, pass_tiles);
    }
    DEV static int length(int chunk) { return chunk + 1 < chunks ? bk : (int)Config::k - chunk * bk; }

    // Consumers, in whole warps.
    DEV static void meet()
    {
        __syncwarp();
        ptx::named_barrier(barrier_streamers, threads);
    }

    // ---- Producers ----

    // Copies a chunk of this block's quads from `quad` on, before `end`, as many as a slot has.
    DEV void produce_slot(typename Ring::Cursor at, int quad, int end, int chunk) const
    {
        const int live = min(end - quad, 4 * depth), begin = Quads::first(block.index()) + quad;
        const u32 bytes = Fragments::size * length(chunk), bar = s.ring.expect(at, 4 * live * bytes);
        const u32 to = ptx::shared_address(s.ring.data[at.slot]);
        const bool once = Config::rows(args) <= most_rows;
        const auto *from = args.b + (i64)chunk * bk;
#pragma unroll 1
        for (int q = 0; q < live; q++) {
            const Spot spot = Spot::of(begin + q);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = q / 4 * 16 + i / 2 * 8 + q % 4 * 2 + i % 2;
                const auto *line = from + Quads::row_of(spot.at(i / 2, i % 2)) * Config::b_stride_row;
                if (once) ptx::bulk_load_once(to + row * Fragments::pitch, line, bytes, bar);
                else ptx::bulk_load(to + row * Fragments::pitch, line, bytes, bar);
            }
        }
    }

    // The same of blocks of records, for tiles from `tile` on, before `end`. Of one that has none of this
    // block's quads nothing is copied, unless its neighbour is across both.
    DEV bool wants(int tile, int end) const
    {
        return tile < end && tile >= 0 && (across || 4 * tile + 4 > shift());
    }
    DEV void produce_records(typename Ring::Cursor at, int tile, int end, int chunk) const
    {
        using Weights = typename Fragments::W;
        const int patch = Quads::first(block.index()) / 8 * 2 + tile;
        const u32 bytes = (length(chunk) + Weights::step - 1) / Weights::step * Weights::bytes;
        int blocks = 0;
        for (int i = 0; i < depth; i++) blocks += wants(across ? tile + i / 2 * 2 : tile + i, end);
        const u32 bar = s.ring.expect(at, blocks * bytes), to = ptx::shared_address(s.ring.data[at.slot]);
        const bool once = Config::rows(args) <= most_rows;
        const u8 *const from = args.b + (i64)chunk * (bk / Weights::step) * Weights::bytes;
#pragma unroll 1
        for (int i = 0; i < depth; i++) {
            const int first = across ? i / 2 * 2 : i;
            if (!wants(tile + first, end)) continue;
            const int column = Spot::of(4 * (patch + first)).at(across ? i % 2 : 0, 0);
            const u8 *const records = from + column / 16 * Weights::block;
            if (once) ptx::bulk_load_once(to + i * Fragments::tile_bytes, records, bytes, bar);
            else ptx::bulk_load(to + i * Fragments::tile_bytes, records, bytes, bar);
        }
    }

    DEV void produce() const
    {
        auto at = Ring::producer();
        if (!Config::early) ptx::grid_wait();
#pragma unroll 1
        for (int pass = 0; pass < passes; pass++) {
            const int first = pass_tiles * pass, end = first + tiles_of(pass);
#pragma unroll 1
            for (int chunk = 0; chunk < chunks; chunk++)
#pragma unroll 1
                for (int tile = first; tile < end; tile += depth, at.next())
                    if constexpr (packed) produce_records(at, tile, end, chunk);
                    else produce_slot(at, 4 * tile, min(4 * end, count()), chunk);
        }
    }

    DEV void supply() const
    {
        auto at = RightRing::producer();
        ptx::grid_wait();
#pragma unroll 1
        for (int pass = 0; pass < passes; pass++)
#pragma unroll 1
            for (int chunk = 0; chunk < chunks && tiles_of(pass); chunk++, at.next()) {
                const u32 bytes = 2 * length(chunk), bar = s.right.expect(at, rows() * bytes);
                const u32 to = ptx::shared_address(s.right.data[at.slot]);
#pragma unroll 1
                for (int row = 0; row < rows(); row++)
                    ptx::bulk_load(to + row * right_pitch,
                                   args.a + (first_row + row) * Config::a_stride_row + (i64)chunk * bk, bytes,
                                   bar);
            }
    }

    // ---- Consumers ----

    using Sums = float[own_tiles][octets][4];

    DEV static int quarter() { return threadIdx.x / 32 % quarters; }
    DEV static int half() { return threadIdx.x / 32 / quarters; }

    // Elements of this warp's quarter of a chunk, where K ends within one.
    DEV static int live_of(int chunk) { return ragged ? length(chunk) - quarter() * run : run; }

    DEV void load_right(Right &x, typename RightRing::Cursor at, int chunk) const
    {
        s.right.wait(at);
        x.load(s.right.data[at.slot] + 2 * quarter() * run, live_of(chunk));
        s.right.release(at);
    }

    // This half's tile of those two that are `first` and the next one of a slot.
    DEV void multiply_tile(float (&sum)[octets][4], const Right &x, const u8 *slot, int first,
                           int chunk) const
    {
        constexpr int bytes = Fragments::tile_bytes;
        const u8 *const own = slot + (depth > 1 ? first + half() : 0) * bytes;
        if constexpr (packed) {
            using Row = typename Fragments::Row;
            const u8 *const both = slot + first * bytes;
            const Row upper = across ? Row{both, half()} : Row{own, 0},
                      lower = across ? Row{both + bytes, half()} : Row{own, 1};
            Fragments::multiply(sum, upper, lower, quarter() * run, live_of(chunk), x);
        } else Fragments::multiply(sum, own + quarter() * run * Fragments::size, live_of(chunk), x);
    }

    // Two tiles, one for each half of the warps, in a slot or in one each; the second may not exist. All
    // warps wait for all slots: so none is ahead of the others by a round of the ring.
    DEV void multiply_pair(float (&sum)[octets][4], const Right &x, typename Ring::Cursor &at, int pair,
                           int tiles, int chunk) const
    {
        const int tile = 2 * pair + half();
        const auto first = at;
        const bool both = depth == 1 && 2 * pair + 1 < tiles;
        if (2 * pair % depth == 0) s.ring.wait(first);
        if (both) {
            at.next();
            s.ring.wait(at);
        }
        const u8 *const own = s.ring.data[depth > 1 || half() ? at.slot : first.slot];
        if (tile < tiles) multiply_tile(sum, x, own, depth > 1 ? 2 * pair % depth : 0, chunk);
        const bool last = depth == 1 || 2 * pair % depth + 2 == depth || 2 * pair + 2 >= tiles;
        if (both) s.ring.release(first);
        if (last) {
            s.ring.release(at);
            at.next();
        }
    }

    // A warp's sums of a pass: a lane has two rows of A and, of each tile, two columns. These are one in each
    // octet; of records whose rows are of either octet in turns, rows of the record.
    DEV void put(const Sums &sum, int tiles) const
    {
        const int lane = threadIdx.x % 32, row = lane % 4 * 2, line = lane / 4;
#pragma unroll
        for (int i = 0; i < own_tiles; i++) {
            const int tile = i * halves + half();
            if (tile >= tiles) break;
#pragma unroll
            for (int e = 0; e < 4 * octets; e++) {
                const int side = e % 4 / 2, quad = by_turns ? 2 * side + line / 4 : line / 2,
                          place = by_turns ? line % 2 * 2 + line / 2 % 2 : 2 * side + line % 2;
                s.parts[quarter()][e / 4 * 8 + row + e % 2][4 * tile + quad][place] = sum[i][e / 4][e % 4];
            }
        }
    }

    // Of a quad of the pass: all quarters together.
    DEV void add_quarters(int row, int quad, float (&x)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = s.parts[0][row][quad][i];
#pragma unroll
        for (int q = 1; q < quarters; q++)
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] += s.parts[q][row][quad][i];
    }
    DEV void keep(int pass, int tiles) const
    {
        for (int i = threadIdx.x; i < rows() * 4 * tiles; i += threads) {
            const int row = i / (4 * tiles), quad = i % (4 * tiles);
            add_quarters(row, quad, s.sums[row][4 * pass_tiles * pass + quad]);
        }
    }

    DEV void multiply_all() const
    {
        auto at = Ring::consumer();
        auto right = RightRing::consumer();
#pragma unroll 1
        for (int pass = 0; pass < passes; pass++) {
            const int tiles = tiles_of(pass);
            Sums sum = {};
#pragma unroll 1
            for (int chunk = 0; chunk < chunks && tiles; chunk++, right.next()) {
                Right x;
                load_right(x, right, chunk);
#pragma unroll
                for (int i = 0; i < own_tiles; i++)
                    if (2 * i < tiles) multiply_pair(sum[i], x, at, i, tiles, chunk);
            }
            put(sum, tiles);
            meet();
            if constexpr (passes > 1) {
                keep(pass, tiles);
                meet();
            }
        }
    }

    // ---- Epilogue ----

    // A row has a warp, whatever their number: so the states of its quads are merged in one order.
    DEV void drain() const
    {
        const auto sum = [&](int row, int quad, float(&x)[2][2]) {
            float all[4];
            if constexpr (passes > 1)
                for (int i = 0; i < 4; i++) all[i] = s.sums[row][shift() + quad][i];
            else add_quarters(row, shift() + quad, all);
#pragma unroll
            for (int i = 0; i < 4; i++) x[i / 2][i % 2] = all[i];
        };
#pragma unroll 1
        for (int row = threadIdx.x / 32; row < rows(); row += warps) {
            const int lane = threadIdx.x % 32;
            const auto state = quads().template drain<32>(row, lane, 32, sum);
            if constexpr (Quads::has_state)
                if (lane == 0) Epilogue::save(args, first_row + row, block.index(), state);
        }
    }

    DEV void run_block() const
    {
        const int warp = ptx::uniform(threadIdx.x / 32);
        s.ring.init(warps);
        s.right.init(warps);
        if (Config::early) ptx::grid_launch_next();
        if (warp == warps) {
            if (ptx::elect_one()) produce();
        } else if (warp == warps + 1) {
            if (ptx::elect_one()) supply();
        } else {
            ptx::grid_wait();
            if (warp > warps) {
                quads().prepare();
                s.ring.tell_prepared();
            } else {
                multiply_all();
                s.ring.wait_prepared();
                drain();
            }
        }
    }
};

template <class Config, class Epilogue, class Block>
DEV void stream_mma(const typename Config::Args &args, const Block &block)
{
    using Stream = StreamMma<Config, Epilogue>;
    const u32 groups = (Config::rows(args) + Config::bm - 1) / Config::bm, share = block.index() / groups;
    const int first_row = (int)(block.index() - share * groups) * Config::bm;
    Stream{args, *(typename Stream::Shared *)block.shared(), {share}, first_row}.run_block();
}

} // namespace coda
