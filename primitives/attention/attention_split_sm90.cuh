// attention_split_sm90.cuh -- attention of few queries to many keys on Hopper: the blocks of a cluster share
// the keys, which stream through shared memory at memory's pace.
//
// An item is one sequence and one key head. The queries of all heads of its group, at most 16, are the rows
// of one mma.sync; of packed queries (packed.cuh) a sequence has an item for every few. An item's keys, in
// blocks of bn, are eight parts, as equal as can be; a block of the cluster has 8 / cluster of them. Of a
// block of keys warp w takes 16, from 16 w on. Clusters walk over the items.
//
//     producer    a warp: of each block of keys the keys, then the values, into a ring of `stages` slots
//     consumers   warps: S = Q K^T, online softmax, O += P V, each with a state of its own; at the end of a
//                 part they merge these in the order of warps, and join them to the parts before
//     merger      a warp: when all blocks of the cluster have sent theirs, it joins them, for some of the
//                 columns
//
// So consumers weigh the next item's keys while an item's blocks wait for each other (inboxes.cuh). Where
// each item has a cluster, each warp asks for its own keys, and waits for no other warp; warp 0 does what the
// merger does. A block's registers and shared memory then leave room on its SM for one of a product ahead or
// behind, whose weights stream meanwhile. A row's bits depend on its own sequence alone, whatever the others
// hold and however many there are: parts follow from the range of keys that the item's queries see, and every
// sum has a fixed order, which no cluster's size changes.
//
// Values that no query of the item sees are zeroed before they are multiplied, since zero times NaN is NaN. A
// NaN among those that one of its queries sees may reach its other queries.
//
// Early: no kernel of the run writes lengths, pages and starts, and of keys and values none but the rows that
// it appends, if any. So the others are asked for before the kernel ahead has ended; only queries wait for
// it, and blocks of keys with such rows (appended.cuh).
//
// Keys and values of 8 bits are multiplied as f16, by queries and weights of f16: narrow.cuh.
//
// Config: as attention_sm90.cuh has it, but for groups; i32 rows (group if there is a single query, else 8 or
// 16, for as many queries as they take), cluster; bool walks (a cluster may have several items), alone (each
// warp asks for its own keys: where nothing walks), early, appends (the run does, and nothing walks), narrow
// (keys and values are f8e4m3), whole_rows (maps have the chunks of a row as their fourth dimension),
// bf16_queries. Of packed queries also i32 bm = rows / group: those of an item.
#pragma once
#include "attention/appended.cuh"
#include "attention/split_parts.cuh"
#include "port/tile.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/control.cuh"
#include "ptx/tma.cuh"

