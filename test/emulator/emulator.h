/*
 * emulator.h -- an SM in software: what a kernel that a host compiler took calls in the place of PTX.
 *
 * Each CUDA thread is a fiber with a stack of its own, at whose foot its indices lie. ptx/ has the same
 * wrappers as primitives/ptx, over these calls; words.h has CUDA's own words. Whatever PTX leaves undefined
 * ends the launch with a message that says which block and thread did what.
 */
#ifndef EMULATOR_H
#define EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default) /* kernels hide all else, and so does exports.map */
#ifdef __cplusplus
extern "C" {
#endif

enum { EMU_STACK = 1 << 16, EMU_WARP = 32, EMU_GROUP = 128 }; /* bytes; threads */
/* Each stack begins some lines of a cache further on: at one place in all, threads would evict each other. */
enum { EMU_SHIFT = 9 * 64, EMU_SHIFTS = 32 };

struct emu_index {
    unsigned x, y, z;
};
struct emu_view {
    struct emu_index thread, block, block_size, grid_size;
};
static inline uintptr_t emu_foot(uintptr_t sp)
{
    return (sp & ~(uintptr_t)(EMU_STACK - 1)) + sp / EMU_STACK % EMU_SHIFTS * EMU_SHIFT;
}
static inline struct emu_view *emu_self(void)
{
    uintptr_t sp;
    __asm__("mov %%rsp, %0" : "=r"(sp));
    return (struct emu_view *)emu_foot(sp);
}

/* What the compiler leaves in a library for each kernel, as emu_kernel_SYMBOL. */
struct emu_kernel {
    size_t parameters;            /* bytes of its one parameter */
    int threads, blocks, cluster; /* its bounds; blocks of a cluster */
    int registers;                /* of a thread at launch; 0: what the bounds leave */
    void (*start)(const void *parameter);
};

/* Shared memory. Addresses are those of the shared window; a cluster's have their block's rank in them. */
void *emu_dynamic_shared(void);
uint32_t emu_shared_address(const void *p);
void emu_shared_store(uint32_t address, const float *four);
void emu_shared_load(float *four, uint32_t address);
void emu_pair_store(uint32_t address, const uint32_t *two);
void emu_pair_load(uint32_t *two, uint32_t address);
uint32_t emu_cluster_rank(void);
uint32_t emu_cluster_address(uint32_t address, uint32_t rank);
void emu_cluster_load(float *four, uint32_t address);
void emu_cluster_send(uint32_t address, const float *four, uint32_t bar);
void emu_cluster_mbarrier_arrive(uint32_t bar);

/* Barriers. Of emu_barrier, 0 threads are all of the block. */
void emu_mbarrier_init(uint32_t bar, uint32_t arrivals);
void emu_mbarrier_fence_init(void);
void emu_mbarrier_arrive(uint32_t bar);
void emu_mbarrier_arrive_expect(uint32_t bar, uint32_t bytes);
bool emu_mbarrier_test(uint32_t bar, uint32_t parity);
void emu_mbarrier_wait(uint32_t bar, uint32_t parity);
void emu_barrier(int id, int threads);
void emu_barrier_arrive(int id, int threads);
void emu_cluster_arrive(void);
void emu_cluster_wait(void);
void emu_fence_async(void);
void emu_grid_wait(void);
void emu_grid_wait_not(void);
void emu_set_registers(int n, bool grow);

/* Warps. */
uint32_t emu_shuffle(uint32_t mask, uint32_t x, int lane, bool exclusive_or);
void emu_warp_sync(void);
bool emu_elect(void);
void emu_matrix_store(uint32_t address, const uint32_t *m, int count);
void emu_matrix_load(uint32_t address, uint32_t *m, int count);
void emu_matrix_load_transposed(uint32_t address, uint32_t *m);          /* four */
void emu_matrix_multiply(float *d, const uint32_t *operands, bool half); /* a's four, b's two */
void emu_matrix_multiply_tf32(float *d, const uint32_t *operands);
void emu_matrix_multiply_bytes(int32_t *d, const uint32_t *operands);

/* A thread's copies. */
void emu_copy_async(uint32_t to, const void *from, int bytes, int exist);
void emu_copy_async_steady(uint32_t to, const void *from);
void emu_copy_arrive(uint32_t bar);
void emu_copy_commit(void);
void emu_copy_wait(int pending);

/* Words that several devices share: `words` of 4 bytes, 1 or 4. */
void emu_system_store(void *to, const uint32_t *word, int words);
void emu_system_load(uint32_t *word, const void *from, int words);
bool emu_system_claim(uint32_t *at, uint32_t old, uint32_t word);
uint32_t emu_system_add(uint32_t *at, uint32_t word); /* what was there before */
void emu_system_fence(void);
uint64_t emu_nanoseconds(void);

/* Bulk copies. */
void emu_prefetch_map(const void *map);
void emu_tensor_load(uint32_t to, const void *map, uint32_t bar, int rank, const int *at);
void emu_tensor_multicast(uint32_t to, const void *map, uint32_t bar, uint32_t ranks, int rank,
                          const int *at);
void emu_bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar);
void emu_tensor_store(const void *map, uint32_t from, int rank, const int *at);
void emu_tensor_add(const void *map, uint32_t from, int rank, const int *at); /* of fp32 */
void emu_store_commit(void);
void emu_store_wait(int pending, bool read_only);

/* Products of a warpgroup: d[64, n] (+)= a b^T, a by its descriptor or, if a_regs, from registers. */
struct emu_product {
    uint64_t a, b;
    int n;
    bool a_mn, b_mn, accumulate, half;
    int a_f8, b_f8; /* 1: e4m3, 2: e5m2; both or none */
};
void emu_wgmma_fence(void);
void emu_wgmma(float *d, const struct emu_product *p, const uint32_t *a_regs);
void emu_wgmma_commit(void);
void emu_wgmma_wait(int pending);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
