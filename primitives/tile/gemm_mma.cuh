// gemm_mma.cuh -- C = A B^T of bf16 or f16 by cp.async, ldmatrix and mma.sync: for GPUs that have no wgmma,
// from sm_80 on, and for operands that TMA cannot describe.
//
// All warps of a block copy, multiply and drain. Slots of Config::bk of K go round in a ring: while one is
// multiplied, Config::stages - 1 further ones are on their way. A slot is filled again after the barrier that
// follows its products. A thread's accumulators are those of the wgmma fragment, so that the epilogue is the
// same: a warp multiplies 16 rows of each 64 by all columns.
//
// In shared memory elements keep the order that they have in memory, K-major or MN-major: of the latter
// ldmatrix transposes 8x8 matrices. Copies have 16 bytes, or fewer, where a pitch is odd.
//
// What B has in fewer bits goes through registers, where it becomes values of 16 bits, or, with a scale of
// more bits than those have, two parts of a sum: a slot then has a tile for each. They are of bf16, which
// has fp32's range; A of f16 is then split likewise.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/copy.cuh"
#include "tile/block.cuh"
#include "tile/epilogue.cuh"
#include "tile/parts.cuh"
#include "tile/resources.cuh"
#include "tile/weights.cuh"

namespace coda {

// One operand's tile of so many rows in a slot. A line is what lies together: bk elements of a row, or 64
// rows of one k; in the latter case each 64 rows are a panel of their own. The 16-byte pieces of lines are
// swizzled as TMA does it, so that neither the 8 rows of a matrix meet in a bank, nor what 8 threads copy.
template <class T, int rows, int bk, int threads, bool k_major> struct Panels {
    static constexpr int bytes = 2 * bk * (k_major ? rows : (rows + 63) / 64 * 64);
    static constexpr int pieces = rows * bk / 8, each = (pieces + threads - 1) / threads; // of a thread
    static_assert(rows % 16 == 0 && (bk == 32 || bk == 64));

    DEV static constexpr u32 offset(int row, int k)
    {
        return 2 * (k_major ? row * bk + k : row / 64 * 64 * bk + k * 64 + row % 64);
    }
    DEV static u32 place(int row, int k)
    {
        const u32 at = offset(row, k);
        return at ^ (at >> 3 & 0x70);
    }

    // ---- To shared memory ----

    // Eight values as one part, of which what is left is the next.
    DEV static void put(u32 to, float (&x)[8])
    {
        float four[4];
#pragma unroll
        for (int e = 0; e < 8; e += 2) {
            const u32 pair = pack2<T>(x[e], x[e + 1]);
            const Pair rounded = unpack2<T>(pair);
            four[e / 2] = bits_float(pair);
            x[e] = x[e] == rounded.a ? 0 : x[e] - rounded.a; // of infinity nothing is left
            x[e + 1] = x[e + 1] == rounded.b ? 0 : x[e + 1] - rounded.b;
        }
        ptx::shared_store(to, four);
    }

    // Piece i of this thread, by its first element. Neighbouring threads take neighbours in memory.
    struct Piece {
        int row, k;
    };
    DEV static Piece piece(int i)
    {
        const int n = i * threads + (int)threadIdx.x;
        if (k_major) return {n / (bk / 8), n % (bk / 8) * 8};
        return {n % (rows / 8) * 8, n / (rows / 8)};
    }
    // The `left` first elements of a piece exist; they are `step` apart. The others are zeros.
    template <int width> DEV static void copy(u32 to, const T *from, i64 step, int left)
    {
        if constexpr (width > 1) {
#pragma unroll
            for (int e = 0; e < 8; e += width)
                ptx::copy_async<2 * width>(to + 2 * e, from + e, 2 * max(0, min(left - e, width)));
        } else {
            u32 x[8];
#pragma unroll
            for (int e = 0; e < 8; e++) x[e] = e < left ? from[e * step].bits : 0;
            ptx::shared_store(to, {bits_float(x[0] | x[1] << 16), bits_float(x[2] | x[3] << 16),
                                   bits_float(x[4] | x[5] << 16), bits_float(x[6] | x[7] << 16)});
        }
    }

    // ---- To registers ----

    // This lane's row of the four matrices at (row, 0) of a slot: over rows first, or over k.
    DEV static u32 lane_place(int row, bool rows_first)
    {
        const int lane = threadIdx.x % 32, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
        const int r = rows_first ? low : high, k = rows_first ? high : low;
        return k_major ? place(row + r + lane % 8, k) : place(row + r, k + lane % 8);
    }
    // [16, 16] elements from there, by constants: `row`, a multiple of 16, and k on. What the swizzle touches
    // is 0 in the one or in the other.
    DEV static void load(u32 (&m)[4], u32 lane, int row, int k)
    {
        const u32 in_line = 2 * (k_major ? k : row % 64), lines = offset(row, k) - in_line;
        if constexpr (k_major) ptx::ldmatrix((lane ^ in_line) + lines, m);
        else ptx::ldmatrix_transposed((lane ^ in_line) + lines, m);
    }
};

// How an operand lies in memory, and how many elements one copy brings: `multiples` are further distances
// between its lines, of the tile's neighbouring rows some are `row_step` rows of it apart.
template <i64 row_stride, i64 k_stride, i64 multiples, int row_step = 1> struct Major {
    static constexpr bool k_major = k_stride == 1 || (row_stride != 1 && k_stride <= row_stride);
    static constexpr i64 step = k_major ? k_stride : row_stride * row_step; // of neighbours in a piece
    static constexpr i64 all = 8 | multiples | (k_major ? row_stride : k_stride);
    static constexpr int width = step == 1 ? (int)(all & -all) : 1;
};

template <class A, class B> struct Same {
    static constexpr bool value = false;
};
template <class A> struct Same<A, A> {
    static constexpr bool value = true;
};

// In how many parts B is multiplied, and whether copies decode it.
template <class Config, class Weights> struct PartsOf : WeightsOf<Config, Weights> {
    static constexpr bool decodes = true;
};
template <class Config> struct PartsOf<Config, void> {
    static constexpr bool decodes = false;
    static constexpr int parts = 1;
    template <class Element> using Part = Element;
};

template <class Config, class Epilogue, class Block> struct GemmMma {
    using Element = typename Config::T;
    using Columns = typename Config::Columns;
    using Drain = coda::Drain<Config, Epilogue>;
    using Args = typename Config::Args;

    static constexpr int threads = 128 * Config::groups, bk = Config::bk,
                         blocks = EpilogueLayout<Config, Epilogue>::blocks;
    static constexpr int steps = (int)((Config::k + bk - 1) / bk);
    // Halves of a gated tile begin at multiples of Config::n / 2; of an interleaved one columns are apart.
    using MajorA = Major<Config::a_stride_row, Config::a_stride_k, Config::a_align>;
    static constexpr i64 half_b = Columns::gated && Config::b_stride_k != 1 ? Config::n / 2 : 0;
    using MajorB = Major<Config::b_stride_row, Config::b_stride_k, Config::b_align | half_b, Columns::step>;
    using PanelsA = Panels<Element, Config::bm, bk, threads, MajorA::k_major>;
    using Weights = PartsOf<Config, typename Config::Weights>;
    static constexpr int parts = Weights::parts;
    using Part = typename Weights::template Part<Element>;
    using PanelsB = Panels<Part, Config::bn, bk, threads, MajorB::k_major>;
    static constexpr bool splits = !Same<Part, Element>::value; // A, too, into two bf16: f16 has 11 bits

    struct Shared {
        struct {
            alignas(swizzle_atom) u8 a[PanelsA::bytes], b[parts * PanelsB::bytes];
        } slot[Config::stages];
        typename Drain::Values values[Config::groups];
    };
    static_assert(sizeof(Shared) <= Config::shared_bytes && Config::stages >= 2);

    const Args &args;
    Shared &s;
    const Block &block;

    // ---- Copies ----

    // Places of an operand that are in registers at one time. Tiles that wide have large epilogues, too.
    static constexpr int together = Config::bn > 128 ? 1 : 4;

    // How many of a piece's elements from (row, k) on exist.
    template <bool k_major> DEV static int left(int row, int rows, int k)
    {
        if (k_major) return row < rows ? (int)Config::k - k : 0;
        return k < Config::k ? rows - row : 0;
    }
    DEV void copy_a(u32 to, const Tile &t, int k0) const
    {
#pragma unroll(together < PanelsA::each ? together : PanelsA::each)
        for (int i = 0; i < PanelsA::each; i++) {
            const auto at = PanelsA::piece(i);
            if (PanelsA::pieces % threads && i * threads + (int)threadIdx.x >= PanelsA::pieces) break;
            const int m = t.m * Config::bm + at.row, k = k0 + at.k;
            const Element *from =
                args.a + t.batch * Config::a_batch(args) + m * Config::a_stride_row + k * Config::a_stride_k;
            PanelsA::template copy<MajorA::width>(to + PanelsA::place(at.row, at.k), from, MajorA::step,
                                                  left<MajorA::k_major>(m, Config::rows(args), k));
        }
    }
    DEV void copy_b(u32 to, const Tile &t, int k0) const
    {
#pragma unroll(together < PanelsB::each ? together : PanelsB::each)
        for (int i = 0; i < PanelsB::each; i++) {
            const auto at = PanelsB::piece(i);
            if (PanelsB::pieces % threads && i * threads + (int)threadIdx.x >= PanelsB::pieces) break;
            const int n = Columns::column(t.first, at.row), k = k0 + at.k;
            const auto *from = rows_of_b<Config>(args, n) + t.batch * Config::b_batch(args);
            const int rows = ((int)Config::n - n + Columns::step - 1) / Columns::step;
            const int some = left<MajorB::k_major>(0, rows, k);
            if constexpr (Weights::decodes) decode(to + PanelsB::place(at.row, at.k), from, n, k, some);
            else
                PanelsB::template copy<MajorB::width>(
                    to + PanelsB::place(at.row, at.k),
                    from + n * Config::b_stride_row + k * Config::b_stride_k, MajorB::step, some);
        }
    }
    template <class Stored> DEV static void decode(u32 to, const Stored *from, int n, int k, int some)
    {
        float x[8] = {};
        Weights::template eight<MajorB::k_major, half_b, Columns::step>(from, n, k, some, x);
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] = e < some ? x[e] : 0;
#pragma unroll
        for (int part = 0; part < parts; part++) PanelsB::put(to + part * PanelsB::bytes, x);
    }
    // A step past the end is a group without copies, so that all waits count alike.
    DEV void copy_slot(int slot, const Tile &t, int step) const
    {
        if (step < steps) {
            copy_a(ptx::shared_address(s.slot[slot].a), t, step * bk);
            copy_b(ptx::shared_address(s.slot[slot].b), t, step * bk);
        }
        ptx::copy_async_commit();
    }

