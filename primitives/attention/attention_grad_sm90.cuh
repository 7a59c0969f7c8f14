// attention_grad_sm90.cuh -- the gradients of attention on Hopper: TMA rings, wgmma, weights in registers.
//
// attention_delta.cuh has left, of each query, its log-sum-exp to base 2 and delta = sum(do o) - dlse. One
// block for each SM walks over tiles of bm = 64 * groups rows of two kinds (grad_walk.cuh), each of which
// writes what no other tile writes: nothing is added by atomics, and equal inputs give equal bits. A tile
// holds its own rows of two tensors in shared memory and walks blocks of bn rows of the two others, which the
// producer, one thread of the first warpgroup, brings into a ring of `stages` slots. Every consumer
// warpgroup has 64 own rows.
//
//     a tile of keys holds k and v, and walks q and do of the queries of each head that reads them:
//         S^T = K Q^T     dP^T = V dO^T     P^T = 2^(c S^T - l)     dS^T = P^T (dP^T - delta)
//         dV += P^T dO    dK += dS^T Q
//     a tile of queries holds q and do, and walks k and v of the keys that they see:
//         S = Q K^T       dP = dO V^T       P = 2^(c S - l)         dS = P (dP - delta)
//         dQ += dS K
//
// (Dao, arXiv 2307.08691, section 3.1.) Rounded to T and packed, the accumulator fragment of P^T, of dS^T or
// of dS is the A fragment of the product that it goes into, so these never leave registers; the walked rows
// are the B operand of both products, once along their columns, once along their rows. Exponentials of one
// block run while the tensor cores multiply dO V^T, differences while they multiply P^T dO, and the other
// warpgroup fills the gaps. Only blocks at a border are masked. Columns are padded to a multiple of 64 and
// rows past the end are read as zeros by TMA; a query past the end has l = inf, which makes its weights 0.
//
// Every query sees some key: the schedule sees to it (attention_grad_wgmma.c), and takes no lengths, ranges
// or other scores.
//
// Config: type Q (bf16 or f16); i32 heads, group, head_dim, window, ahead; bool limited; float scale,
// scale_log2, as attention_sm90.cuh has them; bool has_dq, has_dk, has_dv; i32 groups, box (rows of a copy),
// walked_queries, query_stages, walked_keys, key_stages: bn and the stages of tiles of keys, and of queries.
#pragma once
#include "attention/grad_fragment.cuh"
#include "ptx/barrier.cuh"
#include "ptx/tma.cuh"
#include "tile/block.cuh"
#include "tile/resources.cuh"
#include "tile/ring.cuh"

