// attention_sm90.cuh -- attention on Hopper: TMA rings, wgmma, online softmax in registers.
//
// One block for each SM walks over tiles of bm = 64 * groups queries of one head. The producer, one thread of
// the first warpgroup or, where keys lie in pages, a warp, loads the queries and then, last block first, each
// block of bn keys and its values into two rings of `stages` slots. Every consumer warpgroup owns 64 queries:
//
//     S = Q K_j^T                       while O += P V_(j+1) still runs
//     P = 2^(c (S - max))               rounded to T and packed, the accumulator fragment of S is the
//                                       A fragment of the next product: P never leaves registers
//     O = O * 2^(c (old max - max))     once that product is done, where a row's max has grown by much
//
// so that the tensor cores have work while a softmax runs; the other warpgroups fill what gaps remain.
//
// Where the next tile's queries can be loaded meanwhile, a tile's last O += P V runs beside the next one's
// first S, and its result is stored while the other warpgroups multiply: short sequences have few blocks of
// keys, so what a tile costs beside them counts. There warpgroups also take turns: one issues both its
// products before the next one does, which keeps one's softmax beside another's products. Either shared
// memory has the queries of two tiles, or registers hold those of one (held), which leaves shared memory a
// slot more of keys and values, and products less to read there.
//
// Where each query sees all keys, a head's last queries may be in tiles of 64, for which blocks in their last
// round find time that no whole tile fits in. The first warpgroup has them; the others keep pace.
// Or all blocks share what a last round of tiles has to do, by blocks of keys: tile_walk.cuh, tile_parts.cuh.
//
// Blocks that no query of the tile sees are not visited; only blocks at a border are masked. TMA pads columns
// to a multiple of 64 and rows past the end with zeros; of the columns products take those of the head, by
// 16, and 72 or 88 sums as they are. Every sum has a fixed order.
//
// Zero times NaN is NaN, so a value past a sequence's length must not even be multiplied: TMA zeroes the
// rows past tk, clear_values those past the length. A NaN among the values that one query of a tile sees
// may still reach others of that tile that do not, if they see any.
//
// Few tiles of many keys: the blocks of a cluster share a tile's keys, each its part of their blocks in
// order. Each has one tile then, so that in the end its memory is free for what it has summed; the rows are
// shared for the merge, through distributed shared memory.
//
// Config: type T (bf16 or f16); i32 heads, group (query heads for a key head), head_dim, window, ahead,
// page, box (keys of a copy), bn, stages, groups, query_slots (tiles whose queries shared memory has),
// cluster; bool held, stored (the result is), lse (so are sums), limited, blind (there are queries before the
// first key, which see none), single (each sequence has one query), lengths, from_length, ranges, slopes,
// sinks, k_scales, v_scales, starts (are there); float scale, scale_log2 (scale * log2 e), softcap; i64
// lengths_stride, ranges_time, ranges_end, slopes_stride, sinks_stride, table_page, k_scale_stride,
// v_scale_stride. Of packed queries also bool from_start (positions count from the sequence's first query;
// else from behind its last)
// and i64 starts_stride; the extents' tq are then the rows of q, and their shift lacks what these positions
// add. With a map of scores also bool mapped and float score(float s, float position, float key, float head):
// score.cuh. With a bias what bias.cuh asks for.
#pragma once
#include "attention/tile_loads.cuh"
#include "attention/tile_parts.cuh"
#include "attention/tile_steps.cuh"
#include "attention/tiles.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/tma.cuh"
#include "tile/resources.cuh"

