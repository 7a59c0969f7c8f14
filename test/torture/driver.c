/*
 * driver.c -- what the driver and the compiler can do to the cache: refuse an image, be two devices, run
 * out of room for loaded kernels, crash, hang, and not give the same bytes twice.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torture.h"

static char folder[256];

static struct {
    int (*retain)(void **context, int device);
    int (*use)(void *context);
    int (*live)(void);
    bool (*holds)(const char *text, const char *arch);
} fake;

static void find_fakes(void)
{
    void *lib = dlopen(getenv("CODA_LIBCUDA"), RTLD_NOW);
    if (!lib) printf("driver: %s\n", dlerror()), exit(2);
    *(void **)&fake.retain = dlsym(lib, "cuDevicePrimaryCtxRetain");
    *(void **)&fake.use = dlsym(lib, "cuCtxSetCurrent");
    *(void **)&fake.live = dlsym(lib, "fake_live");
    *(void **)&fake.holds = dlsym(lib, "fake_holds");
}

/* ---- A driver that refuses ---- */

static int expect(const char *what, struct coda_cache *c, coda_status want, int compiles)
{
    int before = atomic_load(&board->compiles), bad = 0;
    coda_status status = use_kernel(c, 1);
    int got = atomic_load(&board->compiles) - before;
    if (status != want) bad += complain("%s: %s (%s)", what, coda_status_name(status), coda_error());
    if (got != compiles) bad += complain("%s: %d compiles instead of %d", what, got, compiles);
    return bad;
}

struct refusal {
    const char *what;
    int refuse; /* images in a row */
    coda_status want;
    int compiles;
    bool counted;
};

/* Each in a process of its own: what is loaded once is not loaded again. */
static int refused_case(void *ctx)
{
    const struct refusal *r = ctx;
    struct coda_cache *c = open_cache(folder);
    atomic_store(&board->refuse, r->refuse);
    int bad = expect(r->what, c, r->want, r->compiles);
    atomic_store(&board->refuse, 0);
    if (r->counted && !counted(c, COUNT_refused)) bad += complain("%s: the refusal is not counted", r->what);
    cache_close(c);
    return bad;
}

static void refusals(void)
{
    struct refusal cases[] = {
        {"cold, what was just compiled is refused", 1, CODA_E_DEVICE, 1, false},
        {"after it", 0, CODA_OK, 0, false},
        {"warm, one refusal", 1, CODA_OK, 1, true},
        {"after that", 0, CODA_OK, 0, false},
        {"warm, refused twice", 2, CODA_E_DEVICE, 1, true},
        {"warm, refused for ever", -1, CODA_E_DEVICE, 1, true},
        {"after all", 0, CODA_OK, 0, false},
    };
    int bad = 0, n = sizeof cases / sizeof *cases;
    remove_tree(folder);
    board_reset();
    for (int i = 0; i < n; i++) bad += reap(spawn(refused_case, &cases[i])) != 0;
    figure(n, bad, "images refused by the driver: compiled again once; what is refused fresh is an error");
}

/* ---- Two devices ---- */

static coda_status use_on(int device, struct coda_cache *c, int number)
{
    void *context;
    fake.retain(&context, device);
    fake.use(context);
    coda_status status = use_kernel(c, number);
    return status;
}

/* Are there so many entries and no temporary file? With names of four bits two keys may meet. */
static bool entries_are(int *entries, int want)
{
    struct digest name = name_of("a", 1, "b", 1);
    bool weak = !name.word[1] && !name.word[2];
    return !leftovers(folder, entries) && (*entries == want || (weak && *entries > 0 && *entries < want));
}

static void devices(void)
{
    int bad = 0, entries;
    remove_tree(folder);
    board_reset();
    atomic_store(&board->devices, 2);
    atomic_store(&board->arch[0], 90), atomic_store(&board->arch[1], 80);
    struct coda_cache *c = open_cache(folder);
    for (int turn = 0; turn < 4; turn++)
        if (use_on(turn % 2, c, 1)) bad += complain("device %d: %s", turn % 2, coda_error());
    if (atomic_load(&board->compiles) != 2)
        bad += complain("two archs: %d compiles", atomic_load(&board->compiles));
    if (atomic_load(&board->wrong)) bad += complain("a device was given the other's image");
    if (!entries_are(&entries, 2)) bad += complain("two archs: %d entries", entries);
    cache_close(c);

    board_reset();
    atomic_store(&board->devices, 2);
    remove_tree(folder);
    c = open_cache(folder);
    for (int turn = 0; turn < 4; turn++)
        if (use_on(turn % 2, c, 2)) bad += complain("device %d: %s", turn % 2, coda_error());
    if (atomic_load(&board->compiles) != 1)
        bad += complain("one arch: %d compiles", atomic_load(&board->compiles));
    if (!entries_are(&entries, 1)) bad += complain("one arch: %d entries", entries);
    cache_close(c);
    if (atomic_load(&board->bad_launches))
        bad += complain("%d bad launches", atomic_load(&board->bad_launches));
    fake.use(NULL);
    figure(8, bad, "two devices: of two archs two entries, of one arch one entry, loaded into each context");
}