namespace coda {

template <class Config> struct AttentionGradSm90 {
    using T = typename Config::Q;
    static constexpr i32 groups = Config::groups, bm = 64 * groups, box = Config::box;
    static constexpr i32 bn_q = Config::walked_queries, stages_q = Config::query_stages;
    static constexpr i32 bn_k = Config::walked_keys, stages_k = Config::key_stages;
    static constexpr i32 chunks = (Config::head_dim + 63) / 64; // of 64 columns: 128 bytes, a swizzled row
    static constexpr i32 threads = 128 * (1 + groups), kv_heads = Config::heads / Config::group;
    static_assert(bm % box == 0 && bn_q % box == 0 && bn_k % box == 0 && box % 8 == 0);
    using Registers = AttentionRegisters<groups, false>;

    using Extents = AttentionGradExtents;
    using Walk = GradWalk<kv_heads, Config::heads, bm, Config::limited>;

    struct Results {
        T *dq, *dk, *dv;
        const AttentionStrides &of_dq, &of_dk, &of_dv;
    };
    struct Maps {
        const TensorMap &q, &k, &v, &d_o;
    };

    // ---- Shared memory ----

    // Own and walked rows as chunks of [rows][64]: a is what S is made of, b what dP is made of.
    template <i32 bn, i32 stages> struct Tiles {
        u8 own_a[chunks][bm * swizzle_row], own_b[chunks][bm * swizzle_row];
        u8 walk_a[stages][chunks][bn * swizzle_row], walk_b[stages][chunks][bn * swizzle_row];
    };
    template <i32 stages> struct Barriers {
        u64 full_own_a, full_own_b, empty_own;
        u64 full_a[stages], full_b[stages], empty[stages];
    };
    struct alignas(swizzle_atom) Shared {
        union {
            Tiles<bn_q, stages_q> keys;
            Tiles<bn_k, stages_k> queries;
        };
        alignas(16) float lse[stages_q][bn_q];
        alignas(16) float delta[stages_q][bn_q];
        Barriers<stages_q> of_keys;
        Barriers<stages_k> of_queries;
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    DEV static void wait(u64 &bar, u32 phase) { ptx::mbarrier_wait(ptx::shared_address(&bar), phase); }
    DEV static void init(u64 &bar, u32 arrivals) { ptx::mbarrier_init(ptx::shared_address(&bar), arrivals); }

    using See = GradVisible<Config>;
    using Range = typename See::Range;
    template <i32 bn> DEV static Range blocks(Range r)
    {
        Range b = {r.first / bn, (r.end + bn - 1) / bn};
        if (b.end < b.first) b.end = b.first;
        return b;
    }
    DEV static Range query_blocks(const Extents &x, i32 key)
    {
        return blocks<bn_q>(See::queries_of(x, key, min(key + bm, x.tk) - 1));
    }
    DEV static Range key_blocks(const Extents &x, i32 query)
    {
        return blocks<bn_k>(See::keys_of(x, query, min(query + bm, x.tq) - 1));
    }

    // ---- Producer: one thread ----

    // Loads `rows` rows from time `from` on.
    template <i32 rows>
    DEV static void load_rows(u8 (*to)[rows * swizzle_row], u32 bar, const TensorMap &map, i32 from, i32 head,
                              i32 batch)
    {
        for (i32 c = 0; c < chunks; c++)
            for (i32 r = 0; r < rows; r += box)
                ptx::tma_load(ptx::shared_address(to[c] + r * swizzle_row), &map, bar, 64 * c, head, from + r,
                              batch);
    }
    template <i32 rows>
    DEV static void load_own(u8 (*to)[rows * swizzle_row], u64 &full, const TensorMap &map, i32 from,
                             i32 head, i32 batch)
    {
        const u32 bar = ptx::shared_address(&full);
        ptx::mbarrier_arrive_expect(bar, chunks * rows * swizzle_row);
        load_rows<rows>(to, bar, map, from, head, batch);
    }

    template <i32 stages> struct Producer {
        RingCursor<stages> at = RingCursor<stages>::producer();
        u32 phase = 1; // of own rows

        DEV void await_slot(Barriers<stages> &b) { wait(b.empty[at.slot], at.parity); }
        // All that was brought has been read.
        DEV void finish(Barriers<stages> &b)
        {
            wait(b.empty_own, phase);
            for (i32 i = 0; i < stages; i++, at.next()) await_slot(b);
        }
    };

    DEV static void produce_keys(Producer<stages_q> &p, const Walk &tile, Shared &s, const Maps &m,
                                 const Extents &x, const float *sums)
    {
        constexpr i32 rows = chunks * bn_q * swizzle_row, own = sizeof(float) * bn_q;
        auto &t = s.keys;
        auto &b = s.of_keys;
        const Range range = query_blocks(x, tile.row);
        if (range.first == range.end) return;
        wait(b.empty_own, p.phase);
        p.phase ^= 1;
        load_own<bm>(t.own_a, b.full_own_a, m.k, tile.row, tile.head, tile.batch);
        bool loads_values = true;
#pragma unroll 1
        for (i32 h = tile.head * Config::group; h < (tile.head + 1) * Config::group; h++) {
            const float *lse = sums + 2 * ((i64)tile.batch * Config::heads + h) * x.pitch;
#pragma unroll 1
            for (i32 j = range.first; j < range.end; j++, p.at.next()) {
                p.await_slot(b);
                const i32 slot = p.at.slot;
                const u32 full_a = ptx::shared_address(&b.full_a[slot]),
                          full_b = ptx::shared_address(&b.full_b[slot]);
                ptx::mbarrier_arrive_expect(full_a, rows + own);
                load_rows<bn_q>(t.walk_a[slot], full_a, m.q, j * bn_q, h, tile.batch);
                ptx::bulk_load(ptx::shared_address(s.lse[slot]), lse + j * bn_q, own, full_a);
                if (loads_values) load_own<bm>(t.own_b, b.full_own_b, m.v, tile.row, tile.head, tile.batch);
                loads_values = false;
                ptx::mbarrier_arrive_expect(full_b, rows + own);
                load_rows<bn_q>(t.walk_b[slot], full_b, m.d_o, j * bn_q, h, tile.batch);
                ptx::bulk_load(ptx::shared_address(s.delta[slot]), lse + x.pitch + j * bn_q, own, full_b);
            }
        }
    }
    DEV static void produce_queries(Producer<stages_k> &p, const Walk &tile, Shared &s, const Maps &m,
                                    const Extents &x)
    {
        constexpr i32 rows = chunks * bn_k * swizzle_row;
        auto &t = s.queries;
        auto &b = s.of_queries;
        const Range range = key_blocks(x, tile.row);
        const i32 kv_head = tile.head / Config::group;
        if (range.first == range.end) return;
        wait(b.empty_own, p.phase);
        p.phase ^= 1;
        load_own<bm>(t.own_a, b.full_own_a, m.q, tile.row, tile.head, tile.batch);
        bool loads_gradients = true;
#pragma unroll 1
        for (i32 j = range.end - 1; j >= range.first; j--, p.at.next()) {
            p.await_slot(b);
            const i32 slot = p.at.slot;
            const u32 full_a = ptx::shared_address(&b.full_a[slot]),
                      full_b = ptx::shared_address(&b.full_b[slot]);
            ptx::mbarrier_arrive_expect(full_a, rows);
            load_rows<bn_k>(t.walk_a[slot], full_a, m.k, j * bn_k, kv_head, tile.batch);
            if (loads_gradients) load_own<bm>(t.own_b, b.full_own_b, m.d_o, tile.row, tile.head, tile.batch);
            loads_gradients = false;
            ptx::mbarrier_arrive_expect(full_b, rows);
            load_rows<bn_k>(t.walk_b[slot], full_b, m.v, j * bn_k, kv_head, tile.batch);
        }
    }

    template <class Block>
    DEV static void produce(const Block &mine, Shared &s, const Maps &m, const Extents &x, const float *sums)
    {
        Walk tile(x);
        bool more = tile.next(mine);
        Producer<stages_q> keys;
#pragma unroll 1
        for (; more && tile.of_keys; more = tile.next(mine)) produce_keys(keys, tile, s, m, x, sums);
        if (!more) return;
        keys.finish(s.of_keys); // queries' tiles lie where those of keys were
        Producer<stages_k> queries;
#pragma unroll 1
        for (; more; more = tile.next(mine)) produce_queries(queries, tile, s, m, x);
    }

    // ---- Consumer: a warpgroup ----

    // A warp has read what it waited for.
    DEV static void release(u64 &empty)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ptx::shared_address(&empty));
    }

