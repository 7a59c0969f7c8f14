// gemm_fma.cuh -- C = A B^T of fp32 by cp.async and fp32 multiply-adds in order of k, from sm_80 on.
//
// Slots of Config::bk of K go round in a ring: while one is multiplied, a further one fills, piece by piece
// between the products, and Config::stages - 3 wait. One barrier a slot says that its successor has come and
// that its predecessor has been read.
//
// In shared memory four neighbours of K are a vector: one load of 16 bytes. A warp multiplies 16 rows of each
// 64 by all columns, and for that stands as 4 x 8 lanes, each of which has every fourth row and every eighth
// column: for four k of 8 rows and 12 columns 20 loads and 384 multiply-adds. Lanes are numbered so that in
// every load neighbours, or neighbours but one, read the same vector; then half a warp takes one pass, if
// vectors of different rows lie in different banks, which the swizzle sees to. At the end of a tile shuffles
// make of this the wgmma fragment, so that the epilogue is the same.
#pragma once

#include "ptx/copy.cuh"
#include "tile/block.cuh"
#include "tile/epilogue.cuh"
#include "tile/parts.cuh"
#include "tile/resources.cuh"

namespace coda {

// One operand's tile of so many rows in a slot, of which `together` neighbours are read at one time. The
// vectors of a row are exchanged by its number, so that these lie in different banks.
template <int tile_rows, int bk, int threads, int together> struct Vectors {
    static constexpr int rows = tile_rows, row_bytes = 4 * bk, bytes = row_bytes * rows, in_row = bk / 4;
    static constexpr int count = rows * in_row, each = (count + threads - 1) / threads; // of a thread
    static constexpr int line = 128 / row_bytes, keys = together / line;                // a line: all banks
    static_assert((bk == 8 || bk == 16 || bk == 32) && rows % 16 == 0 && keys <= in_row);

    DEV static constexpr u32 place(int row, int vector)
    {
        return row * row_bytes + ((vector ^ row / line % keys) << 4);
    }
};

// How many elements one copy brings: `multiples` are further distances between an operand's rows.
template <i64 row_stride, i64 k_stride, i64 multiples> struct CopyWidth {
    static constexpr i64 all = 4 | row_stride | multiples;
    static constexpr int value = k_stride == 1 ? (int)(all & -all) : 1;
    static constexpr bool along_k = k_stride <= row_stride; // neighbouring threads take neighbours in memory
};

// How many of so many groups of columns that are loaded in turn have registers: a divisor.
constexpr int vector_ring(int n)
{
    int ring = 4;
    while (n % ring) ring--;
    return ring;
}

template <class Config, class Epilogue, class Block> struct GemmFma {
    struct Roomy : Config {
        static constexpr bool roomy = true; // vectors take none after the products
    };
    using Columns = typename Config::Columns;
    using Drain = coda::Drain<Roomy, Epilogue>;
    using Args = typename Config::Args;

    static constexpr int threads = 128 * Config::groups, bk = Config::bk,
                         blocks = EpilogueLayout<Config, Epilogue>::blocks;
    static constexpr int quads = (int)((Config::k + 3) / 4), in_slot = bk / 4, parts = in_slot - 1;
    static constexpr int whole_steps = quads / in_slot, rest = quads % in_slot;
    static constexpr int ahead = Config::stages - 2; // slots that are filled before they are wanted
    using VectorsA = Vectors<Config::bm, bk, threads, 4>;
    using VectorsB = Vectors<Config::bn, bk, threads, 8>;
    using WidthA = CopyWidth<Config::a_stride_row, Config::a_stride_k, Config::a_align>;
    using WidthB = CopyWidth<Config::b_stride_row, Config::b_stride_k, Config::b_align>;

    struct Slot {
        alignas(128) u8 a[VectorsA::bytes], b[VectorsB::bytes];
    };
    struct Shared {
        Slot slot[Config::stages];
        typename Drain::Values values[Config::groups];
    };
    static_assert(shared_fits<Shared>(Config::shared_bytes) && Config::stages >= 3);

    const Args &args;
    Shared &s;
    const Block &block;

    // ---- Copies ----

    // A thread's share of an operand's tile: vectors 0 .. each - 1. Neighbouring threads take neighbours in
    // memory: vectors of a row, or rows. Vectors are equal steps apart in a slot and, if rows are, in memory,
    // so that one address of each serves all. Row j of a tile lies row(j) rows behind its first one.
    template <class Vectors, class Rows, class Width, i64 row_stride, i64 k_stride, bool even, class Far>
    struct Share {
        static constexpr int each = Vectors::each, most = (each + parts - 1) / parts; // of a part
        static constexpr int row_step = threads / Vectors::in_row;
        static_assert(row_step % 16 == 0); // so that these are swizzled alike

        const float *from; // of the first vector in the next step; of row 0, where rows lie apart
        u32 to;            // the same vector in a slot
        int first, left;   // its row; and k that exist from its own on
        int rows;          // that exist from the tile's first one on
        Far far;           // of rows that lie in other tensors

        DEV void begin(const float *tile, int existing_rows, Far far_ones)
        {
            far = far_ones;
            const int thread = threadIdx.x;
            first = Width::along_k ? thread / Vectors::in_row : thread % row_step;
            const int vector = Width::along_k ? thread % Vectors::in_row : thread / row_step;
            from = tile + (Rows::adjacent ? first * row_stride : 0) + 4 * vector * k_stride;
            to = Vectors::place(first, vector);
            rows = existing_rows, left = (int)Config::k - 4 * vector;
        }
        DEV void advance() { from += bk * k_stride, left -= bk; }

        // Of a vector's elements the first that exist, and zeros: nothing does in a step past the end. Opaque
        // as each vector's answer would take a register.
        DEV void copy_vector(u32 slot, int i) const
        {
            constexpr int width = Width::value;
            const int j = first + i * row_step, behind = Rows::adjacent ? i * row_step : Rows::row(j);
            if (Vectors::count % threads && j >= Vectors::rows) return;
            const int exist = even || Rows::row(j) < ptx::opaque(rows) ? left : 0;
#pragma unroll
            for (int e = 0; e < 4; e += width)
                ptx::copy_async<4 * width>(slot + to + i * row_step * Vectors::row_bytes + 4 * e,
                                           from + far.of(Rows::row(j)) + behind * row_stride + e * k_stride,
                                           4 * max(0, min(exist - e, width)));
        }
        // One of `parts` equal ones.
        template <int part> DEV void copy_part(u32 slot) const
        {
#pragma unroll
            for (int i = part * most; i < (part + 1) * most && i < each; i++) copy_vector(slot, i);
        }
    };
    struct RowsA {
        static constexpr bool adjacent = true;
        DEV static int row(int j) { return j; }
    };
    struct RowsB {
        static constexpr bool adjacent = !Columns::gated && !Columns::split;
        DEV static int row(int j) { return Columns::column(0, j); }
    };
    struct Copies {
        Share<VectorsA, RowsA, WidthA, Config::a_stride_row, Config::a_stride_k, Config::even, NearRows> a;
        Share<VectorsB, RowsB, WidthB, Config::b_stride_row, Config::b_stride_k, Config::n % Config::bn == 0,
              decltype(far_rows<Config>(*(const Args *)nullptr, 0, 0))>
            b;

        template <int part> DEV void copy_part(Slot &slot) const
        {
            a.template copy_part<part>(ptx::shared_address(slot.a));
            b.template copy_part<part>(ptx::shared_address(slot.b));
        }
        DEV void end_slot()
        {
            ptx::copy_async_commit();
            a.advance(), b.advance();
        }
    };
    DEV void begin(Copies &c, const Tile &t) const
    {
        const i64 m = (i64)t.m * Config::bm, n = Columns::column(t.first, 0);
        c.a.begin(args.a + t.batch * Config::a_batch(args) + m * Config::a_stride_row,
                  Config::rows(args) - (int)m, NearRows{});
        c.b.begin(args.b + t.batch * Config::b_batch(args) + n * Config::b_stride_row, (int)(Config::n - n),
                  far_rows<Config>(args, (int)n, 0));
    }

    // ---- Products ----

    // A thread has `rows` rows, of each block four, and `columns` columns. Those of B are loaded `ring - 1`
    // groups of `abreast` ahead: as many as keep 8 sums, which wait for nothing, between two of one.
    static constexpr int rows = 4 * blocks, columns = Config::bn / 8, abreast = 2 / blocks;
    static constexpr int groups = columns / abreast, ring = vector_ring(groups);
    // The compiler would issue loads late, and those of all warps at one time, but not behind a __syncwarp.
    // That takes a few registers, which other copies want.
    static constexpr bool pins = blocks == 2 && WidthA::value == 4 && WidthB::value == 4;
    struct alignas(16) Vector {
        float k[4];
    };
    struct Fragments {
        Vector a[2][rows], b[ring][abreast];
    };
    using Accumulators = float[blocks][Config::bn / 2];

    // The lane's place among the 4 x 8 of its warp.
    DEV static int row_of(int lane) { return lane >> 4 << 1 | (lane >> 1 & 1); }
    DEV static int column_of(int lane) { return (lane >> 2 & 3) << 1 | (lane & 1); }
    DEV static int lane_of(int row, int column)
    {
        return row >> 1 << 4 | column >> 1 << 2 | (row & 1) << 1 | (column & 1);
    }

    DEV static void load_a(Vector &v, const u8 *a, int row)
    {
        v = *(const Vector *)(a + (row / 4 * 64 + row % 4 * 4) * VectorsA::row_bytes);
    }
    DEV static void load_b(Vector (&v)[abreast], const u8 *b, int group)
    {
#pragma unroll
        for (int i = 0; i < abreast; i++)
            v[i] = *(const Vector *)(b + (group * abreast + i) * 8 * VectorsB::row_bytes);
    }

    // Where this lane's vectors of a quad are, from those of the slot's first quad.
    DEV const u8 *place(u32 first, int vector) const { return (const u8 *)&s + (first ^ vector << 4); }

    // Four k: their rows lie in x.a[half], their columns' rest at b; the next four come from next_a and
    // next_b meanwhile. `between` runs early.
    template <int half, class Between>
    DEV static void multiply(Accumulators &acc, Fragments &x, const u8 *b, const u8 *next_a, const u8 *next_b,
                             const Between &between)
    {
#pragma unroll
        for (int g = 0; g < groups; g++) {
            constexpr int ahead = ring - 1;
            if (g + ahead < groups) load_b(x.b[(g + ahead) % ring], b, g + ahead);
            else load_b(x.b[(g + ahead) % ring], next_b, g + ahead - groups);
#pragma unroll
            for (int i = g * rows / groups; i < (g + 1) * rows / groups; i++)
                load_a(x.a[1 - half][i], next_a, i);
            if (g == 0) between();
            if (pins && g % 3 == 0) __syncwarp();
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int j = 0; j < abreast; j++)
#pragma unroll
                    for (int i = 0; i < rows; i++) {
                        float &c = acc[i / 4][4 * (g * abreast + j) + i % 4];
                        c = fmaf(x.a[half][i].k[k], x.b[g % ring][j].k[k], c);
                    }
        }
    }

