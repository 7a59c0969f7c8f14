// delta_chunks_sm90.cuh -- the gated delta rule by chunks on Hopper: four warps carry 64 columns of a state
// by wgmma, which has its operand of 64 columns in registers, as delta_chunks.cuh says, and the other one in
// shared memory.
#pragma once
#include "attention/fragment.cuh"
#include "ptx/wgmma.cuh"
#include "recurrent/delta_chunks.cuh"

namespace coda {

template <class Config> struct DeltaCarrySm90 : DeltaCarry<Config> {
    typedef DeltaCarry<Config> Base;
    typedef typename Base::Chunk Chunk;
    typedef typename Base::T T;
    typedef typename Base::Shared Shared;
    typedef typename Base::State State;
    typedef typename Base::Tokens Tokens;
    typedef typename Base::Operands Operands;
    static constexpr i32 keys = Base::keys, chunk = Base::chunk, blocks = Base::blocks;
    static constexpr i32 eight_rows = 1024, part_bytes = Chunk::Keys::part_bytes;
    static_assert(Config::slice == 64 && Chunk::Keys::row_bytes == 128);

    // Tokens of a sum as results of mma.sync.
    typedef float Sum[chunk / 2];
    DEV static void unpack(const Sum &sum, Tokens &to)
    {
#pragma unroll
        for (i32 i = 0; i < chunk / 2; i++) to[i / 4][i % 4] = sum[i];
    }

    DEV static u64 of_columns(u32 tile) { return ptx::wgmma_descriptor(tile, 16, eight_rows); }

    // S^T k^T, half of the keys at a time: the second half is split while tensor cores have the first.
    DEV static void see(const State &s, u32 k, typename Chunk::Left &left, i32 turn, Sum &seen)
    {
        constexpr i32 half = keys / 32;
        Operand high[2][half], low[2][half];
#pragma unroll
        for (i32 part = 0; part < 2; part++) {
#pragma unroll
            for (i32 i = 0; i < half; i++) {
                const i32 at = part * half + i;
                split_results<T>(s[2 * at], s[2 * at + 1], high[part][i], low[part][i]);
                if constexpr (Config::o) Chunk::leave(left.state[at], high[part][i]);
            }
            pin(high[part]), pin(low[part]);
            ptx::wgmma_fence();
#pragma unroll
            for (i32 i = 0; i < half; i++) {
                const i32 at = part * half + i;
                const u64 b = of_columns(k + at / 4 * part_bytes + at % 4 * 32);
                ptx::Wgmma<T, chunk>::template mma<0>(seen, low[part][i], b, at > 0);
                ptx::Wgmma<T, chunk>::template mma<0>(seen, high[part][i], b, 1);
            }
            ptx::wgmma_commit();
        }
        if constexpr (Config::o) Chunk::say_left(Chunk::STATE, turn);
        ptx::wgmma_wait<0>();
        pin(seen);
    }

    // N^T. Of T^T what is below the diagonal is 0.
    DEV static void solve(Operands &high, Operands &low, u32 t_high, u32 t_low, Sum &n)
    {
        pin(high), pin(low);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 j = 0; j < blocks; j++) {
            const u64 b = of_columns(t_high + 2 * j * eight_rows), c = of_columns(t_low + 2 * j * eight_rows);
            ptx::Wgmma<T, chunk>::template mma<1>(n, high[j], c, j > 0);
            ptx::Wgmma<T, chunk>::template mma<1>(n, low[j], b, 1);
            ptx::Wgmma<T, chunk>::template mma<1>(n, high[j], b, 1);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(n);
    }

    DEV static void advance(State &s, Operands &high, Operands &low, u32 k, float all)
    {
        float d[keys / 2];
        pin(high), pin(low);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 t = 0; t < blocks; t++) {
            const u64 b = ptx::wgmma_descriptor(k + 2 * t * eight_rows, part_bytes, eight_rows);
            ptx::Wgmma<T, keys>::template mma<1>(d, low[t], b, t > 0);
            ptx::Wgmma<T, keys>::template mma<1>(d, high[t], b, 1);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(d);
#pragma unroll
        for (i32 i = 0; i < keys / 2; i++) s[i / 4][i % 4] = fmaf(s[i / 4][i % 4], all, d[i]);
    }

    DEV static void take(State &s, i32 warp, i32 turn, i32 stage, Shared &shared)
    {
        const typename Chunk::Numbers &of = shared.numbers[turn];
        typename Chunk::Left &left = shared.left[turn][warp];
        const u32 k = ptx::shared_address(shared.stage[stage].k);
        Operands high, low;
        Sum sum;
        Tokens tokens;
        see(s, k, left, turn, sum);
        unpack(sum, tokens);
#pragma unroll
        for (i32 t = 0; t < blocks; t++)
            Base::miss(tokens, ptx::shared_address(shared.stage[stage].v), of, t, 16 * warp, high[t], low[t]);
        solve(high, low, ptx::shared_address(shared.inverse[turn].high),
              ptx::shared_address(shared.inverse[turn].low), sum);
        unpack(sum, tokens);
        if constexpr (Config::o) Base::leave_change(tokens, left, turn);
        Base::weigh(tokens, of, high, low);
        advance(s, high, low, k, of.all);
    }
};

template <class Config> struct DeltaChunksSm90 : DeltaChunks<Config, DeltaCarrySm90<Config>> {
};

} // namespace coda
