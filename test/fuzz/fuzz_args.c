/*
 * fuzz_args.c -- random arguments into the tool: fuzz_args SECONDS [SEED].
 *
 * Whatever it is given, the tool ends by itself with status 0, 1 or 2, and a misuse (2) is one line that
 * begins with "coda: ", or the usage. Each case is a fork in a folder of its own, with files of every kind
 * that the tool reads, whole and harmed. Run it under address and undefined-behaviour sanitizers.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "util_random.h"

int tool_main(int argc, char **argv); /* the tool's main, renamed */

enum { MOST_ARGS = 9, SECONDS_EACH = 1200, WORD = 128 };

static const char *const commands[] = {
    "info",         "explain",     "compile",     "run",           "cache list",   "cache stat",
    "cache verify", "cache prune", "cache clear", "cache explain", "cache export", "cache import",
    "cache",        "help",        "--version",   "frobnicate",    "cache frob",   "",
    "ops",          "ops silu",
};
static const char *const words[] = {
    "--fold",
    "copy",
    "in-place",
    "none",
    "--no-fusion",
    "--fast-fp16",
    "--no-deferral",
    "--overlap",
    "--invariant",
    "--arch",
    "sm_90a",
    "sm_80",
    "sm_",
    "sm_99999999999",
    "--dot",
    "--cache-dir",
    "kept",
    "--no-cache",
    "--device",
    "cpu",
    "gpu",
    "--check",
    "--tolerance",
    "1e-3",
    "nan",
    "-1",
    "--seed",
    "18446744073709551616",
    "18446744073709551615",
    "--ints",
    "0",
    "7",
    "--input",
    "x=y.npy",
    "x=cut.npy",
    "x=",
    "=x",
    "--output",
    "y=out.npy",
    "--json",
    "--remove",
    "--max-size",
    "1K",
    "1000000000G",
    "9223372036854775807",
    "-5",
    "1.5M",
    "--older-than",
    "1d",
    "0s",
    "99999999999999999d",
    "--damaged",
    "--dry-run",
    "--keys",
    "keys",
    "--graph",
    "--c-array",
    "name",
    "1name",
    "bundle",
    "cut",
    "scale.coda",
    "bad.coda",
    "/dev/null",
    "nowhere",
    "kept/v2",
    ".",
    "--help",
    "--",
    "-",
    "-h",
    "a",
    "b",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "0123",
    "--max-size=1",
    "%s%n",
    "\n",
};

/* ---- The folder ---- */

static char folder[64] = "/tmp/coda-fuzz-XXXXXX";

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) perror(name), exit(2);
}

static void write_text(const char *name, const char *text) { write_file(name, text, strlen(text)); }

/* Lines like those of a key, and unlike them. */
static void random_key(struct random *r, char *out, int most)
{
    static const char *const line[] = {
        "coda kernel 4\n", "arch sm_90a\n",   "arch \n",     "symbol k\n", "symbol ",
        "text 12 00\n",    "nvrtc 13.0 ab\n", "option -x\n", "\n",         "%s\t\x1b[2J"};
    int n = 0;
    for (int64_t lines = random_below(r, 12); lines >= 0; lines--)
        n += snprintf(out + n, (size_t)(most - n), "%s", line[random_below(r, ARRAY_SIZE(line))]);
    for (int64_t harm = random_below(r, 4); harm > 0 && n; harm--)
        out[random_below(r, n)] = (char)(1 + random_below(r, 255));
}

/* Entries of any keys, a record of them, harmed, and an entry's bytes as what a bundle is not. */
static void fill_cache(struct random *r)
{
    static const char text[] = "tile 128x256\n";
    struct coda_cache *c =
        cache_open(&(struct cache_options){.dir = "kept", .overlays = "", .record = "keys"});
    unlink("keys");
    for (int i = 0; i < 6; i++) {
        char what[400] = "", by[400] = "";
        random_key(r, what, sizeof what);
        random_key(r, by, sizeof by);
        struct cache_key k = cache_key(random_chance(r, 60) ? CACHE_KERNEL : CACHE_TUNING, what, by);
        void *data = NULL;
        size_t size;
        k.text = i % 2 ? "__global__ void k() {}" : NULL;
        cache_put(c, &k, text, sizeof text);
        if (cache_get(c, &k, &data, &size)) free(data);
    }
    cache_close(c);
    FILE *f = random_chance(r, 50) ? fopen("keys", "r+b") : NULL;
    if (f && !fseek(f, (long)random_below(r, 300), SEEK_SET)) fputc((int)random_below(r, 256), f);
    if (f) fclose(f);
    struct entry e = {.kind = CACHE_KERNEL, .key = "k\n", .key_size = 2, .what_size = 2};
    size_t size;
    void *bytes = entry_pack(&e, &size);
    if (bytes) write_file("bundle", bytes, size), write_file("cut", bytes, size / 2);
    free(bytes);
}

