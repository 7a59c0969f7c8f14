// rows.cuh -- a sum over ranks that a kernel over rows loads: it sends its own pieces of a row, then takes
// those of the others, and goes on with the sum, rounded as the exchange by itself would leave it.
#pragma once
#include "exchange/reduce.cuh"

namespace coda::exchange {

template <class T, i32 ranks, i32 width> struct RowSum {
    typedef Piece<T> P;
    static constexpr i32 words = width / P::each; // of 16 bytes, in a piece
    static_assert(width % P::each == 0, "pieces of 16 bytes");

    Exchange<ranks> exchange;
    const T *x;
    i64 bytes; // of all of x

    DEV RowSum(const Company<ranks> &company, u32 block, const T *x, i64 elements)
        : exchange(company, block), x(x), bytes(elements * (i64)sizeof(T))
    {
    }
    DEV static ptx::Words own(const T *p, i32 i) { return sendable<P::nan>(((const ptx::Words *)p)[i]); }

    DEV void send(const T *p) const
    {
        const i64 at = (const u8 *)p - (const u8 *)x;
#pragma unroll
        for (i32 i = 0; i < words; i++) {
            const ptx::Words w = own(p, i);
#pragma unroll
            for (i32 r = 1; r < ranks; r++)
                exchange.send((exchange.company.rank + r) % ranks, bytes, at + 16 * i, w);
        }
    }
    DEV void load(float (&out)[width], const T *p)
    {
        const i64 at = (const u8 *)p - (const u8 *)x;
#pragma unroll
        for (i32 i = 0; i < words; i++) {
            float sum[P::each];
            const ptx::Words w = add_up<P>(exchange, own(p, i), bytes, at + 16 * i);
            P::begin(sum, w);
#pragma unroll
            for (i32 k = 0; k < P::each; k++) out[i * P::each + k] = sum[k];
        }
    }
};

} // namespace coda::exchange
