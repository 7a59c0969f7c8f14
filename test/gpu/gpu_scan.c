/* gpu_scan.c -- selective scans on the GPU against loops in fp64. With CODA_TEST_CASE only cases run whose
 * names contain it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_scale.h"
#include "util_scan.h"

int gpu_scan(void);

/* The error in parts of what is allowed; -1 with the message set. */
static double run(const struct scan_case *c, const graph *g, uint64_t seed)
{
    struct run_buffers b;
    coda_plan *p;
    if (coda_compile(&p, g, NULL) != CODA_OK) return -1;
    void **args = scan_args(c, g, seed, false);
    struct scan_expected e = scan_expect(c, g, args);
    bool ran = run_upload(&b, g, p, args, true) && run_prepare(&b, p) && run_plan(&b, p);
    double error = ran ? scan_error(c, g, args, &e, false) : -1;
    run_release(&b);
    scan_expected_free(&e);
    random_args_free(g, args);
    coda_plan_free(p);
    return error;
}

static bool is_wanted(const char *name)
{
    const char *named = getenv("CODA_TEST_CASE");
    return !named || strstr(name, named);
}

static int check(const struct scan_case *c, uint64_t seed)
{
    if (!is_wanted(c->name)) return 0;
    graph *g = scan_graph(c);
    double error = run(c, g, seed);
    graph_free(g);
    return gpu_case(error >= 0 && error <= 1, "scan", "%s, seed %llu: the error is %g of what is allowed %s",
                    c->name, (unsigned long long)seed, error, error < 0 ? coda_error() : "");
}

static int check_cut(const struct scan_case *c, uint64_t seed)
{
    int64_t tokens[100], left = c->tokens;
    struct random r = {seed};
    int runs = 0;
    if (!is_wanted("cut")) return 0;
    for (; left; left -= tokens[runs++])
        tokens[runs] = random_chance(&r, 30) ? 1 : random_below(&r, left + 1);
    int64_t wrong = scan_cut(c, tokens, runs, seed, true);
    return gpu_case(wrong == 0, "scan", "%s, cut into %d runs, seed %llu: %lld bytes differ %s", c->name,
                    runs, (unsigned long long)seed, (long long)wrong, wrong < 0 ? coda_error() : "");
}

int gpu_scan(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "scan", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    uint64_t seed = random_seed();
    for (int i = 0; i < scan_case_count; i++)
        if (!few || scale_takes_one_in(3, i)) failed += check(&scan_cases[i], 35);
    for (int i = 0; i < scan_cut_case_count; i++)
        if (!few || scale_takes_one_in(2, i)) failed += check_cut(&scan_cut_cases[i], seed);
    for (int i = 0; i < (few ? 3 : scaled(20)); i++) {
        const struct scan_case c = scan_draw(seed + (uint64_t)i);
        failed += check(&c, seed + (uint64_t)i);
    }
    return failed;
}
