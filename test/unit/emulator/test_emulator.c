/*
 * test_emulator.c -- the SM in software: a pipeline that is right gives the right numbers under every
 * schedule, and each mistake in it is reported, or seen in the numbers. The kernels: emulator/pipeline.cu.
 */
#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_device.h"
#include "util_folder.h"
#include "util_scale.h"

enum { N = 64, K = 256, TILES = 2, EXTRA = 2 * 64 * 4, SCHEDULES = 24 };
#define WRONG "wrong numbers"

enum which { PIPELINE, EXCHANGE, SHARE, GIVE, COPIED, KERNELS };
static const struct {
    const char *symbol;
    unsigned blocks, threads, shared;
} kernels[KERNELS] = {{"pipeline", 1, 256, 43008},
                      {"exchange", 2, 64, 1024},
                      {"share", 2, 96, 17408},
                      {"give", 2, 64, 2048},
                      {"copied", 1, 128, 49152}};

struct args {
    struct jit_map a, b, out;
    float *extra;
    const uint16_t *from[2];
    uint16_t *to;
    int broken; /* by which mistake */
};

static struct jit_device device;
static struct jit_kernel *kernel;
static struct args args;
static uint16_t *gpu_a, *gpu_b, *gpu_out;
static char err[JIT_ERROR_SIZE];

/* ---- Setting up ---- */

static uint16_t bf16_of(int small)
{
    float x = (float)small;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)(bits >> 16);
}
static int value_of(int row, int k, int salt) { return (row * 3 + k * k % 7 + salt) % 3 - 1; }

static void fill(uint16_t *p, int salt)
{
    static uint16_t host[N * K];
    for (int i = 0; i < N * K; i++) host[i] = bf16_of(value_of(i / K, i % K, salt));
    ck_assert(p && device_upload(p, host, sizeof host));
}
static uint16_t *upload(int salt)
{
    uint16_t *p = device_alloc(N * K * sizeof *p);
    fill(p, salt);
    return p;
}

static void make_map(struct jit_map *out, void *address, int64_t columns, int64_t tiles, int64_t rows)
{
    struct jit_map_shape s = {.dtype = CODA_BF16, .rank = 3, .swizzle = 128};
    memcpy(s.dim, (int64_t[]){columns, rows, tiles}, 3 * sizeof *s.dim);
    memcpy(s.stride, (int64_t[]){1, columns, columns * N}, 3 * sizeof *s.stride);
    memcpy(s.box, (int[]){64, 64, 1}, 3 * sizeof *s.box);
    ck_assert_msg(!jit_map_encode(out, &s, address, err), "%s", err);
}

/* All tests take one cubin from a cache of their own, which the first one fills. */
static void open_cache(void)
{
    folder_make();
    setenv("CODA_CACHE_DIR", folder, 1);
}

static char *read_text(void)
{
    char *text = calloc(1, 1 << 15);
    FILE *f = fopen("test/emulator/pipeline.cu", "r");
    ck_assert(f && text && fread(text, 1, (1 << 15) - 1, f) > 0 && feof(f));
    fclose(f);
    return text;
}

/* Of an enumerator, each of which has a line of its own. */
static int number_of(const char *text, const char *mistake)
{
    const char *line = strstr(text, "NOTHING,");
    size_t n = strlen(mistake);
    for (int i = 0; line; i++) {
        line += strspn(line, " \n");
        if (!strncmp(line, mistake, n) && strchr(", \n", line[n])) return i;
        line = strchr(line, '\n');
    }
    ck_abort_msg("test/emulator/pipeline.cu has no %s", mistake);
    return -1;
}

static void build(enum which which, const char *mistake)
{
    const char *symbol = kernels[which].symbol;
    struct jit_cubin c;
    struct jit_options o = {.arch = device.arch};
    char *text = read_text();
    args.broken = number_of(text, mistake);
    ck_assert_msg(!jit_compile(&c, kernels->symbol, text, &o, err), "%s", err);
    int shared = (int)kernels[which].shared;
    ck_assert_msg(!jit_load(&kernel, &c, symbol, shared, &device, NULL, err), "%s: %s", mistake, err);
    jit_cubin_free(&c);
    free(text);
}

static void make_args(const char *mistake)
{
    bool outside = !strcmp(mistake, "OUTSIDE_TENSOR");
    gpu_a = upload(0);
    gpu_b = upload(1);
    gpu_out = device_alloc(TILES * N * N * 2);
    args.extra = device_alloc(EXTRA * sizeof(float));
    args.from[0] = gpu_a, args.from[1] = gpu_b, args.to = gpu_out;
    make_map(&args.a, gpu_a, K, 1, outside ? N + 64 : N);
    if (outside) jit_map_rebase(&args.a, gpu_a + 64, err);
    make_map(&args.b, gpu_b, K, 1, N);
    make_map(&args.out, gpu_out, N, TILES, N);
}

/* ---- Running ---- */

