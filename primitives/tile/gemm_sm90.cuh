// gemm_sm90.cuh -- C = A B^T on Hopper: TMA ring, wgmma, one producer and Config::groups consumer warpgroups.
//
//     producer    for each tile, each slot of K, 64 of 16 bits or 128 of fp8: wait until it is empty, load
//                 A's and B's box into it; the first slots before warps take their roles
//     fetchers    a warp for each consumer: the tiles that its epilogue reads, ahead of it (fetch.cuh); the
//                 producer, where slots are lent
//     consumers   for each tile, each slot: wait until it is full, issue its products, release the slot
//                 before it; then drain the accumulators
//
// Persistent: block b takes tiles b, b + grid, ... Cooperative consumers split the rows of each tile.
// Ping-pong consumers take whole tiles in turn: one drains while the other multiplies.
//
// The ring may lend slots to the epilogue (Config::lends, see lent.cuh): if no block has a second tile
// (Config::once), or if consumers cooperate, so that the next tile's products wait for the epilogue anyway.
//
// Tail: the last tiles of each row may be narrower (raster.cuh). Their products are, and of what the epilogue
// would drain of a wide tile it skips what they do not have.
//
// Few rows: one consumer, and two blocks on an SM, so that one's weights arrive while the other drains.
// Only those of A's rows that exist are loaded, by eights (operands.cuh). Products read on, past these:
// garbage, in rows that do not exist.
//
// Few tiles: the Config::splits blocks of a cluster take a part of K each of one tile, and their sums meet
// (split.cuh). A block drains what Share describes: a share of the tile's columns; without splits that is
// Config.
//
// Clusters otherwise: the tiles of a Cluster are neighbours, and what they share of A or B is loaded once
// (operands.cuh). So a slot is empty when the consumers of all have released it, and full when the parts of
// all have come. A tile past the end is multiplied, as zeros, not drained.
#pragma once

#include "ptx/wgmma.cuh"
#include "tile/block.cuh"
#include "tile/epilogue.cuh"
#include "tile/operands.cuh"
#include "tile/promotion.cuh"
#include "tile/resources.cuh"
#include "tile/ring.cuh"
#include "tile/split.cuh"

namespace coda {

// The products of a slot, bk of K, four of wgmma. promotes: their sums are added to others apart.
template <class Config> struct Products16 {
    static constexpr int bk = swizzle_row / 2;
    static constexpr bool promotes = false;

    template <int n> DEV static void issue(float (&d)[n / 2], u64 a, u64 b, bool accumulate)
    {
        ptx::Wgmma<typename Config::T, n>::template mma<Config::a_mn_major, Config::b_mn_major>(d, a, b,
                                                                                                accumulate);
    }
};

template <class Config, class Epilogue, class Share, class Cluster, class Products, class Block>
struct GemmSm90 {
    using Columns = typename Config::Columns;
    using Drain = coda::Drain<Share, Epilogue>;
    using Layout = EpilogueLayout<Share, Epilogue>;
    using Args = typename Config::Args;

    static constexpr int threads = 128 * (1 + Config::groups);
    static constexpr int bk = Products::bk, steps = (int)((Config::k + bk - 1) / bk);
    static constexpr int a_bytes = Operands<Config, Cluster>::a_bytes,
                         b_bytes = Operands<Config, Cluster>::b_bytes;
    static constexpr int blocks = Layout::blocks; // of 64 rows, for each warpgroup
    static constexpr int cluster = Config::splits * Cluster::size;
    static constexpr bool fetches = Layout::fetches && !Config::lends; // by warps of their own
    using Registers = GemmRegisters<Config::groups, Config::leaves_warp>;
    using Walk = Raster<Config, Cluster>;
    using Split = SplitSums<Config, Share, blocks>;
    static_assert(!Config::pingpong || (Config::groups == 2 && Config::splits == 1));
    static_assert(Config::splits == 1 || Cluster::size == 1);
    static_assert(!Config::tail || (cluster == 1 && !Config::lends));
    static_assert(!Config::lends || (cluster == 1 && (Config::once || !Config::pingpong)));
    static_assert(Config::bm * swizzle_row <=
                  a_bytes + Config::stages * b_bytes); // the last slot's products read on

