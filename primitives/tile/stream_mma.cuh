// stream_mma.cuh -- C = A B^T for few rows of A, 8 or 16 a block: B streams through shared memory at memory's
// pace and is the 16 rows of mma.sync, whose 8 columns are rows of A.
//
//     producer    a warp: copies tiles, 16 rows of B, into a ring, a chunk, `bk` elements, of K at a time
//     supplier    a warp, of digits two: copies the same chunk of A into a ring of its own; when it has asked
//                 for the last one, the epilogue's values of rows and columns, while the others multiply
//     consumers   warps: of each chunk warp w multiplies the run w % runs, of every tile or every second one;
//                 where that takes more registers than all threads can have, the others, a warpgroup then,
//                 lend some
//
// K is outside, rows are inside: all tiles of a pass advance along K together. So a warp has the sums of its
// tiles in registers over all of K, and of A no more than its run of a chunk, which serves all its tiles.
// At the end of a pass the sums of the four or eight runs meet in shared memory, where they are added in
// their order. Each block walks K from a chunk of its own on, and those ahead of it in the end: or all would
// ask for the same lines of A at one time, behind which L2 has weights wait. What a row of A gets depends on
// which block has its column, by that order; not on how many rows there are, but for a single one, for two
// that are digits (digit_rows.cuh), and for up to eight of weights whose scales have two levels
// (two_levels.cuh). With CODA_BATCH_INVARIANT a block has sixteen, and none of these exceptions.
// A block with more tiles than a pass has walks K again for the others. One of a tile or two has eight runs:
// of four, every second warp would multiply nothing.
//
// Each block has a share of a batch's columns (see stream.cuh), for so many rows of A. Where A has more,
// neighbour blocks have the same share, so that L2 has B for all but the first of them. A tile is four of a
// share's quads: row r of it is the neighbour r % 2 of quad r % 8 / 2, in octet r / 8 of its patch.
#pragma once

#include "tile/digit_rows.cuh"
#include "tile/resources.cuh"
#include "tile/segments.cuh"
#include "tile/stream.cuh"
#include "tile/stream_mma_copies.cuh"

