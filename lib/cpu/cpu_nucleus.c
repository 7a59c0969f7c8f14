/* cpu_nucleus.c -- the least element of each row that top-k, top-p and min-p keep, on the CPU device: from a
 * sorted row, by weights in the units that kernels count in. */
#include "cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

struct nucleus_job {
    const struct cpu *cpu;
    const struct nucleus_spec *s;
    atomic_bool failed;
};

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

static float number(const struct nucleus_job *j, int i, int64_t row, float otherwise)
{
    const struct tensor_use *u = &j->s->use[i];
    float x = otherwise;
    if (u->buffer >= 0)
        cpu_read(&x, u->dtype, cpu_buffer(j->cpu, u->buffer), u->offset + row * u->stride[0], 0, 1);
    return x;
}

static uint64_t weight(float x, float most, float t)
{
    double w = x == most ? 1 : exp(((double)x - (double)most) / (double)t);
    return w > 0 ? (uint64_t)(w * 0x1p38) : 0;
}

static int64_t with_equals(const float *x, int64_t n, int64_t kept)
{
    while (kept < n && x[kept] == x[kept - 1]) kept++;
    return kept;
}

/* How many of the first `kept` reach the part p of their weights; x is in descending order. */
static int64_t reach(const float *x, int64_t kept, float t, float p)
{
    uint64_t all = 0, reached = 0;
    int64_t taken = 0;
    for (int64_t i = 0; i < kept; i++) all += weight(x[i], x[0], t);
    double part = fmax((double)p, 0) * (double)all;
    uint64_t wanted = part < 1 ? 1 : (uint64_t)part;
    while (taken < kept && reached < wanted) reached += weight(x[taken++], x[0], t);
    return taken;
}

struct limits {
    float t, k, p, min_p;
};

static struct limits limits_of(const struct nucleus_job *j, int64_t row)
{
    return (struct limits){.t = fmaxf(number(j, NUCLEUS_TEMPERATURE, row, 1), 0),
                           .k = number(j, NUCLEUS_TOP_K, row, 0),
                           .p = number(j, NUCLEUS_TOP_P, row, 1),
                           .min_p = number(j, NUCLEUS_MIN_P, row, 0)};
}

/* x is in descending order. */
static float least_of(const struct limits *l, const float *x, int64_t n)
{
    int64_t kept = n;
    if (l->k >= 1 && l->k < (float)n) kept = with_equals(x, n, (int64_t)l->k);
    if (l->p < 1) kept = with_equals(x, n, reach(x, kept, l->t, l->p));
    float least = kept < n ? x[kept - 1] : -INFINITY;
    if (!(l->min_p > 0)) return least;
    return fmaxf(least, fminf(x[0], (float)((double)x[0] + (double)l->t * log((double)l->min_p))));
}

static bool has_nan(const float *x, int64_t n)
{
    int64_t i = 0;
    while (i < n && !isnan(x[i])) i++;
    return i < n;
}

static float row_least(const struct nucleus_job *j, int64_t row, float *x)
{
    const struct tensor_use *from = &j->s->use[NUCLEUS_X];
    struct limits l = limits_of(j, row);
    int64_t n = j->s->columns;
    if (!(l.k >= 1 && l.k < (float)n) && !(l.p < 1) && !(l.min_p > 0)) return -INFINITY;
    cpu_read(x, from->dtype, cpu_buffer(j->cpu, from->buffer), from->offset + row * from->stride[0],
             from->stride[1], n);
    if (has_nan(x, n)) return NAN;
    qsort(x, (size_t)n, sizeof *x, by_size);
    return least_of(&l, x, n);
}

static void run_row(void *ctx, int64_t row)
{
    struct nucleus_job *j = ctx;
    const struct tensor_use *to = &j->s->use[NUCLEUS_LEAST];
    float *x = malloc(sizeof *x * (size_t)j->s->columns);
    if (x)
        dtype_store(CODA_F32, cpu_buffer(j->cpu, to->buffer), to->offset + row, (double)row_least(j, row, x));
    else j->failed = true;
    free(x);
}

coda_status cpu_nucleus(const struct cpu *c)
{
    struct nucleus_job j = {.cpu = c, .s = c->p->spec};
    parallel_work(j.s->rows, CPU_STEP_OPERATIONS * (double)j.s->rows * (double)j.s->columns, run_row, &j);
    if (j.failed)
        return fail(CODA_E_MEMORY, "out of memory for a row of %lld columns", (long long)j.s->columns);
    return CODA_OK;
}
