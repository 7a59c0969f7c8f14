// gemm_sm90_mixed.cuh -- C = A B^T on Hopper for A of 16 bits and B of fewer, packed or not: wgmma's 64 rows
// are rows of B, which consumers decode into registers, and its columns are rows of A.
//
//     producer    a warp: for each tile, each slot of K: boxes of A, and of B for each consumer, by TMA
//     fetchers    a warp for each consumer, as in gemm_sm90.cuh
//     consumers   each has a tile of 64 columns of its own; all of a block read the same rows of A. Batch by
//                 batch: issue the products, decode the next batch meanwhile, wait
//
// Nothing of B is written to shared memory again, which has A to give at wgmma's pace. Where the sums of a
// group have a scale (mixed_operand.cuh), they are added up apart, and promoted when they are complete: as
// with fp8, consumers take turns by themselves, one promotes while the other multiplies. Of more
// than 128 rows of A they are scaled in place (mixed_in_place.cuh).
//
// A consumer's sums lie transposed: a thread has two columns of the output and many rows. They go through
// shared memory, 64 rows at a time, and are then the fragment that the common epilogue drains; unless that
// can be applied where they lie (Config::transposed, mixed_transposed.cuh).
//
// Past the end TMA brings zeros, which are codes and scales, too. Config::bn is a consumer's tile, bm those
// rows of A that it has.
#pragma once

#include "ptx/wgmma.cuh"
#include "tile/block.cuh"
#include "tile/epilogue.cuh"
#include "tile/mixed_batches.cuh"
#include "tile/mixed_groups.cuh"
#include "tile/mixed_in_place.cuh"
#include "tile/mixed_operand.cuh"
#include "tile/mixed_transposed.cuh"
#include "tile/mixed_turned.cuh"
#include "tile/operands.cuh"
#include "tile/pieces.cuh"
#include "tile/resources.cuh"
#include "tile/ring.cuh"

