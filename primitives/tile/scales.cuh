// scales.cuh -- scales of blocks of fp8 operands: of 128 k of a row of A, and of 128 k of 128 rows of B.
//
// Config says `scaled`, and how far scales are apart in the tensors of both: a_scale_batch, a_scale_row,
// a_scale_k, and b's. Args has the pointers a_scale and b_scale.
#pragma once

#include "types.cuh"

namespace coda {

constexpr int scale_block = 128;

template <class Config> struct BlockScales {
    using Args = typename Config::Args;

    // Scales from the first k of row m of A on; of row n of B.
    DEV static const float *of_a(const Args &args, int batch, i64 m)
    {
        return args.a_scale + batch * Config::a_scale_batch + m * Config::a_scale_row;
    }
    DEV static const float *of_b(const Args &args, int batch, i64 n)
    {
        return args.b_scale + batch * Config::b_scale_batch + n / scale_block * Config::b_scale_row;
    }
    DEV static float a(const Args &args, int batch, i64 m, i64 k)
    {
        return of_a(args, batch, m)[k / scale_block * Config::a_scale_k];
    }
    DEV static float b(const Args &args, int batch, i64 n, i64 k)
    {
        return of_b(args, batch, n)[k / scale_block * Config::b_scale_k];
    }
};

// What a thread keeps of an element.
template <bool scaled, class T> struct ScaledElement {
    using type = T;
};
template <class T> struct ScaledElement<true, T> {
    using type = float;
};

// What the sums that a thread of a wgmma fragment has of 128 k count when they are added up: once, ...
template <class Config, int blocks, bool scaled = Config::scaled> struct ThreadScales {
    DEV ThreadScales(const typename Config::Args &, int, int, int) {}
    DEV ThreadScales load(int) const { return *this; }
    DEV static void add(float &sum, float x, int, int) { sum += x; }
};

// ... or by two rows of each 64, and by the tile's columns, of which Config::scale_columns at a time lie in
// one block of B's rows.
template <class Config, int blocks> struct ThreadScales<Config, blocks, true> {
    using Columns = typename Config::Columns;
    static constexpr int parts = Config::bn / Config::scale_columns;
    static_assert(Config::scale_columns % 8 == 0 && Config::bn % Config::scale_columns == 0);
    static_assert(!Config::serpentine && !Config::walks); // K is walked from its beginning

    const float *row[blocks][2], *column[parts];

    // Rows and columns that do not exist have the last one's.
    DEV ThreadScales(const typename Config::Args &args, int batch, int first_row, int first_column)
    {
        const int thread = threadIdx.x % 128, last = Config::rows(args) - 1;
#pragma unroll
        for (int i = 0; i < 2 * blocks; i++) {
            const int m = first_row + i / 2 * 64 + thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
            row[i / 2][i % 2] = BlockScales<Config>::of_a(args, batch, m < last ? m : last);
        }
#pragma unroll
        for (int i = 0; i < parts; i++) {
            const int n = Columns::column(first_column, i * Config::scale_columns), end = (int)Config::n - 1;
            column[i] = BlockScales<Config>::of_b(args, batch, n < end ? n : end);
        }
    }

    struct Factors {
        float row[blocks][2], column[parts];
        // Number i of a fragment: octets of columns have two of each row.
        DEV void add(float &sum, float x, int block, int i) const
        {
            sum = fmaf(x, row[block][i % 4 / 2] * column[i / 4 * 8 / Config::scale_columns], sum);
        }
    };
    // The factors of block number k of K.
    DEV Factors load(int k) const
    {
        Factors f;
#pragma unroll
        for (int i = 0; i < 2 * blocks; i++) f.row[i / 2][i % 2] = row[i / 2][i % 2][k * Config::a_scale_k];
#pragma unroll
        for (int i = 0; i < parts; i++) f.column[i] = column[i][k * Config::b_scale_k];
        return f;
    }
};

} // namespace coda
