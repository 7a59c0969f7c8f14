/*
 * tiers.c -- plans of graphs with symbols while their kernels are made: no run compiles, better plans take
 * over in the midst of runs, nothing is compiled once a plan is sealed, and frees, forks, failures and kills
 * are met at any moment.
 *
 * Compiles are told apart by their thread: the library's own ones take no signals. The board holds a compile,
 * or a launch, for as long as a test wants; nothing here depends on how fast the machine is.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

/* A norm, products, and a softmax, whose kernel leaves the fake driver's mark, at any number of rows. */
enum { ROWS = 2048, WIDTH = 64, THREADS = 8, FEW = 3, MOST_KERNELS = 64, PATIENCE_S = 3600 };
static const char form[] =
    "dim %%T = 1..%d\n%%x = input bf16[T,64]\n%%w = weight bf16[128,64]\n"
    "%%v = weight bf16[64,128]\n%%1 = rms_norm %%x {eps=1e-5}\n%%2 = matmul %%1, %%w\n"
    "%%3 = silu %%2\n%%4 = matmul %%3, %%v\n%%5 = add %%4, %%x\n%%6 = softmax %%5\noutput %%y = %%6\n";
static int range = ROWS; /* of T */

static coda_status compile(coda_plan **p, struct coda_cache *c, coda_policy policy, int shapes)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    char text[512];
    *p = NULL;
    snprintf(text, sizeof text, form, range);
    opt.cache = c;
    opt.policy = policy;
    opt.shapes = shapes;
    if (coda_graph_parse(&g, text)) printf("tiers: %s\n", coda_error()), exit(2);
    coda_status status = coda_compile(p, g, &opt);
    coda_graph_free(g);
    return status;
}

static coda_plan *compiled(struct coda_cache *c, coda_policy policy, int shapes)
{
    coda_plan *p;
    if (compile(&p, c, policy, shapes)) printf("tiers: %s\n", coda_error()), exit(2);
    return p;
}

/* Runs with `rows` rows; CODA_E_DEVICE if no launch left its mark in the output. */
static coda_status run_rows(const coda_plan *p, int64_t rows)
{
    static _Thread_local _Alignas(256) unsigned char y[2 * ROWS * WIDTH];
    static _Alignas(256) unsigned char x[2 * ROWS * WIDTH], w[2 * 128 * 64], v[2 * 128 * 64];
    static _Thread_local _Alignas(256) unsigned char work[2 << 20];
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    void *args[] = {x, w, v, y};
    if (coda_plan_workspace(p) > sizeof work) return CODA_E_INVALID;
    opt.dims = &rows;
    opt.dim_count = 1;
    memset(y, 0, 2);
    coda_status status = coda_run_shaped(p, args, NULL, work, NULL, &opt);
    return status || y[0] || y[1] ? status : CODA_E_DEVICE;
}

static coda_status warm_rows(const coda_plan *p, int64_t rows)
{
    coda_warm_options opt = CODA_WARM_OPTIONS_INIT;
    opt.dims = &rows;
    opt.bindings = 1;
    return coda_warm(p, &opt);
}

static coda_shape_stats stats_of(const coda_plan *p)
{
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    coda_shape_stats_get(p, &s);
    return s;
}

static int compiles(void) { return atomic_load(&board->compiles); }
static int in_callers(void) { return compiles() - atomic_load(&board->aside); }

/* Until `*what` is, or is not, `value`; what never comes ends the program, by its alarm. */
static void await_board(atomic_int *what, int value, bool equal)
{
    while ((atomic_load(what) == value) != equal) usleep(200);
}

static void await_background(const coda_plan *p)
{
    while (stats_of(p).pending) usleep(500);
}

static struct coda_cache *fresh_cache(void)
{
    remove_tree(under("cache"));
    board_reset();
    return open_cache(under("cache"));
}

/* ---- Threads that run any shapes ---- */

struct runner {
    pthread_t thread;
    const coda_plan *p;
    uint64_t seed;
    int runs, most_rows, wrong;
    atomic_bool *stop; /* NULL: after `runs` */
};

