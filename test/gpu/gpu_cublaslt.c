/* gpu_cublaslt.c -- every layout, dtype and batch of the plain products. The operands are small integers,
 * so that 16-bit inputs are exact and fp32 sums too. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "jit.h"
#include "util_device.h"

static char err[JIT_ERROR_SIZE];

enum { WORKSPACE = 64 << 20 }; /* bytes */

struct lt_case {
    const char *name;
    struct jit_lt_shape s;
    int64_t a_size, b_size, d_size; /* elements */
};

static float small_integer(int64_t i) { return (float)((i * 7 + i / 13) % 9 - 4); }

static size_t put(void *to, coda_dtype t, int64_t i, float x)
{
    uint32_t bits;
    _Float16 half = (_Float16)x;
    memcpy(&bits, &x, 4);
    uint16_t top = (uint16_t)(bits >> 16);
    if (t == CODA_F32) memcpy((char *)to + 4 * i, &x, 4);
    else memcpy((char *)to + 2 * i, t == CODA_BF16 ? (void *)&top : (void *)&half, 2);
    return t == CODA_F32 ? 4 : 2;
}

static float take(const void *from, coda_dtype t, int64_t i)
{
    uint16_t bits;
    float x;
    _Float16 half;
    if (t == CODA_F32) return memcpy(&x, (const char *)from + 4 * i, 4), x;
    memcpy(&bits, (const char *)from + 2 * i, 2);
    if (t == CODA_F16) return memcpy(&half, &bits, 2), (float)half;
    uint32_t wide = (uint32_t)bits << 16;
    return memcpy(&x, &wide, 4), x;
}

static double reference(const struct jit_lt_shape *s, int64_t batch, int64_t m, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < s->k; k++) {
        int64_t a = batch * s->a_batch + (s->a_t ? k * s->lda + m : m * s->lda + k);
        int64_t b = batch * s->b_batch + (s->b_t ? k * s->ldb + n : n * s->ldb + k);
        sum += (double)small_integer(a) * small_integer(b + 5);
    }
    return sum;
}

/* The largest error relative to the largest result; infinite if anything outside D was touched. */
static double judge(const struct lt_case *c, const void *d)
{
    double worst = 0, largest = 1;
    const struct jit_lt_shape *s = &c->s;
    char *inside = calloc(1, (size_t)c->d_size);
    for (int64_t b = 0; inside && b < s->batch; b++)
        for (int64_t m = 0; m < s->m; m++)
            for (int64_t n = 0; n < s->n; n++) {
                int64_t at = b * s->d_batch + m * s->ldd + n;
                double want = reference(s, b, m, n), error = fabs(take(d, s->out, at) - want);
                inside[at] = 1;
                worst = fmax(worst, isnan(error) ? INFINITY : error);
                largest = fmax(largest, fabs(want));
            }
    for (int64_t i = 0; inside && i < c->d_size; i++)
        if (!inside[i] && take(d, s->out, i) != -77) worst = INFINITY;
    free(inside);
    return worst / largest;
}

static void *upload(coda_dtype t, int64_t n, int64_t shift, bool poison)
{
    void *host = malloc((size_t)n * 4), *device = device_alloc((size_t)n * 4);
    size_t size = 0;
    for (int64_t i = 0; i < n; i++) size = put(host, t, i, poison ? -77 : small_integer(i + shift));
    device_upload(device, host, (size_t)n * size);
    free(host);
    return device;
}

static int check_lt(const struct lt_case *c)
{
    struct jit_lt *lt;
    if (jit_lt_new(&lt, &c->s, err)) return gpu_case(false, c->name, "%s", err);
    void *a = upload(c->s.in, c->a_size, 0, false), *b = upload(c->s.in, c->b_size, 5, false);
    void *d = upload(c->s.out, c->d_size, 0, true), *work = device_alloc(WORKSPACE);
    void *host = malloc((size_t)c->d_size * 4);
    size_t bytes = (size_t)c->d_size * (c->s.out == CODA_F32 ? 4 : 2);
    bool good = !jit_lt_run(lt, a, b, d, work, NULL, err) && device_wait() && device_download(host, d, bytes);
    double error = good ? judge(c, host) : INFINITY, most = c->s.out == CODA_F32 ? 0 : ldexp(1, -8);
    free(host);
    device_free(a), device_free(b), device_free(d), device_free(work);
    jit_lt_free(lt);
    return gpu_case(error <= most, c->name, "relative error %.2e%s%s", error, good ? "" : ": ",
                    good ? "" : err);
}

