// pipeline.cu -- a small pipeline of TMA and wgmma, and what may be wrong with one: test_emulator.c runs it.
//
// out[tile] = a b^T for each of two tiles, a and b of [64, 256], through two slots of 64 k; `exchange`, where
// the two blocks of a cluster read each other's memory; `give`, where they send; and `share`, where one loads
// a and the other b for both. `copied` makes the same product by cp.async and mma.sync. A launch makes one
// mistake, which its argument names: so all of them are one text, compiled once.
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/control.cuh"
#include "ptx/copy.cuh"
#include "ptx/matrix.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

using namespace coda;

enum {
    NOTHING,
    NO_INIT_FENCE,    // TMA does not know the mbarriers
    NO_EMPTY_WAIT,    // a slot is filled before it was released
    LATE_LANES,       // ... lanes that do not fill it wait for it, too
    NO_FULL_WAIT,     // ... is read before it was filled
    NO_GRID_WAIT,     // what is loaded may not have been written yet
    EARLY_LOAD,       // ... is said to be written by nobody
    OTHER_PARITY,     // the wait for it returns at once
    EARLY_RELEASE,    // it is released before its products were waited for
    TOO_FEW_ARRIVALS, // ... is never released
    TOO_MANY_ARRIVALS,
    FEWER_BYTES,      // a barrier expects half of what comes
    NO_WGMMA_FENCE,
    NO_COMMIT,
    WRITTEN_SUMS,     // while products are in flight
    EARLY_SUMS,       // read while products are in flight
    NO_PROXY_FENCE,   // TMA reads what plain stores wrote
    NO_READ_WAIT,     // the staging buffer is written again before TMA has read it
    NO_STORE_WAIT,    // the block ends before that
    NO_STORE_COMMIT,
    OTHER_COUNT,      // of threads at one barrier
    MISSING_WARP,     // at a barrier
    LONE_LANES,       // a shuffle without lane 0
    MIXED_LANES,      // some shuffle while others store
    UNALIGNED,        // stmatrix
    OUTSIDE_SHARED,
    OUTSIDE_GLOBAL,
    OUTSIDE_TENSOR,   // a map that is larger than its memory: test_emulator.c makes it
    OTHER_RANK,       // of coordinates
    MANY_REGISTERS,
    NO_FIRST_MEETING, // of the cluster: memory is read before it was written
    NO_LAST_MEETING,  // ... after its block has ended
    FOREIGN_ADDRESS,  // of the cluster, given to an instruction of the block
    OWN_RELEASE,      // the other block does not know that its part may be overwritten
    BLOCK_INIT,       // the other block's mbarriers are used before they are
    OTHER_RANKS,      // of a multicast
    NO_GIFT_WAIT,     // what the other block sends is read before it has come
    OWN_COUNT,        // ... is counted by the sender
    LATE_COPY_WAIT,   // a slot is read before the group of its copies was waited for
    NO_COPY_COMMIT,   // the wait for it returns at once
    NO_COPY_BARRIER,  // a slot is read before other threads' copies were waited for
    EARLY_COPY,       // ... is filled before all have read it
    LEFT_COPIES,      // a thread ends before what it copies has come
    SHORT_COPY,       // zeros where elements exist
    COPY_OUTSIDE,
    COPY_UNALIGNED
};
static int broken; // which each thread of a launch sets alike

constexpr int slots = 2, steps = 4, tiles = 2;

struct Args {
    TensorMap a, b, out;
    float *extra;
    const bf16 *from[2]; // a and b
    bf16 *to;            // out
    int broken;
};

struct Shared {
    alignas(1024) u8 a[slots][8192], b[slots][8192], out[8192];
    u64 full[slots], empty[slots];
};

DEV u32 at(const void *p) { return ptx::shared_address(p); }

DEV void init(Shared &s)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < slots; i++) {
            ptx::mbarrier_init(at(&s.full[i]), 1);
            ptx::mbarrier_init(at(&s.empty[i]), broken == TOO_FEW_ARRIVALS ? 2 : 1);
        }
        if (broken != NO_INIT_FENCE) ptx::mbarrier_fence_init();
    }
    __syncthreads();
}