namespace coda {

template <class Config> struct AttentionSplit : SplitParts<Config> {
    using Parts = SplitParts<Config>;
    using Parts::alone, Parts::askers, Parts::asked, Parts::full, Parts::first_asked, Parts::tile_of;
    using Parts::bn, Parts::stages, Parts::walks, Parts::warps, Parts::producer, Parts::merger;
    using Parts::first_item, Parts::clusters, Parts::items, Parts::address, Parts::place;
    using Parts::halves, Parts::chunks, Parts::narrow, Parts::boxes, Parts::wide, Parts::whole;
    using Parts::load_queries, Parts::narrow_item, Parts::attend_parts;
    using Parts::Parts;
    using Parts::slice, Parts::held, Parts::s, Parts::warp, Parts::lane, Parts::fragments;
    using typename Parts::Copies, typename Parts::Pages, typename Parts::Queries, typename Parts::Rows;
    using typename Parts::Element, typename Parts::Shared, typename Parts::Cursor, typename Parts::Item;

    // ---- Producer: a warp, or each consumer ----

    DEV void init(const TensorMap &k, const TensorMap &v) const
    {
        for (i32 i = 0; i < stages; i++) {
            ptx::mbarrier_init(full(i), 1);
            if (!alone) ptx::mbarrier_init(address(&s.empty[i]), warps);
        }
        if (warp == producer) {
            ptx::tma_prefetch_map(&k);
            ptx::tma_prefetch_map(&v);
            ptx::mbarrier_init(address(&s.warps_read), warps);
            s.inboxes.init();
        }
        ptx::mbarrier_fence_init();
        ptx::fence_async_shared();
    }
    DEV void load(Cursor &at, const TensorMap &map, const Item &item, const Copies &copies) const
    {
        const u32 bar = full(at.slot);
        // Who has no copy does not wait: one that looked late could find the slot given back once more.
        const bool waits = !alone && (lane == 0 || Copies::count > 1);
        if (waits) ptx::mbarrier_wait(address(&s.empty[at.slot]), at.parity);
        if (lane == 0) ptx::mbarrier_arrive_expect(bar, boxes * asked * swizzle_row);
        if (Copies::count > 1) __syncwarp();
        copies.run(item.batch, [&](i32 row, i32 time, i32 batch) {
            const u32 to = address(s.ring[at.slot]);
            row += first_asked();
            if constexpr (whole)
                ptx::tma_load_once(to + place(row, 0), &map, bar, 0, item.head, time, 0, batch);
            for (i32 c = 0; c < (whole ? 0 : boxes); c++)
                ptx::tma_load_once(to + place(row, c), &map, bar, wide * c, item.head, time, batch);
        });
        at.next();
    }
    template <class Block>
    DEV void produce(const Block &mine, const TensorMap &k, const TensorMap &v,
                     const AttentionInputs &in) const
    {
        Cursor at = Cursor::producer();
        Config::early ? ptx::grid_wait_not() : ptx::grid_wait();
        for (typename Parts::template Walk<> walk{first_item(mine)}; walk.there(in); walk.next(mine)) {
            const Item item = walk.item(in);
            const i32 end = item.begin(held);
            if (Config::starts && (lane >= Copies::lanes || item.keys.first == item.keys.end)) continue;
            Pages pages(in, item.batch, item.begin(0));
            for (i32 block = item.begin(0); block < end; block++) {
                const Copies copies = pages.of(in, item.batch, block);
                load(at, k, item, copies);
                load(at, v, item, copies);
            }
        }
    }

    // ---- Consumers: warps ----

    // Where registers allow it, the next item's queries come while this one's keys are weighed.
    template <class Block>
    DEV void consume(const Block &mine, const Element *q, const AttentionStrides &stride,
                     const AttentionInputs &in) const
    {
        constexpr bool ahead = halves == 1 && !(narrow && chunks > 1) && !Config::starts;
        Cursor at;
        u32 turn = 0, count = 0;
        Queries x, next;
        if constexpr (ahead)
            if (first_item(mine) < items(in)) load_queries(next, q, stride, Item(first_item(mine), in));
        for (typename Parts::template Walk<> walk{first_item(mine)}; walk.there(in);
             walk.next(mine), turn++) {
            const Item item = walk.item(in);
            Rows as(in, item, lane / 4);
            if (!ahead) load_queries(next, q, stride, item);
#pragma unroll
            for (i32 j = 0; j < 4 * fragments; j++) x[j / 4][j % 4] = next[j / 4][j % 4];
            narrow_item(x, as, item, in);
            if constexpr (ahead)
                if (walk.i + clusters(mine) < items(in))
                    load_queries(next, q, stride, Item(walk.i + clusters(mine), in));
            attend_parts(at, x, as, item, count, turn, [] {});
        }
    }

    // ---- Merger: a warp ----

    // This rank's slice of the columns.
    DEV void write(const Item &item, u32 turn, Element *out, const AttentionStrides &stride,
                   const AttentionInputs &in) const
    {
        out += (Config::starts ? 0 : item.batch) * stride.batch + item.head * Config::group * stride.head;
#pragma unroll 1
        for (i32 e = lane; e < item.live() * (slice / 4); e += 32) {
            const i32 row = e / (slice / 4), at = e % (slice / 4) * 4;
            const i32 column = (i32)ptx::cluster_rank() * slice + at;
            float y[4] = {};
            if (column >= Config::head_dim) continue;
            float lse = unseen();
            if (!item.see.none(item.query_of(row)))
                lse = s.inboxes.merge(Score<Config>(in, item.head_of(row)), row, at, turn, y);
            if (Config::lse && column == 0)
                Score<Config>::store(in, item.batch, item.head_of(row), item.query_of(row), lse);
            if (!Config::stored) continue;
#pragma unroll
            for (i32 k = 0; k < 4 && Config::v_scales; k++) y[k] *= value_scale<Config>(in, item.head);
            port::store_piece(
                out + item.query_of(row) * stride.time + row % Config::group * stride.head + column, y);
        }
    }
    template <class Block>
    DEV void merge(const Block &mine, Element *out, const AttentionStrides &stride,
                   const AttentionInputs &in) const
    {
        u32 turn = 0;
        for (typename Parts::template Walk<> walk{first_item(mine)}; walk.there(in);
             walk.next(mine), turn++) {
            s.inboxes.receive(turn, lane);
            write(walk.item(in), turn, out, stride, in);
            s.inboxes.release(turn, lane);
        }
    }

    // ---- A block that has one item ----

    // What a warp asks for next: the keys of a block, then its values. Where these lie is known by then.
    struct Feed {
        Cursor at;
        Pages pages;
        Copies copies;
        i32 block, end;
        bool values;
        DEV Feed(const AttentionSplit &of, const AttentionInputs &in, const Item &item)
            : at(Cursor::producer()), pages(in, item.batch, of.tile_of(item.begin(0))),
              copies(pages.of(in, item.batch, of.tile_of(item.begin(0)))), block(item.begin(0)),
              end(item.begin(held)), values(false)
        {
        }
    };
    DEV bool asks(const Feed &feed) const { return warp < askers && feed.block != feed.end; }
    DEV void ask(Feed &feed, const TensorMap &k, const TensorMap &v, const Item &item,
                 const AttentionInputs &in) const
    {
        if (!asks(feed)) return;
        if (lane < Copies::lanes) load(feed.at, feed.values ? v : k, item, feed.copies);
        __syncwarp();
        feed.block += feed.values;
        if (feed.values) feed.copies = feed.pages.of(in, item.batch, tile_of(feed.block));
        feed.values = !feed.values;
    }
    // Fills the ring. From the first block of keys on that has a row of the run's it waits for who writes it.
    DEV void ask_early(Feed &feed, const TensorMap &k, const TensorMap &v, const Item &item,
                       const AttentionInputs &in, const AppendedSlots &slots) const
    {
        for (i32 i = 0; i < stages; i++) {
            if (Config::appends && asks(feed) &&
                slots.among(feed.copies.slot(in, item.batch), Copies::box))
                ptx::grid_wait();
            ask(feed, k, v, item, in);
        }
    }
    DEV void run_item(const Item &item, const TensorMap &k, const TensorMap &v, const Element *q,
                      const AttentionStrides &of_q, Element *out, const AttentionStrides &of_o,
                      const AttentionInputs &in, const AppendedSlots &slots) const
    {
        Feed feed(*this, in, item);
        ask_early(feed, k, v, item, in, slots);
        ptx::grid_wait();
        ptx::cluster_wait();
        Cursor at;
        u32 count = 0;
        Queries x;
        Rows as(in, item, lane / 4);
        load_queries(x, q, of_q, item);
        narrow_item(x, as, item, in);
        attend_parts(at, x, as, item, count, 0, [&] { ask(feed, k, v, item, in); });
        if (warp != merger) return;
        s.inboxes.receive(0, lane);
        write(item, 0, out, of_o, in);
    }

    // ---- Kernel ----

    // Mbarriers of the cluster are there before anybody arrives on them, and memory until all have read it.
    template <class Block>
    DEV static void run(const Block &mine, const TensorMap &k, const TensorMap &v, const Element *q,
                        const AttentionStrides &of_q, Element *out, const AttentionStrides &of_o,
                        const AttentionInputs &in, const AppendedRows &appended = {})
    {
        const AttentionSplit self(*reinterpret_cast<Shared *>(mine.shared()));
        if ((alone || self.warp == producer) && self.lane == 0) self.init(k, v);
        __syncwarp();
        ptx::cluster_arrive_relaxed();
        ptx::grid_launch_next(); // it waits before it reads what a program of this run writes
        if constexpr (!walks) {
            Config::early ? ptx::grid_wait_not() : ptx::grid_wait();
            const AppendedSlots slots(appended); // on their way while the item's length is
            self.run_item(Item(first_item(mine), in), k, v, q, of_q, out, of_o, in, slots);
        } else if (self.warp == producer) {
            if (Config::starts || self.lane < Copies::lanes) self.produce(mine, k, v, in);
            __syncwarp();
            ptx::cluster_wait();
        } else {
            ptx::cluster_wait();
            ptx::grid_wait();
            if (self.warp == merger) self.merge(mine, out, of_o, in);
            else self.consume(mine, q, of_q, in);
        }
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
};

} // namespace coda
