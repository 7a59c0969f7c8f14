// delta_chunks_sm90.cuh -- the gated delta rule by chunks on Hopper, where delta_prepare.cuh has left T and P
// of all chunks: what is left depends on states. A warpgroup has 64 columns of a head's, in registers, in
// fp32, from the first chunk to the last, and makes all products by wgmma, transposed as delta_chunks.cuh has
// them: the results of one are the operand of the next, and no warp hands anything on to another one. While
// q S is multiplied the warpgroup is at N, and while P N is, at the state behind the chunk, of which the next
// chunk's keys see each half as soon as it is there. T and P are 0 above their diagonals, so that products of
// 32 columns are six of eight. Four more warps bring what comes next, and store o.
//
// What is prepared lies in the place of `decay`.
//
// Whoever writes an element of `after` has read it of `before`: both may be one memory.
//
// Config: as delta.cuh has it, of T bf16, by_row false; i32 slice (columns of a block, 64 or 128), ring
// (chunks whose operands are there, or come).
#pragma once
#include "attention/fragment.cuh"
#include "ptx/barrier.cuh"
#include "ptx/wgmma.cuh"
#include "recurrent/delta_prepare.cuh"

namespace coda {

template <class Config> struct DeltaChunksSm90 {
    typedef DeltaChunk<Config> Chunk;
    typedef DeltaCarry<Config> Carry;
    typedef DeltaSolve<Config> Solve;
    typedef DeltaTensors<Config> Tensors;
    typedef DeltaPrepared<typename Config::T> Prepared;
    typedef typename Chunk::T T;
    typedef typename Chunk::Piece Piece;
    typedef typename Carry::State State;
    typedef typename Carry::Tokens Tokens;
    typedef typename Carry::Operands Operands;
    typedef float Sum[Chunk::chunk / 2]; // of 64 values and a chunk's tokens
    static constexpr i32 halves = Chunk::keys / 64;
    static constexpr i32 keys = Chunk::keys, chunk = Chunk::chunk, blocks = Chunk::blocks;
    static constexpr i32 slice = Config::slice, groups = slice / 64, stages = Config::ring;
    static constexpr i32 threads = 128 * (groups + 1);
    static constexpr i32 carry_registers = 224, other_registers = 56; // where there are three warpgroups
    static constexpr i32 eight_rows = 1024, part_bytes = Chunk::Keys::part_bytes;
    static_assert(slice % 64 == 0 && stages >= 2 && Chunk::Keys::row_bytes == 128);

    static constexpr i32 asked = Config::o ? chunk * keys : 512; // elements of q
    struct alignas(1024) Stage {
        T k[chunk * keys], q[asked], v[chunk * slice];               // then o
        T high[chunk * chunk], low[chunk * chunk], p[chunk * chunk]; // with zeros
        DeltaFactors factors;
    };
    struct Shared {
        Stage stage[stages];
        u64 full[stages], empty[stages];
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    struct Place {
        u32 sequence;
        i32 head, column; // the first of the slice
        i64 batch;
    };

    // ---- Warps that bring operands ----

    typedef DeltaPieces<Chunk> Pieces;
    static constexpr i32 factor_pieces = sizeof(DeltaFactors) / 16;
    static constexpr i32 matrix_bytes = sizeof(T) * chunk * chunk;
    DEV static void bring_made(const Prepared *made, const Pieces &of, Stage &to)
    {
        const u32 at = ptx::shared_address(to.high);
        const Piece *const from = reinterpret_cast<const Piece *>(made) + of.thread;
#pragma unroll
        for (i32 i = 0; i < of.own; i++) {
            if (!of.has(i)) continue;
            ptx::copy_async<16>(at + of.t[i], from + of.threads * i, 16);
            ptx::copy_async<16>(at + matrix_bytes + of.t[i], from + Prepared::pieces + of.threads * i, 16);
            if constexpr (Config::o)
                ptx::copy_async<16>(at + 2 * matrix_bytes + of.p[i],
                                    from + 2 * Prepared::pieces + of.threads * i, 16);
        }
        if (of.thread < factor_pieces)
            ptx::copy_async<16>(ptx::shared_address(&to.factors) + 16 * of.thread,
                                from + 3 * Prepared::pieces, 16);
    }
    DEV static void bring(const Tensors &in, const Place &at, const Prepared *made, const Pieces &of,
                          i32 thread, u32 row, i32 count, Stage &to)
    {
        const i32 key = at.head / Config::group * keys;
        bring_rows<typename Chunk::Keys, keys, chunk, 128>(
            thread, to.k, in.k + at.batch * in.of_k.batch + row * in.of_k.time + key, in.of_k.time, count);
        bring_made(made, of, to);
        bring_rows<typename Chunk::Values, slice, chunk, 128>(
            thread, to.v,
            in.v + at.batch * in.of_v.batch + row * in.of_v.time + at.head * Config::values + at.column,
            in.of_v.time, count);
        if constexpr (Config::o)
            bring_rows<typename Chunk::Keys, keys, chunk, 128>(
                thread, to.q, in.q + at.batch * in.of_q.batch + row * in.of_q.time + key, in.of_q.time,
                count);
    }
    // The columns of o that lie where v was.
    DEV static void store(const Tensors &in, const Place &at, i32 thread, u32 row, i32 count, const Stage &of)
    {
        if constexpr (Config::o)
            store_rows<typename Chunk::Values, slice, chunk, 128>(
                thread, of.v,
                in.o + at.batch * in.of_o.batch + row * in.of_o.time + at.head * Config::values + at.column,
                in.of_o.time, count);
    }
    // Chunk i is handed on while chunk i - 1, of which o is left, makes room for one behind it.
    DEV static void load(const Tensors &in, const Place &at, const Prepared *made, u32 first, u32 end,
                         Shared &shared)
    {
        const i32 thread = threadIdx.x - 128 * groups, rows = (i32)(end - first);
        const i32 all = (rows + chunk - 1) / chunk;
        const Pieces of(thread);
        i32 stage = 0, next = stages - 1;
        u32 parity = 1; // of what is left empty
#pragma unroll 1
        for (i32 i = 0; i < stages - 1; i++) {
            if (i < all)
                bring(in, at, made + (i64)i * Config::heads, of, thread, first + i * chunk, rows - i * chunk,
                      shared.stage[i]);
            ptx::copy_async_commit();
        }
#pragma unroll 1
        for (i32 i = 0; i <= all; i++) {
            const i32 more = i + stages - 1;
            if (i < all) {
                ptx::copy_async_wait<stages - 2>();
                ptx::fence_async_shared();
                __syncwarp();
                if (Chunk::lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&shared.full[stage]));
            }
            if (i > 0) {
                ptx::mbarrier_wait(ptx::shared_address(&shared.empty[next]), parity);
                store(in, at, thread, first + (i - 1) * chunk, rows - (i - 1) * chunk, shared.stage[next]);
            }
            if (more < all)
                bring(in, at, made + (i64)more * Config::heads, of, thread, first + more * chunk,
                      rows - more * chunk, shared.stage[next]);
            ptx::copy_async_commit();
            stage = stage + 1 == stages ? 0 : stage + 1;
            next = next + 1 == stages ? 0 : next + 1;
            if (next == 0) parity ^= 1;
        }
    }

    // ---- A warpgroup that carries 64 columns ----

    // Bytes of a stage's operands from its first on.
    static constexpr u32 of_q = sizeof(T) * chunk * keys, of_v = of_q + sizeof(T) * asked;
    static constexpr u32 of_high = of_v + sizeof(T) * chunk * slice, of_low = of_high + matrix_bytes;
    static constexpr u32 of_p = of_low + matrix_bytes;

    // The operand `bytes` behind a stage's first sixteenth; the other way round, with keys in rows.
    DEV static u64 operand(u32 stage, u32 bytes) { return ptx::wgmma_descriptor_behind(stage, bytes, 16); }
    DEV static u64 operand_of_rows(u32 stage, u32 bytes)
    {
        return ptx::wgmma_descriptor_behind(stage, bytes, part_bytes);
    }
    DEV static void unpack(const Sum &sum, Tokens &to)
    {
#pragma unroll
        for (i32 i = 0; i < chunk / 2; i++) to[i / 4][i % 4] = sum[i];
    }

    // 64 keys of S, as operands.
    struct Split {
        Operand high[4], low[4];
    };
    DEV static void split(const State &s, i32 part, Split &to)
    {
#pragma unroll
        for (i32 i = 0; i < 4; i++)
            split_results<T>(s[8 * part + 2 * i], s[8 * part + 2 * i + 1], to.high[i], to.low[i]);
    }
    // S^T k^T of them, under way.
    DEV static void see(Split &of, u32 stage, i32 part, Sum &seen)
    {
        pin(of.high), pin(of.low);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            const u64 b = operand(stage, part * part_bytes + 32 * i);
            ptx::Wgmma<T, chunk>::template mma<0>(seen, of.low[i], b, part > 0 || i > 0);
            ptx::Wgmma<T, chunk>::template mma<0>(seen, of.high[i], b, 1);
        }
        ptx::wgmma_commit();
    }
    // S^T q^T.
    DEV static void ask(Split (&of)[halves], u32 stage, Sum &o)
    {
        ptx::wgmma_fence();
#pragma unroll
        for (i32 i = 0; i < keys / 16; i++)
            ptx::Wgmma<T, chunk>::template mma<0>(
                o, of[i / 4].high[i % 4], operand(stage, of_q + i / 4 * part_bytes + i % 4 * 32), i > 0);
        ptx::wgmma_commit();
    }

