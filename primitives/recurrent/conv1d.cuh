// conv1d.cuh -- a causal convolution of each column by itself:
//
//     y[t, n] = bias[n] + sum over j of w[n, j] x[t - (taps - 1) + j, n]
//
// A thread has `width` adjacent columns and walks down the rows; the last taps - 1 of these are in registers.
// The first blocks have a sequence each: they read what comes before it, compute its first taps - 1 rows, and
// write its last ones to `after`, which so may lie where `before` does. The others have `rows` of the rows
// behind these. A sum's order is that of j, whoever adds it up.
//
// Edges: a product has computed y but for the first taps - 1 rows of each `period`, and left the rows that
// these are made of in the place of x (tile/rows_above.cuh). Each block has those of a period.
//
// Config: types T (of x and y), W, Bias, Before, After, Index (of starts); i32 taps, width, threads; u32
// columns; bool y, bias, before, after, packed (they are there), edges, steady (no kernel writes w
// and bias); i64 w_column, w_tap, bias_stride,
// starts_stride; and act(float), a map of y.
#pragma once
#include "port/tile.cuh"
#include "ptx/control.cuh"
#include "recurrent/sequences.cuh"
#include "tile/block.cuh"

namespace coda {

template <class Config> struct Conv1d {
    typedef typename Config::T T;
    typedef typename Config::Before Before;
    typedef typename Config::After After;
    typedef typename Config::Index Index;
    static constexpr i32 taps = Config::taps, kept = taps - 1, width = Config::width, ahead = 4;
    static constexpr u32 columns = Config::columns, chunk = Config::threads * width;
    static constexpr u32 chunks = (columns + chunk - 1) / chunk;
    static_assert(columns % width == 0);

    struct Tensors {
        const T *x;
        const typename Config::W *w;
        const typename Config::Bias *bias;
        const Before *before;
        const Index *starts;
        T *y;
        After *after;
        RowStrides of_x, of_y, of_before, of_after;
        u32 sequences, time, rows, parts; // of a block; blocks of a sequence, or of all that are packed
    };
    // A thread's columns.
    struct Columns {
        u32 first;
        bool any;
        float w[taps][width], bias[width];
    };
    typedef float Rows[kept][width];

    DEV static Columns load_columns(const Tensors &a, u32 first)
    {
        Columns c;
        c.first = first;
        c.any = first < columns;
#pragma unroll
        for (i32 i = 0; i < width; i++) {
            const i64 n = c.any ? first + i : 0;
            c.bias[i] = 0.0f;
            if constexpr (Config::bias) c.bias[i] = load(a.bias + n * Config::bias_stride);
#pragma unroll
            for (i32 j = 0; j < taps; j++) c.w[j][i] = load(a.w + n * Config::w_column + j * Config::w_tap);
        }
        return c;
    }

    template <class U> DEV static void load_row(float (&to)[width], const U *p, bool there)
    {
        if (there) {
            port::load_piece(to, p);
            return;
        }
#pragma unroll
        for (i32 i = 0; i < width; i++) to[i] = 0.0f;
    }
    // Rows from..from + kept - 1.
    DEV static void load_rows(Rows &to, const T *x, i64 stride, u32 from, bool there)
    {
#pragma unroll
        for (i32 j = 0; j < kept; j++) load_row(to[j], x + (i64)(from + j) * stride, there);
    }

    // Row i of those in `row`, and the kept ones ahead of it.
    template <i32 n>
    DEV static void convolve(float (&y)[width], const Columns &c, const float (&row)[n][width], i32 i)
    {
#pragma unroll
        for (i32 k = 0; k < width; k++) {
            y[k] = c.bias[k];
#pragma unroll
            for (i32 j = 0; j < taps; j++) y[k] = fmaf(c.w[j][k], row[i + j][k], y[k]);
        }
    }

    // Rows as they are in memory.
    template <i32 many> struct Ahead {
        port::Vector<T, width> row[many];
    };
    template <i32 many>
    DEV static void ask(Ahead<many> &to, const Columns &c, const T *x, i64 stride, u32 from, u32 end)
    {
#pragma unroll
        for (i32 i = 0; i < many; i++)
            if (c.any && from + i < end)
                to.row[i] = *reinterpret_cast<const port::Vector<T, width> *>(x + (i64)(from + i) * stride);
    }

    // Rows from..end-1 of x, `many` of which are loaded at a time, while those ahead of them are computed;
    // `last` are those ahead of all, and become the last ones, if there are as many as a multiple of `many`.
    template <i32 many>
    DEV static void walk(const Columns &c, const T *x, T *y, const Tensors &a, u32 from, u32 end, Rows &last)
    {
        float row[kept + many][width];
        Ahead<many> next = {};
#pragma unroll
        for (i32 j = 0; j < kept; j++)
#pragma unroll
            for (i32 k = 0; k < width; k++) row[j][k] = last[j][k];
        ask(next, c, x, a.of_x.time, from, end);
#pragma unroll 1
        for (u32 t = from; t < end; t += many) {
            const Ahead<many> now = next;
            ask(next, c, x, a.of_x.time, t + many, end);
#pragma unroll
            for (i32 i = 0; i < many; i++) {
                port::load_words(row[kept + i], now.row[i].at);
                float sum[width];
                convolve(sum, c, row, i);
#pragma unroll
                for (i32 k = 0; k < width; k++) sum[k] = Config::act(sum[k]);
                if (Config::y && c.any && t + i < end) port::store_piece(y + (i64)(t + i) * a.of_y.time, sum);
            }
#pragma unroll
            for (i32 j = 0; j < kept; j++)
#pragma unroll
                for (i32 k = 0; k < width; k++) row[j][k] = row[j + many][k];
        }
#pragma unroll
        for (i32 j = 0; j < kept; j++)
#pragma unroll
            for (i32 k = 0; k < width; k++) last[j][k] = row[j][k];
    }

    DEV static PackedSequences<Index> packed(const Tensors &a)
    {
        return {a.starts, Config::starts_stride, a.sequences, a.time};
    }

    // The first rows of sequence b, and what it leaves.
    DEV static void begin_sequence(const Columns &c, const Tensors &a, u32 b)
    {
        SequenceRows rows = {(i32)b, 0, a.time};
        if constexpr (Config::packed) rows = packed(a).rows_of(b);
        const i64 batch = Config::packed ? 0 : b;
        const T *const x = a.x + batch * a.of_x.batch + c.first;
        const u32 n = rows.end - rows.first;
        Rows last;
#pragma unroll
        for (i32 j = 0; j < kept; j++) {
            const Before *const p = a.before + b * a.of_before.batch + j * a.of_before.time + c.first;
            load_row(last[j], p, Config::before && c.any);
        }
        walk<1>(c, x, a.y + batch * a.of_y.batch + c.first, a, rows.first, rows.first + (n < kept ? n : kept),
                last);
        if (!Config::after || !c.any) return;
        if (n > kept) load_rows(last, x, a.of_x.time, rows.end - kept, true);
#pragma unroll
        for (i32 j = 0; j < kept; j++)
            port::store_piece(a.after + b * a.of_after.batch + j * a.of_after.time + c.first, last[j]);
    }

    // Rows from..end-1 of one sequence, which has kept ones ahead of them.
    DEV static void middle(const Columns &c, const Tensors &a, i64 batch, u32 from, u32 end)
    {
        const T *const x = a.x + batch * a.of_x.batch + c.first;
        Rows last;
        load_rows(last, x, a.of_x.time, from - kept, c.any);
        walk<ahead>(c, x, a.y + batch * a.of_y.batch + c.first, a, from, end, last);
    }
    DEV static void clear(const Columns &c, const Tensors &a, u32 from, u32 end)
    {
        float zero[width];
#pragma unroll
        for (i32 k = 0; k < width; k++) zero[k] = Config::act(0.0f);
        for (u32 t = from; t < end && c.any; t++)
            port::store_piece(a.y + (i64)t * a.of_y.time + c.first, zero);
    }
    // Rows of any sequences, but those that begin_sequence has.
    DEV static void packed_rows(const Columns &c, const Tensors &a, u32 from, u32 end)
    {
#pragma unroll 1
        for (u32 t = from; t < end;) {
            const SequenceRows rows = packed(a).find(t);
            const u32 stop = rows.end < end ? rows.end : end;
            const u32 behind = rows.first + kept, first = t > behind ? t : behind;
            if ((u32)rows.index >= a.sequences) clear(c, a, t, stop);
            else if (first < stop) middle(c, a, 0, first, stop);
            t = stop;
        }
    }
    DEV static void continue_rows(const Columns &c, const Tensors &a, u32 part)
    {
        const u32 from = (Config::packed ? 0 : kept) + part % a.parts * a.rows;
        const u32 end = a.time - from < a.rows ? a.time : from + a.rows;
        if constexpr (Config::packed) packed_rows(c, a, from, end);
        else middle(c, a, part / a.parts, from, end);
    }

    // Of the rows in front of a period and its first ones, [2][columns / 8][kept][8].
    DEV static const T *edge(const T *edges, const Columns &c, i32 j)
    {
        const u32 octet = j / kept * (columns / 8) + c.first / 8;
        return edges + (i64)(octet * kept + j % kept) * 8 + c.first % 8;
    }
    // The first rows of period `part` of all; of a sequence's first one also what that leaves.
    DEV static void first_rows(const Columns &c, const Tensors &a, u32 part)
    {
        const u32 b = part / a.parts, in = part % a.parts, t = in * a.rows, left = a.time - t;
        const T *const edges = a.x + (i64)(2 * part) * kept * columns;
        T *const y = a.y + b * a.of_y.batch + t * a.of_y.time + c.first;
        float row[2 * kept][width];
#pragma unroll
        for (i32 j = 0; j < 2 * kept; j++)
            load_row(row[j], edge(edges, c, j), c.any && (j < kept ? in > 0 : j - kept < left));
        if (Config::before && !in)
#pragma unroll
            for (i32 j = 0; j < kept; j++)
                load_row(row[j], a.before + b * a.of_before.batch + j * a.of_before.time + c.first, c.any);
#pragma unroll
        for (i32 i = 0; i < kept; i++) {
            float sum[width];
            convolve(sum, c, row, i);
#pragma unroll
            for (i32 k = 0; k < width; k++) sum[k] = Config::act(sum[k]);
            if (c.any && i < left) port::store_piece(y + i * a.of_y.time, sum);
        }
        if constexpr (Config::after) {
            if (!c.any || in) return;
#pragma unroll
            for (i32 j = 0; j < kept; j++) {
                load_row(row[j], edge(edges + (i64)(2 * a.parts) * kept * columns, c, j), true);
                port::store_piece(a.after + b * a.of_after.batch + j * a.of_after.time + c.first, row[j]);
            }
        }
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &a)
    {
        const i64 parts = (i64)a.parts * (Config::packed ? 1 : a.sequences);
        const i64 items = (Config::edges ? 0 : a.sequences) + parts;
        for (i64 item = block.index(); item < items * chunks; item += block.count()) {
            const u32 at = (u32)(item / chunks);
            const Columns c = load_columns(a, (u32)(item % chunks) * chunk + threadIdx.x * width);
            if constexpr (Config::edges) {
                if (Config::steady) ptx::grid_wait(); // weights are there before
                first_rows(c, a, at);
            } else if (at < a.sequences) begin_sequence(c, a, at);
            else continue_rows(c, a, at - a.sequences);
        }
    }
};

} // namespace coda
