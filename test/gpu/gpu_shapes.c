/*
 * gpu_shapes.c -- plans of graphs with symbols: each shape gives the bits that it gives in a plan that met no
 * other, in the workspace of the largest, with what was prepared once, also after it was dropped for others.
 * An exact plan may have other tiles: next to it an error is no larger.
 */
#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"
#include "util_scale.h"
#include "util_symbolic.h"

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

int gpu_shapes(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&dev, err)) return gpu_case(false, "shapes", "%s", err);
    bool slow = device_emulated(&dev);
    uint64_t seed = random_seed();
    int failed = 0, graphs = slow ? scaled(EMULATED_GRAPHS) : scale_is_full() ? FULL_GRAPHS : GRAPHS;
    for (int i = 0; i < graphs; i++) failed += one_graph(seed + (uint64_t)i, slow ? EMULATED_SHAPES : SHAPES);
    return failed;
}
