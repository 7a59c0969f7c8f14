/*
 * gpu_killed.c -- four servers start cold on one cache, and run a plan of all numbers of rows while its
 * kernels are made; one of them, at random, is killed, and another one started in its place, CODA_KILLS
 * times (12). The others never notice: no run fails or is wrong, no kernel is made again but what died with
 * its maker, and who comes last makes none.
 *
 * Two of the four wait for their kernels: their runs of one shape have the same bits in all processes. The
 * other two have them made in the background. On a device that computes, runs are compared with fp64, too;
 * the driver of test/fake leaves marks instead. A round of kills begins with an empty cache.
 *
 * The servers are this program again, for a context of CUDA does not survive a fork: $CODA_KILLED holds the
 * number of the one that a process shall be.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"

int gpu_killed(void);

enum {
    SERVERS = 4,
    KILLS_A_ROUND = 25,
    PROCESSES = SERVERS + KILLS_A_ROUND + 1, /* of a round, at most; the last comes when all is there */
    ROWS = 512,
    WIDTH = 256,
    SHAPES = 8,
    ARGS = 5,
    DIGITS = 60, /* of an entry's name, at least */
    SEED = 7
};
/* Seconds until a server must have its first answer, until all is over, and the largest error. */
#define PATIENCE 600.0
#define IN_ALL 80.0
#define WITHIN 0.02

static const int64_t rows[SHAPES] = {1, 3, 17, 64, 100, 200, 333, ROWS};
static const char text[] = "dim %T = 1..512\n%x = input bf16[T,256]\n%gain = weight bf16[256]\n"
                           "%w = weight bf16[768,256]\n%v = weight bf16[256,768]\n"
                           "%1 = rms_norm %x, %gain {eps=1e-5}\n%2 = matmul %1, %w\n%3 = silu %2\n"
                           "%4 = matmul %3, %v\n%5 = add %4, %x\n%6 = softmax %5\noutput %y = %6\n";

/* What processes tell each other, in a file that all map. */
struct server {
    atomic_int runs, wrong, pending; /* pending: shapes whose best kernels are still to be made */
    atomic_ullong compiles;
    atomic_int longest_ms; /* of a run by a server that does not wait, once it had an answer */
    char error[200];       /* written before it ends */
};
struct shared {
    atomic_bool stop;
    atomic_ullong bits[SHAPES]; /* a digest of each shape's output with its best kernels; 0: nobody had it */
    struct server server[PROCESSES];
    double reference[ROWS * WIDTH]; /* rows do not depend on each other */
};