namespace coda {

// Of the blocks that have a share each.
struct SharedOut {
    u32 share;
    DEV u32 index() const { return share; }
};

template <class Config, class Epilogue> struct StreamMma {
    using Columns = typename Config::Columns;
    using Args = typename Config::Args;
    using Quads = coda::Quads<Config, Epilogue, SharedOut, Config::share_quads, Config::cluster,
                              Config::folds_segments>;
    using Segments = coda::Segments<Quads, Epilogue, Config::cluster>;
    using Spot = typename Quads::Spot;
    using Fragments = typename Config::Fragments; // HalfRows, ByteRows, PackedRows, or DigitRows

    static constexpr int warps = 4 * Config::groups, threads = 32 * warps; // of consumers
    static constexpr int bk = Config::bk, run = 128, runs = bk / run,
                         parts = warps / runs;                                 // of K, of tiles
    static constexpr int most_rows = Quads::most_rows, octets = most_rows / 8; // of A
    static constexpr int chunks = (int)((Config::k + bk - 1) / bk);
    static constexpr bool ragged = Config::k % bk != 0;
    // Tiles of packed weights are the patches: one is a block of records, or two of them, from an even one
    // on, have two. No block has a part of a record: so none is read twice.
    static constexpr bool packed = Fragments::packed;
    static constexpr int depth = Config::depth; // tiles of a slot
    // Tiles of a step are whole slots, of which a warp multiplies so many at a time.
    static constexpr int at_once = Fragments::template together<octets>,
                         span = at_once * parts > depth ? at_once *parts : depth, step_tiles = span / parts,
                         step_slots = span / depth;
    static_assert(span % depth == 0 && (parts % depth == 0 || depth % parts == 0) &&
                  step_tiles % at_once == 0);
    static constexpr int most_tiles = (Quads::most_quads + 3) / 4, passes = Config::passes;
    static constexpr int even = passes > 1 ? 2 : 16 / runs, // tiles that pass_tiles is a multiple of
        whole = even * passes,
        pass_tiles = packed ? (most_tiles + whole - 1) / whole * even
                            : (most_tiles + passes - 1) / passes, // of a block
        own_tiles = (pass_tiles + span - 1) / span * step_tiles;  // of a warp
    // What all blocks have; of more passes the last one may have fewer.
    static constexpr int least_tiles = passes > 1 ? 0 : Quads::least_quads / 4;
    // Is a tile that is not there left out, though one beside it is there? It takes code for one by itself.
    static constexpr bool skips = at_once == 1 || Fragments::template singly<octets>;
    static_assert(at_once <= 2);
    // Octets of a patch are the halves of a block of records, or the same half of both.
    static constexpr bool across = Columns::apart && Columns::step == 1,
                          by_turns = packed && Columns::step == 2;
    static_assert((most_rows == 8 || most_rows == 16) && (runs == 4 || runs == 8));
    static_assert(Config::suppliers == 1 || Config::right_stages > 1); // those that take turns fill several

    using Right = typename Fragments::template Right<octets, run>;
    using Lane = typename Fragments::template Lane<run>;
    static constexpr int right_pitch = 2 * bk + Fragments::pad;
    static constexpr int right_bytes =
        Fragments::digits ? Fragments::right_place(bk) : most_rows * right_pitch;
    using Ring = StreamRing<Config::stages, depth * Fragments::tile_bytes, Config::window>;
    using RightRing = StreamRing<Config::right_stages, right_bytes, Config::right_stages>;
    static constexpr int live_rows = Config::live_rows;            // of A, at most
    using Partial = float[runs][live_rows][4 * pass_tiles + 2][4]; // see put()
    static constexpr bool over_ring = passes == 1; // sums lie there, when all that it had is multiplied
    struct Shared {
        Ring ring;
        RightRing right;
        alignas(16) u8 apart[over_ring ? 16 : sizeof(Partial)];
        alignas(16) float sums[passes > 1 ? live_rows : 1][passes > 1 ? 4 * passes *pass_tiles : 1][4];
        typename Quads::Values values;
        typename Segments::Shared segments;
    };
    static_assert(shared_fits<Shared>(Config::shared_bytes));
    static_assert(!over_ring || sizeof(Partial) <= sizeof(Ring::data));

    const Args &args;
    Shared &s;
    const SharedOut block;
    const int first_row; // of A
    const int batch;

    DEV Quads quads() const { return Quads{args, s.values, block, first_row, batch}; }
    DEV int rows() const { return quads().rows(); } // that there are
    // The batch's.
    DEV auto a() const
    {
        if constexpr (Config::batched) return args.a + batch * Config::a_batch(args);
        else return args.a;
    }
    DEV auto b() const
    {
        if constexpr (Config::batched) return args.b + batch * Config::b_batch(args);
        else return args.b;
    }
    DEV int count() const { return quads().count(); }
    DEV Partial &partial() const { return *(Partial *)(over_ring ? (u8 *)s.ring.data : s.apart); }

    // Tiles that a pass has of this block, the last of which may lack quads.
    DEV int tiles_of(int pass) const { return clamp((count() + 3) / 4 - pass * pass_tiles, 0, pass_tiles); }
    DEV static int length(int chunk) { return chunk + 1 < chunks ? bk : (int)Config::k - chunk * bk; }
    // The n-th chunk of this block. One row is short enough to begin with the first, and so are two digits'.
    DEV int chunk_at(int n) const
    {
        if constexpr (Fragments::digits || !Config::turns) return n;
        const int chunk = n + (int)(block.index() % chunks);
        return chunk < chunks ? chunk : chunk - chunks;
    }

    // Consumers, in whole warps.
    DEV static void meet()
    {
        __syncwarp();
        ptx::named_barrier(barrier_streamers, threads);
    }

    // ---- Consumers ----

    using Sums = float[own_tiles][octets][4];

    DEV static int first_k() { return threadIdx.x / 32 % runs * run; } // of a chunk: of this warp's run

    // Elements of this warp's run of a chunk, where K ends within one.
    DEV static int live_of(int chunk) { return ragged ? length(chunk) - first_k() : run; }

    DEV void load_right(Right &x, typename RightRing::Cursor at, int chunk) const
    {
        s.right.wait(at);
        x.load(s.right.data[at.slot] + Fragments::right_place(first_k()), live_of(chunk));
        s.right.release(at);
    }
    // Is the next chunk's run loaded while tiles of the second step are multiplied, which all blocks have?
    static constexpr bool ahead =
        Fragments::template ahead<octets> && passes == 1 && least_tiles > span &&own_tiles >= 2 * step_tiles;
    // Where there is no further chunk, what is loaded is never used.
    DEV void fetch_right(Right &x, typename RightRing::Cursor at, int n) const
    {
        at.next();
        if (n < chunks) s.right.wait(at);
        x.fetch(s.right.data[at.slot] + Fragments::right_place(first_k()), live_of(chunk_at(n)));
        if (n < chunks) s.right.release(at);
    }

    // Of a step `n` of this warp's tiles, from `first` on, which lie at own[0] and behind it.
    template <int n>
    DEV void multiply_tiles(float (*sum)[octets][4], const Right &x, const Lane &lane, const u8 *const *own,
                            int first, int part, int chunk) const
    {
        constexpr int bytes = Fragments::tile_bytes;
        if constexpr (packed) {
            using Row = typename Fragments::Row;
            Row rows[n][2];
#pragma unroll
            for (int j = 0; j < n; j++) {
                const int d = ((first + j) * parts + part) % depth % 2;
                const u8 *const both = own[j] - d * bytes;
                rows[j][0] = across ? Row{both, d} : Row{own[j], 0};
                rows[j][1] = across ? Row{both + bytes, d} : Row{own[j], 1};
            }
            Fragments::template multiply<across>(sum, rows, first_k(), live_of(chunk), x, lane);
        } else {
            const u8 *from[n];
#pragma unroll
            for (int j = 0; j < n; j++) from[j] = own[j] + first_k() * Fragments::size;
            Fragments::multiply(sum, from, live_of(chunk), x);
        }
    }

    // The tiles of a step, from `first` on: those of one or more slots, of which each part of the warps has
    // some. All warps wait for all slots: so none is ahead of the others by a round of the ring. What lies
    // behind the last tile is not multiplied: of eleven tiles a twelfth would take each warp its time.
    // `meanwhile` is done when the slots are there.
    template <class Meanwhile>
    DEV void multiply_step(float (*sum)[octets][4], const Right &x, const Lane &lane,
                           typename Ring::Cursor &at, int first, int tiles, int part, int chunk,
                           Meanwhile meanwhile) const
    {
        constexpr int bytes = Fragments::tile_bytes;
        const u8 *slot[step_slots];
        typename Ring::Cursor each[step_slots];
#pragma unroll
        for (int i = 0; i < step_slots; i++) {
            each[i] = at;
            if (i) slot[i] = slot[0];
            if (i && first + i * depth >= tiles) continue;
            s.ring.wait(at);
            slot[i] = s.ring.data[at.slot];
            at.next();
        }
        const u8 *own[step_tiles];
#pragma unroll
        for (int j = 0; j < step_tiles; j++) {
            const int tile = j * parts + part;
            own[j] = slot[0] + (step_slots > 1 ? tile % depth * bytes : part * bytes + j * parts * bytes);
#pragma unroll
            for (int i = 1; i < step_slots; i++)
                if (tile >= i * depth) own[j] = slot[i] + tile % depth * bytes;
        }
        meanwhile();
        const bool all = !skips || first + span <= least_tiles;
#pragma unroll
        for (int j = 0; j < step_tiles; j += at_once) {
            const int last = first + (j + at_once - 1) * parts + part;
            const bool any = first + (j + at_once - 1) * parts < most_tiles;
            if (all || any && last < tiles)
                multiply_tiles<at_once>(sum + j, x, lane, own + j, j, part, chunk);
            else if (at_once > 1 && last - parts < tiles)
                multiply_tiles<1>(sum + j, x, lane, own + j, j, part, chunk);
        }
#pragma unroll
        for (int i = 0; i < step_slots; i++)
            if (!i || first + i * depth < tiles) s.ring.release(each[i]);
    }

    // A warp's sums of a pass: a lane has two rows of A and, of each tile, two columns. These are one in each
    // octet; of records whose rows are of either octet in turns, rows of the record. Rows lie 8 banks further
    // apart than whole rounds of banks, and every second pair of rows puts its columns in the other order: so
    // all lanes' stores go to banks of their own. Rows that are not there are left out.
    DEV void put(const Sums &sum, int tiles) const
    {
        const int lane = threadIdx.x % 32, row = lane % 4 * 2, line = lane / 4, live = rows();
        const int other = lane % 4 / 2;
#pragma unroll
        for (int i = 0; i < own_tiles; i++) {
            const int tile = i * parts + threadIdx.x / 32 / runs;
            if (tile >= tiles) break;
#pragma unroll
            for (int e = 0; e < 4 * octets; e++) {
                const int side = e % 4 / 2 ^ other, quad = by_turns ? 2 * side + line / 4 : line / 2,
                          place = by_turns ? line % 2 * 2 + line / 2 % 2 : 2 * side + line % 2;
                const int to = e / 4 * 8 + row + e % 2;
                const float x = other ? sum[i][e / 4][e % 4 ^ 2] : sum[i][e / 4][e % 4];
                if (to < live) partial()[first_k() / run][to][4 * tile + quad][place] = x;
            }
        }
    }

    // Of a quad of the pass: all runs together.
    DEV void add_runs(int row, int quad, float (&x)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = partial()[0][row][quad][i];
#pragma unroll
        for (int r = 1; r < runs; r++)
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] += partial()[r][row][quad][i];
    }
    DEV void keep(int pass, int tiles) const
    {
        for (int i = threadIdx.x; i < rows() * 4 * tiles; i += threads) {
            const int row = i / (4 * tiles), quad = i % (4 * tiles);
            add_runs(row, quad, s.sums[row][4 * pass_tiles * pass + quad]);
        }
    }

