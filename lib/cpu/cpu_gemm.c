/*
 * cpu_gemm.c -- the CPU device's matrix product: acc[m][n] = sum_k a[m][k] b[n][k] in floats by dot(), then
 * the epilogue's steps row by row.
 *
 * B is read where it lies if its K is contiguous; else a panel of its columns at a time is turned, or decoded
 * if it is packed. Rows go in
 * bands, whose sums are kept until all columns are there; a band is cut into blocks of rows, and into columns
 * where these are too few for all threads. How it is cut does not show in the bits: see dot.h.
 */
#include "cpu.h"
#include "dot.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ROWS = 64, LINE = 64, PANEL = 16, BAND_NUMBERS = 1 << 21, TASKS_A_THREAD = 4 };

struct gemm_job {
    const struct cpu *cpu;
    int64_t batch;
    int64_t m, n, k;     /* of one batch */
    int64_t band, first; /* rows of a band, and the first one of this */
    int64_t rows;        /* of this band */
    int64_t chunk, chunks;
    bool turned;              /* B's columns go through a panel */
    bool copied;              /* A's rows are in `a` */
    int64_t pitch;            /* of `a`, in floats */
    float *a, *acc;           /* [band][pitch], [band][n] */
    int64_t group;            /* rows of a task of the epilogue */
    int parts;                /* of all rows, for states of columns: 0: none */
    struct cpu_frame **frame; /* one for each part */
    atomic_bool failed;
};

/* ---- Operands ---- */

static const struct tensor_use *a_of(const struct gemm_job *j) { return &j->cpu->p->a.data; }
static const struct tensor_use *b_of(const struct gemm_job *j) { return &j->cpu->p->b.data; }

/* What has column n of B, counted from that column on, and at *end the first column that another has. */
static struct tensor_use part_of(const struct gemm_job *j, int64_t n, int64_t *end)
{
    const struct program *p = j->cpu->p;
    struct column_range columns = {0, 0};
    int i = p->parts;
    while (i && p->part[i - 1].first > n) i--;
    struct tensor_use b = *program_b_part(p, i, &columns);
    b.offset += j->batch * b.batch + (n - columns.first) * b.row;
    *end = columns.end;
    return b;
}

/* Rows whose pitch is a multiple of a page's would push each other out of the cache. */
static bool copies_a(const struct tensor_use *a, int64_t m)
{
    enum { PAGE_FLOATS = 1024 };
    return a->dtype != CODA_F32 || a->k != 1 || (m > 1 && a->row % PAGE_FLOATS == 0);
}

/* Multiplies a row of an operand by the scales of its blocks, if it has some. */
static void apply_scales(const struct gemm_job *j, const struct operand *o, int64_t row, float *x)
{
    if (!o->scale) return;
    const struct tensor_use *s = &j->cpu->p->port[o->scale - 1];
    const float *scale = (const float *)cpu_buffer(j->cpu, s->buffer) + s->offset + j->batch * s->batch +
                         row / o->scale_rows * s->row;
    for (int64_t k = 0; k < j->k; k++) x[k] *= scale[k / o->scale_k * s->k];
}

static void copy_rows(void *ctx, int64_t block)
{
    struct gemm_job *j = ctx;
    const struct tensor_use *a = a_of(j);
    for (int64_t r = block * BLOCK_ROWS; r < MIN((block + 1) * BLOCK_ROWS, j->rows); r++) {
        float *row = j->a + r * j->pitch;
        cpu_read(row, a->dtype, cpu_buffer(j->cpu, a->buffer),
                 a->offset + j->batch * a->batch + (j->first + r) * a->row, a->k, j->k);
        apply_scales(j, &j->cpu->p->a, j->first + r, row);
    }
}

/* Columns n .. n + PANEL - 1 of B as floats, those of one column `pitch` from those of the next. */
static void turn_panel(const struct gemm_job *j, int64_t n, float *panel, int64_t pitch)
{
    int64_t columns = MIN(PANEL, j->n - n), end;
    struct tensor_use b = part_of(j, n, &end);
    const void *base = cpu_buffer(j->cpu, b.buffer);
    float run[PANEL];
    for (int64_t c = 0; c < columns && b.row != 1; c++) {
        struct tensor_use own = part_of(j, n + c, &end);
        cpu_read_use(panel + c * pitch, &own, cpu_buffer(j->cpu, own.buffer), own.offset, own.k, j->k);
    }
    for (int64_t k = 0; k < j->k && b.row == 1; k++) {
        cpu_read_use(run, &b, base, b.offset + k * b.k, 1, columns);
        for (int64_t c = 0; c < columns; c++) panel[c * pitch + k] = run[c];
    }
    for (int64_t c = 0; c < columns; c++) apply_scales(j, &j->cpu->p->b, n + c, panel + c * pitch);
}

