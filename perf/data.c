/*
 * data.c -- random tensors, on the device and as the reference sees them, and products in fp64.
 *
 * A tensor repeats a pool of normal numbers. The pool's length is eight times a prime, so that no two
 * rows of a matrix are the same, and every tensor of a figure has its own pool. A pool is as long as that
 * because the rounding errors of columns that repeat do not cancel: with an eighth of it, a gain's gradient
 * over 16384 tokens is off by 4.9 % in bf16, with all of it by 0.8 %, as with numbers that never repeat.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "tensor.h"

enum { POOLS = 16, POOL = 8 * 4000037, THREADS = 64 };

/* ---- Threads ---- */

struct crew {
    void (*fn)(void *, int64_t);
    void *ctx;
    int64_t n;
    atomic_llong next;
};

static void *work(void *arg)
{
    struct crew *c = arg;
    for (int64_t i; (i = atomic_fetch_add(&c->next, 1)) < c->n;) c->fn(c->ctx, i);
    return NULL;
}

void in_parallel(int64_t n, void (*fn)(void *ctx, int64_t i), void *ctx)
{
    struct crew c = {.fn = fn, .ctx = ctx, .n = n};
    pthread_t thread[THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN), started = 0;
    while (started < cores && started < THREADS && started < n)
        if (pthread_create(&thread[started], NULL, work, &c)) break;
        else started++;
    if (started == 0) work(&c);
    for (long i = 0; i < started; i++) pthread_join(thread[i], NULL);
}

/* ---- Pools ---- */

enum { PIECE = 1 << 16, PIECES = POOL / PIECE + 1 };

struct pool {
    float *values;
    int64_t pieces; /* that are filled */
};

static struct pool pools[POOLS];

static void fill_piece(void *ctx, int64_t i)
{
    struct pool *p = ctx;
    int64_t piece = p->pieces + i, from = piece * PIECE;
    uint64_t seed =
        (uint64_t)((p - pools) * PIECES + piece + 1) * 0xd1342543de82ef95u; /* far apart on the orbit */
    for (int64_t j = from; j < from + PIECE && j < POOL; j++) p->values[j] = (float)normal(&seed);
}

/* The first n numbers of a pool, which is filled as far as anybody asked. */
static const float *pool_of(int index, int64_t n)
{
    struct pool *p = &pools[index % POOLS];
    int64_t pieces = (n + PIECE - 1) / PIECE, more = pieces - p->pieces;
    if (!p->values) must(!(p->values = malloc(POOL * sizeof(float))), "malloc");
    if (more <= 0) return p->values;
    in_parallel(more, fill_piece, p);
    p->pieces = pieces;
    return p->values;
}

/* ---- Tensors ---- */

static float value_of(const coda_arg_info *a, double scale, float normal_value, int64_t i, int64_t ints)
{
    uint64_t seed = (uint64_t)i;
    switch (a->dtype) {
    case CODA_F32: return 0.75f + 0.25f * fabsf(normal_value);
    case CODA_I32: return (float)floor(uniform(&seed) * (double)ints);
    case CODA_F16: return float_of_f16(f16_of_float((float)(normal_value * scale)));
    case CODA_F8E4M3: return (float)double_of_f8(f8_of_double(normal_value * scale));
    case CODA_I8: return rintf(fminf(fmaxf(32 * normal_value, -127), 127));
    default: return float_of_bits((uint32_t)bf16_of_float((float)(normal_value * scale)) << 16);
    }
}

struct making {
    struct tensor *t;
    const coda_arg_info *a;
    const float *from;
    double scale;
    int64_t ints;
};

static void make_piece(void *ctx, int64_t piece)
{
    const struct making *m = ctx;
    for (int64_t i = piece * PIECE; i < (piece + 1) * PIECE && i < m->t->period; i++)
        m->t->values[i] = value_of(m->a, m->scale, m->from[i], i, m->ints);
}

void tensor_make(struct tensor *t, const coda_arg_info *a, int pool, int64_t ints)
{
    snprintf(t->name, sizeof t->name, "%s", a->name);
    t->dtype = a->dtype;
    t->copies = 1;
    t->count = element_count(a);
    t->columns = a->rank > 1 ? a->dims[a->rank - 1] : 1;
    t->step = (t->count * dtype_bytes(a->dtype) + 255) / 256 * 256;
    t->period = t->count < POOL ? t->count : POOL;
    if (a->kind == CODA_ARG_OUTPUT) return;
    bool weight = a->kind == CODA_ARG_WEIGHT && a->rank > 1 && dtype_bytes(a->dtype) > 1;
    double scale = weight ? 1 / sqrt((double)t->columns) : 1;
    must(!(t->values = malloc((size_t)t->period * sizeof(float))), "malloc");
    struct making m = {t, a, pool_of(pool, t->period), scale, ints};
    in_parallel(t->period / PIECE + 1, make_piece, &m);
    t->scalar = a->kind == CODA_ARG_SCALAR;
}