namespace coda {

// What the consumers of a block do together, as a tile.
template <class Config> struct SideBySide : Config {
    static constexpr int bn = Config::groups * Config::bn;
};

template <class Config, class Epilogue, class Block> struct GemmSm90Mixed {
    using Element = typename Config::A;
    using Columns = typename Config::Columns;
    using Args = typename Config::Args;
    using Drain = coda::Drain<Config, Epilogue>;
    using Layout = EpilogueLayout<Config, Epilogue>;
    using Weights = typename Config::Weights;
    using Operand = typename MixedOperandOf<Config, Weights>::Type;
    using Boxes = Operands<Config, ClusterShape<1, 1>>;
    using Walk = Raster<SideBySide<Config>>;
    using Registers = GemmRegisters<Config::groups>;
    using Cursor = RingCursor<Config::stages>;

    static constexpr int groups = Config::groups, threads = 128 * (1 + groups), warps = 4 * groups;
    static constexpr int bk = Config::bk, boxes = bk / 64, steps = (int)((Config::k + bk - 1) / bk);
    static constexpr int batch = Operand::batch, batches = bk / batch, products = batch / 16;
    static constexpr int n = (Config::a_rows + 15) / 16 * 16; // rows of A in a product
    using Deal = Pieces<Config, steps>;
    using Left = LeftSums<Config, steps, n / 2>;
    static constexpr int a_bytes = n * swizzle_row, b_bytes = 4 * Operand::tile_bytes;
    static constexpr bool packed = Operand::align < swizzle_atom, promotes = Operand::promotes;
    // A and B have slots of their own then: A's of 64 k.
    static constexpr bool in_place = Config::in_place;
    static constexpr int a_slots = Config::stages, b_slots = in_place ? a_slots / boxes + 1 : a_slots;
    using InPlace = MixedInPlace<GemmSm90Mixed>;
    static_assert(Config::bn == 64 && Config::pingpong && bk == Operand::bk);
    static_assert(!Config::a_mn_major && !Config::b_mn_major && !Config::tail && Config::splits == 1);

    // So many columns of the transposed sums lie in memory at one time: all, where what is stored has room
    // for them, swizzled; else half of them, padded.
    static constexpr bool turns_in_stage =
        Config::transposed || (Layout::stages && Layout::Own::store_bytes >= 64 * 64 * 4);
    static constexpr int turn_columns = turns_in_stage ? 64 : 32,
                         turn_pitch = turns_in_stage ? 64 : turn_columns + 4;
    struct Shared {
        alignas(swizzle_atom) u8 a[Config::stages][in_place ? 1 : boxes][a_bytes];
        alignas(swizzle_atom) u8 stage[groups][Layout::stage_bytes ? Layout::stage_bytes : 16];
        alignas(Operand::align) u8 b[b_slots][groups][(b_bytes + 127) / 128 * 128];
        alignas(16) float turned[turns_in_stage ? 1 : groups][turns_in_stage ? 1 : 64][turn_pitch];
        u64 full[Config::stages], empty[Config::stages];
        u64 full_b[in_place ? b_slots : 1], empty_b[in_place ? b_slots : 1];
        FetchBarriers fetch[groups];
        typename Drain::Values values[groups];
    };
    static_assert(shared_fits<Shared>(Config::shared_bytes));

    const Args &args;
    Shared &s;
    const Block &block;

    DEV static u32 address(const void *p) { return ptx::shared_address(p); }
    DEV Walk walk() const { return {args}; }
    DEV Deal pieces() const { return Deal::of(block, walk().count()); }
    // Whose epilogue it is.
    DEV static bool owns(const Piece &p) { return p.first == 0; }
    // The tile of a consumer. It may lie past the end.
    DEV Tile tile_of(const Tile &t, int group) const
    {
        return {t.batch, t.m, t.n * groups + group, t.first + group * Config::bn, Config::bn};
    }
    DEV static bool exists(const Tile &t) { return t.first < (int)Config::n; }

    DEV typename Layout::Stage stage_of(int group) const
    {
        return {address(&s.fetch[group]), address(s.stage[group])};
    }
    DEV Drain drain_of(int group) const { return Drain(args, s.values[group], group, stage_of(group)); }

    DEV void init() const
    {
        if (threadIdx.x == 0) {
            ptx::tma_prefetch_map(&args.a);
            ptx::tma_prefetch_map(&args.b);
            for (int i = 0; i < Config::stages; i++) {
                ptx::mbarrier_init(address(&s.full[i]), 1);
                ptx::mbarrier_init(address(&s.empty[i]), warps);
            }
            if constexpr (in_place)
                for (int i = 0; i < b_slots; i++) {
                    ptx::mbarrier_init(address(&s.full_b[i]), 1);
                    ptx::mbarrier_init(address(&s.empty_b[i]), warps);
                }
            if constexpr (Layout::fetches)
                for (int i = 0; i < groups; i++) stage_of(i).fetched().init();
            ptx::mbarrier_fence_init();
            ptx::fence_async_shared();
        }
        __syncthreads();
    }

    // ---- Producer, a warp ----

    // Gate and up that are neighbours are not taken apart: see column_of.
    static constexpr bool by_turns = packed && Columns::step == 2;

    // A lane has a consumer's part.
    DEV void load_b(int slot, int step, const Tile &t) const
    {
        const u32 bar = address(in_place ? &s.full_b[slot] : &s.full[slot]);
        const int lane = threadIdx.x % 32;
        if (lane >= groups) return;
        if constexpr (packed) load_records(address(s.b[slot][lane]), bar, step, tile_of(t, lane));
        else Boxes{args, 0}.load_b(address(s.b[slot][lane]), bar, step * bk, tile_of(t, lane));
    }
    // Row blocks of a tile are neighbours, or those of gate and up, or of both halves of a part of a head.
    DEV void load_records(u32 to, u32 bar, int step, const Tile &t) const
    {
        constexpr int pieces = (Weights::bytes / 8 + 255) / 256; // of a record, of 256 words at most
        const int k = step * (bk / Weights::step) * pieces;
        if constexpr (Columns::split) {
            const int part = t.first / 64, head = part / Columns::pieces;
            box(to, bar, k, part % Columns::pieces * 2, 2 * head, t);
        } else if constexpr (Columns::gated && !by_turns) box(to, bar, k, t.first / 32, 0, t);
        else box(to, bar, k, t.first / 16, 0, t);
    }
    // Batches are a dimension of the map, where there are several.
    DEV void box(u32 to, u32 bar, int k, int block, int half, const Tile &t) const
    {
        const Boxes operands = {args, 0};
        if constexpr (Config::b_batched) operands.b_box(to, bar, 0, k, block, half, t.batch);
        else operands.b_box(to, bar, 0, k, block, half);
    }
    DEV void load_a(int slot, int step, const Tile &t) const
    {
        if (threadIdx.x % 32 < boxes)
            Boxes{args, 0}.load_a(address(s.a[slot][threadIdx.x % 32]), address(&s.full[slot]),
                                  step * bk + 64 * (threadIdx.x % 32), t);
    }
    DEV void expect(int slot) const
    {
        const Boxes operands = {args, 0};
        if (threadIdx.x % 32 == 0)
            ptx::mbarrier_arrive_expect(address(&s.full[slot]),
                                        boxes * operands.a_rows() * swizzle_row + groups * b_bytes);
        __syncwarp();
    }

    // The first slots' part of B does not wait for the kernel ahead, if that does not write it: that of a few
    // slots, since the first rows of A, which all wait for, come behind it.
    static constexpr int most_early = 2, early_slots = a_slots < most_early ? a_slots : most_early;
    DEV void produce() const
    {
        Deal pieces = this->pieces();
        int done = 0;
        if (Config::early && pieces.more()) {
            const Piece p = Deal(pieces).next();
            const Tile t = walk().tile(p.tile);
            ptx::grid_wait_not();
            for (; done < early_slots && p.first + done < p.last; done++) {
                expect(done);
                load_b(done, p.first + done, t);
            }
        }
        ptx::grid_wait();
        Cursor at = Cursor::producer();
        for (; pieces.more(); done = 0) {
            const Piece p = pieces.next();
            const Tile t = walk().tile(p.tile);
#pragma unroll 1
            for (int step = p.first; step < p.last; step++, at.next()) {
                if (step - p.first >= done) {
                    ptx::mbarrier_wait(address(&s.empty[at.slot]), at.parity);
                    expect(at.slot);
                    load_b(at.slot, step, t);
                }
                load_a(at.slot, step, t);
            }
        }
    }

    // A warp beside each consumer says that its sums are there, if it leaves some, and fetches.
    DEV void assist(int group) const
    {
        if constexpr (Config::dealt) {
            Deal pieces = this->pieces();
            Piece p = {0, 0, steps};
            for (bool first = true; pieces.more(); first = false) {
                p = pieces.next();
                if (first && !owns(p) && has(p, group)) left(group).raise_flag(Deal::place(block));
            }
            if (announces && owns(p) && p.last < steps && has(p, group))
                left(group).announce(Deal::place(block), end_of(p), walk().count());
        }
        if constexpr (Layout::fetches)
            if (ptx::elect_one()) fetch(group);
    }
    // Only the last piece may be one that others have left sums of. Who fetches has no time to await them.
    static constexpr bool announces = !Layout::fetches;
    DEV bool has(const Piece &p, int group) const { return exists(tile_of(walk().tile(p.tile), group)); }
    DEV static u32 end_of(const Piece &p) { return (p.tile + 1) * Deal::pairs; }
    DEV Left left(int group) const
    {
        if constexpr (Config::dealt) return {args.scratch, group};
        else return {};
    }

    // What a consumer's epilogue reads, in the order in which it walks it.
    DEV void fetch(int group) const
    {
        const auto ring = stage_of(group).fetched();
        u32 turn = 0;
#pragma unroll 1
        for (Deal pieces = this->pieces(); pieces.more();) {
            const Piece p = pieces.next();
            if (!owns(p)) continue;
            const Tile t = tile_of(walk().tile(p.tile), group);
#pragma unroll 1
            for (int u = 0; u < Layout::units; u++) {
                const auto to = ring.unit(turn, u);
                ring.expect(to);
                const int column = Layout::out_first(t) + u % Layout::chunks * Layout::chunk_columns,
                          row = t.m * Config::bm + u / Layout::chunks * 64;
                Layout::Fetched::each([&](auto, int i, int before) {
                    ptx::tma_load(to.buffer + before * Layout::chunk_byte, &args.fetched[i], to.full, column,
                                  row, t.batch);
                });
            }
            turn++;
        }
    }

    // ---- Consumers ----

    using Sums = float[n / 2];
    using Fragment = float[Layout::blocks][Config::bn / 2];
    using Fragments = typename Operand::Fragments;

    DEV Operand operand(int slot, int group) const
    {
        return {s.b[slot][group] + threadIdx.x / 32 % 4 * Operand::tile_bytes};
    }
    DEV void await(const Cursor &at) const { ptx::mbarrier_wait(address(&s.full[at.slot]), at.parity); }
    // What product p of a slot multiplies weights by.
    DEV u64 rows_of_a(int slot, int p) const
    {
        return ptx::wgmma_descriptor(address(s.a[slot][p / 4]), box_bytes, swizzle_atom) +
               p % 4 * 32 / descriptor_unit;
    }
    // The batch that begins at k of the slot, as one group of products.
    DEV void issue(Sums &sum, Fragments &b, int slot, int k, bool accumulate) const
    {
        pin(b);
        const u64 a = rows_of_a(slot, k / 16);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < products * Operand::parts; i++) {
            const int q = i / Operand::parts;
            ptx::Wgmma<typename Config::A, n>::template mma<0>(
                sum, b[i % Operand::parts][q], a + q * 32 / descriptor_unit, accumulate || i > 0);
        }
        ptx::wgmma_commit();
    }
    // A thread has two rows of B: those of accumulators 0, 1 and 2, 3 of each four.
    DEV static void promote(Sums &sum, const Sums &part, const float (&factor)[2])
    {
#pragma unroll
        for (int i = 0; i < n / 2; i++) sum[i] = fmaf(factor[i / 2 % 2], part[i], sum[i]);
    }

