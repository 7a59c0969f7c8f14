/*
 * ship.c -- bundles of plans of graphs with symbols: what one process exports is all that another one needs,
 * which has no compiler, for any shape, by any policy, wherever tiles' borders are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torture.h"

/* A block of products, norm and softmax. */
#define BLOCK                                                                                                \
    "dim %T = 1..1500\n%x = input bf16[T,64]\n%w = weight bf16[128,64]\n%v = weight bf16[64,128]\n"          \
    "%1 = rms_norm %x {eps=1e-5}\n%2 = matmul %1, %w\n%3 = silu %2\n%4 = matmul %3, %v\n"                    \
    "%5 = add %4, %x\n%6 = softmax %5\noutput %y = %6\n"
/* Prompts that attend to themselves, and a loss down the columns. */
#define PROMPTS                                                                                              \
    "dim %B = 0..5\ndim %T = 8..640 step 8\n%x = input f16[B,T,64]\n%w = weight f16[192,64]\n"               \
    "%1 = matmul %x, %w\n%2 = slice %1 {axis=2,start=0,stop=64,step=1}\n"                                    \
    "%3 = slice %1 {axis=2,start=64,stop=128,step=1}\n%4 = slice %1 {axis=2,start=128,stop=192,step=1}\n"    \
    "%5 = attention %2, %3, %4 {heads=2,kv_heads=2,scale=0.125,causal=1}\n%6 = layer_norm %5 {eps=1e-5}\n"   \
    "%7 = max %6\noutput %y = %5\noutput %m = %7\n"
/* A step of a server: rows of sequences, whose keys lie in pages. */
#define STEPS                                                                                                \
    "dim %T = 1..96\ndim %B = 1..24\n%x = input bf16[T,128]\n%w = weight bf16[384,128]\n"                    \
    "%ks = state bf16[256,128]\n%vs = state bf16[256,128]\n%at = input i32[T]\n%slots = input i32[T]\n"      \
    "%lengths = input i32[B]\n%table = input i32[B,8]\n%starts = input i32[B+1]\n"                           \
    "%1 = matmul %x, %w\n%2 = slice %1 {axis=1,start=0,stop=128,step=1}\n"                                   \
    "%3 = slice %1 {axis=1,start=128,stop=256,step=1}\n%4 = slice %1 {axis=1,start=256,stop=384,step=1}\n"   \
    "%5 = rope %2, %at {base=10000,head_dim=64,half=1}\n%6 = rope %3, %at {base=10000,head_dim=64,half=1}\n" \
    "%7 = append %ks, %6, %slots\n%8 = append %vs, %4, %slots\n"                                             \
    "%9 = attention %5, %7, %8, %lengths, _, _, _, %table, _, _, %starts "                                   \
    "{heads=2,kv_heads=2,scale=0.125,causal=1,align=3,page=16}\noutput %y = %9\n"
/* Columns that are folded, the best of each row, and a table. */
#define ROWS                                                                                                 \
    "dim %T = 1..3000\n%x = input bf16[T,96]\n%g = input bf16[T,96]\n%ids = input i32[T]\n"                  \
    "%e = weight bf16[50,96]\n%1 = embedding %e, %ids\n%2 = add %1, %x\n%3 = mul %2, %g\n"                   \
    "%4 = sum %3 {columns=1}\n%5 = softmax %2\noutput %c = %4\noutput %y = %5\n"

static const char *const graphs[] = {BLOCK, PROMPTS, STEPS, ROWS};
enum { GRAPHS = sizeof graphs / sizeof *graphs, MOST_ARGS = 16, POLICIES = 4, MOST_DIMS = 2 };

static coda_plan *compiled(int graph, struct coda_cache *c, coda_policy policy)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p = NULL;
    opt.cache = c;
    opt.policy = policy;
    if (coda_graph_parse(&g, graphs[graph])) return complain("graph %d: %s", graph, coda_error()), NULL;
    if (coda_compile(&p, g, &opt)) complain("graph %d, policy %d: %s", graph, (int)policy, coda_error());
    coda_graph_free(g);
    return p;
}

