/*
 * gpu_shapes.c -- plans of graphs with symbols: each shape gives the bits that it gives in a plan that met no
 * other, in the workspace of the largest, with what was prepared once, also after it was dropped for others.
 * An exact plan may have other tiles: next to it an error is no larger; nor is it with kernels for any shape.
 */
#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"
#include "util_scale.h"
#include "util_symbolic.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int gpu_shapes(void);

enum { GRAPHS = 4, FULL_GRAPHS = 24, SHAPES = 6, EMULATED_GRAPHS = 1, EMULATED_SHAPES = 2, KEPT = 3 };

static coda_plan *compiled(const coda_graph *g, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.fold = fold;
    opt.shapes = KEPT;
    return coda_compile(&p, g, &opt) == CODA_OK ? p : NULL;
}

/* Is the fresh plan as near to fp64 as the exact one? Its outputs stay in b. */
static bool is_accurate(struct run_buffers *b, const coda_plan *exact, const coda_plan *fresh, uint64_t seed)
{
    void **want = run_reference(b->g, seed);
    bool good = want && run_plan(b, exact);
    double error = good ? run_worst_error(b->g, b->host, want) : 0;
    good = good && run_plan(b, fresh);
    good = good && run_worst_error(b->g, b->host, want) <= 2 * error + 0.004;
    if (want) random_args_free(b->g, want);
    return good;
}

static bool shape_good(const coda_plan *p, const coda_graph *g, coda_fold fold, uint64_t seed, int shape)
{
    int64_t dims[SYMBOLIC_DIMS];
    coda_graph *bound;
    struct run_buffers b = {0};
    symbolic_shape(seed, shape, dims);
    if (coda_graph_bind(&bound, g, dims, SYMBOLIC_DIMS) != CODA_OK) return false;
    void **args = random_args(bound, seed + 3, false);
    coda_plan *exact = compiled(bound, fold), *fresh = compiled(g, fold);
    bool good = exact && fresh && run_upload(&b, bound, exact, args, true);
    b.dims = dims;
    good = good && run_prepare(&b, exact) && is_accurate(&b, exact, fresh, seed + 3) && run_same(&b, p) &&
           run_same(&b, p);
    run_release(&b);
    random_args_free(bound, args);
    coda_plan_free(exact);
    coda_plan_free(fresh);
    coda_graph_free(bound);
    return good;
}

static int one_graph(uint64_t seed, int shapes)
{
    coda_fold fold = seed % 2 ? CODA_FOLD_COPY : CODA_FOLD_NONE;
    graph *g = symbolic_graph(seed, NULL);
    coda_plan *p = compiled(g, fold);
    bool good = p;
    int shape = 0;
    for (; good && shape < shapes; shape++) good = shape_good(p, g, fold, seed, shape);
    good = good && shape_good(p, g, fold, seed, 0); /* perhaps dropped since */
    int failed = gpu_case(good, "shapes", "seed %llu: %d shapes of one plan%s%s", (unsigned long long)seed,
                          shape, good ? "" : ": ", good ? "" : coda_error());
    coda_plan_free(p);
    graph_free(g);
    return failed;
}

/* ---- Kernels that serve any shape, and those that are made beside them ---- */

static const char tiers[] = "dim %T = 1..300\n%x = input bf16[T,64]\n%w = weight bf16[128,64]\n"
                            "%v = weight bf16[64,128]\n%1 = rms_norm %x {eps=1e-5}\n%2 = matmul %1, %w\n"
                            "%3 = silu %2\n%4 = matmul %3, %v\n%5 = add %4, %x\noutput %y = %5\n";

static coda_plan *of_policy(const coda_graph *g, coda_policy policy)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.policy = policy;
    return coda_compile(&p, g, &opt) == CODA_OK ? p : NULL;
}

static coda_shape_stats stats_of(const coda_plan *p)
{
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    coda_shape_stats_get(p, &s);
    return s;
}

/* The first run of a shape whose kernels are not loaded has those for any, thus the bits of a plan that has
 * no others; then the better plan comes, and is as near to fp64. */
static bool swaps(struct run_buffers *b, const coda_plan *exact, const coda_plan *base, const coda_plan *p)
{
    int64_t before = stats_of(p).runs_base;
    bool good = is_accurate(b, exact, base, 5), same = good && run_same(b, p);
    good = good && (same || stats_of(p).runs_base == before);
    while (stats_of(p).pending) usleep(1000);
    good = good && coda_plan_ready(p, b->dims) == 1 && is_accurate(b, exact, p, 5);
    return good && stats_of(p).runs_base <= before + 1 && !stats_of(p).failed;
}

static bool tier_good(const coda_graph *g, const coda_plan *base, const coda_plan *p, int64_t rows,
                      bool sealed)
{
    coda_graph *bound;
    struct run_buffers b = {0};
    if (coda_graph_bind(&bound, g, &rows, 1) != CODA_OK) return false;
    void **args = random_args(bound, 5, false);
    coda_plan *exact = compiled(bound, CODA_FOLD_NONE);
    bool good = exact && run_upload(&b, bound, p, args, true);
    b.dims = &rows;
    good = good && (sealed ? is_accurate(&b, exact, p, 5) : swaps(&b, exact, base, p));
    run_release(&b);
    random_args_free(bound, args);
    coda_plan_free(exact);
    coda_graph_free(bound);
    return good;
}