static void *run_many(void *ctx)
{
    struct runner *r = ctx;
    for (int i = 0; r->stop ? !atomic_load(r->stop) : i < r->runs; i++)
        r->wrong += run_rows(r->p, 1 + (int64_t)(noise(&r->seed) % (uint64_t)r->most_rows)) != CODA_OK;
    return NULL;
}

static void start(struct runner *r, const coda_plan *p, int runs, int most_rows, atomic_bool *stop)
{
    for (int i = 0; i < THREADS; i++) {
        r[i] = (struct runner){.p = p, .runs = runs, .most_rows = most_rows, .stop = stop};
        r[i].seed = (uint64_t)(runs * 31 + i);
        if (pthread_create(&r[i].thread, NULL, run_many, &r[i])) perror("pthread_create"), exit(2);
    }
}

static int finish(struct runner *r)
{
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(r[i].thread, NULL);
        wrong += r[i].wrong;
    }
    return wrong ? complain("%d runs are wrong: %s", wrong, coda_error()) : 0;
}

/* Each shape that is kept has its best plan, but for those that failed. */
static int expect_settled(const coda_plan *p, int most_rows)
{
    coda_shape_stats s = stats_of(p);
    int ready = 0;
    for (int64_t rows = 1; rows <= most_rows; rows++) ready += coda_plan_ready(p, &rows) == 1;
    if (s.pending || s.dropped || ready + s.failed != s.kept || s.improved > ready)
        return complain("%d shapes ready, kept %d, improved %d, failed %d, pending %d", ready, (int)s.kept,
                        (int)s.improved, (int)s.failed, (int)s.pending);
    return 0;
}

static size_t memory_in_use(void) { return mallinfo2().uordblks; }

/* A sealed plan runs what it never met, with what is loaded. */
static int run_sealed(const coda_plan *p, int shapes)
{
    enum { GROWTH = 1 << 20 }; /* shapes that are kept differ in their bytes */
    struct runner r[THREADS];
    size_t before = 0;
    int bad = coda_plan_seal(p) != CODA_OK;
    int compiled_before = compiles(), loads = atomic_load(&board->loads), kernels = (int)stats_of(p).kernels;
    for (int half = 0; half < 2; half++) {
        if (half) before = memory_in_use();
        start(r, p, shapes / 2 / THREADS, ROWS, NULL);
        bad += finish(r);
    }
    if (memory_in_use() > before + GROWTH) bad += complain("%zu bytes more", memory_in_use() - before);
    if (compiles() != compiled_before || atomic_load(&board->loads) != loads ||
        stats_of(p).kernels != kernels)
        bad += complain("a sealed plan compiles %d kernels, loads %d", compiles() - compiled_before,
                        atomic_load(&board->loads) - loads);
    return bad;
}

static void runs(void)
{
    int rounds = scaled(2, 40), bad = 0, most = 0;
    for (int i = 0; i < rounds; i++) {
        struct runner r[THREADS];
        struct coda_cache *c = fresh_cache();
        coda_plan *p = compiled(c, CODA_POLICY_BACKGROUND, 2 * ROWS);
        int before = in_callers(), most_rows = i % 2 ? ROWS : 300;
        atomic_store(&board->compile_us, i % 3 * 2000);
        start(r, p, 60, most_rows, NULL);
        bad += finish(r);
        await_background(p);
        bad += expect_settled(p, ROWS);
        if (in_callers() != before || stats_of(p).failed)
            bad += complain("%d compiles in threads that run; %d failed", in_callers() - before,
                            (int)stats_of(p).failed);
        int64_t base = stats_of(p).runs_base;
        start(r, p, 60, most_rows, NULL); /* the same seeds, thus shapes: each is the best now */
        bad += finish(r);
        if (stats_of(p).runs_base != base) bad += complain("known shapes run with kernels for any");
        if (stats_of(p).kernels > MOST_KERNELS) bad += complain("%d kernels", (int)stats_of(p).kernels);
        most = (int)stats_of(p).kernels > most ? (int)stats_of(p).kernels : most;
        coda_plan_free(p);
        cache_close(c);
    }
    figure(rounds, bad, "%d threads, any shapes, kernels made beside them: none by a run, %d kernels",
           THREADS, most);
}

