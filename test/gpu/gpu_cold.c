/*
 * gpu_cold.c -- eight processes start cold together on one cache and run a LLaMA block: each kernel is
 * compiled once in all, and the outputs are the same bits; then eight more find everything compiled.
 *
 * The processes are this program again, for a context of CUDA does not survive a fork: $CODA_COLD holds
 * the number of the one that a process shall be.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_run.h"

int gpu_cold(void);

enum { PROCESSES = 8, SEED = 7 };
#define GRAPH "examples/graphs/llama_small.coda"

/* What a process says of itself, in a file of its own, with the bytes of its output behind it. */
struct report {
    char error[256];
    int kernels;
    uint64_t compiles, found; /* found: on disk, maybe after waiting for another process */
    size_t bytes;
};

/* ---- One of the processes ---- */

static bool run_block(struct report *r, coda_cache *c, void **output)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_arg_info info = CODA_ARG_INFO_INIT;
    coda_plan *p = NULL;
    struct run_buffers b;
    graph *g = run_load(GRAPH);
    opt.cache = c;
    if (!g || coda_compile(&p, g, &opt) != CODA_OK) return false;
    if (!run_upload(&b, g, p, random_args(g, SEED, false), true)) return false;
    if (!run_prepare(&b, p) || coda_run(p, b.args, b.prepared, b.workspace, NULL) != CODA_OK ||
        !run_download(&b))
        return false;
    coda_graph_arg(g, b.n - 1, &info);
    *output = b.host[b.n - 1];
    r->bytes = info.bytes;
    r->kernels = coda_plan_kernels(p);
    return true; /* the process ends soon: nothing is freed */
}

static bool live(struct report *r, const char *folder, void **output)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE], byte;
    coda_cache *c = NULL;
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    coda_cache_stats stats = CODA_CACHE_STATS_INIT;
    opt.dir = folder;
    opt.overlays = "";
    if (!device_open(&dev, err)) return snprintf(r->error, sizeof r->error, "%.250s", err), false;
    bool good = coda_cache_open(&c, &opt) == CODA_OK;
    while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {} /* ends when the parent lets go of all */
    good = good && run_block(r, c, output) && coda_cache_stats_get(c, &stats) == CODA_OK;
    if (!good) return snprintf(r->error, sizeof r->error, "%.250s", coda_error()), false;
    r->compiles = stats.compiles;
    r->found = stats.disk_hits;
    return true;
}

static void be_child(const char *number)
{
    const char *folder = getenv("CODA_CACHE_DIR");
    struct report r = {.error = ""};
    void *output = NULL;
    char path[512];
    live(&r, folder, &output);
    snprintf(path, sizeof path, "%s.%s", folder, number);
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(&r, sizeof r, 1, f) == 1 && (!r.bytes || fwrite(output, r.bytes, 1, f) == 1);
    _exit(f && !fclose(f) && good ? 0 : 1);
}

/* ---- All of them ---- */

static pid_t start(int number, const char *folder, int gate)
{
    char text[16];
    pid_t child = fork();
    if (child) return child;
    snprintf(text, sizeof text, "%d", number);
    setenv("CODA_COLD", text, 1);
    setenv("CODA_CACHE_DIR", folder, 1);
    dup2(gate, STDIN_FILENO);
    execl("/proc/self/exe", "gpu_tests", "cold", (char *)NULL);
    _exit(127);
}

/* A process's report and output, malloc'd in one block. */
static struct report *take(int number, const char *folder)
{
    char path[512];
    struct stat st;
    snprintf(path, sizeof path, "%s.%d", folder, number);
    FILE *f = stat(path, &st) ? NULL : fopen(path, "rb");
    struct report *r = f ? calloc(1, (size_t)st.st_size + sizeof *r) : NULL;
    if (r && fread(r, 1, (size_t)st.st_size, f) != (size_t)st.st_size) free(r), r = NULL;
    if (f) fclose(f);
    unlink(path);
    return r;
}

static bool start_all(const char *folder)
{
    int gate[2], status;
    pid_t child[PROCESSES];
    if (pipe2(gate, O_CLOEXEC)) return false;
    fflush(stdout);
    for (int i = 0; i < PROCESSES; i++) child[i] = start(i, folder, gate[0]);
    close(gate[0]);
    sleep(1); /* most have their context by then; who comes later is cold all the same */
    close(gate[1]);
    bool good = true;
    for (int i = 0; i < PROCESSES; i++)
        good = waitpid(child[i], &status, 0) == child[i] && status == 0 && good;
    return good;
}

static int check(const char *folder, bool cold)
{
    uint64_t compiles = 0, found = 0;
    int kernels = 0;
    bool good = start_all(folder), same = true;
    struct report *first = NULL;
    char error[256] = "";
    for (int i = 0; i < PROCESSES; i++) {
        struct report *r = take(i, folder);
        if (!r || r->error[0] || !r->bytes)
            snprintf(error, sizeof error, "%s", r ? r->error : "no report"), good = false;
        else {
            compiles += r->compiles, found += r->found, kernels = r->kernels;
            if (first) same = same && r->bytes == first->bytes && !memcmp(r + 1, first + 1, r->bytes);
        }
        if (!first) first = r;
        else free(r);
    }
    free(first);
    uint64_t want = cold ? (uint64_t)kernels : 0;
    good = good && same && kernels && compiles == want && found == (uint64_t)kernels * PROCESSES - want;
    return gpu_case(good, "cold", "%d processes, %s: %d kernels, %d compiled, %d found, outputs %s%s%s",
                    PROCESSES, cold ? "cold" : "warm", kernels, (int)compiles, (int)found,
                    same ? "bit-equal" : "DIFFER", error[0] ? ": " : "", error);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

int gpu_cold(void)
{
    const char *number = getenv("CODA_COLD"), *tmp = getenv("TMPDIR");
    char folder[256];
    if (number) be_child(number);
    snprintf(folder, sizeof folder, "%s/coda-cold-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    if (!mkdtemp(folder)) return gpu_case(false, "cold", "%s: %s", folder, strerror(errno));
    int failed = check(folder, true);
    failed += check(folder, false);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return failed;
}