    // ---- Tiles of keys ----

    struct KeysConsumer {
        Shared &s;
        RingCursor<stages_q> at;
        u32 phase = 0; // of own rows
        float dk[32 * chunks], dv[32 * chunks];
        u32 slope[bn_q / 16][4]; // which a product reads until the next step

        DEV explicit KeysConsumer(Shared &shared) : s(shared) {}

        // Products become weights. `key` is the warpgroup's first one, `query` the block's.
        DEV void weigh(float (&p)[bn_q / 2], const Extents &x, i32 key, i32 query)
        {
            const Range last = See::queries_of(x, key + 63, key); // all 64 keys are seen by these
            if (query < last.first || (Config::window && query + bn_q > last.end))
                mask_rows<See>(p, [&](i32 r) {
                    const Range all = See::queries_of(x, key + fragment_row() + r, key + fragment_row() + r);
                    return Range{all.first - query, all.end - query};
                });
            const float *lse = s.lse[at.slot] + threadIdx.x % 4 * 2;
#pragma unroll
            for (i32 i = 0; i < bn_q / 2; i += 4) {
                const Pair l = port::load_pair(lse + 2 * i);
                p[i] = math::exp2(fmaf(p[i], Config::scale_log2, -l.a));
                p[i + 1] = math::exp2(fmaf(p[i + 1], Config::scale_log2, -l.b));
                p[i + 2] = math::exp2(fmaf(p[i + 2], Config::scale_log2, -l.a));
                p[i + 3] = math::exp2(fmaf(p[i + 3], Config::scale_log2, -l.b));
            }
        }
        DEV void differ(float (&ds)[bn_q / 2], const float (&p)[bn_q / 2])
        {
            const float *delta = s.delta[at.slot] + threadIdx.x % 4 * 2;
#pragma unroll
            for (i32 i = 0; i < bn_q / 2; i += 4) {
                const Pair d = port::load_pair(delta + 2 * i);
                ds[i] = p[i] * (ds[i] - d.a);
                ds[i + 1] = p[i + 1] * (ds[i + 1] - d.b);
                ds[i + 2] = p[i + 2] * (ds[i + 2] - d.a);
                ds[i + 3] = p[i + 3] * (ds[i + 3] - d.b);
            }
        }
        // One block of queries, perhaps the last one that needs own rows; the products of the one before, in
        // slot `before`, may still run.
        DEV void step(const Extents &x, i32 key, i32 query, i32 before, bool last)
        {
            auto &t = s.keys;
            auto &b = s.of_keys;
            float p[bn_q / 2], ds[bn_q / 2]; // nothing of the last block's: registers are few
            u32 weight[bn_q / 16][4];
            wait(b.full_a[at.slot], at.parity);
            multiply_rows<T, bm, bn_q, chunks>(p, t.own_a[0], t.walk_a[at.slot][0]);
            wait(b.full_b[at.slot], at.parity);
            multiply_rows<T, bm, bn_q, chunks>(ds, t.own_b[0], t.walk_b[at.slot][0]);
            ptx::wgmma_wait<1>();
            pin(p);
            if (before >= 0) release(b.empty[before]);
            weigh(p, x, key, query);
            pack_weights<T>(p, weight);
            accumulate_rows<T, bn_q, chunks>(dv, weight, t.walk_b[at.slot][0]);
            ptx::wgmma_wait<1>();
            pin(ds);
            if (last) release(b.empty_own);
            differ(ds, p);
            pack_weights<T>(ds, slope);
            accumulate_rows<T, bn_q, chunks>(dk, slope, t.walk_a[at.slot][0]);
            ptx::wgmma_wait<1>(); // the registers of weights are free
            pin(dv);
        }
        DEV void attend(const Walk &tile, const Extents &x, Range range)
        {
            auto &b = s.of_keys;
            i32 before = -1;
            wait(b.full_own_a, phase);
            wait(b.full_own_b, phase);
            phase ^= 1;
            i32 query = range.first * bn_q;
            // Registers are few: all heads' blocks are counted together.
#pragma unroll 1
            for (i32 left = (range.end - range.first) * Config::group; left > 0; left--, at.next()) {
                step(x, tile.row + 64 * consumer_group(), query, before, left == 1);
                before = at.slot;
                query += bn_q;
                if (Config::group > 1 && query == range.end * bn_q) query = range.first * bn_q;
            }
            ptx::wgmma_wait<0>();
            pin(dk);
            pin(dv);
            release(b.empty[before]);
        }
        DEV void run(const Walk &tile, const Extents &x, const Results &to)
        {
            const Range range = query_blocks(x, tile.row);
#pragma unroll
            for (float &e : dk) e = 0.0f;
#pragma unroll
            for (float &e : dv) e = 0.0f;
            if (range.first < range.end) attend(tile, x, range);
            const i32 row = tile.row + 64 * consumer_group() + fragment_row();
            if (Config::has_dv)
                write_gradient<Config::head_dim>(
                    dv, to.dv + tile.batch * to.of_dv.batch + tile.head * to.of_dv.head, to.of_dv.time, row,
                    x.tk, 1.0f);
            if (Config::has_dk)
                write_gradient<Config::head_dim>(
                    dk, to.dk + tile.batch * to.of_dk.batch + tile.head * to.of_dk.head, to.of_dk.time, row,
                    x.tk, Config::scale);
        }
    };

