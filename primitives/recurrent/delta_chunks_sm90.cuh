// delta_chunks_sm90.cuh -- the gated delta rule by chunks on Hopper, where delta_prepare.cuh has left T of
// all chunks, and perhaps P: what is left depends on states. A warpgroup (delta_carry_sm90.cuh) has 64
// columns of a head's, in registers, in fp32, from the first chunk to the last, and makes all products by
// wgmma, transposed as delta_chunks.cuh has them: the results of one are the operand of the next. Four more
// warps bring what comes next, make P if that is not prepared, and store o. A block takes one item after
// the other, of which the next one's operands come while the last one is at work.
//
// What is prepared lies in the place of `decay`.
//
// Whoever writes an element of `after` has read it of `before`: both may be one memory.
//
// Config: as delta.cuh has it, of T bf16, by_row false; i32 slice (columns of a block, 64 or 128), ring
// (chunks whose operands are there, or come); bool with_p (P is prepared).
#pragma once
#include "recurrent/delta_carry_sm90.cuh"

namespace coda {

template <class Config> struct DeltaChunksSm90 : DeltaCarrySm90<Config> {
    typedef DeltaCarrySm90<Config> Base;
    typedef DeltaPrepare<Config> Prepare;
    typedef DeltaRead<Config> Read;
    typedef typename Base::Chunk Chunk;
    typedef typename Base::Tensors Tensors;
    typedef typename Base::Prepared Prepared;
    typedef typename Base::Numbers Numbers;
    typedef typename Base::T T;
    typedef typename Base::Piece Piece;
    typedef typename Base::Place Place;
    typedef typename Base::Item Item;
    typedef typename Base::Stage Stage;
    typedef typename Base::Slot Slot;
    typedef typename Base::Shared Shared;
    using Base::halves, Base::keys, Base::chunk, Base::slice, Base::groups, Base::stages, Base::threads;
    using Base::items, Base::item, Base::wait, Base::arrive;
    using Base::makes_p, Base::matrix_bytes, Base::part_bytes, Base::shared_bytes;

    // ---- Warps that bring operands ----

    typedef DeltaPieces<Chunk> Pieces;
    static constexpr i32 number_pieces = sizeof(Numbers) / 16;
    DEV static void bring_made(const Prepared *made, const Pieces &of, Stage &to)
    {
        const u32 at = ptx::shared_address(to.high);
        const Piece *const from = reinterpret_cast<const Piece *>(made) + of.thread;
#pragma unroll
        for (i32 i = 0; i < of.own; i++) {
            if (!of.has(i)) continue;
            ptx::copy_async<16>(at + of.t[i], from + of.threads * i, 16);
            ptx::copy_async<16>(at + matrix_bytes + of.t[i], from + Prepared::pieces + of.threads * i, 16);
            if constexpr (Config::o && Config::with_p)
                ptx::copy_async<16>(at + 2 * matrix_bytes + of.p[i],
                                    reinterpret_cast<const Piece *>(made->p) + of.piece(i), 16);
        }
#pragma unroll
        for (i32 i = 0; i < (number_pieces + 127) / 128; i++) {
            const i32 piece = of.thread + 128 * i;
            if (piece < number_pieces)
                ptx::copy_async<16>(ptx::shared_address(&to.numbers) + 16 * piece,
                                    reinterpret_cast<const Piece *>(&made->numbers) + piece, 16);
        }
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
    // ---- A warpgroup that makes P ----

    // P of a chunk that is there.
    typedef float Products[chunk / 2];
    DEV static void make_p(i32 warp, Stage &of)
    {
        const u32 k = ptx::shared_address(of.k) >> 4, q = ptx::shared_address(of.q);
        Products d;
        float square[2] = {}, factor[2], before[2];
        pin(d);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 i = 0; i < halves; i++)
            ptx::Wgmma<T, chunk>::template mma<0, 0>(d,
                                                     ptx::wgmma_descriptor_behind(q >> 4, i * part_bytes, 16),
                                                     ptx::wgmma_descriptor_behind(k, i * part_bytes, 16), i);
        ptx::wgmma_commit();
        if constexpr (Config::norm)
#pragma unroll
            for (i32 i = 0; i < keys / 16; i++) {
                Operand x;
                ptx::ldmatrix(Chunk::Keys::matrices(q, 16 * warp, 16 * i, true), x);
                Chunk::add_squares(x, square);
            }
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = Prepare::row(warp, h);
            factor[h] = Config::scale * Chunk::finish_length(square[h]);
            before[h] = factor[h] * of.numbers.within[t];
            if (Chunk::lane() % 4 == 0) of.numbers.grown[t] *= factor[h];
        }
        ptx::wgmma_wait<0>();
        pin(d);
        Prepare::each_block(
            warp, d,
            [&](const float(&sum)[2][4], i32 j) {
                Read::template weigh<false>(warp, j, sum, before, of.numbers, of.p);
            },
            [&](const float(&sum)[2][4]) {
                Read::template weigh<true>(warp, warp, sum, factor, of.numbers, of.p);
            });
        ptx::fence_async_shared();
    }
    DEV static void make_chunk(i32 warp, const Slot &slot, Shared &shared)
    {
        wait(shared.full, slot);
        make_p(ptx::opaque(warp), shared.stage[slot.at]);
        arrive(shared.asked, slot);
    }

