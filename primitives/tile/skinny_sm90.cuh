// skinny_sm90.cuh -- C = A B^T for up to 16 rows of A: B streams through shared memory at memory's pace, and
// warps multiply by mma.sync.
//
//     producer    one thread: copies 8 rows of B at a time into a ring, in pieces of K
//     preparer    a warp: the epilogue's values of rows and columns, while the others multiply
//     consumers   warps that share each row of B: of every 256 k warp w multiplies 32, from 32 w on, with
//                 A in registers
//
// Each block has a share of the columns (see stream.cuh), and takes two quads, a unit, at a time: then the
// warps put their sums into shared memory, where threads add them, in the warps' order. The epilogue follows
// at the end.
//
// A's rows are the 16 rows of a product, B's are its 8 columns. The order of k does not matter as long as
// both have the same: of each 32 k a lane takes 8 neighbours, which one load brings, as 4 pairs. A product of
// 16 k has two of these pairs. Up to 8 rows of A, the other pairs of the same rows are in the place of the
// rows that do not exist: the first product is right in its upper 8 rows, the second in its lower ones, and
// no register holds a zero.
//
// Splits: the blocks of a cluster multiply a part of K each, for the columns of all of them. So a block has a
// part of A, in fewer registers. In the end each adds the sums that all have for its own columns.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/matrix.cuh"
#include "tile/parts.cuh"
#include "tile/resources.cuh"
#include "tile/stream.cuh"

namespace coda {

template <class Config, class Epilogue, class Block> struct SkinnySm90 {
    using Element = typename Config::T;
    using Columns = typename Config::Columns;
    using Args = typename Config::Args;
    using Quads = coda::Quads<Config, Epilogue, Block>;
    using Spot = typename Quads::Spot;

    static constexpr int warps = 4 * Config::groups, threads = 32 * warps;     // of consumers
    static constexpr int most_rows = Quads::most_rows, octets = most_rows / 8; // of A: 8, or 16
    static constexpr int step = 32 * warps; // k that all warps multiply at once
    // A block's part of K.
    static constexpr int part = (int)((Config::k / step + Config::splits - 1) / Config::splits) * step;
    static constexpr int pieces = (part + Config::bk - 1) / Config::bk; // of a row of B
    static constexpr int steps = Config::bk / step;                     // of a piece
    // Eight lanes that read at a time have 64 bytes of each of two rows: so they are in different banks.
    static constexpr int pitch = 2 * Config::bk + 64, slot_bytes = 8 * pitch;
    static_assert((most_rows == 8 || most_rows == 16) && Config::k % step == 0 && Config::bk % step == 0 &&
                  Config::bk % 64 == 0);

    using Ring = StreamRing<Config::stages, slot_bytes, Config::window>;
    struct Shared {
        Ring ring;
        float parts[2][warps][8 * octets][8]; // of two units, in turns
        alignas(16) float sums[most_rows][Config::splits * Quads::most_quads][4];
        typename Quads::Values values;
    };
    static_assert(shared_fits<Shared>(Config::shared_bytes));

    const Args &args;
    Shared &s;
    const Block &block;

    DEV int rows() const { return Config::rows(args); } // that there are

    // The block's rank in its cluster, with quads from begin() on; without a cluster it is a block.
    DEV int rank() const { return block.index() % Config::splits; }
    DEV int begin() const { return Quads::first(block.index() - rank()); }
    DEV int count() const { return Quads::first(block.index() - rank() + Config::splits) - begin(); }

    // The last part may be shorter, even by a piece.
    DEV int length(int piece) const
    {
        constexpr int last = (int)Config::k - (Config::splits - 1) * part;
        if (piece + 1 < pieces) return Config::bk;
        return (last == part || rank() + 1 < Config::splits ? part : last) - piece * Config::bk;
    }

    // Consumers, in whole warps.
    DEV static void meet()
    {
        __syncwarp();
        ptx::named_barrier(barrier_streamers, threads);
    }

    // ---- Producer ----

    // Rows of a unit are those of its quads in turn; the last unit of a block may have one.
    DEV void produce() const
    {
        auto at = Ring::producer();
        const int end = begin() + count();
        if (!Config::early) ptx::grid_wait();
#pragma unroll 1
        for (int quad = begin(); quad < end; quad += 2) {
            const int live = quad + 1 < end ? 8 : 4;
            const Element *from[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const int column = Spot::of(i < live ? quad + i / 4 : quad).at(i / 2 % 2, i % 2);
                const int row = Quads::row_of(column);
                from[i] = rows_of_b<Config>(args, row) + row * Config::b_stride_row + rank() * part;
            }
#pragma unroll 1
            for (int piece = 0; piece < pieces; piece++, at.next()) {
                const u32 bytes = 2 * length(piece), bar = s.ring.expect(at, live * bytes);
                const u32 to = ptx::shared_address(s.ring.data[at.slot]);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    if (i < live && bytes) ptx::bulk_load_once(to + i * pitch, from[i], bytes, bar);
                    from[i] += Config::bk;
                }
            }
        }
    }

