// gather.cuh -- what all ranks have, one rank's behind the other's, of any dtype: words of 4 bytes as they
// are. A word may be `none` here, so three travel with a fourth that says which of them are.
#pragma once
#include "exchange/inbox.cuh"

namespace coda::exchange {

template <i32 ranks, i32 threads> struct Gather {
    static constexpr i32 carried = 3; // words of 16 bytes

    // Words `at` to `at` + 2 of x, which has n, and a word that says which of them look like none.
    DEV static ptx::Words pack(const u32 *x, i64 at, i64 n)
    {
        ptx::Words w = {};
#pragma unroll
        for (i32 i = 0; i < carried; i++) {
            const u32 word = at + i < n ? x[at + i] : 0;
            w.at[i] = word == none ? 0 : word;
            w.at[carried] |= (u32)(word == none) << i;
        }
        return w;
    }
    // Rank r's words from `at` on: of each run of y a rank has `run`.
    DEV static void unpack(u32 *y, const ptx::Words &w, i64 at, i64 n, i64 run, u32 r)
    {
#pragma unroll
        for (i32 i = 0; i < carried; i++) {
            const i64 k = at + i, which = n == run ? 0 : k / run;
            if (k < n)
                y[(which * ranks + r) * run + (k - which * run)] = w.at[carried] >> i & 1 ? none : w.at[i];
        }
    }

    // y = x of all ranks; n words each, in runs.
    template <class Block>
    DEV static void run(const Block &block, const u32 *x, u32 *y, i64 n, i64 run, const Company<ranks> &c)
    {
        Exchange<ranks> e(c, block.index());
        e.begin();
        const i64 first = block.index() * (i64)threads + threadIdx.x, step = block.count() * (i64)threads;
        const i64 pieces = (n + carried - 1) / carried, bytes = 16 * pieces;
        for (i64 v = first; v < pieces; v += step) {
            const ptx::Words own = pack(x, carried * v, n);
#pragma unroll
            for (i32 i = 1; i < ranks; i++) e.send((c.rank + i) % ranks, bytes, 16 * v, own);
            unpack(y, own, carried * v, n, run, c.rank);
        }
        for (i64 v = first; v < pieces; v += step)
#pragma unroll
            for (i32 i = 1; i < ranks; i++) {
                const u32 r = (c.rank + i) % ranks;
                unpack(y, e.received(e.place(r, bytes, 16 * v)), carried * v, n, run, r);
            }
        e.end(block.count(), threads);
    }
};

} // namespace coda::exchange
