/*
 * fuzz_env.c -- hostile values in every environment variable: fuzz_env SECONDS [SEED].
 *
 * Each case is a fork in a folder of its own with some of the variables set to paths of every kind (files,
 * folders, FIFOs, links, devices, none, very long ones), numbers, words and bytes. It opens caches, compiles
 * for the CPU and for a GPU, prints all that can be printed, and may not crash, hang, or say what is no
 * JSON. Files that a variable for reading names, and all that none names, stay as they are. Run it under
 * address and undefined-behaviour sanitizers.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "coda.h"
#include "util_random.h"

enum { SECONDS_EACH = 1200, VALUE = 5000 };

/* What a variable may write to, if it is a path. */
enum { READS, WRITES };
static const struct variable {
    const char *name;
    int role;
} variables[] = {
    {"CODA_CACHE_DIR", WRITES},
    {"XDG_CACHE_HOME", WRITES},
    {"HOME", WRITES},
    {"XDG_RUNTIME_DIR", WRITES},
    {"CODA_RECORD", WRITES},
    {"CODA_DUMP", WRITES},
    {"CODA_CACHE_LIMIT", READS},
    {"CODA_CACHE_READ_ONLY", READS},
    {"CODA_CACHE_VERIFY", READS},
    {"CODA_BUNDLES", READS},
    {"CODA_DEBUG", READS},
    {"CODA_CUDA_LIB", READS},
    {"CODA_LIBCUDA", READS},
    {"CODA_PRIMITIVES", READS},
    {"CUDA_HOME", READS},
    {"CUDA_PATH", READS},
    {"NVRTC_PREPEND_FLAGS", READS},
    {"NVRTC_APPEND_FLAGS", READS},
    {"PATH", READS},
    {"LANG", READS},
};
static const char *const texts[] = {
    "",
    "0",
    "1",
    "-1",
    "2",
    "yes",
    "no",
    "true",
    "off",
    "1KB",
    "1K",
    "1e9",
    "0x10",
    "99999999999999999999",
    "1G",
    "5M",
    "T",
    "10%",
    "nan",
    "-9223372036854775808",
    "graph,plan,cache,launch",
    "source",
    "rewrite,,",
    "cache cache",
    "all",
    "%s%n%s%n",
    "\x1b[2J",
    "\xff\xfe",
    "\xc3(",
    "a\nb",
    "\"\\",
    "  ",
    ":",
    ":::",
    "-",
    "--",
    "~",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/proc/self/mem",
    "/proc/self/fd/1",
    "/",
    ".",
    "..",
    "//",
    "nothing",
    "nothing/below",
    "/dev/null/x",
};
/* Below ro/ and rw/. */
static const char *const places[] = {"folder",   "file", "bundle", "fifo",  "loop",   "dangling", "tofile",
                                     "tofolder", "open", "closed", "cache", "socket", "sparse",   "broken"};

static char root[64] = "/tmp/coda-fuzz-env-XXXXXX";

/* ---- The folders ---- */

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) perror(name), exit(2);
}

static void run(const char *command)
{
    if (system(command)) fprintf(stderr, "fuzz_env: %s\n", command), exit(2);
}

/* One of each kind, so that a path may lead to anything. */
static void make_places(const char *where)
{
    char why[CACHE_ERROR];
    size_t size;
    if (mkdir(where, 0700) || chdir(where)) perror(where), exit(2);
    mkdir("folder", 0700), mkdir("open", 0700), chmod("open", 0777), mkdir("closed", 0),
        mkdir("broken", 0700);
    write_file("file", "some text\n", 10), write_file("broken/v2", "no folder", 9);
    void *bytes = bundle_pack(NULL, 0, "empty\n", &size, why);
    write_file("bundle", bytes, size);
    free(bytes);
    bool good = !mkfifo("fifo", 0600) && !symlink("loop", "loop") && !symlink("none", "dangling") &&
                !symlink("file", "tofile") && !symlink("folder", "tofolder") &&
                !mknod("socket", S_IFSOCK | 0600, 0);
    write_file("sparse", "", 0);
    good = good && !truncate("sparse", (off_t)1 << 32);
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = "cache", .overlays = ""});
    struct cache_key k = cache_key(CACHE_TUNING, "a key\n", "");
    cache_put(c, &k, "x", 1);
    cache_close(c);
    if (!good || chdir("..")) perror(where), exit(2);
}

