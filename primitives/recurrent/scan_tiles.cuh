// scan_tiles.cuh -- what scan_steps.cuh computes of a decay for each of 16 states, for long sequences: the
// same bits, by warps of two kinds. Most walk: a warp has four columns, a lane two states of one of these,
// which stay in registers. The last two serve them. They bring rows by copies that run ahead, and make of a
// tile of tokens what all lanes of a column read: d and d x of each column and token, b and c of each token,
// in fp32. When a tile has been walked they add skip x, multiply by silu(gate), and store y.
//
// So no warp that walks waits for memory. Exponentials are a floor: 16 for a column and token, where a
// multiprocessor has 16 in a clock. They are not what binds: 5120 columns and 8192 tokens take 412 us on an
// H200, where that floor is 181 us, and 388 us with no exponentials in those that walk.
//
// A column's tokens lie in fours, which a lane reads together; where these lie depends on the column, so that
// neighbours that write use other banks.
//
// Config: as scan_steps.cuh has it, of T of 16 bits, head_dim 1, each; i32 columns (of a block), tile (its
// tokens).
#pragma once
#include "map/silu.cuh"
#include "port/tile.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/copy.cuh"
#include "recurrent/scan_tensors.cuh"

namespace coda {

template <class Config> struct ScanTiles {
    typedef typename Config::T T;
    typedef typename Config::D D;
    typedef ScanTensors<Config> Tensors;
    static constexpr i32 states = 16, lanes = 8, own = 2, four = 4;
    static constexpr i32 columns = Config::columns, tile = Config::tile, quads = tile / four;
    static constexpr i32 walkers = columns / four, servers = 2, serving = 32 * servers;
    static constexpr i32 threads = 32 * (walkers + servers);
    static constexpr i32 of_group = Config::heads / Config::groups; // columns
    static constexpr i32 tiles = (of_group + columns - 1) / columns;
    static constexpr i32 pitch = tile + 4, stages = 4;
    static_assert(Config::each && Config::head_dim == 1 && Config::states == states && sizeof(T) == 2);
    static_assert(threads == Config::threads && columns % 8 == 0 && tile % lanes == 0 && of_group % 8 == 0);

    // Rows as they are in memory; of x, gate and dt first each fourth one from the first on, and so on.
    struct Raw {
        T x[tile][columns], gate[Config::gate ? tile : 1][columns];
        D dt[tile][columns];
        T b[tile][states], c[tile][states];
    };
    struct Ready {
        float step[columns][pitch], add[columns][pitch]; // d; d x, then y
        float b[tile / 2][lanes][2][own], c[tile / 2][lanes][2][own];
    };
    struct alignas(16) Shared {
        Ready ready[2];
        Raw raw[stages];
        float bias[columns], skip[columns];
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    // Named barriers: a tile is ready, has been walked, one of each stage; of those who serve.
    enum { READY = 1, WALKED = 3, SERVE = 5 };

    struct Place {
        i32 batch, group, first, count; // columns from `first` on
        const T *x, *b, *c, *gate;      // of the first row of the sequence's batch
        const D *dt;
        T *y;
    };

    DEV static Place place(const Tensors &in, u32 index)
    {
        const i32 of = index % (tiles * Config::groups), batch = index / (tiles * Config::groups);
        const i32 group = of / tiles, begin = of % tiles * columns, first = group * of_group + begin;
        const i64 at = Config::packed ? 0 : batch;
        return {batch,
                group,
                first,
                min(columns, of_group - begin),
                in.x + at * in.of_x.batch + first,
                in.b + at * in.of_b.batch + group * states,
                in.c + at * in.of_c.batch + group * states,
                in.gate + (Config::gate ? at * in.of_gate.batch + first : 0),
                in.dt + at * in.of_dt.batch + first,
                in.y + (Config::y ? at * in.of_y.batch + first : 0)};
    }

    // Where four tokens of a column lie.
    DEV static i32 position(i32 quad, i32 column)
    {
        const i32 at = quad + column / four % quads;
        return four * (at < quads ? at : at - quads);
    }

    // ---- Those who serve ----

    DEV static i32 server() { return threadIdx.x - 32 * walkers; }

    // Rows, of which the first `count` exist. Each thread has a piece of every `once`th one.
    template <bool whole, bool turned, class U, i32 n>
    DEV static void bring(U (&to)[tile][n], const U *from, i64 time, i32 count, i32 there)
    {
        constexpr i32 piece = 16 / (i32)sizeof(U), pieces = n / piece, once = serving / pieces / four * four;
        const i32 first = server() / pieces, k = server() % pieces * piece;
        if (first >= once || k >= there) return;
        from += first * time + k;
        const u32 at = ptx::shared_address(&to[turned ? first % four * quads + first / four : first][k]);
        constexpr u32 step = (turned ? once / four : once) * n * sizeof(U);
#pragma unroll
        for (i32 i = 0; i < (tile + once - 1) / once; i++, from += once * time)
            if ((tile % once == 0 || i * once + first < tile) && (whole || i * once + first < count))
                ptx::copy_async<16>(at + i * step, from, 16);
    }
    template <bool whole>
    DEV static void bring_rows(const Tensors &in, const Place &at, i32 row, i32 count, Raw &to)
    {
        bring<whole, true>(to.x, at.x + row * in.of_x.time, in.of_x.time, count, at.count);
        bring<whole, true>(to.dt, at.dt + row * in.of_dt.time, in.of_dt.time, count, at.count);
        if constexpr (Config::gate && Config::y)
            bring<whole, true>(to.gate, at.gate + row * in.of_gate.time, in.of_gate.time, count, at.count);
        bring<whole, false>(to.b, at.b + row * in.of_b.time, in.of_b.time, count, states);
        bring<whole, false>(to.c, at.c + row * in.of_c.time, in.of_c.time, count, states);
    }
    // What is behind the last row stays as it was, and is not read.
    DEV static void bring_tile(const Tensors &in, const Place &at, i32 row, i32 end, Raw &to)
    {
        if (row + tile <= end) bring_rows<true>(in, at, row, tile, to);
        else if (row < end) bring_rows<false>(in, at, row, end - row, to);
        ptx::copy_async_commit();
    }

    DEV static void make_groups(const T (&from)[tile][states], float (&to)[tile / 2][lanes][2][own])
    {
#pragma unroll
        for (i32 i = 0; i < (tile / 2 * lanes + serving - 1) / serving; i++) {
            const i32 e = server() + i * serving, pair = e / lanes, q = e % lanes;
            if (tile / 2 * lanes % serving && e >= tile / 2 * lanes) break;
            const Pair one = port::load_pair(&from[2 * pair][own * q]);
            const Pair two = port::load_pair(&from[2 * pair + 1][own * q]);
            const float v[4] = {one.a, one.b, two.a, two.b};
            port::store_piece(&to[pair][q][0][0], v);
        }
    }
    // Four tokens of four columns at a time; a thread has the same columns each time.
    static constexpr i32 once = serving / walkers;
    DEV static i32 own_quad() { return server() / walkers; }
    DEV static i32 own_columns() { return server() % walkers * four; }
    DEV static bool has(i32 quad) { return quad < quads && own_quad() < once; }

    DEV static void make_columns(const Raw &from, const Shared &shared, Ready &to)
    {
        const i32 column = own_columns();
        float bias[four];
        port::load_piece(bias, &shared.bias[column]);
#pragma unroll 1
        for (i32 quad = own_quad(); has(quad); quad += once) {
            float d[four][four], dx[four][four];
#pragma unroll
            for (i32 t = 0; t < four; t++) {
                float v[four], x[four];
                port::load_words(v, &from.dt[t * quads + quad][column]);
                port::load_words(x, &from.x[t * quads + quad][column]);
#pragma unroll
                for (i32 k = 0; k < four; k++) {
                    d[k][t] = Tensors::make_step(v[k], bias[k]);
                    dx[k][t] = d[k][t] * x[k];
                }
            }
            const i32 to_quad = position(quad, column);
#pragma unroll
            for (i32 k = 0; k < four; k++) {
                port::store_piece(&to.step[column + k][to_quad], d[k]);
                port::store_piece(&to.add[column + k][to_quad], dx[k]);
            }
        }
    }

    DEV static void finish_row(const Raw &raw, i32 row, i32 column, const float (&skip)[four],
                               float (&y)[four], T *to)
    {
        float x[four], z[four];
        if constexpr (Config::skip) port::load_words(x, &raw.x[row][column]);
        if constexpr (Config::gate) port::load_words(z, &raw.gate[row][column]);
#pragma unroll
        for (i32 k = 0; k < four; k++) {
            if (Config::skip) y[k] = fmaf(skip[k], x[k], y[k]);
            if (Config::gate) y[k] *= map::silu::apply(z[k]);
        }
        const u64 low = pack2<T>(y[0], y[1]), high = pack2<T>(y[2], y[3]);
        *reinterpret_cast<u64 *>(to) = low | high << 32;
    }
    // Rows from `row` on, of which there are `count`, or a whole tile.
    template <bool whole>
    DEV static void finish_rows(const Tensors &in, const Place &at, i32 row, i32 count, const Raw &raw,
                                const Shared &shared, const Ready &of)
    {
        const i32 column = own_columns();
        if (column >= at.count) return;
        float skip[four];
        port::load_piece(skip, &shared.skip[column]);
#pragma unroll 1
        for (i32 quad = own_quad(); has(quad); quad += once) {
            T *to = at.y + (row + four * quad) * in.of_y.time + column;
            float y[four][four];
#pragma unroll
            for (i32 k = 0; k < four; k++)
                port::load_piece(y[k], &of.add[column + k][position(quad, column)]);
#pragma unroll
            for (i32 t = 0; t < four; t++, to += in.of_y.time) {
                float v[four] = {y[0][t], y[1][t], y[2][t], y[3][t]};
                if (whole || four * quad + t < count) finish_row(raw, t * quads + quad, column, skip, v, to);
            }
        }
    }

    DEV static void finish(const Tensors &in, const Place &at, i32 row, i32 end, const Raw &raw,
                           const Shared &shared, const Ready &of)
    {
        if (row + tile <= end) finish_rows<true>(in, at, row, tile, raw, shared, of);
        else finish_rows<false>(in, at, row, end - row, raw, shared, of);
    }

    DEV static void serve(const Tensors &in, const Place &at, i32 first, i32 end, Shared &shared)
    {
        for (i32 k = server(); k < columns; k += serving) {
            const bool there = k < at.count;
            shared.bias[k] = Config::bias && there ? in.bias[at.first + k] : 0.0f;
            shared.skip[k] = Config::skip && there ? in.skip[at.first + k] : 0.0f;
        }
        bring_tile(in, at, first, end, shared.raw[0]);
        bring_tile(in, at, first + tile, end, shared.raw[1]);
#pragma unroll 1
        for (i32 i = 0, row = first; row < end + 2 * tile; i++, row += tile) {
            Ready &ready = shared.ready[i % 2];
            const i32 before = row - 2 * tile;
            if (before >= first) {
                ptx::named_barrier(WALKED + i % 2, threads);
                if constexpr (Config::y)
                    finish(in, at, before, end, shared.raw[(i + 2) % stages], shared, ready);
            }
            ptx::copy_async_wait<1>();
            ptx::named_barrier(SERVE, serving);
            bring_tile(in, at, row + 2 * tile, end, shared.raw[(i + 2) % stages]);
            if (row >= end) continue;
            const Raw &raw = shared.raw[i % stages];
            make_groups(raw.b, ready.b);
            make_groups(raw.c, ready.c);
            make_columns(raw, shared, ready);
            ptx::named_arrive(READY + i % 2, threads);
        }
    }

    // ---- Those who walk ----

    // Which states the lane has, of which of the warp's columns: neighbours read the same b and c, and every
    // second one the same d, so that a warp reads few words.
    DEV static i32 lane() { return threadIdx.x % 32; }
    DEV static i32 of_states() { return lane() / 2 % 2 + lane() / 8 * 2; }
    DEV static i32 of_column() { return threadIdx.x / 32 * four + lane() % 2 + lane() / 4 % 2 * 2; }
    // Lanes whose numbers of states differ by 4, 2, 1.
    DEV static constexpr i32 apart(i32 level) { return level == 0 ? 16 : level == 1 ? 8 : 2; }

    struct States {
        float s[own], a[own];
    };

    DEV static void walk_token(States &of, float d, float add, const float *b, const float *c, float &y)
    {
        float sum = 0.0f;
#pragma unroll
        for (i32 i = 0; i < own; i++) {
            of.s[i] = fmaf(math::exp2(d * of.a[i]), of.s[i], add * b[i]);
            sum = fmaf(of.s[i], c[i], sum);
        }
        y = sum;
    }
    template <i32 level> DEV static void add_up(float (&v)[lanes])
    {
        if constexpr (level < 3) {
            constexpr i32 w = lanes >> (level + 1);
            const bool upper = lane() & apart(level);
#pragma unroll
            for (i32 i = 0; i < w; i++) {
                const float keep = upper ? v[i + w] : v[i], give = upper ? v[i] : v[i + w];
                v[i] = keep + __shfl_xor_sync(~0u, give, apart(level));
            }
            add_up<level + 1>(v);
        }
    }

    // Eight tokens: the lane gets the sum of one.
    DEV static void walk_turn(States &of, i32 t, Ready &ready)
    {
        const i32 q = of_states(), column = of_column();
        float v[lanes];
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            float d[four], add[four];
            port::load_piece(d, &ready.step[column][position(t / four + h, column)]);
            port::load_piece(add, &ready.add[column][position(t / four + h, column)]);
#pragma unroll
            for (i32 k = 0; k < 2; k++) {
                float b[2 * own], c[2 * own];
                port::load_piece(b, &ready.b[t / 2 + 2 * h + k][q][0][0]);
                port::load_piece(c, &ready.c[t / 2 + 2 * h + k][q][0][0]);
#pragma unroll
                for (i32 j = 0; j < 2; j++)
                    walk_token(of, d[2 * k + j], add[2 * k + j], b + own * j, c + own * j,
                               v[four * h + 2 * k + j]);
            }
        }
        add_up<0>(v);
        __syncwarp(); // all lanes have read what y lies over
        ready.add[column][position(t / four + q / four, column) + q % four] = v[0];
    }
    DEV static void walk_one(States &of, i32 t, Ready &ready)
    {
        const i32 q = of_states(), column = of_column(), at = position(t / four, column) + t % four;
        float y;
        walk_token(of, ready.step[column][at], ready.add[column][at], ready.b[t / 2][q][t % 2],
                   ready.c[t / 2][q][t % 2], y);
#pragma unroll
        for (i32 i = 0; i < 3; i++) y += __shfl_xor_sync(~0u, y, apart(i));
        __syncwarp();
        if (q == 0) ready.add[column][at] = y;
    }

    DEV static void walk(const Tensors &in, const Place &at, i32 first, i32 end, Shared &shared)
    {
        const i32 q = of_states(), k = of_column();
        const bool there = k < at.count && at.batch < in.sequences;
        const i64 element = ((i64)at.batch * Config::heads + at.first + k) * states + own * q;
        States of;
        if (Config::state && there) port::load_tail(of.s, in.state + element, 1, own);
        else port::load_tail(of.s, in.state, 1, 0);
        port::load_tail(of.a, in.a + (i64)(at.first + min(k, at.count - 1)) * states + own * q, 1, own);
#pragma unroll
        for (i32 i = 0; i < own; i++) of.a[i] *= math::LOG2_E;
#pragma unroll 1
        for (i32 i = 0, row = first; row < end; i++, row += tile) {
            const i32 count = min(tile, end - row);
            Ready &ready = shared.ready[i % 2];
            i32 t = 0;
            ptx::named_barrier(READY + i % 2, threads);
#pragma unroll 1
            for (; t + lanes <= count; t += lanes) walk_turn(of, t, ready);
#pragma unroll 1
            for (; t < count; t++) walk_one(of, t, ready);
            ptx::named_arrive(WALKED + i % 2, threads);
        }
        if (Config::after && there) port::store_tail(in.after + element, of.s, 1, own);
    }

    // Rows of no sequence.
    DEV static void clear(const Tensors &in, const Place &at, i32 row, i32 end)
    {
        if constexpr (Config::y && Config::packed)
            for (i32 i = threadIdx.x; i < (end - row) * columns; i += threads)
                if (i % columns < at.count)
                    at.y[(row + i / columns) * in.of_y.time + i % columns] = from_float<T>(0.0f);
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        const Place at = place(in, block.index());
        ptx::grid_wait();
        const SequenceRows of = in.find_rows(at.batch);
        const i32 first = of.first, end = of.end;
        if (at.batch == 0) clear(in, at, 0, first);
        if (at.batch + 1 >= in.sequences) clear(in, at, end, in.rows);
        if (ptx::uniform(threadIdx.x / 32) < walkers) walk(in, at, first, end, shared);
        else serve(in, at, first, end, shared);
        ptx::grid_launch_next();
    }
};

} // namespace coda
