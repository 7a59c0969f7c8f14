/* cpu_exchange.c -- what ranks add up or put together on the CPU device: each rank reads what the others
 * brought, where it lies, and writes its own result. */
#include "cpu.h"
#include "ranks.h"

#include <string.h>

enum { CHUNK = 1024 };

/* `runs` runs of `run` elements: of the source at so many elements each, of the result likewise. */
struct exchange_job {
    coda_dtype dtype;
    const void *const *x; /* of `sources` ranks, which are added */
    int sources;
    char *y;
    int64_t runs, run, chunks; /* chunks of a run */
    int64_t x_from, x_pitch, y_from, y_pitch;
};

static void add_chunk(void *ctx, int64_t index)
{
    const struct exchange_job *j = ctx;
    int64_t run = index / j->chunks, at = index % j->chunks * CHUNK, n = MIN(CHUNK, j->run - at);
    int64_t from = j->x_from + run * j->x_pitch + at, to = j->y_from + run * j->y_pitch + at;
    float sum[CHUNK], part[CHUNK];
    cpu_read(sum, j->dtype, j->x[0], from, 1, n);
    for (int r = 1; r < j->sources; r++) {
        cpu_read(part, j->dtype, j->x[r], from, 1, n);
        for (int64_t i = 0; i < n; i++) sum[i] += part[i];
    }
    cpu_write(j->dtype, j->y, to, sum, n);
}

/* Runs of one rank, of any dtype, moved as they are. */
static void copy_runs(const struct exchange_job *j)
{
    for (int64_t i = 0; i < j->runs; i++)
        memcpy(j->y + dtype_bytes(j->dtype, j->y_from + i * j->y_pitch),
               (const char *)j->x[0] + dtype_bytes(j->dtype, j->x_from + i * j->x_pitch),
               (size_t)dtype_bytes(j->dtype, j->run));
}

static void reduce(struct exchange_job *j, const struct exchange_spec *s)
{
    j->sources = (int)s->ranks;
    j->chunks = CEIL_DIV(j->run, CHUNK);
    parallel_work(j->runs * j->chunks, (double)j->runs * (double)j->run * (double)s->ranks, add_chunk, j);
}

static void all_reduce(struct exchange_job *j, const struct exchange_spec *s)
{
    j->runs = 1, j->run = s->extent;
    reduce(j, s);
}

static void reduce_scatter(struct exchange_job *j, const struct exchange_spec *s, int rank)
{
    j->runs = s->outer, j->run = s->extent / s->ranks * s->inner;
    j->x_from = rank * j->run, j->x_pitch = s->extent * s->inner, j->y_pitch = j->run;
    reduce(j, s);
}

static void all_gather(struct exchange_job *j, const struct exchange_spec *s)
{
    const void *const *all = j->x;
    j->runs = s->outer, j->run = j->x_pitch = s->extent * s->inner, j->y_pitch = s->ranks * j->run;
    for (int64_t r = 0; r < s->ranks; r++) {
        j->x = &all[r], j->y_from = r * j->run;
        copy_runs(j);
    }
}

coda_status cpu_exchange(const struct cpu *c)
{
    const struct exchange_spec *s = c->p->spec;
    const struct tensor_use *x = &s->use[ALL_REDUCE_X], *y = &s->use[ALL_REDUCE_SUM];
    const char *from = cpu_buffer(c, x->buffer), *name = op_info[s->op].text;
    coda_group *g = cpu_buffer(c, s->use[ALL_REDUCE_GROUP].buffer);
    struct offer mine = {
        .operation = name, .dtype = (int)x->dtype, .outer = s->outer, .extent = s->extent, .inner = s->inner};
    struct exchange_job j = {.dtype = x->dtype, .y = cpu_buffer(c, y->buffer)};
    coda_status status = ranks_check(g, name, s->ranks);
    if (status) return status;
    mine.x = from + dtype_bytes(x->dtype, x->offset);
    if ((status = ranks_meet(g, &mine, &j.x))) return status;
    j.y += dtype_bytes(y->dtype, y->offset);
    if (s->op == OP_ALL_REDUCE) all_reduce(&j, s);
    else if (s->op == OP_REDUCE_SCATTER) reduce_scatter(&j, s, ranks_rank(g));
    else all_gather(&j, s);
    return ranks_part(g);
}
