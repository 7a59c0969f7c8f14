/*
 * eval_matmul.c -- matrix products in fp64, blocked and threaded.
 *
 * Blocks of both operands are packed into panels of PANEL_M rows and PANEL_N columns, k by k, so that
 * the inner loop reads memory in order and keeps a PANEL_M x PANEL_N piece of c in registers. An
 * element's sum runs over k in order within blocks of BLOCK_K, whatever the threads do; there is no
 * fused multiply-add, so every machine gets the same bits.
 */
#include "eval.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL_M = 4, PANEL_N = 8, BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 256 };

typedef double vec4 __attribute__((vector_size(32), aligned(8), may_alias));

struct multiply_space {
    double a[BLOCK_M * BLOCK_K], b[BLOCK_N * BLOCK_K], edge[PANEL_M * PANEL_N];
};

struct multiply_space *multiply_space_new(void) { return malloc(sizeof(struct multiply_space)); }

/* Packs rows x k elements as panels: panel, then k, then the row within the panel; short panels are
 * filled with zeros. */
static void pack(double *to, int width, struct matrix m, int64_t rows, int64_t k)
{
    for (int64_t p = 0; p < rows; p += width) {
        int64_t live = MIN(rows - p, width);
        const double *from = m.at + p * m.row;
        for (int64_t l = 0; l < k; l++, to += width) {
            for (int64_t i = 0; i < live; i++) to[i] = from[i * m.row + l * m.col];
            for (int64_t i = live; i < width; i++) to[i] = 0;
        }
    }
}

/* c[PANEL_M, PANEL_N] = or += the product of two panels. */
static inline __attribute__((always_inline)) void multiply_panels(const double *a, const double *b, int64_t k,
                                                                  double *c, int64_t pitch, bool add)
{
    vec4 sum[PANEL_M][2];
    for (int i = 0; i < PANEL_M; i++)
        for (int j = 0; j < 2; j++)
            sum[i][j] = add ? *(const vec4 *)(c + i * pitch + 4 * j) : (vec4){0, 0, 0, 0};
    for (int64_t l = 0; l < k; l++, a += PANEL_M, b += PANEL_N) {
        vec4 b0 = *(const vec4 *)b, b1 = *(const vec4 *)(b + 4);
#pragma GCC unroll 4
        for (int i = 0; i < PANEL_M; i++) {
            vec4 ai = {a[i], a[i], a[i], a[i]};
            sum[i][0] += ai * b0;
            sum[i][1] += ai * b1;
        }
    }
    for (int i = 0; i < PANEL_M; i++)
        for (int j = 0; j < 2; j++) *(vec4 *)(c + i * pitch + 4 * j) = sum[i][j];
}

/* A piece at the edge goes through a buffer of full size. */
static inline __attribute__((always_inline)) void multiply_edge(double *edge, const double *a,
                                                                const double *b, int64_t k, double *c,
                                                                int64_t pitch, int64_t m, int64_t n, bool add)
{
    for (int64_t i = 0; i < m && add; i++)
        for (int64_t j = 0; j < n; j++) edge[i * PANEL_N + j] = c[i * pitch + j];
    multiply_panels(a, b, k, edge, PANEL_N, add);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) c[i * pitch + j] = edge[i * PANEL_N + j];
}

static inline __attribute__((always_inline)) void
multiply_packed(struct multiply_space *s, int64_t m, int64_t n, int64_t k, double *c, int64_t pitch, bool add)
{
    for (int64_t j = 0; j < n; j += PANEL_N) {
        for (int64_t i = 0; i < m; i += PANEL_M) {
            const double *a = s->a + i * k, *b = s->b + j * k;
            double *to = c + i * pitch + j;
            if (m - i >= PANEL_M && n - j >= PANEL_N) multiply_panels(a, b, k, to, pitch, add);
            else multiply_edge(s->edge, a, b, k, to, pitch, MIN(m - i, PANEL_M), MIN(n - j, PANEL_N), add);
        }
    }
}

static void multiply_portable(struct multiply_space *s, int64_t m, int64_t n, int64_t k, double *c,
                              int64_t pitch, bool add)
{
    multiply_packed(s, m, n, k, c, pitch, add);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void multiply_avx2(struct multiply_space *s, int64_t m, int64_t n,
                                                          int64_t k, double *c, int64_t pitch, bool add)
{
    multiply_packed(s, m, n, k, c, pitch, add);
}
#endif

static void multiply_block(struct multiply_space *s, int64_t m, int64_t n, int64_t k, double *c,
                           int64_t pitch, bool add)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        multiply_avx2(s, m, n, k, c, pitch, add);
        return;
    }
#endif
    multiply_portable(s, m, n, k, c, pitch, add);
}

static struct matrix part(struct matrix m, int64_t row, int64_t col)
{
    m.at += row * m.row + col * m.col;
    return m;
}