    // The next slot has come, and the one before this one has been read.
    DEV static void meet()
    {
        ptx::copy_async_wait<ahead - 1>();
        __syncthreads();
    }
    DEV static int after(int slot) { return slot + 1 < Config::stages ? slot + 1 : 0; }

    struct Cursor {
        u32 a, b;       // this lane's first vectors in slot 0
        int slot, free; // which is multiplied; and which is filled

        DEV u32 slot_a() const { return a + slot * sizeof(Slot); }
        DEV u32 slot_b() const { return b + slot * sizeof(Slot); }
    };

    // The quads v .. n - 1 of a slot. A slot that K ends in is the last one: nothing is left to copy.
    template <int v, int n>
    DEV void multiply_slot(Accumulators &acc, Fragments &x, Copies &copies, Cursor &at) const
    {
        if constexpr (v < n) {
            const u8 *b = place(at.slot_b(), v);
            if constexpr (v + 1 < in_slot) {
                multiply<v % 2>(acc, x, b, place(at.slot_a(), v + 1), place(at.slot_b(), v + 1), [&] {
                    if constexpr (n == in_slot) copies.template copy_part<v>(s.slot[at.free]);
                });
            } else {
                copies.end_slot();
                meet();
                at.slot = after(at.slot), at.free = after(at.free);
                multiply<v % 2>(acc, x, b, place(at.slot_a(), 0), place(at.slot_b(), 0), [] {});
            }
            multiply_slot<v + 1, n>(acc, x, copies, at);
        }
    }
    template <int part> DEV void fill_slot(Copies &copies, int slot) const
    {
        copies.template copy_part<part>(s.slot[slot]);
        if constexpr (part + 1 < parts) fill_slot<part + 1>(copies, slot);
        else copies.end_slot();
    }