/* ---- The vendor ---- */

static char bundle[GRAPHS][256];

static int vend(void *ctx)
{
    struct coda_cache *c = open_cache(under("vendor"));
    int bad = 0, all = 0;
    (void)ctx;
    for (int i = 0; i < GRAPHS; i++) {
        coda_plan *p = compiled(i, c, CODA_POLICY_BACKGROUND);
        coda_export_options opt = CODA_EXPORT_OPTIONS_INIT;
        coda_bundle_report r = CODA_BUNDLE_REPORT_INIT;
        opt.plans = (const coda_plan *const[]){p};
        opt.plan_count = 1;
        int before = atomic_load(&board->compiles);
        if (!p || coda_cache_export(c, bundle[i], &opt, &r)) bad += complain("export: %s", coda_error());
        printf("ship: graph %d: %d kernels\n", i, (int)r.entries);
        bad += r.entries < 2;
        int made = atomic_load(&board->compiles) - before; /* and again: all of it is in the cache now */
        all += made;
        if (coda_cache_export(c, bundle[i], &opt, NULL) || atomic_load(&board->compiles) != before + made)
            bad += complain("graph %d: an export compiles %d kernels, and then %d", i, made,
                            atomic_load(&board->compiles) - before - made);
        coda_plan_free(p);
    }
    cache_close(c);
    if (!all) bad += complain("coda_compile has made the kernels of all shapes");
    return bad != 0;
}

/* ---- Who has the bundle, and no compiler ---- */

struct user {
    int graph;
    coda_policy policy;
    bool imports; /* into a fresh directory; else the bundle is an overlay */
};

static struct coda_cache *cache_with(const struct user *u)
{
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    struct coda_cache *c = NULL;
    opt.dir = under("user");
    opt.overlays = u->imports ? "" : bundle[u->graph];
    remove_tree(opt.dir);
    if (coda_cache_open(&c, &opt)) complain("%s", coda_error());
    if (u->imports && coda_cache_import(c, bundle[u->graph], NULL)) complain("%s", coda_error());
    return c;
}

static bool allocate(const coda_plan *p, void **args)
{
    for (int i = 0; i < coda_plan_args(p); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_plan_arg(p, i, &a);
        args[i] = aligned_alloc(256, (a.bytes + 256) / 256 * 256);
        if (!args[i]) return false;
        memset(args[i], 0, (a.bytes + 256) / 256 * 256);
    }
    return true;
}

/* The ends, what is beside a border of tiles, or anything. */
static int64_t any_value(const coda_symbol_info *s, int turn, uint64_t *seed)
{
    static const int64_t border[] = {1,   2,   7,   8,    9,    16,   17,   32,   33,  64,
                                     65,  127, 128, 129,  192,  193,  256,  257,  511, 512,
                                     513, 640, 641, 1024, 1025, 1152, 1153, 2048, 2049};
    int64_t least = s->least / s->multiple, most = s->most / s->multiple, v;
    if (turn == 0) return s->least;
    if (turn == 1) return s->most;
    if (turn % 2) v = border[noise(seed) % (sizeof border / sizeof *border)] / s->multiple;
    else v = least + (int64_t)(noise(seed) % (uint64_t)(most - least + 1));
    return s->multiple * (v < least ? least : v > most ? most : v);
}

static int run_shapes(const coda_plan *p, void *const *args, void *work, int shapes, uint64_t seed)
{
    int bad = 0;
    for (int i = 0; i < shapes && !bad; i++) {
        int64_t dims[MOST_DIMS];
        coda_run_options run = CODA_RUN_OPTIONS_INIT;
        run.dims = dims;
        run.dim_count = coda_plan_symbols(p);
        for (int k = 0; k < run.dim_count; k++) {
            coda_symbol_info s = CODA_SYMBOL_INFO_INIT;
            coda_plan_symbol(p, k, &s);
            dims[k] = any_value(&s, i < 4 ? i >> k & 1 : i, &seed);
        }
        if (coda_run_shaped(p, args, NULL, work, NULL, &run))
            bad += complain("shape %d, %d: %s", (int)dims[0], run.dim_count > 1 ? (int)dims[1] : 0,
                            coda_error());
    }
    return bad;
}

