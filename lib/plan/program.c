/* program.c -- questions about what a program computes. */
#include "program.h"

#include <string.h>

bool step_shares_state(const struct program *q, const struct step *a, const struct step *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == STEP_PARTIAL) return q->port[a->port].buffer == q->port[b->port].buffer;
    return a->kind == STEP_REDUCE && prim_states_equal(a->prim, b->prim) && a->nin == b->nin &&
           !memcmp(a->in, b->in, sizeof *a->in * (size_t)a->nin);
}

bool step_has_value(const struct program *q, const struct step *s)
{
    if (s->kind == STEP_STORE) return false;
    return !(s->kind == STEP_REDUCE && q->kind == PROGRAM_GEMM);
}

/* ---- Uses ---- */

unsigned use_effect(const struct tensor_use *u)
{
    if (u->effect) return u->effect;
    switch (u->role) {
    case USE_STORE:
    case USE_PARTIAL_STORE:
    case USE_RESULT:
    case USE_SCRATCH: return EFFECT_WRITE;
    default: return EFFECT_READ;
    }
}

struct tensor_use *program_use(const struct program *q, int i)
{
    struct program *p = (struct program *)q;
    struct tensor_use *gemm[] = {&p->a, &p->b};
    if (q->kind == PROGRAM_GEMM && i < ARRAY_SIZE(gemm)) return gemm[i];
    if (q->kind == PROGRAM_GEMM) i -= ARRAY_SIZE(gemm);
    if (q->kind == PROGRAM_ATTENTION) {
        struct attention_spec *s = q->attention;
        struct tensor_use *of[] = {&s->q, &s->k, &s->v, &s->o, &s->lengths};
        int uses = ARRAY_SIZE(of) - (s->lengths.buffer < 0);
        return i < uses ? of[i] : NULL;
    }
    return i < q->ports ? &q->port[i] : NULL;
}

static bool any(const struct program *q, unsigned effects, bool (*fn)(void *, int), void *ctx)
{
    const struct tensor_use *u;
    for (int i = 0; (u = program_use(q, i)); i++)
        if (use_effect(u) & effects && fn(ctx, u->buffer)) return true;
    return false;
}

bool program_any_read(const struct program *q, bool (*fn)(void *, int), void *ctx)
{
    return any(q, EFFECT_READ | EFFECT_ADD, fn, ctx);
}

bool program_any_write(const struct program *q, bool (*fn)(void *, int), void *ctx)
{
    return any(q, EFFECT_WRITE | EFFECT_APPEND | EFFECT_ADD, fn, ctx);
}

/* ---- Questions ---- */

bool program_suits_cublaslt(const struct program *p)
{
    bool rows = p->a.k == 1 || p->a.row == 1, cols = p->b.k == 1 || p->b.row == 1;
    return rows && cols && p->a.dtype == p->b.dtype && p->dim[0] && p->dim[1] && p->dim[2] && p->k;
}

bool program_is_gated(const struct program *p)
{
    return p->pair == PAIR_GLU_INTERLEAVED || p->pair == PAIR_GLU_STACKED;
}

int program_lanes(const struct program *p) { return p->pair == PAIR_NONE ? 1 : 2; }

int64_t program_columns(const struct program *p) { return program_is_gated(p) ? p->dim[2] / 2 : p->dim[2]; }

bool rope_counts_rows(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_ROPE) return p->step[i].nin < 2 || p->step[i].in[1] < 0;
    return false;
}

/* ---- Work ---- */

static int64_t extent_bytes(const struct program *q, const struct tensor_use *port, bool half)
{
    if (port->role == USE_PARTIAL_LOAD || port->role == USE_PARTIAL_STORE) {
        int64_t rows = 1;
        for (int d = 0; d + 1 < q->rank; d++) rows = mul_counts(rows, q->dim[d]);
        return mul_counts(mul_counts(rows, port->blocks), port->reduce->state * 4);
    }
    if (port->role == USE_SCRATCH) return 0;
    int64_t n = dtype_size(port->dtype);
    for (int d = 0; d < q->rank; d++) {
        bool gathered = port->role == USE_GATHER && d + 1 < q->rank;
        if (port->stride[d] || gathered)
            n = mul_counts(n, half && d + 1 == q->rank ? q->dim[d] / 2 : q->dim[d]);
    }
    return n;
}

static int64_t operand_bytes(const struct program *q, const struct tensor_use *o, int64_t rows)
{
    return mul_counts(mul_counts(rows, q->k), (o->batch ? q->dim[0] : 1) * dtype_size(o->dtype));
}

static int64_t attention_bytes(const struct attention_spec *a)
{
    int64_t rows = add_counts(mul_counts(2 * a->tq, a->heads), mul_counts(2 * a->tk, a->kv_heads));
    return mul_counts(mul_counts(dtype_size(a->q.dtype) * a->batch, a->head_dim), rows);
}

int64_t program_bytes(const struct program *q)
{
    int64_t bytes = 0;
    if (q->kind == PROGRAM_ATTENTION) return attention_bytes(q->attention);
    for (int i = 0; i < q->ports; i++) {
        bool half = false;
        for (int j = 0; j < q->steps; j++) half = half || (q->step[j].port == i && q->step[j].half);
        bytes = add_counts(bytes, extent_bytes(q, &q->port[i], half));
    }
    if (q->kind != PROGRAM_GEMM) return bytes;
    int64_t a = operand_bytes(q, &q->a, q->dim[1]), b = operand_bytes(q, &q->b, q->dim[2]);
    return add_counts(bytes, add_counts(a, b));
}

/* The sum of min(max(j, 0), most) for j < n. */
static double ramp(double n, double most)
{
    if (n <= 0) return 0;
    return n <= most ? n * (n - 1) / 2 : most * (most - 1) / 2 + most * (n - most);
}

/* Pairs of query and key that are not masked, if every sequence has all keys. The query at position p sees
 * the keys below min(max(p + 1, 0), tk), or, if attention is not causal, below tk; all but those below
 * min(max(p + 1 - window, 0), tk). */
static double visible_pairs(const struct attention_spec *a)
{
    double tq = (double)a->tq, tk = (double)a->tk, past = (double)attention_shift(a, a->tk) + 1;
    double below = tq * tk, hidden = 0, window = (double)a->window;
    if (a->causal) below = ramp(past + tq, tk) - ramp(past, tk);
    else if (a->window && a->align == CODA_ALIGN_LENGTH) below = MIN(tq, tk) * tk;
    if (a->window) hidden = ramp(past - window + tq, tk) - ramp(past - window, tk);
    return MAX(below - hidden, 0);
}

double program_flops(const struct program *q)
{
    const struct attention_spec *a = q->attention;
    if (q->kind == PROGRAM_GEMM)
        return 2.0 * (double)q->dim[0] * (double)q->dim[1] * (double)q->dim[2] * (double)q->k;
    if (q->kind == PROGRAM_ATTENTION)
        return 4.0 * visible_pairs(a) * (double)a->batch * (double)a->heads * (double)a->head_dim;
    return 0;
}