    // Tokens whose sums are together; those before them, by sixteens, are all that they need.
    static constexpr i32 together = 32;
    typedef float Part[together / 2];
    DEV static Part &part_of(Sum &sum, i32 first) { return reinterpret_cast<Part &>(sum[first / 2]); }
    // N^T, under way.
    DEV static void solve(Operands &high, Operands &low, u32 stage, Sum &n)
    {
        pin(high), pin(low);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 first = 0; first < chunk; first += together)
#pragma unroll
            for (i32 j = 0; j < (first + together) / 16; j++) {
                const u64 b = operand(stage, of_high + 2 * j * eight_rows + 2 * first);
                const u64 c = operand(stage, of_low + 2 * j * eight_rows + 2 * first);
                Part &to = part_of(n, first);
                ptx::Wgmma<T, together>::template mma<1>(to, high[j], c, j > 0);
                ptx::Wgmma<T, together>::template mma<1>(to, low[j], b, 1);
                ptx::Wgmma<T, together>::template mma<1>(to, high[j], b, 1);
            }
        ptx::wgmma_commit();
    }
    DEV static void pack(const Sum &n, Operands &to)
    {
#pragma unroll
        for (i32 i = 0; i < 4 * blocks; i++) to[i / 4][i % 4] = pack2<T>(n[2 * i], n[2 * i + 1]);
    }

    // What is added to S of 64 keys, under way.
    typedef float Change[32];
    DEV static void advance(Operands &high, Operands &low, u32 stage, i32 part, Change &d)
    {
        pin(high), pin(low);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 t = 0; t < blocks; t++) {
            const u64 b = operand_of_rows(stage, part * part_bytes + 2 * t * eight_rows);
            ptx::Wgmma<T, 64>::template mma<1>(d, low[t], b, t > 0);
            ptx::Wgmma<T, 64>::template mma<1>(d, high[t], b, 1);
        }
        ptx::wgmma_commit();
    }
    // The sum is of its own, and then added: tensor cores round what they add to towards 0.
    DEV static void add(State &s, i32 part, Change &d, float all)
    {
        pin(d);
#pragma unroll
        for (i32 i = 0; i < 32; i++) {
            float &to = s[8 * part + i / 4][i % 4];
            to = fmaf(to, all, d[i]);
        }
    }

    // o += N^T P^T, under way.
    DEV static void add_within(Operands &n, u32 stage, Sum &o)
    {
        pin(n), pin(o);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 first = 0; first < chunk; first += together)
