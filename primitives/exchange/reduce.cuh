// reduce.cuh -- sums over ranks, made in fp32 in the order of ranks and rounded once, so that all ranks and
// all runs have equal bits.
//
// Config: T, the dtype; ranks; threads of a block; `vectors`, whether 16 bytes of x and of y, counted from
// where a run of elements begins, are aligned and whole.
#pragma once
#include "exchange/inbox.cuh"
#include "types.cuh"

namespace coda::exchange {

// 16 bytes of elements.
template <class T> struct Piece {
    static constexpr i32 each = 16 / sizeof(T);
    static constexpr u32 nan = sizeof(T) == 2 ? 0x7fff7fffu : 0x7fffffffu;

    // Loads a piece; elements that are not there are 0.
    DEV static ptx::Words load(const T *p, i64 count, bool whole)
    {
        if (whole && count >= each) return *(const ptx::Words *)p;
        ptx::Words w = {};
#pragma unroll
        for (i32 i = 0; i < each; i++) {
            if (i >= count) continue;
            if constexpr (sizeof(T) == 2) w.at[i / 2] |= (u32)p[i].bits << i % 2 * 16;
            else w.at[i] = float_bits(p[i]);
        }
        return w;
    }
    DEV static void store(T *p, const ptx::Words &w, i64 count, bool whole)
    {
        if (whole && count >= each) {
            *(ptx::Words *)p = w;
            return;
        }
#pragma unroll
        for (i32 i = 0; i < each; i++) {
            if (i >= count) continue;
            if constexpr (sizeof(T) == 2) p[i].bits = (u16)(w.at[i / 2] >> i % 2 * 16);
            else p[i] = bits_float(w.at[i]);
        }
    }
    DEV static void add(float (&sum)[each], const ptx::Words &w)
    {
#pragma unroll
        for (i32 i = 0; i < each; i++) {
            if constexpr (sizeof(T) == 4) sum[i] += bits_float(w.at[i]);
            else if (i % 2 == 0) {
                const Pair two = unpack2<T>(w.at[i / 2]);
                sum[i] += two.a, sum[i + 1] += two.b;
            }
        }
    }
    // The first of a sum: -0 stays what it is.
    DEV static void begin(float (&sum)[each], const ptx::Words &w)
    {
#pragma unroll
        for (i32 i = 0; i < each; i++) sum[i] = -0.0f;
        add(sum, w);
    }
    DEV static ptx::Words rounded(const float (&sum)[each])
    {
        ptx::Words w;
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            if constexpr (sizeof(T) == 4) w.at[i] = float_bits(sum[i]);
            else w.at[i] = pack2<T>(sum[2 * i], sum[2 * i + 1]);
        }
        return sendable<nan>(w);
    }
};

// Which of the other ranks is the i-th.
template <i32 ranks> DEV u32 other_rank(const Company<ranks> &c, i32 i) { return i + (i >= (i32)c.rank); }

// The sum of a piece, of which this rank has `own`, and w is of the others.
template <class P, i32 ranks>
DEV void add_all(float (&sum)[P::each], const ptx::Words &own, const ptx::Words (&w)[ranks - 1], i32 rank)
{
    if constexpr (ranks == 2) { // in any order
        P::begin(sum, own);
        P::add(sum, w[0]);
        return;
    }
#pragma unroll
    for (i32 r = 0; r < ranks; r++) {
        ptx::Words next = own;
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            if (r > rank) next.at[i] = w[r ? r - 1 : 0].at[i];
            if (r < rank) next.at[i] = w[r < ranks - 1 ? r : 0].at[i];
        }
        if (r) P::add(sum, next);
        else P::begin(sum, next);
    }
}
template <class P, i32 ranks>
DEV ptx::Words add_up(Exchange<ranks> &e, const ptx::Words &own, i64 bytes, i64 at)
{
    ptx::Words w[ranks - 1];
    float sum[P::each];
    e.receive(w, [&](i32 i) { return e.place(other_rank(e.company, i), bytes, at); });
    add_all<P, ranks>(sum, own, w, (i32)e.company.rank);
    return P::rounded(sum);
}

