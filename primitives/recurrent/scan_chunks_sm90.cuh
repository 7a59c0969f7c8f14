// scan_chunks_sm90.cuh -- scan_chunks.cuh on Hopper, by warpgroups of three kinds and wgmma. One carries 64
// columns' states, transposed, in registers, in fp32, and makes y: what it multiplies lies in its registers,
// so that no warp hands anything on to another one. What the next chunk's c ask of the states is multiplied
// as soon as each half of them is there. One finds the weights of a chunk's tokens ahead of it,
// c . b e^(D_i - D_j) d_j. Four warps bring rows, find the sums D by turns, and store y.
//
// Config: as scan_steps.cuh has it, of T bf16; i32 slice, chunk; bool each is false.
#pragma once
#include "attention/fragment.cuh"
#include "ptx/barrier.cuh"
#include "recurrent/matrix_tile.cuh"
#include "recurrent/scan_fragments.cuh"

namespace coda {

template <class Config> struct ScanChunksSm90 : ScanFragments<Config, 1> {
    typedef ScanFragments<Config, 1> Base;
    typedef typename Base::T T;
    typedef typename Base::Tensors Tensors;
    typedef typename Base::Place Place;
    typedef typename Base::Steps Steps;
    typedef typename Base::Step Step;
    using Base::chunk, Base::slice, Base::states, Base::lane;
    static constexpr i32 group = 128, warps = 4, blocks = chunk / 16, stages = 3, terms = Base::terms;
    static constexpr i32 eight_rows = 1024, halves = states / 64;
    // Registers of a thread by kind of warpgroup: 3 x 168 in all.
    static constexpr i32 carry_registers = 240, weigh_registers = 136, bring_registers = 128;
    static_assert(slice == 64 && states % 64 == 0 && states <= 128 && Config::threads == 3 * group);

    typedef MatrixTile<T, states, chunk> Groups;
    typedef MatrixTile<T, slice, chunk> Columns;
    typedef MatrixTile<T, chunk, chunk> Square;
    struct alignas(16) Piece {
        u32 x[4];
    };
    struct alignas(1024) Stage {
        T c[chunk * states], b[chunk * states], x[chunk * slice]; // then y
        T gate[Config::gate ? chunk * slice : 512];
    };
    struct alignas(1024) Shared {
        Stage stage[stages];
        T weight[2][chunk * chunk];
        Steps steps[stages];
        u64 full[stages], empty[stages], weighed[2], used[2];
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    typedef float Sum[32]; // of 64 columns and a chunk's tokens; or 64 states
    typedef Operand Operands[blocks];

    // A chunk's place in a ring of `n`.
    template <i32 n> struct Turn {
        i32 at = 0;
        u32 parity = 0;
        DEV void next()
        {
            at = at + 1 == n ? 0 : at + 1;
            if (at == 0) parity ^= 1;
        }
    };
    DEV static void wait(const u64 &bar, u32 parity)
    {
        ptx::mbarrier_wait(ptx::shared_address(&bar), parity);
    }
    // A warp has done.
    DEV static void arrive(const u64 &bar)
    {
        __syncwarp();
        if (lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&bar));
    }
    // The operand `bytes` behind a sixteenth of an address; the other way round.
    DEV static u64 operand(u32 at, u32 bytes) { return ptx::wgmma_descriptor_behind(at, bytes, 16); }
    DEV static u64 operand_of_rows(u32 at, u32 bytes)
    {
        return ptx::wgmma_descriptor_behind(at, bytes, Groups::part_bytes);
    }
    static constexpr u32 of_b = sizeof(T) * chunk * states;

    // ---- Warps that bring rows ----

    template <class Tile, i32 n>
    DEV static void bring_tile(T *to, const T *from, i64 time, i32 row, i32 count)
    {
        bring_rows<Tile, n, chunk, group>(threadIdx.x % group, to, from + row * time, time, count);
    }
    DEV static void bring(const Tensors &in, const Place &at, i32 row, i32 count, Stage &to)
    {
        bring_tile<Groups, states>(to.c, at.c, in.of_c.time, row, count);
        bring_tile<Groups, states>(to.b, at.b, in.of_b.time, row, count);
        bring_tile<Columns, slice>(to.x, at.x, in.of_x.time, row, count);
        if constexpr (Config::gate && Config::y)
            bring_tile<Columns, slice>(to.gate, at.gate, in.of_gate.time, row, count);
    }
    // Chunk i is handed on while chunk i - 1, of which y is left, makes room for one behind it.
    DEV static void bring_all(const Tensors &in, const Place &at, i32 first, i32 end, Shared &shared)
    {
        const i32 warp = ptx::uniform(threadIdx.x / 32) % warps;
        const float a = in.a[at.head], bias = Config::bias ? in.bias[at.head] : 0.0f;
        Turn<stages> now, room = {stages - 1, 1};
        Step step = Base::load_step(in, at, first + warp * chunk, end);
        i32 finds = 0; // whose turn it is to find sums
        const auto find = [&](i32 row, i32 stage) {
            if (finds == warp && row < end) {
                const Step next = Base::load_step(in, at, row + warps * chunk, end);
                Base::find_steps(step, a, bias, min(chunk, end - row), shared.steps[stage]);
                step = next;
            }
            finds = (finds + 1) % warps;
        };
#pragma unroll 1
        for (i32 i = 0; i < stages - 1; i++) {
            const i32 row = first + i * chunk;
            if (row < end) bring(in, at, row, min(chunk, end - row), shared.stage[i]);
            ptx::copy_async_commit();
        }
        find(first, 0);
#pragma unroll 1
        for (i32 row = first; row < end + chunk; row += chunk, now.next(), room.next()) {
            const i32 before = row - chunk, more = row + (stages - 1) * chunk;
            Stage &free = shared.stage[room.at];
            if (row < end) {
                ptx::copy_async_wait<stages - 2>();
                ptx::fence_async_shared();
                arrive(shared.full[now.at]);
                find(row + chunk, now.at + 1 == stages ? 0 : now.at + 1);
            }
            if (before >= first) {
                wait(shared.empty[room.at], room.parity);
                if constexpr (Config::y)
                    store_rows<Columns, slice, chunk, group>(threadIdx.x % group, free.x,
                                                             at.y + before * in.of_y.time, in.of_y.time,
                                                             min(chunk, end - before));
            }
            if (more < end) bring(in, at, more, min(chunk, end - more), free);
            ptx::copy_async_commit();
        }
    }

    // ---- A warpgroup that finds weights ----

    DEV static void weigh(const Stage &of, const Steps &steps, T *to)
    {
        const u32 at = ptx::shared_address(&of) >> 4;
        const i32 warp = ptx::uniform(threadIdx.x / 32) % 4;
        Sum g;
        pin(g);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 k = 0; k < halves; k++)
            ptx::Wgmma<T, chunk>::template mma<0, 0>(g, operand(at, k * Groups::part_bytes),
                                                     operand(at, of_b + k * Groups::part_bytes), k);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(g);
        const i32 i = 16 * warp + lane() / 4;
        const typename Base::Decay row[2] = {Base::decay_of(steps, i), Base::decay_of(steps, i + 8)};
#pragma unroll
        for (i32 n = 0; n < chunk / 8; n++) {
            const i32 j = 8 * n + 2 * (lane() % 4);
            Pair w[2] = {};
            if (n / 2 <= warp) {
                const typename Base::DecayPair of_j = Base::decays_of(steps, j);
#pragma unroll
                for (i32 h = 0; h < 2; h++)
                    w[h] = Base::weights(g[4 * n + 2 * h], g[4 * n + 2 * h + 1], row[h], of_j, i + 8 * h, j);
            }
#pragma unroll
            for (i32 h = 0; h < 2; h++)
                *reinterpret_cast<u32 *>(reinterpret_cast<u8 *>(to) + Square::offset(i + 8 * h, j)) =
                    pack2<T>(w[h].a, w[h].b);
        }
        ptx::fence_async_shared();
    }
    DEV static void weigh_all(i32 first, i32 end, Shared &shared)
    {
        Turn<stages> now;
        Turn<2> turn;
#pragma unroll 1
        for (i32 row = first; row < end; row += chunk, now.next(), turn.next()) {
            wait(shared.full[now.at], now.parity);
            wait(shared.used[turn.at], turn.parity ^ 1);
            weigh(shared.stage[now.at], shared.steps[now.at], shared.weight[turn.at]);
            arrive(shared.weighed[turn.at]);
            arrive(shared.empty[now.at]);
        }
    }

