/* util_gemm_check.c -- what a GEMM program should have left in its outputs: the same in fp64. */
#include "util_gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One row of the domain: `width` values of each step. */
struct row {
    const struct gemm_rig *r;
    int64_t batch, m, columns;
    double *value[GEMM_STEPS];
};

static double element(const struct row *w, int buffer, int64_t i)
{
    return dtype_load(w->r->dtype[buffer], w->r->host[buffer], i);
}

static int64_t width_of(const struct row *w, int step) { return gemm_width(w->r, w->r->step[step].half); }

static double product(const struct row *w, int64_t n)
{
    const struct tensor_use *a = &w->r->p.a, *b = &w->r->p.b;
    double sum = 0;
    for (int64_t k = 0; k < w->r->p.k; k++)
        sum += element(w, a->buffer, w->batch * a->batch + w->m * a->row + k * a->k) *
               element(w, b->buffer, w->batch * b->batch + n * b->row + k * b->k);
    return sum;
}

static double loaded(const struct row *w, const struct tensor_use *port, int64_t n)
{
    int64_t at = w->batch * port->stride[0] + w->m * port->stride[1] + n * port->stride[2];
    if (port->role == USE_LOAD) return element(w, port->buffer, at);
    int64_t id = (int64_t)w->value[port->index][0];
    return id < port->table_rows ? element(w, port->buffer, id * port->table_stride + n) : 0;
}

/* Merges and finishes the states that are in host memory. */
static double merged(const struct row *w, const struct tensor_use *port)
{
    const struct prim_reduce *f = port->reduce->reduce;
    int64_t row = w->batch * w->r->p.dim[1] + w->m;
    double all[PRIM_MAX_STATE], one[PRIM_MAX_STATE];
    f->init(all);
    for (int b = 0; b < port->blocks; b++) {
        for (int i = 0; i < port->reduce->state; i++)
            one[i] = element(w, port->buffer, (row * port->blocks + b) * port->reduce->state + i);
        f->merge(all, one);
    }
    return f->finish(all);
}

static double called(const struct row *w, const struct step *s, int64_t n)
{
    double in[PRIM_MAX_INPUTS], params[PRIM_MAX_PARAMS];
    for (int i = 0; i < s->nin; i++) in[i] = w->value[s->in[i]][n];
    for (int i = 0; i < PRIM_MAX_PARAMS; i++) params[i] = s->param[i];
    return s->prim->reference(in, params);
}

static double turned_value(const struct row *w, const struct step *s, int64_t n)
{
    const struct rope_spec *q = &w->r->p.rope;
    const double *x = w->value[s->in[0]];
    int64_t i = n % q->head_dim, half = q->rotary / 2;
    if (n / q->head_dim >= q->heads || i >= q->rotary) return x[n];
    int64_t pair = q->half ? i % half : i / 2, first = n - i + (q->half ? pair : 2 * pair);
    int64_t second = first + (q->half ? half : 1), row = w->batch * w->r->p.dim[1] + w->m;
    double position = s->nin > 1 ? w->value[s->in[1]][0] : (double)(row % q->period);
    double t = position * pow(q->base, -2.0 * (double)pair / (double)q->rotary);
    return n == first ? x[first] * cos(t) - x[second] * sin(t) : x[first] * sin(t) + x[second] * cos(t);
}

static double computed(const struct row *w, int step, int64_t n)
{
    const struct step *s = &w->r->step[step];
    bool stacked = w->r->p.pair == PAIR_GLU_STACKED;
    switch (s->kind) {
    case STEP_ACC: return product(w, n);
    case STEP_LOAD: return loaded(w, &w->r->port[s->port], n);
    case STEP_PARTIAL: return n ? w->value[step][0] : merged(w, &w->r->port[s->port]);
    case STEP_MAP: return called(w, s, n);
    case STEP_PAIR: return turned_value(w, s, n);
    case STEP_LANE: return w->value[s->in[0]][stacked ? n + s->lane * w->columns / 2 : 2 * n + s->lane];
    default: return 0;
    }
}

