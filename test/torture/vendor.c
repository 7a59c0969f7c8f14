/*
 * vendor.c -- what the maker of a model ships: a bundle. Programs that have it compile nothing and need no
 * NVRTC, however they got it; what is not right about a bundle costs a compile, not a result. And the
 * tool, at work beside them.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { KERNELS = 12 };
static char made[256], bundle[256];

/* ---- The vendor ---- */

static int compile_all(struct coda_cache *c, coda_plan **plans)
{
    int bad = 0;
    for (int i = 0; i < KERNELS; i++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_graph *g = kernel_graph(i, NULL);
        opt.cache = c;
        if (coda_compile(&plans[i], g, &opt)) bad += complain("kernel %d: %s", i, coda_error());
        coda_graph_free(g);
    }
    return bad;
}

static int export_to(struct coda_cache *c, const char *path, const coda_export_options *opt)
{
    coda_bundle_report r = CODA_BUNDLE_REPORT_INIT;
    if (coda_cache_export(c, path, opt, &r)) return complain("export: %s", coda_error());
    if (r.entries == KERNELS && !r.missing) return 0;
    return complain("%d entries exported, %d missing", (int)r.entries, (int)r.missing);
}

static int differ(const char *path)
{
    size_t size, n;
    void *first = read_whole(bundle, &size), *other = read_whole(path, &n);
    bool same = first && other && n == size && !memcmp(first, other, n);
    free(first);
    free(other);
    return same ? 0 : complain("%s differs", path);
}

static int export_all_ways(struct coda_cache *c, coda_plan *const *plans, char *keys)
{
    coda_export_options of_plans = CODA_EXPORT_OPTIONS_INIT, by_keys = CODA_EXPORT_OPTIONS_INIT;
    of_plans.plans = (const coda_plan *const *)plans;
    of_plans.plan_count = KERNELS;
    by_keys.keys = keys;
    int bad = export_to(c, bundle, NULL);
    bad += export_to(c, under("plans.bundle"), &of_plans);
    bad += export_to(c, under("keys.bundle"), &by_keys);
    return bad + differ(under("plans.bundle")) + differ(under("keys.bundle"));
}

/* In a child: this process must not open a compiler, for libraries are opened once. */
static int vend(void *ctx)
{
    (void)ctx;
    coda_plan *plans[KERNELS] = {NULL};
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    struct coda_cache *c = NULL;
    size_t size = 0;
    opt.dir = made;
    opt.record = under("used.keys");
    int bad = coda_cache_open(&c, &opt) ? complain("%s", coda_error()) : 0;
    bad += compile_all(c, plans);
    char *keys = read_whole(under("used.keys"), &size);
    if (keys) keys[size] = 0;
    bad += keys ? export_all_ways(c, plans, keys) : complain("there is no record");
    free(keys);
    for (int i = 0; i < KERNELS; i++) coda_plan_free(plans[i]);
    coda_cache_free(c);
    return bad ? 1 : 0;
}

static void exports(void)
{
    int bad = reap(spawn(vend, NULL)) != 0;
    figure(3, bad, "%d kernels exported by directory, by plans and by record: the same bytes", KERNELS);
}

/* ---- The user, who has no NVRTC ---- */

struct way {
    const char *name, *dir, *overlays, *variable;
    bool memory, import; /* the bundle is an array; it is imported first */
};

static int expect_all(struct coda_cache *c)
{
    int bad = 0;
    for (int i = 0; i < KERNELS; i++)
        if (use_kernel(c, i)) bad += complain("kernel %d: %s", i, coda_error());
    return bad;
}

static int expect_hits(struct coda_cache *c, const char *name)
{
    int bad = expect_all(c);
    uint64_t found = counted(c, COUNT_bundle_hits) + counted(c, COUNT_disk_hits);
    found += counted(c, COUNT_overlay_hits);
    if (found != KERNELS) bad += complain("%s: %d hits", name, (int)found);
    if (use_kernel(c, KERNELS) != CODA_E_DEVICE || !strstr(coda_error(), "NVRTC"))
        bad += complain("%s: a kernel out of nowhere: %s", name, coda_error());
    return bad;
}

