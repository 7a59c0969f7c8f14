/* cpu_attention_delta.c -- what attention's gradients read of each query, on the CPU device: its log-sum-exp
 * to base 2, and delta, in rows that attention_grad.h lays out. */
#include "attention_grad.h"
#include "cpu.h"

#include <math.h>
#include <stdlib.h>

#define LOG2_E 1.4426950408889634

struct delta_job {
    const struct cpu *cpu;
    const struct attention_delta_spec *s;
};

static int64_t place(const struct tensor_use *u, int64_t batch, int64_t head, int64_t row)
{
    return u->offset + batch * u->batch + row * u->time + head * u->head;
}

static float element(const struct delta_job *j, int use, int64_t batch, int64_t head, int64_t row)
{
    const struct tensor_use *u = &j->s->use[use];
    const float *base = cpu_buffer(j->cpu, u->buffer);
    return base[place(u, batch, head, row)];
}

/* sum(do o) of a query. */
static float dot_of(const struct delta_job *j, int64_t batch, int64_t head, int64_t row)
{
    enum { PIECE = 64 };
    const struct tensor_use *o = &j->s->use[ATTENTION_GRAD_O], *d_o = &j->s->use[ATTENTION_GRAD_DO];
    float a[PIECE], b[PIECE], sum = 0;
    for (int64_t c = 0; c < j->s->head_dim; c += PIECE) {
        int64_t n = MIN(PIECE, j->s->head_dim - c);
        cpu_read(a, o->dtype, cpu_buffer(j->cpu, o->buffer), place(o, batch, head, row) + c, 1, n);
        cpu_read(b, d_o->dtype, cpu_buffer(j->cpu, d_o->buffer), place(d_o, batch, head, row) + c, 1, n);
        for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    }
    return sum;
}

/* The queries of a head of a batch. */
static void run_head(void *ctx, int64_t index)
{
    const struct delta_job *j = ctx;
    int64_t batch = index / j->s->heads, head = index % j->s->heads, pitch = attention_delta_pitch(j->s->tq);
    float *lse = (float *)cpu_buffer(j->cpu, j->s->use[ATTENTION_GRAD_DQ].buffer) + index * 2 * pitch;
    bool dlse = j->s->use[ATTENTION_GRAD_DLSE].buffer >= 0;
    for (int64_t row = 0; row < pitch; row++) {
        lse[row] = INFINITY, lse[pitch + row] = 0;
        if (row >= j->s->tq) continue;
        float l = element(j, ATTENTION_GRAD_LSE, batch, head, row);
        if (l != -INFINITY) lse[row] = (float)(l * LOG2_E);
        lse[pitch + row] = dot_of(j, batch, head, row);
        if (dlse) lse[pitch + row] -= element(j, ATTENTION_GRAD_DLSE, batch, head, row);
    }
}

coda_status cpu_attention_delta(const struct cpu *c)
{
    const struct attention_delta_spec *s = c->p->spec;
    struct delta_job j = {c, s};
    double elements = (double)s->batch * (double)s->heads * (double)s->tq * (double)s->head_dim;
    parallel_work(s->batch * s->heads, CPU_STEP_OPERATIONS * elements, run_head, &j);
    return CODA_OK;
}
