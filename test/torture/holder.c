/*
 * holder.c -- the process that compiles, and that others wait for, is killed, stopped, or has a child that
 * keeps its lock; or there are no locks. Somebody else takes over, or everybody works alone.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { SIZE = 5000 };

struct user {
    int wait_ms, lock_error;
    atomic_int waits, timeouts, unavailable, misses; /* of those who ended */
};
static struct user *user; /* shared */
static char folder[256];

static int use(void *ctx)
{
    (void)ctx;
    if (user->lock_error) shim_watch(folder), shim.lock_error = user->lock_error;
    struct coda_cache *c =
        cache_open(&(struct cache_options){.dir = folder, .limit = -1, .wait_ms = user->wait_ms});
    bool right = obtain_thing(c, 1, SIZE);
    atomic_fetch_add(&user->waits, (int)counted(c, COUNT_waits));
    atomic_fetch_add(&user->timeouts, (int)counted(c, COUNT_wait_timeouts));
    atomic_fetch_add(&user->unavailable, (int)counted(c, COUNT_lock_unavailable));
    atomic_fetch_add(&user->misses, (int)counted(c, COUNT_misses));
    cache_close(c);
    return !right;
}

/* Compiles wait until the board holds them no longer, if they are `held`. */
static void fresh(bool held, int wait_ms)
{
    remove_tree(folder);
    board_reset();
    memset(user, 0, sizeof *user);
    user->wait_ms = wait_ms;
    atomic_store(&board->hold, held);
}

/* Waits until `n` compiles were started; the time it took. A minute is too long. */
static double await_compiles(int n)
{
    double start = now_ms();
    for (; atomic_load(&board->compiles) < n; usleep(100))
        if (now_ms() - start > 60000)
            return complain("%d compiles instead of %d", atomic_load(&board->compiles), n);
    return now_ms() - start;
}

/* A holder in the midst of a compile, and a waiter that most often has begun to wait. */
static void start_two(pid_t *holder, pid_t *waiter)
{
    *holder = spawn(use, NULL);
    await_compiles(1);
    *waiter = spawn(use, NULL);
    usleep(60000);
}

static void killed(void)
{
    int rounds = scaled(5, 100), bad = 0;
    double worst = 0;
    for (int i = 0; i < rounds; i++) {
        pid_t holder, waiter;
        fresh(true, 100000);
        start_two(&holder, &waiter);
        kill(holder, SIGKILL);
        double ms = await_compiles(2);
        worst = ms > worst ? ms : worst;
        if (reap(holder) != 1009) bad += complain("the holder was not killed");
        atomic_store(&board->hold, 0);
        if (reap(waiter) || atomic_load(&user->timeouts)) bad += complain("the waiter failed");
        if (atomic_load(&board->compiles) != 2) bad += complain("%d compiles", atomic_load(&board->compiles));
        if (leftovers(folder, NULL)) bad += complain("the killed holder left a file");
    }
    figure(rounds, bad, "the holder killed while it compiles: a waiter takes over in %.1f ms at worst",
           worst);
}

static void stopped(void)
{
    int rounds = scaled(2, 20), bad = 0, wait_ms = 400;
    double worst = 0, best = 1e9;
    for (int i = 0; i < rounds; i++) {
        pid_t holder, waiter;
        int status;
        fresh(true, wait_ms);
        holder = spawn(use, NULL);
        await_compiles(1);
        kill(holder, SIGSTOP);
        waitpid(holder, &status, WUNTRACED);
        atomic_store(&board->hold, 0);
        double start = now_ms();
        waiter = spawn(use, NULL);
        await_compiles(2);
        double ms = now_ms() - start;
        worst = ms > worst ? ms : worst, best = ms < best ? ms : best;
        if (ms < wait_ms * 0.9)
            bad += complain("private compile after %.0f ms, the deadline being %d", ms, wait_ms);
        if (reap(waiter)) bad += complain("the waiter failed");
        if (atomic_load(&user->timeouts) != 1)
            bad += complain("%d deadlines counted", atomic_load(&user->timeouts));
        pid_t third = spawn(use, NULL); /* the result was not lost */
        if (reap(third) || atomic_load(&board->compiles) != 2) bad += complain("the private result is lost");
        kill(holder, SIGCONT);
        if (reap(holder)) bad += complain("the holder failed once it went on");
        if (leftovers(folder, NULL)) bad += complain("a file is left");
    }
    figure(rounds, bad,
           "the holder stopped: the others compile privately after %.0f to %.0f ms, asked for %d", best,
           worst, wait_ms);
}