static void sealed(void)
{
    int shapes = scaled(4000, 100000), bad = 0;
    struct runner r[THREADS];
    struct coda_cache *c = fresh_cache();
    coda_plan *p = compiled(c, CODA_POLICY_BACKGROUND, 0);
    start(r, p, 20, ROWS, NULL);
    bad += finish(r);
    await_background(p);
    bad += run_sealed(p, shapes);
    coda_plan_free(p);
    cache_close(c);
    figure(shapes, bad, "runs of any shapes of a sealed plan: nothing is compiled or loaded");
}

/* ---- All kernels of all shapes ---- */

static void *warm_everything(void *ctx)
{
    coda_warm_options opt = CODA_WARM_OPTIONS_INIT;
    opt.bindings = CODA_WARM_ALL;
    return coda_warm(ctx, &opt) ? ctx : NULL;
}

/* Beside runs, in two threads; from then on no run compiles or loads, whatever its shape. */
static int warm_beside_runs(coda_policy policy)
{
    struct coda_cache *c = fresh_cache();
    coda_plan *p = compiled(c, policy, 40);
    struct runner r[THREADS];
    atomic_bool stop = false;
    pthread_t thread;
    void *failed;
    atomic_store(&board->compile_us, 1000);
    if (policy != CODA_POLICY_ERROR) start(r, p, 0, range, &stop);
    pthread_create(&thread, NULL, warm_everything, p);
    int bad = warm_everything(p) != NULL;
    pthread_join(thread, &failed);
    atomic_store(&stop, true);
    if (policy != CODA_POLICY_ERROR) bad += finish(r);
    await_background(p);
    int made = compiles(), loads = atomic_load(&board->loads);
    for (int64_t rows = 1; rows <= range; rows += 1 + rows / 50) bad += run_rows(p, rows) != CODA_OK;
    await_background(p);
    if (bad || failed || compiles() != made || atomic_load(&board->loads) != loads)
        bad += complain("policy %d: all is warm, and %d compiles, %d loads: %s", (int)policy,
                        compiles() - made, atomic_load(&board->loads) - loads, coda_error());
    coda_plan_free(p);
    cache_close(c);
    return bad;
}

static int enough(void *context, int done, int all) { return ++*(int *)context >= 1 && done <= all; }

/* An end before all is done, by the caller and by the clock. */
static int warm_some(bool late)
{
    struct coda_cache *c = fresh_cache();
    coda_plan *p = compiled(c, CODA_POLICY_WAIT, 0);
    coda_warm_options opt = CODA_WARM_OPTIONS_INIT;
    int calls = 0, before = compiles();
    opt.bindings = CODA_WARM_ALL;
    opt.context = &calls;
    if (late) opt.deadline_ms = 1;
    else opt.progress = enough;
    atomic_store(&board->compile_us, 20000);
    int bad = coda_warm(p, &opt) != CODA_OK, some = compiles() - before;
    bad += warm_everything(p) != NULL;
    if (compiles() - before <= some || (!late && calls != 1))
        bad += complain("%s: %d kernels, then %d; %d calls", late ? "deadline" : "enough", some,
                        compiles() - before - some, calls);
    coda_plan_free(p);
    cache_close(c);
    return bad;
}

static void everything(void)
{
    int bad = 0;
    range = 400;
    bad += warm_some(false) + warm_some(true);
    for (int i = 0; i <= CODA_POLICY_NEVER; i++) bad += warm_beside_runs((coda_policy)i);
    range = ROWS;
    figure(3 + CODA_POLICY_NEVER, bad, "all kernels of all shapes, beside runs; some of them");
}

/* ---- At a certain moment ---- */