static void make_folder(struct random *r)
{
    if (!mkdtemp(folder) || chdir(folder)) perror(folder), exit(2);
    setenv("CODA_CACHE_DIR", "cache", 1);
    setenv("CODA_CUDA_LIB", "/nonexistent", 1);
    setenv("CODA_LIBCUDA", "/nonexistent", 1);
    write_text("scale.coda", "%x = input f32[3,5]\n%y = scale %x {alpha=2}\noutput %y = %y\n");
    write_text("bad.coda", "%x = input f32[3,5]\n%y = matmul %x, %z\n");
    write_text("y.npy", "\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }\n");
    write_text("cut.npy", "\x93NUMPY\1");
    fill_cache(r);
}

/* ---- One case ---- */

static int split(char *line, char **out)
{
    int n = 0;
    for (char *s = strtok(line, " "); s; s = strtok(NULL, " ")) out[n++] = s;
    return n;
}

/* Arguments in `text`, pointers to them in argv; their number. */
static int draw(struct random *r, char text[64], char **argv, char noise[MOST_ARGS][WORD])
{
    int n = 0;
    argv[n++] = (char *)"coda";
    snprintf(text, 64, "%s", commands[random_below(r, ARRAY_SIZE(commands))]);
    n += split(text, argv + n);
    for (int64_t more = random_below(r, MOST_ARGS - 3); more > 0; more--) {
        char *own = noise[n];
        argv[n++] = strcpy(own, words[random_below(r, ARRAY_SIZE(words))]); /* the tool writes into it */
        if (!random_chance(r, 5)) continue;
        for (int i = 0; i < 15; i++) own[i] = (char)(1 + random_below(r, 255));
        own[15] = 0;
        for (int i = 0; i < 15; i++)
            if (own[i] == '/') own[i] = '.'; /* it stays in its folder */
    }
    argv[n] = NULL;
    return n;
}

static int run_tool(int argc, char **argv)
{
    pid_t child = fork();
    if (child < 0) perror("fork"), exit(2);
    if (!child) {
        alarm(SECONDS_EACH);
        if (!freopen("out", "w", stdout) || !freopen("err", "w", stderr) || !freopen("/dev/null", "r", stdin))
            _exit(99);
        exit(tool_main(argc, argv));
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* NULL, or what is wrong with this end. */
static const char *judge(int status)
{
    char line[4096] = "", second[16] = "";
    FILE *f = fopen("err", "r");
    if (f && fgets(line, sizeof line, f) && fgets(second, sizeof second, f)) {}
    if (f) fclose(f);
    if (status < 0 || status > 2) return "ended badly";
    if (status == 2 && !strncmp(line, "usage: ", 7)) return NULL;
    if (status && (line[0] || status == 2) && strncmp(line, "coda: ", 6)) return "fails in other words";
    if (status == 2 && second[0]) return "has more than one line to say";
    for (const char *s = line; *s; s++)
        if ((unsigned char)*s < ' ' && *s != '\n') return "lets a control character through";
    return NULL;
}

static void stop(const char *what, int status, int argc, char **argv)
{
    char line[1000];
    fprintf(stderr, "fuzz_args: the tool %s, status %d:", what, status);
    for (int i = 1; i < argc; i++) fprintf(stderr, " '%s'", argv[i]);
    fputc('\n', stderr);
    FILE *f = fopen("err", "r");
    while (f && fgets(line, sizeof line, f)) fputs(line, stderr);
    abort();
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    struct random r = {argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL)};
    time_t begin = time(NULL);
    long ends[3] = {0};
    printf("fuzz_args: seed %llu\n", (unsigned long long)r.state);
    fflush(stdout);
    make_folder(&r);
    while (difftime(time(NULL), begin) < seconds) {
        char text[64], noise[MOST_ARGS][WORD], *args[MOST_ARGS + 4];
        int n = draw(&r, text, args, noise), status = run_tool(n, args);
        const char *wrong = judge(status);
        if (wrong) stop(wrong, status, n, args);
        ends[status]++;
        if (random_chance(&r, 10)) fill_cache(&r); /* clear may have emptied it */
    }
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command)) return 1;
    printf("fuzz_args: %ld calls worked, %ld failed, %ld were misuse\n", ends[0], ends[1], ends[2]);
    return 0;
}
