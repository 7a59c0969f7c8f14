// stream_mma_copies.cuh -- what the two warps of stream_mma.cuh do that multiply nothing: the producer copies
// tiles of B into their ring, the supplier chunks of A, or digits of them, into another.
//
// Each waits until what it overwrites has been multiplied; a slot's barrier tells consumers that it is full.
#pragma once

#include "ptx/copy.cuh"
#include "types.cuh"

namespace coda {

template <class Config, class Stream> struct StreamMmaCopies {
    using Quads = typename Stream::Quads;
    using Spot = typename Stream::Spot;
    using Fragments = typename Stream::Fragments;
    using Ring = typename Stream::Ring;
    using RightRing = typename Stream::RightRing;
    static constexpr int bk = Stream::bk, depth = Stream::depth, chunks = Stream::chunks,
                         passes = Stream::passes, pass_tiles = Stream::pass_tiles,
                         most_rows = Stream::most_rows, right_pitch = Stream::right_pitch;
    static constexpr bool packed = Stream::packed, across = Stream::across;

    const Stream &stream;

    // ---- The producer: B ----

    DEV static int place_of(int r) { return r / 16 * 16 + r % 4 / 2 * 8 + r / 4 % 4 * 2 + r % 2; }
    // Copies a chunk of this block's quads from `quad` on, before `end`, as many as a slot has. Rows lie
    // apart, and a bulk copy of each takes TMA some 64 clocks: so it is cp.async, a row or half of it by all
    // lanes, each of which has found one row.
    DEV void produce_slot(typename Ring::Cursor at, int quad, int end, int chunk) const
    {
        constexpr int rows = 16 * depth, pieces = Fragments::size * bk / 512;
        const int lane = threadIdx.x % 32, live = 4 * min(end - quad, 4 * depth);
        const int begin = Quads::first(stream.block.index()) + quad,
                  bytes = Fragments::size * stream.length(chunk);
        const u8 *const from = (const u8 *)(stream.b() + (i64)chunk * bk) + 16 * lane;
        const u32 to = ptx::shared_address(stream.s.ring.data[at.slot]) + 16 * lane;
        u32 line[(rows + 31) / 32]; // in units of 16 bytes
#pragma unroll
        for (int i = 0; i < (rows + 31) / 32; i++) {
            const int r = min(32 * i + lane, live - 1);
            const int column = Quads::row_of(Spot::of(begin + r / 4).at(r % 4 / 2, r % 2));
            line[i] = (u32)(column * Config::b_stride_row * Fragments::size / 16);
        }
        stream.s.ring.wait_free(at);
#pragma unroll
        for (int r = 0; r < rows; r++) {
            const int row = place_of(r);
            const u8 *const own = from + (u64)__shfl_sync(~0u, line[r / 32], r % 32) * 16;
#pragma unroll
            for (int i = 0; i < pieces; i++)
                if (r < live && 512 * i + 16 * lane < bytes)
                    ptx::copy_async_steady(to + row * Fragments::pitch + 512 * i, own + 512 * i);
        }
        ptx::copy_async_arrive(stream.s.ring.full_of(at));
    }

    // The same of blocks of records, for tiles from `tile` on, before `end`.
    DEV void produce_records(typename Ring::Cursor at, int tile, int end, int chunk) const
    {
        using Weights = typename Fragments::W;
        const int patch = Quads::first(stream.block.index()) / 4 + tile;
        const u32 bytes = (stream.length(chunk) + Weights::step - 1) / Weights::step * Weights::bytes;
        int blocks = 0;
        for (int i = 0; i < depth; i++) blocks += (across ? tile + i / 2 * 2 : tile + i) < end;
        const u32 bar = stream.s.ring.expect_in_warp(at, blocks * bytes);
        const u32 to = ptx::shared_address(stream.s.ring.data[at.slot]);
        const bool once = Config::rows(stream.args) <= most_rows;
        const u8 *const from = stream.b() + (i64)chunk * (bk / Weights::step) * Weights::bytes;
        const int i = threadIdx.x % 32, first = across ? i / 2 * 2 : i;
        if (i < depth && tile + first < end) {
            const int column = Spot::of(4 * (patch + first)).at(across ? i % 2 : 0, 0);
            const u8 *const records = from + column / 16 * Weights::block;
            if (once) ptx::bulk_load_once(to + i * Fragments::tile_bytes, records, bytes, bar);
            else ptx::bulk_load(to + i * Fragments::tile_bytes, records, bytes, bar);
        }
    }

    DEV void produce() const
    {
        auto at = Ring::producer();
        if (!Config::early) ptx::grid_wait();
#pragma unroll 1
        for (int pass = 0; pass < passes; pass++) {
            const int first = pass_tiles * pass, end = first + stream.tiles_of(pass);
#pragma unroll 1
            for (int chunk = 0; chunk < chunks; chunk++)
#pragma unroll 1
                for (int tile = first; tile < end; tile += depth, at.next())
                    if constexpr (packed) produce_records(at, tile, end, stream.chunk_at(chunk));
                    else produce_slot(at, 4 * tile, min(4 * end, stream.count()), stream.chunk_at(chunk));
        }
        if constexpr (!packed) finish_copies();
    }

    // ---- The supplier: A ----

    DEV auto chunk_of(int row, int chunk) const
    {
        return stream.a() + (stream.first_row + row) * Config::a_stride_row + (i64)chunk * bk;
    }

    // A chunk of the rows of A, which are so short that bulk copies of them would keep TMA from records of B.
    DEV void supply_by_lanes(typename RightRing::Cursor at, int chunk) const
    {
        constexpr int pieces = 2 * bk / 512;
        const int lane = threadIdx.x % 32, bytes = 2 * stream.length(chunk);
        const u32 to = ptx::shared_address(stream.s.right.data[at.slot]) + 16 * lane;
        stream.s.right.wait_free(at);
#pragma unroll 1
        for (int row = 0; row < stream.rows(); row++)
#pragma unroll
            for (int i = 0; i < pieces; i++)
                if (512 * i + 16 * lane < bytes)
                    ptx::copy_async<16>(to + row * right_pitch + 512 * i,
                                        (const u8 *)chunk_of(row, chunk) + 16 * lane + 512 * i, 16);
        ptx::copy_async_arrive(stream.s.right.full_of(at));
    }

    // The same where lanes copy B, so that TMA has nothing else to do: 16 rows times f8e4m3 of 22016 x 4096
    // took an H200 27.9 us, not 28.4.
    DEV void supply_by_bulk(typename RightRing::Cursor at, int chunk) const
    {
        const int row = threadIdx.x % 32;
        const u32 bytes = 2 * stream.length(chunk),
                  bar = stream.s.right.expect_in_warp(at, stream.rows() * bytes);
        if (row < stream.rows())
            ptx::bulk_load(ptx::shared_address(stream.s.right.data[at.slot]) + row * right_pitch,
                           chunk_of(row, chunk), bytes, bar);
    }

    DEV void supply_rows() const
    {
        auto at = RightRing::producer();
#pragma unroll 1
        for (int pass = 0; pass < passes; pass++)
#pragma unroll 1
            for (int chunk = 0; chunk < chunks && stream.tiles_of(pass); chunk++, at.next())
                if constexpr (packed) supply_by_lanes(at, stream.chunk_at(chunk));
                else supply_by_bulk(at, stream.chunk_at(chunk));
    }

    // Rows of A become digits, a chunk at a time, which warps have in turns; more are on their way meanwhile.
    DEV void supply_digits(int own) const
    {
        auto at = RightRing::producer();
        constexpr int most = Fragments::chunks_ahead, step = Config::suppliers;
        typename Fragments::Supply ahead[most];
        const auto load = [&](typename Fragments::Supply &x, int chunk) {
#pragma unroll
            for (int row = 0; row < Fragments::left_rows; row++)
                if (row < stream.rows()) x.load(row, (const u8 *)chunk_of(row, chunk), stream.length(chunk));
        };
        int all = 0;
        for (int pass = 0; pass < passes; pass++) all += stream.tiles_of(pass) ? chunks : 0;
#pragma unroll
        for (int i = 0; i < most; i++) load(ahead[i], (own + i * step) % chunks);
        for (int i = 0; i < own; i++) at.next();
#pragma unroll 1
        for (int n = own; n < all; n += most * step)
#pragma unroll
            for (int i = 0; i < most; i++) {
                if (n + i * step >= all) break;
                stream.s.right.wait_free(at);
#pragma unroll
                for (int row = 0; row < Fragments::left_rows; row++)
                    if (row < stream.rows()) ahead[i].store(row, stream.s.right.data[at.slot]);
                ptx::mbarrier_arrive(stream.s.right.full_of(at));
                for (int j = 0; j < step; j++) at.next();
                load(ahead[i], (n + (i + most) * step) % chunks);
            }
    }

    DEV void supply(int own) const
    {
        ptx::grid_wait();
        if constexpr (Fragments::digits) supply_digits(own);
        else supply_rows();
        if (own == 0) stream.quads().prepare(), stream.s.ring.tell_prepared();
        finish_copies();
    }
    // No thread ends before what it has asked for.
    DEV static void finish_copies()
    {
        ptx::copy_async_commit();
        ptx::copy_async_wait<0>();
    }
};

} // namespace coda