static int use_way(void *ctx)
{
    const struct way *w = ctx;
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    struct coda_cache *c = NULL;
    size_t size = 0;
    int bad = 0;
    void *array = w->memory ? read_whole(bundle, &size) : NULL;
    setenv("CODA_CUDA_LIB", "/nonexistent", 1);
    if (w->variable) setenv("CODA_BUNDLES", w->variable, 1);
    opt.dir = w->dir;
    opt.overlays = w->overlays;
    if (coda_cache_open(&c, &opt)) return complain("%s: %s", w->name, coda_error());
    if (w->memory && coda_cache_add_bundle(c, array, size)) bad += complain("%s: %s", w->name, coda_error());
    if (w->import && coda_cache_import(c, bundle, NULL)) bad += complain("%s: %s", w->name, coda_error());
    bad += expect_hits(c, w->name);
    coda_cache_free(c);
    free(array);
    return bad ? 1 : 0;
}

static void ways(void)
{
    char two[600], nothing[256], imported[256];
    snprintf(two, sizeof two, "/nonexistent:%s", bundle);
    snprintf(nothing, sizeof nothing, "%s", under("nothing"));
    snprintf(imported, sizeof imported, "%s", under("imported"));
    const struct way way[] = {
        {"option", nothing, bundle, NULL, false, false},
        {"behind one that is not there", nothing, two, NULL, false, false},
        {"variable", nothing, NULL, bundle, false, false},
        {"memory", nothing, "", NULL, true, false},
        {"without a directory", "/dev/null/none", bundle, NULL, false, false},
        {"imported", imported, "", NULL, false, true},
        {"imported by another process", imported, "", NULL, false, false},
        {"imported into a read-only directory", nothing, imported, NULL, false, false},
    };
    enum { WAYS = sizeof way / sizeof *way };
    int bad = 0;
    board_reset();
    for (int i = 0; i < WAYS; i++) bad += reap(spawn(use_way, (void *)&way[i])) != 0;
    if (atomic_load(&board->compiles)) bad += complain("%d compiles", atomic_load(&board->compiles));
    if (atomic_load(&board->wrong)) bad += complain("%d wrong images", atomic_load(&board->wrong));
    figure(WAYS * (KERNELS + 1), bad, "%d kernels without NVRTC, the bundle given in %d ways: 0 compiles",
           KERNELS, WAYS);
}

/* ---- A driver that refuses what was shipped ---- */

struct refusal {
    const char *dir, *overlays;
    int compiles, refused; /* in this process */
};

static int use_refused(void *ctx)
{
    const struct refusal *r = ctx;
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = r->dir, .overlays = r->overlays});
    atomic_store(&board->refuse, r->refused);
    int bad = use_kernel(c, 0) ? complain("%s", coda_error()) : 0, compiles = (int)counted(c, COUNT_compiles);
    if (compiles != r->compiles) bad += complain("%d compiles instead of %d", compiles, r->compiles);
    if ((int)counted(c, COUNT_refused) != r->refused) bad += complain("another number of refusals");
    cache_close(c);
    return bad;
}

/* What was imported is replaced for good; a bundle stays as it is. */
static void refusals(void)
{
    char imported[256], beside[256];
    snprintf(imported, sizeof imported, "%s", under("imported, refused"));
    snprintf(beside, sizeof beside, "%s", under("beside"));
    const struct refusal turn[] = {{imported, "", 0, 0},   {imported, "", 1, 1},   {imported, "", 0, 0},
                                   {beside, bundle, 0, 0}, {beside, bundle, 1, 1}, {beside, bundle, 0, 0}};
    enum { TURNS = sizeof turn / sizeof *turn };
    int bad = 0;
    board_reset();
    struct coda_cache *c = open_cache(imported);
    if (coda_cache_import(c, bundle, NULL)) bad += complain("%s", coda_error());
    cache_close(c);
    for (int i = 0; i < TURNS; i++) bad += reap(spawn(use_refused, (void *)&turn[i])) != 0;
    figure(TURNS, bad, "shipped kernels that the driver refuses: compiled once, replaced where imported");
}

