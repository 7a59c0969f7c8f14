/*
 * test_dot.c -- products along K by each set of instructions that this machine has: against sums in double,
 * and their bits, which depend on a row and a column alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dot.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST_ROWS = 65, MOST_COLUMNS = 33 };
static const int64_t depths[] = {1, 7, 8, 15, 300, 2047, 2049, 4100}, widths[] = {1, 3, 5, 16, MOST_COLUMNS};
static const coda_dtype types[] = {CODA_F32, CODA_BF16, CODA_F16};

/* Numbers in -1 .. 1, the same ones for a seed. */
static void fill(coda_dtype type, void *to, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        dtype_store(type, to, i, (double)(int64_t)(seed >> 11) * 0x1p-52 - 1);
    }
}

/* a [m][k], b [n][k], each row `apart` elements longer than k, and room for c [m][n]. */
struct product {
    struct dot d;
    float *a, *c;
    void *b;
};

static struct product make(coda_dtype type, int64_t m, int64_t n, int64_t k, int64_t apart)
{
    struct product p = {.d = {.m = m, .n = n, .k = k, .type = type}};
    p.d.a_pitch = p.d.b_pitch = k + apart, p.d.c_pitch = n + 1;
    p.d.a = p.a = malloc(sizeof(float) * (size_t)(m * (k + apart) + 1));
    p.d.b = p.b = malloc((size_t)dtype_bytes(type, 1) * (size_t)(n * (k + apart) + 1));
    p.d.c = p.c = malloc(sizeof(float) * (size_t)(m * (n + 1) + 1));
    ck_assert(p.a && p.b && p.c);
    fill(CODA_F32, p.a, m * (k + apart), 1 + (uint64_t)k);
    fill(type, p.b, n * (k + apart), 2 + (uint64_t)n);
    return p;
}

static void drop(struct product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
}

static double exact(const struct dot *d, int64_t i, int64_t j, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t k = 0; k < d->k; k++) {
        double x = (double)d->a[i * d->a_pitch + k] * dtype_load(d->type, d->b, j * d->b_pitch + k);
        sum += x;
        *size += x * x;
    }
    return sum;
}

/* ---- Numbers ---- */

/* Rounding errors of K products add up as a walk does: to 2^-23 of its length, and a few of the last sums. */
static void compare(const struct dot *d, enum vectors level)
{
    dot_by(level, d);
    for (int64_t i = 0; i < d->m; i++)
        for (int64_t j = 0; j < d->n; j++) {
            double size, want = exact(d, i, j, &size), got = d->c[i * d->c_pitch + j];
            double allowed = 0x1p-23 * (fabs(want) + 3 * sqrt(size) * fmax(1, log2((double)d->k)));
            ck_assert_msg(fabs(got - want) <= allowed,
                          "v%d, %lld x %lld x %lld: c[%lld][%lld] is %.9g, not %.9g", level + 2,
                          (long long)d->m, (long long)d->n, (long long)d->k, (long long)i, (long long)j, got,
                          want);
        }
}

START_TEST(sums)
{
    coda_dtype type = types[_i % ARRAY_SIZE(types)];
    enum vectors level = _i / ARRAY_SIZE(types);
    if (level > vectors_most()) return;
    for (int k = 0; k < ARRAY_SIZE(depths); k++)
        for (int n = 0; n < ARRAY_SIZE(widths); n++) {
            struct product p = make(type, 1 + (3 * k + n) % 9, widths[n], depths[k], _i % 3);
            compare(&p.d, level);
            drop(&p);
        }
}
END_TEST

START_TEST(nothing)
{
    for (enum vectors level = 0; level <= vectors_most(); level++) {
        float c[6] = {1, 2, 3, 4, 5, 6};
        struct dot d = {.m = 2, .n = 2, .k = 0, .type = CODA_F32, .c = c, .c_pitch = 3};
        dot_by(level, &d);
        ck_assert(c[0] == 0 && c[1] == 0 && c[2] == 3 && c[3] == 0 && c[4] == 0 && c[5] == 6);
        d.m = 0, c[0] = 7;
        dot_by(level, &d);
        d.m = 2, d.n = 0;
        dot_by(level, &d);
        ck_assert(c[0] == 7);
    }
}
END_TEST

