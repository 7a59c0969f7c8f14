/* gpu_row_sums.c -- rows added by id on the GPU against loops, to the bit. With CODA_TEST_CASE only cases run
 * whose names contain it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_row_sums.h"
#include "util_scale.h"

int gpu_row_sums(void);

/* Results that are wrong; -1 with the message set. */
static int64_t run(const struct row_sums_case *c, const graph *g, uint64_t seed)
{
    struct run_buffers b;
    coda_plan *p;
    if (coda_compile(&p, g, NULL) != CODA_OK) return -1;
    void **args = row_sums_args(c, g, seed, false);
    bool ran = run_upload(&b, g, p, args, true) && run_prepare(&b, p) && run_plan(&b, p);
    int64_t wrong = ran ? row_sums_differences(c, g, args, false) : -1;
    run_release(&b);
    random_args_free(g, args);
    coda_plan_free(p);
    return wrong;
}

static bool is_wanted(const char *name)
{
    const char *named = getenv("CODA_TEST_CASE");
    return !named || strstr(name, named);
}

static int check(const struct row_sums_case *c, uint64_t seed)
{
    if (!is_wanted(c->name)) return 0;
    graph *g = row_sums_graph(c);
    int64_t wrong = run(c, g, seed);
    graph_free(g);
    return gpu_case(wrong == 0, "row_sums", "%s, seed %llu: %lld results differ %s", c->name,
                    (unsigned long long)seed, (long long)wrong, wrong < 0 ? coda_error() : "");
}

static int untouched(void)
{
    float x[24], sums[400];
    int32_t ids[3];
    coda_plan *p = NULL;
    graph *g = row_sums_graph(&row_sums_untouched);
    bool ran = coda_compile(&p, g, NULL) == CODA_OK;
    void *args[] = {device_alloc(sizeof x), device_alloc(sizeof ids), device_alloc(sizeof sums)};
    void *workspace = device_alloc(1024);
    row_sums_begin_untouched(x, ids, sums);
    ran = ran && coda_plan_workspace(p) <= 1024 && device_upload(args[0], x, sizeof x) &&
          device_upload(args[1], ids, sizeof ids) && device_upload(args[2], sums, sizeof sums) &&
          coda_run(p, args, NULL, workspace, NULL) == CODA_OK && device_download(sums, args[2], sizeof sums);
    int wrong = ran ? row_sums_touched(sums) : -1;
    for (int i = 0; i < 3; i++) device_free(args[i]);
    device_free(workspace);
    coda_plan_free(p);
    graph_free(g);
    return gpu_case(wrong == 0, "row_sums", "untouched: %d elements are wrong %s", wrong,
                    wrong < 0 ? coda_error() : "");
}

int gpu_row_sums(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "row_sums", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    for (int i = 0; i < row_sums_case_count; i++) {
        const struct row_sums_case *c = &row_sums_cases[i];
        if (!few || (c->tokens * c->columns <= 1 << 20 && scale_takes_one_in(3, i))) failed += check(c, 23);
    }
    uint64_t seed = random_seed();
    for (int i = 0; i < (few ? 2 : scaled(20)); i++) {
        const struct row_sums_case c = row_sums_draw(seed + (uint64_t)i);
        failed += check(&c, seed + (uint64_t)i);
    }
    return failed + (is_wanted(row_sums_untouched.name) ? untouched() : 0);
}
