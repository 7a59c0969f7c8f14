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
#include "attention/fragment.cuh"
#include "attention/merge.cuh"
#include "attention/online_softmax.cuh"
#include "attention/packed.cuh"
#include "attention/pages.cuh"
#include "attention/tile_walk.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/matrix.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "tile/resources.cuh"
#include "tile/ring.cuh"

namespace coda {

template <class Config> struct AttentionSm90 {
    struct Tiled : Config {
        static constexpr i32 bm = 64 * Config::groups;
        static constexpr bool carried = Config::query_slots > 1 || Config::held;
        static constexpr bool smalls = carried && !Config::starts && !Config::limited && !Config::lengths &&
                                       !Visible<Config>::mixed; // tiles of 64 may come last
    };
    using Element = typename Tiled::T;
    static constexpr i32 bm = Tiled::bm, bn = Tiled::bn, stages = Tiled::stages, groups = Tiled::groups;
    static constexpr i32 chunks = (Tiled::head_dim + 63) / 64; // of 64 columns: 128 bytes, a swizzled row
    static constexpr i32 depth = (Tiled::head_dim + 15) / 16;  // products of 16 columns, which are a score
    static constexpr i32 by = Tiled::head_dim > 64 && Tiled::head_dim < 96 ? 8 : 16;
    static constexpr i32 columns = (Tiled::head_dim + by - 1) / by * by; // of the result's fragment
    static constexpr i32 threads = 128 * (1 + groups);
    using Registers =
        AttentionRegisters<groups, Tiled::page != 0 || Tiled::starts || Tiled::ranges || Tiled::window != 0>;

    static constexpr i32 query_slots = Tiled::query_slots;
    static constexpr bool held = Tiled::held, carried = Tiled::carried;

    struct alignas(swizzle_atom) Shared { // tiles are chunks of [rows][64]
        u8 queries[query_slots][chunks][bm * swizzle_row];
        u8 keys[stages][chunks][bn * swizzle_row];
        u8 values[stages][chunks][bn * swizzle_row];
        u64 full_queries[query_slots], empty_queries[query_slots];
        u64 full_keys[stages], empty_keys[stages], full_values[stages], empty_values[stages];
        u32 far[groups]; // has a row scores that are much larger than those before?
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    // In place of all that, when a cluster's blocks are done with their keys.
    static constexpr i32 cluster = Tiled::cluster;
    struct Exchange {
        alignas(16) float out[bm][columns];
        Peak peak[bm];
    };
    static_assert(sizeof(Exchange) <= sizeof(Shared) && bm % cluster == 0);
    static_assert(!Tiled::k_scales && !Tiled::v_scales);

    using Cursor = RingCursor<stages>; // of keys, or of values
    using QueryCursor = RingCursor<query_slots>;

    DEV static Visible<Tiled> visible(const AttentionInputs &in, const TileWalk<Tiled> &tile)
    {
        if constexpr (Tiled::starts) return Visible<Tiled>(in, tile);
        else return Visible<Tiled>(in, tile.batch);
    }
    // The batch of q.
    DEV static i32 batch_of(const TileWalk<Tiled> &tile) { return Tiled::starts ? 0 : tile.batch; }
    DEV static KeyBlocks blocks_of(const Visible<Tiled> &see, const TileWalk<Tiled> &tile)
    {
        KeyBlocks b = key_blocks<Tiled>(see, tile.query, min(tile.query + bm, see.rows()) - 1);
        if (cluster > 1) {
            const i32 rank = (i32)ptx::cluster_rank(), all = b.end - b.first;
            b.end = b.first + all * (rank + 1) / cluster;
            b.first += all * rank / cluster;
        }
        return b;
    }

    DEV static void wait(u64 &bar, u32 phase) { ptx::mbarrier_wait(ptx::shared_address(&bar), phase); }
    DEV static void init(u64 &bar, u32 arrivals) { ptx::mbarrier_init(ptx::shared_address(&bar), arrivals); }

    // ---- Producer: one thread, whose warp finds the blocks where there are ranges, or its tile ----

    static constexpr i32 producers = Tiled::ranges || Tiled::page || Tiled::starts ? 32 : 1;

    // Loads one tile of `rows` rows from time `from` on.
    template <i32 rows>
    DEV static void load_tile(u8 (*to)[rows * swizzle_row], u64 &full, const TensorMap &map, i32 from,
                              i32 head, i32 batch)
    {
        u32 bar = ptx::shared_address(&full);
        ptx::mbarrier_arrive_expect(bar, chunks * rows * swizzle_row);
        for (i32 c = 0; c < chunks; c++)
            ptx::tma_load(ptx::shared_address(to[c]), &map, bar, 64 * c, head, from, batch);
    }

    using Copies = KeyCopies<Tiled, bn>;
    DEV static void load_block(u8 (*to)[bn * swizzle_row], u64 &full, const TensorMap &map,
                               const Copies &copies, i32 head, i32 batch)
    {
        u32 bar = ptx::shared_address(&full);
        if (Copies::lane() == 0) ptx::mbarrier_arrive_expect(bar, chunks * bn * swizzle_row);
        if (Copies::lanes > 1) __syncwarp();
        copies.run(batch, [&](i32 row, i32 time, i32 sequence) {
            for (i32 c = 0; c < chunks; c++)
                ptx::tma_load(ptx::shared_address(to[c] + row * swizzle_row), &map, bar, 64 * c, head, time,
                              sequence);
        });
    }

    template <class Block>
    DEV static void produce(const Block &mine, Shared &s, const TensorMap &q, const TensorMap &k,
                            const TensorMap &v, const AttentionInputs &in)
    {
        Cursor key = Cursor::producer(), value = Cursor::producer();
        QueryCursor query = QueryCursor::producer();
        for (TileWalk<Tiled> tile(in); tile.next(mine);) {
            KeyBlocks b = blocks_of(visible(in, tile), tile);
            if ((i32)threadIdx.x >= Copies::lanes || b.first == b.end) continue;
            i32 head = tile.head / Tiled::group;
            auto load_keys = [&](i32 block) {
                const Copies copies(in, tile.batch, block);
                wait(s.empty_keys[key.slot], key.parity);
                load_block(s.keys[key.slot], s.full_keys[key.slot], k, copies, head, tile.batch);
                key.next();
            };
            auto load_values = [&](i32 block) {
                const Copies copies(in, tile.batch, block);
                wait(s.empty_values[value.slot], value.parity);
                load_block(s.values[value.slot], s.full_values[value.slot], v, copies, head, tile.batch);
                value.next();
            };
            wait(s.empty_queries[query.slot], query.parity);
            if (Copies::lane() == 0)
                load_tile<bm>(s.queries[query.slot], s.full_queries[query.slot], q, tile.query, tile.head,
                              batch_of(tile));
            query.next();
            load_keys(b.end - 1);
#pragma unroll 1 // of a known number of blocks: registers are few here
            for (i32 j = b.end - 1; j > b.first; j--) {
                load_keys(j - 1);
                load_values(j);
            }
            load_values(b.first);
        }
    }

    // ---- Consumer: a warpgroup ----

    // What a thread knows of its tile: its first row, what its warpgroup's 64 queries see, how they score.
    struct View {
        Visible<Tiled> see;
        Score<Tiled> score;
        i32 query; // the thread's first row
        BiasRow<Tiled> bias[2];
        KeyRange seen; // with ranges: by all of the warpgroup's queries

        DEV View(const AttentionInputs &in, const TileWalk<Tiled> &tile, i32 row)
            : see(visible(in, tile)), score(in, tile.head),
              query(tile.query + row), bias{{in, tile.batch, tile.head, min(query, see.rows() - 1)},
                                            {in, tile.batch, tile.head, min(query + 8, see.rows() - 1)}}
        {
            if (Tiled::ranges) seen = see.common(first(), first() + 63);
        }
        DEV i32 first() const // of the warpgroup
        {
            if constexpr (Tiled::starts) return query - threadIdx.x % 128 / 32 * 16 - threadIdx.x % 32 / 4;
            else return query / 64 * 64;
        }
        DEV KeyRange common() const { return Tiled::ranges ? seen : see.common(first(), first() + 63); }
    };

    struct Consumer {
        Shared &s;
        const i32 group = ptx::uniform(threadIdx.x / 128) - 1, thread = threadIdx.x % 128;
        Cursor key, value;
        QueryCursor tile_queries;
        float score[bn / 2], out[columns / 2];
        u32 weight[bn / 16][4], own[held ? depth : 1][4]; // own: queries

        DEV explicit Consumer(Shared &shared) : s(shared) {}

        DEV i32 first_row() const { return 64 * group + thread / 32 * 16 + thread % 32 / 4; } // of the tile

        DEV static u64 descriptor(const u8 *tile, u32 leading)
        {
            return ptx::wgmma_descriptor(ptx::shared_address(tile), leading, swizzle_atom);
        }

        // The warp's 16 queries become the A fragments of all products of the tile.
        DEV void hold_queries()
        {
            const u32 from = ptx::shared_address(s.queries[tile_queries.slot][0]) + group * box_bytes;
            const u32 row = thread / 32 * 16 + thread % 16, odd = thread % 32 / 16;
#pragma unroll
            for (i32 i = 0; i < depth; i++) {
                const u32 piece = (2 * i % 8 + odd) ^ row % 8; // of the 16 bytes of a swizzled row
                ptx::ldmatrix(from + i / 4 * (bm * swizzle_row) + row * swizzle_row + piece * 16, own[i]);
            }
            ptx::named_barrier(barrier_group + group, 128);
            release_queries();
        }
        DEV void take_queries()
        {
            wait(s.full_queries[tile_queries.slot], tile_queries.parity);
            if constexpr (held) hold_queries();
        }
        DEV void release_queries()
        {
            release(s.empty_queries[tile_queries.slot]);
            tile_queries.next();
        }

        // S = Q K^T.
        DEV void issue_scores()
        {
            u64 b = descriptor(s.keys[key.slot][0], 16);
            pin(score);
            if constexpr (held) pin(own);
            ptx::wgmma_fence();
            if constexpr (held) multiply_keys<Element, bn>(score, own, b);
            else
                multiply_keys<Element, Tiled::head_dim, swizzle_row * bm, bn>(
                    score, descriptor(s.queries[tile_queries.slot][0] + group * box_bytes, 16), b);
            ptx::wgmma_commit();
        }

        // O += P V. 16 keys are two groups of 8 rows of 128 bytes.
        DEV void issue_values()
        {
            u64 b = descriptor(s.values[value.slot][0], bn * swizzle_row);
            pin(out);
            pin(weight);
            ptx::wgmma_fence();
#pragma unroll
            for (i32 i = 0; i < bn / 16; i++)
                ptx::Wgmma<Element, columns>::template mma<1>(out, weight[i],
                                                              b + i * 2 * swizzle_atom / descriptor_unit, 1);
            ptx::wgmma_commit();
        }

        // All products but the newest `pending` are done.
        template <i32 pending> DEV void finish()
        {
            ptx::wgmma_wait<pending>();
            pin(score);
            if (pending == 0) pin(out);
        }

        DEV void release(u64 &empty)
        {
            if (thread == 0) ptx::mbarrier_arrive(ptx::shared_address(&empty));
        }
        DEV void release_keys()
        {
            release(s.empty_keys[key.slot]);
            key.next();
        }
        DEV void release_values()
        {
            release(s.empty_values[value.slot]);
            value.next();
        }

        // Zeroes the values of the keys from `rows` on. Both warpgroups do, so neither waits for the other.
        DEV void clear_values(i32 rows)
        {
            for (i32 c = 0; c < chunks; c++)
                for (i32 e = rows * 8 + thread; e < bn * 8; e += 128)
                    reinterpret_cast<uint4 *>(s.values[value.slot][c])[e] = uint4();
            ptx::fence_async_shared();
            ptx::named_barrier(barrier_group + group, 128);
        }
        DEV void await_values(const Visible<Tiled> &see, i32 block)
        {
            wait(s.full_values[value.slot], value.parity);
            if (Tiled::lengths && see.keys < block * bn + bn) clear_values(see.keys - block * bn);
        }

        // Products become scores.
        DEV void turn_into_scores(const View &of, i32 block)
        {
            if constexpr (Score<Tiled>::biased)
                coda::score(score, of.score, of.bias, of.query + of.see.shift(), block * bn,
                            of.see.extents.tk);
            else if (!Score<Tiled>::plain || Score<Tiled>::turned)
                coda::score(score, of.score, of.query + of.see.shift(), block * bn);
            KeyRange common = of.common();
            if (block * bn + bn > common.end || block * bn < common.first)
                mask(score, of.see, of.query, block * bn);
        }
        // Scores become weights, not yet packed. Is any factor of the warp's not 1?
        DEV bool weigh(OnlineSoftmax &softmax, float (&factor)[2])
        {
            if constexpr (Score<Tiled>::plain) // whatever groups there are, which the queries' number decides
                return softmax.step_lazily(score, Score<Tiled>::exponent, factor);
            constexpr bool ends = Tiled::window || Tiled::ranges; // blocks come last one first
            softmax.template step<2, ends>(score, Score<Tiled>::exponent, factor); // in fewer registers
            return true;
        }
        DEV void shrink(const float (&factor)[2])
        {
#pragma unroll
            for (i32 i = 0; i < columns / 2; i++) out[i] *= factor[i >> 1 & 1];
        }
        // Where all queries see all keys, weights are speculative: by the largest score so far. A block's own
        // is looked for only where they are too large. That gains time up to 96 columns, in whatever groups.
        static constexpr bool speculates = Score<Tiled>::plain && Tiled::smalls && !Tiled::page &&
                                           !Tiled::sinks && !Tiled::lse && Tiled::head_dim <= 96;
        // Do such weights fit in all threads of the warpgroup? If not, it multiplies the block again.
        // Before they are asked again all have had their turn, so none is late in reading, or in clearing.
        DEV bool agree(bool fits)
        {
            static_assert(!speculates || in_turns);
            volatile u32 *const far = s.far + group;
            if (!fits) *far = 1;
            ptx::named_barrier(barrier_group + group, 128);
            if (*far == 0) return true;
            ptx::named_barrier(barrier_group + group, 128);
            *far = 0;
            return false;
        }
        // A tile's first block: S, with nothing beside it.
        DEV void attend_first(OnlineSoftmax &softmax, const View &of, i32 block)
        {
            float factor[2];
            take_queries();
            wait(s.full_keys[key.slot], key.parity);
            issue_scores();
            finish<0>();
            release_keys();
            turn_into_scores(of, block);
            weigh(softmax, factor);
            pack_weights<Element>(score, weight);
        }
        static constexpr bool in_turns = carried; // all warpgroups have as many tiles
        DEV void pass_turn() const { ptx::named_arrive(barrier_turn + (group + 1) % groups, 256); }
        // S of one block beside O += P V of the one before it, which may be another tile's; then the former
        // become weights, which are not yet packed.
        template <bool follows> // in the same tile
        DEV bool attend_next(OnlineSoftmax &softmax, const View &of, i32 block, const View &before,
                             i32 block_before, float (&factor)[2])
        {
            wait(s.full_keys[key.slot], key.parity);
            if (in_turns) ptx::named_barrier(barrier_turn + group, 256);
            issue_scores();
            await_values(before.see, block_before);
            issue_values();
            if (in_turns) pass_turn();
            finish<1>();
            turn_into_scores(of, block);
            if constexpr (follows && speculates) {
                float parts[2];
                const bool fits =
                    softmax.template step_speculatively<Element>(score, Score<Tiled>::exponent, parts);
                finish<0>();
                release_values();
                if (!agree(fits)) {
                    issue_scores();
                    finish<0>();
                    turn_into_scores(of, block);
                    if (softmax.template step_again<Element>(score, Score<Tiled>::exponent, parts, factor))
                        shrink(factor);
                } else softmax.add(parts);
                release_keys();
                return false;
            }
            release_keys();
            const bool shrinks = weigh(softmax, factor);
            finish<0>();
            release_values();
            return shrinks;
        }
        // All that follows the first S but for the last O += P V.
        DEV void attend_others(OnlineSoftmax &softmax, const View &of, KeyBlocks b)
        {
            float factor[2];
            for (i32 j = b.end - 2; j >= b.first; j--) {
                if (attend_next<true>(softmax, of, j, of, j + 1, factor)) shrink(factor);
                pack_weights<Element>(score, weight);
            }
            if (!held) release_queries();
        }
        DEV bool takes(const TileWalk<Tiled> &tile) const
        {
            if constexpr (Tiled::smalls) return group == 0 || !tile.is_small();
            return true;
        }
        // Small tiles are the first warpgroup's: the others release what is loaded for it, and pass on their
        // turns, of which a block's first tile has one less.
        DEV void pass(u64 &full, u32 parity, u64 &empty)
        {
            if (thread == 0) wait(full, parity), release(empty);
        }
        template <class Block>
        DEV void pass_tiles(TileWalk<Tiled> &tile, const Block &mine, const AttentionInputs &in, bool turn)
        {
            do {
                const KeyBlocks b = blocks_of(visible(in, tile), tile);
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
        DEV void attend_last(const View &of, i32 block)
        {
            await_values(of.see, block);
            issue_values();
            finish<0>();
            release_values();
        }
        DEV void clear_out()
        {
#pragma unroll
            for (float &x : out) x = 0.0f;
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
            meet();
            merge(exchange, of, tile, to, stride, in);
            __syncwarp();
            meet();
        }

        DEV void write(const OnlineSoftmax &softmax, const View &of, const TileWalk<Tiled> &tile, Element *to,
                       const AttentionStrides &stride, const AttentionInputs &in)
        {
            if (Visible<Tiled>::mixed) clear_rows_without_keys(out, of.see, of.query);
            to += batch_of(tile) * stride.batch + tile.head * stride.head;
            write_rows(out, softmax, of.see, of.score, of.query, to, stride.time, in, tile.batch, tile.head);
        }

        // One tile after the other.
        template <class Block>
        DEV void consume(const Block &mine, Element *to, const AttentionStrides &stride,
                         const AttentionInputs &in)
        {
            for (TileWalk<Tiled> tile(in); tile.next(mine);) {
                const View of(in, tile, first_row());
                KeyBlocks b = blocks_of(of.see, tile);
                OnlineSoftmax softmax;
                clear_out();
                if (b.first < b.end) {
                    attend_first(softmax, of, b.end - 1);
                    attend_others(softmax, of, b);
                    attend_last(of, b.first);
                }
                if constexpr (cluster > 1) finish_together(softmax, of, tile, to, stride, in);
                else write(softmax, of, tile, to, stride, in);
            }
        }

        // The next tile that sees keys. Results of others are written, for which there must be no sums.
        template <class Block>
        DEV bool next(TileWalk<Tiled> &tile, const Block &mine, Element *to, const AttentionStrides &stride,
                      const AttentionInputs &in) const
        {
            while (tile.next(mine)) {
                const View of(in, tile, first_row());
                KeyBlocks b = blocks_of(of.see, tile);
                if (!(Visible<Tiled>::mixed || Tiled::lengths) || b.first < b.end) return true;
                const float none[columns / 2] = {};
                Element *result = to + tile.batch * stride.batch + tile.head * stride.head;
                write_rows(none, OnlineSoftmax(), of.see, of.score, of.query, result, stride.time, in,
                           tile.batch, tile.head);
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
                attend_first(softmax, of, blocks_of(of.see, tile).end - 1);
            }
            while (more) {
                const TileWalk<Tiled> now = tile;
                const View of(in, now, first_row());
                const KeyBlocks b = blocks_of(of.see, now);
                attend_others(softmax, of, b);
                some = next(tile, mine, to, stride, in), more = some && takes(tile);
                if (!more) {
                    attend_last(of, b.first);
                    write(softmax, of, now, to, stride, in);
                    break;
                }
                const View of_next(in, tile, first_row());
                OnlineSoftmax softmax_next;
                float factor[2]; // there is no sum yet that it could shrink
                take_queries();
                attend_next<false>(softmax_next, of_next, blocks_of(of_next.see, tile).end - 1, of, b.first,
                                   factor);
                write(softmax, of, now, to, stride, in);
                clear_out();
                pack_weights<Element>(score, weight);
                softmax = softmax_next;
            }
            if (Tiled::smalls && some) pass_tiles(tile, mine, in, true);
        }
    };

    // ---- Kernel ----

    // All threads of the cluster: what was written before is seen afterwards.
    DEV static void meet()
    {
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }

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
            if (threadIdx.x < producers) produce(mine, s, q, k, v, in);
            __syncwarp();
            if (cluster > 1) meet(), meet(); // the exchange begins, and has been read
        } else {
            ptx::grow_registers<Registers::consumer>();
            if constexpr (carried) Consumer(s).consume_carried(mine, out, stride, in);
            else Consumer(s).consume(mine, out, stride, in);
        }
    }
};

} // namespace coda
