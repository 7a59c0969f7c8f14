/*
 * gpu_processes.c -- ranks that are processes of one host with a GPU each: own exchanges through memory that
 * they open of each other, in a group of a communicator of NCCL's. All that they sum is compared; one is
 * killed, stopped for a while or for too long, or gives up, at a random run, and the others are told which it
 * was; those that live then make another group. Memory of groups that are freed is given back.
 *
 * A rank is this program again: $CODA_PROCESS holds its number and the name of the file in which they meet.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "gpu_case.h"
#include "sums.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_processes(void);

enum how { NOTHING, KILLED, STOPPED, GIVES_UP, PAUSES };
enum { MOST_GROUPS = 8, RUNS = 6, MEET_MS = 60000 };

/* What the processes tell each other. */
struct board {
    enum how how;
    int ranks, runs, groups, victim, at, timeout_ms;
    bool captures, alone; /* alone: nobody else takes memory of these devices */
    uint64_t seed;
    struct {
        atomic_bool there;
        ncclUniqueId id;
    } meeting[MOST_GROUPS + 1]; /* the last one is for those that are left */
    struct {
        atomic_int runs; /* that it has begun */
        atomic_bool done;
        int64_t bad, kept; /* elements; bytes that groups have left behind */
        double seconds;
        char error[1024], again[1024]; /* of the first groups; of the one behind */
    } rank[MOST_RANKS];
};

static struct board *map_board(const char *path, int flags)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd < 0 || (flags && ftruncate(fd, sizeof(struct board)))) return NULL;
    void *p = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- A rank ---- */

static struct board *board;
static int own;

static bool before(struct rank *r, int run)
{
    if (board->how == GIVES_UP && own == board->victim && run == board->at) coda_group_abort(r->group);
    atomic_store(&board->rank[own].runs, run + 1);
    return true;
}

/* A communicator of so many ranks, of which this is number `rank`. */
static ncclComm_t meet(int meeting, int rank, int ranks, char *err)
{
    const struct nccl *nccl = nccl_open(err);
    ncclComm_t comm = NULL;
    if (!nccl) return NULL;
    if (!rank) {
        if (nccl->ncclGetUniqueId(&board->meeting[meeting].id)) return NULL;
        atomic_store(&board->meeting[meeting].there, true);
    }
    for (int ms = 0; !atomic_load(&board->meeting[meeting].there); ms++, usleep(1000))
        if (ms >= MEET_MS) return NULL;
    return nccl->ncclCommInitRank(&comm, ranks, board->meeting[meeting].id, rank) ? NULL : comm;
}

/* All runs of a group, which is freed; its error, "" for none. */
static void live(int meeting, int rank, int ranks, int timeout_ms, char *error, size_t size)
{
    struct rank r = {.number = rank, .ranks = ranks, .runs = 2, .seed = board->seed};
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    char err[JIT_ERROR_SIZE] = "no communicator";
    bool first = meeting < MOST_GROUPS;
    ncclComm_t comm = sums_use(rank) ? meet(meeting, rank, ranks, err) : NULL;
    if (first) r.runs = board->runs, r.captures = board->captures;
    if (first) r.before = before;
    opt.timeout_ms = timeout_ms;
    if (!comm || coda_group_nccl(&r.group, comm, &opt)) {
        snprintf(error, size, "%s", comm ? coda_error() : err);
        return;
    }
    rank_live(&r);
    bool dead = coda_group_status(r.group);
    snprintf(error, size, "%s", r.error);
    board->rank[own].bad += r.bad;
    if (first) board->rank[own].seconds = r.seconds;
    rank_free(&r);
    if (!dead) nccl_open(err)->ncclCommDestroy(comm);
}

static int64_t used(void)
{
    char err[JIT_ERROR_SIZE];
    size_t left = 0, all = 0;
    const struct driver *d = driver_open(err);
    if (d) d->cuMemGetInfo_v2(&left, &all);
    return (int64_t)(all - left);
}

/* Those that are left of all but the victim. */
static void live_again(void)
{
    char *error = board->rank[own].again;
    live(MOST_GROUPS, own - (own > board->victim), board->ranks - 1, LONG_MS, error,
         sizeof board->rank[0].again);
}