/* ---- A plan that was tuned ---- */

/* Compiles a product with an epilogue; its plan's text goes to `text`, malloc'd. */
static coda_plan *compile_product(struct coda_cache *c, unsigned flags, char **text)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){512, 1024});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){2048, 1024});
    coda_output(g, "y", coda_silu(g, coda_matmul(g, x, w)));
    opt.cache = c;
    opt.flags = flags;
    if (coda_compile(&p, g, &opt)) complain("the product: %s", coda_error());
    coda_graph_free(g);
    int64_t n = p ? coda_plan_print(p, CODA_TEXT_PLAN, NULL, 0) : 0;
    *text = calloc(1, (size_t)n + 1);
    if (p && *text) coda_plan_print(p, CODA_TEXT_PLAN, *text, (size_t)n + 1);
    return p;
}

static int tune(void *ctx)
{
    coda_export_options opt = CODA_EXPORT_OPTIONS_INIT;
    coda_bundle_report r = CODA_BUNDLE_REPORT_INIT;
    char *text;
    (void)ctx;
    struct coda_cache *c = open_cache(under("tuned"));
    coda_plan *p = compile_product(c, CODA_AUTOTUNE, &text);
    opt.plans = (const coda_plan *const *)&p;
    opt.plan_count = 1;
    int bad = !p || coda_cache_export(c, under("tuned.bundle"), &opt, &r);
    if (bad) complain("export: %s", coda_error());
    else if (r.entries != coda_plan_kernels(p) + 1) bad += complain("%d entries exported", (int)r.entries);
    bad += !write_whole(under("tuned.plan"), text, strlen(text));
    free(text);
    coda_plan_free(p);
    cache_close(c);
    return bad;
}

static int use_tuned(void *ctx)
{
    char *text;
    size_t size;
    (void)ctx;
    setenv("CODA_CUDA_LIB", "/nonexistent", 1);
    struct coda_cache *c =
        cache_open(&(struct cache_options){.dir = under("not tuned"), .overlays = under("tuned.bundle")});
    coda_plan *p = compile_product(c, 0, &text);
    char *want = read_whole(under("tuned.plan"), &size);
    int bad = !p || !want;
    if (!bad && (strlen(text) != size || memcmp(text, want, size))) bad += complain("another plan: %s", text);
    free(want);
    free(text);
    coda_plan_free(p);
    cache_close(c);
    return bad;
}

static void tuned(void)
{
    board_reset();
    int bad = reap(spawn(tune, NULL)) != 0, compiles = atomic_load(&board->compiles);
    bad += reap(spawn(use_tuned, NULL)) != 0;
    if (atomic_load(&board->compiles) != compiles) bad += complain("it was compiled again");
    figure(2, bad, "a tuned plan shipped with its figures: the same plan without NVRTC and without tuning");
}

/* The second launch of a contest is the first of the second tile. */
static int tune_without_one(void *ctx)
{
    char *text[2];
    int tiles[2] = {0}, bad = 0;
    (void)ctx;
    for (int i = 0; i < 2; i++) {
        struct coda_cache *c = open_cache(under(i ? "tuned without" : "tuned with"));
        atomic_store(&board->failing_launch, 2 * i);
        coda_plan *p = compile_product(c, CODA_AUTOTUNE, &text[i]);
        const char *at = text[i] ? strstr(text[i], "by price ") : NULL;
        if (!p || !at || sscanf(at, "by price %*f us, %d tiles", &tiles[i]) != 1) bad++;
        coda_plan_free(p);
        cache_close(c);
        free(text[i]);
    }
    if (tiles[1] != tiles[0] - 1) bad += complain("%d tiles, then %d", tiles[0], tiles[1]);
    return bad;
}

