// row_sums.cuh -- rows added by id, which sort_ids.cuh has sorted.
//
// A block has some rows of the result, and of these a chunk of columns. A team of lanes that has the chunk
// adds the rows of one id in the order of the tokens, up to a piece of them. A longer sum is all teams': each
// adds a piece, sums of pieces are then added in their order. So the bits of a sum depend on its rows alone.
#pragma once
#include "port/tile.cuh"
#include "tile/block.cuh"

namespace coda {

template <class Config> struct RowSums {
    typedef typename Config::T T;
    static constexpr i32 threads = Config::threads, lanes = Config::lanes, width = Config::width;
    static constexpr i32 teams = threads / lanes, chunk = lanes * width;
    static constexpr u32 columns = Config::columns, chunks = (columns + chunk - 1) / chunk;
    static constexpr u32 piece = Config::piece, most_rows = Config::most_rows;
    static constexpr i32 few = 2, many = 8; // loads that do not wait for what came before
    static_assert(chunk <= threads && columns % width == 0);

    struct Shared {
        u32 start[most_rows + 1];
        float part[2][teams][chunk];
    };
    struct From { // what a thread adds
        const T *x;       // in its columns
        const i32 *order; // tokens by id
        u32 tokens;
        i64 stride;
        bool any; // has it columns?
    };

    // Adjacent elements in as few registers as they take in memory, until they are added.
    typedef port::Vector<u32, (width * sizeof(T) + 3) / 4> Packed;

    DEV static Packed load(const T *p)
    {
        if constexpr (width * sizeof(T) < 4) return {{p->bits}};
        else return *reinterpret_cast<const Packed *>(p);
    }
    DEV static void add(float (&y)[width], const Packed &v)
    {
#pragma unroll
        for (i32 k = 0; k < width; k++) {
            if constexpr (sizeof(T) == 4) {
                y[k] += bits_float(v.at[k]);
            } else {
                const Pair x = unpack2<T>(v.at[k / 2]);
                y[k] += k % 2 ? x.b : x.a;
            }
        }
    }

    // Tokens from..to-1 of the order, one after the other.
    template <i32 ahead> DEV static void add(float (&y)[width], const From &f, u32 from, u32 to)
    {
#pragma unroll
        for (i32 k = 0; k < width; k++) y[k] = 0.0f;
        if (!f.any) return;
#pragma unroll 1
        for (u32 at = from; at < to; at += ahead) {
            const u32 n = to - at;
            Packed v[ahead];
#pragma unroll
            for (i32 i = 0; i < ahead; i++)
                if (i < n) {
                    const u32 token = (u32)f.order[at + i];
                    v[i] = load(f.x + (token < f.tokens ? token : 0) * f.stride); // whatever memory holds
                }
#pragma unroll
            for (i32 i = 0; i < ahead; i++)
                if (i < n) add(y, v[i]);
        }
    }

    // Row `row` of the block, in the chunk from `column` on: all teams add pieces, then a thread those of a
    // column.
    DEV static void add_long(const From &f, u32 row, u32 column, f32 *sums, Shared &shared)
    {
        const u32 team = threadIdx.x / lanes, lane = threadIdx.x % lanes, end = shared.start[row + 1];
        const bool any = threadIdx.x < chunk && column + threadIdx.x < columns;
        float sum = 0.0f;
        u32 turn = 0;
#pragma unroll 1
        for (u32 at = shared.start[row]; at < end; at += teams * piece, turn ^= 1) {
            float y[width];
            const u32 from = at + team * piece;
            add<many>(y, f, from, from + piece < end ? from + piece : end);
#pragma unroll
            for (i32 k = 0; k < width; k++) shared.part[turn][team][lane * width + k] = y[k];
            __syncthreads();
            for (u32 i = 0; any && i < teams && at + i * piece < end; i++)
                sum += shared.part[turn][i][threadIdx.x];
        }
        __syncthreads();
        if (any) {
            f32 *to = sums + column + threadIdx.x;
            *to = Config::adds ? *to + sum : sum;
        }
    }

    DEV static u32 count(const Shared &shared, u32 row)
    {
        const u32 from = shared.start[row], to = shared.start[row + 1];
        return to > from ? to - from : 0;
    }
    DEV static void add_rows(const From &f, i64 first, u32 n, u32 column, f32 *sums, Shared &shared)
    {
        const u32 team = threadIdx.x / lanes, own = column + threadIdx.x % lanes * width;
#pragma unroll 1
        for (u32 row = team; row < n; row += teams) {
            const u32 terms = count(shared, row);
            if (terms > piece || !f.any || (Config::adds && !terms)) continue;
            float y[width];
            const u32 from = shared.start[row];
            if (terms <= few) add<few>(y, f, from, from + terms);
            else add<many>(y, f, from, from + terms);
            if constexpr (Config::adds) port::accumulate_piece(sums + (first + row) * columns + own, y);
            else port::store_piece(sums + (first + row) * columns + own, y);
        }
#pragma unroll 1
        for (u32 row = 0; row < n; row++)
            if (count(shared, row) > piece) add_long(f, row, column, sums + (first + row) * columns, shared);
    }

    // A block has so many rows at once, most_rows or less.
    template <class Block, class Args>
    DEV static void run(const Block &block, const Args &a, const T *x, const i32 *sorted, f32 *sums,
                        u32 tokens, u32 rows, u32 rows_at_once)
    {
        Shared &shared = *(Shared *)block.shared();
        const i64 items = (i64)((rows + rows_at_once - 1) / rows_at_once) * chunks;
        for (i64 item = block.index(); item < items; item += block.count()) {
            const u32 first = (u32)(item / chunks) * rows_at_once, column = (u32)(item % chunks) * chunk;
            const u32 n = rows - first < rows_at_once ? rows - first : rows_at_once;
            const u32 own = column + threadIdx.x % lanes * width;
            const From f = {x + own * Config::column_stride, sorted + rows + 1, tokens, Config::stride(a),
                            own < columns};
            for (u32 i = threadIdx.x; i <= n; i += threads) {
                const u32 start = (u32)sorted[first + i];
                shared.start[i] = start < tokens ? start : tokens;
            }
            __syncthreads();
            add_rows(f, first, n, column, sums, shared);
            __syncthreads();
        }
    }
};

} // namespace coda
