/*
 * oom.c -- memory runs out at every single allocation, once alone and once for good.
 *
 * A small LLaMA block is built, printed, parsed, evaluated, compiled for both fold modes, printed again
 * and run on the CPU device, with the N-th allocation failing, N = 1, 2, ... until none fails. Each time
 * the library must either say CODA_E_MEMORY or get along and give the same bits as ever. Then the same
 * with one kernel that is compiled by NVRTC, or found in the cache, and with a bundle of it.
 *
 *     oom [EVERY]         only one in EVERY allocations, another set for each $CODA_SEED: for sanitizers
 *     oom EVERY shapes    the same of plans of graphs with symbols, by the compiler and driver of test/fake
 *
 * Linked with --wrap, so that malloc and its like pass through here.
 */
#include <ftw.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "oom.h"

/* ---- The failing allocator ---- */

static atomic_long countdown; /* allocations until the one that fails; 0: none does */
static atomic_bool failed, for_good;

static bool fails(void)
{
    if (atomic_load(&for_good) && atomic_load(&failed)) return true;
    if (atomic_load(&countdown) <= 0 || atomic_fetch_sub(&countdown, 1) != 1) return false;
    return atomic_store(&failed, true), true;
}

bool oom_is_over(void) { return !atomic_load(&for_good) && atomic_load(&failed); }

#define WRAP(result, name, types, names)                                                                     \
    result __real_##name types;                                                                              \
    result __wrap_##name types;                                                                              \
    result __wrap_##name types { return fails() ? NULL : __real_##name names; }
WRAP(void *, malloc, (size_t n), (n))
WRAP(void *, calloc, (size_t n, size_t size), (n, size))
WRAP(void *, realloc, (void *p, size_t n), (p, n))
WRAP(void *, aligned_alloc, (size_t a, size_t n), (a, n))
WRAP(char *, strdup, (const char *s), (s))
WRAP(char *, strndup, (const char *s, size_t n), (s, n))

/* ---- The work ---- */

enum { T = 6, D = 32, HEADS = 2, F = 24, BEST = 4 };

static uint16_t x[T * D], gain[D], w_qkv[3 * D * D], w_o[D * D], w_gu[2 * F * D], w_d[D * F], y[T * D];
static _Alignas(16) uint16_t cache[T * D];
static _Alignas(16) int32_t steps[T], targets[T];
static float loss, sums[BEST * D];
static uint16_t best[T * BEST];
static int32_t which[T * BEST];
static uint16_t conv[T * D], kept[3 * D], scanned[T * D], ruled[T * D];
static float states[D * D], left[D * D];
static void *args[] = {x,    gain, w_qkv,   w_o,    w_gu,  w_d,  targets, cache, steps, sums,
                       conv, kept, scanned, states, ruled, left, best,    which, y,     &loss};
static double exact_y[T * D], exact_loss, exact_sums[BEST * D], exact_best[2][T * BEST];
static double exact_conv[T * D], exact_kept[3 * D], exact_scanned[T * D], exact_states[D * D];
static double exact_ruled[T * D], exact_left[D * D];
static void *exact_args[] = {x,          gain,          w_qkv,         w_o,          w_gu,
                             w_d,        targets,       cache,         steps,        exact_sums,
                             exact_conv, exact_kept,    exact_scanned, exact_states, exact_ruled,
                             exact_left, exact_best[0], exact_best[1], exact_y,      &exact_loss};
static _Alignas(256) unsigned char workspace[1 << 20], prepared[1 << 20];
static char text[1 << 20], plan_text[1 << 20];
static char folder[] = P_tmpdir "/coda-oom-XXXXXX"; /* of caches */

#define DIMS(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