    // ---- Tiles of queries ----

    struct QueriesConsumer {
        Shared &s;
        RingCursor<stages_k> at;
        u32 phase = 0;
        float dq[32 * chunks], lse[2], delta[2];
        u32 slope[bn_k / 16][4];

        DEV explicit QueriesConsumer(Shared &shared) : s(shared) {}

        // Products become weights. `query` is the warpgroup's first one, `key` the block's.
        DEV void weigh(float (&p)[bn_k / 2], const Extents &x, i32 query, i32 key)
        {
            const Range all = See::keys_of(x, query + 63, query); // all 64 queries see these
            if (key + bn_k > all.end || key < all.first)
                mask_rows<See>(p, [&](i32 r) {
                    const Range own = See::keys_of(x, query + fragment_row() + r, query + fragment_row() + r);
                    return Range{own.first - key, own.end - key};
                });
#pragma unroll
            for (i32 i = 0; i < bn_k / 2; i++)
                p[i] = math::exp2(fmaf(p[i], Config::scale_log2, -lse[i >> 1 & 1]));
        }
        DEV void step(const Extents &x, i32 query, i32 key, i32 before, bool last)
        {
            auto &t = s.queries;
            auto &b = s.of_queries;
            float p[bn_k / 2], ds[bn_k / 2];
            wait(b.full_a[at.slot], at.parity);
            multiply_rows<T, bm, bn_k, chunks>(p, t.own_a[0], t.walk_a[at.slot][0]);
            ptx::wgmma_wait<1>();
            pin(dq);
            if (before >= 0) release(b.empty[before]);
            wait(b.full_b[at.slot], at.parity);
            multiply_rows<T, bm, bn_k, chunks>(ds, t.own_b[0], t.walk_b[at.slot][0]);
            ptx::wgmma_wait<1>();
            pin(p);
            weigh(p, x, query, key);
            ptx::wgmma_wait<0>();
            pin(ds);
            if (last) release(b.empty_own);
#pragma unroll
            for (i32 i = 0; i < bn_k / 2; i++) ds[i] = p[i] * (ds[i] - delta[i >> 1 & 1]);
            pack_weights<T>(ds, slope);
            accumulate_rows<T, bn_k, chunks>(dq, slope, t.walk_a[at.slot][0]);
        }
        DEV void attend(const Walk &tile, const Extents &x, Range range)
        {
            auto &b = s.of_queries;
            i32 before = -1;
            wait(b.full_own_a, phase);
            wait(b.full_own_b, phase);
            phase ^= 1;
#pragma unroll 1
            for (i32 j = range.end - 1; j >= range.first; j--, at.next()) {
                step(x, tile.row + 64 * consumer_group(), j * bn_k, before, j == range.first);
                before = at.slot;
            }
            ptx::wgmma_wait<0>();
            pin(dq);
            release(b.empty[before]);
        }
        DEV void run(const Walk &tile, const Extents &x, const float *sums, const Results &to)
        {
            const Range range = key_blocks(x, tile.row);
            const i32 row = tile.row + 64 * consumer_group() + fragment_row();
            const float *own = sums + 2 * ((i64)tile.batch * Config::heads + tile.head) * x.pitch;
#pragma unroll
            for (i32 r = 0; r < 2; r++) {
                const bool there = row + 8 * r < x.tq;
                lse[r] = there ? own[row + 8 * r] : -unseen();
                delta[r] = there ? own[x.pitch + row + 8 * r] : 0.0f;
            }
#pragma unroll
            for (float &e : dq) e = 0.0f;
            if (range.first < range.end) attend(tile, x, range);
            write_gradient<Config::head_dim>(dq,
                                             to.dq + tile.batch * to.of_dq.batch + tile.head * to.of_dq.head,
                                             to.of_dq.time, row, x.tq, Config::scale);
        }
    };