/* ---- Loaded kernels ---- */

static void loaded(void)
{
    enum { HELD = 300 };
    int bad = 0, most = 0, n = scaled(1500, 10000);
    static coda_plan *plan[HELD];
    remove_tree(folder);
    board_reset();
    struct coda_cache *c = open_cache(folder);
    for (int i = 0; i < n; i++) {
        if (use_kernel(c, i)) bad += complain("kernel %d: %s", i, coda_error());
        most = fake.live() > most ? fake.live() : most;
    }
    if (most > 256 + 16) bad += complain("%d idle kernels stay loaded", most);
    for (int i = 0; i < HELD; i++) { /* more than the table may keep, all of them in use */
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_graph *g = kernel_graph(i, NULL);
        opt.cache = c;
        if (coda_compile(&plan[i], g, &opt)) bad += complain("plan %d: %s", i, coda_error());
        coda_graph_free(g);
    }
    for (int i = 0; i < HELD; i++) {
        static _Alignas(256) unsigned char x[4096], y[4096];
        void *args[] = {x, y};
        if (plan[i] && coda_run(plan[i], args, NULL, NULL, NULL))
            bad += complain("run %d: %s", i, coda_error());
    }
    for (int i = 0; i < HELD; i++) coda_plan_free(plan[i]);
    int loads = atomic_load(&board->loads);
    if (use_kernel(c, HELD - 1)) bad += complain("%s", coda_error());
    if (atomic_load(&board->loads) != loads) bad += complain("what is loaded was loaded again");
    cache_close(c);
    if (atomic_load(&board->bad_launches))
        bad += complain("%d launches of unloaded kernels", atomic_load(&board->bad_launches));
    figure(n + HELD, bad, "%d kernels used and %d held: %d loaded at most while idle, none unloaded in use",
           n, HELD, most);
}

/* ---- Shapes without end ---- */

static double resident_mb(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

/* Shapes share kernels: what makes each its own here is a constant. */
static coda_status plan_shape(struct coda_cache *c, int number)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    coda_graph *g = kernel_graph(number, NULL);
    opt.cache = c;
    coda_status status = coda_compile(&p, g, &opt);
    coda_plan_free(p);
    coda_graph_free(g);
    return status;
}

/* A server that meets a shape with a kernel of its own each time. Memory keeps 64 MB of images, which are so
 * large here that a quarter of the shapes fills it. What the first half has reached, the second may exceed by
 * GROWTH_MB: at full scale less than half a kB a shape. */
static void shapes(void)
{
    enum { KEPT_MB = 64, GROWTH_MB = 2 };
    int bad = 0, n = scaled(1500, 10000), most[2] = {0, 0};
    double resident[2] = {0, 0};
    remove_tree(folder);
    board_reset();
    atomic_store(&board->image_bytes, (KEPT_MB << 20) / (n / 4));
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .limit = 16 << 20});
    for (int i = 0; i < n; i++) {
        int half = i >= n / 2, live;
        double mb;
        if (plan_shape(c, i + 1)) bad += complain("shape %d: %s", i, coda_error());
        if ((live = fake.live()) > most[half]) most[half] = live;
        if ((mb = resident_mb()) > resident[half]) resident[half] = mb;
    }
    cache_close(c);
    if (atomic_load(&board->compiles) != n) bad += complain("%d compiles", atomic_load(&board->compiles));
    if (!resident[0] || resident[1] > resident[0] + GROWTH_MB)
        bad += complain("%.1f MB resident in the first half, %.1f in the second", resident[0], resident[1]);
    if (!most[0] || most[1] > most[0]) bad += complain("%d loaded, then %d", most[0], most[1]);
    figure(n, bad,
           "%d shapes planned and freed: %.1f MB resident and %d loaded at most, %.1f and %d in the "
           "second half",
           n, resident[0], most[0], resident[1], most[1]);
}

/* ---- A compiler that crashes or hangs, in a process of its own ---- */