DEV void produce(Shared &s, const Args &g)
{
    if (broken == EARLY_LOAD) ptx::grid_wait_not();
    else if (broken != NO_GRID_WAIT) ptx::grid_wait();
    for (int n = 0; n < tiles * steps; n++) {
        const int slot = n % slots, k = n % steps * 64;
        const u32 parity = n / slots & 1, full = at(&s.full[slot]);
        if (broken != NO_EMPTY_WAIT) ptx::mbarrier_wait(at(&s.empty[slot]), parity ^ 1);
        if (broken == LATE_LANES && threadIdx.x) continue;
        ptx::mbarrier_arrive_expect(full, broken == FEWER_BYTES ? 8192 : 16384);
        if (broken == OTHER_RANK) ptx::tma_load(at(s.a[slot]), &g.a, full, k, 0);
        else ptx::tma_load(at(s.a[slot]), &g.a, full, k, 0, 0);
        ptx::tma_load(at(s.b[slot]), &g.b, full, k, 0, 0);
    }
}

struct Consumer {
    Shared &s;
    const Args &g;
    int thread;
    float acc[32];

    DEV void release(int slot)
    {
        if (thread == 0) ptx::mbarrier_arrive(at(&s.empty[slot]));
        if (thread == 0 && broken == TOO_MANY_ARRIVALS) ptx::mbarrier_arrive(at(&s.empty[slot]));
    }
    DEV void multiply(int slot, bool accumulate)
    {
        const u64 a = ptx::wgmma_descriptor(at(s.a[slot]), 16, 1024);
        const u64 b = ptx::wgmma_descriptor(at(s.b[slot]), 16, 1024);
        if (broken != NO_WGMMA_FENCE) ptx::wgmma_fence();
        ptx::Wgmma<bf16, 64>::template mma<0, 0>(acc, a, b, accumulate);
        if (broken != NO_COMMIT) ptx::wgmma_commit();
        if (broken == WRITTEN_SUMS && accumulate) acc[3] = 1;
    }
    DEV void multiply_tile(int tile)
    {
        for (int k = 0; k < steps; k++) {
            const int n = tile * steps + k, slot = n % slots;
            const u32 parity = (n / slots & 1) ^ (broken == OTHER_PARITY);
            if (broken != NO_FULL_WAIT) ptx::mbarrier_wait(at(&s.full[slot]), parity);
            multiply(slot, k);
            if (broken == EARLY_RELEASE) release(slot);
            if (broken != EARLY_SUMS || k < steps - 1) ptx::wgmma_wait<0>();
            if (broken != EARLY_RELEASE) release(slot);
        }
    }
    DEV void meet()
    {
        if (broken == MISSING_WARP && thread >= 96) return;
        ptx::named_barrier(1, broken == OTHER_COUNT && thread >= 64 ? 96 : 128);
    }
    DEV void store_tile(int tile)
    {
        const u32 row = thread / 32 * 16 + thread % 16, half = thread % 32 / 16;
        if (thread == 0 && broken != NO_READ_WAIT) ptx::tma_store_wait_read<0>();
        meet();
        for (u32 p = 0; p < 4; p++) {
            u32 m[4], to = at(s.out) + row * 128 + ((2 * p + half ^ row % 8) << 4);
            for (int i = 0; i < 4; i++) m[i] = pack2<bf16>(acc[8 * p + 2 * i], acc[8 * p + 2 * i + 1]);
            if (broken == MIXED_LANES && thread % 32 == 7) ptx::uniform(1);
            ptx::stmatrix(to + (broken == UNALIGNED ? 8 : 0), m[0], m[1], m[2], m[3]);
        }
        if (broken != NO_PROXY_FENCE) ptx::fence_async_shared();
        meet();
        if (thread == 0) {
            ptx::tma_store(&g.out, at(s.out), 0, 0, tile);
            if (broken != NO_STORE_COMMIT) ptx::tma_store_commit();
        }
    }
    DEV void run()
    {
        for (int tile = 0; tile < tiles; tile++) {
            multiply_tile(tile);
            store_tile(tile);
        }
        if (broken == EARLY_SUMS) ptx::wgmma_wait<0>();
        if (thread == 0 && broken != NO_STORE_WAIT) ptx::tma_store_wait<0>();
    }
};