/* ---- Product ---- */

/* Rows r .. r + m - 1 of the band, columns n .. end - 1, without B. */
static struct dot product_of(const struct gemm_job *j, int64_t r, int64_t m, int64_t n, int64_t end)
{
    const struct tensor_use *a = a_of(j);
    struct dot d = {.m = m, .n = end - n, .k = j->k, .c = j->acc + r * j->n + n, .c_pitch = j->n};
    d.a = j->copied ? j->a + r * j->pitch
                    : (const float *)cpu_buffer(j->cpu, a->buffer) + a->offset + j->batch * a->batch +
                          (j->first + r) * a->row;
    d.a_pitch = j->copied ? j->pitch : a->row;
    return d;
}

static void multiply_turned(struct gemm_job *j, int64_t n, int64_t end)
{
    int64_t pitch = j->k + DOT_LANES;
    float *panel = malloc(sizeof *panel * (size_t)(PANEL * pitch));
    if (!panel) {
        j->failed = true;
        return;
    }
    for (; n < end; n += PANEL) {
        turn_panel(j, n, panel, pitch);
        for (int64_t r = 0; r < j->rows; r += BLOCK_ROWS) {
            struct dot d = product_of(j, r, MIN(BLOCK_ROWS, j->rows - r), n, MIN(n + PANEL, end));
            d.type = CODA_F32, d.b = panel, d.b_pitch = pitch;
            dot(&d);
        }
    }
    free(panel);
}

static void multiply(void *ctx, int64_t task)
{
    struct gemm_job *j = ctx;
    int64_t n = task % j->chunks * j->chunk, end = MIN(n + j->chunk, j->n), r = task / j->chunks * BLOCK_ROWS;
    if (j->turned) {
        multiply_turned(j, n, end);
        return;
    }
    for (int64_t next; n < end; n = next) {
        struct tensor_use b = part_of(j, n, &next);
        struct dot d = product_of(j, r, MIN(BLOCK_ROWS, j->rows - r), n, MIN(end, next));
        d.type = b.dtype, d.b_pitch = b.row;
        d.b = (const char *)cpu_buffer(j->cpu, b.buffer) + dtype_bytes(b.dtype, b.offset);
        dot(&d);
    }
}

/* ---- Epilogue ---- */

static void run_rows(const struct gemm_job *j, struct cpu_frame *f, int64_t first, int64_t end)
{
    for (int64_t m = MAX(first, j->first); m < MIN(end, j->first + j->rows); m++)
        cpu_frame_run(f, j->batch * j->m + m, j->acc + (m - j->first) * j->n);
}

static void finish_group(void *ctx, int64_t group)
{
    struct gemm_job *j = ctx;
    struct cpu_frame *f = cpu_frame_new(j->cpu);
    int64_t first = j->first + group * j->group;
    if (f) run_rows(j, f, first, first + j->group);
    else j->failed = true;
    free(f);
}

/* Finishes the rows of this band that belong to a part. They come in order, as its accumulators fold them. */
static void finish_part(void *ctx, int64_t part)
{
    struct gemm_job *j = ctx;
    int64_t each = CEIL_DIV(j->m, j->parts);
    run_rows(j, j->frame[part], part * each, (part + 1) * each);
}

static bool begin_parts(struct gemm_job *j)
{
    for (int i = 0; i < j->parts; i++) {
        if (!j->frame[i] && !(j->frame[i] = cpu_frame_new(j->cpu))) return false;
        cpu_frame_begin_part(j->frame[i]);
    }
    return true;
}

static void end_parts(const struct gemm_job *j)
{
    for (int i = 0; i < j->parts; i++) cpu_frame_end_part(j->frame[i], j->batch * j->parts + i);
}

/* ---- All of it ---- */