/* Of rounding to nearest, relative. */
static double unit(coda_dtype t) { return t == CODA_BF16 ? 0x1p-8 : t == CODA_F16 ? 0x1p-11 : 0x1p-24; }

/* Error over what is allowed: one rounding, and fp32 arithmetic on values of `size`, which may cancel. */
static double compare(double got, double want, double size, coda_dtype t)
{
    if (isinf(want) && got == want) return 0;
    double allowed = unit(t) * fabs(want) + 1e-6 * size + 1e-5 * (1 + fabs(want));
    double error = fabs(got - want) / allowed;
    return isnan(error) ? INFINITY : error;
}

/* The largest value on the way to this step, in this column or the row. */
static double largest(const struct row *w, int step, int64_t n)
{
    double most = 0;
    for (int i = 0; i < step; i++)
        if (w->r->step[i].kind != STEP_STORE && w->r->step[i].kind != STEP_REDUCE)
            most = fmax(most, fabs(w->value[i][n]));
    return most;
}

static double store_error(const struct row *w, int step)
{
    const struct step *s = &w->r->step[step];
    const struct tensor_use *port = &w->r->port[s->port];
    double worst = 0;
    for (int64_t n = 0; n < width_of(w, step); n++) {
        double got =
            loaded(w,
                   &(struct tensor_use){.role = USE_LOAD,
                                        .buffer = port->buffer,
                                        .stride = {port->stride[0], port->stride[1], port->stride[2]}},
                   n);
        worst = fmax(worst, compare(got, w->value[s->in[0]][n], largest(w, step, n), port->dtype));
    }
    return worst;
}

static double reduce_error(const struct row *w, int step)
{
    const struct step *s = &w->r->step[step];
    double state[PRIM_MAX_STATE], key = s->nin > 1 ? w->value[s->in[1]][0] : 0;
    double size = 0;
    s->prim->reduce->init(state);
    for (int64_t n = 0; n < width_of(w, step); n++) {
        s->prim->reduce->push(state, w->value[s->in[0]][n], n, key);
        size += fabs(w->value[s->in[0]][n]);
    }
    double want = s->prim->reduce->finish(state), got = merged(w, &w->r->port[s->port]);
    return compare(got, want, size, CODA_F32);
}

double gemm_row_error(const struct gemm_rig *r, int64_t batch, int64_t m)
{
    struct row w = {.r = r, .batch = batch, .m = m, .columns = r->p.dim[2]};
    double *memory = calloc((size_t)(GEMM_STEPS * w.columns), sizeof *memory), worst = memory ? 0 : INFINITY;
    for (int i = 0; memory && i < r->p.steps; i++) {
        w.value[i] = memory + i * w.columns;
        if (r->step[i].kind == STEP_STORE) worst = fmax(worst, store_error(&w, i));
        else if (r->step[i].kind == STEP_REDUCE) worst = fmax(worst, reduce_error(&w, i));
        else
            for (int64_t n = 0; n < width_of(&w, i); n++) w.value[i][n] = computed(&w, i, n);
    }
    free(memory);
    return worst;
}

static bool is_poison(const struct gemm_rig *r, int buffer, int64_t i)
{
    const unsigned char *p = (const unsigned char *)r->host[buffer] + i * dtype_size(r->dtype[buffer]);
    return p[0] == 0xff && p[1] == 0xff;
}

bool gemm_padding_is_poison(const struct gemm_rig *r)
{
    for (int i = 0; i < r->p.steps; i++) {
        const struct step *s = &r->step[i];
        if (s->kind != STEP_STORE) continue;
        const struct tensor_use *port = &r->port[s->port];
        for (int64_t row = 0; row < r->p.dim[0] * r->p.dim[1]; row++)
            for (int64_t n = gemm_width(r, s->half); n < port->stride[1]; n++)
                if (!is_poison(r, port->buffer, row * port->stride[1] + n)) return false;
    }
    return true;
}