/* What lies behind a row comes into no sum, nor do zeros of the tail meet an infinity. */
START_TEST(unusual_numbers)
{
    for (enum vectors level = 0; level <= vectors_most(); level++)
        for (int t = 0; t < ARRAY_SIZE(types); t++)
            for (int64_t k = 1; k <= 17; k++) {
                struct product p = make(types[t], 5, 5, k, 3);
                for (int64_t r = 0; r < 5; r++)
                    for (int64_t i = k; i < k + 3; i++) {
                        p.a[r * (k + 3) + i] = INFINITY;
                        dtype_store(types[t], p.b, r * (k + 3) + i, (double)NAN);
                    }
                p.a[0] = INFINITY, p.a[(k + 3) + k - 1] = NAN;
                dtype_store(types[t], p.b, 2 * (k + 3), 0);
                dot_by(level, &p.d);
                ck_assert(isnan(p.c[2]) && isnan(p.c[6 + 1]) && isinf(p.c[1]));
                for (int64_t i = 2; i < 5; i++)
                    for (int64_t j = 0; j < 5; j++) ck_assert(isfinite(p.c[i * 6 + j]));
                drop(&p);
            }
}
END_TEST

/* Every number of 16 bits, subnormal ones too, is widened exactly. */
START_TEST(all_numbers_of_16_bits)
{
    static uint16_t b[65536];
    static float c[65536];
    const float one = 1;
    for (int i = 0; i < 65536; i++) b[i] = (uint16_t)i;
    for (enum vectors level = 0; level <= vectors_most(); level++)
        for (int t = 1; t < ARRAY_SIZE(types); t++) {
            struct dot d = {1, 65536, 1, &one, 1, types[t], b, 1, c, 65536};
            dot_by(level, &d);
            for (int i = 0; i < 65536; i++) {
                double want = dtype_load(types[t], b, i);
                ck_assert_msg(isnan(want) ? isnan(c[i]) : c[i] == want, "v%d: %#x is %g, not %g", level + 2,
                              i, (double)c[i], want);
            }
        }
}
END_TEST

/* The operands end where their memory does. */
START_TEST(nothing_is_read_behind_the_end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = 4 * page;
    char *memory[2];
    for (int i = 0; i < 2; i++) {
        memory[i] = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert(memory[i] != MAP_FAILED && !mprotect(memory[i] + room, page, PROT_NONE));
    }
    for (enum vectors level = 0; level <= vectors_most(); level++)
        for (int t = 0; t < ARRAY_SIZE(types); t++)
            for (int64_t k = 1; k <= 33; k++) {
                float c[6 * 7];
                struct dot d = {
                    .m = 1 + k % 6, .n = 1 + k % 7, .k = k, .type = types[t], .c = c, .c_pitch = 7};
                d.a = (float *)(memory[0] + room) - d.m * k, d.a_pitch = d.b_pitch = k;
                d.b = memory[1] + room - d.n * k * dtype_bytes(types[t], 1);
                dot_by(level, &d);
                ck_assert(c[0] == 0);
            }
    for (int i = 0; i < 2; i++) munmap(memory[i], room + page);
}
END_TEST

/* ---- Bits ---- */

static void same_rows(const struct product *all, enum vectors level, int64_t m, int64_t columns)
{
    float c[MOST_ROWS * MOST_COLUMNS];
    struct dot part = all->d;
    part.m = m, part.n = columns, part.c = c, part.c_pitch = columns;
    dot_by(level, &part);
    for (int64_t i = 0; i < m; i++)
        ck_assert_msg(!memcmp(c + i * columns, all->c + i * all->d.c_pitch, sizeof(float) * (size_t)columns),
                      "v%d: row %lld of %lld x %lld x %lld has other bits", level + 2, (long long)i,
                      (long long)m, (long long)columns, (long long)all->d.k);
}

