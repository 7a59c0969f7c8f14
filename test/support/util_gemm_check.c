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

/* What element (row, k) of an operand counts. */
static double scale_of(const struct row *w, const struct operand *o, int64_t row, int64_t k)
{
    if (!o->scale) return 1;
    const struct tensor_use *s = &w->r->port[o->scale - 1];
    int64_t at = w->batch * s->batch + row / o->scale_rows * s->row + k / o->scale_k * s->k;
    return element(w, s->buffer, at);
}

static double product(const struct row *w, int64_t n)
{
    const struct operand *x = &w->r->p.a, *y = &w->r->p.b;
    const struct tensor_use *a = &x->data, *b = &y->data;
    double sum = 0;
    for (int64_t k = 0; k < w->r->p.k; k++)
        sum += element(w, a->buffer, w->batch * a->batch + w->m * a->row + k * a->k) *
               scale_of(w, x, w->m, k) * element(w, b->buffer, w->batch * b->batch + n * b->row + k * b->k) *
               scale_of(w, y, n, k);
    return sum;
}

/* Column n of a range that begins with column `first` of the product. */
static int64_t place(const struct row *w, const struct tensor_use *port, int64_t n, int64_t first)
{
    int64_t sample = w->r->p.sample ? w->m / w->r->p.sample : w->batch, segment = w->r->p.segment;
    int64_t row = port->offset + sample * port->stride[0] + w->m * port->stride[1];
    n -= first;
    return row +
           (segment ? n / segment * port->stride[3] + n % segment * port->stride[2] : n * port->stride[2]);
}

static double loaded(const struct row *w, const struct tensor_use *port, int64_t n, int64_t first)
{
    int64_t at = place(w, port, n, first);
    if (port->role == USE_LOAD) return element(w, port->buffer, at);
    int64_t id = (int64_t)w->value[port->index][0];
    return id < port->table_rows ? element(w, port->buffer, id * port->table_stride + n) : 0;
}

/* Merges and finishes the states that are in host memory, from number `first` on, so many apart. */
static double merged_from(const struct row *w, const struct tensor_use *port, int64_t first, int64_t apart)
{
    const struct prim_reduce *f = port->reduce->reduce;
    double all[PRIM_MAX_STATE], one[PRIM_MAX_STATE];
    f->init(all);
    for (int b = 0; b < port->blocks; b++) {
        for (int i = 0; i < port->reduce->state; i++)
            one[i] = element(w, port->buffer, (first + b * apart) * port->reduce->state + i);
        f->merge(all, one);
    }
    return f->finish(all);
}
static double merged(const struct row *w, const struct tensor_use *port)
{
    return merged_from(w, port, (w->batch * w->r->p.dim[1] + w->m) * port->blocks, 1);
}

static double called(const struct row *w, const struct step *s, int64_t n)
{
    double in[PRIM_MAX_INPUTS], params[PRIM_MAX_PARAMS];
    for (int i = 0; i < s->nin; i++) in[i] = w->value[s->in[i]][n];
    for (int i = 0; i < PRIM_MAX_PARAMS; i++) params[i] = s->param[i];
    return s->prim->reference(in, params);
}

/* Which of a position's numbers turns a pair: sections lie one after the other, or take turns until they are
 * full and leave the rest to the first. */
static int axis_of(const struct pairing *q, int axes, int64_t pair)
{
    int64_t axis = pair % axes;
    if (axes > 1 && q->interleaves) return pair / axes < q->section[axis] ? (int)axis : 0;
    for (axis = 0; axis < axes - 1 && pair >= q->section[axis]; axis++) pair -= q->section[axis];
    return (int)axis;
}

static double turned_value(const struct row *w, const struct step *s, int64_t n)
{
    const struct pairing *q = &w->r->p.pairing;
    const double *x = w->value[s->in[0]];
    int64_t i = n % q->head_dim, half = q->rotary / 2;
    if (n / q->head_dim >= q->heads || i >= q->rotary) return x[n];
    int64_t pair = q->half ? i % half : i / 2, first = n - i + (q->half ? pair : 2 * pair);
    int64_t second = first + (q->half ? half : 1), row = w->batch * w->r->p.dim[1] + w->m;
    double position =
        s->nin > 1 ? w->value[s->in[1 + axis_of(q, s->nin - 1, pair)]][0] : (double)(row % q->period);
    const struct tensor_use *port = s->port >= 0 ? &w->r->port[s->port] : NULL;
    double t = position * (port ? element(w, port->buffer, pair * port->table_stride)
                                : pow(q->base, -2.0 * (double)pair / (double)q->rotary));
    double scale = q->scale != 0 ? (double)q->scale : 1, c = scale * cos(t),
           d = scale * sin(q->inverse ? -t : t);
    return n == first ? x[first] * c - x[second] * d : x[first] * d + x[second] * c;
}