/* Few rows, many; then, sealed, numbers of rows that it never met. */
static int two_tiers(void)
{
    static const int64_t met[] = {3, 300}, others[] = {5, 17, 129};
    coda_graph *g = NULL;
    bool parsed = coda_graph_parse(&g, tiers) == CODA_OK;
    coda_plan *base = parsed ? of_policy(g, CODA_POLICY_NEVER) : NULL,
              *p = base ? of_policy(g, CODA_POLICY_BACKGROUND) : NULL;
    bool good = p;
    for (int i = 0; i < 2; i++) good = good && tier_good(g, base, p, met[i], false);
    good = good && stats_of(p).improved > 0 && coda_plan_seal(p) == CODA_OK;
    int64_t kernels = good ? stats_of(p).kernels : 0;
    for (int i = 0; i < 3; i++) good = good && tier_good(g, base, p, others[i], true);
    good = good && stats_of(p).kernels == kernels;
    int failed =
        gpu_case(good, "shapes", "kernels for any shape, better ones made beside them, a sealed plan%s%s",
                 good ? "" : ": ", good ? "" : coda_error());
    coda_plan_free(p);
    coda_plan_free(base);
    coda_graph_free(g);
    return failed;
}

/* ---- One kernel that walks tiles by bands of rows or of columns ---- */

static const char wide[] = "dim %T = 1..9000\n%x = input bf16[T,64]\n%w = weight bf16[384,64]\n"
                           "%1 = matmul %x, %w\n%2 = silu %1\noutput %y = %2\n";

static int walks(void)
{
    static const int64_t rows[] = {1100, 1500, 2100, 3300, 4700, 9000};
    coda_graph *g = NULL;
    coda_plan *p = coda_graph_parse(&g, wide) == CODA_OK ? of_policy(g, CODA_POLICY_WAIT) : NULL;
    bool good = p;
    int n = scale_is_full() ? 6 : 3;
    for (int i = 0; i < n; i++) good = good && tier_good(g, NULL, p, rows[i], true);
    int failed = gpu_case(good, "shapes", "%d kernels walk %d numbers of rows%s%s",
                          good ? (int)stats_of(p).kernels : 0, n, good ? "" : ": ", good ? "" : coda_error());
    coda_plan_free(p);
    coda_graph_free(g);
    return failed;
}

/* ---- A bundle of a plan, for who has no compiler ---- */

static const char shipped[] = "dim %T = 1..40\n%x = input bf16[T,64]\n%w = weight bf16[64,64]\n"
                              "%1 = rms_norm %x {eps=1e-5}\n%2 = matmul %1, %w\noutput %y = %2\n";

/* A cache that has the bundle of all kernels that p may want, and nothing else; sealed. */
static coda_cache *sealed_with_bundle(const coda_plan *p, const char *path)
{
    coda_export_options what = CODA_EXPORT_OPTIONS_INIT;
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    coda_cache *c = NULL;
    what.plans = &p;
    what.plan_count = 1;
    opt.dir = "/dev/null/none";
    opt.overlays = path;
    if (coda_cache_export(NULL, path, &what, NULL) || coda_cache_open(&c, &opt)) return NULL;
    coda_cache_forget(NULL);
    coda_cache_seal(c, 1);
    return c;
}

static bool ship_good(const coda_graph *g, const coda_plan *p, const coda_plan *user, int64_t rows)
{
    coda_graph *bound;
    struct run_buffers b = {0};
    if (coda_graph_bind(&bound, g, &rows, 1) != CODA_OK) return false;
    void **args = random_args(bound, 7, false);
    bool good = run_upload(&b, bound, p, args, true);
    b.dims = &rows;
    good = good && run_plan(&b, p) && run_same(&b, user);
    run_release(&b);
    random_args_free(bound, args);
    coda_graph_free(bound);
    return good;
}

/* Rows on both sides of what may be a border give the bits that they give where kernels are compiled. */
static int bundle(void)
{
    static const int64_t rows[] = {1, 2, 7, 8, 9, 16, 17, 33, 40};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = NULL;
    char path[] = P_tmpdir "/coda-shapes-XXXXXX";
    int fd = mkstemp(path);
    coda_plan *p = fd >= 0 && !coda_graph_parse(&g, shipped) ? of_policy(g, CODA_POLICY_WAIT) : NULL,
              *user = NULL;
    bool good = p && (opt.cache = sealed_with_bundle(p, path)) && !coda_compile(&user, g, &opt);
    for (int i = 0; good && i < (int)(sizeof rows / sizeof *rows); i++) good = ship_good(g, p, user, rows[i]);
    int failed = gpu_case(good, "shapes", "a bundle of all kernels, and no compiler%s%s", good ? "" : ": ",
                          good ? "" : coda_error());
    coda_plan_free(user);
    coda_plan_free(p);
    coda_cache_free(opt.cache);
    coda_graph_free(g);
    if (fd >= 0) close(fd), unlink(path);
    return failed;
}

int gpu_shapes(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&dev, err)) return gpu_case(false, "shapes", "%s", err);
    bool slow = device_emulated(&dev);
    uint64_t seed = random_seed();
    int failed = two_tiers() + walks() + bundle(), graphs = slow              ? scaled(EMULATED_GRAPHS)
                                                            : scale_is_full() ? FULL_GRAPHS
                                                                              : GRAPHS;
    for (int i = 0; i < graphs; i++) failed += one_graph(seed + (uint64_t)i, slow ? EMULATED_SHAPES : SHAPES);
    return failed;
}
