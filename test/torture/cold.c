/*
 * cold.c -- many processes start cold together on one folder: one compile for each key, the keys beside
 * each other, in processes, in threads, and in containers that cannot see each other.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { PROCESSES = 64, KEYS = 16, MOST = 64, TOGETHER = 8 };
#if defined __SANITIZE_THREAD__ /* sees of the fourth thread what it sees of the last */
enum { THREADS = 64 };
#else
enum { THREADS = 256 };
#endif

struct user {
    char folder[256];
    int first, n, step; /* kernels first, first + step, ... wrapped at n */
    bool alone;         /* without locks and nameless files: all write at once, and each under a name */
    struct gate *gate;
};

static struct {
    atomic_int compiles, found, unlocked, stored, lost, named;
    atomic_int mounted; /* containers that stand */
} * counts;             /* by the counters of all processes together; shared */

/* A temporary file has come to be, whose name nobody else had. It stays a while, to be in the way. */
static void see_named(const struct shim_event *e)
{
    if (strcmp(e->call, "create") || !strstr(e->path, ".tmp-")) return;
    atomic_fetch_add(&counts->named, 1);
    usleep(50000);
}

static int use(void *ctx)
{
    struct user *u = ctx;
    if (u->alone) {
        shim_watch(u->folder);
        shim.all_named = true;
        shim.lock_error = ENOLCK;
        shim.saw = see_named;
    }
    struct coda_cache *c = open_cache(u->folder);
    gate_pass(u->gate);
    int bad = 0;
    for (int i = 0; i < u->n; i++) bad += use_kernel(c, (u->first + i * u->step) % u->n) != CODA_OK;
    atomic_fetch_add(&counts->compiles, (int)counted(c, COUNT_compiles));
    atomic_fetch_add(&counts->found, (int)counted(c, COUNT_disk_hits));
    atomic_fetch_add(&counts->unlocked, (int)counted(c, COUNT_lock_unavailable));
    atomic_fetch_add(&counts->stored, (int)counted(c, COUNT_stored));
    atomic_fetch_add(&counts->lost, (int)counted(c, COUNT_lost_races));
    bad += counted(c, COUNT_store_failed) != 0;
    cache_close(c);
    return bad != 0;
}

/* Starts n users; the wall time from the moment when all stand at the gate. */
static double run_users(struct user *u, int n, int *bad)
{
    pid_t child[MOST];
    memset(counts, 0, sizeof *counts);
    u->gate = gate_new(n + 1);
    for (int i = 0; i < n; i++) {
        struct user mine = *u;
        mine.first = i % u->n;
        child[i] = spawn(use, &mine);
    }
    gate_pass(u->gate);
    double start = now_ms();
    *bad += reap_all(child, n);
    return now_ms() - start;
}

static struct user user_of(const char *folder, int kernels)
{
    struct user u = {.n = kernels, .step = 1};
    snprintf(u.folder, sizeof u.folder, "%s", folder);
    remove_tree(folder);
    return u;
}

static int expect_compiles(const char *what, int want)
{
    int got = atomic_load(&board->compiles);
    return got == want ? 0 : complain("%s: %d compiles instead of %d", what, got, want);
}

/* Was each source compiled once? */
static int expect_once(int kernels)
{
    int texts = 0, twice = 0;
    for (int i = 0; i < FAKE_TEXTS; i++) {
        texts += atomic_load(&board->text[i].digest) != 0;
        twice += atomic_load(&board->text[i].compiles) > 1;
    }
    return texts == kernels && !twice ? 0 : complain("%d sources, %d of them twice", texts, twice);
}

/* The counters of `users` processes that used `kernels` kernels each say what the compiler says. */
static int expect_counts(const char *what, int users, int kernels)
{
    int compiles = atomic_load(&counts->compiles), found = atomic_load(&counts->found);
    if (compiles == kernels && found == (users - 1) * kernels && !atomic_load(&counts->unlocked)) return 0;
    return complain("%s: counted %d compiles, %d found, %d without a lock", what, compiles, found,
                    atomic_load(&counts->unlocked));
}

