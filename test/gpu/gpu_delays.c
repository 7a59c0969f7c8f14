/*
 * gpu_delays.c -- attention whose keys are shared by the blocks of a cluster, or by all in a last round of
 * tiles, has the same bits, whichever of its blocks and warps come first.
 *
 * On the emulator each launch draws who runs next, and which warps or blocks seldom do. On a GPU the kernels
 * are compiled with delays: whoever arrives at a barrier, or waits for one, sleeps now and then for a time
 * that hashes its block, warp, the clock and a seed.
 */
#include <stdio.h>

#include "gpu_case.h"
#include "util_attention.h"
#include "util_device.h"
#include "util_scale.h"

int gpu_delays(void);

enum { RUNS = 100, SEEDS = 4, EMULATED = 20 /* one in so many runs; of the first case a quarter */ };

/* Few queries, by attention_split_sm90.cuh; tiles of them, by attention_sm90.cuh. */
static const struct attention_case cases[] = {
    {"delayed split", CODA_F16, 1, 1, 1700, 16, 1, 64, true, 0, .align = 2, .lse = true},
    {"delayed split of pages", CODA_F16, 4, 3, 640, 5, 1, 64, true, 0, true, .align = 3, .page = 16,
     .sinks = true},
    {"delayed split fp8", CODA_F16, 1, 2, 1600, 8, 1, 64, true, 0, .align = 2, .lse = true,
     .keys = CODA_F8E4M3},
    {"delayed parts", CODA_F16, 1, 70, 1100, 1, 1, 64, true, 0, .align = 2, .lse = true},
    {"delayed shared tiles", CODA_BF16, 1, 250, 300, 67, 67, 72, .align = 2},
};

/* The names of ptx/ that the kernels call become those of functions that may sleep first. */
static const char delays[] =
    "#define SEED %du\n"
    "#include \"ptx/barrier.cuh\"\n"
    "#include \"ptx/cluster.cuh\"\n"
    "namespace coda::ptx {\n"
    "DEV void sleep_perhaps()\n"
    "{\n"
    "    u32 now;\n"
    "    asm volatile(\"mov.u32 %%0, %%%%globaltimer_lo;\" : \"=r\"(now));\n"
    "    u32 h = (now >> 12 ^ SEED) * 0x9e3779b9u + (blockIdx.x * 64 + threadIdx.x / 32) * 0x85ebca6bu;\n"
    "    h = (h ^ h >> 15) * 0x2c1b3c6du, h ^= h >> 13;\n"
    "    if (h %% 8 == 0) __nanosleep(h >> 8 & 16383);\n"
    "}\n"
    "DEV void late_arrive(u32 bar) { sleep_perhaps(), mbarrier_arrive(bar); }\n"
    "DEV void late_wait(u32 bar, u32 parity) { sleep_perhaps(), mbarrier_wait(bar, parity); }\n"
    "DEV void late_release(u32 bar) { sleep_perhaps(), cluster_mbarrier_release(bar); }\n"
    "DEV void late_cluster_arrive() { sleep_perhaps(), cluster_arrive(); }\n"
    "DEV void late_barrier(int id, int threads) { sleep_perhaps(), named_barrier(id, threads); }\n"
    "}\n"
    "#define mbarrier_arrive late_arrive\n"
    "#define mbarrier_wait late_wait\n"
    "#define cluster_mbarrier_release late_release\n"
    "#define cluster_arrive late_cluster_arrive\n"
    "#define named_barrier late_barrier\n";

static int run_delayed(const struct jit_device *device, const struct attention_case *c)
{
    int failed = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        char text[sizeof delays + 16];
        snprintf(text, sizeof text, delays, seed);
        failed += attention_repeats(device, c, text, RUNS / SEEDS);
    }
    return failed;
}

int gpu_delays(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&device, err)) return gpu_case(false, "delays", "%s", err);
    int failed = 0;
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        int runs = scale_is_full() ? RUNS : i ? RUNS / EMULATED : RUNS / 4;
        if (device_emulated(&device)) failed += attention_repeats(&device, &cases[i], NULL, runs);
        else failed += run_delayed(&device, &cases[i]);
    }
    return failed;
}