namespace coda {

// A warpgroup's walk over its tiles, and what becomes of its sums.
template <class Config> struct AttentionConsumer : AttentionSteps<Config> {
    using Steps = AttentionSteps<Config>;
    using Tiles = AttentionTiles<Config>;
    using typename Steps::Element, typename Steps::Tiled, typename Steps::View;
    using Exchange = typename Tiles::Exchange;
    using Steps::attend_first, Steps::attend_others, Steps::attend_last;
    using Steps::bm, Steps::columns, Steps::groups, Steps::in_turns;
    using Steps::first_row, Steps::take_queries, Steps::release, Steps::pass_turn, Steps::clear_out;
    using Steps::s, Steps::group, Steps::thread, Steps::key, Steps::value, Steps::tile_queries;
    using Steps::score, Steps::out, Steps::weight;
    static constexpr i32 cluster = Tiles::cluster;

    DEV explicit AttentionConsumer(typename Tiles::Shared &shared) : Steps(shared) {}

    DEV bool takes(const TileWalk<Tiled> &tile) const
    {
        if constexpr (Tiled::smalls) return group == 0 || !tile.is_small();
        return true;
    }
    // Small tiles are the first warpgroup's: the others release what is loaded for it, and pass on their
    // turns, of which a block's first tile has one less.
    DEV void pass(u64 &full, u32 parity, u64 &empty)
    {
        if (thread == 0) Tiles::wait(full, parity), release(empty);
    }
    template <class Block>
    DEV void pass_tiles(TileWalk<Tiled> &tile, const Block &mine, const AttentionInputs &in, bool turn)
    {
        do {
            const KeyBlocks b = Tiles::blocks_of(Tiles::visible(in, tile), tile);
            const i32 slot = tile_queries.slot;
            pass(s.full_queries[slot], tile_queries.parity, s.empty_queries[slot]);
            tile_queries.next();
#pragma unroll 1
            for (i32 j = b.end; j > b.first; j--) {
                if (turn) ptx::named_barrier(barrier_turn + group, 256), pass_turn();
                turn = true;
                pass(s.full_keys[key.slot], key.parity, s.empty_keys[key.slot]);
                pass(s.full_values[value.slot], value.parity, s.empty_values[value.slot]);
                key.next();
                value.next();
            }
        } while (tile.next(mine));
    }

    DEV void put(const OnlineSoftmax &softmax, Exchange &to) const
    {
#pragma unroll
        for (i32 r = 0; r < 2; r++) {
            const i32 row = 64 * group + thread / 32 * 16 + thread % 32 / 4 + 8 * r;
            const float sum = quad_sum(softmax.sum[r]);
            if (thread % 4 == 0) to.peak[row].max = softmax.max[r], to.peak[row].sum = sum;
#pragma unroll
            for (i32 i = 0; i < columns / 8; i++)
                port::store_pair(&to.out[row][8 * i + thread % 4 * 2],
                                 {out[4 * i + 2 * r], out[4 * i + 2 * r + 1]});
        }
    }
    // This rank's part of the rows.
    DEV void merge(const Exchange &from, const View &of, const TileWalk<Tiled> &tile, Element *to,
                   const AttentionStrides &stride, const AttentionInputs &in) const
    {
        constexpr i32 part = bm / cluster, pieces = columns / 4;
        to += tile.batch * stride.batch + tile.head * stride.head;
#pragma unroll 1
        for (i32 e = threadIdx.x - 128; e < part * pieces; e += 128 * groups) {
            const i32 row = (i32)ptx::cluster_rank() * part + e / pieces, column = e % pieces * 4;
            const i32 query = tile.query + row;
            if (query >= of.see.rows() || column >= Tiled::head_dim) continue;
            float y[4] = {}, lse = unseen();
            if (!of.see.none(query))
                lse = merge_blocks<cluster>(of.score, ptx::shared_address(&from.peak[row]),
                                            ptx::shared_address(&from.out[row][column]), y);
            if (Tiled::lse && column == 0) Score<Tiled>::store(in, tile.batch, tile.head, query, lse);
            if (Tiled::stored) port::store_piece(to + query * stride.time + column, y);
        }
    }
    // What a cluster's blocks have summed becomes the result.
    DEV void finish_together(const OnlineSoftmax &softmax, const View &of, const TileWalk<Tiled> &tile,
                             Element *to, const AttentionStrides &stride, const AttentionInputs &in) const
    {
        Exchange &exchange = reinterpret_cast<Exchange &>(s);
        ptx::named_barrier(barrier_consumers, 128 * groups); // all have read their last keys and values
        put(softmax, exchange);
        __syncwarp();
        Tiles::meet();
        merge(exchange, of, tile, to, stride, in);
        __syncwarp();
        Tiles::meet();
    }

    template <class Block>
    DEV void write(const Block &mine, const OnlineSoftmax &softmax, const View &of,
                   const TileWalk<Tiled> &tile, Element *to, const AttentionStrides &stride,
                   const AttentionInputs &in)
    {
        if (Visible<Tiled>::mixed) clear_rows_without_keys(out, of.see, of.query);
        OnlineSoftmax whole = softmax;
        if constexpr (Tiled::shares)
            if (tile.is_part()) {
                const TileParts<Tiled, columns / 2> parts{
                    in.parts, {in.extents, Tiled::bn, (i32)mine.count()}, group};
                if (!parts.join(out, whole, KeyDeal::place(mine), tile.piece())) return;
            }
        to += Tiles::batch_of(tile) * stride.batch + tile.head * stride.head;
        write_rows(out, whole, of.see, of.score, of.query, to, stride.time, in, tile.batch, tile.head);
    }

    // One tile after the other.
    template <class Block>
    DEV void consume(const Block &mine, Element *to, const AttentionStrides &stride,
                     const AttentionInputs &in)
    {
        for (TileWalk<Tiled> tile(in); tile.next(mine);) {
            const View of(in, tile, first_row());
            KeyBlocks b = Tiles::blocks_of(of.see, tile);
            OnlineSoftmax softmax;
            clear_out();
            if (b.first < b.end) {
                attend_first(softmax, of, b.end - 1);
                attend_others(softmax, of, b);
                attend_last(of, b.first);
            }
            if constexpr (cluster > 1) finish_together(softmax, of, tile, to, stride, in);
            else write(mine, softmax, of, tile, to, stride, in);
        }
    }

    // The next tile that sees keys. Results of others are written, for which there must be no sums.
    template <class Block>
    DEV bool next(TileWalk<Tiled> &tile, const Block &mine, Element *to, const AttentionStrides &stride,
                  const AttentionInputs &in) const
    {
        while (tile.next(mine)) {
            const View of(in, tile, first_row());
            KeyBlocks b = Tiles::blocks_of(of.see, tile);
            if (!(Visible<Tiled>::mixed || Tiled::lengths) || b.first < b.end) return true;
            const float none[columns / 2] = {};
            Element *result = to + tile.batch * stride.batch + tile.head * stride.head;
            write_rows(none, OnlineSoftmax(), of.see, of.score, of.query, result, stride.time, in, tile.batch,
                       tile.head);
        }
        return false;
    }
    // Each tile's first S beside the last O += P V of the tile before it.
    template <class Block>
    DEV void consume_carried(const Block &mine, Element *to, const AttentionStrides &stride,
                             const AttentionInputs &in)
    {
        TileWalk<Tiled> tile(in);
        OnlineSoftmax softmax;
        if (in_turns && group == groups - 1) ptx::named_arrive(barrier_turn, 256);
        bool some = next(tile, mine, to, stride, in), more = some && takes(tile);
        if (!some) return;
        if (Tiled::smalls && !more) return pass_tiles(tile, mine, in, false);
        clear_out();
        {
            const View of(in, tile, first_row());
            attend_first(softmax, of, Tiles::blocks_of(of.see, tile).end - 1);
        }
        while (more) {
            const TileWalk<Tiled> now = tile;
            const View of(in, now, first_row());
            const KeyBlocks b = Tiles::blocks_of(of.see, now);
            attend_others(softmax, of, b);
            some = next(tile, mine, to, stride, in), more = some && takes(tile);
            if (!more) {
                attend_last(of, b.first);
                write(mine, softmax, of, now, to, stride, in);
                break;
            }
            const View of_next(in, tile, first_row());
            OnlineSoftmax softmax_next;
            float factor[2]; // there is no sum yet that it could shrink
            take_queries();
            Steps::template attend_next<false>(
                softmax_next, of_next, Tiles::blocks_of(of_next.see, tile).end - 1, of, b.first, factor);
            write(mine, softmax, of, now, to, stride, in);
            clear_out();
            pack_weights<Element>(score, weight);
            softmax = softmax_next;
        }
        if (Tiled::smalls && some) pass_tiles(tile, mine, in, true);
    }
};

template <class Config> struct AttentionSm90 : AttentionTiles<Config> {
    using Tiles = AttentionTiles<Config>;
    using Loads = AttentionLoads<Config>;
    using Consumer = AttentionConsumer<Config>;
    using Tiles::cluster, Tiles::groups, Tiles::init, Tiles::query_slots, Tiles::stages;
    using typename Tiles::Element, typename Tiles::Registers, typename Tiles::Shared;

    DEV static void start(Shared &s, const TensorMap &q, const TensorMap &k, const TensorMap &v)
    {
        if (threadIdx.x == 0) {
            ptx::tma_prefetch_map(&q);
            ptx::tma_prefetch_map(&k);
            ptx::tma_prefetch_map(&v);
            for (i32 i = 0; i < query_slots; i++) {
                init(s.full_queries[i], 1);
                init(s.empty_queries[i], groups);
            }
            for (i32 i = 0; i < groups; i++) s.far[i] = 0;
            for (i32 i = 0; i < stages; i++) {
                init(s.full_keys[i], 1);
                init(s.full_values[i], 1);
                init(s.empty_keys[i], groups);
                init(s.empty_values[i], groups);
            }
            ptx::mbarrier_fence_init();
        }
        __syncthreads();
        ptx::grid_launch_next(); // as soon as blocks end
        ptx::grid_wait();
    }

    template <class Block>
    DEV static void run(const Block &mine, const TensorMap &q, const TensorMap &k, const TensorMap &v,
                        Element *out, const AttentionStrides &stride, const AttentionInputs &in)
    {
        Shared &s = *reinterpret_cast<Shared *>(mine.shared());
        start(s, q, k, v);
        if (threadIdx.x < 128) {
            ptx::shrink_registers<Registers::producer>();
            if (threadIdx.x < Loads::threads) Loads::run(mine, s, q, k, v, in);
            __syncwarp();
            if (cluster > 1) Tiles::meet(), Tiles::meet(); // the exchange begins, and has been read
        } else {
            ptx::grow_registers<Registers::consumer>();
            if constexpr (Tiles::carried) Consumer(s).consume_carried(mine, out, stride, in);
            else Consumer(s).consume(mine, out, stride, in);
        }
    }
};

} // namespace coda