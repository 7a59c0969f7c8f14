// split_parts.cuh -- how the warps of a block of attention_split_sm90.cuh join what they have summed over a
// part of an item's keys, and how a block's parts are joined.
#pragma once
#include "attention/merge.cuh"
#include "attention/split_steps.cuh"
#include "port/tile.cuh"
#include "ptx/barrier.cuh"
#include "ptx/matrix.cuh"

namespace coda {

template <class Config> struct SplitParts : SplitSteps<Config> {
    using Steps = SplitSteps<Config>;
    using Steps::held, Steps::levels, Steps::together, Steps::climbed, Steps::lends, Steps::s;
    using Steps::Steps;
    using Steps::warp, Steps::lane, Steps::address, Steps::states, Steps::attend;
    using Steps::warps, Steps::rows, Steps::halves, Steps::columns, Steps::octets, Steps::narrow;
    using typename Steps::Out, typename Steps::Rows;
    using typename Steps::State, typename Steps::Cursor, typename Steps::Item, typename Steps::Queries;

    // Waits until the states of the parts before have been read, or all warps the ring.
    DEV void wait_to_put(u32 count) const
    {
        if (!lends) return ptx::mbarrier_wait(address(&s.warps_read), count & 1 ^ 1);
        __syncwarp();
        ptx::named_barrier(barrier_streamers, 32 * warps);
    }
    // The state of this warp over a part.
    DEV void put(const OnlineSoftmax &softmax, const Out &out, i32 part, u32 count) const
    {
        State &to = states(part % together)[warp];
        wait_to_put(count);
#pragma unroll
        for (i32 r = 0; r < halves; r++) {
            const i32 row = lane / 4 + 8 * r;
            const float sum = quad_sum(softmax.sum[r]);
            if (row >= rows) continue;
            if (lane % 4 == 0) to.peak[row].max = softmax.max[r], to.peak[row].sum = sum;
            if (narrow) {
                put_narrow(&to.out[row][lane % 4 * 4], out, r);
                continue;
            }
#pragma unroll
            for (i32 i = 0; i < octets; i++)
                port::store_pair(&to.out[row][8 * i + lane % 4 * 2], {out[i][2 * r], out[i][2 * r + 1]});
        }
    }

    DEV Partial<Config> merge_warps(const State *of_warp, i32 row, i32 column) const
    {
        Partial<Config> all;
#pragma unroll
        for (i32 w = 0; w < warps; w++) all.max = fmaxf(all.max, of_warp[w].peak[row].max);
#pragma unroll
        for (i32 w = 0; w < warps; w++) {
            float x[4];
            ptx::shared_load(x, address(&of_warp[w].out[row][column]));
            all.add(of_warp[w].peak[row], x);
        }
        return all;
    }
    // The parts from `first` on that are joined at one time, of which some have keys.
    DEV Partial<Config> merge_parts(const Item &item, i32 first, i32 row, i32 column) const
    {
        Partial<Config> part[together];
#pragma unroll
        for (i32 i = 0; i < together; i++)
            if (together == 1 || item.any(first + i, first + i + 1))
                part[i] = merge_warps(states(i), row, column);
#pragma unroll
        for (i32 d = 1; d < together; d *= 2)
#pragma unroll
            for (i32 i = 0; i < together; i += 2 * d) part[i].join(part[i + d]);
        return part[0];
    }
    // Up the tree of this block's parts, as far as siblings have been here; one without keys counts as
    // having. The last part comes to the top. A thread has the same columns of a row in all parts.
    DEV void join(const Item &item, i32 part, u32 turn) const
    {
#pragma unroll 1
        for (i32 e = threadIdx.x; e < rows * columns / 4; e += 32 * warps) {
            const i32 row = e / (columns / 4), column = e % (columns / 4) * 4;
            Partial<Config> all = merge_parts(item, part / together * together, row, column);
            bool waits = false;
#pragma unroll
            for (i32 level = climbed; level < levels; level++) {
                const i32 sibling = part >> level ^ 1;
                if (!item.any(sibling << level, sibling + 1 << level)) continue;
                State &left = s.of_left[level - climbed];
                waits = sibling & 1;
                if (waits) {
                    ptx::shared_store(address(&left.out[row][column]), all.out);
                    if (column == 0) left.peak[row].max = all.max, left.peak[row].sum = all.sum;
                    break;
                }
                Partial<Config> pair;
                pair.max = left.peak[row].max, pair.sum = left.peak[row].sum;
                ptx::shared_load(pair.out, address(&left.out[row][column]));
                pair.join(all);
                all = pair;
            }
            if (!waits) s.inboxes.send(all, row, column, turn);
        }
    }
    // Ends a part of item number `turn`; `count` parts were joined by this block before, some with others.
    DEV void publish(const OnlineSoftmax &softmax, const Out &out, const Item &item, i32 part, u32 &count,
                     u32 turn) const
    {
        put(softmax, out, part, count);
        if (item.any(part + 1, part / together * together + together)) return;
        __syncwarp();
        ptx::named_barrier(barrier_streamers, 32 * warps);
        join(item, part, turn);
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(address(&s.warps_read));
        count++;
    }
    // A block that had no keys of the item.
    DEV void publish_nothing(u32 turn) const
    {
#pragma unroll 1
        for (i32 e = threadIdx.x; e < rows * columns / 4; e += 32 * warps)
            s.inboxes.send(Partial<Config>(), e / (columns / 4), e % (columns / 4) * 4, turn);
    }
    // This block's parts of an item's keys; ask() follows each tile that has been read.
    template <class Ask>
    DEV void attend_parts(Cursor &at, const Queries &x, const Rows &as, const Item &item, u32 &count,
                          u32 turn, Ask ask) const
    {
#pragma unroll 1
        for (i32 part = 0; part < held; part++) {
            OnlineSoftmax softmax;
            Out out = {};
            if (!item.any(part, part + 1)) continue;
            for (i32 block = item.begin(part); block < item.begin(part + 1); block++)
                attend(at, x, softmax, as, item, block, out, ask);
            publish(softmax, out, item, part, count, turn);
        }
        if (!item.any(0, held)) publish_nothing(turn);
    }
};

} // namespace coda