#pragma unroll
            for (i32 j = 0; j < (first + together) / 16; j++)
                ptx::Wgmma<T, together>::template mma<0>(
                    part_of(o, first), n[j], operand(stage, of_p + first / 8 * eight_rows + 32 * j), 1);
        ptx::wgmma_commit();
    }

    DEV static void scale(Sum &o, const float *of)
    {
#pragma unroll
        for (i32 t = 0; t < chunk / 8; t++) {
            const Pair w = port::load_pair(&of[8 * t + 2 * (Chunk::lane() % 4)]);
#pragma unroll
            for (i32 i = 0; i < 4; i++) o[4 * t + i] *= i % 2 ? w.b : w.a;
        }
    }

    DEV static void find_values(u32 v, i32 column, Operands &x)
    {
#pragma unroll
        for (i32 t = 0; t < blocks; t++)
            ptx::ldmatrix_transposed(Chunk::Values::matrices(v, 16 * t, column, false), x[t]);
    }

    // beta (v - e^G k S) of what the keys see.
    DEV static void miss(Sum &seen, const Operands &x, const DeltaFactors &of, Operands &high, Operands &low)
    {
        Tokens tokens;
        unpack(seen, tokens);
#pragma unroll
        for (i32 t = 0; t < blocks; t++) Carry::miss(tokens, x[t], of, t, high[t], low[t]);
    }

    // S as operands, and what a chunk's keys see in it.
    struct Seen {
        Split of[halves];
        Sum sum;
    };
    // finish() makes the rest of S, while its first 64 keys are multiplied.
    template <class Finish> DEV static void see_all(State &s, u32 stage, Seen &to, const Finish &finish)
    {
        split(s, 0, to.of[0]);
        see(to.of[0], stage, 0, to.sum);
        finish();
        if constexpr (halves > 1) {
            split(s, 1, to.of[1]);
            see(to.of[1], stage, 1, to.sum);
        }
        ptx::wgmma_wait<0>();
        pin(to.sum);
#pragma unroll
        for (i32 i = 0; i < halves; i++) pin(to.of[i].low);
    }

    // `seen` is of the chunk, and then of the next one: wait_next() waits for its operands, and says where
    // they are. release() lets the chunk go.
    template <class Wait, class Release>
    DEV static void take(State &s, Seen &seen, i32 column, Stage &of, const Wait &wait_next,
                         const Release &release)
    {
        const u32 v = ptx::shared_address(of.v), stage = ptx::shared_address(&of) >> 4;
        const DeltaFactors &made = of.factors;
        Operands x, high, low, weighed_high, weighed_low, packed;
        Tokens tokens;
        Sum n, o;
        Change d;
        if constexpr (Config::o) ask(seen.of, stage, o);
        find_values(v, column, x);
        miss(seen.sum, x, made, high, low);
        solve(high, low, stage, n);
        if constexpr (Config::o) {
            ptx::wgmma_wait<1>();
            pin(o);
#pragma unroll
            for (i32 i = 0; i < halves; i++) pin(seen.of[i].high);
            scale(o, made.q);
        }
        const float all = made.all;
        ptx::wgmma_wait<0>();
        pin(n), pin(high), pin(low);
        unpack(n, tokens);
        Carry::weigh_all(tokens, made.later, weighed_high, weighed_low);
        advance(weighed_high, weighed_low, stage, 0, d);
        if constexpr (Config::o) {
            pack(n, packed);
            add_within(packed, stage, o);
        }
        ptx::wgmma_wait<Config::o>();
        add(s, 0, d, all);
        if constexpr (halves > 1) advance(weighed_high, weighed_low, stage, 1, d);
        if constexpr (Config::o) {
            ptx::wgmma_wait<(halves > 1)>();
            pin(o), pin(packed);
            leave_turned<typename Chunk::Values, T>(o, column, v);
        }
        see_all(s, wait_next(), seen, [&] {
            ptx::wgmma_wait<1>();
            pin(weighed_high), pin(weighed_low);
            release();
            if constexpr (halves > 1) add(s, 1, d, all);
        });
    }

    DEV static void carry(const Tensors &in, const Place &at, u32 first, u32 end, Shared &shared)
    {
        const i32 column = ptx::uniform(threadIdx.x / 32) * 16;
        const bool any = at.sequence < in.sequences;
        State s = {};
        Seen seen;
        if (Config::before && any)
            Carry::load(in.before + at.sequence * in.of_before.batch + at.head * in.of_before.head +
                            at.column + column,
                        in.of_before, s);
        i32 stage = 0;
        u32 parity = 0;
        if (first < end) {
            ptx::mbarrier_wait(ptx::shared_address(&shared.full[0]), 0);
            see_all(s, ptx::shared_address(&shared.stage[0]) >> 4, seen, [] {});
        }
#pragma unroll 1
        for (u32 row = first; row < end; row += chunk) {
            const i32 now = stage;
            stage = stage + 1 == stages ? 0 : stage + 1;
            if (stage == 0) parity ^= 1;
            const bool more = end - row > chunk; // else the last one's keys are seen again, for nobody
            const auto wait_next = [&] {
                if (more) ptx::mbarrier_wait(ptx::shared_address(&shared.full[stage]), parity);
                return ptx::shared_address(&shared.stage[more ? stage : now]) >> 4;
            };
            take(s, seen, column, shared.stage[now], wait_next, [&] {
                __syncwarp();
                if (Chunk::lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&shared.empty[now]));
            });
        }
        if (Config::after && any)
            Carry::store(in.after + at.sequence * in.of_after.batch + at.head * in.of_after.head + at.column +
                             column,
                         in.of_after, s);
    }

    // Rows of no sequence.
    DEV static void clear(const Tensors &in, const Place &at, u32 row, u32 end)
    {
        if constexpr (Config::o && Config::packed)
            for (u32 i = threadIdx.x; i < (end - row) * slice; i += threads)
                in.o[(i64)(row + i / slice) * in.of_o.time + at.head * Config::values + at.column +
                     i % slice] = from_float<T>(0.0f);
    }

    DEV static void begin(Shared &shared)
    {
#pragma unroll
        for (i32 i = 0; i < stages; i++)
#pragma unroll 4
            for (i32 e = threadIdx.x; e < 3 * matrix_bytes / 16; e += threads)
                reinterpret_cast<Piece *>(shared.stage[i].high)[e] = Piece{};
        ptx::fence_async_shared();
        if (threadIdx.x == 0) {
#pragma unroll
            for (i32 i = 0; i < stages; i++) {
                ptx::mbarrier_init(ptx::shared_address(&shared.full[i]), 4);
                ptx::mbarrier_init(ptx::shared_address(&shared.empty[i]), 4 * groups);
            }
            ptx::mbarrier_fence_init();
        }
        __syncthreads();
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        constexpr u32 slices = Config::values / slice;
        const u32 item = block.index(), sequence = item / (Config::heads * slices);
        const Place at = {sequence, (i32)(item / slices % Config::heads), (i32)(item % slices) * slice,
                          Config::packed ? 0 : (i64)sequence};
        SequenceRows of = {(i32)sequence, 0, in.time};
        if constexpr (Config::packed) {
            of.end = 0;
            if (sequence < in.sequences) of = in.packed().rows_of(sequence);
            if (sequence == 0) clear(in, at, 0, of.first);
            if (sequence + 1 >= in.sequences) clear(in, at, of.end, in.time);
        }
        begin(shared);
        if (threadIdx.x < 128 * groups) {
            if constexpr (groups > 1) ptx::grow_registers<carry_registers>();
            carry(in, at, of.first, of.end, shared);
        } else {
            if constexpr (groups > 1) ptx::shrink_registers<other_registers>();
            load(in, at,
                 reinterpret_cast<const Prepared *>(in.decay) +
                     (i64)DeltaParts<Config>::first(in, of) * Config::heads + at.head,
                 of.first, of.end, shared);
        }
    }
};

} // namespace coda
