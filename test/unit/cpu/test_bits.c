/*
 * test_bits.c -- the bits of a product's rows on the CPU device: the same for every number of rows, wherever
 * the row is among them, on one thread and on 64, by each set of instructions; and by all sets with FMA.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base.h"
#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST_ROWS = 65, MOST_COLUMNS = 3000, MOST_DEPTH = 4100, DEPTHS = 8, WIDTHS = 5, TYPES = 3 };
/* Short ones, odd ones, and around the blocks of K; columns of one tile, and enough for 64 threads. */
static const int64_t depths[DEPTHS] = {1, 7, 16, 300, 1024, 2047, 2049, MOST_DEPTH};
static const int64_t widths[WIDTHS] = {1, 5, 33, 516, MOST_COLUMNS};
static const coda_dtype types[TYPES] = {CODA_F32, CODA_BF16, CODA_F16};
static const char *const levels[] = {"v2", "v3", "v4"}; /* ORDER vectors */

/* Numbers in -1 .. 1. */
static void fill(coda_dtype type, void *to, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        dtype_store(type, to, i, (double)(int64_t)(seed >> 11) * 0x1p-52 - 1);
    }
}

struct operands {
    coda_dtype type;
    int64_t n, k;
    char *x, *part;     /* [MOST_ROWS][k]; the rows of this run */
    char *w;            /* [n][k] */
    char *all, *got;    /* [MOST_ROWS][n] */
    uint64_t digest;    /* of all rows of all products so far */
    const char *failed; /* what; NULL: nothing */
};

static bool multiply(struct operands *o, int64_t first, int64_t rows, int threads, char *to)
{
    char text[400];
    const char *t = dtype_name(o->type);
    coda_graph *g = NULL;
    coda_plan *p = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_run_options run = CODA_RUN_OPTIONS_INIT;
    size_t size = (size_t)dtype_bytes(o->type, 1);
    void *args[] = {o->part, o->w, to};
    opt.device = CODA_DEVICE_CPU, run.threads = threads;
    snprintf(
        text, sizeof text,
        "%%x = input %s[%lld,%lld]\n%%w = weight %s[%lld,%lld]\n%%y = matmul %%x, %%w\noutput %%y = %%y\n", t,
        (long long)rows, (long long)o->k, t, (long long)o->n, (long long)o->k);
    memcpy(o->part, o->x + (size_t)(first * o->k) * size, (size_t)(rows * o->k) * size);
    memset(to, 0xff, (size_t)(rows * o->n) * size);
    bool good = !coda_graph_parse(&g, text) && !coda_compile(&p, g, &opt) && coda_plan_workspace(p) == 0 &&
                !coda_run_shaped(p, args, NULL, NULL, NULL, &run);
    if (!good) o->failed = coda_error();
    coda_plan_free(p);
    coda_graph_free(g);
    return good;
}

/* FNV-1a */
static void add_to_digest(struct operands *o, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) o->digest = (o->digest ^ (uint8_t)o->all[i]) * 0x100000001b3u;
}

static bool rows_agree(struct operands *o, int64_t first, int64_t rows, int threads)
{
    static char what[160];
    size_t row = (size_t)o->n * (size_t)dtype_bytes(o->type, 1);
    if (!multiply(o, first, rows, threads, o->got)) return false;
    if (!memcmp(o->got, o->all + (size_t)first * row, (size_t)rows * row)) return true;
    snprintf(what, sizeof what, "%s, K %lld, N %lld: rows %lld .. %lld on %d threads have other bits",
             dtype_name(o->type), (long long)o->k, (long long)o->n, (long long)first,
             (long long)(first + rows - 1), threads);
    o->failed = what;
    return false;
}

/* In a full run each number of rows, else some; from the first row on, and up to the last one. */
static bool all_rows_agree(struct operands *o, struct random *r)
{
    static const int64_t some[] = {1, 2, 3, 4, 64};
    int counts = scale_is_full() ? MOST_ROWS : ARRAY_SIZE(some);
    if (!multiply(o, 0, MOST_ROWS, 1, o->all) || !rows_agree(o, 0, MOST_ROWS, 64)) return false;
    for (int i = 0; i < counts; i++) {
        int64_t rows = scale_is_full() ? i + 1 : some[i];
        int64_t first = random_below(r, MOST_ROWS - rows + 1);
        if (!rows_agree(o, 0, rows, 64) || !rows_agree(o, MOST_ROWS - rows, rows, 1)) return false;
        if (!rows_agree(o, first, rows, 1 + (int)random_below(r, 64))) return false;
    }
    return true;
}

/* In `make test` one in seven, by the seed; each set of instructions the same ones. */
static const char *run_products(uint64_t *digest)
{
    struct random r = {random_seed()};
    struct operands o = {.digest = 0xcbf29ce484222325u};
    o.x = malloc(sizeof(float) * MOST_ROWS * MOST_DEPTH),
    o.part = malloc(sizeof(float) * MOST_ROWS * MOST_DEPTH);
    o.w = malloc(sizeof(float) * MOST_COLUMNS * MOST_DEPTH);
    o.all = malloc(sizeof(float) * MOST_ROWS * MOST_COLUMNS);
    o.got = malloc(sizeof(float) * MOST_ROWS * MOST_COLUMNS);
    if (!o.x || !o.part || !o.w || !o.all || !o.got) o.failed = "out of memory";
    for (int i = 0; i < DEPTHS * WIDTHS * TYPES && !o.failed; i++) {
        if (!scale_takes_one_in(SANITIZED ? 41 : 7, i)) continue;
        o.k = depths[i % DEPTHS], o.n = widths[i / DEPTHS % WIDTHS], o.type = types[i / DEPTHS / WIDTHS];
        fill(o.type, o.x, MOST_ROWS * o.k, 1 + (uint64_t)i);
        fill(o.type, o.w, o.n * o.k, 1000 + (uint64_t)i);
        if (all_rows_agree(&o, &r)) add_to_digest(&o, MOST_ROWS * (size_t)(o.n * dtype_bytes(o.type, 1)));
    }
    free(o.x), free(o.part), free(o.w), free(o.all), free(o.got);
    *digest = o.digest;
    return o.failed;
}

/* ---- One process for each set of instructions, which is chosen once ---- */

struct outcome {
    uint64_t digest;
    char failed[200];
};

static struct outcome outcome_by(const char *level)
{
    struct outcome o = {.failed = "the process ended early"};
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        setenv("CODA_CPU", level, 1);
        const char *failed = run_products(&o.digest);
        snprintf(o.failed, sizeof o.failed, "%s", failed ? failed : "");
        _exit(write(ends[1], &o, sizeof o) != sizeof o);
    }
    close(ends[1]);
    if (read(ends[0], &o, sizeof o) < 0) o.digest = 0;
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return o;
}

START_TEST(rows_have_the_same_bits)
{
    struct outcome o[VECTORS_LEVELS];
    if (SANITIZED) {
        const char *failed = run_products(&o->digest);
        ck_assert_msg(!failed, "%s", failed);
        return;
    }
    for (enum vectors level = 0; level <= vectors_most(); level++) {
        o[level] = outcome_by(levels[level]);
        ck_assert_msg(!*o[level].failed, "%s: %s", levels[level], o[level].failed);
    }
    if (vectors_most() == VECTORS_V4) ck_assert(o[VECTORS_V3].digest == o[VECTORS_V4].digest);
}
END_TEST

TESTS(bits, SECONDS(3000), ONE(rows_have_the_same_bits));