/* What each tile must be, made once. */
static const uint16_t *product_wanted(void)
{
    static uint16_t want[N * N];
    static bool known;
    for (int i = 0; i < N * N && !known; i++) {
        int sum = 0;
        for (int k = 0; k < K; k++) sum += value_of(i / N, k, 0) * value_of(i % N, k, 1);
        want[i] = bf16_of(sum);
    }
    return known = true, want;
}

static bool product_is_right(void)
{
    static uint16_t got[TILES * N * N];
    ck_assert(device_download(got, gpu_out, sizeof got));
    for (int tile = 0; tile < TILES; tile++)
        if (memcmp(got + tile * N * N, product_wanted(), N * N * sizeof *got)) return false;
    return true;
}

static bool exchange_is_right(void)
{
    static float got[EXTRA];
    ck_assert(device_download(got, args.extra, sizeof got));
    for (int i = 0; i < EXTRA; i++)
        if (got[i] != (float)((i + EXTRA / 2) % EXTRA) / 4) return false;
    return true;
}

/* Both blocks have the sums of the rows of both operands. */
static bool share_is_right(void)
{
    static float got[EXTRA];
    ck_assert(device_download(got, args.extra, sizeof got));
    for (int i = 0; i < EXTRA; i++) {
        int sum = 0, operand = i / N % 4;
        for (int k = 0; k < K && operand < 2; k++) sum += value_of(i % N, k, operand);
        if (got[i] != (float)sum) return false;
    }
    return true;
}

/* What is wrong, in err; NULL if all is right. */
static const char *run_as(enum which which, bool early)
{
    static bool (*const is_right[KERNELS])(void) = {product_is_right, exchange_is_right, share_is_right,
                                                    exchange_is_right, product_is_right};
    struct jit_launch l = {kernels[which].blocks, kernels[which].threads, kernels[which].shared, early};
    device_fill(gpu_out, 0xff, TILES * N * N * 2);
    device_fill(args.extra, 0xff, EXTRA * sizeof(float));
    if (jit_launch(kernel, &l, &args, offsetof(struct args, broken) + sizeof args.broken, NULL, err))
        return err;
    return is_right[which]() ? NULL : WRONG;
}
static const char *run(enum which which) { return run_as(which, false); }

static const struct mistake {
    const char *name, *report; /* one of several words, separated by | */
    enum which which;
} mistakes[] = {
    {"NO_INIT_FENCE", "completes on an mbarrier that no fence followed", PIPELINE},
    {"NO_EMPTY_WAIT",
     "where another load is on its way|where a load is on its way|"
     "which products that nobody waited for may read|one arrival more|deadlock",
     PIPELINE},
    {"LATE_LANES", "deadlock; block 0 threads", PIPELINE},
    {"NO_FULL_WAIT",
     "where a load is on its way|which products that nobody waited for may read|" WRONG "|deadlock",
     PIPELINE},
    {"OTHER_PARITY",
     "where a load is on its way|which products that nobody waited for may read|" WRONG "|deadlock",
     PIPELINE},
    {"EARLY_RELEASE", "which products that nobody waited for may read", PIPELINE},
    {"TOO_FEW_ARRIVALS", "deadlock; block 0 threads 0-0 wait at mbarrier", PIPELINE},
    {"TOO_MANY_ARRIVALS",
     "one arrival more than the 1|where another load is on its way|"
     "which products that nobody waited for may read|deadlock",
     PIPELINE},
    {"FEWER_BYTES",
     "where a load is on its way|where another load is on its way|arrivals and -|which products that nobody "
     "waited for may read",
     PIPELINE},
    {"NO_GRID_WAIT", "loads a tensor without griddepcontrol.wait", PIPELINE},
    {"NO_WGMMA_FENCE", "without wgmma.fence", PIPELINE},
    {"NO_COMMIT", "of which some are not committed", PIPELINE},
    {"WRITTEN_SUMS", "accumulator 3 was written while products were in flight", PIPELINE},
    {"EARLY_SUMS", "which products that nobody waited for may read|" WRONG, PIPELINE},
    {"NO_PROXY_FENCE", "without fence.proxy.async", PIPELINE},
    {"NO_READ_WAIT", "which a bulk store may still read", PIPELINE},
    {"NO_STORE_WAIT", "whose memory a store of thread 128 may still read", PIPELINE},
    {"NO_STORE_COMMIT", "did not commit|which a bulk store may still read", PIPELINE},
    {"OTHER_COUNT", "where others wait for", PIPELINE},
    {"MISSING_WARP", "barrier 1, where 96 of 128 came", PIPELINE},
    {"LONE_LANES", "a warp's exchange, where lanes fffffffe came|while others of its warp", PIPELINE},
    {"MIXED_LANES", "while others of its warp are at", PIPELINE},
    {"UNALIGNED", "not a multiple of 16", PIPELINE},
    {"OUTSIDE_SHARED", "byte 43008 of 43008 of its shared memory", PIPELINE},
    {"OUTSIDE_GLOBAL", "past the end of an allocation of 2048|of its shared memory",
     PIPELINE}, /* whatever lies behind it */
    {"OUTSIDE_TENSOR", "outside of any allocation", PIPELINE},
    {"OTHER_RANK", "2 coordinates for a tensor map of rank 3", PIPELINE},
    {"MANY_REGISTERS", "wait at 112 registers", PIPELINE},
    {"NO_FIRST_MEETING", WRONG, EXCHANGE},
    {"NO_LAST_MEETING", "which has ended", EXCHANGE},
    {"FOREIGN_ADDRESS", "an address of the cluster", EXCHANGE},
    {"OWN_RELEASE", "where another load is on its way|" WRONG, SHARE},
    {"BLOCK_INIT", "there is no mbarrier|that no fence followed", SHARE},
    {"OTHER_RANKS", "multicasts to ranks 0x4 of a cluster of 2", SHARE},
    {"NO_LAST_MEETING", "which has ended|is still to come", SHARE},
    {"NO_GIFT_WAIT", "is still to come|which has ended|" WRONG, GIVE},
    {"OWN_COUNT", "to an mbarrier of another", GIVE},
    {"NO_GRID_WAIT", "copies a tensor without griddepcontrol.wait", COPIED},
    {"LATE_COPY_WAIT", "where a copy is on its way|" WRONG, COPIED},
    {"NO_COPY_COMMIT", "copy is on its way|with 24 copies on their way|" WRONG, COPIED},
    {"NO_COPY_BARRIER", "where a copy is on its way|where another copy is on its way|" WRONG, COPIED},
    {"EARLY_COPY", "where a copy is on its way|" WRONG, COPIED},
    {"LEFT_COPIES", "copies on their way", COPIED},
    {"SHORT_COPY", WRONG, COPIED},
    {"COPY_OUTSIDE", "outside of any allocation", COPIED},
    {"COPY_UNALIGNED", "not a multiple of 16", COPIED},
};

