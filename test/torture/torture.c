/* torture.c -- scratch folders, children, figures and small kernels for the programs of this folder. */
#include "torture.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

bool full;
struct fake_board *board;
char scratch[256];
static const char *program;
static char **parts;
static bool (*holds)(const char *text, const char *arch); /* of the fake driver */
static long wrong_in_all, said;
static double began;

/* ---- Begin and end ---- */

/* The folder of the fakes: build/fake beside build/torture/NAME. */
static void use_fakes(void)
{
    char self[PATH_MAX], path[PATH_MAX + 32];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2; up++)
        if (strrchr(self, '/')) *strrchr(self, '/') = 0;
    snprintf(path, sizeof path, "%s/fake", self);
    setenv("CODA_CUDA_LIB", path, 1);
    snprintf(path, sizeof path, "%s/fake/libcuda.so.1", self);
    setenv("CODA_LIBCUDA", path, 1);
    void *driver = dlopen(path, RTLD_NOW);
    if (!driver || !(*(void **)&holds = dlsym(driver, "fake_holds"))) puts(dlerror()), exit(2);
}

static void make_board(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/board", scratch);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || fchmod(fd, 0666) || ftruncate(fd, sizeof *board)) perror(path), exit(2);
    close(fd);
    setenv("FAKE_BOARD", path, 1);
    board = fake_board();
}

void torture_begin(int argc, char **argv, const char *name)
{
    const char *tmp = getenv("TMPDIR");
    program = name;
    full = argc > 1 && !strcmp(argv[1], "--full");
    parts = argv + 1 + full;
    snprintf(scratch, sizeof scratch, "%s/coda-torture-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    if (!mkdtemp(scratch)) perror(scratch), exit(2);
    setvbuf(stdout, NULL, _IOLBF, 0); /* children must not print it again */
    use_fakes();
    make_board();
    unsetenv("CODA_BUNDLES");
    unsetenv("CODA_DEBUG");
    setenv("CODA_CACHE_DIR", under("default"), 1);
    began = now_ms();
}

bool chosen(const char *part)
{
    for (char **p = parts; *p; p++)
        if (!strcmp(*p, part)) return true;
    return !*parts;
}

int torture_end(void)
{
    shim_off();
    remove_tree(scratch);
    printf("%s: %.1f s, %s\n", program, (now_ms() - began) / 1e3, wrong_in_all ? "WRONG" : "all right");
    return wrong_in_all != 0;
}

/* ---- Figures ---- */

void figure(long cases, long wrong, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s: ", program);
    vprintf(format, args);
    va_end(args);
    printf(": %ld cases, %ld wrong\n", cases, wrong);
    wrong_in_all += wrong + !cases;
    said = 0;
}

int complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (said++ < 5) {
        printf("%s: WRONG: ", program);
        vprintf(format, args);
        putchar('\n');
    }
    va_end(args);
    return 1;
}

void skipped(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s: SKIPPED: ", program);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

int scaled(int quick, int full_scale) { return full ? full_scale : quick; }

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

uint64_t noise(uint64_t *state) /* splitmix64 */
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- Files ---- */

const char *under(const char *name)
{
    static _Thread_local char path[8][512];
    static _Thread_local int turn;
    char *p = path[turn++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", scratch, name);
    return p;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)where;
    if (type == FTW_DNR) chmod(path, 0700);
    return remove(path), 0;
}

static int open_up(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)where;
    if (type == FTW_D || type == FTW_DNR) chmod(path, st->st_mode | 0700);
    return 0;
}

void remove_tree(const char *path)
{
    nftw(path, open_up, 16, FTW_PHYS);
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int walk_files(const char *path, void (*each)(const char *path, void *ctx), void *ctx)
{
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[PATH_MAX];
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (lstat(name, &st)) continue;
        if (S_ISDIR(st.st_mode)) n += walk_files(name, each, ctx);
        else {
            n++;
            if (each) each(name, ctx);
        }
    }
    if (d) closedir(d);
    return n;
}

int open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = -1; /* its own */
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

void *read_whole(const char *path, size_t *size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    char *p = fstat(fd, &st) ? NULL : malloc((size_t)st.st_size + 65); /* room to append to */
    *size = p ? (size_t)st.st_size : 0;
    for (size_t done = 0; p && done < *size;) {
        ssize_t n = read(fd, p + done, *size - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    close(fd);
    return p;
}

bool write_whole(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, data, size) == (ssize_t)size;
    if (fd >= 0) close(fd);
    return ok;
}

/* ---- Children ---- */

pid_t spawn(int (*body)(void *), void *ctx)
{
    pid_t child = fork();
    if (child < 0) perror("fork"), exit(2);
    if (!child) _exit(body(ctx));
    return child;
}

int reap(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int reap_all(const pid_t *child, int n)
{
    int bad = 0;
    for (int i = 0; i < n; i++) bad += reap(child[i]) != 0;
    return bad;
}

void *shared_memory(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) perror("mmap"), exit(2);
    return p;
}

struct gate {
    atomic_int missing;
    sem_t open;
};

struct gate *gate_new(int n)
{
    struct gate *g = shared_memory(sizeof *g);
    atomic_store(&g->missing, n);
    sem_init(&g->open, 1, 0);
    return g;
}

void gate_pass(struct gate *g)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 120; /* somebody died on the way: the others go on, and the test sees it */
    if (atomic_fetch_sub(&g->missing, 1) != 1)
        while (sem_timedwait(&g->open, &until) && errno == EINTR) {}
    sem_post(&g->open);
}

