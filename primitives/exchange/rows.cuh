// rows.cuh -- a sum over ranks that a kernel over rows loads: it sends its own pieces of a row, then takes
// those of the others, and goes on with the sum, rounded as the exchange by itself would leave it.
//
// A thread has `items` pieces of a row of `columns`, each `width` elements, `stride` elements apart.
#pragma once
#include "exchange/reduce.cuh"

namespace coda::exchange {

template <class T, i32 ranks, i32 columns, i32 width, i32 items = 1, i32 stride = columns> struct RowSum {
    typedef Piece<T> P;
    static constexpr i32 each = width / P::each, words = items * each; // of 16 bytes: in a piece, in all
    static_assert(width % P::each == 0, "pieces of 16 bytes");

    Exchange<ranks> exchange;
    const T *x;
    i64 bytes; // of all of x
    u8 *from[ranks - 1]; // where the others' words of the row's first piece come to lie
    ptx::Words own[words], others[words * (ranks - 1)];

    DEV RowSum(const Company<ranks> &company, u32 block, const T *x, i64 elements)
        : exchange(company, block), x(x), bytes(elements * (i64)sizeof(T))
    {
    }
    // Bytes from the first word to word i, and whether the row has it.
    DEV static constexpr i32 at(i32 i) { return i / each * stride * (i32)sizeof(T) + i % each * 16; }
    DEV static bool has(i32 column, i32 i)
    {
        return items * stride == columns || column + i / each * stride < columns;
    }

    // A row's pieces, of which the first one begins at p, at this column: all are on their way at once.
    DEV void send(const T *p, i32 column)
    {
        const u32 rank = exchange.company.rank;
        u8 *to[ranks - 1];
#pragma unroll
        for (i32 i = 0; i < words; i++)
            own[i] = has(column, i) ? ptx::load_system((const u8 *)p + at(i)) : ptx::Words{};
        exchange.begin();
#pragma unroll
        for (i32 r = 0; r < ranks - 1; r++) { // while these loads are under way
            const u32 other = other_rank(exchange.company, r);
            const i64 row = (const u8 *)p - (const u8 *)x;
            to[r] = ptx::computed(exchange.slot(other, rank, bytes) + row);
            from[r] = ptx::computed(exchange.slot(rank, other, bytes) + row);
        }
#pragma unroll
        for (i32 i = 0; i < words; i++) own[i] = sendable<P::nan>(own[i]);
        if (exchange.ended) return;
#pragma unroll
        for (i32 i = 0; i < words * (ranks - 1); i++)
            if (has(column, i % words))
                ptx::store_system(to[i / words] + exchange.area() + at(i % words), own[i % words]);
    }
    // Then what the others sent of them.
    DEV void receive(i32 column)
    {
        exchange.receive(others, [&](i32 i) {
            return Place{other_rank(exchange.company, i / words),
                         from[i / words] + exchange.area() + at(i % words), has(column, i % words)};
        });
    }
    // And their sum.
    DEV void load(float (&out)[width], i32 item) const
    {
#pragma unroll
        for (i32 i = 0; i < each; i++) {
            const i32 k = item * each + i;
            float sum[P::each];
            ptx::Words w[ranks - 1];
#pragma unroll
            for (i32 r = 0; r < ranks - 1; r++) w[r] = others[r * words + k];
            add_all<P, ranks>(sum, own[k], w, (i32)exchange.company.rank);
            P::begin(sum, P::rounded(sum));
#pragma unroll
            for (i32 j = 0; j < P::each; j++) out[i * P::each + j] = sum[j];
        }
    }
};

} // namespace coda::exchange
