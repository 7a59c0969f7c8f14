// pieces.cuh -- the pieces of tiles that a block multiplies, and the sums of a tile of which several blocks
// have a piece.
//
// Without Config::dealt a piece is a tile: block b has tiles b, b + blocks, ... Else the slots of K of all
// tiles, one tile's behind the other's, are dealt to the blocks evenly, in pairs: so all end together,
// whatever the number of tiles ("stream-K", Osama et al., 2023). Who has a tile's first slots owns it. The
// others leave their sums in memory, with a flag behind them, and the owner adds these up in the order of K:
// which sums there are depends on the shape and the number of blocks alone.
//
// A block's first piece may be the end of a tile, its last one may be the beginning of another: it leaves
// sums once at most, early, and waits for others' at its end. It waits for blocks of lower numbers alone,
// which began before it did: whatever else has the device, they end.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/system.cuh"
#include "tile/resources.cuh"

namespace coda {

struct Piece {
    u32 tile;
    int first, last; // slots of K, up to but without the last
};

// Tiles of `steps` slots.
template <class Config, int steps> struct Pieces {
    static constexpr u32 pairs = steps / 2;
    u32 at, end, stride; // dealt: pairs of slots, of all tiles; else tiles

    // A place is where a block's part of the work lies.
    template <class Block> DEV static u32 place(const Block &block)
    {
        return Config::blocks - 1 - block.index();
    }
    DEV static u32 begin(u32 place, u32 tiles)
    {
        return (u32)((u64)place * (tiles * pairs) / (u32)Config::blocks);
    }

    template <class Block> DEV static Pieces of(const Block &block, u32 tiles)
    {
        if constexpr (!Config::dealt) return {block.index(), tiles, block.count()};
        else return {begin(place(block), tiles), begin(place(block) + 1, tiles), 0};
    }
    DEV bool more() const { return at < end; }
    DEV Piece next()
    {
        if constexpr (!Config::dealt) {
            const u32 tile = at;
            at += stride;
            return {tile, 0, steps};
        } else {
            const u32 tile = at / pairs, first = at - tile * pairs, left = end - at;
            const u32 n = left < pairs - first ? left : pairs - first;
            at += n;
            return {tile, 2 * (int)first, 2 * (int)(first + n)};
        }
    }
};

// The memory in which consumers of all places leave n sums of each of their threads, and their flags. Before
// the launch it holds anything but a flag, that is, by chance 128 bits; behind it, no flag.
template <class Config, int steps, int n> struct LeftSums {
    using Deal = Pieces<Config, steps>;
    static constexpr u32 vectors = n / 4, group_bytes = 128 * 4 * n,
                         all = Config::blocks * Config::groups * group_bytes;
    static_assert(n % 4 == 0);

    u8 *memory;
    int group;

    DEV u8 *sums(u32 place) const
    {
        return memory + (u64)(place * Config::groups + group) * group_bytes + threadIdx.x % 128 * 16;
    }
    DEV u8 *flag(u32 place) const { return memory + all + (place * Config::groups + group) * 16; }
    DEV static ptx::Words raised() { return {{0x9e3779b9u, 0x243f6a88u, 0xb7e15162u, 0x6a09e667u}}; }
    DEV static bool is_raised(const ptx::Words &w)
    {
        const ptx::Words r = raised();
        return w.at[0] == r.at[0] && w.at[1] == r.at[1] && w.at[2] == r.at[2] && w.at[3] == r.at[3];
    }

    // Vectors of many sums would be moved to neighbouring registers first, for which there are none left.
    static constexpr bool single = n > 64 && !Config::transposed;
    DEV u8 *singles(u32 place) const { return sums(place) - threadIdx.x % 128 * 12; }

    // By the consumer, which goes on. A warp besides raises the flag, since the fence takes its time.
    DEV void leave(const float (&sum)[n], u32 place) const
    {
        if constexpr (single)
#pragma unroll
            for (u32 i = 0; i < n; i++) *(float *)(singles(place) + i * 128 * 4) = sum[i];
        else
#pragma unroll
            for (u32 i = 0; i < vectors; i++)
                *(ptx::Words *)(sums(place) +
                                i * 128 * 16) = {{float_bits(sum[4 * i]), float_bits(sum[4 * i + 1]),
                                                  float_bits(sum[4 * i + 2]), float_bits(sum[4 * i + 3])}};
        ptx::named_arrive(barrier_turn + group, 128 + 32);
    }
    DEV void raise_flag(u32 place) const
    {
        ptx::named_barrier(barrier_turn + group, 128 + 32);
        if (threadIdx.x % 32) return;
        ptx::fence_device();
        ptx::store_device(flag(place), raised());
    }

    // By a warp: what the blocks at the places behind leave of a tile, which ends with pair `end`, is there.
    DEV void await_all(u32 place, u32 end, u32 tiles) const
    {
        for (u32 q = place + 1 + threadIdx.x % 32; Deal::begin(q, tiles) < end; q += 32) await(q, tiles);
        __syncwarp();
        ptx::fence_device();
    }
    // ... which the warp besides says to the consumer.
    DEV void announce(u32 place, u32 end, u32 tiles) const
    {
        await_all(place, end, tiles);
        ptx::named_arrive(barrier_announced + group, 128 + 32);
    }
    // Adds it.
    template <bool announced> DEV void add(float (&sum)[n], u32 place, u32 end, u32 tiles) const
    {
        if (!announced && threadIdx.x / 32 % 4 == 0) await_all(place, end, tiles);
        if (announced) ptx::named_barrier(barrier_announced + group, 128 + 32);
        else ptx::named_barrier(barrier_group + group, 128);
#pragma unroll 1
        for (u32 q = place + 1; Deal::begin(q, tiles) < end; q++)
            if (has_some(q, tiles)) add_one(sum, q);
    }
    DEV static bool has_some(u32 place, u32 tiles)
    {
        return Deal::begin(place, tiles) < Deal::begin(place + 1, tiles);
    }
    DEV void await(u32 place, u32 tiles) const
    {
        if (!has_some(place, tiles)) return;
        while (!is_raised(ptx::load_device(flag(place)))) {}
        ptx::store_device(flag(place), {{0, 0, 0, 0}});
    }
    DEV void add_one(float (&sum)[n], u32 place) const
    {
        if constexpr (single)
#pragma unroll
            for (u32 i = 0; i < n; i++) {
                if (i % 64 == 0) __syncwarp(); // so many loads at one time
                sum[i] += ptx::load_float_device(singles(place) + i * 128 * 4);
            }
        else
#pragma unroll
            for (u32 i = 0; i < vectors; i++) {
                const ptx::Words w = ptx::load_device(sums(place) + i * 128 * 16);
#pragma unroll
                for (int j = 0; j < 4; j++) sum[4 * i + j] += bits_float(w.at[j]);
            }
    }
};

} // namespace coda