static coda_graph *build(void)
{
    coda_graph *g = coda_graph_new();
    if (!g) return NULL;
    coda_map_def twice = CODA_MAP_DEF_INIT;
    twice.name = "twice";
    twice.source = "DEV static float apply(float v) { return 2.0f * v; }";
    coda_value in = coda_input(g, "x", CODA_BF16, DIMS(T, D));
    coda_value gamma = coda_weight(g, "gain", CODA_BF16, DIMS(D));
    coda_value qkv_w = coda_weight(g, "w_qkv", CODA_BF16, DIMS(3 * D, D)),
               o_w = coda_weight(g, "w_o", CODA_BF16, DIMS(D, D));
    coda_value gu_w = coda_weight(g, "w_gu", CODA_BF16, DIMS(2 * F, D)),
               d_w = coda_weight(g, "w_d", CODA_BF16, DIMS(D, F));
    coda_value target = coda_input(g, "targets", CODA_I32, DIMS(T));
    coda_value keys = coda_state(g, "cache", CODA_BF16, DIMS(T, D)),
               step = coda_state(g, "steps", CODA_I32, DIMS(T));
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    rope.head_dim = D / HEADS;
    rope.heads = 2 * HEADS;
    coda_attention_options attention = CODA_ATTENTION_OPTIONS_INIT;
    attention.heads = HEADS;
    attention.causal = 1;
    coda_scope_push(g, "layers.%d", 0);
    coda_value r = coda_rope(g, coda_matmul(g, coda_rms_norm(g, in, gamma, 1e-5f), qkv_w), CODA_NONE, &rope);
    coda_value a = coda_attention(g, coda_slice(g, r, 1, 0, D, 1), coda_slice(g, r, 1, D, 2 * D, 1),
                                  coda_slice(g, r, 1, 2 * D, 3 * D, 1), CODA_NONE, &attention);
    coda_value before = coda_tanh(g, keys);
    keys = coda_append(g, keys, coda_slice(g, r, 1, D, 2 * D, 1), target, NULL);
    coda_assign(g, step, coda_cast(g, coda_add(g, step, coda_constant(g, CODA_I32, 1)), CODA_I32));
    coda_value h = coda_add(g, coda_matmul(g, coda_add(g, a, coda_add(g, before, keys)), o_w), in);
    coda_value m = coda_swiglu(g, coda_matmul(g, coda_rms_norm(g, h, gamma, 1e-5f), gu_w), CODA_INTERLEAVED);
    coda_scope_pop(g);
    coda_value half = coda_constant(g, CODA_F32, 0.5), out = coda_add(g, coda_matmul(g, m, d_w), h);
    out = coda_sub(g, out, coda_mul(g, half, half));
    coda_define_map(g, &twice);
    coda_value top[2];
    coda_top_k(g, out, BEST, &top[0], &top[1]);
    coda_output_add(g, "sums", coda_row_sums(g, out, target, BEST));
    coda_value after, taps = coda_slice(g, d_w, 1, 0, 4, 1);
    coda_output(g, "conv", coda_conv1d(g, out, taps, gamma, CODA_NONE, CODA_NONE, &after));
    coda_output(g, "after", after);
    coda_value head = coda_slice(g, out, 1, 0, 1, 1),
               rate = coda_cast(g, coda_slice(g, gamma, 0, 0, 1, 1), CODA_F32);
    coda_output(g, "scan", coda_scan(g, out, head, rate, out, out, CODA_NONE, CODA_NONE, NULL, &after));
    coda_output(g, "states", after);
    coda_value few = coda_slice(g, out, 1, 0, 1, 1);
    coda_output(g, "delta", coda_delta(g, out, out, out, few, few, CODA_NONE, CODA_NONE, NULL, &after));
    coda_output(g, "left", after);
    coda_output(g, "best", top[0]);
    coda_output(g, "which", top[1]);
    coda_output(g, "y", out);
    coda_value nll = coda_cross_entropy(g, coda_layer_norm(g, out, gamma, gamma, 1e-5f), target, NULL), dx;
    coda_output(g, "loss", nll);
    coda_grad(g, &nll, NULL, 1, &out, 1, &dx, NULL);
    return g;
}

static void fill(uint16_t *v, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (uint16_t)((seed >> 16 & 0x8000) | (0x3d00 + (seed >> 10 & 0x1ff))); /* +-0.03 .. 0.5 */
    }
}

/* Folding in place changes weights, and a run the states. */
static void load_weights(void)
{
    fill(gain, D, 2);
    fill(w_qkv, 3 * D * D, 3);
    fill(w_o, D * D, 4);
    fill(w_gu, 2 * F * D, 5);
    fill(w_d, D * F, 6);
    fill(cache, T * D, 7);
    memset(steps, 0, sizeof steps);
    coda_prepare_forget(NULL, 0);
}

static coda_status run(const coda_graph *g, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    opt.fold = fold;
    load_weights();
    memset(workspace, 0xff, sizeof workspace);
    memset(prepared, 0x5f, sizeof prepared);
    coda_status status = coda_compile(&p, g, &opt);
    if (!status && (coda_plan_workspace(p) > sizeof workspace || coda_plan_prepared(p) > sizeof prepared))
        status = CODA_E_INVALID;
    if (!status && fold) status = coda_prepare(p, args, prepared, workspace, NULL);
    memset(workspace, 0x5f, sizeof workspace);
    if (!status) status = coda_run(p, args, prepared, workspace, NULL);
    coda_plan_free(p);
    return status;
}