static void *warm_aside(void *ctx) { return warm_rows(ctx, FEW) ? ctx : NULL; }

/* While coda_warm compiles for a shape, a run of it does not wait. */
static int run_beside_warm(coda_policy policy)
{
    struct coda_cache *c = fresh_cache();
    coda_plan *p = compiled(c, policy, 0);
    pthread_t thread;
    void *failed;
    int bad = 0;
    atomic_store(&board->hold, 1);
    pthread_create(&thread, NULL, warm_aside, p);
    await_board(&board->running, 0, false);
    coda_status status = run_rows(p, FEW);
    if (policy == CODA_POLICY_BACKGROUND ? status : status != CODA_E_UNSUPPORTED)
        bad += complain("policy %d: a run beside coda_warm: %s", (int)policy, coda_error());
    if (status && (!strstr(coda_error(), "T=3") || !strstr(coda_error(), "CODA_POLICY_ERROR")))
        bad += complain("the refusal says: %s", coda_error());
    atomic_store(&board->hold, 0);
    pthread_join(thread, &failed);
    await_background(p);
    if (failed || run_rows(p, FEW) || !coda_plan_ready(p, (int64_t[]){FEW}))
        bad += complain("policy %d: warmed, and it does not run: %s", (int)policy, coda_error());
    if (policy == CODA_POLICY_ERROR && run_rows(p, 1) == CODA_OK) bad += complain("1 row was not warmed");
    coda_plan_free(p);
    cache_close(c);
    return bad;
}

static void *run_once(void *ctx) { return run_rows(ctx, FEW) ? ctx : NULL; }

/* A run that is under way does not keep others from the better plan. */
static int replace_in_flight(void)
{
    struct coda_cache *c = fresh_cache();
    coda_plan *p = compiled(c, CODA_POLICY_BACKGROUND, 0);
    pthread_t thread;
    void *failed;
    atomic_store(&board->hold_launch, 1);
    pthread_create(&thread, NULL, run_once, p);
    await_board(&board->hold_launch, 2, true);
    await_background(p);
    int64_t base = stats_of(p).runs_base;
    int bad = run_rows(p, FEW) != CODA_OK;
    if (base != 1 || stats_of(p).runs_base != base || stats_of(p).improved != 1)
        bad += complain("a run under way keeps the better plan off: %d runs without",
                        (int)stats_of(p).runs_base);
    atomic_store(&board->hold_launch, 0);
    pthread_join(thread, &failed);
    if (failed) bad += complain("the run under way fails");
    coda_plan_free(p);
    cache_close(c);
    return bad;
}

static int never(void)
{
    struct coda_cache *c = fresh_cache();
    coda_plan *p = compiled(c, CODA_POLICY_NEVER, 1);
    int before = compiles(), bad = 0;
    for (int rows = 1; rows <= 300; rows++) bad += run_rows(p, rows) != CODA_OK;
    if (compiles() != before || stats_of(p).improved || stats_of(p).pending)
        bad += complain("policy NEVER: %d compiles", compiles() - before);
    bad += run_rows(p, FEW) || warm_rows(p, FEW) || !coda_plan_ready(p, (int64_t[]){FEW});
    bad += run_rows(p, 1) != CODA_OK; /* drops it */
    int64_t base = stats_of(p).runs_base;
    bad += run_rows(p, FEW) != CODA_OK;
    if (stats_of(p).runs_base != base || base < 300)
        bad += complain("policy NEVER: a warmed shape runs with kernels for any");
    coda_plan_free(p);
    cache_close(c);
    return bad;
}

/* The workspace that callers are told is enough before and after the better plan comes, and is asked of no
 * compiler. */