    // ---- Products ----

    using Accumulators = float[blocks][Config::bn / 2];
    DEV static float (&octet(float (&acc)[Config::bn / 2], int i))[4]
    {
        return reinterpret_cast<float(&)[4]>(acc[4 * i]);
    }

    // Pairs of f16 as bf16, and what that leaves of them.
    DEV static void split(u32 (&x)[4], u32 (&rest)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const Pair own = unpack2<Element>(x[i]);
            x[i] = pack2<bf16>(own.a, own.b);
            const Pair most = unpack2<bf16>(x[i]);
            rest[i] = pack2<bf16>(own.a == most.a ? 0 : own.a - most.a, own.b == most.b ? 0 : own.b - most.b);
        }
    }

    // a, b: this lane's places in the slot.
    DEV static void multiply(Accumulators &acc, u32 a, u32 b)
    {
#pragma unroll
        for (int k = 0; k < bk; k += 16) {
            u32 x[blocks][4];
#pragma unroll
            for (int m = 0; m < blocks; m++) PanelsA::load(x[m], a, 64 * m, k);
            u32 rest[splits ? blocks : 1][4];
            if constexpr (splits)
#pragma unroll
                for (int m = 0; m < blocks; m++) split(x[m], rest[m]);
#pragma unroll
            for (int patch = 0; patch < Config::bn / 16; patch++) {
#pragma unroll
                for (int part = 0; part < parts; part++) {
                    u32 y[4];
                    PanelsB::load(y, b + part * PanelsB::bytes, 16 * patch, k);
#pragma unroll
                    for (int i = 0; i < 2 * blocks; i++) {
                        float(&c)[4] = octet(acc[i / 2], 2 * patch + i % 2);
                        ptx::mma<Part>(c, x[i / 2], y[i % 2 * 2], y[i % 2 * 2 + 1]);
                        if (splits && part == 0)
                            ptx::mma<Part>(c, rest[splits ? i / 2 : 0], y[i % 2 * 2], y[i % 2 * 2 + 1]);
                    }
                }
            }
        }
    }

    DEV void multiply_tile(Accumulators &acc, const Tile &t, const Drain &drain) const
    {
        const u32 a = PanelsA::lane_place(drain.first_row + 16 * drain.warp, true);
        const u32 b = PanelsB::lane_place(0, false);
        int slot = 0, free = Config::stages - 1;
        __syncthreads(); // the last tile's slots have been read
#pragma unroll 1
        for (int i = 0; i < Config::stages - 1; i++) copy_slot(i, t, i);
        drain.prepare(t); // while these come
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            ptx::copy_async_wait<Config::stages - 2>();
            __syncthreads(); // this slot has come, and the one before it has been read
            copy_slot(free, t, step + Config::stages - 1);
            multiply(acc, ptx::shared_address(s.slot[slot].a) + a, ptx::shared_address(s.slot[slot].b) + b);
            free = slot;
            slot = slot + 1 < Config::stages ? slot + 1 : 0;
        }
    }

    DEV void run() const
    {
        ptx::grid_wait();
        const int group = ptx::uniform(threadIdx.x / 128);
        const Drain drain(args, s.values[group], group);
        const Raster<Config> walk = {args};
        for (u32 i = block.index(); i < walk.count(); i += block.count()) {
            const Tile t = walk.tile(i);
            Accumulators acc = {};
            multiply_tile(acc, t, drain);
            drain.drain(acc, t);
        }
        ptx::grid_launch_next();
    }
};

template <class Config, class Epilogue, class Block>
DEV void gemm_mma(const typename Config::Args &args, const Block &block)
{
    using Gemm = GemmMma<Config, Epilogue, Block>;
    Gemm{args, *(typename Gemm::Shared *)block.shared(), block}.run();
}

} // namespace coda
