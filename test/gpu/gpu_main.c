/*
 * gpu_main.c -- runs the GPU tests and writes the stamp that says so.
 *
 *     gpu_tests [--stamp FILE --digest HEX] [NAME...]
 *
 * On the driver of test/fake/dry.c each test plans and compiles all that it would on a card, into the
 * process's cache; nothing runs, and so nothing is judged but that every kernel compiles.
 *
 * A file test/gpu/gpu_NAME.c defines int gpu_NAME(void); nothing else is registered: gpu_list.h is made
 * from the file names. With names, only those tests run, and no stamp is written. Several tests run at
 * once, each in its own process, and the longest in several, some behind all others; each prints when it
 * has ended, with its seconds. SIGTERM, as `timeout` sends it, ends those that still run: they print what
 * they have and have failed. One test alone runs in this process, where debuggers and sanitizers look.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "coda.h"
#include "gpu_case.h"
#include "util_device.h"

#define GPU_TEST(name) int gpu_##name(void);
#include "gpu_list.h"
#undef GPU_TEST

static const struct {
    const char *name;
    int (*run)(void);
} tests[] = {
#define GPU_TEST(name) {#name, gpu_##name},
#include "gpu_list.h"
#undef GPU_TEST
    {NULL, NULL}};

enum { TESTS = sizeof tests / sizeof *tests - 1 };

/* Tests whose cases are shared out among processes of their own. */
static const struct {
    const char *name;
    int shares;
} wide[] = {{"attention", 4}, {"graph", 4}, {"families", 3}, {"unusual", 2}, {"packed", 4}};

enum { MOST_SHARES = 4, MOST_PROCESSES = TESTS * MOST_SHARES };

/* Each of these runs alone, in this order, when all others have ended: ranks that share a GPU wait for each
 * other thousands of times, which takes minutes between other processes' turns, and have deadlines. */
static const char *const quiet[] = {"exchange", "ends"};

enum { PHASES = 1 + (int)(sizeof quiet / sizeof *quiet) };

static int share, shares = 1; /* which of how many this process is */

static struct result {
    int passed, failed, skipped;
    int64_t compiled, found, broken; /* kernels, of the process's cache; those that did not compile */
    bool dry;
    char without[32]; /* the case that was skipped last */
} * result, *all;     /* of the test that runs here; of each test, in memory that processes share */

