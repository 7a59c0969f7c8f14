/* gpu_profile.c -- coda_plan_profile on a GPU: which launches there are and what they leave; on a card also
 * both rates, and the sum of the launches beside the run. */
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"

int gpu_profile(void);

static int one(const char *name, const graph *g, bool emulated)
{
    coda_profile_options o = CODA_PROFILE_OPTIONS_INIT;
    coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_profile *f = NULL;
    coda_plan *p = NULL;
    struct run_buffers b = {0};
    void **host = random_args(g, 1, false), **want = run_reference(g, 1);
    int unnamed = 0;
    if (emulated) o.rounds = 1, o.copy_rate = 1e9, o.product_rate = 1e12;
    bool good = host && want && !coda_compile(&p, g, NULL) && run_upload(&b, g, p, host, true) &&
                !coda_plan_profile(&f, p, b.args, b.prepared, b.workspace, NULL, &o) && run_download(&b);
    double error = good && !device_dry() ? run_worst_error(g, host, want) : 0;
    if (good) coda_profile_total_get(f, &all);
    if (good) coda_plan_stats_get(p, &stats);
    for (int i = 0; i < all.launches; i++) {
        coda_profile_launch l = CODA_PROFILE_LAUNCH_INIT;
        unnamed += coda_profile_launch_get(f, i, &l) || strncmp(l.kernel, "coda_", 5) || !l.work[0];
    }
    good = good && all.launches == stats.launches && all.bytes == stats.bytes && !unnamed && error < 3e-2;
    if (!emulated && !device_dry()) good = good && all.copy_rate > 1e10 && all.sum_ms > 0 && all.run_ms > 0;
    int failed = gpu_case(
        good, name, "%d launches, %d unnamed, sum %.4f ms, run %.4f ms, floor %.4f ms, error %.2e %s",
        all.launches, unnamed, all.sum_ms, all.run_ms, all.floor_ms, error, good ? "" : coda_error());
    coda_profile_free(f);
    if (b.n) run_release(&b);
    coda_plan_free(p);
    random_args_free(g, host);
    random_args_free(g, want);
    return failed;
}

int gpu_profile(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&dev, err)) return gpu_case(false, "profile", "%s", err);
    graph *product = graph_parse("%x = input bf16[48,64]\n%w = weight bf16[96,64]\n%r = input bf16[48,96]\n"
                                 "%p = matmul %x, %w\n%s = add %p, %r\n%y = softmax %s\noutput %y = %y\n");
    graph *block = run_load("examples/graphs/llama_small.coda");
    if (!product || !block) return gpu_case(false, "profile", "%s", coda_error());
    failed += one("profile of a product", product, device_emulated(&dev));
    if (!device_emulated(&dev)) failed += one("profile of a block", block, false);
    graph_free(product);
    graph_free(block);
    return failed;
}