    struct Shared {
        alignas(swizzle_atom) u8 a[Config::stages][a_bytes];
        u8 b[Config::stages][b_bytes];
        u8 stage[Config::groups][Layout::stage_bytes ? Layout::stage_bytes : 16];
        u64 full[Config::stages], empty[Config::stages], turn[Split::scattered ? 1 + Config::groups : 2];
        FetchBarriers fetch[Config::groups];
        typename Drain::Values values[Config::groups];
    };
    static_assert(shared_fits<Shared>(Config::shared_bytes));

    using Cursor = RingCursor<Config::stages>;

    DEV static int rank() { return Config::splits == 1 ? 0 : (int)ptx::cluster_rank(); }
    // The number of this block's tile among those of its cluster.
    DEV int place() const { return Cluster::size == 1 ? 0 : block.index() % Cluster::size; }
    // The part of K that this block multiplies, in slots. It may be empty.
    struct Part {
        int first, last;
    };
    DEV static Part part()
    {
        if constexpr (Config::splits == 1) return {0, steps};
        return {rank() * steps / Config::splits, (rank() + 1) * steps / Config::splits};
    }
    // A consumer's tiles, by turn: every second one of the block's in ping-pong, else all.
    DEV static u32 nth(int group, u32 turn) { return Config::pingpong ? 2 * turn + group : turn; }
    DEV u32 tile_of(int group, u32 turn) const
    {
        return block.index() / cluster + nth(group, turn) * (block.count() / cluster);
    }

    const Args &args;
    Shared &s;
    const Block &block;

    DEV Walk walk() const { return {args}; }
    // Computes which tile comes first, if there is one, then waits for the kernel ahead of this one.
    DEV Tile tile_after_wait(u32 index) const
    {
        const Tile t = walk().tile(index < walk().count() ? index : 0, place());
        ptx::grid_wait_knowing(t.m | t.n);
        return t;
    }

    DEV static u32 address(const void *p) { return ptx::shared_address(p); }

    // Thread 0, the producer, makes the barriers and goes ahead of the others. Blocks of a cluster send to
    // each other, so there all threads meet first.
    DEV void init(int warp) const
    {
        if (threadIdx.x == 0) {
            ptx::tma_prefetch_map(&args.a);
            ptx::tma_prefetch_map(&args.b);
            for (int i = 0; i < Config::stages; i++) {
                ptx::mbarrier_init(address(&s.full[i]), 1);
                ptx::mbarrier_init(address(&s.empty[i]),
                                   (Config::pingpong ? 1 : Config::groups) * Cluster::size);
            }
            if constexpr (Split::scattered) init_exchange();
            else
                for (int i = 0; i < 2; i++) ptx::mbarrier_init(address(&s.turn[i]), 128);
            if constexpr (fetches)
                for (int i = 0; i < Config::groups; i++) stage_of(i).fetched().init();
            ptx::mbarrier_fence_init();
            ptx::fence_async_shared(); // TMA counts there before anybody has met
        }
        __syncwarp();
        if constexpr (Cluster::size > 1) meet_cluster();
        else if (warp > 0) ptx::named_barrier(barrier_block, threads);
        else {
            ptx::named_arrive(barrier_block, threads);
            if (threadIdx.x == 0) prime();
            __syncwarp();
        }
        if constexpr (Split::scattered) ptx::cluster_arrive_relaxed();
    }
    DEV static void meet_cluster()
    {
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }

    // ---- Producer ----

    DEV void load_slot(int slot, int k, const Tile &t) const
    {
        const Operands<Config, Cluster> operands = {args, place()};
        const u32 bar = address(&s.full[slot]);
        ptx::mbarrier_arrive_expect(bar, operands.slot_bytes(t.width));
        operands.load_a(address(s.a[slot]), bar, k, t);
        operands.load_b(address(s.b[slot]), bar, k, t);
    }
    // The first slots, small ones some more, before warps have their roles and registers: it saves 0.2 us.
    DEV static int primed(const Part &part)
    {
        constexpr int small_slot = 2 * box_bytes, wanted = a_bytes + b_bytes > small_slot ? 2 : 4;
        constexpr int most = Cluster::size > 1 ? 0 : wanted < Config::stages ? wanted : Config::stages - 1;
        const int all = part.last - part.first;
        return all < most ? all : most;
    }
    DEV void prime() const
    {
        const Part part = this->part();
        const Tile t = tile_after_wait(block.index() / cluster);
#pragma unroll 1
        for (int slot = 0; slot < primed(part); slot++) load_slot(slot, bk * (part.first + slot), t);
    }

