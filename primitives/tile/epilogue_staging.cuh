// epilogue_staging.cuh -- tiles of an epilogue that go through shared memory: staged stores, fetched loads.
//
// A warp moves its 16 rows of a unit and waits for no other. It puts patches into swizzled buffers by
// stmatrix and closes the unit by TMA stores; what was fetched it gets by ldmatrix, as TMA has left it. A
// buffer has 64 rows of Config::unit columns.
//
// It stands on EpilogueLayout's numbers and on Stage, which knows where a unit's buffers are and when they
// are full or free (fetch.cuh, lent.cuh).
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/matrix.cuh"
#include "ptx/tma.cuh"
#include "tile/access.cuh"
#include "tile/epilogue_layout.cuh"

namespace coda {

template <class Config, class Epilogue> struct EpilogueStaging {
    using Columns = typename Config::Columns;
    using Layout = EpilogueLayout<Config, Epilogue>;
    static constexpr int buffers = Layout::buffers, pitch = Layout::pitch, pieces = Layout::pieces;
    static constexpr int in_place = Layout::in_place, ring = Layout::ring;

    const typename Config::Args &args;
    const typename Layout::Stage &stage; // of this warpgroup
    int first_row;                       // of this warpgroup in the tile
    int warp, lane;

    // Piece i of what is stored of a unit, which was fetched to `from`.
    DEV u32 piece(int slot, int i, u32 from) const
    {
        return i < in_place ? from : stage.piece(slot, i - in_place).buffer;
    }
    // One patch of a unit, whose rows of both h are top and bottom; a lane gives the address of one row.
    DEV u32 row_in_unit() const { return 16 * warp + lane % 16; }
    DEV void put(int slot, int patch, u32 from, const Line *top, const Line *bottom) const
    {
        const u32 row = row_in_unit();
#pragma unroll
        for (int i = 0; i < Epilogue::staged; i++) {
            u32 m[4], at[2];
#pragma unroll
            for (int side = 0; side < 2; side++) {
                m[2 * side] = pack2<typename Epilogue::Staged>(top[i].x[side][0], top[i].x[side][1]);
                m[2 * side + 1] =
                    pack2<typename Epilogue::Staged>(bottom[i].x[side][0], bottom[i].x[side][1]);
                const int buffer = i * buffers + octet_in_chunk(patch, side) / octets;
                at[side] = piece(slot, buffer, from) + row * pitch + swizzled(patch, side, row);
            }
            if constexpr (Columns::gated) ptx::stmatrix(at[0], m[0], m[1]);
            else ptx::stmatrix(lane < 16 ? at[0] : at[1], m[0], m[1], m[2], m[3]);
        }
    }
    DEV void get(u32 unit, int patch, Line &top, Line &bottom) const
    {
        constexpr int sides = Columns::gated ? 1 : 2;
        const u32 row = row_in_unit(), side = sides == 2 && lane >= 16;
        u32 m[2 * sides];
        ptx::ldmatrix(unit + row * pitch + swizzled(patch, side, row), m);
#pragma unroll
        for (int i = 0; i < sides; i++) {
            const Pair a = unpack2<typename Epilogue::Fetched>(m[2 * i]);
            const Pair b = unpack2<typename Epilogue::Fetched>(m[2 * i + 1]);
            top.x[i][0] = a.a, top.x[i][1] = a.b;
            bottom.x[i][0] = b.a, bottom.x[i][1] = b.b;
        }
    }
    // Of an octet in its buffer: the 16-byte pieces of a row are exchanged by the number of the 128 bytes
    // that it lies in.
    static constexpr int octets = Config::unit / 8;
    DEV static int octet_in_chunk(int patch, int side)
    {
        return (Columns::gated ? patch : Columns::octet(patch, side)) % (octets * buffers);
    }
    DEV static u32 swizzled(int patch, int side, int row)
    {
        return (octet_in_chunk(patch, side) % octets ^ row * octets / 8 % octets) << 4;
    }

    // Before a slot is overwritten TMA has read it. A tile starts with slot 0, wherever the last one ended;
    // or with slots that are handed over empty, in their order: it waits for the last piece's. After units
    // that were skipped, any slot may be the one that was left last.
    DEV void open_unit(int unit, bool after_skipped) const
    {
        if constexpr (Config::lends && pieces > in_place)
            if (unit < ring) stage.await(stage.piece(unit, pieces - in_place - 1));
        if (unit < ring && (Config::lends || unit)) return;
        if (lane == 0)
            unit && !after_skipped ? ptx::tma_store_wait_read<ring - 1>() : ptx::tma_store_wait_read<0>();
        __syncwarp();
    }
    DEV static int buffer_column(const Tile &t, int chunk, int buffer)
    {
        const int j = chunk * Layout::chunk_columns + buffer * Config::unit;
        return Columns::gated ? Layout::out_first(t) + j : Columns::column(t.first, j);
    }
    DEV void close_unit(const Tile &t, int chunk, int block, int slot, u32 from) const
    {
        const int first = first_row + 64 * block + 16 * warp;
        ptx::fence_async_shared();
        __syncwarp();
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < pieces; i++)
                ptx::tma_store(&args.stores[i / buffers], piece(slot, i, from) + 16 * warp * pitch,
                               buffer_column(t, chunk, i % buffers), t.m * Config::bm + first, t.batch);
            ptx::tma_store_commit();
        }
        __syncwarp();
    }
};

} // namespace coda