    // All chunks, whose runs of A are loaded one ahead.
    DEV void multiply_ahead(Sums &sum, const Lane &lane, typename Ring::Cursor &at,
                            typename RightRing::Cursor &right, int tiles, int part) const
    {
        Right x;
        load_right(x, right, chunk_at(0));
#pragma unroll 1
        for (int n = 0; n < chunks; n++, right.next()) {
            Right next;
#pragma unroll
            for (int i = 0; i < own_tiles; i += step_tiles) {
                if (parts * i >= tiles) break;
                if (i == step_tiles) fetch_right(next, right, n + 1);
                multiply_step(sum + i, x, lane, at, parts * i, tiles, part, chunk_at(n), [&] {
                    if (i == step_tiles) next.finish();
                });
            }
            x = next;
        }
    }

    DEV void multiply_all(int own_part) const
    {
        auto at = Ring::consumer();
        auto right = RightRing::consumer();
        const Lane lane = Lane::of(first_k());
        const int part = Fragments::template crowded<octets> ? threadIdx.x / 32 / runs : own_part;
#pragma unroll 1
        for (int pass = 0; pass < passes; pass++) {
            const int tiles = tiles_of(pass);
            Sums sum = {};
            if constexpr (ahead) multiply_ahead(sum, lane, at, right, tiles, part);
            else
#pragma unroll 1
                for (int n = 0; n < chunks && tiles; n++, right.next()) {
                    const int chunk = chunk_at(n);
                    Right x;
                    load_right(x, right, chunk);
#pragma unroll
                    for (int i = 0; i < own_tiles; i += step_tiles)
                        if (parts * i < tiles)
                            multiply_step(sum + i, x, lane, at, parts * i, tiles, part, chunk, [] {});
                }
            if constexpr (Fragments::digits)
#pragma unroll
                for (int i = 0; i < own_tiles; i++) Fragments::finish(sum[i][0]);
            if constexpr (over_ring) meet();
            put(sum, tiles);
            meet();
            if constexpr (passes > 1) {
                keep(pass, tiles);
                meet();
            }
        }
    }