static coda_cache *open_isolated(int compile_ms)
{
    static char helper[PATH_MAX];
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2; up++) *(strrchr(self, '/') ? strrchr(self, '/') : self) = 0;
    snprintf(helper, sizeof helper, "%.*s/coda", PATH_MAX - 8, self);
    if (access(helper, X_OK)) return NULL;
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    coda_cache *c = NULL;
    opt.dir = folder;
    opt.flags = CODA_CACHE_ISOLATE;
    opt.compile_ms = compile_ms;
    opt.helper = helper;
    return coda_cache_open(&c, &opt) ? NULL : c;
}

static int isolated_case(const char *word, const char *want, enum cache_counter which)
{
    int bad = 0;
    board_reset();
    remove_tree(folder);
    coda_cache *c = open_isolated(700);
    coda_graph *ill = kernel_graph(1, word);
    coda_status status = use_graph(c, ill);
    if (status != CODA_E_COMPILE || !strstr(coda_error(), want))
        bad += complain("%s: %s, %s", word, coda_status_name(status), coda_error());
    if (which && counted(c, which) != 1) bad += complain("%s: counted %d", word, (int)counted(c, which));
    for (int i = 2; i < 5; i++) /* nobody else suffers */
        if (use_kernel(c, i)) bad += complain("after %s: %s", word, coda_error());
    int compiles = atomic_load(&board->compiles);
    if (use_graph(c, ill) != CODA_E_COMPILE) bad += complain("%s, again", word);
    if (atomic_load(&board->compiles) != compiles) bad += complain("%s was tried again", word);
    coda_graph_free(ill);
    coda_cache_free(c);
    return bad;
}

static void isolation(void)
{
    coda_cache *c = open_isolated(700);
    if (!c) return skipped("isolation: there is no tool beside this program");
    coda_cache_free(c);
    int bad = isolated_case(FAKE_CRASH_WORD, "", COUNT_isolate_crashes);
    bad += isolated_case(FAKE_ABORT_WORD, "", COUNT_isolate_crashes);
    bad += isolated_case(FAKE_HANG_WORD, "", COUNT_isolate_timeouts);
    bad += isolated_case(FAKE_FAIL_WORD, "told to fail", 0);
    figure(4, bad,
           "a compiler that crashes, aborts, hangs or fails in a child: an error of that kernel alone, once");
}

/* ---- Failures that pass ---- */

/* A compiler without memory is asked again; one that finds a mistake is not. */
static void passing(void)
{
    static const struct {
        enum fake_mode mode;
        coda_status want;
        int compiles; /* of the call after it, when the compiler is well again */
        coda_status after;
    } cases[] = {{FAKE_MEMORY, CODA_E_MEMORY, 1, CODA_OK}, {FAKE_FAIL, CODA_E_COMPILE, 0, CODA_E_COMPILE}};
    int bad = 0;
    for (int i = 0; i < 2; i++) {
        remove_tree(folder);
        board_reset();
        struct coda_cache *c = open_cache(folder);
        atomic_store(&board->mode, cases[i].mode);
        bad += expect("a compiler that fails", c, cases[i].want, 1);
        atomic_store(&board->mode, FAKE_GOOD);
        bad += expect("the same, well again", c, cases[i].after, cases[i].compiles);
        cache_forget(c);
        bad += expect("the same, forgotten", c, CODA_OK, !cases[i].compiles);
        cache_close(c);
    }
    figure(2, bad,
           "a compiler out of memory is asked again, one that finds a mistake only when that is forgotten");
}

/* ---- Audit ---- */

static void audit(void)
{
    int bad = 0;
    remove_tree(folder);
    board_reset();
    struct coda_cache *first = open_cache(folder);
    bad += expect("first", first, CODA_OK, 1);
    cache_close(first);
    for (int differs = 0; differs < 2; differs++) {
        struct coda_cache *c =
            cache_open(&(struct cache_options){.dir = folder, .limit = -1, .flags = CACHE_VERIFY});
        if (differs) atomic_store(&board->image_bytes, 30000); /* the compiler has changed its mind */
        bad += expect("audit", c, CODA_OK, 1);
        if (counted(c, COUNT_verified) != 1 || counted(c, COUNT_verify_differed) != (uint64_t)differs)
            bad += complain("audit: verified %d, differed %d", (int)counted(c, COUNT_verified),
                            (int)counted(c, COUNT_verify_differed));
        cache_close(c);
    }
    figure(2, bad, "an audit compiles again and tells equal bytes from others");
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "driver");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    find_fakes();
    refusals();
    devices();
    shapes();
    loaded();
    isolation();
    passing();
    audit();
    return torture_end();
}