void multiply(struct multiply_space *s, int64_t m, int64_t n, int64_t k, struct matrix a, struct matrix b,
              double *c, int64_t pitch, bool add)
{
    struct matrix columns = {b.at, b.col, b.row};
    for (int64_t i = 0; i < m && k == 0 && !add; i++) memset(c + i * pitch, 0, sizeof *c * (size_t)n);
    for (int64_t l = 0; l < k; l += BLOCK_K) {
        int64_t depth = MIN(k - l, BLOCK_K);
        for (int64_t j = 0; j < n; j += BLOCK_N) {
            int64_t wide = MIN(n - j, BLOCK_N);
            pack(s->b, PANEL_N, part(columns, j, l), wide, depth);
            for (int64_t i = 0; i < m; i += BLOCK_M) {
                int64_t high = MIN(m - i, BLOCK_M);
                pack(s->a, PANEL_M, part(a, i, l), high, depth);
                multiply_block(s, high, wide, depth, c + i * pitch + j, pitch, add || l > 0);
            }
        }
    }
}

/* ---- The operation: one task for each block of the result ---- */

struct product {
    int64_t m, n, k, blocks_m, blocks_n;
    struct matrix a, b;
    int64_t batch_a, batch_b;
    double *c;
    atomic_bool failed;
};

static void multiply_task(void *ctx, int64_t task)
{
    struct product *p = ctx;
    int64_t i = task / p->blocks_n % p->blocks_m * BLOCK_M, j = task % p->blocks_n * BLOCK_N;
    int64_t batch = task / p->blocks_n / p->blocks_m;
    struct matrix a = part(p->a, i, 0), b = part(p->b, 0, j);
    a.at += batch * p->batch_a;
    b.at += batch * p->batch_b;
    struct multiply_space *s = multiply_space_new();
    if (!s) {
        atomic_store(&p->failed, true);
        return;
    }
    multiply(s, MIN(p->m - i, BLOCK_M), MIN(p->n - j, BLOCK_N), p->k, a, b,
             p->c + (batch * p->m + i) * p->n + j, p->n, false);
    free(s);
}

static coda_status multiply_all(const struct eval_call *c, const double *x, const double *w, bool kn)
{
    const struct node *n = c->n;
    const struct type *xt = c->type[MATMUL_X], *wt = c->type[MATMUL_W];
    bool shared = wt->rank == 2;
    int64_t m = shared ? type_rows(xt) : xt->dim[xt->rank - 2], k = type_columns(xt);
    int64_t columns = type_columns(&n->type), batches = shared ? 1 : m ? type_rows(xt) / m : 0;
    struct product p = {.m = m,
                        .n = columns,
                        .k = k,
                        .a = {x, k, 1},
                        .b = {w, kn ? columns : 1, kn ? 1 : k},
                        .batch_a = m * k,
                        .batch_b = columns * k,
                        .c = c->out};
    p.blocks_m = CEIL_DIV(m, BLOCK_M);
    p.blocks_n = CEIL_DIV(columns, BLOCK_N);
    int64_t tasks = batches * p.blocks_m * p.blocks_n;
    if (type_elements(&n->type) * k < 1 << 18)
        for (int64_t i = 0; i < tasks; i++) multiply_task(&p, i);
    else parallel_for(tasks, multiply_task, &p);
    return p.failed ? fail(CODA_E_MEMORY, "evaluate: out of memory in a matmul") : CODA_OK;
}

coda_status eval_matmul(const struct eval_call *c)
{
    return multiply_all(c, c->in[MATMUL_X], c->in[MATMUL_W], c->n->attr.matmul.kn);
}

/* ---- Operands with scales of blocks ---- */

struct blocks {
    const struct type *type;
    const double *x, *scale;
    int64_t rows; /* of a block */
    double *out;
};

/* Row `row` of all matrices, whose blocks of rows begin anew in each matrix. */
static void scale_rows(void *ctx, int64_t from, int64_t to)
{
    const struct blocks *b = ctx;
    int64_t k = type_columns(b->type), m = b->type->dim[b->type->rank - 2];
    int64_t high = CEIL_DIV(m, b->rows), wide = CEIL_DIV(k, SCALE_BLOCK);
    for (int64_t row = from; row < to; row++) {
        const double *s = b->scale + (row / m * high + row % m / b->rows) * wide;
        for (int64_t i = 0; i < k; i++) b->out[row * k + i] = b->x[row * k + i] * s[i / SCALE_BLOCK];
    }
}

static double *scaled(const struct eval_call *c, int operand, int scale, int64_t rows)
{
    const struct type *t = c->type[operand];
    double *out = malloc(sizeof *out * (size_t)MAX(type_elements(t), 1));
    struct blocks b = {t, c->in[operand], c->in[scale], rows, out};
    if (out) eval_spread(type_rows(t), type_columns(t), scale_rows, &b);
    return out;
}

coda_status eval_scaled_matmul(const struct eval_call *c)
{
    double *x = scaled(c, SCALED_MATMUL_X, SCALED_MATMUL_X_SCALE, 1);
    double *w = scaled(c, SCALED_MATMUL_W, SCALED_MATMUL_W_SCALE, SCALE_BLOCK);
    coda_status s = fail(CODA_E_MEMORY, "evaluate: out of memory in a scaled_matmul");
    if (x && w) s = multiply_all(c, x, w, false);
    free(x), free(w);
    return s;
}
