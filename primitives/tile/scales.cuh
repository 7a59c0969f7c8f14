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
    struct Walk {
        DEV Walk next() { return *this; }
        DEV static void add(float &sum, float x, int, int) { sum += x; }
    };
    DEV Walk walk(int, int) const { return {}; }
};

// ... or by two rows of each 64, and by the tile's columns, of which Config::scale_columns at a time lie in
// one block of B's rows. The four threads of a row share its scales: each loads one of four blocks of K, and
// four blocks before they count, since a load takes as long as the products of one.
template <class Config, int blocks> struct ThreadScales<Config, blocks, true> {
    using Columns = typename Config::Columns;
    static constexpr int parts = Config::bn / Config::scale_columns, run = 4;
    static_assert(Config::scale_columns % 8 == 0 && Config::bn % Config::scale_columns == 0);
    static_assert(!Config::serpentine && !Config::walks); // K is walked from its beginning

    const float *row, *column[parts];
    int below; // rows that exist below the first one

    // Rows and columns that do not exist have the last one's.
    DEV ThreadScales(const typename Config::Args &args, int batch, int first_row, int first_column)
    {
        const int thread = threadIdx.x % 128, last = Config::rows(args) - 1;
        const int m = first_row + thread / 32 * 16 + thread % 32 / 4;
        below = m < last ? last - m : 0;
        row = BlockScales<Config>::of_a(args, batch, m < last ? m : last);
#pragma unroll
        for (int i = 0; i < parts; i++) {
            const int n = Columns::column(first_column, i * Config::scale_columns), end = (int)Config::n - 1;
            column[i] = BlockScales<Config>::of_b(args, batch, n < end ? n : end);
        }
    }

    // Of one block of K; or, a thread's, of one of four.
    struct Values {
        float row[2 * blocks], column[parts];
    };
    struct Factors : Values {
        // Number i of a fragment: octets of columns have two of each row.
        DEV void add(float &sum, float x, int block, int i) const
        {
            const float factor =
                this->row[2 * block + i % 4 / 2] * this->column[i / 4 * 8 / Config::scale_columns];
            sum = fmaf(x, factor, sum);
        }
    };
    DEV Values load(int k) const
    {
        Values v;
#pragma unroll
        for (int i = 0; i < 2 * blocks; i++) {
            const int down = i / 2 * 64 + i % 2 * 8;
            v.row[i] = row[(i64)(down < below ? down : below) * Config::a_scale_row + k * Config::a_scale_k];
        }
#pragma unroll
        for (int i = 0; i < parts; i++) v.column[i] = column[i][k * Config::b_scale_k];
        return v;
    }

    // The factors of block `first` of K and of those after it, of `all`. Past the end is the last one.
    struct Walk {
        const ThreadScales &scales;
        const int all;
        int k, place; // the thread's block of those that are loaded; whose turn it is
        Values now, ahead;

        DEV Walk(const ThreadScales &scales, int first, int all)
            : scales(scales), all(all), k(first + threadIdx.x % run), place(0)
        {
            now = load(), ahead = load();
        }
        DEV Values load()
        {
            const Values v = scales.load(k < all ? k : all - 1);
            k += run;
            return v;
        }
        DEV Factors next()
        {
            Factors f;
            const int from = threadIdx.x % 32 / run * run + place; // lane
#pragma unroll
            for (int i = 0; i < 2 * blocks; i++) f.row[i] = __shfl_sync(~0u, now.row[i], from);
#pragma unroll
            for (int i = 0; i < parts; i++) f.column[i] = __shfl_sync(~0u, now.column[i], from);
            if (++place == run) place = 0, now = ahead, ahead = load();
            return f;
        }
    };
    DEV Walk walk(int first, int all) const { return {*this, first, all}; }
};

} // namespace coda