static uint64_t sum;

/* Names, kinds, modes, sizes and the bytes of small files. */
static int add_up(const char *path, const struct stat *st, int type, struct FTW *where)
{
    char text[600], block[4096];
    int n = snprintf(text, sizeof text, "%s %d %o %lld", path, type, (unsigned)st->st_mode,
                     S_ISDIR(st->st_mode) ? 0 : (long long)st->st_size);
    struct digest d = digest_of(text, (size_t)n);
    (void)where;
    sum = sum * 31 + d.word[0];
    int fd = S_ISREG(st->st_mode) ? open(path, O_RDONLY | O_NOFOLLOW) : -1;
    ssize_t got = fd < 0 ? 0 : read(fd, block, sizeof block);
    if (fd >= 0) close(fd);
    if (got > 0) d = digest_of(block, (size_t)got), sum += d.word[0];
    return 0;
}

static uint64_t state_of(const char *where)
{
    sum = 0;
    if (nftw(where, add_up, 16, FTW_PHYS)) perror(where), exit(2);
    return sum;
}

/* ---- Values ---- */

static void draw_path(struct random *r, char *out, int role)
{
    static const char *const areas[] = {"ro", "rw"};
    const char *place = places[random_below(r, ARRAY_SIZE(places))];
    int n = snprintf(out, VALUE, "%s%s%s/%s", random_chance(r, 60) ? root : "",
                     random_chance(r, 60) ? "/" : "", areas[role], place);
    if (out[0] == '/' && out[1] == 'r') memmove(out, out + 1, (size_t)n--); /* relative after all */
    if (random_chance(r, 10)) snprintf(out + n, (size_t)(VALUE - n), "/below/it");
    if (random_chance(r, 5)) memset(out + n, '/', 4000), out[n + 4000] = 0;
}

static void draw_value(struct random *r, char *out, int role)
{
    int64_t pick = random_below(r, 10);
    if (pick < 5) draw_path(r, out, role);
    else if (pick < 9) {
        const char *text = texts[random_below(r, ARRAY_SIZE(texts))];
        bool writes_out = role == WRITES && (text[0] == '/' || text[0] == '.') && strncmp(text, "/dev/", 5);
        snprintf(out, VALUE, "%s", writes_out ? "/dev/null/x" : text); /* as root it would be made */
    } else {
        int64_t n = random_below(r, random_chance(r, 10) ? VALUE - 1 : 40);
        for (int64_t i = 0; i < n; i++) out[i] = (char)(1 + random_below(r, 255));
        for (int64_t i = 0; i < n; i++)
            if (role == WRITES && out[i] == '/') out[i] = '.';
        out[n] = 0;
    }
    if (role == READS && random_chance(r, 10)) { /* a list */
        size_t n = strlen(out);
        if (n < VALUE / 2)
            out[n] = ':', draw_path(r, out + n + 1 > out + VALUE - 5000 ? out : out + n + 1, role);
    }
}

/* ---- One case, in a child ---- */

static int wrong(const char *what) { return fprintf(stderr, "fuzz_env: %s\n", what), 42; }

/* Are the quotes balanced, and is there no control character or raw byte in it? The rest is json.c's. */
static bool is_json(const char *s)
{
    bool inside = false;
    if (*s != '{') return false;
    for (; *s; s++) {
        if (inside && (unsigned char)*s < ' ') return false;
        if (inside && *s == '\\') s++;
        else if (*s == '"') inside = !inside;
    }
    return !inside && s[-1] == '\n' && s[-2] == '}';
}

static int print_all(coda_cache *c)
{
    static char text[1 << 16];
    int64_t n = coda_cache_stats_print(c, text, sizeof text);
    if (n <= 0 || n >= (int64_t)sizeof text || !is_json(text)) return wrong("no JSON");
    if (!coda_cache_dir(c)[0] && !coda_cache_problem(c)[0]) return wrong("no directory, and no reason");
    return 0;
}