    DEV void produce() const
    {
        const Part part = this->part();
        int done = primed(part); // of the first tile
        Cursor at = {done, 1};
        bool back = false;
        for (u32 i = block.index() / cluster; i < walk().count(); i += block.count() / cluster, done = 0) {
            const Tile t = walk().tile(i, place());
#pragma unroll 1 // its warpgroup has few registers
            for (int step = part.first + done; step < part.last; step++, at.next()) {
                const int k = bk * (back ? part.first + part.last - 1 - step : step);
                ptx::mbarrier_wait(address(&s.empty[at.slot]), at.parity);
                load_slot(at.slot, k, t);
            }
            back = walk().serpentine() && !back;
            if constexpr (Config::lends) lend(at, t);
        }
    }
    // Fills the slots that are lent with what the epilogues of all consumers read of the tile. A slot for
    // which nothing is left becomes full with nothing in it.
    DEV void lend(Cursor &at, const Tile &t) const
    {
        const u32 memory = lent_memory();
#pragma unroll 1
        for (int slot = 0; slot < Stage::slots; slot++, at.next()) {
            const u32 bar = address(&s.full[at.slot]), slot_memory = memory + at.slot * Stage::slot_bytes;
            const int first = slot * Stage::each, end = first + Stage::each;
            const int last = end < Stage::incoming ? end : Stage::incoming;
            ptx::mbarrier_wait(address(&s.empty[at.slot]), at.parity);
            if (first < last) ptx::mbarrier_arrive_expect(bar, (last - first) * Layout::fetched_bytes);
            else ptx::mbarrier_arrive(bar);
            if constexpr (Layout::fetches)
                for (int i = first; i < last; i++)
                    fetch_unit(slot_memory + (i - first) * Layout::fetched_bytes, bar, t, i / Layout::units,
                               i % Layout::units);
        }
    }
    DEV u32 lent_memory() const { return Stage::of_a ? address(s.a) : address(s.b); }

    // Fetches the units of one consumer's tiles in the order in which it walks them.
    DEV void fetch_unit(u32 to, u32 bar, const Tile &t, int group, int u) const
    {
        const int column = Layout::out_first(t) + u % Layout::chunks * Layout::chunk_columns;
        const int row =
            t.m * Config::bm + (Config::pingpong ? 0 : group * Layout::rows) + u / Layout::chunks * 64;
        Layout::Fetched::each([&](auto, int i, int before) {
            ptx::tma_load(to + before * Layout::chunk_byte, &args.fetched[i], bar, column, row, t.batch);
        });
    }
    DEV void fetch(int group) const
    {
        const auto ring = stage_of(group).fetched();
#pragma unroll 1
        for (u32 turn = 0; tile_of(group, turn) < walk().count(); turn++) {
            const Tile tile = walk().tile(tile_of(group, turn), place());
            if (!Split::owns(tile, rank())) return;
#pragma unroll 1
            for (int u = 0; u < Layout::units; u++) {
                const auto to = ring.unit(turn, u);
                ring.expect(to);
                fetch_unit(to.buffer, to.full, Split::share_of(tile, rank()), group, u);
            }
        }
    }

    // ---- Consumers ----

    using Accumulators = float[blocks][Config::bn / 2];
    template <int n> using Sums = float[n / 2]; // of 64 rows
    template <int n> DEV static Sums<n> &first_sums(Sums<Config::bn> &all)
    {
        return reinterpret_cast<Sums<n> &>(all);
    }