static int ask_workspaces(void)
{
    struct coda_cache *c = fresh_cache();
    coda_plan *p = compiled(c, CODA_POLICY_BACKGROUND, 0);
    int bad = 0, before = in_callers();
    atomic_store(&board->hold, 1);
    for (int64_t rows = 1; rows < ROWS; rows += 97) {
        size_t bytes = coda_plan_workspace_for(p, &rows);
        if (run_rows(p, rows) || coda_plan_workspace_for(p, &rows) != bytes)
            bad += complain("%d rows: another workspace", (int)rows);
    }
    if (in_callers() != before) bad += complain("%d compiles in the caller", in_callers() - before);
    atomic_store(&board->hold, 0);
    coda_plan_free(p);
    cache_close(c);
    return bad;
}

static void moments(void)
{
    int bad = run_beside_warm(CODA_POLICY_BACKGROUND) + run_beside_warm(CODA_POLICY_ERROR);
    bad += replace_in_flight() + never() + ask_workspaces();
    figure(5, bad, "a run beside coda_warm, beside a run under way, policies, workspaces");
}

/* ---- Ends: the seal, and frees, while kernels are made ---- */

static void ends(void)
{
    int rounds = scaled(5, 1000), bad = 0;
    uint64_t seed = 7;
    for (int i = 0; i < rounds; i++) {
        struct coda_cache *c = fresh_cache();
        coda_plan *p = compiled(c, CODA_POLICY_BACKGROUND, 0);
        struct runner r[THREADS];
        atomic_bool stop = false;
        atomic_store(&board->compile_us, 2000);
        start(r, p, 0, ROWS, &stop);
        usleep((useconds_t)(noise(&seed) % 6000));
        if (i % 2) {
            bad += coda_plan_seal(p) != CODA_OK;
            int before = compiles();
            if (atomic_load(&board->running)) bad += complain("sealed, and compiling");
            usleep(3000);
            if (compiles() != before) bad += complain("sealed, and %d more", compiles() - before);
            bad += coda_warm(p, NULL) != CODA_OK;
        }
        atomic_store(&stop, true);
        bad += finish(r);
        coda_plan_free(p);
        if (atomic_load(&board->running)) bad += complain("freed, and compiling");
        cache_close(c);
    }
    figure(rounds, bad, "sealed and freed while kernels are made");
}

/* ---- Failures ---- */

static int fail_aside(int mode)
{
    struct coda_cache *c = fresh_cache();
    coda_plan *p = compiled(c, CODA_POLICY_BACKGROUND, 2 * ROWS);
    struct runner r[THREADS];
    atomic_store(&board->mode, mode);
    start(r, p, 40, ROWS, NULL);
    int bad = finish(r);
    await_background(p);
    bad += expect_settled(p, ROWS);
    coda_shape_stats s = stats_of(p);
    if (!s.failed || s.improved) bad += complain("%d failed, %d improved", (int)s.failed, (int)s.improved);
    start(r, p, 40, ROWS, NULL);
    bad += finish(r);
    if (stats_of(p).failed != s.failed) bad += complain("a failure is counted twice");
    if (stats_of(p).runs_base <= s.runs_base)
        bad += complain("what failed does not run with kernels for any");
    coda_plan_free(p);
    cache_close(c);
    return bad;
}

/* The n-th compile fails, for each n of a whole plan. */
static int fail_compile(coda_policy policy, int *cases)
{
    int bad = 0;
    for (int n = 1;; n++) {
        struct coda_cache *c = fresh_cache();
        coda_plan *p;
        atomic_store(&board->failing_compile, n);
        coda_status status = compile(&p, c, policy, 0);
        ++*cases;
        if (status ? status != CODA_E_COMPILE || p : compiles() >= n)
            bad += complain("compile %d of %d fails, and coda_compile gives %d", n, compiles(), (int)status);
        coda_plan_free(p);
        cache_close(c);
        if (!status || n > MOST_KERNELS) return bad + (n < 2);
    }
}

static void failures(void)
{
    int cases = 2, bad = fail_aside(FAKE_FAIL) + fail_aside(FAKE_MEMORY);
    bad += fail_compile(CODA_POLICY_BACKGROUND, &cases) + fail_compile(CODA_POLICY_WAIT, &cases);
    figure(cases, bad, "compilers that fail aside, and at each kernel of a plan");
}