/* Whatever other rows and columns there are. */
START_TEST(a_row_is_alone)
{
    static const int64_t some[] = {1, 2, 3, 4, 5, 6, 7, 11, 16, 17, 64};
    int64_t k = depths[_i];
    if (SANITIZED && !scale_takes_half(_i)) return;
    for (enum vectors level = 0; level <= vectors_most(); level++)
        for (int t = 0; t < ARRAY_SIZE(types); t++) {
            struct product all = make(types[t], MOST_ROWS, MOST_COLUMNS, k, 0);
            dot_by(level, &all.d);
            for (int n = 0; n < ARRAY_SIZE(widths); n++)
                for (int m = 0; m < (scale_is_full() ? MOST_ROWS : ARRAY_SIZE(some)); m++)
                    same_rows(&all, level, scale_is_full() ? m + 1 : some[m], widths[n]);
            drop(&all);
        }
}
END_TEST

/* All that have FMA agree. */
START_TEST(instructions_agree)
{
    if (vectors_most() < VECTORS_V4) return;
    for (int t = 0; t < ARRAY_SIZE(types); t++) {
        struct product p = make(types[t], 13, 21, depths[_i], 1);
        size_t size = sizeof(float) * 13 * 22;
        float *first = malloc(size);
        memset(p.c, 0, size);
        dot_by(VECTORS_V3, &p.d);
        memcpy(first, p.c, size);
        dot_by(VECTORS_V4, &p.d);
        ck_assert_mem_eq(first, p.c, size);
        free(first);
        drop(&p);
    }
}
END_TEST

/* ---- Weighted rows ---- */

enum { WEIGHTED = 9, KEYS = 37, COLUMNS = 104 };

static void weigh(enum vectors level, coda_dtype type, const float *p, const void *v, int64_t first,
                  int64_t m, int64_t cut, float *o)
{
    struct weighted w = {
        .m = m, .n = cut, .columns = COLUMNS, .p = p + first * KEYS, .p_pitch = KEYS, .type = type};
    w.v = v, w.v_pitch = COLUMNS, w.o = o + first * COLUMNS, w.o_pitch = COLUMNS;
    add_weighted_by(level, &w);
    w.n = KEYS - cut, w.p += cut, w.v = (const char *)v + cut * COLUMNS * dtype_bytes(type, 1);
    add_weighted_by(level, &w);
}

/* Near sums in double; with the same bits for any rows at a time, wherever the keys are cut. */
START_TEST(weighted_rows)
{
    coda_dtype type = types[_i];
    static float p[WEIGHTED * KEYS], all[VECTORS_LEVELS][WEIGHTED * COLUMNS], o[WEIGHTED * COLUMNS];
    static uint64_t v[KEYS * COLUMNS];
    fill(CODA_F32, p, WEIGHTED * KEYS, 5);
    fill(type, v, KEYS * COLUMNS, 6);
    for (enum vectors level = 0; level <= vectors_most(); level++) {
        memset(all[level], 0, sizeof all[level]);
        weigh(level, type, p, v, 0, WEIGHTED, KEYS, all[level]);
        for (int i = 0; i < WEIGHTED * COLUMNS; i++) {
            double sum = 0;
            for (int k = 0; k < KEYS; k++)
                sum += (double)p[i / COLUMNS * KEYS + k] * dtype_load(type, v, k * COLUMNS + i % COLUMNS);
            ck_assert_msg(fabs(all[level][i] - sum) <= 2e-6, "v%d: %g, not %g", level + 2,
                          (double)all[level][i], sum);
        }
        for (int64_t m = 1; m <= 5; m++) {
            memset(o, 0, sizeof o);
            for (int64_t i = 0; i < WEIGHTED; i += m)
                weigh(level, type, p, v, i, MIN(m, WEIGHTED - i), (5 * m + i) % KEYS, o);
            ck_assert_msg(!memcmp(o, all[level], sizeof o), "v%d: %lld rows at a time have other bits",
                          level + 2, (long long)m);
        }
    }
    if (vectors_most() == VECTORS_V4) ck_assert_mem_eq(all[VECTORS_V3], all[VECTORS_V4], sizeof all[0]);
}
END_TEST

TESTS(dot, SECONDS(120), EACH(sums, ARRAY_SIZE(types) * VECTORS_LEVELS), ONE(nothing), ONE(unusual_numbers),
      ONE(all_numbers_of_16_bits), ONE(nothing_is_read_behind_the_end),
      EACH(a_row_is_alone, ARRAY_SIZE(depths)), EACH(instructions_agree, ARRAY_SIZE(depths)),
      EACH(weighted_rows, ARRAY_SIZE(types)));