    DEV void release(int slot) const
    {
        const u32 thread = threadIdx.x % 128, bar = address(&s.empty[slot]);
        if constexpr (Cluster::size == 1) {
            if (thread == 0) ptx::mbarrier_arrive(bar);
        } else if (thread < Cluster::size) ptx::cluster_mbarrier_arrive(ptx::cluster_address(bar, thread));
    }

    DEV u64 a_descriptor(int slot, int first_row) const
    {
        return ptx::wgmma_descriptor(address(s.a[slot]) + first_row * swizzle_row, box_bytes, swizzle_atom);
    }
    DEV u64 b_descriptor(int slot) const
    {
        return ptx::wgmma_descriptor(address(s.b[slot]), box_bytes, swizzle_atom);
    }
    // Issues the products of one slot, of a tile of n columns.
    template <int n> DEV void multiply(Accumulators &acc, int slot, int first_row, bool accumulate) const
    {
        const u64 a = a_descriptor(slot, first_row), b = b_descriptor(slot);
        ptx::wgmma_fence();
#pragma unroll
        for (int m = 0; m < blocks; m++)
            Products::template issue<n>(first_sums<n>(acc[m]), a + m * box_bytes / descriptor_unit, b,
                                        accumulate);
        ptx::wgmma_commit();
    }

    // May the consumer do something else while its first products are in flight? It needs registers beside
    // the accumulators; and no other consumer should wait for its turn.
    static constexpr bool has_time = blocks * Config::bn <= 128 && steps > 0 && Config::splits == 1 &&
                                     !Config::tail && (Config::once || !Config::pingpong) &&
                                     !Products::promotes;

    // One group of products stays in flight. The last slot is released after wait<0>().
    template <int n, class Meanwhile>
    DEV int multiply_slots(Accumulators &acc, Cursor &at, int first_row, Meanwhile meanwhile) const
    {
        const Part part = this->part();
        int last = at.slot, k = part.first;
        if constexpr (has_time) {
            ptx::mbarrier_wait(address(&s.full[at.slot]), at.parity);
            multiply<n>(acc, at.slot, first_row, false);
            meanwhile();
            k++, at.next();
        }
        for (; k < part.last; k++, at.next()) {
            ptx::mbarrier_wait(address(&s.full[at.slot]), at.parity);
            multiply<n>(acc, at.slot, first_row, k != part.first);
            ptx::wgmma_wait<1>();
            if (k != part.first) release(last);
            last = at.slot;
        }
        return last;
    }
    template <class Meanwhile>
    DEV int multiply_tile(Accumulators &acc, Cursor &at, int first_row, const Tile &t,
                          Meanwhile meanwhile) const
    {
        if constexpr (Products::promotes) {
            using Scales = ThreadScales<Config, blocks>;
            return Promotion<GemmSm90, Config, Products>{
                *this, Scales(args, t.batch, t.m * Config::bm + first_row, t.first), first_row}
                .multiply(acc, at);
        }
        if constexpr (Config::tail) {
            if (t.width < Config::bn) return multiply_slots<Config::tail_bn>(acc, at, first_row, meanwhile);
        }
        return multiply_slots<Config::bn>(acc, at, first_row, meanwhile);
    }
    // A gated tile of the tail has its upper half where wide tiles have it: the epilogue knows one place.
    DEV static void move_up_half(Accumulators &acc, const Tile &t)
    {
        if constexpr (Config::tail && Columns::gated) {
            if (t.width == Config::bn) return;
#pragma unroll
            for (int i = Config::tail_bn / 4 * blocks - 1; i >= 0; i--) {
                const int m = i / (Config::tail_bn / 4), sum = i % (Config::tail_bn / 4);
                acc[m][Config::bn / 4 + sum] = acc[m][Config::tail_bn / 4 + sum];
            }
        }
    }

    // In ping-pong, multiply only in turns. Turn i of group 1 follows turn i of group 0.
    DEV void await_turn(int group, u32 turn) const
    {
        if (Config::pingpong && (group || turn))
            ptx::mbarrier_wait(address(&s.turn[group]), (turn + group + 1) & 1);
    }
    DEV void pass_turn(int group) const
    {
        if (Config::pingpong) ptx::mbarrier_arrive(address(&s.turn[group ^ 1]));
    }