/* ---- fork() ---- */

struct child {
    coda_plan *p;
    int rows;
};

/* It runs what it may, and frees the plan; some of its parent's threads were in the midst of it. */
static int live_as_child(void *ctx)
{
    struct child *c = ctx;
    alarm(PATIENCE_S / 2);
    int bad = run_rows(c->p, c->rows) != CODA_OK;
    bad += run_rows(c->p, 1 + c->rows % 7) != CODA_OK;
    if (c->rows % 3 == 0) await_background(c->p);
    coda_plan_free(c->p);
    return bad;
}

static void forks(void)
{
    int rounds = scaled(10, 1000), bad = 0;
    uint64_t seed = 11;
    for (int i = 0; i < rounds; i += 10) {
        struct coda_cache *c = fresh_cache();
        coda_plan *p = compiled(c, i % 20 ? CODA_POLICY_BACKGROUND : CODA_POLICY_WAIT, 40);
        struct runner r[THREADS];
        atomic_bool stop = false;
        atomic_store(&board->compile_us, 1000);
        start(r, p, 0, 80, &stop);
        for (int k = 0; k < 10; k++) {
            usleep((useconds_t)(noise(&seed) % 2000));
            int end = reap(spawn(live_as_child, &(struct child){p, 1 + (int)(noise(&seed) % 80)}));
            if (end) bad += complain("child %d ends with %d", i + k, end);
        }
        atomic_store(&stop, true);
        bad += finish(r);
        coda_plan_free(p);
        cache_close(c);
    }
    figure(rounds, bad, "children of fork() that run and free a plan in the midst of its threads");
}

/* ---- exit() ---- */

struct leaver {
    useconds_t when;
    bool held;  /* a compile that began goes on for a while, for which exit() waits */
    bool warms; /* in a thread besides */
    bool again; /* the plan was freed, and there is another one */
    bool frees; /* in a handler of exit(), which the library's own may come before */
};

static coda_plan *left;
static void free_at_exit(void) { coda_plan_free(left); }

static void linger_at_exit(void) { usleep(500); } /* while others go on */

static void *let_go(void *ctx)
{
    enum { HELD_US = 200000 };
    usleep(HELD_US);
    atomic_store(&board->hold, 0);
    return ctx;
}

/* main() returns while threads run, compile and load. */
static int leave(void *ctx)
{
    const struct leaver *l = ctx;
    static struct runner r[THREADS];
    static atomic_bool never;
    pthread_t thread;
    alarm(PATIENCE_S / 2);
    atexit(l->frees ? free_at_exit : linger_at_exit);
    struct coda_cache *c = open_cache(under("cache"));
    coda_plan *p = compiled(c, CODA_POLICY_BACKGROUND, 0);
    if (l->again) {
        run_rows(p, FEW);
        coda_plan_free(p);
        p = compiled(c, CODA_POLICY_BACKGROUND, 0);
    }
    atomic_store(&board->hold, l->held);
    for (int rows = 1; l->frees && rows < ROWS; rows *= 3) run_rows(p, rows);
    if (l->frees) left = p;
    else start(r, p, 0, ROWS, &never);
    if (l->warms) pthread_create(&thread, NULL, warm_everything, p);
    if (l->held) await_board(&board->running, 0, false);
    if (l->held) pthread_create(&thread, NULL, let_go, NULL);
    usleep(l->when);
    exit(0);
}

static void exits(void)
{
    int rounds = scaled(8, 1000), bad = 0;
    uint64_t seed = 17;
    for (int i = 0; i < rounds; i++) {
        bool frees = i % 4 == 3;
        struct leaver l = {.when = (useconds_t)(noise(&seed) % 8000), .again = i % 5 == 2, .frees = frees};
        l.held = i % 3 == 0 && !frees;
        l.warms = i % 4 == 1;
        cache_close(fresh_cache());
        atomic_store(&board->compile_us, 1000);
        int end = reap(spawn(leave, &l));
        if (end) bad += complain("exit %d ends with %d", i, end);
        if (atomic_load(&board->running)) bad += complain("exit %d has left a compiler alone", i);
        struct coda_cache *c = open_cache(under("cache")); /* what it left is whole */
        atomic_store(&board->hold, 0);
        coda_plan *p = compiled(c, CODA_POLICY_WAIT, 0);
        bad += run_rows(p, FEW) != CODA_OK || counted(c, COUNT_rejected_digest);
        coda_plan_free(p);
        cache_close(c);
    }
    figure(rounds, bad, "exit() while the library's thread and others compile, load and run");
}