/* Of the segment that column n is in. */
static double folded(const struct row *w, const struct step *s, int64_t n)
{
    double state[PRIM_MAX_STATE];
    int64_t segment = w->r->p.segment, first = n / segment * segment;
    s->prim->reduce->init(state);
    for (int64_t i = first; i < first + segment; i++)
        s->prim->reduce->push(state, w->value[s->in[0]][i], i, 0);
    return s->prim->reduce->finish(state);
}

static struct column_range columns_of(const struct row *w, int step)
{
    const struct step *s = &w->r->step[step];
    return s->range ? w->r->p.range[s->range - 1] : (struct column_range){0, width_of(w, step)};
}

static double computed(const struct row *w, int step, int64_t n)
{
    const struct step *s = &w->r->step[step];
    bool stacked = w->r->p.pair == PAIR_GLU_STACKED;
    switch (s->kind) {
    case STEP_ACC: return product(w, n);
    case STEP_SCALAR: return element(w, w->r->port[s->port].buffer, 0);
    case STEP_LOAD: return loaded(w, &w->r->port[s->port], n, columns_of(w, step).first);
    case STEP_REDUCE: return folded(w, s, n);
    case STEP_PARTIAL: return n ? w->value[step][0] : merged(w, &w->r->port[s->port]);
    case STEP_MAP: return called(w, s, n);
    case STEP_PAIR: return turned_value(w, s, n);
    case STEP_LANE: return w->value[s->in[0]][stacked ? n + s->lane * w->columns / 2 : 2 * n + s->lane];
    default: return 0;
    }
}

/* Of rounding to nearest, relative. */
static double unit(coda_dtype t)
{
    if (dtype_is_f8(t)) return t == CODA_F8E4M3 ? 0x1p-4 : 0x1p-3;
    return t == CODA_BF16 ? 0x1p-8 : t == CODA_F16 ? 0x1p-11 : 0x1p-24;
}

/* Hopper's sums of fp8, 32 products at a time, each cut off 13 bits below the largest: a part of `size`. */
static double cut(const struct gemm_rig *r, double size)
{
    return dtype_is_f8(r->p.a.dtype) ? 0x1p-6 * (1 + size) : 0;
}

/* Error over what is allowed: one rounding, and fp32 arithmetic on values of `size`, which may cancel. */
static double compare(double got, double want, double size, coda_dtype t, double cut)
{
    if (isinf(want) && got == want) return 0;
    double least = dtype_is_f8(t) ? 0x1p-6 : 0; /* below which steps are no finer */
    double allowed = cut + unit(t) * fmax(fabs(want), least) + 1e-6 * size + 1e-5 * (1 + fabs(want));
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
    struct column_range columns = columns_of(w, step);
    for (int64_t n = columns.first; n < columns.end; n++) {
        int64_t at = place(w, port, n, columns.first);
        double got = element(w, port->buffer, at), want = w->value[s->in[0]][n], size = largest(w, step, n);
        if (w->r->fill[port->buffer] == FILL_SUM) want += gemm_begin(at);
        worst = fmax(worst, compare(got, want, size, port->dtype, cut(w->r, size)));
    }
    return worst;
}

static double reduce_error(const struct row *w, int step)
{
    const struct step *s = &w->r->step[step];
    double state[PRIM_MAX_STATE], key = s->nin > 1 ? w->value[s->in[1]][0] : 0;
    double size = 0;
    struct column_range columns = columns_of(w, step);
    s->prim->reduce->init(state);
    for (int64_t n = columns.first; n < columns.end; n++) {
        s->prim->reduce->push(state, w->value[s->in[0]][n], n - columns.first, key);
        size += fabs(w->value[s->in[0]][n]);
    }
    double want = s->prim->reduce->finish(state), got = merged(w, &w->r->port[s->port]);
    return compare(got, want, size, CODA_F32, cut(w->r, size));
}

static bool is_column_fold(const struct step *s)
{
    return s->kind == STEP_REDUCE && s->axis == REDUCE_COLUMNS;
}