static void impatient(void)
{
    int bad = 0;
    pid_t holder, waiter;
    fresh(true, -1);
    start_two(&holder, &waiter);
    await_compiles(2); /* while the first one is held */
    if (atomic_load(&board->compiles) != 2) bad += complain("it waited though told not to");
    atomic_store(&board->hold, 0);
    bad += reap(holder) + reap(waiter);
    figure(1, bad, "wait_ms < 0: nobody waits");
}

static void no_locks(void)
{
    static const int errors[] = {ENOLCK, EBADF, ENOSYS, EOPNOTSUPP, EINVAL,
                                 EPERM,  EIO,   ESTALE, ENOMEM,     EDEADLK};
    enum { ERRORS = sizeof errors / sizeof *errors, USERS = 4 };
    int bad = 0;
    for (int e = 0; e < ERRORS; e++) {
        pid_t child[USERS];
        fresh(false, 5000);
        atomic_store(&board->compile_us, 50000);
        user->lock_error = errors[e];
        for (int i = 0; i < USERS; i++) child[i] = spawn(use, NULL);
        if (reap_all(child, USERS)) bad += complain("%s: a user failed", strerror(errors[e]));
        if (atomic_load(&user->timeouts))
            bad += complain("%s: they wait for each other", strerror(errors[e]));
        if (atomic_load(&user->unavailable) < 1) bad += complain("%s is not counted", strerror(errors[e]));
        if (reap(spawn(use, NULL))) bad += complain("%s: afterwards", strerror(errors[e]));
    }
    figure(ERRORS, bad, "locks that fail with %d errno values: all work alone, and it is counted", ERRORS);
}

/* Stops before it takes its first lock: it has looked, and found nothing. */
static int use_late(void *ctx)
{
    shim_watch(folder);
    shim.only = "fcntl";
    shim_arm(SHIM_STOP, 1, 0, false);
    return use(ctx);
}

static void late(void)
{
    int bad = 0, status;
    fresh(false, 5000);
    pid_t second = spawn(use_late, NULL);
    waitpid(second, &status, WUNTRACED);
    if (!WIFSTOPPED(status)) bad += complain("the second takes no lock");
    if (reap(spawn(use, NULL))) bad += complain("the first failed");
    kill(second, SIGCONT);
    if (WIFSTOPPED(status) && reap(second)) bad += complain("the second failed");
    if (atomic_load(&user->misses) != 2) bad += complain("%d missed", atomic_load(&user->misses));
    if (atomic_load(&board->compiles) != 1) bad += complain("%d compiles", atomic_load(&board->compiles));
    figure(1, bad, "another process is done between a look and the lock: who gets the lock looks again");
}

/* ---- A child of the holder lives on, with the descriptor of the lock ---- */

static pid_t *orphan; /* shared */

static void *fork_meanwhile(void *ctx)
{
    (void)ctx;
    await_compiles(1);
    pid_t child = fork();
    if (!child)
        for (;;) pause();
    *orphan = child;
    atomic_store(&board->hold, 0);
    return NULL;
}

static int use_and_fork(void *die)
{
    pthread_t other;
    pthread_create(&other, NULL, fork_meanwhile, NULL);
    int bad = use(NULL);
    pthread_join(other, NULL);
    if (die) raise(SIGKILL);
    return bad;
}

static void forked(void)
{
    int bad = 0;
    orphan = shared_memory(sizeof *orphan);
    fresh(true, 3000);
    if (reap(spawn(use_and_fork, NULL))) bad += complain("the holder failed");
    /* The lock was given up, though the child has it open. */
    struct coda_cache *c = open_cache(folder);
    struct cache_prune all = {.max_bytes = 0, .older_than_s = -1};
    cache_prune(c, &all);
    bool waited = counted(c, COUNT_wait_timeouts) > 0;
    cache_close(c);
    if (reap(spawn(use, NULL))) bad += complain("the same key failed");
    if (atomic_load(&board->compiles) != 2) bad += complain("the same key was not compiled again");
    if (waited || atomic_load(&user->timeouts)) bad += complain("they waited for an idle child");
    if (*orphan) kill(*orphan, SIGKILL);
    figure(1, bad, "a forked child that keeps the descriptor open keeps nobody waiting");
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "holder");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    user = shared_memory(sizeof *user);
    killed();
    stopped();
    impatient();
    no_locks();
    late();
    forked();
    return torture_end();
}