    // ---- Epilogue ----

    DEV auto row_in_tensor(int row) const
    {
        if constexpr (Config::batched) return (i64)batch * Config::rows(args) + first_row + row;
        else return first_row + row;
    }
    // A row has a warp, whatever their number: so the states of its quads are merged in one order.
    DEV void drain() const
    {
        const auto sum = [&](int row, int quad, float(&x)[2][2]) {
            float all[4];
            if constexpr (passes > 1)
                for (int i = 0; i < 4; i++) all[i] = s.sums[row][quad][i];
            else add_runs(row, quad, all);
#pragma unroll
            for (int i = 0; i < 4; i++) x[i / 2][i % 2] = all[i];
        };
        const Quads all = quads();
        const Segments segments = {all, s.segments};
        segments.finish_all(threadIdx.x, threads, sum, meet);
#pragma unroll 1
        for (int row = threadIdx.x / 32; row < rows(); row += warps) {
            const int lane = threadIdx.x % 32;
            const auto state = all.template drain<32>(row, lane, 32, sum, segments);
            if constexpr (Quads::has_state)
                if (lane == 0) Epilogue::save(args, row_in_tensor(row), block.index(), state);
        }
        Segments::leave();
    }

    DEV void run_block() const
    {
        const int warp = ptx::uniform(threadIdx.x / 32);
        const StreamMmaCopies<Config, StreamMma> copies = {*this};
        s.ring.init(warps, packed ? 1 : 32);
        s.right.init(warps, packed ? 32 : 1);
        if (Config::early) ptx::grid_launch_next();
        if (Config::lends && warp >= warps) {
            if constexpr (Config::lends) ptx::shrink_registers<StreamRegisters::producer>();
            if (warp == warps) copies.produce();
            if (warp == warps + 1) copies.supply(0);
            Segments::attend();
        } else if (warp == warps) {
            copies.produce();
            Segments::attend();
        } else if (warp > warps) {
            copies.supply(warp - warps - 1);
            Segments::attend();
        } else {
            if constexpr (Config::lends) ptx::grow_registers<StreamRegisters::consumer>();
            ptx::grid_wait();
            multiply_all(warp / runs);
            s.ring.wait_prepared();
            drain();
        }
    }
};

template <class Config, class Epilogue, class Block>
DEV void stream_mma(const typename Config::Args &args, const Block &block)
{
    using Stream = StreamMma<Config, Epilogue>;
    const u32 groups = (Config::rows(args) + Config::bm - 1) / Config::bm, all = block.index() / groups;
    const int first_row = (int)(block.index() - all * groups) * Config::bm;
    const u32 batch = Config::batched ? all / Config::blocks : 0, share = all - batch * Config::blocks;
    Stream{args, *(typename Stream::Shared *)block.shared(), {share}, first_row, (int)batch}.run_block();
}

} // namespace coda
