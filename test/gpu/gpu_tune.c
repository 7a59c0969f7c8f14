/*
 * gpu_tune.c -- tuned plans compute the same, are measured once, and show their figures; and every way
 * that a contest may choose runs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executable.h"
#include "gpu_case.h"
#include "tile.h"
#include "tune_record.h"
#include "util_device.h"
#include "util_run.h"

int gpu_tune(void);

static char *plan_of(const coda_plan *p)
{
    int64_t n = coda_plan_print(p, CODA_TEXT_PLAN, NULL, 0);
    char *s = malloc((size_t)n + 1);
    coda_plan_print(p, CODA_TEXT_PLAN, s, (size_t)n + 1);
    return s;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, word)); s++) n++;
    return n;
}

/* Compiles; how many programs were measured, or -1; the plan's text. */
static int measure(const graph *g, const coda_compile_options *opt, char **text)
{
    coda_plan *p;
    *text = NULL;
    if (coda_compile(&p, g, opt) != CODA_OK) return -1;
    int n = p->measured;
    *text = plan_of(p);
    coda_plan_free(p);
    return n;
}

/* Tunes, finds the figures again with the flag and without it, and runs what was chosen. */
static int tuned(const char *name, const graph *g, coda_compile_options opt, void **want)
{
    char *first, *second, *third;
    double before = run_on_gpu(g, 1, &opt, want);
    opt.flags |= CODA_AUTOTUNE;
    int measured = measure(g, &opt, &first), again = measure(g, &opt, &second);
    opt.flags &= ~(unsigned)CODA_AUTOTUNE;
    int later = measure(g, &opt, &third);
    double after = run_on_gpu(g, 1, &opt, want);
    bool same = first && second && third && !strcmp(first, second) && !strcmp(first, third);
    int failed = gpu_case(measured > 0 && !again && !later && same, name,
                          "%d programs measured, then %d, then %d; %s plan %s", measured, again, later,
                          same ? "the same" : "another", measured < 0 ? coda_error() : "");
    int figures = first ? count(first, "   tuned ") : 0;
    int bare = first ? count(first, "without the epilogue") : 0;
    failed += gpu_case(figures >= measured && figures > 0 && bare == figures, name,
                       "%d programs with figures, %d beside cuBLASLt's", figures, bare);
    failed += gpu_case(after >= 0 && after <= 1.5 * before, name, "error %.3e (untuned %.3e) %s", after,
                       before, after < 0 ? coda_error() : "");
    if (getenv("CODA_TEST_VERBOSE")) printf("%s", first ? first : "");
    free(first), free(second), free(third);
    return failed;
}

/* Stores figures that make every product of the graph go `way`: apart, or in a tile of this class, if it
 * has one. Runs it. */
static int forced(const char *name, const graph *g, coda_compile_options opt, void **want, const char *way,
                  enum tile_class class)
{
    coda_plan *p;
    int n = 0;
    if (coda_compile(&p, g, &opt) != CODA_OK) return gpu_case(false, name, "%s", coda_error());
    for (int i = 0; i < p->plan.programs; i++) {
        struct program *q = &p->plan.program[i];
        struct tile tile[4];
        struct text key = {0}, text = {0}, word = {0};
        if (q->kind != PROGRAM_GEMM) continue;
        int tiles = tile_candidates(q, &p->plan.target, class, tile, ARRAY_SIZE(tile));
        if (!tiles) continue;
        tile_print(&tile[tiles - 1], &word);
        figures_key(&p->plan, NULL, i, &key);
        text_printf(&text, "9 tile %s\n", "the price's");
        if (!strcmp(way, "apart")) text_append(&text, "1 apart\n");
        else text_printf(&text, "1 tile %s\n", text_str(&word));
        struct jit_options jit = {.arch = p->gpu.arch, .cache = opt.cache};
        jit_figures_put(text_str(&key), &p->gpu, &jit, text_str(&text));
        text_free(&key), text_free(&text), text_free(&word);
        n++;
    }
    coda_plan_free(p);
    char *text;
    measure(g, &opt, &text);
    int products = text ? count(text, "tile cublaslt") : 0;
    double error = run_on_gpu(g, 1, &opt, want);
    bool good = error >= 0 && error < 2e-2 && (products > 0) == !strcmp(way, "apart");
    free(text);
    return gpu_case(good, name, "%s for %d products, %d on cuBLASLt: error %.3e %s", way, n, products, error,
                    error < 0 ? coda_error() : "");
}