static void compute(struct row *w)
{
    for (int i = 0; i < w->r->p.steps; i++)
        if (step_has_value(&w->r->p, &w->r->step[i]))
            for (int64_t n = columns_of(w, i).first; n < columns_of(w, i).end; n++)
                w->value[i][n] = computed(w, i, n);
}

static double *values_of(struct row *w)
{
    double *memory = calloc((size_t)(GEMM_STEPS * w->columns), sizeof *memory);
    for (int i = 0; memory && i < w->r->p.steps; i++) w->value[i] = memory + i * w->columns;
    return memory;
}

double gemm_row_error(const struct gemm_rig *r, int64_t batch, int64_t m)
{
    struct row w = {.r = r, .batch = batch, .m = m, .columns = r->p.dim[2]};
    double *memory = values_of(&w), worst = memory ? 0 : INFINITY;
    if (memory) compute(&w);
    for (int i = 0; memory && i < r->p.steps; i++) {
        if (r->step[i].kind == STEP_STORE) worst = fmax(worst, store_error(&w, i));
        if (r->step[i].kind == STEP_REDUCE && !is_column_fold(&r->step[i]) &&
            !step_folds_segments(&r->step[i]))
            worst = fmax(worst, reduce_error(&w, i));
    }
    free(memory);
    return worst;
}

/* ---- Columns ---- */

struct column {
    double state[PRIM_MAX_STATE], size;
};

static void fold(const struct row *w, int step, struct column *c)
{
    const struct step *s = &w->r->step[step];
    for (int64_t n = 0; n < width_of(w, step); n++) {
        if (w->m == 0) s->prim->reduce->init(c[n].state);
        s->prim->reduce->push(c[n].state, w->value[s->in[0]][n], w->m, 0);
        c[n].size += fabs(w->value[s->in[0]][n]);
    }
}

static double column_error(const struct row *w, int step, const struct column *c)
{
    const struct step *s = &w->r->step[step];
    const struct tensor_use *port = &w->r->port[s->port];
    int64_t width = width_of(w, step);
    double worst = 0;
    for (int64_t n = 0; n < width; n++) {
        double got = merged_from(w, port, w->batch * port->blocks * width + n, width);
        worst = fmax(worst, compare(got, s->prim->reduce->finish(c[n].state), c[n].size, CODA_F32,
                                    cut(w->r, c[n].size)));
    }
    return worst;
}

double gemm_columns_error(const struct gemm_rig *r, int64_t batch)
{
    struct row w = {.r = r, .batch = batch, .columns = r->p.dim[2]};
    if (!program_folds_columns(&r->p)) return 0;
    struct column *all = calloc((size_t)(GEMM_STEPS * w.columns), sizeof *all);
    double *memory = values_of(&w), worst = all && memory ? 0 : INFINITY;
    for (w.m = 0; worst == 0 && w.m < r->p.dim[1]; w.m++) {
        compute(&w);
        for (int i = 0; i < r->p.steps; i++)
            if (is_column_fold(&r->step[i])) fold(&w, i, all + i * w.columns);
    }
    for (int i = 0; all && memory && i < r->p.steps; i++)
        if (is_column_fold(&r->step[i])) worst = fmax(worst, column_error(&w, i, all + i * w.columns));
    free(memory);
    free(all);
    return worst;
}

static bool is_poison(const struct gemm_rig *r, int buffer, int64_t i)
{
    const unsigned char *p = (const unsigned char *)r->host[buffer] + i * dtype_bytes(r->dtype[buffer], 1);
    return p[0] == 0xff && p[1] == 0xff;
}

bool gemm_padding_is_poison(const struct gemm_rig *r)
{
    for (int i = 0; i < r->p.steps; i++) {
        const struct step *s = &r->step[i];
        if (s->kind != STEP_STORE || r->port[s->port].stride[2] > 1) continue;
        const struct tensor_use *port = &r->port[s->port];
        const struct column_range *range = s->range ? &r->p.range[s->range - 1] : NULL;
        int64_t width = range ? range->end - range->first : gemm_width(r, s->half);
        if (s->cls == CLASS_SEGMENT) width /= r->p.segment;
        for (int64_t row = 0; row < r->p.dim[0] * r->p.dim[1]; row++)
            for (int64_t n = width; n < port->stride[1]; n++)
                if (!is_poison(r, port->buffer, row * port->stride[1] + n)) return false;
    }
    return true;
}