static void be_rank(const char *what)
{
    struct jit_device gpu;
    char err[JIT_ERROR_SIZE] = "";
    int64_t before_last = 0;
    own = atoi(what);
    if (!strchr(what, ':') || !(board = map_board(strchr(what, ':') + 1, 0))) _exit(2);
    char *error = board->rank[own].error;
    if (!device_open(&gpu, err) || !sums_find_contexts()) snprintf(error, 1024, "no device: %.900s", err);
    for (int i = 0; i < board->groups && !*error; i++) {
        live(i, own, board->ranks, board->timeout_ms, error, 1024);
        if (i == board->groups / 2) before_last = used();
    }
    board->rank[own].kept = used() - before_last;
    atomic_store(&board->rank[own].done, true);
    bool left = own != board->victim && (board->how == KILLED || board->how == STOPPED);
    if (left && board->ranks > 2) live_again();
    _exit(0);
}

/* ---- All of them ---- */

static pid_t start(const char *path, int number)
{
    char what[300];
    fflush(stdout);
    pid_t child = fork();
    if (child) return child;
    snprintf(what, sizeof what, "%d:%s", number, path);
    setenv("CODA_PROCESS", what, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", "gpu_tests", "processes", (char *)NULL);
    _exit(127);
}

static bool others_are_done(const struct board *b)
{
    bool done = true;
    for (int k = 0; k < b->ranks; k++) done = done && (k == b->victim || atomic_load(&b->rank[k].done));
    return done;
}

/* What happens to the victim, once it has begun so many runs, and a little later. */
static void strike(const struct board *b, pid_t pid, struct random *draw)
{
    while (atomic_load(&b->rank[b->victim].runs) <= b->at && !atomic_load(&b->rank[b->victim].done))
        usleep(500);
    usleep((useconds_t)(random_next(draw) % 30000));
    kill(pid, b->how == KILLED ? SIGKILL : SIGSTOP);
    if (b->how == KILLED) return;
    if (b->how == PAUSES) usleep(scale_is_full() ? 5000000 : 400000);
    while (b->how == STOPPED && !others_are_done(b)) usleep(1000);
    kill(pid, SIGCONT);
}

/* Runs all processes to their ends; false with what is wrong. */
static bool run_processes(const struct board *want, struct board *out, struct random *draw)
{
    char path[64];
    pid_t pid[MOST_RANKS];
    snprintf(path, sizeof path, "/dev/shm/coda-processes-%d", (int)getpid());
    struct board *b = map_board(path, O_CREAT | O_TRUNC);
    if (!b) return false;
    memcpy(b, want, sizeof *b);
    for (int k = 0; k < b->ranks; k++) pid[k] = start(path, k);
    if (b->how == KILLED || b->how == STOPPED || b->how == PAUSES) strike(b, pid[b->victim], draw);
    for (int k = 0; k < b->ranks; k++) waitpid(pid[k], NULL, 0);
    unlink(path);
    memcpy(out, b, sizeof *b);
    return !munmap(b, sizeof *b);
}

static struct board wanted(enum how how, int ranks, int runs, uint64_t seed)
{
    return (struct board){.how = how,
                          .ranks = ranks,
                          .runs = runs,
                          .groups = 1,
                          .victim = -1,
                          .timeout_ms = LONG_MS,
                          .seed = seed};
}

/* ---- Cases ---- */

static int check_sums(const char *name, struct board want)
{
    struct board b;
    struct random draw = {want.seed};
    char what[1100] = "";
    int64_t bad = 0, kept = 0;
    bool good = run_processes(&want, &b, &draw);
    for (int k = 0; k < want.ranks && good; k++) {
        bad += b.rank[k].bad;
        if (b.rank[k].kept > kept) kept = b.rank[k].kept;
        if (!atomic_load(&b.rank[k].done)) snprintf(what, sizeof what, "rank %d has not ended", k);
        if (b.rank[k].error[0]) snprintf(what, sizeof what, "%s", b.rank[k].error);
    }
    good = good && !bad && !what[0];
    if (want.groups > 1 && want.alone) good = good && kept <= JIT_SHARED_UNIT; /* an inbox */
    return gpu_case(good, name, "%d ranks, %d runs%s, %lld wrong elements, %lld bytes kept %s", want.ranks,
                    want.runs, want.captures ? ", replayed" : "", (long long)bad, (long long)kept, what);
}

/* What rank k says of how it ended, if that is wrong; `late`: another rank was late. */
static bool is_wrong(const struct board *b, int k, bool *late)
{
    char who[48];
    const char *error = b->rank[k].error;
    snprintf(who, sizeof who, b->how == GIVES_UP ? "rank %d gave up" : "rank %d missed exchange ", b->victim);
    if (k == b->victim && b->how == KILLED) return false;
    if (b->rank[k].again[0]) return true;
    *late = strstr(error, " missed exchange ") || strstr(error, "NCCL");
    return !strstr(error, who);
}

static void end_one(struct board *want, struct random *draw, char *what, size_t size, double *seconds)
{
    struct board b;
    bool late = false, good = run_processes(want, &b, draw);
    what[0] = 0;
    if (!good) snprintf(what, size, "no processes");
    for (int k = 0; k < want->ranks && !what[0]; k++) {
        double behind = b.rank[k].seconds - 1e-3 * want->timeout_ms;
        if (behind > *seconds) *seconds = behind;
        if (b.rank[k].bad) snprintf(what, size, "%lld wrong elements", (long long)b.rank[k].bad);
        else if (is_wrong(&b, k, &late))
            snprintf(what, size, "at run %d of rank %d rank %d says \"%.400s\", then \"%.400s\"", want->at,
                     want->victim, k, b.rank[k].error, b.rank[k].again);
    }
    if (!what[0] || !late || want->timeout_ms >= LONG_MS) return;
    want->timeout_ms *= 4;
    end_one(want, draw, what, size, seconds);
}

static int check_ends(const char *name, enum how how, int ranks, int instants, uint64_t seed)
{
    struct random draw = {seed * 37 + (uint64_t)how};
    double seconds = -1e3;
    char what[1100] = "";
    int i = 0;
    for (; i < instants && !what[0]; i++) {
        struct board want = wanted(how, ranks, 1000, seed + (uint64_t)i);
        want.timeout_ms = how == GIVES_UP ? LONG_MS : 2 * SHORT_MS;
        want.victim = (int)(random_next(&draw) % (uint64_t)ranks),
        want.at = 1 + (int)(random_next(&draw) % (RUNS - 1));
        want.captures = random_next(&draw) % 2;
        end_one(&want, &draw, what, sizeof what, &seconds);
    }
    return gpu_case(!what[0], name, "%d times, the last %+.2f s behind its deadline %s", i, seconds, what);
}

static int check_all(bool emulated, int devices, uint64_t seed)
{
    int many = scale_is_full() ? 1000 : emulated ? 6 : 100, failed = 0, few = scale_is_full() ? 30 : 2;
    struct board want = wanted(NOTHING, 2, many, seed);
    setenv("CODA_EXCHANGE", "own", 1);
    failed += check_sums("two", want);
    want.captures = true, want.seed++;
    failed += check_sums("two, captured", want);
    want.groups = MOST_GROUPS, want.runs = 2, want.alone = emulated;
    failed += check_sums("eight groups", want);
    if (!emulated) return failed + check_ends("killed", KILLED, devices < 3 ? devices : 3, few, seed);
    setenv("CODA_EXCHANGE", "two_shot", 1);
    want = wanted(NOTHING, 3, many, seed + 2);
    failed += check_sums("three, by two trips", want);
    setenv("CODA_EXCHANGE", "copies", 1);
    want = wanted(NOTHING, 3, many, seed + 5);
    failed += check_sums("three, by copies", want);
    failed += check_ends("killed, by copies", KILLED, 3, few, seed + 6);
    setenv("CODA_EXCHANGE", "own", 1);
    setenv("CODA_EMULATOR_NO_PEERS", "1", 1);
    failed += check_sums("two that do not reach each other", wanted(NOTHING, 2, 2, seed + 3));
    unsetenv("CODA_EMULATOR_NO_PEERS");
    want = wanted(PAUSES, 3, RUNS, seed + 4);
    want.victim = 1, want.at = 2;
    failed += check_sums("stops and goes on", want);
    failed += check_ends("killed", KILLED, 3, few, seed);
    failed += check_ends("stops for too long", STOPPED, 3, few, seed);
    return failed + check_ends("gives up", GIVES_UP, 3, few, seed);
}

int gpu_processes(void)
{
    char err[JIT_ERROR_SIZE];
    struct jit_device gpu;
    const char *what = getenv("CODA_PROCESS");
    setenv("CODA_EMULATOR_DEVICES", "4", 0);
    if (what) be_rank(what);
    if (!device_open(&gpu, err)) return gpu_case(false, "processes", "%s", err);
    if (device_dry()) return gpu_skip("processes", "nothing runs here");
    int devices = sums_find_contexts();
    if (!device_emulated(&gpu) && devices < 2)
        return gpu_skip("processes", "there is one GPU, and NCCL wants one for each process");
    device_use(gpu.context);
    int failed = check_all(device_emulated(&gpu), devices, random_seed());
    unsetenv("CODA_EXCHANGE");
    return failed;
}
