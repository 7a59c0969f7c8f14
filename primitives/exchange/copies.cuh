// copies.cuh -- a sum over ranks whose terms copy engines bring: while they do, no SM has to do with it.
//
// An exchange is several launches, with copies between them. At a meeting a rank tells the others how far it
// has come, and waits until they are there, too: that all have read what the exchange before has brought, so
// that its memory is free; then that all copies are there. Each rank copies its terms to the others, or to
// whose part of the sum they are, and all make the sum.
//
// A rank's flag says which meeting of which exchange it has come to, and never falls. It lies where the
// plan's do, so that ranks which run plans in another order do not meet.
#pragma once
#include "exchange/reduce.cuh"

namespace coda::exchange {

// The last part of a kernel's arguments, in bytes from where an inbox begins.
struct Copies {
    u64 flags; // of this plan, one for each rank that has come
    u64 terms; // where those of the other ranks lie, `stride` bytes apart
    u64 stride;
    u32 launch; // of the exchange: the two meetings, then the sum; or no sum: the second meeting
                // ends it, or what comes behind a copy from the inbox
};

// Meetings alone: one warp is a launch.
template <i32 group> struct Meetings {
    static constexpr i32 ranks = group, others = ranks - 1, warp = 32;
    enum { MEETINGS = 2, ADD = MEETINGS, MEET_LAST, LEAVE }; // launches, as lib/exec/peers.h has them
    static constexpr u32 numbers = 4; // of an exchange; as many times last_epoch is 0

    Exchange<ranks> exchange;
    const Copies &copies;

    DEV u32 *flag(u32 of, u32 from) const
    {
        return (u32 *)(exchange.company.inbox[of] + copies.flags) + from;
    }

    // A lane for each of the others.
    DEV void meet()
    {
        Exchange<ranks> &e = exchange;
        const u32 rank = e.company.rank, number = numbers * e.epoch + copies.launch + 1;
        if ((i32)threadIdx.x < others) {
            const u32 other = other_rank(e.company, threadIdx.x);
            ptx::fence_system();
            if (!e.ended) ptx::store_word_system(flag(other, rank), number);
            u64 began = 0;
            for (u32 tries = 1; !e.ended && !has_come(other, number); tries++) {
                if (began) ptx::pause(pause_ns);
                if (tries % patience_tries == 0) e.lose_patience(other, began);
            }
            ptx::fence_system();
        }
    }
    DEV bool has_come(u32 other, u32 number) const
    {
        return (i32)(ptx::load_word_system(flag(exchange.company.rank, other)) - number) >= 0;
    }

    // Has the group ended meanwhile? Then somebody may have copied without having met this rank.
    DEV void look_again()
    {
        __syncthreads();
        if (threadIdx.x) return;
        ptx::fence_system();
        exchange.ended = exchange.ended || ptx::load_word_system(&exchange.head()->dead);
        if (exchange.ended) exchange.pass_on();
    }

    // A launch of an exchange of which nothing is added up.
    DEV static void run(const Company<ranks> &company, const Copies &copies)
    {
        Meetings m = {Exchange<ranks>(company, 0), copies};
        m.exchange.begin();
        if (copies.launch != LEAVE) m.meet();
        if (copies.launch < MEETINGS) return;
        m.look_again();
        m.exchange.end(1, warp);
    }
};

// Config: as Reduce has it; and `scatters`, whether a rank makes a part of the sum alone.
template <class C> struct Copied {
    typedef typename C::T T;
    typedef Piece<T> P;
    typedef Meetings<C::ranks> M;
    static constexpr i32 ranks = C::ranks, others = ranks - 1;

    M meetings;

    // Elements `v` pieces of y behind: of the own terms, and of others'.
    struct Terms {
        const T *own;
        const u8 *from; // of the first of the others
        u64 stride;

        DEV ptx::Words of(i64 v, i32 i) const { return *(const ptx::Words *)(from + i * stride + 16 * v); }
    };
    DEV static ptx::Words sum(const ptx::Words &own, const ptx::Words (&w)[others], u32 rank)
    {
        float all[P::each];
        add_all<P, ranks>(all, own, w, (i32)rank);
        return P::rounded(all);
    }

    // Pieces of a thread's whose loads are under way at once.
    static constexpr i32 batch = ranks == 2 ? 4 : ranks == 3 ? 2 : 1;
    DEV void add_batch(const Terms &t, T *y, i64 v, i64 step) const
    {
        ptx::Words own[batch], w[batch][others];
#pragma unroll
        for (i32 k = 0; k < batch; k++) {
            own[k] = *(const ptx::Words *)(t.own + (v + k * step) * P::each);
#pragma unroll
            for (i32 i = 0; i < others; i++) w[k][i] = t.of(v + k * step, i);
        }
#pragma unroll
        for (i32 k = 0; k < batch; k++)
            *(ptx::Words *)(y + (v + k * step) * P::each) = sum(own[k], w[k], meetings.exchange.company.rank);
    }
    // y = the sum of n elements.
    DEV void add(const Terms &t, T *y, i64 n, i64 first, i64 step) const
    {
        const i64 whole = C::vectors ? n / P::each : 0;
        i64 v = first;
        for (; v + (batch - 1) * step < whole; v += batch * step) add_batch(t, y, v, step);
        for (; v * P::each < n; v += step) {
            const i64 left = n - v * P::each;
            ptx::Words w[others];
#pragma unroll
            for (i32 i = 0; i < others; i++) w[i] = t.of(v, i);
            const ptx::Words own = P::load(t.own + v * P::each, left, C::vectors);
            P::store(y + v * P::each, sum(own, w, meetings.exchange.company.rank), left, C::vectors);
        }
    }

    // A launch of an exchange that makes y, a sum of n elements: of x, or of this rank's part of it.
    template <class Block>
    DEV static void run(const Block &block, const T *x, T *y, i64 n, const Company<ranks> &company,
                        const Copies &copies)
    {
        Copied c = {{Exchange<ranks>(company, block.index()), copies}};
        M &m = c.meetings;
        m.exchange.begin();
        if (copies.launch < M::MEETINGS) return m.meet();
        const T *own = C::scatters ? x + company.rank * n : x;
        c.add({own, company.inbox[company.rank] + copies.terms, copies.stride}, y, n,
              block.index() * (i64)C::threads + threadIdx.x, block.count() * (i64)C::threads);
        m.look_again();
        m.exchange.end(block.count(), C::threads);
    }
};

} // namespace coda::exchange