template <class C> struct Reduce {
    typedef typename C::T T;
    typedef Piece<T> P;
    typedef Exchange<C::ranks> X;
    static constexpr i32 ranks = C::ranks;

    template <class F> DEV static void for_others(const X &e, F f)
    {
#pragma unroll
        for (i32 i = 1; i < ranks; i++) f((e.company.rank + i) % ranks);
    }
    DEV static i64 pieces(i64 n) { return (n + P::each - 1) / P::each; }

    // Several pieces of a thread's, which are there as a whole: their loads are under way at once, so that
    // few SMs fill the link.
    static constexpr i32 batch = ranks == 2 ? 4 : ranks == 3 ? 2 : 1;
    struct Batch {
        ptx::Words own[batch];

        DEV Batch(const T *x, i64 v, i64 step)
        {
#pragma unroll
            for (i32 i = 0; i < batch; i++) own[i] = *(const ptx::Words *)(x + (v + i * step) * P::each);
#pragma unroll
            for (i32 i = 0; i < batch; i++) own[i] = sendable<P::nan>(own[i]);
        }
        DEV void send(const X &e, i64 bytes, i64 v, i64 step) const
        {
            for_others(e, [&](u32 r) {
#pragma unroll
                for (i32 i = 0; i < batch; i++) e.send(r, bytes, 16 * (v + i * step), own[i]);
            });
        }
        DEV void add(X &e, T *y, i64 bytes, i64 v, i64 step) const
        {
            ptx::Words w[batch * (ranks - 1)];
            e.receive(w, [&](i32 i) {
                const i64 at = 16 * (v + i / (ranks - 1) * step);
                return e.place(other_rank(e.company, i % (ranks - 1)), bytes, at);
            });
#pragma unroll
            for (i32 i = 0; i < batch; i++) {
                ptx::Words others[ranks - 1];
                float sum[P::each];
#pragma unroll
                for (i32 r = 0; r < ranks - 1; r++) others[r] = w[i * (ranks - 1) + r];
                add_all<P, ranks>(sum, own[i], others, (i32)e.company.rank);
                *(ptx::Words *)(y + (v + i * step) * P::each) = P::rounded(sum);
            }
        }
    };

    // y = the sum of x over ranks, n elements: each rank sends all of its own to all others.
    template <class Block>
    DEV static void push(const Block &block, const T *x, T *y, i64 n, const Company<ranks> &c)
    {
        X e(c, block.index());
        e.begin();
        const i64 first = block.index() * (i64)C::threads + threadIdx.x,
                  step = block.count() * (i64)C::threads;
        const i64 bytes = 16 * pieces(n), whole = C::vectors ? n / P::each : 0;
        const auto own = [&](i64 v) {
            return sendable<P::nan>(P::load(x + v * P::each, n - v * P::each, C::vectors));
        };
        i64 v = first;
        if constexpr (batch > 1)
            for (; v + (batch - 1) * step < whole; v += batch * step)
                Batch(x, v, step).send(e, bytes, v, step);
        for (; v < pieces(n); v += step) {
            const ptx::Words w = own(v);
            for_others(e, [&](u32 r) { e.send(r, bytes, 16 * v, w); });
        }
        v = first;
        if constexpr (batch > 1)
            for (; v + (batch - 1) * step < whole; v += batch * step)
                Batch(x, v, step).add(e, y, bytes, v, step);
        for (; v < pieces(n); v += step)
            P::store(y + v * P::each, add_up<P>(e, own(v), bytes, 16 * v), n - v * P::each, C::vectors);
        e.end(block.count(), C::threads);
    }

    // The same: each rank has a part, adds up what the others send of it, and sends them the sum.
    template <class Block>
    DEV static void two_shot(const Block &block, const T *x, T *y, i64 n, const Company<ranks> &c)
    {
        X e(c, block.index());
        e.begin();
        const i64 first = block.index() * (i64)C::threads + threadIdx.x,
                  step = block.count() * (i64)C::threads;
        const i64 part = (pieces(n) + ranks - 1) / ranks, bytes = 16 * part, back = (ranks - 1) * bytes;
        const auto at = [&](u32 r, i64 v) { return (r * part + v) * P::each; };
#pragma unroll 4
        for (i64 v = first; v < part; v += step)
            for_others(e, [&](u32 r) {
                const i64 i = at(r, v);
                if (i < n) e.send(r, bytes, 16 * v, sendable<P::nan>(P::load(x + i, n - i, C::vectors)));
            });
        for (i64 v = first; v < part; v += step) {
            const i64 i = at(c.rank, v);
            if (i >= n) break;
            const ptx::Words own = sendable<P::nan>(P::load(x + i, n - i, C::vectors));
            const ptx::Words all = add_up<P>(e, own, bytes, 16 * v);
            for_others(e, [&](u32 r) { e.send(r, bytes, back + 16 * v, all); });
            P::store(y + i, all, n - i, C::vectors);
        }
        e.behind = true; // these ranks add up what others send
#pragma unroll 1
        for (i32 k = 0; k < ranks - 1; k++) {
            const u32 r = other_rank(c, k);
            for (i64 v = first; v < part && at(r, v) < n; v += step) {
                const ptx::Words w = e.received(e.place(r, bytes, back + 16 * v));
                P::store(y + at(r, v), w, n - at(r, v), C::vectors);
            }
        }
        e.end(block.count(), C::threads);
    }

    // y = this rank's part of the sum of x, n elements: of each run of x a rank has `part`.
    template <class Block>
    DEV static void scatter(const Block &block, const T *x, T *y, i64 n, i64 part, const Company<ranks> &c)
    {
        X e(c, block.index());
        e.begin();
        const i64 first = block.index() * (i64)C::threads + threadIdx.x,
                  step = block.count() * (i64)C::threads;
        const i64 bytes = 16 * pieces(n);
        const auto brought = [&](u32 r, i64 v) {
            const i64 i = v * P::each;
            if (C::vectors || n == part) return P::load(x + start(i, r, n, part), n - i, C::vectors);
            T piece[P::each] = {};
#pragma unroll
            for (i32 k = 0; k < P::each; k++)
                if (i + k < n) piece[k] = x[start(i + k, r, n, part)];
            return P::load(piece, P::each, false);
        };
#pragma unroll 4
        for (i64 v = first; v < pieces(n); v += step)
            for_others(e, [&](u32 r) { e.send(r, bytes, 16 * v, sendable<P::nan>(brought(r, v))); });
        for (i64 v = first; v < pieces(n); v += step) {
            const ptx::Words own = sendable<P::nan>(brought(c.rank, v));
            P::store(y + v * P::each, add_up<P>(e, own, bytes, 16 * v), n - v * P::each, C::vectors);
        }
        e.end(block.count(), C::threads);
    }
    // Where in x element i of rank r's result comes from.
    DEV static i64 start(i64 i, u32 r, i64 n, i64 part)
    {
        if (n == part) return r * part + i; // there is one run
        const i64 run = i / part;
        return (run * ranks + r) * part + (i - run * part);
    }
};

} // namespace coda::exchange
