/* program.c -- questions about what a program computes. */
#include "program.h"

#include "own.h"

#include <string.h>

bool step_shares_state(const struct program *q, const struct step *a, const struct step *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == STEP_PARTIAL) return q->port[a->port].buffer == q->port[b->port].buffer;
    return a->kind == STEP_REDUCE && prim_states_equal(a->prim, b->prim) && a->nin == b->nin &&
           !memcmp(a->in, b->in, sizeof *a->in * (size_t)a->nin);
}

const char *step_name(const struct program *q, const struct step *s)
{
    switch (s->kind) {
    case STEP_MAP:
    case STEP_REDUCE: return s->prim->name;
    case STEP_PARTIAL: return q->port[s->port].reduce->name;
    case STEP_PAIR: return pair_name();
    default: return NULL;
    }
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
    if (q->own) return q->own->use(q->spec, i);
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

int64_t program_bytes(const struct program *q)
{
    int64_t bytes = 0;
    if (q->own) return q->own->bytes(q->spec);
    for (int i = 0; i < q->ports; i++) {
        bool half = false;
        for (int j = 0; j < q->steps; j++) half = half || (q->step[j].port == i && q->step[j].half);
        bytes = add_counts(bytes, extent_bytes(q, &q->port[i], half));
    }
    if (q->kind != PROGRAM_GEMM) return bytes;
    int64_t a = operand_bytes(q, &q->a, q->dim[1]), b = operand_bytes(q, &q->b, q->dim[2]);
    return add_counts(bytes, add_counts(a, b));
}

double program_flops(const struct program *q)
{
    if (q->own) return q->own->flops(q->spec);
    if (q->kind != PROGRAM_GEMM) return 0;
    return 2.0 * (double)q->dim[0] * (double)q->dim[1] * (double)q->dim[2] * (double)q->k;
}
