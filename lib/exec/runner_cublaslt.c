/* runner_cublaslt.c -- bare products that cuBLASLt computes; the last of their ports is its workspace. */
#include "mainloop.h"
#include "runner.h"

static bool takes(const struct coda_plan *p, int index) { return program_is_cublaslt(&p->plan, index); }

static const struct tensor_use *workspace_of(const struct program *q) { return &q->port[q->ports - 1]; }

/* The largest power of two, 16 at most, that divides where an operand and its batches start. */
static int alignment(coda_dtype t, int64_t offset, int64_t batch)
{
    int64_t bytes = dtype_bytes(t, offset | batch) | 16;
    return (int)(bytes & -bytes);
}

static struct jit_lt_shape shape_of(const struct plan *p, const struct program *q)
{
    const struct tensor_use *d = &q->port[q->step[1].port];
    struct jit_lt_shape s = {.in = q->a.dtype,
                             .out = d->dtype,
                             .batch = q->dim[0],
                             .m = q->dim[1],
                             .n = q->dim[2],
                             .k = q->k,
                             .a_batch = q->a.data.batch,
                             .b_batch = q->b.data.batch,
                             .d_batch = d->stride[0],
                             .ldd = d->stride[1],
                             .workspace = p->buffer[workspace_of(q)->buffer].bytes};
    s.a_t = q->a.data.k != 1;
    s.b_t = q->b.data.k != 1;
    s.lda = s.a_t ? q->a.data.k : q->a.data.row;
    s.ldb = s.b_t ? q->b.data.k : q->b.data.row;
    s.align = MIN(alignment(q->a.dtype, q->a.data.offset, q->a.data.batch),
                  alignment(q->b.dtype, q->b.data.offset, q->b.data.batch));
    s.align = MIN(s.align, alignment(d->dtype, d->offset, d->stride[0]));
    return s;
}

static coda_status load(struct coda_plan *p, int index)
{
    char err[JIT_ERROR_SIZE] = "";
    struct jit_lt *lt;
    struct jit_lt_shape s = shape_of(&p->plan, &p->plan.program[index]);
    coda_status status = jit_lt_new(&lt, &s, err);
    p->program[index].own = lt;
    return status ? fail(status, "%s", err) : CODA_OK;
}

static coda_status run(const struct call *c, int index)
{
    char err[JIT_ERROR_SIZE];
    const struct program *q = &c->p->plan.program[index];
    coda_status status = jit_lt_run(c->p->program[index].own, call_tensor(c, &q->a.data),
                                    call_tensor(c, &q->b.data), call_tensor(c, &q->port[q->step[1].port]),
                                    call_tensor(c, workspace_of(q)), c->stream, err);
    return status ? fail(status, "@%d cublaslt: %s", index, err) : CODA_OK;
}

static void release(void *own) { jit_lt_free(own); }

const struct runner runner_cublaslt = {
    .name = "cublaslt", .takes = takes, .load = load, .run = run, .free = release};
