/*
 * cpu_gemm.c -- the CPU device's matrix product: acc[m][n] = sum_k a[m][k] b[n][k] in floats, then
 * the epilogue's steps row by row.
 *
 * B is packed once into panels of 8 columns, A for each block of rows into panels of 4 rows, both K
 * major, so that the inner loop is a rank-1 update of a 4 x 8 block in registers. K is cut into
 * blocks of 256, whose sums are added in order.
 */
#include "cpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL_ROWS = 4, PANEL_COLUMNS = 8, BLOCK_K = 256, BLOCK_ROWS = 32 };

typedef float lanes __attribute__((vector_size(16), may_alias));

struct gemm_job {
    const struct cpu *cpu;
    int64_t batch;
    int64_t m, n, k; /* of one batch */
    int64_t panels;  /* of B */
    int64_t parts;   /* of the rows, each for a thread ... */
    int64_t rows;    /* ... of so many; the last ones may have fewer, or none */
    float *b;        /* [k / BLOCK_K][panel][BLOCK_K][PANEL_COLUMNS], columns past N are 0 */
    atomic_bool failed;
};

/* ---- Packing ---- */

/* Rows first .. first + width - 1 of an operand's [row][k], k0 .. k0 + depth - 1, to [k][width]; rows
 * from `end` on are 0. */
static void pack(float *out, const void *base, const struct tensor_use *x, int64_t batch, int64_t first,
                 int width, int64_t end, int64_t k0, int64_t depth)
{
    float run[BLOCK_K] = {0};
    for (int r = 0; r < width; r++) {
        int64_t at = x->offset + batch * x->batch + (first + r) * x->row + k0 * x->k;
        bool inside = first + r < end;
        if (inside) cpu_read(run, x->dtype, base, at, x->k, depth);
        for (int64_t k = 0; k < depth; k++) out[k * width + r] = inside ? run[k] : 0;
    }
}

static float *b_panel(const struct gemm_job *j, int64_t panel, int64_t k0)
{
    int64_t depth = MIN(BLOCK_K, j->k - k0);
    return j->b + (k0 * j->panels + panel * depth) * PANEL_COLUMNS;
}

static void pack_b_panel(void *ctx, int64_t panel)
{
    struct gemm_job *j = ctx;
    const struct tensor_use *b = &j->cpu->p->b;
    const void *base = cpu_buffer(j->cpu, b->buffer);
    for (int64_t k0 = 0; k0 < j->k; k0 += BLOCK_K)
        pack(b_panel(j, panel, k0), base, b, j->batch, panel * PANEL_COLUMNS, PANEL_COLUMNS, j->n, k0,
             MIN(BLOCK_K, j->k - k0));
}

/* ---- Product ---- */

/* c[4][8], rows `pitch` apart, += a b over one block of K. */
static void multiply(int64_t depth, const float *a, const float *b, float *c, int64_t pitch)
{
    lanes sum[PANEL_ROWS][2] = {{{0}}};
    for (int64_t k = 0; k < depth; k++, a += PANEL_ROWS, b += PANEL_COLUMNS) {
        lanes left = *(const lanes *)b, right = *(const lanes *)(b + 4);
#pragma GCC unroll 4
        for (int r = 0; r < PANEL_ROWS; r++) {
            sum[r][0] += a[r] * left;
            sum[r][1] += a[r] * right;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < PANEL_ROWS; r++) {
        lanes *to = (lanes *)(c + r * pitch);
        to[0] += sum[r][0];
        to[1] += sum[r][1];
    }
}

/* acc[BLOCK_ROWS][pitch] of the rows from m0 on; a is room for one K block of A. */
static void accumulate(const struct gemm_job *j, int64_t m0, int64_t k0, float *a, float *acc, int64_t pitch)
{
    const struct tensor_use *x = &j->cpu->p->a;
    const void *base = cpu_buffer(j->cpu, x->buffer);
    int64_t depth = MIN(BLOCK_K, j->k - k0), rows = MIN(BLOCK_ROWS, j->m - m0);
    for (int64_t r = 0; r < rows; r += PANEL_ROWS)
        pack(a + r * depth, base, x, j->batch, m0 + r, PANEL_ROWS, j->m, k0, depth);
    for (int64_t panel = 0; panel < j->panels; panel++)
        for (int64_t r = 0; r < rows; r += PANEL_ROWS)
            multiply(depth, a + r * depth, b_panel(j, panel, k0), acc + r * pitch + panel * PANEL_COLUMNS,
                     pitch);
}

/* The rows from m0 to `end`, or the first BLOCK_ROWS of them. */
static void run_block(const struct gemm_job *j, struct cpu_frame *f, int64_t m0, int64_t end, float *a,
                      float *acc)
{
    int64_t pitch = j->panels * PANEL_COLUMNS;
    memset(acc, 0, sizeof *acc * (size_t)(BLOCK_ROWS * pitch));
    for (int64_t k0 = 0; k0 < j->k; k0 += BLOCK_K) accumulate(j, m0, k0, a, acc, pitch);
    for (int64_t m = m0; m < MIN(m0 + BLOCK_ROWS, end); m++)
        cpu_frame_run(f, j->batch * j->m + m, acc + (m - m0) * pitch);
}

static void run_rows(void *ctx, int64_t part)
{
    struct gemm_job *j = ctx;
    int64_t pitch = j->panels * PANEL_COLUMNS, first = part * j->rows, end = MIN(first + j->rows, j->m);
    struct cpu_frame *f = cpu_frame_new(j->cpu);
    float *a = malloc(sizeof *a * BLOCK_ROWS * BLOCK_K);
    float *acc = malloc(sizeof *acc * (size_t)(BLOCK_ROWS * pitch + 1));
    if (f && a && acc) {
        if (cpu_parts(j->cpu->p)) cpu_frame_begin_part(f);
        for (int64_t m0 = first; m0 < end; m0 += BLOCK_ROWS) run_block(j, f, m0, end, a, acc);
        if (cpu_parts(j->cpu->p)) cpu_frame_end_part(f, j->batch * j->parts + part);
    } else {
        j->failed = true;
    }
    free(acc);
    free(a);
    free(f);
}

coda_status cpu_gemm(const struct cpu *c)
{
    const struct program *p = c->p;
    struct gemm_job j = {.cpu = c, .m = p->dim[1], .n = p->dim[2], .k = p->k};
    j.panels = CEIL_DIV(j.n, PANEL_COLUMNS);
    j.parts = cpu_parts(p) ? cpu_parts(p) : CEIL_DIV(j.m, BLOCK_ROWS);
    j.rows = cpu_parts(p) ? CEIL_DIV(j.m, j.parts) : BLOCK_ROWS;
    j.b = malloc(sizeof(float) * (size_t)(j.panels * PANEL_COLUMNS * j.k + 1));
    if (!j.b)
        return fail(CODA_E_MEMORY, "out of memory for a weight of %lld x %lld floats", (long long)j.n,
                    (long long)j.k);
    for (j.batch = 0; j.batch < p->dim[0] && !j.failed; j.batch++) {
        if (j.batch == 0 || p->b.batch != 0) parallel_for(j.panels, pack_b_panel, &j);
        parallel_for(j.parts, run_rows, &j);
    }
    free(j.b);
    if (j.failed) return fail(CODA_E_MEMORY, "out of memory for rows of %lld columns", (long long)j.n);
    return CODA_OK;
}