    template <class Block>
    DEV static void consume(const Block &mine, Shared &s, const Extents &x, const float *sums,
                            const Results &to)
    {
        Walk tile(x);
        bool more = tile.next(mine);
        {
            KeysConsumer keys(s);
#pragma unroll 1
            for (; more && tile.of_keys; more = tile.next(mine)) keys.run(tile, x, to);
        }
        QueriesConsumer queries(s);
#pragma unroll 1
        for (; more; more = tile.next(mine)) queries.run(tile, x, sums, to);
    }

    // ---- Kernel ----

    template <i32 stages> DEV static void init_all(Barriers<stages> &b)
    {
        init(b.full_own_a, 1);
        init(b.full_own_b, 1);
        init(b.empty_own, 4 * groups);
        for (i32 i = 0; i < stages; i++) {
            init(b.full_a[i], 1);
            init(b.full_b[i], 1);
            init(b.empty[i], 4 * groups);
        }
    }
    DEV static void start(Shared &s)
    {
        if (threadIdx.x == 0) {
            init_all(s.of_keys);
            init_all(s.of_queries);
            ptx::mbarrier_fence_init();
        }
        __syncthreads();
        ptx::grid_launch_next(); // as soon as blocks end
        ptx::grid_wait();
    }

    template <class Block>
    DEV static void run(const Block &mine, const Maps &m, const float *sums, const Results &to,
                        const Extents &x)
    {
        Shared &s = *reinterpret_cast<Shared *>(mine.shared());
        start(s);
        if (threadIdx.x < 128) {
            ptx::shrink_registers<Registers::producer>();
            if (threadIdx.x == 0) produce(mine, s, m, x, sums);
        } else {
            ptx::grow_registers<Registers::consumer>();
            consume(mine, s, x, sums, to);
        }
    }
};

} // namespace coda
