// scan_tiles.cuh -- what scan_steps.cuh computes of a decay for each of 16 states, for long sequences: the
// same bits, by warps of three roles. Some walk: a warp has four columns, a lane two states of one of these,
// which stay in registers. Some make of a tile of tokens what all lanes of a column read, d and d x of each
// column and token, from rows that come by copies that run ahead. Some finish what has been walked: they add
// skip x, multiply by silu(gate), and store y. Three tiles are made, walked or finished at a time, so that no
// warp waits for the latencies of another one. Where there are tensor maps, whole tiles come and go by them.
//
// Exponentials are a floor: 16 for a column and token, where a multiprocessor has 16 in a clock. They are
// not what binds: 5120 columns and 8192 tokens take 297 us on an H200, where that floor is 166 us. Nearest
// is what shared memory returns, 128 bytes in a clock, of which a warp that walks takes 768 for a token.
//
// Config: as scan_steps.cuh has it, of T of 16 bits, head_dim 1, each; i32 columns (of a block), tile (its
// tokens); bool maps: it has those of ScanMaps, and is not packed.
#pragma once
#include "map/silu.cuh"
#include "port/tile.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/copy.cuh"
#include "recurrent/scan_walkers.cuh"

namespace coda {

template <class Config> struct ScanTiles : ScanWalkers<Config> {
    typedef ScanWalkers<Config> Base;
    typedef typename Base::T T;
    typedef typename Base::D D;
    typedef typename Base::Tensors Tensors;
    typedef typename Base::Raw Raw;
    typedef typename Base::Ready Ready;
    typedef typename Base::Shared Shared;
    using Base::quads, Base::stages, Base::depth, Base::walkers, Base::servers, Base::serving, Base::threads;
    using Base::states, Base::lanes, Base::own, Base::four, Base::fours, Base::columns, Base::tile;
    using typename Base::Slot;
    static constexpr i32 of_group = Config::heads / Config::groups; // columns
    static constexpr i32 tiles = (of_group + columns - 1) / columns;
    static constexpr i32 shared_bytes = sizeof(Shared);
    static_assert(of_group % 8 == 0);

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

    // ---- Those who serve ----

    // Among its role's threads.
    DEV static i32 server() { return Base::warp(threadIdx.x / 32).at * 32 + threadIdx.x % 32; }

    // Of rows of n elements a thread has a piece of 16 bytes of every `once`th one.
    template <class U, i32 n> struct Pieces {
        static constexpr i32 wide = 16 / (i32)sizeof(U), once = serving / (n / wide) / four * four;
        DEV static i32 row() { return server() / (n / wide); }
        DEV static i32 column() { return server() % (n / wide) * wide; }
    };
    typedef Pieces<T, columns> Elements;
    typedef Pieces<D, columns> Steps;
    typedef Pieces<T, states> Groups;

    // Where the thread's own elements of the next tile are.
    struct Cursor {
        const T *x, *gate, *b, *c;
        const D *dt;
    };
    DEV static Cursor begin(const Tensors &in, const Place &at, i32 row)
    {
        const i64 of_x = row + Elements::row(), of_dt = row + Steps::row(), of_b = row + Groups::row();
        const i32 k = Elements::column(), q = Groups::column();
        return {at.x + of_x * in.of_x.time + k, at.gate + (Config::gate ? of_x * in.of_gate.time + k : 0),
                at.b + of_b * in.of_b.time + q, at.c + of_b * in.of_c.time + q,
                at.dt + of_dt * in.of_dt.time + Steps::column()};
    }

    // The rows of a tile, of which the first `count` exist.
    template <bool whole, class U, i32 n>
    DEV static void bring(U (&to)[tile][n], const U *&from, i64 time, i32 count, i32 there)
    {
        typedef Pieces<U, n> Own;
        constexpr i32 once = Own::once;
        constexpr u32 step = once / four * n * sizeof(U);
        const i32 first = Own::row(), k = Own::column();
        const u32 at = ptx::shared_address(&to[first % four * quads + first / four][k]);
        const U *row = from;
        from += tile * time;
        if (first >= once || k >= there) return;
#pragma unroll
        for (i32 i = 0; i < (tile + once - 1) / once; i++, row += once * time)
            if ((tile % once == 0 || i * once + first < tile) && (whole || i * once + first < count))
                ptx::copy_async<16>(at + i * step, row, 16);
    }
    template <bool whole>
    DEV static void bring_rows(const Tensors &in, const Place &at, i32 count, Cursor &from, Raw &to)
    {
        bring<whole>(to.x, from.x, in.of_x.time, count, at.count);
        bring<whole>(to.dt, from.dt, in.of_dt.time, count, at.count);
        if constexpr (Config::gate && Config::y)
            bring<whole>(to.gate, from.gate, in.of_gate.time, count, at.count);
        bring<whole>(to.b, from.b, in.of_b.time, count, states);
        bring<whole>(to.c, from.c, in.of_c.time, count, states);
    }
    // What is behind the last row stays as it was, and is not read.
    DEV static void bring_tile(const Tensors &in, const Place &at, i32 count, Cursor &from, Raw &to)
    {
        if (count >= tile) bring_rows<true>(in, at, tile, from, to);
        else if (count > 0) bring_rows<false>(in, at, count, from, to);
        ptx::copy_async_commit();
    }

    // A thread has four tokens of four columns of a tile, if there are so many.
    DEV static i32 own_quad() { return server() / fours; }
    DEV static i32 own_columns() { return server() % fours * four; }
    static_assert(quads * fours <= serving);

    DEV static void make_columns(const Raw &from, const float (&bias)[four], Ready &to)
    {
        const i32 column = own_columns(), quad = own_quad();
        float d[four][four], dx[four][four];
        if (quad >= quads) return;
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
#pragma unroll
        for (i32 k = 0; k < four; k++) {
            port::store_piece(&to.step[column / four][four * (four * quad + k)], d[k]);
            port::store_piece(&to.add[column / four][four * (four * quad + k)], dx[k]);
        }
    }

    // Those of a group: walkers, which all read the same, need not take them apart.
    DEV static void make_states(const T (&from)[tile][states], typename Base::States &to)
    {
        const i32 quad = server() / lanes, q = server() % lanes;
        static_assert(quads * lanes <= serving);
        if (quad >= quads) return;
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const Pair first = port::load_pair(&from[2 * h * quads + quad][own * q]),
                       second = port::load_pair(&from[(2 * h + 1) * quads + quad][own * q]);
            const float two[four] = {first.a, first.b, second.a, second.b};
            port::store_piece(to[quad][h][q], two);
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
    // The thread's rows from `to` on, of a tile of which `count` exist, or all.
    template <bool whole>
    DEV static void finish_rows(i32 count, const Raw &raw, const float (&skip)[four], const Ready &of, T *to,
                                i64 time)
    {
        const i32 column = own_columns(), quad = own_quad();
        float y[four][four];
#pragma unroll
        for (i32 k = 0; k < four; k++) {
            float other[four];
            port::load_piece(y[k], &of.add[column / four][four * (four * quad + k)]);
            port::load_piece(other, &of.step[column / four][four * (four * quad + k)]);
#pragma unroll
            for (i32 t = 0; t < four; t++) y[k][t] += other[t];
        }
#pragma unroll
        for (i32 t = 0; t < four; t++, to += time) {
            float v[four] = {y[0][t], y[1][t], y[2][t], y[3][t]};
            if (whole || four * quad + t < count) finish_row(raw, t * quads + quad, column, skip, v, to);
        }
    }

    // Of the thread's columns.
    template <bool given> DEV static void load_own(float (&v)[four], const float *of, const Place &at)
    {
#pragma unroll
        for (i32 k = 0; k < four; k++)
            v[k] = given && own_columns() + k < at.count ? of[at.first + own_columns() + k] : 0.0f;
    }

    // By tensor maps of [columns, rows / 4, 4, batches] one thread asks for a whole tile.
    static constexpr bool gated = Config::gate && Config::y;
    static constexpr u32 tile_bytes =
        tile * (columns * (sizeof(T) * (gated ? 2 : 1) + sizeof(D)) + 2 * states * sizeof(T));
    DEV static void ask(const Tensors &in, const Place &at, i32 row, const u64 &bar, Raw &to)
    {
        const ScanMaps &maps = *in.maps;
        const u32 full = ptx::shared_address(&bar);
        const auto load = [&](const void *box, const TensorMap &map, i32 column) {
            ptx::tma_load(ptx::shared_address(box), &map, full, column, row / four, 0, at.batch);
        };
        ptx::mbarrier_arrive_expect(full, tile_bytes);
        load(to.dt, maps.dt, at.first);
        load(to.x, maps.x, at.first);
        load(to.b, maps.b, at.group * states);
        load(to.c, maps.c, at.group * states);
        if constexpr (gated) load(to.gate, maps.gate, at.first);
    }
    // Where there are no maps, and of the last tile, which is not whole, all threads bring rows.
    DEV static void bring_rest(const Tensors &in, const Place &at, i32 row, i32 end, Raw &to)
    {
        Cursor from = begin(in, at, row);
        bring_tile(in, at, end - row, from, to);
    }
    DEV static void ask_tile(const Tensors &in, const Place &at, i32 row, i32 end, i32 stage, Shared &shared)
    {
        if (end - row < tile) bring_rest(in, at, row, end, shared.raw[stage]);
        else if (server() == 0) ask(in, at, row, shared.arrived[stage], shared.raw[stage]);
    }

    // Tile i is made where tile i - depth has been finished, while two more come.
    DEV static void make(const Tensors &in, const Place &at, i32 first, i32 end, Shared &shared)
    {
        float bias[four];
        load_own<Config::bias>(bias, in.bias, at);
        Cursor from = begin(in, at, first);
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            if constexpr (Config::maps) ask_tile(in, at, first + i * tile, end, i, shared);
            else bring_tile(in, at, end - first - i * tile, from, shared.raw[i]);
        }
        Slot now;
        i32 stage = 0, next = 2;
        u32 parity = 0;
#pragma unroll 1
        for (i32 i = 0, row = first; row < end; i++, row += tile, now.next()) {
            if (i >= depth) Base::wait(shared.finished[now.at], now.parity ^ 1);
            if constexpr (Config::maps) ask_tile(in, at, row + 2 * tile, end, next, shared);
            if (Config::maps && end - row >= tile) {
                Base::wait(shared.arrived[stage], parity);
            } else {
                ptx::copy_async_wait<!Config::maps>();
                ptx::named_barrier(1, serving);
            }
            if constexpr (!Config::maps) bring_tile(in, at, end - row - 2 * tile, from, shared.raw[next]);
            const Raw &raw = shared.raw[stage];
            Ready &ready = shared.ready[now.at];
            make_columns(raw, bias, ready);
            make_states(raw.b, ready.b);
            make_states(raw.c, ready.c);
            Base::arrive(shared.made[now.at]);
            next = next + 1 == stages ? 0 : next + 1;
            stage = stage + 1 == stages ? 0 : stage + 1;
            if (stage == 0) parity ^= 1;
        }
    }
    DEV static void store_box(const Tensors &in, const Place &at, i32 row, const Raw &raw)
    {
        ptx::fence_async_shared();
        ptx::named_barrier(2, serving);
        if (server() != 0) return;
        ptx::tma_store(&in.maps->y, ptx::shared_address(raw.x), at.first, row / four, 0, at.batch);
        ptx::tma_store_commit();
        ptx::tma_store_wait_read<0>();
    }
    // By maps y of a whole tile goes to where its x was, and from there.
    DEV static void finish(const Tensors &in, const Place &at, i32 first, i32 end, Shared &shared)
    {
        float skip[four];
        load_own<Config::skip>(skip, in.skip, at);
        const bool has = Config::y && own_quad() < quads && own_columns() < at.count;
        const bool boxes = Config::maps && Config::y && at.count == columns;
        Slot now;
        i32 stage = 0;
#pragma unroll 1
        for (i32 row = first; row < end; row += tile, now.next()) {
            Raw &raw = shared.raw[stage];
            const Ready &ready = shared.ready[now.at];
            stage = stage + 1 == stages ? 0 : stage + 1;
            T *to = at.y + (Config::y ? (row + four * own_quad()) * in.of_y.time + own_columns() : 0);
            Base::wait(shared.walked[now.at], now.parity);
            if (boxes && end - row >= tile) {
                if (has)
                    finish_rows<true>(tile, raw, skip, ready, &raw.x[own_quad()][own_columns()],
                                      quads * columns);
                store_box(in, at, row, raw);
            } else if (!Config::maps && has && end - row >= tile) {
                finish_rows<true>(tile, raw, skip, ready, to, in.of_y.time);
            } else if (has) {
                finish_rows<false>(end - row, raw, skip, ready, to, in.of_y.time);
            }
            Base::arrive(shared.finished[now.at]);
        }
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
        const SequenceRows of = in.find_rows(at.batch);
        const i32 first = of.first, end = of.end;
        if (at.batch == 0) clear(in, at, 0, first);
        if (at.batch + 1 >= in.sequences) clear(in, at, end, in.rows);
        if (threadIdx.x < depth) {
            ptx::mbarrier_init(ptx::shared_address(&shared.made[threadIdx.x]), servers);
            ptx::mbarrier_init(ptx::shared_address(&shared.walked[threadIdx.x]), walkers);
            ptx::mbarrier_init(ptx::shared_address(&shared.finished[threadIdx.x]), servers);
        }
        if (Config::maps && threadIdx.x < stages) {
            ptx::mbarrier_init(ptx::shared_address(&shared.arrived[threadIdx.x]), 1);
            ptx::mbarrier_fence_init();
        }
        if (threadIdx.x < Base::uneven)
            ptx::mbarrier_init(ptx::shared_address(&shared.passed[threadIdx.x]), 1);
        __syncthreads();
        const auto role = Base::warp(ptx::uniform(threadIdx.x / 32)).role;
        if (role == Base::WALK) Base::walk(in, at, first, end, shared);
        else if (role == Base::MAKE) make(in, at, first, end, shared);
        else if (role == Base::FINISH) finish(in, at, first, end, shared);
    }
};

} // namespace coda