static bool among(const char *text, const char *words)
{
    char word[128];
    for (const char *w = words; *w; w += *w == '|') {
        size_t n = strcspn(w, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, w);
        if (strstr(text, word)) return true;
        w += n;
    }
    return false;
}

START_TEST(right_kernels_are_right_under_every_schedule)
{
    ck_assert_msg(device_open_emulated(&device, err), "%s", err);
    make_args("NOTHING");
    for (int which = 0; which < KERNELS; which++) {
        build(which, "NOTHING");
        for (int i = 0; i < (scale_is_full() ? 5 : 2) * SCHEDULES; i++) {
            const char *what = run(which);
            ck_assert_msg(!what, "%s", what);
        }
    }
}
END_TEST

/* Some schedules hide a mistake, as real machines do; what is seen must be what it is. */
START_TEST(each_mistake_is_reported)
{
    const struct mistake *m = &mistakes[_i];
    int seen = 0;
    if (!scale_takes_one_in(4, _i)) return;
    ck_assert_msg(device_open_emulated(&device, err), "%s", err);
    make_args(m->name);
    build(m->which, m->name);
    for (int i = 0; i < SCHEDULES; i++) {
        const char *what = run(m->which);
        ck_assert_msg(!what || among(what, m->report), "%s: \"%s\" is none of \"%s\"", m->name, what,
                      m->report);
        seen += what != NULL;
    }
    ck_assert_msg(seen > 0, "%s: %d schedules hide it", m->name, SCHEDULES);
    if (getenv("CODA_TEST_VERBOSE"))
        printf("%s: seen in %d of %d schedules: %s\n", m->name, seen, SCHEDULES, err);
}
END_TEST

/* What is written to a behind an ordinary launch is there for an early one that waits, and for no other. */
START_TEST(early_loads_bring_what_was_there)
{
    ck_assert_msg(device_open_emulated(&device, err), "%s", err);
    setenv("CODA_STALE", "1", 1);
    make_args("NOTHING");
    for (int waits = 0; waits < 2; waits++) {
        build(PIPELINE, waits ? "NOTHING" : "EARLY_LOAD");
        device_fill(gpu_a, 0xff, N * K * sizeof *gpu_a);
        ck_assert_str_eq(run_as(PIPELINE, false), WRONG);
        fill(gpu_a, 0);
        const char *what = run_as(PIPELINE, true);
        if (waits) ck_assert_msg(!what, "%s", what);
        else ck_assert_str_eq(what ? what : "nothing", WRONG);
        ck_assert(!run_as(PIPELINE, false));
    }
}
END_TEST

TESTS(emulator, TAG("nvrtc"), AROUND_ALL(open_cache, folder_remove), ONE(early_loads_bring_what_was_there),
      ONE(right_kernels_are_right_under_every_schedule),
      EACH(each_mistake_is_reported, ARRAY_SIZE(mistakes)));
