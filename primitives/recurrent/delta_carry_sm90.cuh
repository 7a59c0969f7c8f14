// delta_carry_sm90.cuh -- the warpgroups of delta_chunks_sm90.cuh that carry states, 64 columns each, and
// the memory through which others serve them. No warp hands anything on to another one that carries. While
// q S is multiplied the warpgroup is at N, and while P N is, at the state behind the chunk, of which the
// next chunk's keys see each half as soon as it is there. T and P are 0 above their diagonals, so that
// products of 32 columns are six of eight.
//
// Config: as delta_chunks_sm90.cuh has it.
#pragma once
#include "attention/fragment.cuh"
#include "ptx/barrier.cuh"
#include "ptx/wgmma.cuh"
#include "recurrent/delta_prepare.cuh"

namespace coda {

template <class Config> struct DeltaCarrySm90 {
    typedef DeltaChunk<Config> Chunk;
    typedef DeltaCarry<Config> Carry;
    typedef DeltaTensors<Config> Tensors;
    typedef DeltaPrepared<Chunk, Config::with_p> Prepared;
    typedef typename Prepared::Numbers Numbers;
    typedef typename Chunk::T T;
    typedef typename Chunk::Piece Piece;
    typedef typename Carry::State State;
    typedef typename Carry::Tokens Tokens;
    typedef typename Carry::Operands Operands;
    typedef float Sum[Chunk::chunk / 2]; // of 64 values and a chunk's tokens
    static constexpr i32 halves = Chunk::keys / 64;
    static constexpr i32 keys = Chunk::keys, chunk = Chunk::chunk, blocks = Chunk::blocks;
    static constexpr i32 slice = Config::slice, groups = slice / 64, stages = Config::ring;
    static constexpr bool makes_p = Config::o && !Config::with_p; // who brings operands does
    static constexpr i32 threads = 128 * (groups + 1);
    // Where there are three warpgroups.
    static constexpr i32 carry_registers = makes_p ? 208 : 224, other_registers = makes_p ? 88 : 56;
    static constexpr i32 matrix_bytes = sizeof(T) * chunk * chunk;
    static constexpr i32 eight_rows = 1024, part_bytes = Chunk::Keys::part_bytes;
    static_assert(slice % 64 == 0 && stages >= 2 && Chunk::Keys::row_bytes == 128);

    static constexpr i32 asked = Config::o ? chunk * keys : 512; // elements of q
    struct alignas(1024) Stage {
        T k[chunk * keys], q[asked], v[chunk * slice];               // then o
        T high[chunk * chunk], low[chunk * chunk], p[chunk * chunk]; // with zeros
        Numbers numbers;
    };
    struct Shared {
        Stage stage[stages];
        u64 full[stages], empty[stages], asked[stages];
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    struct Place {
        u32 sequence;
        i32 head, column; // the first of the slice
        i64 batch;
    };
    // A slice of a head's state of a sequence, of which a block has one after the other.
    struct Item {
        Place at;
        SequenceRows of;

        DEV i32 chunks() const { return (i32)(of.end - of.first + chunk - 1) / chunk; }
    };
    static constexpr u32 slices = Config::values / slice;
    DEV static u32 items(const Tensors &in)
    {
        return (in.sequences > 0 ? in.sequences : 1) * Config::heads * slices;
    }
    DEV static Item item(const Tensors &in, u32 index)
    {
        const u32 sequence = index / (Config::heads * slices);
        Item it = {{sequence, (i32)(index / slices % Config::heads), (i32)(index % slices) * slice,
                    Config::packed ? 0 : (i64)sequence},
                   {(i32)sequence, 0, in.time}};
        if constexpr (Config::packed) {
            it.of.end = 0;
            if (sequence < in.sequences) it.of = in.packed().rows_of(sequence);
        }
        return it;
    }

    // A chunk's place among `stages`, and whether others have been there an odd number of times.
    struct Slot {
        i32 at = 0;
        u32 parity = 0;
        DEV void next()
        {
            at = at + 1 == stages ? 0 : at + 1;
            if (at == 0) parity ^= 1;
        }
    };
    DEV static void wait(u64 (&bar)[stages], const Slot &slot)
    {
        ptx::mbarrier_wait(ptx::shared_address(&bar[slot.at]), slot.parity);
    }
    DEV static void arrive(u64 (&bar)[stages], const Slot &slot)
    {
        __syncwarp();
        if (Chunk::lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&bar[slot.at]));
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
    DEV static void miss(Sum &seen, const Operands &x, const Numbers &of, Operands &high, Operands &low)
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

    // Registers are few where others make P: there numbers are found once more rather than kept.
    DEV static i32 found_again(i32 column) { return makes_p ? ptx::opaque(column) : column; }

    // `seen` is of the chunk, and then of the next one: wait_next() waits for its operands, and says where
    // they are, wait_asked() for the chunk's P. release() lets the chunk go.
    template <class WaitAsked, class Wait, class Release>
    DEV static void take(State &s, Seen &seen, i32 column, Stage &of, const WaitAsked &wait_asked,
                         const Wait &wait_next, const Release &release)
    {
        const u32 v = ptx::shared_address(of.v), stage = ptx::shared_address(&of) >> 4;
        const Numbers &made = of.numbers;
        Operands x, high, low, weighed_high, weighed_low, packed;
        Tokens tokens;
        Sum n, o;
        Change d;
        if constexpr (Config::o) ask(seen.of, stage, o);
        find_values(v, found_again(column), x);
        miss(seen.sum, x, made, high, low);
        solve(high, low, stage, n);
        if constexpr (Config::o) {
            ptx::wgmma_wait<1>();
            pin(o);
#pragma unroll
            for (i32 i = 0; i < halves; i++) pin(seen.of[i].high);
            wait_asked();
            scale(o, factors_of_q(made));
        }
        const float kept = makes_p ? 0.0f : made.all;
        const auto all = [&] { return makes_p ? made.all : kept; };
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
        add(s, 0, d, all());
        if constexpr (halves > 1) advance(weighed_high, weighed_low, stage, 1, d);
        if constexpr (Config::o) {
            ptx::wgmma_wait<(halves > 1)>();
            pin(o), pin(packed);
            leave_turned<typename Chunk::Values, T>(o, found_again(column), v);
        }
        see_all(s, wait_next(), seen, [&] {
            ptx::wgmma_wait<1>();
            pin(weighed_high), pin(weighed_low);
            if constexpr (!makes_p) release();
            if constexpr (halves > 1) add(s, 1, d, all());
            if constexpr (makes_p) release();
        });
    }

    // Its chunks are those from slot `now` on.
    DEV static void carry(const Tensors &in, const Item &it, Slot &now, Shared &shared)
    {
        const Place &at = it.at;
        const i32 column = ptx::uniform(threadIdx.x / 32) * 16;
        const bool any = at.sequence < in.sequences;
        State s = {};
        Seen seen;
        if (Config::before && any)
            Carry::load(in.before + at.sequence * in.of_before.batch + at.head * in.of_before.head +
                            at.column + column,
                        in.of_before, s);
        if (it.of.first < it.of.end) {
            wait(shared.full, now);
            see_all(s, ptx::shared_address(&shared.stage[now.at]) >> 4, seen, [] {});
        }
#pragma unroll 1
        for (u32 row = it.of.first; row < it.of.end; row += chunk) {
            const Slot of = now;
            now.next();
            const bool more = it.of.end - row > chunk; // else the last one's keys are seen again, for nobody
            const auto wait_asked = [&] {
                if constexpr (makes_p) wait(shared.asked, of);
            };
            const auto wait_next = [&] {
                if (more) wait(shared.full, now);
                return ptx::shared_address(&shared.stage[more ? now.at : of.at]) >> 4;
            };
            take(s, seen, column, shared.stage[of.at], wait_asked, wait_next,
                 [&] { arrive(shared.empty, of); });
        }
        if (Config::after && any)
            Carry::store(in.after + at.sequence * in.of_after.batch + at.head * in.of_after.head + at.column +
                             column,
                         in.of_after, s);
    }
    template <class Block> DEV static void carry_all(const Block &block, const Tensors &in, Shared &shared)
    {
        Slot now;
#pragma unroll 1
        for (u32 index = block.index(); index < items(in); index += block.count())
            carry(in, item(in, index), now, shared);
    }
};

} // namespace coda
