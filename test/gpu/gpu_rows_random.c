/* gpu_rows_random.c -- random graphs of maps, statistics, broadcasts and states on the GPU against fp64: see
 * test_rows_random.c. */
#include "gpu_case.h"
#include "util_device.h"
#include "util_random_rows.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_rows_random(void);

enum { GRAPHS = 200, EMULATED_GRAPHS = 12 };

/* A state that is written over in rows too long for a thread to keep: what it was is loaded by three walks,
 * of which the last one writes. And one whose rows are shifted. */
static const char *const states[] = {
    "%s = state f32[2,40000]\n%x = input f32[2,40000]\n%m = max %s\n%c = sub %s, %m\n%h = mul %s, %x\n"
    "%s1 = assign %s, %h\n%y = rms_norm %s1 {eps=1e-6}\n%z = mul %c, %y\noutput %y = %y\noutput %z = %z\n",
    "%s = state bf16[3,4,72]\n%x = input bf16[3,1,72]\n%w = weight bf16[4,72]\n"
    "%o = slice %s {axis=1,start=1,stop=4,step=1}\n%c = concat %o, %x {axis=1}\n%s1 = assign %s, %c\n"
    "%m = mul %s1, %w\n%f = sum %m {columns=1}\n%t = silu %f\noutput %t = %t\n",
};

static int check(graph *g, uint64_t seed, double most)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void **want = g ? run_reference(g, seed) : NULL;
    double error = want ? run_on_gpu(g, seed, &opt, want) : -1;
    bool good = error >= 0 && error <= most;
    if (want) random_args_free(g, want);
    coda_graph_free(g);
    return gpu_case(good, "rows_random", "seed %llu: error %.2e %s", (unsigned long long)seed, error,
                    good ? "" : coda_error());
}

int gpu_rows_random(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "rows_random", "%s", err);
    bool emulated = device_emulated(&device);
    for (int i = 0; i < ARRAY_SIZE(states); i++)
        if (gpu_mine(i)) failed += check(graph_parse(states[i]), random_seed(), i ? 2e-2 : 1e-3);
    int n = emulated ? scaled(EMULATED_GRAPHS) : GRAPHS;
    for (int i = 0; i < n; i++) {
        if (!gpu_mine(i)) continue;
        uint64_t seed = random_seed() + (uint64_t)i;
        failed += check(
            random_rows(seed, &(struct rows_options){.operations = emulated ? 16 : 0, .elements = i % 2}),
            seed, 1e-3);
    }
    return failed;
}
