/*
 * cpu.c -- the CPU device: runs a program on the host, rounding where the kernels round.
 *
 * A program is executed row by row, its steps in order: every step's value over the row is an array of
 * floats, computed in double from floats and rounded to float; only a store rounds to a dtype. Rows are
 * independent, so blocks of rows go to all cores and the bits do not depend on their number.
 */
#include "cpu.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { ROWS_BLOCK_ELEMENTS = 16384 }; /* work for a thread at a time */

/* ---- Programs of rows ---- */

struct rows_job {
    const struct cpu *cpu;
    int64_t block; /* rows */
    int64_t parts; /* of a matrix whose columns are folded */
    atomic_bool failed;
};

static void run_row_block(void *ctx, int64_t block)
{
    struct rows_job *j = ctx;
    struct cpu_frame *f = cpu_frame_new(j->cpu);
    if (!f) {
        j->failed = true;
        return;
    }
    int64_t first = block * j->block, end = MIN(first + j->block, j->cpu->rows);
    for (int64_t row = first; row < end; row++) cpu_frame_run(f, row, NULL);
    free(f);
}

static void run_part(void *ctx, int64_t part)
{
    struct rows_job *j = ctx;
    int64_t rows = j->cpu->p->dim[j->cpu->p->rank - 2], first = part % j->parts * j->block;
    struct cpu_frame *f = cpu_frame_new(j->cpu);
    if (!f) {
        j->failed = true;
        return;
    }
    cpu_frame_begin_part(f);
    for (int64_t m = first; m < MIN(first + j->block, rows); m++)
        cpu_frame_run(f, part / j->parts * rows + m, NULL);
    cpu_frame_end_part(f, part);
    free(f);
}

static coda_status run_rows(const struct cpu *c)
{
    struct rows_job j = {.cpu = c, .block = MAX(1, ROWS_BLOCK_ELEMENTS / MAX(c->columns, 1))};
    j.parts = cpu_parts(c->p);
    double operations = CPU_STEP_OPERATIONS * (double)c->p->steps * (double)c->rows * (double)c->columns;
    if (j.parts) {
        int64_t rows = c->p->dim[c->p->rank - 2];
        j.block = CEIL_DIV(rows, j.parts);
        parallel_work(c->rows / rows * j.parts, operations, run_part, &j);
    } else {
        parallel_work(CEIL_DIV(c->rows, j.block), operations, run_row_block, &j);
    }
    if (j.failed)
        return fail(CODA_E_MEMORY, "out of memory for a row of %lld columns", (long long)c->columns);
    return CODA_OK;
}

/* ---- Any program ---- */

static coda_status check_references(const struct program *p)
{
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (s->kind == STEP_MAP && !s->prim->reference)
            return fail(CODA_E_UNSUPPORTED, "map %s has no reference, so only a GPU can run it",
                        s->prim->name);
    }
    return CODA_OK;
}

/* Rows without columns have nothing to store but row values, however many rows there are. */
static bool stores_nothing(const struct cpu *c)
{
    bool row_store = false;
    for (int i = 0; i < c->p->steps; i++)
        row_store = row_store || (c->p->step[i].kind == STEP_STORE && c->p->step[i].cls == CLASS_ROW);
    return c->rows == 0 || (c->columns == 0 && !row_store);
}

static void measure(struct cpu *c)
{
    const struct program *p = c->p;
    c->rows = 1;
    for (int d = 0; d + 1 < p->rank; d++) c->rows *= p->dim[d];
    c->columns = p->rank ? p->dim[p->rank - 1] : 1;
}

coda_status cpu_run(const struct plan *plan, const struct program *p, void *const *args, void *prepared,
                    void *workspace)
{
    static coda_status (*const own[])(const struct cpu *) = {
#define X(NAME, name) cpu_##name,
        OWN_KERNELS(X)
#undef X
    };
    struct cpu c = {.plan = plan, .p = p, .args = args, .prepared = prepared, .workspace = workspace};
    coda_status status = check_references(p);
    if (status != CODA_OK) return status;
    if (p->own) return own[p->own->index](&c);
    measure(&c);
    if (stores_nothing(&c)) return CODA_OK;
    return p->kind == PROGRAM_GEMM ? cpu_gemm(&c) : run_rows(&c);
}
