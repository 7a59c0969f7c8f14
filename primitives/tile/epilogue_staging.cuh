// epilogue_staging.cuh -- tiles of an epilogue that go through shared memory: staged stores, fetched loads.
//
// A warp moves its 16 rows of a unit and waits for no other. It puts patches into swizzled buffers and closes
// the unit by TMA stores; what was fetched it gets as TMA has left it. Elements of 16 bits go by stmatrix and
// ldmatrix, those of 32 by pairs. A buffer has 64 rows of Config::unit columns.
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
    using Staged = typename Layout::Staged;
    using Fetched = typename Layout::Fetched;
    static constexpr int ring = Layout::ring, sides = Columns::gated ? 1 : 2;

    const typename Config::Args &args;
    const typename Layout::Stage &stage; // of this warpgroup
    int first_row;                       // of this warpgroup in the tile
    int warp, lane;

    // What is stored of a unit, at an offset; the unit was fetched to `from`.
    DEV u32 stored(int slot, int offset, u32 from) const
    {
        return offset < Layout::in_place_bytes ? from
                                               : stage.piece(slot, offset - Layout::in_place_bytes).buffer;
    }
    // Buffer i of a tile behind so many bytes of a column, of elements of `bytes`.
    DEV static constexpr int offset(int before, int bytes, int i)
    {
        return before * Layout::chunk_byte + i * bytes * Layout::buffer_byte;
    }

    // Of an octet in its buffer, `bytes` an element: the 16-byte pieces of a row are exchanged by the number
    // of the 128 bytes that it lies in.
    static constexpr int octets = Config::unit / 8;
    DEV static int octet_in_chunk(int patch, int side)
    {
        return (Columns::gated ? patch : Columns::octet(patch, side)) % (octets * Layout::buffers);
    }
    DEV static u32 swizzled(int piece, int bytes, int row)
    {
        const int pieces = Config::unit * bytes / 16;
        return (piece ^ row * pieces / 8 % pieces) << 4;
    }
    // Where a lane has an octet of 16-bit elements in its buffer: it gives the address of one row, for
    // stmatrix and ldmatrix; and one of 32 bits: that of the two elements which it holds itself.
    DEV u32 row_in_unit() const { return 16 * warp + lane % 16; }
    DEV u32 matrix_place(int patch, int side) const
    {
        const u32 row = row_in_unit();
        return row * 2 * Config::unit + swizzled(octet_in_chunk(patch, side) % octets, 2, row);
    }
    DEV u32 pair_place(int patch, int side, int h) const
    {
        const u32 row = 16 * warp + lane / 4 + 8 * h;
        const int piece = 2 * (octet_in_chunk(patch, side) % octets) + lane % 4 / 2;
        return row * 4 * Config::unit + swizzled(piece, 4, row) + lane % 2 * 8;
    }

    // One patch of a unit: a row of elements of 32 bits as soon as it is computed, ...
    template <int range> DEV void put_row(int slot, int patch, u32 from, int h, const Line *row) const
    {
        StoresOf<Epilogue, range>::Staged::each([&](auto move, int, int before) {
            if constexpr (decltype(move)::bytes == 4)
                put_pairs<decltype(move)>(slot, patch, from, before, h, row);
        });
    }
    template <class Move>
    DEV void put_pairs(int slot, int patch, u32 from, int before, int h, const Line *row) const
    {
#pragma unroll
        for (int side = 0; side < sides; side++) {
            u32 m[2];
            Move::pack(m, row, side);
            const int buffer = octet_in_chunk(patch, side) / octets;
            ptx::shared_store(stored(slot, offset(before, 4, buffer), from) + pair_place(patch, side, h), m);
        }
    }
    // ... and what has 16 bits when the rows of both h are there, top and bottom.
    template <int range>
    DEV void put(int slot, int patch, u32 from, const Line *top, const Line *bottom) const
    {
        StoresOf<Epilogue, range>::Staged::each([&](auto move, int, int before) {
            if constexpr (decltype(move)::bytes == 2)
                put_matrices<decltype(move)>(slot, patch, from, before, top, bottom);
        });
    }
    template <class Move>
    DEV void put_matrices(int slot, int patch, u32 from, int before, const Line *top,
                          const Line *bottom) const
    {
        u32 m[2][2][1], at[2];
#pragma unroll
        for (int side = 0; side < sides; side++) {
            Move::pack(m[side][0], top, side);
            Move::pack(m[side][1], bottom, side);
            const int buffer = octet_in_chunk(patch, side) / octets;
            at[side] = stored(slot, offset(before, 2, buffer), from);
        }
#pragma unroll
        for (int side = 0; side < sides; side++) at[side] += matrix_place(patch, side);
        if constexpr (sides == 1) ptx::stmatrix(at[0], m[0][0][0], m[0][1][0]);
        else ptx::stmatrix(lane < 16 ? at[0] : at[1], m[0][0][0], m[0][1][0], m[1][0][0], m[1][1][0]);
    }

    DEV void get(u32 unit, int patch, Line *top, Line *bottom) const
    {
        Fetched::each([&](auto move, int, int before) {
            get_tile<decltype(move)>(unit + offset(before, 0, 0), patch, top, bottom);
        });
    }
    template <class Move> DEV void get_tile(u32 from, int patch, Line *top, Line *bottom) const
    {
        if constexpr (Move::bytes == 2) {
            u32 m[2 * sides];
            ptx::ldmatrix(from + matrix_place(patch, sides == 2 && lane >= 16), m);
#pragma unroll
            for (int i = 0; i < 2 * sides; i++) Move::unpack({m[i]}, i % 2 ? bottom : top, i / 2);
        } else
#pragma unroll
            for (int i = 0; i < 2 * sides; i++) {
                u32 m[2];
                ptx::shared_load(m, from + pair_place(patch, i / 2, i % 2));
                Move::unpack(m, i % 2 ? bottom : top, i / 2);
            }
    }

    // Before a slot is overwritten TMA has read it. A tile starts with slot 0, wherever the last one ended;
    // or with slots that are handed over empty, in their order: it waits for the last piece's. After units
    // that were skipped, any slot may be the one that was left last.
    DEV void open_unit(int unit, bool after_skipped) const
    {
        if constexpr (Config::lends && Layout::lent_pieces > 0)
            if (unit < ring) stage.await(stage.piece(unit, (Layout::lent_pieces - 1) * Layout::lent_bytes));
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
    template <int range> DEV void close_unit(const Tile &t, int chunk, int block, int slot, u32 from) const
    {
        const int first = first_row + 64 * block + 16 * warp;
        ptx::fence_async_shared();
        __syncwarp();
        if (lane == 0) {
            using Stores = StoresOf<Epilogue, range>;
            Stores::Staged::each([&](auto move, int i, int before) {
                constexpr int bytes = decltype(move)::bytes;
#pragma unroll
                for (int buffer = 0; buffer < Layout::buffers; buffer++) {
                    const u32 place = stored(slot, offset(before, bytes, buffer), from) +
                                      16 * warp * bytes * Config::unit;
                    const int column = buffer_column(t, chunk, buffer) - Stores::first(i);
                    const int row = t.m * Config::bm + first;
                    if constexpr (decltype(move)::adds)
                        ptx::tma_add(&args.stores[Stores::map(i)], place, column, row, t.batch);
                    else ptx::tma_store(&args.stores[Stores::map(i)], place, column, row, t.batch);
                }
            });
            ptx::tma_store_commit();
        }
        __syncwarp();
    }
};

} // namespace coda