static void tuned_without_one(void)
{
    board_reset();
    int bad = reap(spawn(tune_without_one, NULL)) != 0;
    figure(2, bad, "a tile that the device cannot launch: tuned without it");
}

/* ---- What is not right about a bundle ---- */

static int use_anyway(void *ctx)
{
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    struct coda_cache *c = NULL;
    opt.dir = under("anyway");
    opt.overlays = ctx;
    if (coda_cache_open(&c, &opt)) return complain("%s", coda_error());
    int bad = expect_all(c), compiles = (int)counted(c, COUNT_compiles);
    if (compiles != KERNELS) bad += complain("%d compiles", compiles);
    if (!*coda_cache_problem(c)) bad += complain("the reason is not told");
    coda_cache_free(c);
    return bad ? 1 : 0;
}

static void damage(void)
{
    size_t size;
    unsigned char *bytes = read_whole(bundle, &size);
    char path[256];
    int bad = bytes ? 0 : complain("there is no bundle"), n = bytes ? scaled(20, 200) : 0;
    uint64_t state = 1;
    snprintf(path, sizeof path, "%s", under("damaged.bundle"));
    for (int i = 0; i < n; i++) {
        size_t bit = noise(&state) % (8 * size);
        board_reset();
        remove_tree(under("anyway"));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_whole(path, bytes, i % 2 ? size : bit / 8);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        bad += reap(spawn(use_anyway, path)) != 0;
        if (atomic_load(&board->wrong)) bad += complain("a wrong image reached the driver");
    }
    free(bytes);
    figure(n, bad, "bundles with a bit flipped or cut: refused with the reason, everything compiled");
}

/* ---- The tool beside running processes ---- */

static const char *tool(void)
{
    static char path[PATH_MAX];
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2; up++) *(strrchr(self, '/') ? strrchr(self, '/') : self) = 0;
    snprintf(path, sizeof path, "%.*s/coda", PATH_MAX - 8, self);
    return access(path, X_OK) ? NULL : path;
}

static int keep_using(void *ctx)
{
    int bad = 0, *turns = ctx;
    for (int turn = 0; turn < *turns; turn++) {
        struct coda_cache *c = open_cache(made);
        bad += expect_all(c);
        cache_close(c);
    }
    return bad ? 1 : 0;
}

/* The tool's exit status; what it prints goes nowhere. */
static int run_tool(const char *command)
{
    char line[PATH_MAX + 600];
    snprintf(line, sizeof line, "%s cache %s --cache-dir %s >/dev/null 2>&1", tool(), command, made);
    int status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void beside(void)
{
    static const char *const commands[] = {"list --json", "verify", "prune --max-size 100K", "stat", "clear"};
    enum { USERS = 4 };
    pid_t user[USERS];
    int bad = 0, turns = scaled(30, 300), n = scaled(20, 200);
    if (!tool()) {
        skipped("there is no tool beside this program");
        return;
    }
    board_reset();
    for (int i = 0; i < USERS; i++) user[i] = spawn(keep_using, &turns);
    for (int i = 0; i < n; i++)
        if (run_tool(commands[i % 5])) bad += complain("coda cache %s failed", commands[i % 5]);
    bad += reap_all(user, USERS);
    if (atomic_load(&board->wrong)) bad += complain("%d wrong images", atomic_load(&board->wrong));
    figure(USERS * turns + n, bad, "the tool lists, verifies, prunes and clears beside %d processes", USERS);
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "vendor");
    snprintf(made, sizeof made, "%s", under("made"));
    snprintf(bundle, sizeof bundle, "%s", under("model.bundle"));
    exports();
    ways();
    refusals();
    tuned();
    tuned_without_one();
    damage();
    beside();
    return torture_end();
}