/* ---- Kernels ---- */

void board_reset(void) { memset((void *)board, 0, sizeof *board); }

coda_graph *kernel_graph(int number, const char *words)
{
    char source[256], name[32];
    coda_graph *g = coda_graph_new();
    coda_map_def map = CODA_MAP_DEF_INIT;
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, 32});
    snprintf(name, sizeof name, "map%d", number);
    snprintf(source, sizeof source, "DEV static float apply(float v) { return v * %d.0f; } /* %s */", number,
             words ? words : "");
    map.name = name;
    map.source = source;
    coda_define_map(g, &map);
    coda_output(g, "y", coda_apply(g, name, &x, 1, NULL));
    return g;
}

/* Does the driver hold what each kernel's source gives? The fake one keeps that for us. */
static bool right_kernels(const coda_plan *p)
{
    coda_kernel_info info = CODA_KERNEL_INFO_INIT;
    for (int i = 0; i < coda_plan_kernels(p); i++)
        if (coda_plan_kernel(p, i, &info) || !holds(info.source, NULL)) return false;
    return true;
}

static coda_status launch(const coda_plan *p)
{
    static _Thread_local _Alignas(256) unsigned char x[4096], y[4096], work[1 << 16];
    void *args[] = {x, y};
    memset(y, 0, sizeof y);
    if (coda_plan_workspace(p) > sizeof work) return CODA_E_INVALID;
    coda_status status = coda_run(p, args, NULL, work, NULL);
    return status || y[0] || y[1] ? status : CODA_E_DEVICE; /* the launch left its mark */
}

coda_status use_graph(struct coda_cache *cache, const coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.cache = cache;
    coda_status status = coda_compile(&p, g, &opt);
    if (!status && !right_kernels(p)) status = CODA_E_DEVICE;
    if (!status) status = launch(p);
    coda_plan_free(p);
    return status;
}

coda_status use_kernel(struct coda_cache *cache, int number)
{
    coda_graph *g = kernel_graph(number, NULL);
    coda_status status = use_graph(cache, g);
    coda_graph_free(g);
    return status;
}

/* ---- Things ---- */

struct cache_key thing_key(int number)
{
    static _Thread_local char what[8][64];
    static _Thread_local int turn;
    char *w = what[turn++ % 8];
    snprintf(w, sizeof what[0], "torture\nthing %d\n", number);
    return cache_key(CACHE_KERNEL, w, "by torture\n");
}

void thing_fill(void *out, int number, size_t size)
{
    unsigned char *p = out;
    uint64_t state = (uint64_t)number * 1000003 + size;
    for (uint64_t word; size; size -= size < 8 ? size : 8, p += 8) {
        word = noise(&state);
        memcpy(p, &word, size < 8 ? size : 8);
    }
}

bool thing_right(const void *data, size_t got, int number, size_t size)
{
    void *want = got == size ? malloc(size + 1) : NULL;
    if (!want) return false;
    thing_fill(want, number, size);
    bool same = !memcmp(data, want, size);
    free(want);
    return same;
}

struct thing {
    int number;
    size_t size;
};

static int make_thing(void *ctx, void **data, size_t *size, char *err, bool *passing)
{
    const struct thing *t = ctx;
    int now = atomic_fetch_add(&board->running, 1) + 1, most = atomic_load(&board->most_running);
    (void)err, *passing = false;
    while (now > most && !atomic_compare_exchange_weak(&board->most_running, &most, now)) {}
    atomic_fetch_add(&board->compiles, 1);
    fake_compile_waits(board, atomic_load(&board->compile_us));
    atomic_fetch_sub(&board->running, 1);
    *size = t->size;
    *data = malloc(t->size + 1);
    if (!*data) return 1;
    thing_fill(*data, t->number, t->size);
    return 0;
}

bool obtain_thing(struct coda_cache *c, int number, size_t size)
{
    struct cache_key k = thing_key(number);
    const struct cache_value *v =
        cache_obtain(c, &k, &(struct cache_maker){make_thing, &(struct thing){number, size}});
    bool right = v && !v->status && thing_right(v->data, v->size, number, size);
    cache_value_free(v);
    return right;
}

/* ---- Caches ---- */

struct coda_cache *open_cache(const char *folder)
{
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .limit = -1});
    if (!c) printf("%s: out of memory\n", program), exit(2);
    return c;
}

uint64_t counted(struct coda_cache *c, enum cache_counter which) { return stats_get(cache_stats(c), which); }

bool is_entry(const char *path)
{
    const char *name = strrchr(path, '/'), *folder = name;
    while (folder && folder > path && folder[-1] != '/') folder--;
    if (!name || folder == path) return false;
    size_t head = strspn(folder, "0123456789abcdef"), tail = strspn(name + 1, "0123456789abcdef");
    return folder + head == name && !name[1 + tail] && head && head + tail == 64;
}

struct census {
    int entries, others;
};

static void take_census(const char *path, void *ctx)
{
    struct census *n = ctx;
    const char *name = strrchr(path, '/') + 1;
    if (is_entry(path)) n->entries++;
    else if (strcmp(name, ".lock") && strcmp(name, ".size")) n->others++;
}

int leftovers(const char *folder, int *entries)
{
    struct census n = {0, 0};
    walk_files(folder, take_census, &n);
    if (entries) *entries = n.entries;
    return n.others;
}