static graph *product_f32(int64_t m, int64_t n, int64_t k)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){m, k});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){n, k});
    coda_value b = coda_weight(g, "b", CODA_F32, 1, &n);
    coda_output(g, "y", coda_gelu_tanh(g, coda_bias(g, coda_matmul(g, x, w), b)));
    return g;
}

static coda_cache *open_cache(const char *folder, const char *name, int number)
{
    char dir[160];
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    coda_cache *c = NULL;
    if (device_dry()) return NULL; /* the process's own, for what is made there shall stay */
    snprintf(dir, sizeof dir, "%s/%s-%d", folder, name, number);
    where.dir = dir;
    coda_cache_open(&c, &where);
    return c;
}

/* Without any figures: of a product with few tiles and a long K the library makes several times as many. */
static int by_price(coda_cache *cache)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    graph *g = product_f32(200, 64, 8192);
    void **want = run_reference(g, 3);
    char *text;
    opt.cache = cache;
    int n = measure(g, &opt, &text), products = text ? count(text, "tile cublaslt") : 0;
    double error = run_on_gpu(g, 3, &opt, want);
    free(text);
    random_args_free(g, want);
    graph_free(g);
    return gpu_case(n == 0 && products == 1 && error >= 0 && error < 1e-5, "by price",
                    "%d product on cuBLASLt: error %.3e %s", products, error, error < 0 ? coda_error() : "");
}

/* Each with a cache of its own. */
static int all_ways(const char *name, graph *g, const char *folder)
{
    static const char *const way[TILE_CLASSES] = {"tile",      "square", "scattered",
                                                  "clustered", "three",  "skinny"};
    coda_cache *cache[2 + TILE_CLASSES];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void **want = g ? run_reference(g, 1) : NULL;
    if (!want) return gpu_case(false, name, "%s", coda_error());
    for (int i = 0; i < ARRAY_SIZE(cache); i++) cache[i] = open_cache(folder, name, i);
    opt.cache = cache[0];
    int failed = tuned(name, g, opt, want);
    opt.cache = cache[1];
    failed += forced(name, g, opt, want, "apart", TILES_KNOWN);
    for (int class = 0; class < TILE_CLASSES; class ++) {
        opt.cache = cache[2 + class];
        failed += forced(name, g, opt, want, way[class], class);
    }
    for (int i = 0; i < ARRAY_SIZE(cache); i++) coda_cache_free(cache[i]);
    random_args_free(g, want);
    graph_free(g);
    return failed;
}

/* No way through a program large enough for races is thrown out for its results. */
static int all_agree(coda_cache *cache)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){8192, 512});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){4096, 512});
    coda_value r = coda_input(g, "r", CODA_BF16, 2, (int64_t[]){8192, 4096});
    char *text;
    coda_output(g, "y", coda_add(g, coda_gelu_tanh(g, coda_matmul(g, x, w)), r));
    opt.cache = cache;
    opt.flags = CODA_AUTOTUNE | CODA_PLAN_ONLY;
    int n = measure(g, &opt, &text);
    bool good = n == 1 && text && strstr(text, "6 tiles; cuBLASLt") && strstr(text, "apart");
    const char *line = text ? strstr(text, "   tuned") : NULL;
    int failed = gpu_case(good, "large", "%d measured:%.*s", n, line ? (int)strcspn(line + 2, "\n") : 0,
                          line ? line + 2 : "");
    free(text);
    graph_free(g);
    return failed;
}

int gpu_tune(void)
{
    static const char *const block[] = {"llama_small", "gpt2_small", "bert_small"};
    struct jit_device dev;
    char err[JIT_ERROR_SIZE], folder[] = "/tmp/coda-tune-XXXXXX", path[128];
    if (!device_open(&dev, err)) return gpu_case(false, "tune", "%s", err);
    if (device_emulated(&dev)) return gpu_skip("tune", "the emulator has no cuBLASLt, and no time");
    if (!mkdtemp(folder)) return gpu_case(false, "tune", "no folder in /tmp");
    coda_cache *cache = open_cache(folder, "own", 0);
    int failed = all_agree(cache) + by_price(cache) + all_ways("f32", product_f32(300, 270, 190), folder);
    coda_cache_free(cache);
    for (int i = 0; i < ARRAY_SIZE(block); i++) {
        snprintf(path, sizeof path, "examples/graphs/%s.coda", block[i]);
        failed += all_ways(block[i], run_load(path), folder);
    }
    snprintf(path, sizeof path, "rm -rf %s", folder);
    return failed + (system(path) != 0);
}