static int use(bool nvrtc)
{
    static float x[32], y[32];
    static const char text_of_graph[] = "%x = input f32[4,8]\n%y = relu %x\noutput %y = %y\n";
    static char text[1 << 16];
    coda_graph *g = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    if (coda_graph_parse(&g, text_of_graph)) return wrong(coda_error());
    for (int device = 0; device < 3; device++) {
        coda_plan *p = NULL;
        if (device == CODA_DEVICE_NONE && !nvrtc) continue; /* it takes long */
        opt.device = (coda_device)device;
        opt.arch = device == CODA_DEVICE_NONE ? "sm_90a" : NULL;
        coda_status status = coda_compile(&p, g, &opt);
        if (status && (!coda_error()[0] || strchr(coda_error(), '\n'))) return wrong("no line of error");
        if (device == CODA_DEVICE_CPU) {
            if (status) return wrong(coda_error());
            void *work = malloc(coda_plan_workspace(p) + 64);
            for (int i = 0; i < 32; i++) x[i] = (float)i - 16, y[i] = -1;
            if (coda_run(p, (void *[]){x, y}, NULL, work, NULL)) return wrong(coda_error());
            for (int i = 0; i < 32; i++)
                if (y[i] != (i > 16 ? (float)i - 16 : 0)) return wrong("a wrong result");
            free(work);
        }
        coda_plan_free(p);
    }
    coda_graph_free(g);
    if (coda_info_print(text, sizeof text) < 0) return wrong(coda_error());
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    coda_cache *c = NULL;
    where.dir = "rw/own";
    if (coda_cache_open(&c, &where)) return wrong(coda_error());
    int bad = print_all(NULL) + print_all(c);
    coda_cache_free(c);
    return bad;
}

static int run_case(char (*value)[VALUE], const bool *set, bool nvrtc)
{
    pid_t child = fork();
    if (child < 0) perror("fork"), exit(2);
    if (!child) {
        clearenv();
        alarm(SECONDS_EACH);
        for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
            if (set[i]) setenv(variables[i].name, value[i], 1);
        int keep = fcntl(2, F_DUPFD_CLOEXEC, 10), fd = open("rw/stderr", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 2), dup2(fd, 1), close(fd);
        int bad = use(nvrtc);
        if (bad) dup2(keep, 2), fprintf(stderr, "fuzz_env: ended with %d\n", bad);
        fflush(NULL);
        exit(bad);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void stop(const char *what, int status, char (*value)[VALUE], const bool *set)
{
    char line[1000];
    fprintf(stderr, "fuzz_env: %s, status %d:", what, status);
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        if (set[i]) fprintf(stderr, " %s='%.300s'", variables[i].name, value[i]);
    fputc('\n', stderr);
    FILE *f = fopen("rw/stderr", "r");
    while (f && fgets(line, sizeof line, f)) fputs(line, stderr);
    abort();
}

int main(int argc, char **argv)
{
    static char value[ARRAY_SIZE(variables)][VALUE];
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    struct random r = {argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL)};
    unsigned long long seed = r.state;
    time_t begin = time(NULL);
    long cases = 0;
    printf("fuzz_env: seed %llu\n", seed);
    fflush(stdout);
    if (!mkdtemp(root) || chdir(root)) return perror(root), 2;
    make_places("ro"), make_places("rw"), make_places("never");
    uint64_t ro = state_of("ro"), never = state_of("never");
    for (; difftime(time(NULL), begin) < seconds; cases++) {
        bool set[ARRAY_SIZE(variables)] = {false};
        for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
            set[i] = random_chance(&r, 35);
            if (set[i]) draw_value(&r, value[i], variables[i].role);
        }
        int status = run_case(value, set, random_chance(&r, 5));
        if (status) stop("a case ended badly", status, value, set);
        if (state_of("ro") != ro) stop("what is for reading was changed", 0, value, set);
        if (state_of("never") != never) stop("what no variable names was changed", 0, value, set);
        if (cases % 50 == 49) run("chmod -R u+rwx rw; rm -rf rw"), make_places("rw");
    }
    char command[200];
    if (chdir("/")) return 2;
    snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'", root, root);
    run(command);
    printf("fuzz_env: %ld environments, seed %llu: ok\n", cases, seed);
    return 0;
}