void tensor_repeat(struct tensor *t, const uint8_t *bytes, int64_t period)
{
    t->period = t->count < period ? t->count : period;
    float *values = realloc(t->values, (size_t)t->period * sizeof(float));
    must(!values, "realloc");
    for (int64_t i = 0; i < t->period; i++) values[i] = bytes[i];
    t->values = values;
}

struct storing {
    const struct tensor *t;
    void *host;
};

static void store_piece(void *ctx, int64_t piece)
{
    const struct storing *s = ctx;
    for (int64_t i = piece * PIECE; i < (piece + 1) * PIECE && i < s->t->period; i++)
        element_set(s->t->dtype, s->host, i, s->t->values[i]);
}

void tensor_fill(const struct tensor *t, const struct machine *m, int copies)
{
    size_t size = dtype_bytes(t->dtype), have = (size_t)t->period * size;
    size_t all = (size_t)t->count * size;
    void *host = malloc(have);
    must(!host, "malloc");
    in_parallel(t->period / PIECE + 1, store_piece, &(struct storing){t, host});
    must(m->upload(t->at, host, have), "cuMemcpyHtoD");
    for (size_t some; have < all; have += some) {
        some = have < all - have ? have : all - have;
        must(m->copy(t->at + have, t->at, some), "cuMemcpyDtoD");
    }
    for (int s = 1; s < copies; s++) must(m->copy(t->at + (size_t)s * t->step, t->at, all), "cuMemcpyDtoD");
    free(host);
}

void tensor_row(const struct tensor *t, int64_t row, double *out)
{
    for (int64_t i = 0; i < t->columns; i++) out[i] = tensor_at(t, row * t->columns + i);
}

/* ---- Products ---- */

typedef double vec4 __attribute__((vector_size(32), aligned(8)));
typedef float quad __attribute__((vector_size(16), aligned(4)));

/* sum[r] += x[r] . w over k columns, a multiple of four. */
static void dots(const float *w, int rows, const double *x, int64_t pitch, int64_t k, double *sum)
{
    for (int r = 0; r < rows; r++) {
        const double *row = x + r * pitch;
        vec4 a = {0}, b = {0};
        for (int64_t i = 0; i + 8 <= k; i += 8) {
            a += __builtin_convertvector(*(const quad *)(w + i), vec4) * *(const vec4 *)(row + i);
            b += __builtin_convertvector(*(const quad *)(w + i + 4), vec4) * *(const vec4 *)(row + i + 4);
        }
        a += b;
        sum[r] += a[0] + a[1] + a[2] + a[3];
    }
}

struct multiplication {
    const struct tensor *w;
    const double *x;
    double *out;
    int rows;
    int64_t n;
};

enum { COLUMNS = 64 }; /* of a task */

static void multiply_columns(void *ctx, int64_t task)
{
    const struct multiplication *p = ctx;
    int64_t k = p->w->columns, period = p->w->period;
    for (int64_t j = task * COLUMNS; j < (task + 1) * COLUMNS && j < p->n; j++) {
        double sum[ROWS] = {0};
        for (int64_t done = 0, some; done < k; done += some) {
            int64_t at = (j * k + done) % period;
            some = period - at < k - done ? period - at : k - done;
            dots(p->w->values + at, p->rows, p->x + done, k, some, sum);
        }
        for (int r = 0; r < p->rows; r++) p->out[r * p->n + j] = sum[r];
    }
}

void product(const struct tensor *w, int rows, const double *x, double *out)
{
    struct multiplication p = {w, x, out, rows, w->count / w->columns};
    in_parallel((p.n + COLUMNS - 1) / COLUMNS, multiply_columns, &p);
}

enum { STRIP = 512 }; /* columns of a task of product_kn */

static void multiply_strip(void *ctx, int64_t task)
{
    const struct multiplication *p = ctx;
    int64_t from = task * STRIP, some = p->n - from < STRIP ? p->n - from : STRIP, k = p->w->count / p->n;
    double sum[ROWS][STRIP] = {{0}};
    for (int64_t i = 0; i < k; i++) {
        const float *values = p->w->values;
        int64_t at = (i * p->n + from) % p->w->period, whole = p->w->period - at;
        for (int r = 0; r < p->rows; r++) {
            double x = p->x[r * k + i];
            for (int64_t j = 0; j < some && j < whole; j++) sum[r][j] += x * values[at + j];
            for (int64_t j = whole; j < some; j++) sum[r][j] += x * values[j - whole];
        }
    }
    for (int r = 0; r < p->rows; r++)
        for (int64_t j = 0; j < some; j++) p->out[r * p->n + from + j] = sum[r][j];
}

void product_kn(const struct tensor *w, int rows, const double *x, double *out)
{
    struct multiplication p = {w, x, out, rows, w->columns};
    in_parallel((p.n + STRIP - 1) / STRIP, multiply_strip, &p);
}