    // ---- Split K ----

    static_assert(Split::bytes <= Config::stages * (a_bytes + b_bytes)); // the ring is empty by then

    DEV void finish_tile(Accumulators &acc, const Tile &t, int group) const
    {
        const Split split = {address(s.a) + group * Split::group_bytes, ptx::uniform(rank())};
        const bool owns = Split::owns(t, split.rank);
        typename Split::Sums sums;
        if constexpr (steps < Config::splits)
            if (part().first == part().last) clear(acc);
        // No one multiplies any more.
        if (Config::groups > 1 || Split::scattered)
            ptx::named_barrier(barrier_consumers, 128 * Config::groups);
        if constexpr (Split::scattered) exchange(split, acc, sums, t, group);
        else {
            split.publish(acc);
            meet_cluster();
            if (owns) split.gather(acc, sums);
            ptx::cluster_arrive();
        }
        if (owns) drain_of(group).drain(sums, Split::share_of(t, split.rank));
        __syncwarp();
        ptx::cluster_wait(); // nobody leaves before all have read
    }

    // A block whose ring is empty says so to all; then they send what it owns. turn[0] counts who are ready,
    // turn[1 + group] what has come.
    DEV void init_exchange() const
    {
        ptx::mbarrier_init(address(&s.turn[0]), Config::splits - 1);
        for (int i = 1; i <= Config::groups; i++) {
            ptx::mbarrier_init(address(&s.turn[i]), 1);
            ptx::mbarrier_arrive_expect(address(&s.turn[i]), Split::group_bytes);
        }
    }
    DEV void exchange(const Split &split, const Accumulators &acc, typename Split::Sums &sums, const Tile &t,
                      int group) const
    {
        const int other = threadIdx.x % 128;
        const u32 ready = address(&s.turn[0]), arrived = address(&s.turn[1 + group]);
        ptx::cluster_wait(); // all have made their mbarriers
        if (group == 0 && other < Config::splits && other != split.rank)
            ptx::cluster_mbarrier_release(ptx::cluster_address(ready, other));
        ptx::cluster_mbarrier_wait(ready, 0);
        split.send(acc, t, arrived);
        if (Split::owns(t, split.rank)) {
            ptx::cluster_mbarrier_wait(arrived, 0);
            split.add_up(acc, sums);
        }
        __syncwarp();
        ptx::cluster_arrive_relaxed();
    }
    DEV static void clear(Accumulators &acc)
    {
#pragma unroll
        for (int i = 0; i < blocks * Config::bn / 2; i++) acc[i / (Config::bn / 2)][i % (Config::bn / 2)] = 0;
    }
    // Threads that do not multiply meet the others wherever a cluster's blocks meet.
    DEV void join_cluster_barriers() const
    {
        if constexpr (Config::splits == 1) return;
        __syncwarp();
        if constexpr (!Split::scattered) ptx::cluster_arrive();
        ptx::cluster_wait();
        meet_cluster();
    }

    // ---- Roles ----

    // The slots that are lent begin at a cursor.
    using Stage = typename Layout::Stage;
    DEV Stage stage_of(int group, Cursor at = {}) const
    {
        if constexpr (Config::lends) return {address(s.full), lent_memory(), group, at.slot, at.parity};
        else return {address(&s.fetch[group]), address(s.stage[group])};
    }
    DEV Drain drain_of(int group, Cursor at = {}) const
    {
        return Drain(args, s.values[group], group, stage_of(group, at));
    }
    // Before it is full a slot may still wait for the other consumers to release what was in it before: two
    // arrivals of one consumer would count for both. And every thread waits for each phase, or it would take
    // one for the next.
    DEV void release_lent_slots(int group, const Cursor first) const
    {
        Cursor at = first;
        for (int slot = 0; slot < Stage::slots; slot++, at.next())
            ptx::mbarrier_wait(address(&s.full[at.slot]), at.parity);
        if (Layout::stages && threadIdx.x % 32 == 0) ptx::tma_store_wait_read<0>();
        ptx::named_barrier(barrier_group + group, 128);
        at = first;
        for (int slot = 0; slot < Stage::slots; slot++, at.next()) release(at.slot);
    }

