// tile.cuh -- elements of a tile between memory and registers: pairs, pieces of n, and tails.
//
// A piece is n adjacent elements of a row, moved 16 bytes at a time; its address must be a multiple of
// min(16, n * sizeof(T)) bytes. A tail is the general case, one element at a time: any address, any
// stride, and only the first `count` elements exist. The others are read as 0 and not written.
#pragma once
#include "types.cuh"

namespace coda::port {

template <class T, i32 n> struct alignas(n * sizeof(T)) Vector {
    T at[n];
};

// Two adjacent elements, the first at an even place.
template <class T> DEV Pair load_pair(const T *p)
{
    if constexpr (sizeof(T) == 2) {
        return unpack2<T>(*reinterpret_cast<const u32 *>(p));
    } else {
        const Vector<T, 2> v = *reinterpret_cast<const Vector<T, 2> *>(p);
        return {to_float(v.at[0]), to_float(v.at[1])};
    }
}
template <class T> DEV void store_pair(T *p, Pair x)
{
    if constexpr (sizeof(T) == 1) *reinterpret_cast<u16 *>(p) = pack_bytes<T>(x.a, x.b);
    else if constexpr (sizeof(T) == 2) *reinterpret_cast<u32 *>(p) = pack2<T>(x.a, x.b);
    else *reinterpret_cast<Vector<T, 2> *>(p) = {from_float<T>(x.a), from_float<T>(x.b)};
}

// Two elements as they are stored, by one instruction. ptxas merges two that round one each, and does so
// ahead of the wait for the products that they round: it then waits for each product (C7514).
template <class T> DEV Vector<T, 2> round_pair(Pair x)
{
    if constexpr (sizeof(T) == 2) {
        const u32 both = pack2<T>(x.a, x.b);
        return {T{(u16)both}, T{(u16)(both >> 16)}};
    } else return {from_float<T>(x.a), from_float<T>(x.b)};
}

// Elements that one move of a piece carries.
template <class T, i32 n> DEV constexpr i32 move_width()
{
    constexpr i32 width = n * sizeof(T) <= 16 ? n : 16 / sizeof(T);
    static_assert(n % width == 0 && (width & (width - 1)) == 0, "1, 2, 4 or whole 16 bytes");
    return width;
}

template <class T, i32 n> DEV void load_piece(float (&x)[n], const T *p)
{
    constexpr i32 width = move_width<T, n>();
#pragma unroll
    for (i32 i = 0; i < n; i += width) {
        Vector<T, width> v = *reinterpret_cast<const Vector<T, width> *>(p + i);
#pragma unroll
        for (i32 k = 0; k < width; k++) x[i + k] = to_float(v.at[k]);
    }
}
// A piece as it is stored, which is asked for long before it is read.
template <class T, i32 n> struct Piece {
    static constexpr i32 width = move_width<T, n>();
    Vector<T, width> part[n / width];

    DEV void load(const T *p)
    {
        for (i32 i = 0; i < n / width; i++) part[i] = ((const Vector<T, width> *)p)[i];
    }
    DEV void read(float (&x)[n]) const
    {
        for (i32 i = 0; i < n; i++) x[i] = to_float(part[i / width].at[i % width]);
    }
};
// The same, where instructions count: two elements of 16 bits are taken apart from one word, not from halves.
template <class T, i32 n> DEV void load_words(float (&x)[n], const T *p)
{
    if constexpr (sizeof(T) == 2 && n % 2 == 0) {
        constexpr i32 words = n / 2, width = move_width<u32, words>();
#pragma unroll
        for (i32 i = 0; i < words; i += width) {
            const Vector<u32, width> v = *reinterpret_cast<const Vector<u32, width> *>(p + 2 * i);
#pragma unroll
            for (i32 k = 0; k < width; k++) {
                const Pair two = unpack2<T>(v.at[k]);
                x[2 * (i + k)] = two.a, x[2 * (i + k) + 1] = two.b;
            }
        }
    } else load_piece(x, p);
}
template <class T, i32 n> DEV void store_piece(T *p, const float (&x)[n])
{
    constexpr i32 width = move_width<T, n>();
#pragma unroll
    for (i32 i = 0; i < n; i += width) {
        if constexpr (sizeof(T) == 2 && width > 1) {
            Vector<u32, width / 2> v;
#pragma unroll
            for (i32 k = 0; k < width; k += 2) v.at[k / 2] = pack2<T>(x[i + k], x[i + k + 1]);
            *reinterpret_cast<Vector<u32, width / 2> *>(p + i) = v;
        } else if constexpr (sizeof(T) == 1 && width > 1) {
            Vector<u16, width / 2> v;
#pragma unroll
            for (i32 k = 0; k < width; k += 2) v.at[k / 2] = pack_bytes<T>(x[i + k], x[i + k + 1]);
            *reinterpret_cast<Vector<u16, width / 2> *>(p + i) = v;
        } else {
            Vector<T, width> v;
#pragma unroll
            for (i32 k = 0; k < width; k++) v.at[k] = from_float<T>(x[i + k]);
            *reinterpret_cast<Vector<T, width> *>(p + i) = v;
        }
    }
}
template <class T, i32 n> DEV void accumulate_piece(T *p, const float (&x)[n])
{
    float y[n];
    load_piece(y, p);
#pragma unroll
    for (i32 i = 0; i < n; i++) y[i] += x[i];
    store_piece(p, y);
}

template <class T, i32 n> DEV void load_tail(float (&x)[n], const T *p, i64 stride, i64 count)
{
#pragma unroll
    for (i32 i = 0; i < n; i++) x[i] = i < count ? load(p + i * stride) : 0.0f;
}
template <class T, i32 n> DEV void store_tail(T *p, const float (&x)[n], i64 stride, i64 count)
{
#pragma unroll
    for (i32 i = 0; i < n; i++)
        if (i < count) store(p + i * stride, x[i]);
}

} // namespace coda::port