    // ---- A warpgroup that carries states ----

    typedef float States[states / 8][4]; // [16 columns of the warp, states]

    // 64 states of S, rounded, times c of all tokens, under way.
    DEV static void ask(const States &s, u32 at, i32 half, Operand (&high)[4], Sum &y)
    {
#pragma unroll
        for (i32 i = 0; i < 4; i++)
#pragma unroll
            for (i32 k = 0; k < 4; k++) {
                const float(&two)[4] = s[8 * half + 2 * i + k / 2];
                high[i][k] = pack2<T>(two[k % 2 * 2], two[k % 2 * 2 + 1]);
            }
        pin(high);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 i = 0; i < 4; i++)
            ptx::Wgmma<T, chunk>::template mma<0>(y, high[i], operand(at, half * Groups::part_bytes + i * 32),
                                                  half > 0 || i > 0);
        ptx::wgmma_commit();
    }
    // x, times what a token counts behind the chunk, as sums of `terms` bf16.
    DEV static void weigh_x(const Operands &x, const Steps &steps, Operand (&to)[terms][blocks])
    {
#pragma unroll
        for (i32 t = 0; t < blocks; t++)
#pragma unroll
            for (i32 k = 0; k < 4; k++) {
                const Pair w = port::load_pair(&steps.behind[16 * t + k / 2 * 8 + 2 * (lane() % 4)]);
                u32 v[terms][4];
                Base::split(x[t][k], w.a, w.b, v, k);
#pragma unroll
                for (i32 i = 0; i < terms; i++) to[i][t][k] = v[i][k];
            }
    }
    // What 64 states become, under way.
    DEV static void advance(Operand (&x)[terms][blocks], u32 at, i32 half, Sum &d)
    {
#pragma unroll
        for (i32 i = 0; i < terms; i++) pin(x[i]);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 t = 0; t < blocks; t++) {
            const u64 b = operand_of_rows(at, of_b + half * Groups::part_bytes + 2 * t * eight_rows);
#pragma unroll
            for (i32 i = terms - 1; i >= 0; i--)
                ptx::Wgmma<T, 64>::template mma<1>(d, x[i][t], b, t > 0 || i < terms - 1);
        }
        ptx::wgmma_commit();
    }
    DEV static void add(States &s, i32 half, Sum &d, float all)
    {
        pin(d);
#pragma unroll
        for (i32 i = 0; i < 32; i++) {
            float &to = s[8 * half + i / 4][i % 4];
            to = fmaf(to, all, d[i]);
        }
    }
    DEV static void add_within(Operands &x, u32 weights, Sum &y)
    {
        pin(x), pin(y);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 j = 0; j < blocks; j++)
            ptx::Wgmma<T, chunk>::template mma<0>(y, x[j], operand(weights, 32 * j), 1);
        ptx::wgmma_commit();
    }
    DEV static void scale(Sum &y, const float *of)
    {
#pragma unroll
        for (i32 t = 0; t < chunk / 8; t++) {
            const Pair w = port::load_pair(&of[8 * t + 2 * (lane() % 4)]);
#pragma unroll
            for (i32 i = 0; i < 4; i++) y[4 * t + i] *= i % 2 ? w.b : w.a;
        }
    }
    // skip x, and times silu(gate).
    DEV static void finish(Sum &y, const Operands &x, u32 gate, i32 column, float skip)
    {
#pragma unroll
        for (i32 t = 0; t < blocks; t++) {
            Operand z;
            if constexpr (Config::gate)
                ptx::ldmatrix_transposed(Columns::matrices(gate, 16 * t, column, false), z);
#pragma unroll
            for (i32 k = 0; k < 4; k++) {
                float &a = y[8 * t + k / 2 * 4 + k % 2 * 2], &b = y[8 * t + k / 2 * 4 + k % 2 * 2 + 1];
                if constexpr (Config::skip) {
                    const Pair v = unpack2<T>(x[t][k]);
                    a = fmaf(skip, v.a, a), b = fmaf(skip, v.b, b);
                }
                if constexpr (Config::gate) {
                    const Pair v = unpack2<T>(z[k]);
                    a *= map::silu::apply(v.a), b *= map::silu::apply(v.b);
                }
            }
        }
    }

    // What of a chunk is there before it is taken: x, weighted too, and S c.
    struct Ahead {
        Operands x;
        Operand weighted[terms][blocks];
        Sum y;
    };
    // finish() makes the rest of S, while its first 64 states are multiplied.
    template <class Finish>
    DEV static void look(const States &s, i32 column, const Stage &of, const Steps &steps, Ahead &to,
                         const Finish &finish)
    {
        const u32 at = ptx::shared_address(&of) >> 4, x = ptx::shared_address(of.x);
        Operand high[halves][4];
        if constexpr (Config::y) ask(s, at, 0, high[0], to.y);
#pragma unroll
        for (i32 t = 0; t < blocks; t++)
            ptx::ldmatrix_transposed(Columns::matrices(x, 16 * t, column, false), to.x[t]);
        finish();
        if constexpr (Config::y) {
            if constexpr (halves > 1) ask(s, at, 1, high[1], to.y);
        }
        weigh_x(to.x, steps, to.weighted);
        if constexpr (Config::y) {
            ptx::wgmma_wait<0>();
            pin(to.y);
#pragma unroll
            for (i32 i = 0; i < halves; i++) pin(high[i]);
        }
    }

    // `now` is of the chunk, and then of the next one, at which look_on() looks: it is given what makes the
    // rest of S, and lets the chunk go then.
    template <class Look>
    DEV static void take(States &s, Ahead &now, i32 column, float skip, Stage &of, const Steps &steps,
                         const u64 &weighed, u32 parity, const T *weight, const Look &look_on)
    {
        const u32 at = ptx::shared_address(&of) >> 4;
        const float all = steps.all;
        Sum d;
        advance(now.weighted, at, 0, d);
        if constexpr (Config::y) {
            scale(now.y, steps.before);
            wait(weighed, parity);
            add_within(now.x, ptx::shared_address(weight) >> 4, now.y);
        }
        ptx::wgmma_wait<Config::y>();
        add(s, 0, d, all);
        if constexpr (halves > 1) advance(now.weighted, at, 1, d);
        if constexpr (Config::y) {
            ptx::wgmma_wait<(halves > 1)>();
            pin(now.y), pin(now.x);
            finish(now.y, now.x, ptx::shared_address(of.gate), column, skip);
            leave_turned<Columns, T>(now.y, column, ptx::shared_address(of.x));
        }
        look_on([&] {
            ptx::wgmma_wait<Config::y>();
#pragma unroll
            for (i32 i = 0; i < terms; i++) pin(now.weighted[i]);
            if constexpr (halves > 1) add(s, 1, d, all);
        });
    }

    DEV static void carry(const Tensors &in, const Place &at, i32 first, i32 end, Shared &shared)
    {
        const i32 warp = ptx::uniform(threadIdx.x / 32), column = 16 * warp;
        const float skip = Config::skip ? in.skip[at.head] : 0.0f;
        Turn<stages> now;
        Turn<2> turn;
        States s;
        Ahead ahead;
        Base::load_states(in, at, warp, s);
        if (first < end) {
            wait(shared.full[0], 0);
            look(s, column, shared.stage[0], shared.steps[0], ahead, [] {});
        }
#pragma unroll 1
        for (i32 row = first; row < end; row += chunk, turn.next()) {
            const i32 stage = now.at;
            const bool more = end - row > chunk; // else the last one is looked at again, for nobody
            now.next();
            take(s, ahead, column, skip, shared.stage[stage], shared.steps[stage], shared.weighed[turn.at],
                 turn.parity, shared.weight[turn.at], [&](const auto &finish) {
                     if (more) wait(shared.full[now.at], now.parity);
                     const i32 next = more ? now.at : stage;
                     look(s, column, shared.stage[next], shared.steps[next], ahead, [&] {
                         finish();
                         if constexpr (Config::y) arrive(shared.used[turn.at]);
                         arrive(shared.empty[stage]);
                     });
                 });
        }
        Base::store_states(in, at, warp, s);
    }

    DEV static void begin(Shared &shared)
    {
        if (threadIdx.x == 0) {
#pragma unroll
            for (i32 i = 0; i < stages; i++) {
                ptx::mbarrier_init(ptx::shared_address(&shared.full[i]), 4);
                ptx::mbarrier_init(ptx::shared_address(&shared.empty[i]), Config::y ? 8 : 4);
            }
#pragma unroll
            for (i32 i = 0; i < 2; i++) {
                ptx::mbarrier_init(ptx::shared_address(&shared.weighed[i]), 4);
                ptx::mbarrier_init(ptx::shared_address(&shared.used[i]), 4);
            }
            ptx::mbarrier_fence_init();
        }
        __syncthreads();
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        const Place at = Base::place(in, block.index());
        begin(shared);
        const SequenceRows of = in.find_rows(at.batch);
        const i32 first = of.first, end = of.end, role = ptx::uniform(threadIdx.x / group);
        if (at.batch == 0) Base::clear(in, at, 0, first);
        if (at.batch + 1 >= in.sequences) Base::clear(in, at, end, in.rows);
        if (role == 0) {
            ptx::grow_registers<carry_registers>();
            carry(in, at, first, end, shared);
        } else if (role == 1) {
            ptx::shrink_registers<weigh_registers>();
            if constexpr (Config::y) weigh_all(first, end, shared);
        } else {
            ptx::shrink_registers<bring_registers>();
            bring_all(in, at, first, end, shared);
        }
    }
};

} // namespace coda