    // Asks for the values of a tile's rows and columns; of the first one before the consumer has all of its
    // registers, for which it waits until the producer's first loads are issued. Not beside large
    // accumulators: those that a tile of the tail does not write count as if they were in use from the start.
    static constexpr int copies = !Products::promotes ? 1 : promotes_ahead<Config, blocks> ? 3 : 2;
    static constexpr bool asks_early = blocks * Config::bn * copies <= 192;
    DEV void ask(int group, const Tile &t, typename Drain::Ahead &ahead) const
    {
        if (Split::owns(t, rank())) drain_of(group).ask(Split::share_of(t, rank()), ahead);
    }

    // Between tiles only the turn is kept: registers are short.
    DEV void consume(int group, typename Drain::Ahead &ahead) const
    {
        int slots = part().last - part().first;
        if constexpr (Config::lends) slots += Stage::slots;
        for (u32 turn = 0; tile_of(group, turn) < walk().count(); turn = ptx::opaque(turn + 1)) {
            const Tile t = walk().tile(tile_of(group, turn), place());
            Cursor at = Cursor::after(nth(group, turn) * slots);
            Accumulators acc;
            if (asks_early && turn) ask(group, t, ahead);
            const auto prepare = [&] {
                if (!Split::owns(t, rank())) return;
                if constexpr (asks_early) drain_of(group).prepare(Split::share_of(t, rank()), ahead);
                else drain_of(group).prepare(Split::share_of(t, rank()));
            };
            if constexpr (!has_time) prepare();
            await_turn(group, turn);
            const int last = multiply_tile(acc, at, Config::pingpong ? 0 : group * Layout::rows, t, prepare);
            pass_turn(group);
            ptx::wgmma_wait<0>();
            release(last);
            move_up_half(acc, t);
            if constexpr (Config::splits > 1) {
                finish_tile(acc, t, group);
                break; // the only tile: the compiler must know, or it keeps acc through the drain
            } else if constexpr (Config::lends) {
                const Cursor lent = Config::once ? Cursor::after(steps) : at;
                drain_of(group, lent).drain(acc, t);
                if (Config::once) break;
                release_lent_slots(group, lent);
            } else if (walk().exists(t)) drain_of(group).drain(acc, t, turn);
            else drain_of(group).skip(turn);
        }
        if (Layout::stages && threadIdx.x % 32 == 0) ptx::tma_store_wait<0>();
    }

    DEV void run() const
    {
        const int warp = ptx::uniform(threadIdx.x / 32), group = warp / 4;
        init(warp);
        ptx::grid_launch_next(); // as soon as a block ends: it waits before it reads what this one writes
        if (group == 0) {
            ptx::grid_wait();
            ptx::shrink_registers<Registers::producer>();
            if (warp == 0 && ptx::elect_one()) produce();
            if constexpr (fetches)
                if (warp > 0 && warp <= Config::groups && ptx::elect_one()) fetch(warp - 1);
            join_cluster_barriers();
        } else {
            typename Drain::Ahead ahead;
            const Tile t = tile_after_wait(tile_of(group - 1, 0));
            if (asks_early && tile_of(group - 1, 0) < walk().count()) ask(group - 1, t, ahead);
            ptx::grow_registers<Registers::consumer>();
            consume(group - 1, ahead);
        }
        if constexpr (Cluster::size > 1) meet_cluster(); // others still send here, and arrive
    }
};

template <class Config, class Epilogue, class Share, class Products, class Block>
DEV void run_gemm_sm90(const typename Config::Args &args, const Block &block)
{
    using Cluster = ClusterShape<Config::cluster_m, Config::cluster_n>;
    using Gemm = GemmSm90<Config, Epilogue, Share, Cluster, Products, Block>;
    Gemm{args, *(typename Gemm::Shared *)block.shared(), block}.run();
}
template <class Config, class Epilogue, class Share = Config, class Block>
DEV void gemm_sm90(const typename Config::Args &args, const Block &block)
{
    run_gemm_sm90<Config, Epilogue, Share, Products16<Config>>(args, block);
}

} // namespace coda