extern "C" __global__ void __launch_bounds__(256, 2) pipeline(const __grid_constant__ Args g)
{
    extern __shared__ __align__(1024) u8 memory[];
    broken = g.broken;
    Shared &s = *(Shared *)memory;
    init(s);
    if (broken == LONE_LANES && threadIdx.x % 32) ptx::uniform(1);
    if (broken == OUTSIDE_SHARED && threadIdx.x == 5) memory[43008] = 1;
    if (broken == OUTSIDE_GLOBAL && threadIdx.x == 5) g.extra[600] = 1;
    if (threadIdx.x < 128) {
        ptx::shrink_registers<24>();
        if (threadIdx.x < (broken == LATE_LANES ? 32 : 1)) produce(s, g);
    } else {
        if (broken == MANY_REGISTERS) ptx::grow_registers<240>();
        else ptx::grow_registers<224>();
        Consumer c = {s, g, (int)threadIdx.x - 128, {}};
        c.run();
    }
}

// extra[block][thread] becomes 4 floats of the other block.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64) exchange(const __grid_constant__ Args g)
{
    extern __shared__ __align__(1024) u8 memory[];
    broken = g.broken;
    const u32 rank = ptx::cluster_rank(), mine = at(memory) + threadIdx.x * 16;
    const float x = (float)(blockIdx.x * 64 + threadIdx.x);
    float y[4];
    ptx::shared_store(mine, {x, x + 0.25f, x + 0.5f, x + 0.75f});
    if (broken != NO_FIRST_MEETING) ptx::cluster_arrive(), ptx::cluster_wait();
    const u32 theirs = ptx::cluster_address(mine, rank ^ 1);
    if (broken == FOREIGN_ADDRESS) ptx::shared_store(theirs, {x, x, x, x});
    ptx::cluster_load(y, theirs);
    for (int i = 0; i < 4; i++) g.extra[(blockIdx.x * 64 + threadIdx.x) * 4 + i] = y[i];
    if (broken != NO_LAST_MEETING) ptx::cluster_arrive(), ptx::cluster_wait();
}

DEV void meet_cluster()
{
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();
}

// The same, sent.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64) give(const __grid_constant__ Args g)
{
    extern __shared__ __align__(1024) u8 memory[];
    broken = g.broken;
    const u32 other = ptx::cluster_rank() ^ 1, come = at(memory), mine = come + 16 + threadIdx.x * 16;
    const float x = (float)(blockIdx.x * 64 + threadIdx.x);
    float y[4];
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(come, 1);
        ptx::mbarrier_fence_init();
        ptx::mbarrier_arrive_expect(come, 64 * 16);
    }
    meet_cluster();
    ptx::cluster_send(ptx::cluster_address(mine, other), {x, x + 0.25f, x + 0.5f, x + 0.75f},
                      ptx::cluster_address(come, broken == OWN_COUNT ? other ^ 1 : other));
    if (broken != NO_GIFT_WAIT) ptx::mbarrier_wait(come, 0);
    ptx::shared_load(y, mine);
    for (int i = 0; i < 4; i++) g.extra[(blockIdx.x * 64 + threadIdx.x) * 4 + i] = y[i];
}

// Through one slot of 64 k. extra[block][operand][row] becomes the sum of the row.
struct Slot {
    alignas(1024) u8 operand[2][8192];
    u64 full, empty;
};

