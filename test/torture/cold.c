/*
 * cold.c -- many processes start cold together on one folder: one compile for each key, the keys beside
 * each other, in processes, in threads, and in containers that cannot see each other.
 */
#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { PROCESSES = 64, KEYS = 16, THREADS = 256, CONTAINERS = 8, MOST = 64 };

struct user {
    char folder[256];
    int first, n, step; /* kernels first, first + step, ... wrapped at n */
    bool alone;         /* without locks and nameless files: all write at once, and each under a name      */
    struct gate *gate;
};

static struct {
    atomic_int compiles, found, unlocked;
} * counts; /* by the counters of all processes together; shared */

static int use(void *ctx)
{
    struct user *u = ctx;
    if (u->alone) shim_watch(u->folder), shim.all_named = true, shim.lock_error = ENOLCK;
    struct coda_cache *c = open_cache(u->folder);
    gate_pass(u->gate);
    int bad = 0;
    for (int i = 0; i < u->n; i++) bad += use_kernel(c, (u->first + i * u->step) % u->n) != CODA_OK;
    atomic_fetch_add(&counts->compiles, (int)counted(c, COUNT_compiles));
    atomic_fetch_add(&counts->found, (int)counted(c, COUNT_disk_hits));
    atomic_fetch_add(&counts->unlocked, (int)counted(c, COUNT_lock_unavailable));
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
        double ms = run_users(&u, PROCESSES, &bad);
        bad += expect_once(KEYS) + expect_compiles("many keys", KEYS) +
               expect_counts("many keys", PROCESSES, KEYS);
        int together = atomic_load(&board->most_running);
        if (together < 8) bad += complain("only %d compiles in parallel", together);
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
    if (!status)
        atomic_fetch_add(&w->right, 1);
    else if (strstr(coda_error(), "told to fail"))
        atomic_fetch_add(&w->failed, 1);
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
        bad += crowd(c, 2, FAKE_FAIL_WORD, 0, 0); /* and replayed                              */
        cache_forget(c);
        bad += crowd(c, 2, FAKE_FAIL_WORD, 0, 1); /* until it is forgotten                     */
        cache_close(c);
        c = open_cache(under("cache"));
        bad += crowd(c, 2, FAKE_FAIL_WORD, 0, 1); /* and never kept on disk                    */
        cache_close(c);
    }
    figure(5 * rounds, bad, "%d threads, one key, good and failing: one compile, one end for all", THREADS);
}

/* ---- Memory: a process that may make no system call finds what it has, failures too ---- */

enum { LOOKUPS = 1000000 };

static int fail_to_make(void *ctx, void **data, size_t *size, char *err, bool *passing)
{
    (void)ctx, (void)data, (void)size;
    *passing = false;
    snprintf(err, CACHE_ERROR, "cannot be made");
    atomic_fetch_add(&board->compiles, 1);
    return 1;
}

/* How many of the lookups found what they should. */
static long look_up(struct coda_cache *c, const struct cache_key *good, const struct cache_key *bad)
{
    long right = 0;
    for (int i = 0; i < LOOKUPS; i++) {
        const struct cache_value *v = cache_find(c, i % 2 ? bad : good);
        right += v && (v->status != 0) == i % 2;
        cache_value_free(v);
    }
    return right;
}

static int look_up_strictly(void *ctx)
{
    double *ns = ctx;
    struct coda_cache *c = open_cache(under("cache"));
    struct cache_key good = thing_key(1), bad = thing_key(2);
    obtain_thing(c, 1, 100000);
    cache_value_free(cache_obtain(c, &bad, &(struct cache_maker){fail_to_make, NULL, NULL}));
    double start = now_ms();
    long right = look_up(c, &good, &bad);
    *ns = (now_ms() - start) * 1e6 / LOOKUPS;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 77;
    right += look_up(c, &good, &bad);
    syscall(SYS_exit, right == 2L * LOOKUPS ? 0 : 1); /* all that is allowed now, beside read and write */
    return 1;
}

static void memory(void)
{
    double *ns = shared_memory(sizeof *ns);
    board_reset();
    remove_tree(under("cache"));
    int end = reap(spawn(look_up_strictly, ns)), bad = 0;
    if (end == 77) return skipped("lookups without system calls: this machine has no seccomp");
    if (end) bad += complain("the process ended with %d", end);
    bad += expect_compiles("memory", 2);
    figure(2L * LOOKUPS, bad, "lookups in memory, good and failing, %.0f ns each, no system call is allowed",
           *ns);
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
    return reap(spawn(inside, c));
}

/* Starts them all; false if the machine forbids it, which the first one tells. */
static bool start_containers(struct container *c, pid_t *child, const struct user *u)
{
    for (int i = 0; i < CONTAINERS; i++) {
        char name[32];
        int status;
        snprintf(name, sizeof name, "mount%d", i);
        c[i].user = *u;
        c[i].user.first = i % u->n;
        snprintf(c[i].mount_point, sizeof c[i].mount_point, "%s", under(name));
        mkdir(c[i].mount_point, 0700);
        child[i] = spawn(contain, &c[i]);
        if (i) continue;
        usleep(100000);
        if (waitpid(child[0], &status, WNOHANG) == child[0] && WEXITSTATUS(status) == 77) return false;
    }
    return true;
}

static void containers(void)
{
    struct container c[CONTAINERS];
    pid_t child[CONTAINERS];
    int bad = 0, rounds = scaled(2, 20);
    for (int round = 0; round < 2 * rounds; round++) {
        struct user u = user_of(under("volume"), 4);
        u.gate = gate_new(CONTAINERS);
        u.alone = round % 2;
        cache_close(open_cache(u.folder));
        board_reset();
        memset(counts, 0, sizeof *counts);
        atomic_store(&board->compile_us, 100000);
        if (!start_containers(c, child, &u))
            return skipped("%d containers: this machine forbids new namespaces (run as root)", CONTAINERS);
        for (int i = 0; i < CONTAINERS; i++)
            if (reap(child[i])) bad += complain("container %d failed", i);
        if (leftovers(u.folder, NULL)) bad += complain("temporary files stay");
        if (!u.alone)
            bad += expect_compiles("containers", u.n) + expect_counts("containers", CONTAINERS, u.n);
    }
    figure(2 * rounds, bad,
           "%d pid and mount namespaces, all of pid 1, one volume, 4 keys: 4 compiles; and no "
           "clash of names where there are no locks",
           CONTAINERS);
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "cold");
    counts = shared_memory(sizeof *counts);
    if (chosen("processes")) one_key(), many_keys();
    if (chosen("threads")) threads();
    if (chosen("memory")) memory();
    if (chosen("containers")) containers();
    return torture_end();
}