    // Consumers issue their batches as they come. In turns, as attention's warpgroups do, they were slower:
    // f8e4m3, 22016 x 4096, took 256 rows 93 us instead of 84 on an H200, and 2048 rows 605 instead of 555.
    DEV void multiply(Sums &sum, Cursor &at, int group, int slots) const
    {
        await(at);
#pragma unroll
        for (int i = 0; i < n / 2; i++) sum[i] = 0;
        if constexpr (Operand::by_products) MixedGroups<GemmSm90Mixed>{*this, group}.multiply(sum, at, slots);
        else MixedBatches<Config, GemmSm90Mixed>{*this, group}.multiply(sum, at, slots);
    }
    // Here they are complete: what makes them is mixed with no other batch's products, or ptxas would let
    // these run one by one (C7513).
    DEV static void pin(u32 (&b)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) b[i] = (u32)ptx::opaque((int)b[i]);
    }
    DEV static void pin(Fragments &b)
    {
#pragma unroll
        for (int i = 0; i < Operand::parts * products * 4; i++) {
            u32 &x = b[i / (products * 4)][i / 4 % products][i % 4];
            x = (u32)ptx::opaque((int)x);
        }
    }
    // Each warp has read its part of B.
    DEV void release(int slot) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(address(&s.empty[slot]));
    }

    DEV void consume(int group) const
    {
        Cursor at = Cursor::consumer();
        auto at_b = RingCursor<b_slots>::consumer();
        ptx::grid_wait();
        if constexpr (in_place) InPlace{*this, group}.begin();
        u32 turn = 0;
        for (Deal pieces = this->pieces(); pieces.more();) {
            const Piece p = pieces.next();
            const Tile t = tile_of(walk().tile(p.tile), group);
            Sums sum;
            if (owns(p) && exists(t)) drain_of(group).prepare(t);
            if constexpr (in_place) InPlace{*this, group}.multiply(sum, at, at_b, p.last - p.first);
            else multiply(sum, at, group, p.last - p.first);
            if constexpr (Config::dealt) {
                if (exists(t)) meet(sum, p, group);
                if (!owns(p)) continue;
            }
            if (exists(t)) drain(sum, t, group, turn);
            else drain_of(group).skip(turn);
            turn = ptx::opaque(turn + 1);
        }
        if constexpr (in_place) InPlace{*this, group}.end();
        if (Layout::stages && threadIdx.x % 32 == 0) ptx::tma_store_wait<0>();
    }
    DEV void drain(const Sums &sum, const Tile &t, int group, u32 turn) const
    {
        if constexpr (Config::transposed) TransposedDrain<Config, Epilogue>{drain_of(group)}.store(sum, t);
        else {
            Fragment out;
            MixedTurned<GemmSm90Mixed>{*this, group}.turn(sum, out);
            drain_of(group).drain(out, t, turn);
        }
    }
    // Leaves the sums of a piece, or makes them those of the tile.
    DEV void meet(Sums &sum, const Piece &p, int group) const
    {
        const u32 place = Deal::place(block);
        if (!owns(p)) left(group).leave(sum, place);
        else if (p.last < steps) left(group).template add<announces>(sum, place, end_of(p), walk().count());
    }

    DEV void run() const
    {
        const int warp = ptx::uniform(threadIdx.x / 32), group = warp / 4;
        init();
        ptx::grid_launch_next();
        if (group == 0) {
            ptx::shrink_registers<Registers::producer>();
            if (warp == 0) {
                if constexpr (in_place) InPlace{*this, 0}.template produce<Config::early>();
                else produce();
            }
            if (warp > 0 && warp <= groups) {
                ptx::grid_wait();
                assist(warp - 1);
            }
        } else {
            ptx::grow_registers<Registers::consumer>();
            consume(group - 1);
        }
    }
};

template <class Config, class Epilogue, class Block>
DEV void gemm_sm90_mixed(const typename Config::Args &args, const Block &block)
{
    using Gemm = GemmSm90Mixed<Config, Epilogue, Block>;
    Gemm{args, *(typename Gemm::Shared *)block.shared(), block}.run();
}

} // namespace coda