    // A chunk of the block's, item by item.
    struct Cursor {
        u32 index, step, all; // of items
        u32 row;              // the chunk's first
        const Prepared *made;
        Item it;

        DEV Cursor(const Tensors &in, u32 first, u32 blocks) : index(first), step(blocks), all(items(in))
        {
            begin(in);
        }
        DEV bool there() const { return index < all; }
        DEV i32 rows() const { return (i32)(it.of.end - row); }
        // At an item's first chunk, of one that has any.
        DEV void begin(const Tensors &in)
        {
            for (; there(); index += step) {
                it = item(in, index);
                row = it.of.first;
                made = reinterpret_cast<const Prepared *>(in.decay) +
                       (i64)DeltaParts<Config>::first(in, it.of) * Config::heads + it.at.head;
                if (row < it.of.end) break;
            }
        }
        DEV void next(const Tensors &in)
        {
            if (rows() > chunk) row += chunk, made += Config::heads;
            else index += step, begin(in);
        }
    };
    // A chunk is handed on while the one before, of which o is left, makes room for one behind it.
    template <class Block> DEV static void load(const Block &block, const Tensors &in, Shared &shared)
    {
        const i32 thread = threadIdx.x - 128 * groups;
        const Pieces of(thread);
        Cursor ahead(in, block.index(), block.count()), behind = ahead;
        Slot front, now, back;
        i32 under_way = 0;
        const auto bring_next = [&] {
            if (ahead.there()) {
                bring(in, ahead.it.at, ahead.made, of, thread, ahead.row, ahead.rows(),
                      shared.stage[front.at]);
                ahead.next(in), front.next(), under_way++;
            }
            ptx::copy_async_commit();
        };
#pragma unroll 1
        for (i32 i = 0; i < stages - 1; i++) bring_next();
#pragma unroll 1
        for (bool first = true;; first = false) {
            const bool there = under_way > 0;
            if (there) {
                ptx::copy_async_wait<stages - 2>();
                ptx::fence_async_shared();
                arrive(shared.full, now);
                if constexpr (makes_p) make_chunk(ptx::uniform(threadIdx.x / 32) % 4, now, shared);
                now.next(), under_way--;
            }
            if (!first) {
                wait(shared.empty, back);
                store(in, behind.it.at, thread, behind.row, behind.rows(), shared.stage[back.at]);
                behind.next(in), back.next();
            }
            if (!there) break;
            bring_next();
        }
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
                ptx::mbarrier_init(ptx::shared_address(&shared.asked[i]), 4);
            }
            ptx::mbarrier_fence_init();
        }
        __syncthreads();
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        if constexpr (Config::packed)
            for (u32 index = block.index(); index < items(in); index += block.count()) {
                const Item it = item(in, index);
                if (it.at.sequence == 0) clear(in, it.at, 0, it.of.first);
                if (it.at.sequence + 1 >= in.sequences) clear(in, it.at, it.of.end, in.time);
            }
        begin(shared);
        if (threadIdx.x < 128 * groups) {
            if constexpr (groups > 1) ptx::grow_registers<Base::carry_registers>();
            Base::carry_all(block, in, shared);
        } else {
            if constexpr (groups > 1) ptx::shrink_registers<Base::other_registers>();
            load(block, in, shared);
        }
    }
};

} // namespace coda