    DEV void multiply_tile(Accumulators &acc, const Tile &t, int group) const
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const u32 row = group * EpilogueLayout<Config, Epilogue>::rows + 16 * warp + row_of(lane);
        Cursor at = {VectorsA::place(row, 0), VectorsA::bytes + VectorsB::place(column_of(lane), 0), 0,
                     ahead};
        Copies copies;
        Fragments x;
        begin(copies, t);
        __syncthreads(); // the last tile's slots have been read
#pragma unroll 1
        for (int i = 0; i < ahead; i++) fill_slot<0>(copies, i);
        Drain(args, s.values[group], group).prepare(t); // while these come
        meet();
#pragma unroll
        for (int i = 0; i < rows; i++) load_a(x.a[0][i], place(at.a, 0), i);
#pragma unroll
        for (int g = 0; g < ring - 1; g++) load_b(x.b[g], place(at.b, 0), g);
#pragma unroll 1
        for (int step = 0; step < whole_steps; step++) multiply_slot<0, in_slot>(acc, x, copies, at);
        multiply_slot<0, rest>(acc, x, copies, at);
        ptx::copy_async_wait<0>(); // of what does not exist, which are zeros
    }

    // ---- To the wgmma fragment ----

    // Of an octet of columns a lane has rows r + 4 i of column c, and gets rows R + 8 h of columns 2 C and
    // 2 C + 1, where R = lane / 4 and C = lane % 4. Of both rows i of an h it sends each to another lane, and
    // first the one where i = c mod 2.
    DEV static void exchange(Accumulators &acc, int lane)
    {
        const bool odd = column_of(lane) & 1, high = lane >= 16;
        const int row = lane / 4 % 4, column = lane % 4 * 2;
        const int same = lane_of(row, column + high), other = lane_of(row, column + !high);
#pragma unroll
        for (int i = 0; i < blocks * Config::bn / 4; i++) {
            float *c = &acc[i / (Config::bn / 4)][2 * (i % (Config::bn / 4))];
            const float first = __shfl_sync(~0u, odd ? c[1] : c[0], same);
            const float second = __shfl_sync(~0u, odd ? c[0] : c[1], other);
            c[0] = high ? second : first;
            c[1] = high ? first : second;
        }
    }

    // What the epilogue knows of the tile is computed after the products, which leave no registers for it.
    DEV void run() const
    {
        ptx::grid_wait();
        const int group = ptx::uniform(threadIdx.x / 128);
        const Raster<Config> walk = {args};
        for (u32 i = block.index(); i < walk.count(); i += block.count()) {
            Accumulators acc = {};
            multiply_tile(acc, walk.tile(i), group);
            exchange(acc, threadIdx.x % 32);
            Drain(args, s.values[group], group).drain(acc, walk.tile(ptx::opaque((int)i)));
        }
        ptx::grid_launch_next();
    }
};

template <class Config, class Epilogue, class Block>
DEV void gemm_fma(const typename Config::Args &args, const Block &block)
{
    using Gemm = GemmFma<Config, Epilogue, Block>;
    Gemm{args, *(typename Gemm::Shared *)block.shared(), block}.run();
}

} // namespace coda