static coda_status explain(const coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    coda_status status = coda_compile(&p, g, &opt);
    for (int what = CODA_TEXT_GRAPH; !status && what <= CODA_TEXT_STAGES; what++) {
        int64_t n = coda_plan_print(p, (coda_text)what, plan_text, sizeof plan_text);
        if (n < 0) status = (coda_status)n;
    }
    coda_plan_free(p);
    return status;
}

static coda_status all(void)
{
    coda_graph *g = build(), *again = NULL;
    coda_status status = g ? coda_graph_status(g) : CODA_E_MEMORY;
    if (!status) {
        int64_t n = coda_graph_print(g, text, sizeof text);
        status = n < 0 ? (coda_status)n : coda_graph_parse(&again, text);
    }
    load_weights();
    if (!status) status = coda_evaluate(again, exact_args);
    if (!status) status = explain(again);
    if (!status) status = run(again, CODA_FOLD_IN_PLACE);
    if (!status) status = run(g, CODA_FOLD_COPY);
    coda_graph_free(g);
    coda_graph_free(again);
    return status;
}

static coda_status plan_only(const coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    coda_status status = coda_compile(&p, g, &opt);
    coda_plan_free(p);
    return status;
}

/* A loss by chunks and its gradients, in one plan and in two, of which the second consumes. */
static coda_status chunks(void)
{
    coda_graph *g = coda_graph_new(), *forward = NULL, *backward = NULL;
    coda_linear_cross_entropy_options by = CODA_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
    coda_split_options split = CODA_SPLIT_OPTIONS_INIT;
    coda_value dx[2] = {CODA_NONE, CODA_NONE};
    by.rows = T / 3;
    split.consume = 1;
    if (!g) return CODA_E_MEMORY;
    coda_value v[2] = {coda_input(g, "x", CODA_BF16, DIMS(T, D)), coda_weight(g, "w", CODA_BF16, DIMS(F, D))};
    coda_value nll = coda_linear_cross_entropy(g, v[0], v[1], coda_input(g, "t", CODA_I32, DIMS(T)), &by);
    coda_grad(g, &nll, NULL, 1, v, 2, dx, NULL);
    coda_output(g, "loss", nll);
    coda_output(g, "dx", dx[0]);
    coda_output_add(g, "dw", dx[1]);
    coda_status status = coda_graph_status(g);
    if (!status) status = plan_only(g);
    if (!status) status = coda_split(g, 1, &split, &forward, &backward);
    if (!status) status = plan_only(forward);
    if (!status) status = plan_only(backward);
    coda_graph_free(g), coda_graph_free(forward), coda_graph_free(backward);
    return status;
}

/* From the directory, again from memory, and anew. */
static coda_status compile_thrice(const coda_graph *g, coda_cache *c)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_status status = CODA_OK;
    opt.device = CODA_DEVICE_NONE;
    opt.cache = c;
    for (int i = 0; i < 3 && !status; i++) {
        coda_plan *p;
        coda_cache_prune_options all = CODA_CACHE_PRUNE_OPTIONS_INIT;
        all.clear = 1;
        if (i == 2) coda_cache_prune(c, &all, NULL), coda_cache_forget(c);
        status = coda_compile(&p, g, &opt);
        coda_plan_free(p);
    }
    return status;
}

/* The way through NVRTC and the cache; without NVRTC, nothing. */
static coda_status one_kernel(void)
{
    static bool missing;
    char dir[64];
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    coda_cache *c = NULL;
    snprintf(dir, sizeof dir, "%s/own", folder);
    where.dir = dir;
    coda_graph *g = missing ? NULL : coda_graph_new();
    if (missing) return CODA_OK;
    if (!g) return CODA_E_MEMORY;
    coda_output(g, "y", coda_relu(g, coda_input(g, "x", CODA_BF16, DIMS(T, D))));
    coda_status status = coda_graph_status(g);
    if (!status) status = coda_cache_open(&c, &where);
    if (!status) status = compile_thrice(g, c);
    missing = status == CODA_E_DEVICE && !failed;
    coda_cache_free(c);
    coda_graph_free(g);
    return missing ? CODA_OK : status;
}

/* A bundle is made of a cache, looked at, and used. What cannot be imported is no failure: it is found in
 * the bundle. */
static coda_cache *vendor;

static int look(void *count, const coda_cache_entry *e) { return *(int *)count += *e->kind == 'k'; }

static coda_status compile_relu(coda_cache *c)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    coda_graph *g = coda_graph_new();
    if (!g) return CODA_E_MEMORY;
    opt.device = CODA_DEVICE_NONE;
    opt.cache = c;
    coda_output(g, "y", coda_relu(g, coda_input(g, "x", CODA_BF16, DIMS(T, D))));
    coda_status status = coda_compile(&p, g, &opt);
    coda_plan_free(p);
    coda_graph_free(g);
    return status;
}