static void run_band(struct gemm_job *j)
{
    int64_t blocks = CEIL_DIV(j->rows, BLOCK_ROWS), steps = j->cpu->p->steps;
    double numbers = (double)j->rows * (double)j->n;
    if (j->copied) parallel_work(blocks, (double)j->rows * (double)j->k, copy_rows, j);
    parallel_work((j->turned ? 1 : blocks) * j->chunks, numbers * (double)j->k, multiply, j);
    if (j->failed) return;
    numbers *= CPU_STEP_OPERATIONS * (double)steps;
    if (j->parts) parallel_work(j->parts, numbers, finish_part, j);
    else parallel_work(CEIL_DIV(j->rows, j->group), numbers, finish_group, j);
}

static void run_batch(struct gemm_job *j)
{
    if (!begin_parts(j)) j->failed = true;
    for (j->first = 0; j->first < j->m && !j->failed; j->first += j->band) {
        j->rows = MIN(j->band, j->m - j->first);
        run_band(j);
    }
    if (!j->failed) end_parts(j);
}

/* Pieces of `n` things for all threads: a few for each, of a multiple of `unit`. */
static int64_t piece_of(int64_t n, int64_t shares, int64_t unit)
{
    return MAX(1, CEIL_DIV(CEIL_DIV(n, MAX(shares, 1)), unit)) * unit;
}

static void cut(struct gemm_job *j)
{
    int threads = parallel_worth((double)j->m * (double)j->n * (double)j->k),
        tasks = threads > 1 ? threads * TASKS_A_THREAD : 1;
    const struct tensor_use *b = b_of(j);
    j->turned = b->k != 1 || !dot_takes(b->dtype) || use_is_packed(b) || j->cpu->p->b.scale;
    j->copied = copies_a(a_of(j), j->m);
    int unit =
        conv1d_step_of(j->cpu->p) < 0 ? BLOCK_ROWS : EDGE_PERIOD; /* rows of which none sees another's */
    j->band = MIN(j->m, piece_of(BAND_NUMBERS, MAX(j->n, j->k), unit));
    j->chunk = piece_of(j->n, j->turned ? tasks : tasks / CEIL_DIV(j->band, BLOCK_ROWS), PANEL);
    j->chunks = CEIL_DIV(j->n, j->chunk);
    j->group = piece_of(j->band, tasks, conv1d_step_of(j->cpu->p) < 0 ? 1 : EDGE_PERIOD);
    j->pitch = CEIL_DIV(j->k, PANEL) * PANEL + PANEL;
    j->parts = cpu_parts(j->cpu->p);
}

/* One allocation: frames, rows of A, sums. Rows of A begin where a line of the cache does: a vector that lies
 * in two of them takes two loads. */
static void *band_memory(struct gemm_job *j)
{
    size_t frames = sizeof *j->frame * (size_t)(j->parts + 1), acc = sizeof(float) * (size_t)(j->band * j->n);
    size_t a = j->copied ? sizeof(float) * (size_t)(j->band * j->pitch) : 0;
    char *memory = malloc(frames + LINE + a + acc);
    if (!memory) return NULL;
    j->frame = (struct cpu_frame **)memory;
    memset(memory, 0, frames);
    j->a = (float *)(memory + frames + LINE - (uintptr_t)(memory + frames) % LINE);
    j->acc = j->a + a / sizeof(float);
    return memory;
}

coda_status cpu_gemm(const struct cpu *c)
{
    const struct program *p = c->p;
    struct gemm_job j = {.cpu = c, .m = p->dim[1], .n = p->dim[2], .k = p->k};
    if ((operand_is_scaled(&p->a) || operand_is_scaled(&p->b)) && !program_has_block_scales(p))
        return fail(CODA_E_UNSUPPORTED, "the CPU device scales no operand of a product");
    cut(&j);
    void *memory = band_memory(&j);
    j.failed = !memory;
    for (j.batch = 0; j.batch < p->dim[0] && !j.failed; j.batch++) run_batch(&j);
    for (int i = 0; memory && i < j.parts; i++) free(j.frame[i]);
    free(memory);
    if (!j.failed) return CODA_OK;
    return fail(CODA_E_MEMORY, "out of memory for %lld rows of %lld columns and K %lld", (long long)j.band,
                (long long)j.n, (long long)j.k);
}
