// gemv_sm90.cuh -- C = A B^T for a row or two of A: B streams through shared memory at memory's pace.
//
//     producer    one thread: copies pairs of B's rows into a ring, in pieces of K
//     preparer    a warp: the epilogue's values of rows and columns, while the others multiply
//     consumers   warps that share each row of B: lane l of warp w multiplies every 256th run of 8 k, from
//                 run 32 w + l on, with A in registers, and the warp adds up
//
// Columns go by quads: those of a patch that one thread has, two neighbours in each of two octets (see
// columns.cuh). Block b takes an equal share of all quads, so that all blocks end at one time. At its end a
// thread adds the warps' sums of a quad, in their order, and does the quad's epilogue.
//
// Early: no kernel of the run writes B. So the ring is filled with B before the kernel ahead has ended, and
// the next kernel may begin with the same beside this one; half of an SM's memory is enough for that.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/tma.cuh"
#include "tile/epilogue.cuh"

namespace coda {

template <class C, class E> struct GemvSm90 {
    using T = typename C::T;
    using K = typename C::Columns;
    using Args = typename C::Args;
    using Slots = PatchRow<C, E>;
    using State = typename E::State;

    static constexpr int warps = 4 * C::groups, threads = 32 * warps;  // of consumers
    static constexpr int rows = (int)C::m, quads = (int)C::n / 4;
    static constexpr int most = (quads + C::blocks - 1) / C::blocks;   // of a block
    static constexpr int pieces = (int)((C::k + C::bk - 1) / C::bk);   // of a row of B
    static constexpr int runs = (C::bk / 8 + threads - 1) / threads;   // of a lane in a piece
    static constexpr int row_bytes = 2 * C::bk, slot_bytes = 2 * row_bytes;
    static constexpr bool has_row = !__is_empty(typename E::Row), has_col = !__is_empty(typename E::Col);
    static constexpr bool has_half = !__is_empty(typename E::Half), has_state = !__is_empty(State);
    static_assert(C::n % 16 == 0 && C::k % 8 == 0 && C::bk % 8 == 0 && C::batch == 1);

    struct Shared {
        alignas(128) u8 ring[C::stages][slot_bytes];
        float sums[warps][rows][most][4];
        u64 full[C::stages], empty[C::stages], prepared;
        typename E::Row row[rows];
        typename E::Col col[most][4];
        typename E::Half half[most][2];
        State state[warps];
    };
    static_assert(sizeof(Shared) <= C::shared_bytes);

    const Args &args;
    Shared &s;

    DEV static u32 address(const void *p) { return ptx::shared_address(p); }

    // Block b has the quads [first(b), first(b + 1)).
    DEV static int first(u32 block) { return (int)((u64)quads * block / C::blocks); }
    DEV static int length(int piece) { return piece + 1 < pieces ? C::bk : (int)C::k - piece * C::bk; }

    // Where a quad lies: its patch in a tile of Columns, and its columns there.
    struct Spot {
        int tile, patch, column;
        DEV static Spot of(int quad)
        {
            constexpr int each = C::bn / 16;
            return {quad / 4 / each, quad / 4 % each, 2 * (quad % 4)};
        }
        DEV int at(int side, int neighbour) const
        {
            return K::column(tile, column) + K::distance(tile, K::octet(patch, side)) + neighbour * K::step;
        }
        DEV int half_at(int neighbour) const { return K::half_column(tile, column) + 8 * patch + neighbour; }
        DEV Place place(int row) const
        {
            Place p = {0, row, {K::column(tile, column), {}, K::step, {2, 2}}, {0, {}, 1, {2, 0}}};
            p.full.distance[0] = K::distance(tile, K::octet(patch, 0));
            p.full.distance[1] = K::distance(tile, K::octet(patch, 1));
            if constexpr (K::gated) p.half.first = half_at(0);
            return p;
        }
    };

    struct Cursor {
        int slot;
        u32 parity;
        DEV void next()
        {
            if (++slot == C::stages) slot = 0, parity ^= 1;
        }
    };

    DEV void init() const
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < C::stages; i++) {
                ptx::mbarrier_init(address(&s.full[i]), 1);
                ptx::mbarrier_init(address(&s.empty[i]), warps);
            }
            ptx::mbarrier_init(address(&s.prepared), 32);
            ptx::mbarrier_fence_init();
        }
        __syncthreads();
    }
    // Consumers, in whole warps.
    DEV static void meet()
    {
        __syncwarp();
        ptx::named_barrier(1, threads);
    }

    // ---- Producer ----

    DEV void produce() const
    {
        Cursor at = {0, 1};
        if (!C::early) ptx::grid_wait();
#pragma unroll 1
        for (int i = 4 * first(blockIdx.x); i < 4 * first(blockIdx.x + 1); i += 2) {
            const int column = Spot::of(i / 4).at(i / 2 % 2, 0);
            for (int piece = 0; piece < pieces; piece++, at.next()) {
                const u32 bytes = 2 * length(piece), bar = address(&s.full[at.slot]);
                const u32 to = address(s.ring[at.slot]);
                const T *from = args.b + column * C::b_stride_row + piece * C::bk;
                ptx::mbarrier_wait(address(&s.empty[at.slot]), at.parity);
                ptx::mbarrier_arrive_expect(bar, 2 * bytes);
                ptx::bulk_load_once(to, from, bytes, bar);
                ptx::bulk_load_once(to + row_bytes, from + K::step * C::b_stride_row, bytes, bar);
            }
        }
    }

    // ---- Preparer ----

    // Values of all rows, and of this block's columns, as in Drain::prepare.
    DEV void prepare() const
    {
        const int begin = first(blockIdx.x), end = first(blockIdx.x + 1), lane = threadIdx.x % 32;
        if constexpr (has_row)
            for (int r = lane / E::team; r < rows; r += 32 / E::team) {
                const typename E::Row row = E::row(args, 0, r, blockIdx.x == 0);
                if (lane % E::team == 0) s.row[r] = row;
            }
        if constexpr (has_col)
            for (int i = lane; i < 4 * (end - begin); i += 32)
                s.col[i / 4][i % 4] = E::col(args, 0, Spot::of(begin + i / 4).at(i / 2 % 2, i % 2), true);
        if constexpr (has_half)
            for (int i = lane; i < 2 * (end - begin); i += 32)
                s.half[i / 2][i % 2] = E::half(args, 0, Spot::of(begin + i / 2).half_at(i % 2), true);
    }

    // ---- Consumers ----

    struct alignas(16) Run { u32 pair[4]; }; // 8 elements
    using Left = Run[rows][pieces][runs];    // A's, of this lane

    DEV static int run_of(int i) { return i * threads + (int)threadIdx.x; }

    DEV void load_left(Left &x) const
    {
#pragma unroll
        for (int i = 0; i < rows * pieces * runs; i++) {
            const int row = i / (pieces * runs), piece = i / runs % pieces, run = run_of(i % runs);
            Run &to = x[row][piece][i % runs];
            to = {};
            if (8 * run < length(piece))
                to = *(const Run *)(args.a + row * C::a_stride_row + piece * C::bk + 8 * run);
        }
    }

    using Sums = float[rows][2];

    DEV void multiply(Sums &sum, const Left &x, int piece, int slot) const
    {
#pragma unroll
        for (int i = 0; i < runs; i++) {
            if (8 * run_of(i) >= length(piece)) continue;
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const Run w = *(const Run *)(s.ring[slot] + n * row_bytes + 16 * run_of(i));
#pragma unroll
                for (int r = 0; r < rows; r++)
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const Pair a = unpack2<T>(x[r][piece][i].pair[j]), b = unpack2<T>(w.pair[j]);
                        sum[r][n] = fmaf(a.b, b.b, fmaf(a.a, b.a, sum[r][n]));
                    }
            }
        }
    }

    // A warp's sums of two columns: lane 0 ends with the first, lane 16 with the second.
    DEV static float add_up(const float (&sum)[2])
    {
        const bool upper = threadIdx.x & 16;
        float x = (upper ? sum[1] : sum[0]) + __shfl_xor_sync(~0u, upper ? sum[0] : sum[1], 16);
#pragma unroll
        for (int i = 8; i; i /= 2) x += __shfl_xor_sync(~0u, x, i);
        return x;
    }

    DEV void multiply_all(const Left &x) const
    {
        const int pairs = 2 * (first(blockIdx.x + 1) - first(blockIdx.x)), warp = threadIdx.x / 32;
        Cursor at = {0, 0};
#pragma unroll 1
        for (int i = 0; i < pairs; i++) {
            Sums sum = {};
#pragma unroll
            for (int piece = 0; piece < pieces; piece++, at.next()) {
                ptx::mbarrier_wait(address(&s.full[at.slot]), at.parity);
                multiply(sum, x, piece, at.slot);
                __syncwarp();
                if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(address(&s.empty[at.slot]));
            }
#pragma unroll
            for (int r = 0; r < rows; r++) {
                const float all = add_up(sum[r]);
                if (threadIdx.x % 16 == 0) s.sums[warp][r][i / 2][i % 2 * 2 + threadIdx.x / 16 % 2] = all;
            }
        }
    }

    // ---- Epilogue ----

    DEV void drain_quad(int quad, int row, State (&state)[Slots::chains]) const
    {
        const Spot spot = Spot::of(first(blockIdx.x) + quad);
        const Place p = spot.place(row);
        const typename E::Row values = s.row[row];
        float sums[2][2] = {};
#pragma unroll
        for (int i = 0; i < 4 * warps; i++) sums[i / 2 % 2][i % 2] += s.sums[i / 4][row][quad][i % 4];
        Line in[E::loads + 1], out[E::stores + 1];
        typename E::Cell cells[Slots::slots];
        E::load(args, p, values, in);
        Slots::apply(
            sums, p, values, [&](int side, int n) { return s.col[quad][2 * side + n]; },
            [&](int n) { return s.half[quad][n]; }, in, out, state, cells);
        E::store(args, p, out);
    }

    DEV void finish(int row, State (&state)[Slots::chains]) const
    {
        State &all = state[0];
        if (Slots::chains == 2) E::merge(all, state[Slots::chains - 1]);
#pragma unroll
        for (int i = 1; i < 32; i *= 2) E::merge(all, from_lane(all, i));
        if (threadIdx.x % 32 == 0) s.state[threadIdx.x / 32] = all;
        meet();
        if (threadIdx.x == 0) {
            for (int w = 1; w < warps; w++) E::merge(all, s.state[w]);
            E::save(args, row, blockIdx.x, all);
        }
        meet();
    }

    DEV void drain() const
    {
        const int count = first(blockIdx.x + 1) - first(blockIdx.x);
#pragma unroll 1
        for (int row = 0; row < rows; row++) {
            State state[Slots::chains];
            for (int i = 0; i < Slots::chains; i++) E::init(state[i]);
#pragma unroll 1
            for (int quad = threadIdx.x; quad < count; quad += threads) drain_quad(quad, row, state);
            if constexpr (has_state) finish(row, state);
        }
    }

    DEV void run() const
    {
        init();
        if (C::early) ptx::grid_launch_next();
        if (threadIdx.x == threads) produce();
        if (threadIdx.x / 32 == warps) return;
        ptx::grid_wait();
        if (threadIdx.x / 32 > warps) {
            prepare();
            ptx::mbarrier_arrive(address(&s.prepared));
            return;
        }
        Left x;
        load_left(x);
        multiply_all(x);
        meet();
        ptx::mbarrier_wait(address(&s.prepared), 0);
        drain();
    }
};

template <class C, class E> DEV void gemv_sm90(const typename C::Args &args)
{
    extern __shared__ __align__(1024) u8 memory[];
    using Gemv = GemvSm90<C, E>;
    Gemv{args, *(typename Gemv::Shared *)memory}.run();
}

} // namespace coda