/* ---- Servers that start together on one cache ---- */

enum { SERVERS = 4 };
struct server {
    char folder[256];
    struct gate *gate;
    int turn;
};

static int serve(void *ctx)
{
    struct server *u = ctx;
    struct coda_cache *c = open_cache(u->folder);
    int bad = 0;
    alarm(PATIENCE_S / 2);
    gate_pass(u->gate);
    coda_plan *p = compiled(c, CODA_POLICY_BACKGROUND, 0);
    for (int i = 0; i < 40; i++) bad += run_rows(p, 1 + (u->turn * 13 + i) % 40 * 50) != CODA_OK;
    await_background(p);
    bad += stats_of(p).failed != 0;
    coda_plan_free(p);
    cache_close(c);
    return bad != 0;
}

/* Those that go on: how many did not end well. */
static int serve_together(struct server *u, int victim, useconds_t when)
{
    pid_t child[SERVERS];
    int bad = 0;
    u->gate = gate_new(SERVERS + 1);
    for (u->turn = 0; u->turn < SERVERS; u->turn++) child[u->turn] = spawn(serve, u);
    gate_pass(u->gate);
    usleep(when);
    if (victim >= 0) kill(child[victim], SIGKILL);
    for (int i = 0; i < SERVERS; i++) {
        int end = reap(child[i]);
        bad += end && !(i == victim && end == 1000 + SIGKILL);
    }
    return bad ? complain("%d of %d servers end badly", bad, SERVERS) : 0;
}

/* No kernel was compiled twice, but for what died with a server. */
static int expect_once(int twice_allowed)
{
    int twice = 0;
    for (int i = 0; i < FAKE_TEXTS; i++) {
        int n = atomic_load(&board->text[i].compiles);
        twice += n > 1 ? n - 1 : 0;
    }
    return twice <= twice_allowed ? 0 : complain("%d kernels are compiled again", twice);
}

static void servers(void)
{
    int rounds = scaled(1, 20), kills = scaled(8, 100), bad = 0, kernels = 0;
    struct server u = {.turn = 0};
    uint64_t seed = 5;
    snprintf(u.folder, sizeof u.folder, "%s", under("cache"));
    for (int i = 0; i < rounds + kills; i++) {
        remove_tree(u.folder);
        board_reset();
        atomic_store(&board->compile_us, 3000);
        bool murder = i >= rounds;
        bad += serve_together(&u, murder ? (int)(noise(&seed) % SERVERS) : -1, noise(&seed) % 60000);
        bad += expect_once(murder ? 2 * SERVERS : 0);
        kernels = compiles();
        if (i % 5) continue;
        bad += serve_together(&u, -1, 0);
        if (compiles() != kernels) bad += complain("%d compiles on a warm cache", compiles() - kernels);
    }
    figure(rounds + kills, bad,
           "%d servers start cold on one cache, %d times one is killed: %d kernels, each once", SERVERS,
           kills, kernels);
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "tiers");
    mallopt(M_ARENA_MAX, 1); /* the one whose bytes are counted */
    if (!full) alarm(PATIENCE_S);
    if (chosen("runs")) runs();
    if (chosen("sealed")) sealed();
    if (chosen("everything")) everything();
    if (chosen("moments")) moments();
    if (chosen("ends")) ends();
    if (chosen("failures")) failures();
    if (chosen("forks")) forks();
    if (chosen("exits")) exits();
    if (chosen("servers")) servers();
    return torture_end();
}
