/*
 * lives.c -- processes that fork in the midst of a compile, exit in the midst of a write, are told to
 * terminate, or unload the library: no hang, no crash, no partial entry.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { SIZE = 60000, DEADLINE_MS = 1200000 };
static char folder[256];

/* The child's status, or 2000 if it had to be killed because it hung. */
static int reap_in_time(pid_t child)
{
    for (double start = now_ms(); now_ms() - start < DEADLINE_MS; usleep(1000)) {
        int status;
        if (waitpid(child, &status, WNOHANG) != child) continue;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    kill(child, SIGKILL);
    reap(child);
    return 2000;
}

/* ---- fork() ---- */

struct forker {
    struct coda_cache *c;
    int number;
    bool right;
};

static void *obtain_in_thread(void *ctx)
{
    struct forker *f = ctx;
    f->right = obtain_thing(f->c, f->number, SIZE);
    return NULL;
}

/* In the child: the key that the parent was making, another one, and the one that it had. */
static int use_in_child(void *ctx)
{
    struct forker *f = ctx;
    atomic_store(&board->compile_us, 0);
    int bad = !obtain_thing(f->c, f->number, SIZE) + !obtain_thing(f->c, f->number + 1, SIZE) +
              !obtain_thing(f->c, 0, SIZE);
    bad += use_kernel(f->c, f->number) != CODA_OK; /* through the driver too: it has no threads */
    return bad;
}

static int fork_once(void *ctx)
{
    (void)ctx;
    struct forker f = {.c = cache_open(&(struct cache_options){.dir = folder, .limit = -1, .wait_ms = 1500}),
                       .number = 1};
    pthread_t thread;
    obtain_thing(f.c, 0, SIZE);
    atomic_store(&board->compile_us, 150000);
    pthread_create(&thread, NULL, obtain_in_thread, &f);
    usleep((useconds_t)(getpid() % 200) * 1000); /* before, during or after the compile */
    int end = reap_in_time(spawn(use_in_child, &f));
    pthread_join(thread, NULL);
    cache_close(f.c);
    if (end) complain("the forked child ended with %d", end);
    return end || !f.right;
}

static void forks(void)
{
    int rounds = scaled(8, 200), bad = 0;
    for (int i = 0; i < rounds; i++) {
        remove_tree(folder);
        board_reset();
        bad += reap_in_time(spawn(fork_once, NULL)) != 0;
    }
    figure(rounds, bad, "a fork in the midst of a compile: the child goes on, neither waits for ever");
}

/* ---- exit() and signals ---- */

static void *obtain_for_ever(void *ctx)
{
    for (int i = 0;; i++) obtain_thing(ctx, i % 1000, SIZE);
    return NULL;
}

static void leave(int signal)
{
    (void)signal;
    exit(0);
}

static int exit_while_writing(void *ctx)
{
    int how = (int)(uintptr_t)ctx % 4;
    if (how == 3) signal(SIGTERM, leave);
    struct coda_cache *c = open_cache(folder);
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, obtain_for_ever, c);
    usleep((useconds_t)((uintptr_t)ctx * 379 % 9000));
    if (how == 0) exit(0);
    if (how == 1) quick_exit(0);
    if (how == 2) _exit(0);
    raise(SIGTERM);
    return 1;
}

static void exits(void)
{
    int rounds = scaled(100, 5000), bad = 0;
    remove_tree(folder);
    board_reset();
    for (int i = 0; i < rounds; i++) {
        int end = reap_in_time(spawn(exit_while_writing, (void *)(uintptr_t)i));
        if (end) bad += complain("exit %d ended with %d", i, end);
        if (i % 10 == 0 && leftovers(folder, NULL)) bad += complain("exit %d left a file", i);
    }
    struct coda_cache *c = open_cache(folder);
    int before = atomic_load(&board->compiles);
    for (int i = 0; i < 1000; i++)
        if (!obtain_thing(c, i, SIZE)) bad += complain("thing %d is wrong", i);
    uint64_t rejected = 0;
    for (int i = COUNT_rejected_short; i <= COUNT_rejected_key; i++) rejected += counted(c, i);
    if (rejected) bad += complain("%d partial entries", (int)rejected);
    if (atomic_load(&board->compiles) - before == 1000) bad += complain("nothing was ever written");
    cache_close(c);
    figure(rounds, bad,
           "exit, quick_exit, _exit and SIGTERM while two threads write: no partial entry, no crash");
}

/* ---- dlclose() ---- */

/* clang-format off */
#define CALLS(F)                                                                                             \
    F(coda_cache_open)                                                                                       \
    F(coda_cache_free) F(coda_info_print) F(coda_cache_stats_print) F(coda_compile) F(coda_run)              \
        F(coda_run_shaped)                                                                                   \
        F(coda_plan_free) F(coda_plan_workspace) F(coda_graph_parse) F(coda_graph_free) F(coda_error)
/* clang-format on */

struct calls {
#define FIELD(name) __typeof__(&name) name;
    CALLS(FIELD)
#undef FIELD
};