static int expect_nothing_made(struct coda_cache *c, const coda_plan *p)
{
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    coda_shape_stats shapes = CODA_SHAPE_STATS_INIT;
    coda_cache_stats_get(c, &s);
    coda_shape_stats_get(p, &shapes);
    if (!s.compiles && !s.misses && !shapes.failed && !atomic_load(&board->bad_launches) &&
        !atomic_load(&board->wrong) && atomic_load(&board->launches))
        return 0;
    return complain("%d misses, %d compiles, %d shapes failed", (int)s.misses, (int)s.compiles,
                    (int)shapes.failed);
}

static int use(void *ctx)
{
    const struct user *u = ctx;
    void *args[MOST_ARGS] = {NULL};
    setenv("CODA_CUDA_LIB", "/nonexistent", 1);
    struct coda_cache *c = cache_with(u);
    coda_plan *p = c ? compiled(u->graph, c, u->policy) : NULL;
    if (!p || !allocate(p, args)) return 1;
    size_t bytes = coda_plan_workspace(p);
    void *work = aligned_alloc(256, (bytes + 256) / 256 * 256);
    coda_warm_options all = CODA_WARM_OPTIONS_INIT;
    all.bindings = CODA_WARM_ALL;
    int bad = u->policy == CODA_POLICY_ERROR && coda_warm(p, &all) ? complain("%s", coda_error()) : 0;
    bad += run_shapes(p, args, work, scaled(60, 3000), 31 * (uint64_t)u->graph + (uint64_t)u->policy);
    for (coda_shape_stats s = {.size = sizeof s, .pending = 1}; s.pending; usleep(500))
        coda_shape_stats_get(p, &s);
    bad += expect_nothing_made(c, p);
    coda_plan_free(p);
    coda_cache_free(c);
    for (int i = 0; i < MOST_ARGS; i++) free(args[i]);
    free(work);
    return bad != 0;
}

/* Without a bundle it shows that there is no compiler. */
static int use_nothing(void *ctx)
{
    struct user u = *(const struct user *)ctx;
    setenv("CODA_CUDA_LIB", "/nonexistent", 1);
    struct coda_cache *c = open_cache(under("empty"));
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p = NULL;
    opt.cache = c;
    coda_graph_parse(&g, graphs[u.graph]);
    int bad = coda_compile(&p, g, &opt) != CODA_E_DEVICE;
    coda_graph_free(g);
    cache_close(c);
    return bad;
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "ship");
    int bad = 0, users = 0;
    for (int i = 0; i < GRAPHS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.bundle", i);
        snprintf(bundle[i], sizeof bundle[i], "%s", under(name));
    }
    if (reap(spawn(vend, NULL))) bad += complain("the vendor fails");
    int kernels = atomic_load(&board->compiles);
    for (int i = 0; i < GRAPHS * POLICIES; i++, users++) {
        struct user u = {i / POLICIES, (coda_policy)(i % POLICIES), i % 3 == 0};
        if (reap(spawn(use, &u)))
            bad += complain("graph %d, policy %d, %s", u.graph, (int)u.policy,
                            u.imports ? "imported" : "overlay");
    }
    if (atomic_load(&board->compiles) != kernels) bad += complain("somebody compiles");
    bad += reap(spawn(use_nothing, &(struct user){0, CODA_POLICY_WAIT, false})) != 0;
    figure(users, bad, "processes with a bundle and no compiler: any shapes by any policy, %d kernels",
           kernels);
    return torture_end();
}
