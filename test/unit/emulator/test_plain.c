/* test_plain.c -- the plain kernel that newcomers read first: it compiles, and on the SM in software its
 * products are right. The kernel: emulator/plain.cu. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit.h"
#include "util_device.h"

#include "tests.h" /* last: Check has a macro named fail */

/* As in plain.cu; tiles and steps reach past the ends. */
enum { M = 200, N = 264, K = 328, TILE = 128, BK = 64, THREADS = 384, SHARED = 3 * 256 * 128 + 32768 + 1024 };
enum { RUNS = 20 };

static char err[JIT_ERROR_SIZE];

static char *read_text(void)
{
    char *text = calloc(1, 4096);
    FILE *f = fopen("test/emulator/plain.cu", "r");
    ck_assert(f && text && fread(text, 1, 4000, f) > 0);
    fclose(f);
    return text;
}

static struct jit_cubin compile(const char *arch)
{
    struct jit_cubin c = {0};
    struct jit_options o = {.arch = arch, .no_cache = true};
    char *text = read_text();
    ck_assert_msg(!jit_compile(&c, "plain", text, &o, err), "%s", err);
    free(text);
    return c;
}

START_TEST(compiles)
{
    struct jit_cubin c = compile("sm_90a");
    ck_assert_int_eq(c.spill_bytes, 0);
    ck_assert_str_eq(c.warning, "");
    jit_cubin_free(&c);
}
END_TEST

/* Small integers, of which all sums are exact in fp32; a bf16 has their upper half. */
static int value_of(int row, int k, int salt) { return (row * 5 + k * k % 11 + salt) % 3 - 1; }

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t *upload(int rows, int salt)
{
    size_t bytes = (size_t)rows * K * sizeof(uint16_t);
    uint16_t *host = malloc(bytes), *p = device_alloc(bytes);
    ck_assert(host && p);
    for (int i = 0; i < rows * K; i++) host[i] = bf16_of((float)value_of(i / K, i % K, salt));
    ck_assert(device_upload(p, host, bytes));
    free(host);
    return p;
}

static struct jit_map map_of(void *address, int columns, int rows, int box_rows)
{
    struct jit_map map;
    struct jit_map_shape s = {.dtype = CODA_BF16, .rank = 3, .swizzle = 128};
    memcpy(s.dim, (int64_t[]){columns, rows, 1}, 3 * sizeof *s.dim);
    memcpy(s.stride, (int64_t[]){1, columns, (int64_t)columns * rows}, 3 * sizeof *s.stride);
    memcpy(s.box, (int[]){BK, box_rows, 1}, 3 * sizeof *s.box);
    ck_assert_msg(!jit_map_encode(&map, &s, address, err), "%s", err);
    return map;
}

static void make_wanted(uint16_t *want)
{
    for (int i = 0; i < M * N; i++) {
        int sum = 0;
        for (int k = 0; k < K; k++) sum += value_of(i / N, k, 0) * value_of(i % N, k, 1);
        want[i] = bf16_of((float)sum);
    }
}

static void check(const uint16_t *c, const uint16_t *want)
{
    static uint16_t got[M * N];
    ck_assert(device_download(got, c, sizeof got));
    for (int i = 0; i < M * N; i++) ck_assert_msg(got[i] == want[i], "[%d, %d]", i / N, i % N);
}

START_TEST(multiplies)
{
    static uint16_t want[M * N];
    struct jit_device device;
    struct jit_kernel *kernel;
    make_wanted(want);
    ck_assert_msg(device_open_emulated(&device, err), "%s", err);
    struct jit_cubin cubin = compile(device.arch);
    ck_assert_msg(!jit_load(&kernel, &cubin, "plain", SHARED, &device, NULL, err), "%s", err);
    uint16_t *a = upload(M, 0), *b = upload(N, 1), *c = device_alloc(M * N * sizeof *c);
    struct jit_map args[] = {map_of(a, K, M, TILE), map_of(b, K, N, TILE), map_of(c, N, M, 16)};
    struct jit_launch l = {(M + TILE - 1) / TILE * ((N + TILE - 1) / TILE), THREADS, SHARED, false};
    for (int i = 0; i < RUNS; i++) {
        device_fill(c, 0xff, M * N * sizeof *c);
        ck_assert_msg(!jit_launch(kernel, &l, args, sizeof args, NULL, err), "%s", err);
        check(c, want);
    }
    jit_unload(kernel);
    jit_cubin_free(&cubin);
}
END_TEST

TESTS(plain, TAG("nvrtc"), ONE(compiles), ONE(multiplies));