static int threads_here(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

/* A product on the CPU device that is worth threads, which stay. */
static int use_workers(const struct calls *f)
{
    static _Alignas(256) float x[128 * 128], y[128 * 128];
    coda_graph *g = NULL;
    coda_plan *p = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_run_options run = CODA_RUN_OPTIONS_INIT;
    int before = threads_here();
    opt.device = CODA_DEVICE_CPU, run.threads = 3;
    if (f->coda_graph_parse(&g, "%x = input f32[128,128]\n%y = matmul %x, %x\noutput %y = %y\n")) return 20;
    if (f->coda_compile(&p, g, &opt)) return 21;
    if (f->coda_run_shaped(p, (void *[]){x, y}, NULL, NULL, NULL, &run)) return 22;
    f->coda_plan_free(p);
    f->coda_graph_free(g);
    return threads_here() == before + 2 ? 0 : 23;
}

/* Everything that the library keeps for the process: its own cache, sources, a kernel loaded and left idle,
 * the thread's last error, threads. */
static int use_library(void *lib)
{
    static _Alignas(256) unsigned char x[4096], y[4096], work[1 << 16];
    struct calls f;
#define FIND(name)                                                                                           \
    if (!(f.name = (__typeof__(&name))dlsym(lib, #name))) return 2;
    CALLS(FIND)
#undef FIND
    char text[16384];
    coda_graph *g = NULL;
    coda_plan *p = NULL;
    coda_cache *c = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    int bad = use_workers(&f);
    if (bad) return bad;
    where.dir = folder;
    if (f.coda_cache_open(&c, &where)) return 3;
    f.coda_cache_free(c);
    if (f.coda_info_print(text, sizeof text) < 0) return 4;
    if (f.coda_graph_parse(&g, "%x = input f32[4,32]\n%y = relu %x\noutput %y = %y\n")) return 5;
    if (f.coda_compile(&p, g, &opt)) return 6;
    if (f.coda_plan_workspace(p) > sizeof work || f.coda_run(p, (void *[]){x, y}, NULL, work, NULL)) return 7;
    f.coda_plan_free(p);
    f.coda_graph_free(g);
    if (f.coda_compile(&p, NULL, &opt) == CODA_OK || !*f.coda_error()) return 8;
    return f.coda_cache_stats_print(NULL, text, sizeof text) > 0 ? 0 : 9;
}

static int load_use_unload(void *path)
{
    int descriptors = open_descriptors(), threads = threads_here();
    size_t most = 0;
    for (int i = 0; i < 50; i++) {
        void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!lib) return 1;
        int bad = use_library(lib);
        if (bad) return bad;
        dlclose(lib);
        if (dlopen(path, RTLD_NOW | RTLD_NOLOAD)) return complain("the library is still there"), 10;
        if (open_descriptors() != descriptors)
            return complain("round %d: %d descriptors, not %d", i, open_descriptors(), descriptors), 11;
        if (threads_here() != threads)
            return complain("round %d: %d threads, not %d", i, threads_here(), threads), 14;
        size_t now = mallinfo2().uordblks; /* the fakes stay, and malloc's own lists fill up first */
        if (i >= 35 && now > most)
            return complain("round %d: %zu bytes, before at most %zu", i, now, most), 12;
        if (i >= 20 && now > most) most = now;
    }
    if (atomic_load(&board->loads) != atomic_load(&board->unloads) || !atomic_load(&board->loads))
        return complain("%d kernels loaded, %d unloaded", atomic_load(&board->loads),
                        atomic_load(&board->unloads)),
               13;
    return 0;
}

/* exit() while other threads are in the library: nothing is taken away from them. */
static void *compile_for_ever(void *ctx)
{
    (void)ctx;
    for (int i = 0;; i++) {
        coda_graph *g = kernel_graph(i % 50, NULL);
        if (use_graph(NULL, g)) complain("%s", coda_error());
        coda_graph_free(g);
        if (i % 7 == 0) coda_cache_forget(NULL);
    }
    return NULL;
}

static int exit_while_compiling(void *ctx)
{
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, compile_for_ever, NULL);
    usleep((useconds_t)((uintptr_t)ctx * 977 % 30000));
    exit(0);
}

static void unloads(void)
{
    char self[4096], path[4200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2; up++) *(strrchr(self, '/') ? strrchr(self, '/') : self) = 0;
    snprintf(path, sizeof path, "%s/libcoda.so", self);
    if (access(path, R_OK)) return skipped("dlclose: there is no %s", path);
    board_reset();
    int end = reap_in_time(spawn(load_use_unload, path));
    figure(
        50, end ? complain("unloading ended with %d", end) : 0,
        "the library loaded, used and unloaded: descriptors, memory and threads stay the same, kernels go");
    int rounds = scaled(20, 500), bad = 0;
    for (int i = 0; i < rounds; i++)
        if ((end = reap_in_time(spawn(exit_while_compiling, (void *)(uintptr_t)i))))
            bad += complain("exit %d ended with %d", i, end);
    figure(rounds, bad, "exit while two threads compile through the process's own cache: no crash");
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "lives");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    forks();
    exits();
    unloads();
    return torture_end();
}