static coda_status use_bundle(const char *path)
{
    char line[512];
    int count = 0;
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    coda_cache *c = NULL;
    opt.dir = folder;
    opt.overlays = path;
    coda_status status = coda_bundle_list(path, look, &count);
    if (!status && count != 1) status = CODA_E_INVALID;
    if (!status && coda_bundle_print(path, line, sizeof line) < 0) status = CODA_E_MEMORY;
    if (!status) status = coda_cache_open(&c, &opt);
    if (!status) coda_cache_import(c, path, NULL);
    if (!status) status = compile_relu(c);
    coda_cache_free(c);
    return status;
}

static coda_status ship(void)
{
    char path[128];
    coda_bundle_report r = CODA_BUNDLE_REPORT_INIT;
    if (!vendor) return CODA_OK;
    snprintf(path, sizeof path, "%s/bundle", folder);
    coda_status status = coda_cache_export(vendor, path, NULL, &r);
    if (!status && r.entries + r.damaged != 1) status = CODA_E_INVALID;
    return status || !r.entries ? status : use_bundle(path);
}

/* A cache with one kernel, if there is an NVRTC. */
static void open_vendor(void)
{
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/vendor", folder);
    opt.dir = dir;
    opt.overlays = "";
    if (coda_cache_open(&vendor, &opt) || !compile_relu(vendor)) return;
    coda_cache_free(vendor);
    vendor = NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

/* ---- The test ---- */

static uint16_t good_y[T * D];
static double good_exact[T * D];
static int wrong;

static void complain(long n, const char *what)
{
    printf("oom: allocation %ld fails%s: %s (%s)\n", n, for_good ? " for good" : "", what, coda_error());
    wrong++;
}

/* One run of `work` with the n-th allocation failing; false when it needs fewer than n. */
static bool attempt(coda_status (*work)(void), long n)
{
    atomic_store(&failed, false);
    atomic_store(&countdown, n);
    coda_status status = work();
    atomic_store(&countdown, 0);
    if (status && status != CODA_E_MEMORY) complain(n, coda_status_name(status));
    if (status && !failed) complain(n, "failed without cause");
    if (!status && (memcmp(y, good_y, sizeof y) || memcmp(exact_y, good_exact, sizeof exact_y)))
        complain(n, "gave another result");
    bool more = atomic_load(&failed);
    atomic_store(&failed, false);
    return more;
}

/* Each of them alone, and for good; the number of allocations that failed. */
static long attempt_all(coda_status (*const *piece)(void), int pieces, long first, long every)
{
    long total = 0;
    for (int i = 0; i < 2 * pieces; i++) {
        long n = first;
        atomic_store(&for_good, i % 2);
        while (attempt(piece[i / 2], n)) n += every;
        total += (n - first) / every;
    }
    return total;
}

static long usual(long first, long every)
{
    static coda_status (*const pieces[])(void) = {all, chunks, one_kernel, ship};
    if (all() != CODA_OK || chunks() != CODA_OK || one_kernel() != CODA_OK)
        return printf("oom: without any failure: %s\n", coda_error()), ++wrong, 0;
    memcpy(good_y, y, sizeof y);
    memcpy(good_exact, exact_y, sizeof exact_y);
    open_vendor();
    long n = attempt_all(pieces, 4, first, every);
    coda_cache_free(vendor);
    return n;
}

static long with_shapes(long first, long every)
{
    static coda_status (*const pieces[])(void) = {shapes_on_host, shapes_on_gpu, shapes_in_background,
                                                  shapes_in_bundle};
    shapes_open(folder);
    for (int i = 0; i < 4; i++)
        if (pieces[i]() != CODA_OK)
            return printf("oom: shapes, without any failure: %s\n", coda_error()), ++wrong, 0;
    return attempt_all(pieces, 4, first, every);
}

int main(int argc, char **argv)
{
    const char *seed = getenv("CODA_SEED");
    long every = argc > 1 && atol(argv[1]) > 0 ? atol(argv[1]) : 1;
    long first = 1 + (seed ? atol(seed) % every : 0);
    fill(x, T * D, 1);
    load_weights();
    for (int i = 0; i < T; i++) targets[i] = T - 1 - i;
    if (!mkdtemp(folder)) return perror(folder), 1;
    long total = argc > 2 && !strcmp(argv[2], "shapes") ? with_shapes(first, every) : usual(first, every);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    printf("oom: %ld allocations failed, alone or for good, %d with a wrong end\n", total, wrong);
    return wrong != 0;
}
