// segments.cuh -- statistics of segments of the columns of a few rows, as QK-norm has them of each head: the
// blocks of a cluster, which have whole segments together (Quads in stream.cuh), read what each has folded.
//
// A thread folds its quads, the cluster meets, and in each block a warp merges the folds of a segment, in an
// order that is the same in all of them, so that all blocks have equal bits.
#pragma once

#include "ptx/cluster.cuh"
#include "tile/access.cuh"
#include "tile/stream.cuh"

namespace coda {

template <class Quads, class Epilogue, int cluster> struct Segments {
    static constexpr bool any = Quads::segments;
    static constexpr int rows = Quads::most_rows, unit = Quads::unit;
    // Segments of which a block has columns.
    static constexpr int most = (Quads::most_quads + unit - 2) / unit + 1;

    template <int range> static constexpr int floats()
    {
        constexpr int fold = floats_of<typename Epilogue::template Fold<range>>(),
                      value = floats_of<typename Epilogue::template Segment<range>>(),
                      here = fold > value ? fold : value;
        if constexpr (range + 1 < Epilogue::ranges)
            return here > floats<range + 1>() ? here : floats<range + 1>();
        else return here;
    }
    template <class T> static constexpr int floats_of() { return __is_empty(T) ? 0 : sizeof(T) / 4; }

    // By fours, as blocks read them of each other.
    template <bool exists, class = void> struct Memory {
    };
    template <class Any> struct Memory<true, Any> {
        static constexpr int fours = (floats<0>() + 3) / 4;
        alignas(16) float fold[rows][Quads::most_quads][4 * fours];
        float value[rows][most][4 * fours];
    };
    using Shared = Memory<any>;

    const Quads &quads;
    Shared &s;

    // ---- Meetings ----

    // All threads of a cluster's blocks, in whole warps.
    DEV static void meet_cluster()
    {
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
    // What warps that drain nothing do instead.
    DEV static void attend()
    {
        if constexpr (any)
            for (int i = 0; i < 2; i++) meet_cluster();
    }
    // All threads that drain, ahead of it: sum(row, quad, x) as Quads::drain has it, meet() is their barrier.
    template <class Sum, class Meet> DEV void finish_all(int thread, int threads, Sum sum, Meet meet) const
    {
        if constexpr (any) {
            fold(thread, threads, sum);
            meet_cluster();
            finish(thread / 32, threads / 32);
            __syncwarp();
            ptx::cluster_arrive();
            meet();
        }
    }
    // The same behind it: others may still read what this block has folded.
    DEV static void leave()
    {
        __syncwarp();
        if constexpr (any) ptx::cluster_wait();
    }

    // ---- Folds ----

    // Every `step`th of this block's quads, from `begin` on.
    template <class Sum> DEV void fold(int begin, int step, Sum sum) const
    {
#pragma unroll 1
        for (int i = begin; i < quads.rows() * quads.count(); i += step) {
            const int row = i / quads.count(), quad = i % quads.count();
            float sums[2][2];
            sum(row, quad, sums);
            const auto spot = Quads::Spot::of(Quads::first(quads.block.index()) + quad);
            Quads::in_range(spot, [&](auto in) {
                using Fold = typename Epilogue::template Fold<in.range>;
                if constexpr (!__is_empty(Fold))
                    put(s.fold[row][quad], fold_quad<in.range>(spot, quad, row, sums));
            });
        }
    }
    template <int range, class Spot>
    DEV auto fold_quad(const Spot &spot, int quad, int row, const float (&sums)[2][2]) const
    {
        typename Epilogue::template Fold<range> fold[2];
        Epilogue::template init_fold<range>(fold[0]), Epilogue::template init_fold<range>(fold[1]);
        Quads::Slots::template fold<range>(
            quads.args, sums, spot.place(quads.batch(), quads.first_row + row), quads.values.row[row],
            [&](int side, int n) { return quads.values.col[quad][2 * side + n]; }, fold);
        Epilogue::template merge_folds<range>(fold[0], fold[1]);
        return fold[0];
    }

    // ---- Values ----

    // The cluster has folded. A warp takes every `warps`th segment that this block has columns of.
    DEV void finish(int warp, int warps) const
    {
        const int begin = Quads::first(quads.block.index()) / unit;
        const int end = (Quads::first(quads.block.index() + 1) + unit - 1) / unit;
#pragma unroll 1
        for (int i = warp; i < quads.rows() * (end - begin); i += warps) {
            const int row = i / (end - begin), segment = begin + i % (end - begin);
            Quads::in_range(Quads::Spot::of(segment * unit), [&](auto in) {
                using Fold = typename Epilogue::template Fold<in.range>;
                if constexpr (!__is_empty(Fold)) finish_segment<in.range>(row, segment, segment - begin);
            });
        }
    }
    template <int range> DEV void finish_segment(int row, int segment, int place) const
    {
        const int lane = threadIdx.x % 32;
        typename Epilogue::template Fold<range> fold, more;
        Epilogue::template init_fold<range>(fold);
#pragma unroll 1
        for (int q = lane; q < unit; q += 32) {
            read(more, row, segment * unit + q);
            Epilogue::template merge_folds<range>(fold, more);
        }
#pragma unroll
        for (int i = 1; i < 32; i *= 2) Epilogue::template merge_folds<range>(fold, from_lane(fold, i));
        const auto value = Epilogue::template segment_values<range>(quads.values.row[row], fold);
        if (lane != 0) return;
        put(s.value[row][place], value);
        if (segment * unit >= Quads::first(quads.block.index())) // it has the segment's first columns
            Epilogue::template save_segment<range>(quads.args, quads.batch(), quads.first_row + row,
                                                   Quads::Spot::of(segment * unit).at(0, 0), value);
    }
    // What the block that has the quad has folded of it.
    template <class Fold> DEV void read(Fold &to, int row, int quad) const
    {
        const u32 first = quads.block.index() / cluster * cluster;
        int rank = 0;
#pragma unroll
        for (int i = 1; i < cluster; i++) rank += Quads::first(first + i) <= quad;
        const u32 here = ptx::shared_address(s.fold[row][quad - Quads::first(first + rank)]);
        const u32 at = ptx::cluster_address(here, rank);
        float x[(sizeof(Fold) / 4 + 3) / 4][4];
#pragma unroll
        for (u32 i = 0; i < sizeof x / sizeof x[0]; i++) ptx::cluster_load(x[i], at + 16 * i);
#pragma unroll
        for (u32 i = 0; i < sizeof to / 4; i++) ((float *)&to)[i] = x[i / 4][i % 4];
    }

    // ---- Structs of floats ----

    template <class T> DEV static void put(float *to, const T &x)
    {
#pragma unroll
        for (u32 i = 0; i < floats_of<T>(); i++) to[i] = ((const float *)&x)[i];
    }
    // What slots see of a quad's segment.
    template <class Segment> DEV Segment of(int row, int quad) const
    {
        Segment x = {};
        const int begin = Quads::first(quads.block.index());
        if constexpr (!__is_empty(Segment))
#pragma unroll
            for (u32 i = 0; i < sizeof x / 4; i++)
                ((float *)&x)[i] = s.value[row][(begin + quad) / unit - begin / unit][i];
        return x;
    }
};

} // namespace coda