    // ---- Consumers ----

    struct alignas(16) Run {
        u32 pair[4];
    };                                          // 8 elements
    using Left = u32[pieces][steps][octets][4]; // A's, of this lane
    using Sums = float[2][4];

    // The place of this lane's elements of a row in a step along K.
    DEV static int place(int i) { return i * step + (int)threadIdx.x / 32 * 32 + (int)threadIdx.x % 4 * 8; }

    DEV Run load_run(int row, int piece, int i) const
    {
        if (row >= rows()) return {};
        return *(const Run *)(args.a + row * Config::a_stride_row + rank() * part + piece * Config::bk +
                              place(i));
    }

    DEV void load_left(Left &x) const
    {
        const int row = threadIdx.x % 32 / 4;
#pragma unroll
        for (int piece = 0; piece < pieces; piece++)
#pragma unroll
            for (int i = 0; i < steps; i++) {
                if (i * step >= length(piece)) continue;
                const Run upper = load_run(row, piece, i), lower = load_run(row + 8, piece, i);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    x[piece][i][0][2 * j] = upper.pair[j];
                    x[piece][i][0][2 * j + 1] = octets > 1 ? lower.pair[j] : upper.pair[2 + j];
                    if (octets < 2) continue;
                    x[piece][i][octets - 1][2 * j] = upper.pair[2 + j];
                    x[piece][i][octets - 1][2 * j + 1] = lower.pair[2 + j];
                }
            }
    }

    DEV void multiply(Sums &sum, const Left &x, int piece, int slot) const
    {
        const u8 *const from = s.ring.data[slot] + threadIdx.x % 32 / 4 * pitch;
#pragma unroll
        for (int i = 0; i < steps; i++) {
            if (i * step >= length(piece)) continue;
            const Run w = *(const Run *)(from + 2 * place(i));
            ptx::mma<Element>(sum[0], x[piece][i][0], w.pair[0], w.pair[1]);
            ptx::mma<Element>(sum[1], x[piece][i][octets - 1], w.pair[2], w.pair[3]);
        }
    }

    // A warp's sums of a unit into shared memory, and those of all warps together.
    DEV void put(const Sums &sum, int unit) const
    {
        const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
        float(&to)[8 * octets][8] = s.parts[unit % 2][threadIdx.x / 32];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            to[row][column + e] = sum[0][e] + sum[1][octets > 1 ? e : 2 + e];
            if (octets > 1) to[8 * octets - 8 + row][column + e] = sum[0][2 + e] + sum[1][2 + e];
        }
    }
    DEV void add_up(int unit) const
    {
        const int row = threadIdx.x / 8, column = threadIdx.x % 8, quad = 2 * unit + column / 4;
        if (row >= rows() || quad >= count()) return;
        float all = 0;
#pragma unroll
        for (int w = 0; w < warps; w++) all += s.parts[unit % 2][w][row][column];
        s.sums[row][quad][column % 4] = all;
    }

    DEV void multiply_all(const Left &x) const
    {
        auto at = Ring::consumer();
#pragma unroll 1
        for (int unit = 0; 2 * unit < count(); unit++) {
            Sums sum = {};
#pragma unroll
            for (int piece = 0; piece < pieces; piece++, at.next()) {
                s.ring.wait(at);
                multiply(sum, x, piece, at.slot);
                s.ring.release(at);
            }
            put(sum, unit);
            meet();
            add_up(unit);
        }
    }

    // ---- Epilogue ----

    DEV static void meet_cluster()
    {
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
    // Adds the cluster's sums of this block's columns, in the place of its own.
    DEV void add_cluster() const
    {
        const int first = Quads::first(block.index()) - begin(), quads = Quads{args, s.values, block}.count();
        for (int i = threadIdx.x; i < rows() * quads; i += threads) {
            float(&to)[4] = s.sums[i / quads][first + i % quads];
            float x[Config::splits][4];
#pragma unroll
            for (int r = 0; r < Config::splits; r++)
                ptx::cluster_load(x[r], ptx::cluster_address(ptx::shared_address(to), r));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                to[j] = x[0][j];
#pragma unroll
                for (int r = 1; r < Config::splits; r++) to[j] += x[r][j];
            }
        }
    }

    // A row has a warp, or half of one.
    DEV void drain() const
    {
        const int first = Quads::first(block.index()) - begin();
        constexpr int lanes = octets > 1 ? 16 : 32;
        const int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
        const auto sum = [&](int r, int quad, float(&x)[2][2]) {
#pragma unroll
            for (int i = 0; i < 4; i++) x[i / 2][i % 2] = s.sums[r][first + quad][i];
        };
        const auto state = Quads{args, s.values, block}.template drain<lanes>(row, lane, lanes, sum);
        if constexpr (Quads::has_state)
            if (lane == 0 && row < rows()) Epilogue::save(args, row, block.index(), state);
    }

    // ---- Roles ----

    DEV void consume() const
    {
        Left x;
        load_left(x);
        multiply_all(x);
        if constexpr (Config::splits > 1) {
            meet_cluster();
            add_cluster();
            __syncwarp();
            ptx::cluster_arrive();
        }
        meet();
        s.ring.wait_prepared();
        drain();
        __syncwarp();
        if constexpr (Config::splits > 1) ptx::cluster_wait(); // others read this block's sums
    }

    DEV void prepare() const
    {
        Quads{args, s.values, block}.prepare();
        s.ring.tell_prepared();
    }

    // Alone on an SM: A takes many registers, and the other warps are a warpgroup, which gives away its own.
    DEV void run() const
    {
        const int warp = ptx::uniform(threadIdx.x / 32);
        s.ring.init(warps);
        if (Config::early) ptx::grid_launch_next();
        if (warp < warps) {
            if constexpr (Config::alone) ptx::grow_registers<SkinnyRegisters<Config::groups>::consumer>();
            ptx::grid_wait();
            consume();
        } else {
            if constexpr (Config::alone) ptx::shrink_registers<SkinnyRegisters<Config::groups>::producer>();
            if (warp == warps && ptx::elect_one()) produce();
            if (warp == warps + 1) {
                ptx::grid_wait();
                prepare();
            }
            if constexpr (Config::splits > 1)
                for (int i = 0; i < 2; i++) meet_cluster();
        }
    }
};

template <class Config, class Epilogue, class Block>
DEV void skinny_sm90(const typename Config::Args &args, const Block &block)
{
    using Skinny = SkinnySm90<Config, Epilogue, Block>;
    Skinny{args, *(typename Skinny::Shared *)block.shared(), block}.run();
}

} // namespace coda