/* 4097 = 2^12 + 1 is no TF32 number, so 4097 times the identity tells whether operands are rounded. */
static int check_no_tf32(void)
{
    enum { N = 16 };
    static float a[N * N], b[N * N], d[N * N];
    struct jit_lt_shape s = {CODA_F32, CODA_F32, 1, N, N, N, 0, 0, 0, N, N, N, false, false, 0, WORKSPACE};
    struct jit_lt *lt;
    for (int i = 0; i < N * N; i++) a[i] = i % (N + 1) ? 0 : 4097, b[i] = (float)(i % 7);
    if (jit_lt_new(&lt, &s, err)) return gpu_case(false, "f32 without TF32", "%s", err);
    void *da = device_alloc(sizeof a), *db = device_alloc(sizeof b), *dd = device_alloc(sizeof d);
    void *work = device_alloc(WORKSPACE);
    bool good = device_upload(da, a, sizeof a) && device_upload(db, b, sizeof b) &&
                !jit_lt_run(lt, da, db, dd, work, NULL, err) && device_wait() &&
                device_download(d, dd, sizeof d);
    int wrong = 0;
    for (int i = 0; i < N * N; i++) wrong += d[i] != 4097 * b[i % N * N + i / N];
    device_free(da), device_free(db), device_free(dd), device_free(work);
    jit_lt_free(lt);
    return gpu_case(good && !wrong, "f32 without TF32", "%d of %d wrong", wrong, N * N);
}

static int products(void)
{
#define DENSE(m, n, k) 1, m, n, k, 0, 0, 0
    static const struct lt_case cases[] = {
        {.name = "bf16",
         .s = {CODA_BF16, CODA_BF16, DENSE(96, 72, 64), 64, 64, 72, false, false, 0, WORKSPACE},
         .a_size = 96 * 64,
         .b_size = 72 * 64,
         .d_size = 96 * 72},
        {.name = "f16 to f32, b [K,N]",
         .s = {CODA_F16, CODA_F32, DENSE(40, 56, 48), 48, 64, 56, false, true, 0, WORKSPACE},
         .a_size = 40 * 48,
         .b_size = 48 * 64,
         .d_size = 40 * 56},
        {.name = "bf16 to f32, a [K,M]",
         .s = {CODA_BF16, CODA_F32, DENSE(40, 56, 48), 40, 48, 60, true, false, 0, WORKSPACE},
         .a_size = 48 * 40,
         .b_size = 56 * 48,
         .d_size = 40 * 60},
        {.name = "f32, both transposed, odd",
         .s = {CODA_F32, CODA_F32, DENSE(33, 17, 29), 33, 17, 19, true, true, 0, WORKSPACE},
         .a_size = 29 * 33,
         .b_size = 29 * 17,
         .d_size = 33 * 19},
        {.name = "f32, batches apart",
         .s = {CODA_F32, CODA_F32, 3, 5, 7, 11, 60, 80, 40, 11, 11, 7, false, false, 4, WORKSPACE},
         .a_size = 3 * 60,
         .b_size = 3 * 80,
         .d_size = 3 * 40},
        {.name = "bf16, batch over one weight",
         .s = {CODA_BF16, CODA_F32, 4, 24, 32, 64, 24 * 64, 0, 24 * 32, 64, 64, 32, false, false, 0,
               WORKSPACE},
         .a_size = 4 * 24 * 64,
         .b_size = 32 * 64,
         .d_size = 4 * 24 * 32},
        {.name = "bf16, one row of any pitch",
         .s = {CODA_BF16, CODA_F32, DENSE(1, 32, 64), 8, 64, 8, false, false, 0, WORKSPACE},
         .a_size = 64,
         .b_size = 32 * 64,
         .d_size = 32},
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) failures += check_lt(&cases[i]);
    struct jit_lt_shape empty = {.in = CODA_BF16, .out = CODA_BF16, .batch = 1, .n = 8, .k = 8};
    struct jit_lt *lt;
    coda_status status = jit_lt_new(&lt, &empty, err);
    if (!status) status = jit_lt_run(lt, NULL, NULL, NULL, NULL, NULL, err);
    failures += gpu_case(!status, "empty", "%s", status ? err : "");
    jit_lt_free(lt);
    return failures + check_no_tf32();
}

int gpu_cublaslt(void);
int gpu_cublaslt(void)
{
    struct jit_device dev;
    if (!device_open(&dev, err)) return gpu_case(false, "device", "%s", err);
    if (device_emulated(&dev)) return gpu_skip("cublaslt", "the emulator has no cuBLASLt");
    return products();
}
