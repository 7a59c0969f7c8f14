// gemm_sm90_plain.cuh -- the plain kernel that gemm_sm90.cuh is a growth of, to be read first: C = A B^T of
// bf16 or f16, by TMA, wgmma and a TMA store. It has no epilogue, so the library never emits it; a test
// runs it.
//
//     producer    one thread: for each 64 of K, waits for an empty slot and loads A's and B's box into it
//     consumers   Config::groups warpgroups, 64 rows of the tile each: wait until a slot is full, multiply it
//                 and give it back; in the end round the sums, and store them through shared memory
//
// A block has one tile. What gemm_sm90.cuh adds: products in flight while the next slot is awaited, more than
// 64 rows for a consumer, persistent blocks and their raster, ping-pong, clusters, split K, MN-major
// operands, narrower last tiles, and in the place of store() the Drain of epilogue.cuh.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/matrix.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "tile/resources.cuh"

namespace coda {

// Both operands are K-major. Boxes of the maps a, b: 64 of K by the tile's rows; of c: 64 columns by 16 rows.
struct PlainArgs { TensorMap a, b, c; };

template <class Config> struct GemmSm90Plain {
    using Element = typename Config::T;
    static constexpr int bk = 64, bm = 64 * Config::groups, threads = 128 * (1 + Config::groups);
    static constexpr int steps = (Config::k + bk - 1) / bk, tile_rows = (Config::m + bm - 1) / bm;
    static constexpr int boxes = Config::bn / 64; // of 64 columns, in which the tile leaves
    using Registers = RegisterBudget<24, 224, Config::groups>;
    static constexpr u32 line = 2 * bk; // bytes of a row in a slot, which TMA swizzles

    struct Shared {
        alignas(swizzle_atom) u8 a[Config::stages][bm * line], b[Config::stages][Config::bn * line];
        u8 c[Config::groups][boxes][64 * line];
        u64 full[Config::stages], empty[Config::stages];
    };

    const PlainArgs &args;
    Shared &s;

    DEV static u32 address(const void *p) { return ptx::shared_address(p); }
    // Step i is in slot i % stages, which is filled for the first, second, ... time.
    DEV static int slot(int step) { return step % Config::stages; }
    DEV static u32 parity(int step) { return step / Config::stages & 1; }
    DEV static int first_row() { return (int)blockIdx.x % tile_rows * bm; }
    DEV static int first_column() { return (int)blockIdx.x / tile_rows * Config::bn; }

    // A slot is full when one thread has arrived and its bytes have; empty when all consumers have arrived.
    DEV void init() const
    {
        for (int i = 0; i < Config::stages; i++) {
            ptx::mbarrier_init(address(&s.full[i]), 1);
            ptx::mbarrier_init(address(&s.empty[i]), Config::groups);
        }
        ptx::mbarrier_fence_init();
    }

    // A fresh slot is empty: the wait for the phase before its first one returns at once.
    DEV void produce() const
    {
#pragma unroll 1 // its warpgroup has few registers
        for (int step = 0; step < steps; step++) {
            const int i = slot(step);
            const u32 full = address(&s.full[i]);
            ptx::mbarrier_wait(address(&s.empty[i]), parity(step) ^ 1);
            ptx::mbarrier_arrive_expect(full, (bm + Config::bn) * line);
            ptx::tma_load(address(s.a[i]), &args.a, full, bk * step, first_row(), 0);
            ptx::tma_load(address(s.b[i]), &args.b, full, bk * step, first_column(), 0);
        }
    }

    using Sums = float[Config::bn / 2]; // of 64 rows: see ptx/wgmma.cuh

    DEV void multiply(Sums &sums, int group) const
    {
        for (int step = 0; step < steps; step++) {
            const int i = slot(step);
            ptx::mbarrier_wait(address(&s.full[i]), parity(step));
            const u64 a = ptx::wgmma_descriptor(address(s.a[i]) + group * 64 * line, bk * line, 8 * line);
            const u64 b = ptx::wgmma_descriptor(address(s.b[i]), bk * line, 8 * line);
            ptx::wgmma_fence();
            ptx::Wgmma<Element, Config::bn>::template mma<0, 0>(sums, a, b, step != 0);
            ptx::wgmma_commit();
            ptx::wgmma_wait<0>();
            if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(address(&s.empty[i]));
        }
    }

    // A warp stores its 16 rows and waits for no other. Its patches of 16 x 16 sums go to shared memory by
    // stmatrix, whose 16-byte pieces lie where TMA expects them: swizzled by their row.
    DEV void store(const Sums &sums, int group) const
    {
        const int warp = ptx::uniform(threadIdx.x % 128 / 32), lane = threadIdx.x % 32;
        const u32 row = 16 * warp + lane % 16;
#pragma unroll
        for (int patch = 0; patch < Config::bn / 16; patch++) {
            const u32 piece = (2 * (patch % 4) + lane / 16) ^ row % 8;
            u32 m[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                m[i] = pack2<Element>(sums[8 * patch + 2 * i], sums[8 * patch + 2 * i + 1]);
            ptx::stmatrix(address(s.c[group][patch / 4]) + row * line + piece * 16, m[0], m[1], m[2], m[3]);
        }
        ptx::fence_async_shared(); // plain stores become visible to TMA
        __syncwarp();
        if (lane != 0) return;
        for (int box = 0; box < boxes; box++)
            ptx::tma_store(&args.c, address(s.c[group][box]) + 16 * warp * line, first_column() + 64 * box,
                           first_row() + 64 * group + 16 * warp, 0);
        ptx::tma_store_commit();
        ptx::tma_store_wait<0>(); // shared memory lives as long as its block
    }

    DEV void run() const
    {
        const int group = ptx::uniform(threadIdx.x / 128);
        if (threadIdx.x == 0) init();
        __syncthreads();
        ptx::grid_wait(); // what the kernel ahead of this one has written is there
        if (group == 0) {
            ptx::shrink_registers<Registers::producer>();
            if (threadIdx.x == 0) produce();
        } else {
            ptx::grow_registers<Registers::consumer>();
            Sums sums;
            multiply(sums, group - 1);
            store(sums, group - 1);
        }
    }
};

template <class Config> DEV void gemm_sm90_plain(const PlainArgs &args)
{
    extern __shared__ __align__(swizzle_atom) u8 memory[];
    using Gemm = GemmSm90Plain<Config>;
    Gemm{args, *(typename Gemm::Shared *)memory}.run();
}

} // namespace coda