static struct shared *map_shared(const char *folder, int flags)
{
    char path[300];
    snprintf(path, sizeof path, "%s.board", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd < 0 || (flags && ftruncate(fd, sizeof(struct shared)))) return NULL;
    void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- A server ---- */

struct life {
    struct shared *shared;
    struct server *me;
    bool waits, computes;
    coda_cache *cache;
    coda_plan *plan;
    void *args[ARGS], *work;
    uint16_t y[ROWS * WIDTH];
};

static uint64_t digest_of(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h | 1;
}

static bool is_accurate(const struct life *l, int64_t n)
{
    double off = 0, all = 0;
    for (int64_t i = 0; i < n * WIDTH; i++) {
        double want = l->shared->reference[i], d = dtype_load(CODA_BF16, l->y, i) - want;
        off += d * d;
        all += want * want;
    }
    return off <= WITHIN * WITHIN * all;
}

/* Of a shape's best kernels the bits are those that any process had. */
static bool is_right(struct life *l, int shape)
{
    uint64_t bits = digest_of(l->y, (size_t)rows[shape] * WIDTH * 2);
    unsigned long long none = 0;
    if (l->computes && !is_accurate(l, rows[shape])) return false;
    if (!l->waits) return true;
    return atomic_compare_exchange_strong(&l->shared->bits[shape], &none, bits) || none == bits;
}

static bool run_shape(struct life *l, int shape)
{
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = &rows[shape];
    opt.dim_count = 1;
    if (!device_fill(l->args[ARGS - 1], 0xff, sizeof l->y)) return false;
    double began = device_clock();
    coda_status status = coda_run_shaped(l->plan, l->args, NULL, l->work, NULL, &opt);
    int ms = (int)(1e3 * (device_clock() - began));
    if (!l->waits && atomic_load(&l->me->runs) && ms > atomic_load(&l->me->longest_ms))
        atomic_store(&l->me->longest_ms, ms);
    if (status != CODA_OK || !device_wait() || !device_download(l->y, l->args[ARGS - 1], sizeof l->y))
        return false;
    atomic_fetch_add(&l->me->wrong, !is_right(l, shape));
    return true;
}

static void tell(struct life *l)
{
    coda_cache_stats stats = CODA_CACHE_STATS_INIT;
    coda_shape_stats shapes = CODA_SHAPE_STATS_INIT;
    coda_cache_stats_get(l->cache, &stats);
    if (l->plan) coda_shape_stats_get(l->plan, &shapes);
    atomic_store(&l->me->compiles, stats.compiles);
    atomic_store(&l->me->pending, (int)shapes.pending);
}

static bool open_plan(struct life *l, const char *folder)
{
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    graph *g = NULL, *most = NULL;
    where.dir = folder;
    where.overlays = "";
    if (coda_cache_open(&l->cache, &where) || coda_graph_parse(&g, text)) return false;
    opt.cache = l->cache;
    opt.policy = l->waits ? CODA_POLICY_WAIT : CODA_POLICY_BACKGROUND;
    if (coda_compile(&l->plan, g, &opt) || coda_graph_bind(&most, g, &rows[SHAPES - 1], 1)) return false;
    void **host = random_args(most, SEED, false);
    for (int i = 0; i < ARGS; i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        if (coda_graph_arg(most, i, &info) || !(l->args[i] = device_alloc(info.bytes)) ||
            !device_upload(l->args[i], host[i], info.bytes))
            return false;
    }
    return (l->work = device_alloc(coda_plan_workspace(l->plan) + 1)) != NULL;
}

static bool live(struct life *l, const char *folder)
{
    int next = getpid() % SHAPES;
    if (!open_plan(l, folder)) return false;
    while (!atomic_load(&l->shared->stop)) {
        bool good = run_shape(l, next++ % SHAPES);
        tell(l);
        if (!good) return false;
        atomic_fetch_add(&l->me->runs, 1);
    }
    coda_plan_free(l->plan);
    l->plan = NULL;
    tell(l);
    return true;
}

static void be_server(int number)
{
    static struct life l;
    struct jit_device dev;
    char err[JIT_ERROR_SIZE] = "";
    const char *folder = getenv("CODA_CACHE_DIR");
    if (!(l.shared = map_shared(folder, 0))) _exit(2);
    l.me = &l.shared->server[number];
    l.waits = number % 2;
    bool good = device_open(&dev, err);
    l.computes = good && strncmp(dev.name, "fake", 4) != 0;
    good = good && live(&l, folder);
    if (!good) snprintf(l.me->error, sizeof l.me->error, "%.190s", err[0] ? err : coda_error());
    _exit(!good);
}

/* ---- The one who kills ---- */

struct round {
    char folder[256];
    struct shared *shared;
    pid_t pid[SERVERS]; /* of those that live */
    int number[SERVERS], next;
    int lost; /* servers that ended by themselves */
};

static pid_t start(const char *folder, int number)
{
    char digits[16];
    fflush(stdout);
    pid_t child = fork();
    if (child) return child;
    snprintf(digits, sizeof digits, "%d", number);
    setenv("CODA_KILLED", digits, 1);
    setenv("CODA_CACHE_DIR", folder, 1);
    execl("/proc/self/exe", "gpu_tests", "killed", (char *)NULL);
    _exit(127);
}

static void start_at(struct round *r, int place)
{
    r->number[place] = r->next++;
    r->pid[place] = start(r->folder, r->number[place]);
}

/* Kills a server that lives. One that has ended by itself has noticed something. */
static void kill_one(struct round *r, struct random *random)
{
    int place = (int)random_below(random, SERVERS), status = 0;
    r->lost += waitpid(r->pid[place], &status, WNOHANG) != 0;
    kill(r->pid[place], SIGKILL);
    waitpid(r->pid[place], &status, 0);
    start_at(r, place);
}

/* Until a server has run all shapes twice, and nothing is made for it any more. */
static bool wait_settled(const struct round *r, int place, double until)
{
    const struct server *s = &r->shared->server[r->number[place]];
    while (atomic_load(&s->runs) < 2 * SHAPES || atomic_load(&s->pending)) {
        if (waitid(P_PID, (id_t)r->pid[place], NULL, WEXITED | WNOHANG | WNOWAIT) || device_clock() > until)
            return false;
        usleep(1000);
    }
    return true;
}

/* The first `count` servers settle, and end well. */
static bool end_all(struct round *r, int count)
{
    double until = device_clock() + PATIENCE;
    bool good = true;
    for (int i = 0; i < count; i++) good = good && wait_settled(r, i, until);
    atomic_store(&r->shared->stop, true);
    for (int i = 0; good && i < count; i++) {
        int status = -1;
        waitpid(r->pid[i], &status, 0);
        r->pid[i] = 0;
        r->lost += status != 0;
    }
    atomic_store(&r->shared->stop, false);
    return good;
}

static bool write_reference(struct shared *s)
{
    graph *g = NULL, *most = NULL;
    bool good = !coda_graph_parse(&g, text) && !coda_graph_bind(&most, g, &rows[SHAPES - 1], 1);
    void **want = good ? run_reference(most, SEED) : NULL;
    if (want) memcpy(s->reference, want[ARGS - 1], sizeof s->reference);
    if (want) random_args_free(most, want);
    coda_graph_free(most);
    coda_graph_free(g);
    return want != NULL;
}

static int kernels; /* in a round's cache */

static int count_kernel(const char *path, const struct stat *st, int type, struct FTW *where)
{
    const char *name = path + where->base;
    (void)st;
    kernels += type == FTW_F && strlen(name) >= DIGITS && !name[strspn(name, "0123456789abcdef")];
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static bool open_round(struct round *r)
{
    const char *tmp = getenv("TMPDIR");
    *r = (struct round){.next = 0};
    snprintf(r->folder, sizeof r->folder, "%s/coda-killed-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    return mkdtemp(r->folder) && (r->shared = map_shared(r->folder, O_CREAT | O_EXCL)) &&
           write_reference(r->shared);
}

static void close_round(struct round *r)
{
    char path[300];
    for (int i = 0; i < SERVERS; i++)
        if (r->pid[i] > 0) kill(r->pid[i], SIGKILL), waitpid(r->pid[i], NULL, 0);
    snprintf(path, sizeof path, "%s.board", r->folder);
    unlink(path);
    nftw(r->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (r->shared) munmap(r->shared, sizeof *r->shared);
}

static int report(const struct round *r, int kills, bool good)
{
    int runs = 0, wrong = 0, longest = 0;
    unsigned long long compiles = 0, late = r->shared->server[r->next - 1].compiles;
    const char *error = "";
    for (int i = 0; i < r->next; i++) {
        const struct server *s = &r->shared->server[i];
        runs += s->runs, wrong += s->wrong, compiles += s->compiles;
        if (s->longest_ms > longest) longest = s->longest_ms;
        if (s->error[0]) error = s->error;
    }
    kernels = 0;
    nftw(r->folder, count_kernel, 16, FTW_PHYS);
    int again = (int)compiles - kernels;
    good = good && !r->lost && !wrong && !*error && kernels && again <= kills && !late;
    return gpu_case(
        good, "killed",
        "%d kills, %d servers: %d runs, %d wrong, %d ended by themselves; %d kernels, %d compiled "
        "twice, %d by who came last; the longest run beside compiles %d ms%s%s",
        kills, r->next, runs, wrong, r->lost, kernels, again > 0 ? again : 0, (int)late, longest,
        *error ? ": " : "", error);
}

/* A kill each `span` milliseconds on average, or until the time is over. */
static int play(int kills, int span, struct random *random, double until)
{
    struct round r;
    bool good = open_round(&r);
    int killed = 0;
    for (int i = 0; good && i < SERVERS; i++) start_at(&r, i);
    for (; good && killed < kills && device_clock() < until; killed++) {
        usleep((useconds_t)random_below(random, 2000 * span + 1));
        kill_one(&r, random);
    }
    good = good && end_all(&r, SERVERS);
    if (good) start_at(&r, 0);
    good = good && end_all(&r, 1);
    int failed = r.shared && r.next
                     ? report(&r, killed, good && killed == kills)
                     : gpu_case(false, "killed", "%s: %s; %s", r.folder, strerror(errno), coda_error());
    close_round(&r);
    return failed;
}

static int number_of(const char *name, int otherwise)
{
    const char *value = getenv(name);
    return value ? atoi(value) : otherwise;
}

int gpu_killed(void)
{
    const char *number = getenv("CODA_KILLED");
    if (number) be_server(atoi(number));
    int kills = number_of("CODA_KILLS", 12), span = number_of("CODA_KILL_MS", 350), failed = 0;
    double until = device_clock() + IN_ALL;
    struct random random = {random_seed()};
    for (; kills > 0; kills -= KILLS_A_ROUND)
        failed += play(kills < KILLS_A_ROUND ? kills : KILLS_A_ROUND, span, &random, until);
    return failed;
}