static void one_key(void)
{
    int rounds = scaled(3, 50), bad = 0, compile_ms = 400;
    double sum = 0, worst = 0;
    for (int i = 0; i < rounds; i++) {
        struct user u = user_of(under("cache"), 1);
        board_reset();
        atomic_store(&board->compile_us, compile_ms * 1000);
        double ms = run_users(&u, PROCESSES, &bad);
        bad += expect_compiles("one key", 1) + expect_counts("one key", PROCESSES, 1);
        sum += ms;
        worst = ms > worst ? ms : worst;
    }
    figure(rounds, bad,
           "%d processes, one key of %d ms: one compile, wall %.2f of it on average, %.2f at worst",
           PROCESSES, compile_ms, sum / rounds / compile_ms, worst / compile_ms);
}

static void many_keys(void)
{
    int rounds = scaled(1, 10), bad = 0, most = KEYS, compile_ms = 500;
    double worst = 0;
    for (int i = 0; i < rounds; i++) {
        struct user u = user_of(under("cache"), KEYS);
        board_reset();
        atomic_store(&board->compile_us, compile_ms * 1000);
        atomic_store(&board->gather, TOGETHER);
        double ms = run_users(&u, PROCESSES, &bad);
        bad += expect_once(KEYS) + expect_compiles("many keys", KEYS) +
               expect_counts("many keys", PROCESSES, KEYS);
        int together = atomic_load(&board->most_running);
        if (together < TOGETHER) bad += complain("only %d compiles in parallel", together);
        most = together < most ? together : most;
        worst = ms > worst ? ms : worst;
    }
    figure(rounds, bad, "%d processes x %d keys of %d ms: %d compiles, %d in parallel at least, wall %.0f ms",
           PROCESSES, KEYS, compile_ms, KEYS, most, worst);
}

/* ---- Threads ---- */

struct crowd {
    struct coda_cache *c;
    const coda_graph *g;
    pthread_barrier_t start;
    atomic_int right, failed, same;
    char error[512];
};

static void *one_of_crowd(void *ctx)
{
    struct crowd *w = ctx;
    pthread_barrier_wait(&w->start);
    coda_status status = use_graph(w->c, w->g);
    if (!status) atomic_fetch_add(&w->right, 1);
    else if (strstr(coda_error(), "told to fail")) atomic_fetch_add(&w->failed, 1);
    return NULL;
}

/* 256 threads, one key: one compile, and the same end for all. */
static int crowd(struct coda_cache *c, int kernel, const char *words, int right, int compiles)
{
    static pthread_t thread[THREADS];
    coda_graph *g = kernel_graph(kernel, words);
    struct crowd w = {.c = c, .g = g};
    int started = 0, bad = 0;
    board_reset();
    atomic_store(&board->compile_us, 100000);
    pthread_barrier_init(&w.start, NULL, THREADS);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 19);
    while (started < THREADS && !pthread_create(&thread[started], &small, one_of_crowd, &w)) started++;
    if (started < THREADS) perror("pthread_create"), exit(2);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    if (atomic_load(&w.right) != right || atomic_load(&w.failed) != THREADS - right)
        bad += complain("of %d threads %d were right and %d failed as told", THREADS, atomic_load(&w.right),
                        atomic_load(&w.failed));
    bad += expect_compiles(words ? "threads, a failing source" : "threads", compiles);
    pthread_barrier_destroy(&w.start);
    coda_graph_free(g);
    return bad;
}

static void threads(void)
{
    int bad = 0, rounds = scaled(2, 50);
    for (int i = 0; i < rounds; i++) {
        remove_tree(under("cache"));
        struct coda_cache *c = open_cache(under("cache"));
        bad += crowd(c, 1, NULL, THREADS, 1);
        bad += crowd(c, 2, FAKE_FAIL_WORD, 0, 1); /* the failure is made once, and told to all */
        bad += crowd(c, 2, FAKE_FAIL_WORD, 0, 0); /* and replayed */
        cache_forget(c);
        bad += crowd(c, 2, FAKE_FAIL_WORD, 0, 1); /* until it is forgotten */
        cache_close(c);
        c = open_cache(under("cache"));
        bad += crowd(c, 2, FAKE_FAIL_WORD, 0, 1); /* and never kept on disk */
        cache_close(c);
    }
    figure(5 * rounds, bad, "%d threads, one key, good and failing: one compile, one end for all", THREADS);
}