int gpu_case(bool good, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s %s: ", good ? "ok    " : device_dry() ? "unseen" : "FAILED", name);
    good = good || device_dry();
    vprintf(format, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
    result->passed += good;
    result->failed += !good;
    return !good;
}

bool gpu_mine(int i) { return i % shares == share; }

int gpu_skip(const char *name, const char *why)
{
    printf("skipped %s: %s\n", name, why);
    result->skipped++;
    snprintf(result->without, sizeof result->without, "%s", name);
    return 0;
}

static bool chosen(const char *name, char **names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return n == 0;
}

/* Copies the lines of coda_info_print that name the hardware and its software. */
static void write_machine(FILE *f)
{
    char info[4096] = "";
    coda_info_print(info, sizeof info);
    for (char *line = strtok(info, "\n"); line; line = strtok(NULL, "\n"))
        if (!strncmp(line, "device:", 7) || !strncmp(line, "driver:", 7) || !strncmp(line, "nvrtc:", 6))
            fprintf(f, "%s\n", line);
}

static int write_stamp(const char *path, const char *digest, struct result sum)
{
    char date[32];
    time_t now = time(NULL);
    FILE *f = fopen(path, "w");
    if (!f) return perror(path), -1;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    fprintf(f, "digest: %s\n", digest);
    write_machine(f);
    fprintf(f, "date: %s\npassed: %d\nfailed: %d\n", date, sum.passed, sum.failed);
    for (int i = 0; i < MOST_PROCESSES; i++)
        if (all[i].skipped) fprintf(f, "skipped: %s\n", all[i].without);
    return fclose(f);
}

/* ---- One test, and several at once ---- */

static void count_kernels(struct result *r)
{
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    r->dry = device_dry();
    if (coda_cache_stats_get(NULL, &s)) return;
    r->compiled += (int64_t)s.compiles;
    r->found += (int64_t)(s.disk_hits + s.overlay_hits + s.bundle_hits);
    r->broken += (int64_t)s.compile_failures;
}

static void run(int test, struct result *to)
{
    result = to;
    int failures = tests[test].run();
    count_kernels(result);
    if (failures > result->failed || (shares == 1 && result->passed + result->failed + result->skipped == 0))
        gpu_case(false, tests[test].name, "%d failures outside of any case", failures);
}

struct process {
    int test, share;
    pid_t pid;
    FILE *output;
    double began; /* s */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int shares_of(int test)
{
    for (int i = 0; i < (int)(sizeof wide / sizeof *wide); i++)
        if (!strcmp(wide[i].name, tests[test].name)) return wide[i].shares;
    return 1;
}

static void start(struct process *p, struct result *to)
{
    p->output = tmpfile();
    fflush(stdout);
    if ((p->pid = p->output ? fork() : -1)) return;
    signal(SIGTERM, SIG_DFL);
    dup2(fileno(p->output), STDOUT_FILENO);
    share = p->share, shares = shares_of(p->test);
    run(p->test, to);
    fflush(stdout);
    _exit(EXIT_SUCCESS);
}

static void copy(FILE *from)
{
    char block[4096];
    rewind(from);
    for (size_t n; (n = fread(block, 1, sizeof block, from));) fwrite(block, 1, n, stdout);
    fclose(from);
}

static void finish(struct process *p, int status, struct result *of)
{
    if (p->output) copy(p->output);
    result = of;
    if (status) gpu_case(false, tests[p->test].name, "its process ended with status 0x%x", (unsigned)status);
    printf("%s, share %d of %d: %.1f s\n", tests[p->test].name, p->share + 1, shares_of(p->test),
           seconds() - p->began);
    fflush(stdout);
    p->pid = 0;
}

static volatile sig_atomic_t stopped;

static void stop(int signal) { stopped = signal; }

/* Waits for all, and finishes each as it ends. */
static void finish_all(struct process *p, int n, struct result *of)
{
    int running = 0, status;
    for (int i = 0; i < n; i++) {
        if (p[i].pid > 0) running++;
        else finish(&p[i], -1, &of[i]);
    }
    while (running > 0) {
        pid_t pid = waitpid(-1, &status, 0);
        for (int i = 0; pid < 0 && errno == EINTR && stopped && i < n; i++)
            if (p[i].pid > 0) kill(p[i].pid, SIGKILL);
        if (pid < 0 && errno != EINTR) return;
        for (int i = 0; pid > 0 && i < n; i++)
            if (p[i].pid == pid) finish(&p[i], status, &of[i]), running--;
    }
}

static struct result sum_of(const struct result *r, int n)
{
    struct result sum = {.passed = 0};
    for (int i = 0; i < n; i++) {
        sum.passed += r[i].passed;
        sum.failed += r[i].failed;
        sum.skipped += r[i].skipped;
        sum.compiled += r[i].compiled;
        sum.found += r[i].found;
        sum.broken += r[i].broken;
        sum.dry = sum.dry || r[i].dry;
    }
    return sum;
}

/* Phase 0 is of all tests that are not `quiet`. */
static int phase_of(int test)
{
    for (int i = 1; i < PHASES; i++)
        if (!strcmp(quiet[i - 1], tests[test].name)) return i;
    return 0;
}

/* Runs, at one time, all tests of a phase; *n processes were there before. */
static void run_side_by_side(const bool *wanted, int phase, int *n)
{
    struct process process[MOST_PROCESSES];
    int first = *n;
    for (int i = 0; i < TESTS; i++) {
        for (int k = 0; wanted[i] && phase_of(i) == phase && k < shares_of(i); k++, ++*n) {
            process[*n] = (struct process){.test = i, .share = k, .began = seconds()};
            start(&process[*n], &all[*n]);
        }
    }
    finish_all(process + first, *n - first, all + first);
}

static struct result run_all(const bool *wanted, int count)
{
    int n = 0;
    struct sigaction end = {.sa_handler = stop}; /* without SA_RESTART: waiting is interrupted */
    if (count > 1) sigaction(SIGTERM, &end, NULL);
    for (int i = 0; i < TESTS && count == 1; i++)
        if (wanted[i]) run(i, &all[n++]);
    for (int phase = 0; phase < PHASES && count > 1 && !stopped; phase++) run_side_by_side(wanted, phase, &n);
    return sum_of(all, n);
}

static int print_dry(const struct result *sum)
{
    printf("a dry run of %d cases; %lld kernels do not compile\n", sum->passed, (long long)sum->broken);
    return sum->broken || sum->failed || !sum->passed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    const char *stamp = NULL, *digest = "";
    int first = 1, count = 0;
    bool wanted[TESTS];
    const char *sms = getenv("CODA_EMULATOR_SMS");
    if (sms) printf("CODA_EMULATOR_SMS=%s\n", sms); /* to repeat it, beside the seed */
    setenv("NCCL_NVLS_ENABLE", "0", 1);             /* no multicast over NVLink, on a card that is lent */
    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        if (strcmp(argv[first], "--stamp") == 0) stamp = argv[first + 1];
        if (strcmp(argv[first], "--digest") == 0) digest = argv[first + 1];
    }
    all = mmap(NULL, MOST_PROCESSES * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return perror("mmap"), EXIT_FAILURE;
    for (int i = 0; i < TESTS; i++) count += wanted[i] = chosen(tests[i].name, argv + first, argc - first);
    struct result sum = run_all(wanted, count);
    printf("%lld kernels compiled, %lld found made before\n", (long long)sum.compiled, (long long)sum.found);
    if (sum.dry) return print_dry(&sum);
    printf("%d passed, %d failed", sum.passed, sum.failed);
    if (sum.skipped) printf(", %d skipped", sum.skipped);
    putchar('\n');
    if (stamp && first == argc && write_stamp(stamp, digest, sum) != 0) return EXIT_FAILURE;
    return sum.failed || !count ? EXIT_FAILURE : EXIT_SUCCESS;
}