DEV void send(Slot &s, const Args &g, u32 rank)
{
    for (int k = 0; k < steps; k++) {
        ptx::mbarrier_wait(at(&s.empty), k & 1 ^ 1);
        ptx::mbarrier_arrive_expect(at(&s.full), 16384);
        ptx::grid_wait();
        ptx::tma_multicast(at(s.operand[rank]), rank ? &g.b : &g.a, at(&s.full), broken == OTHER_RANKS ? 4 : 3,
                           k * 64, 0, 0);
    }
}
DEV void receive(Slot &s, float *sum, int row)
{
    for (int k = 0; k < steps; k++) {
        ptx::mbarrier_wait(at(&s.full), k & 1);
        for (int i = 0; i < 128; i++)
            sum[i / 64 * 64] += load((const bf16 *)s.operand[i / 64] + row * 64 + i % 64);
        ptx::named_barrier(1, 64);
        if (row >= 2) continue;
        if (broken == OWN_RELEASE) ptx::mbarrier_arrive(at(&s.empty));
        else ptx::cluster_mbarrier_arrive(ptx::cluster_address(at(&s.empty), row));
    }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(96) share(const __grid_constant__ Args g)
{
    extern __shared__ __align__(1024) u8 memory[];
    broken = g.broken;
    Slot &s = *(Slot *)memory;
    const int row = (int)threadIdx.x - 32;
    const u32 rank = ptx::cluster_rank();
    if (broken == BLOCK_INIT && rank) // it comes late
        for (int i = 0; i < 16; i++) __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(at(&s.full), 1);
        ptx::mbarrier_init(at(&s.empty), 2);
        ptx::mbarrier_fence_init();
    }
    if (broken == BLOCK_INIT) __syncthreads();
    else meet_cluster();
    if (threadIdx.x == 0) send(s, g, rank);
    if (row >= 0) {
        float *sum = g.extra + blockIdx.x * 256 + row;
        for (int i = 0; i < 4; i++) sum[64 * i] = 0;
        receive(s, sum, row);
    }
    if (broken != NO_LAST_MEETING) meet_cluster();
}

// Three slots of 64 k, of which two are on their way while the third is multiplied.
struct Copied { alignas(1024) u8 operand[3][2][8192]; };

DEV void copy_slot(Copied &s, const Args &g, int step)
{
    for (int i = 0; i < 8; i++) {
        const int operand = i / 4, row = i % 4 * 16 + threadIdx.x / 8, piece = threadIdx.x % 8;
        const u32 to = at(s.operand[step % 3][operand]) + row * 128 + ((piece ^ row % 8) << 4);
        const bf16 *from = g.from[operand] + row * 64 * steps + step * 64 + piece * 8;
        if (broken == COPY_OUTSIDE && row == 63) from += 64 * steps;
        ptx::copy_async<16>(to + (broken == COPY_UNALIGNED ? 8 : 0), from, broken == SHORT_COPY ? 8 : 16);
    }
    if (broken != NO_COPY_COMMIT) ptx::copy_async_commit();
}

// 16 rows of each warp.
DEV void multiply_slot(Copied &s, float (&acc)[8][4], int slot)
{
    const u32 lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
    for (u32 k = 0; k < 8; k += 2) {
        u32 a[4], b[4];
        ptx::ldmatrix(at(s.operand[slot][0]) + row * 128 + ((k + lane / 16 ^ row % 8) << 4), a);
        for (u32 n = 0; n < 4; n++) {
            const u32 column = n * 16 + lane / 16 * 8 + lane % 8;
            ptx::ldmatrix(at(s.operand[slot][1]) + column * 128 + ((k + lane / 8 % 2 ^ column % 8) << 4), b);
            ptx::mma<bf16>(acc[2 * n], a, b[0], b[1]);
            ptx::mma<bf16>(acc[2 * n + 1], a, b[2], b[3]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) copied(const __grid_constant__ Args g)
{
    extern __shared__ __align__(1024) u8 memory[];
    broken = g.broken;
    Copied &s = *(Copied *)memory;
    float acc[8][4] = {};
    if (broken != NO_GRID_WAIT) ptx::grid_wait();
    for (int step = 0; step < 2; step++) copy_slot(s, g, step);
    for (int step = 0; step < steps; step++) {
        if (broken == EARLY_COPY && step + 2 < steps) copy_slot(s, g, step + 2);
        if (broken == LATE_COPY_WAIT) ptx::copy_async_wait<2>();
        else ptx::copy_async_wait<1>();
        if (broken != NO_COPY_BARRIER) __syncthreads();
        if (broken != EARLY_COPY && step + 2 < steps) copy_slot(s, g, step + 2);
        else if (step + 2 >= steps) ptx::copy_async_commit();
        multiply_slot(s, acc, step % 3);
    }
    __syncthreads(); // all have read what LEFT_COPIES fills again
    if (broken == LEFT_COPIES) copy_slot(s, g, 0);
    for (int i = 0; i < 8 * 4 * tiles; i++) {
        const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
        const int column = i / 4 % 8 * 8 + threadIdx.x % 4 * 2 + i % 2;
        g.to[(i / 32 * 64 + row) * 64 + column] = from_float<bf16>(acc[i / 4 % 8][i % 4]);
    }
}