/* ---- Containers: own pid and mount namespace, the same pid, one folder by another path ---- */

struct container {
    struct user user;
    char mount_point[256];
};

/* Process 1 of a new pid namespace. */
static int inside(void *ctx)
{
    struct container *c = ctx;
    if (getpid() != 1) return 3;
    return use(&c->user);
}

static int contain(void *ctx)
{
    struct container *c = ctx;
    if (unshare(CLONE_NEWPID | CLONE_NEWNS)) return errno == EPERM ? 77 : 2;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return 77;
    if (mount(c->user.folder, c->mount_point, NULL, MS_BIND, NULL)) return 77;
    snprintf(c->user.folder, sizeof c->user.folder, "%s", c->mount_point);
    atomic_fetch_add(&counts->mounted, 1);
    return reap(spawn(inside, c));
}

/* Starts n; false if the machine forbids it, which the first one tells. */
static bool start_containers(struct container *c, pid_t *child, int n, const struct user *u)
{
    for (int i = 0; i < n; i++) {
        char name[32];
        int status;
        snprintf(name, sizeof name, "mount%d", i);
        c[i].user = *u;
        c[i].user.first = i % u->n;
        snprintf(c[i].mount_point, sizeof c[i].mount_point, "%s", under(name));
        mkdir(c[i].mount_point, 0700);
        child[i] = spawn(contain, &c[i]);
        while (!i && !atomic_load(&counts->mounted)) {
            usleep(500);
            if (waitpid(child[0], &status, WNOHANG) != child[0]) continue;
            if (WEXITSTATUS(status) == 77) return false;
            break;
        }
    }
    return true;
}

/* Each key was published once, and whoever made it else has lost a race and nothing more; `named`: all of
 * them under temporary names of their own. */
static int expect_stored(int keys, bool named)
{
    int compiles = atomic_load(&counts->compiles), stored = atomic_load(&counts->stored),
        lost = atomic_load(&counts->lost), names = atomic_load(&counts->named);
    if (stored == keys && stored + lost == compiles && names == named * compiles) return 0;
    return complain("containers: counted %d compiles, %d stored, %d lost races, %d temporary names", compiles,
                    stored, lost, names);
}

/* With locks one compile for each key; without them all make and write the same names at once. */
static void containers(int n, int keys, int rounds)
{
    struct container c[MOST];
    pid_t child[MOST];
    int bad = 0, most = n;
    for (int round = 0; round < 2 * rounds; round++) {
        struct user u = user_of(under("volume"), keys);
        u.gate = gate_new(n);
        u.alone = round % 2;
        cache_close(open_cache(u.folder));
        board_reset();
        memset(counts, 0, sizeof *counts);
        atomic_store(&board->compile_us, 25000 * n);
        if (u.alone) atomic_store(&board->gather, n / 2);
        if (!start_containers(c, child, n, &u))
            return skipped("%d containers: this machine forbids new namespaces (run as root)", n);
        for (int i = 0; i < n; i++)
            if (reap(child[i])) bad += complain("container %d failed", i);
        if (leftovers(u.folder, NULL)) bad += complain("temporary files stay");
        bad += expect_stored(keys, u.alone);
        int together = atomic_load(&board->most_running);
        if (!u.alone) bad += expect_compiles("containers", keys) + expect_counts("containers", n, keys);
        else if (together < n / 2) bad += complain("only %d write at once", together);
        else if (together < most) most = together;
    }
    figure(2 * rounds, bad,
           "%d pid and mount namespaces, all of pid 1, one volume, keys: %d, compiles: %d; and without "
           "locks, %d at once at least, no clash of names",
           n, keys, keys, most);
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "cold");
    counts = shared_memory(sizeof *counts);
    if (chosen("processes")) one_key(), many_keys();
    if (chosen("threads")) threads();
    if (chosen("containers")) containers(8, 4, scaled(2, 20)), containers(32, 1, scaled(1, 20));
    return torture_end();
}
