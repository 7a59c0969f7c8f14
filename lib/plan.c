/* plan.c -- a plan from a rewritten graph: copies, groups, order, places; and what may be asked of it. */
#include "plan.h"
#include "jit.h"
#include "view.h"

#include <stdlib.h>
#include <string.h>

bool step_has_value(const struct program *q, const struct step *s)
{
    if (s->kind == STEP_STORE) return false;
    return !(s->kind == STEP_REDUCE && q->kind == PROGRAM_GEMM);
}

void plan_free(struct plan *p)
{
    graph_free((graph *)p->graph);
    arena_free(&p->arena);
    memset(p, 0, sizeof *p);
}

/* ---- Order: a program follows the writers of what it reads ---- */

static bool writes(const struct program *p, int buffer)
{
    if (p->kind == PROGRAM_ATTENTION) return p->attention.o.buffer == buffer;
    for (int i = 0; i < p->ports; i++) {
        enum port_kind kind = p->port[i].kind;
        if ((kind == PORT_STORE || kind == PORT_PARTIAL_STORE) && p->port[i].buffer == buffer) return true;
    }
    return false;
}

/* Calls fn for each buffer that the program reads. */
static bool any_read(const struct program *p, bool (*fn)(void *, int), void *ctx)
{
    if (p->kind == PROGRAM_ATTENTION) {
        const struct attention_spec *a = &p->attention;
        return fn(ctx, a->q.buffer) || fn(ctx, a->k.buffer) || fn(ctx, a->v.buffer) ||
               (a->lengths >= 0 && fn(ctx, a->lengths));
    }
    if (p->kind == PROGRAM_GEMM && (fn(ctx, p->a.buffer) || fn(ctx, p->b.buffer))) return true;
    for (int i = 0; i < p->ports; i++) {
        enum port_kind kind = p->port[i].kind;
        if (kind != PORT_STORE && kind != PORT_PARTIAL_STORE && fn(ctx, p->port[i].buffer)) return true;
    }
    return false;
}

struct order {
    const struct program *p; /* the one that may wait                                              */
    struct program *all;
    const bool *done;
    const int *writer;       /* of each buffer: a program, -1: none, -2: several                    */
    int n;
};

static bool waits_for(void *ctx, int buffer)
{
    struct order *o = ctx;
    if (o->writer[buffer] == -1) return false;
    if (o->writer[buffer] >= 0) return !o->done[o->writer[buffer]] && &o->all[o->writer[buffer]] != o->p;
    for (int i = 0; i < o->n; i++)
        if (!o->done[i] && &o->all[i] != o->p && writes(&o->all[i], buffer)) return true;
    return false;
}

static void find_writers(const struct plan *p, int *writer)
{
    for (int b = 0; b < p->buffers; b++) writer[b] = -1;
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        for (int j = 0; j < q->ports; j++) {
            const struct port *port = &q->port[j];
            if (port->kind != PORT_STORE && port->kind != PORT_PARTIAL_STORE) continue;
            int *w = &writer[port->buffer];
            *w = *w == -1 || *w == i ? i : -2;
        }
        if (q->kind == PROGRAM_ATTENTION) writer[q->attention.o.buffer] = i;
    }
}

static int by_root(const void *x, const void *y)
{
    const struct program *a = x, *b = y;
    if (a->prepare != b->prepare) return a->prepare ? -1 : 1;
    return (a->root > b->root) - (a->root < b->root);
}

/* Programs by root, each as soon as what it reads is written. */
static coda_status order_programs(struct plan *p)
{
    int n = p->programs, placed = 0;
    struct program *sorted = ARENA_NEW(&p->arena, struct program, n);
    bool *done = ARENA_NEW(&p->arena, bool, n);
    int *writer = ARENA_NEW(&p->arena, int, p->buffers);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d programs", n);
    qsort(p->program, (size_t)n, sizeof *p->program, by_root);
    find_writers(p, writer);
    while (placed < n) {
        int before = placed;
        for (int i = 0; i < n; i++) {
            struct order o = {&p->program[i], p->program, done, writer, n};
            if (done[i] || any_read(&p->program[i], waits_for, &o)) continue;
            done[i] = true;
            sorted[placed++] = p->program[i];
            break;
        }
        if (placed == before)
            return fail(CODA_E_UNSUPPORTED, "plan: programs %d..%d wait for each other", placed, n);
    }
    p->program = sorted;
    return CODA_OK;
}

/* ---- Decisions and cuBLASLt ---- */

const struct decision *plan_decision(const struct plan_options *opt, int root)
{
    for (int i = 0; i < opt->decisions; i++)
        if (opt->decision[i].root == root) return &opt->decision[i];
    return NULL;
}

bool plan_suits_cublaslt(const struct program *p)
{
    bool rows = p->a.k == 1 || p->a.row == 1, cols = p->b.k == 1 || p->b.row == 1;
    return rows && cols && p->a.dtype == p->b.dtype && p->dim[0] && p->dim[1] && p->dim[2] && p->k;
}

static bool is_plain_gemm(const struct program *p)
{
    if (p->kind != PROGRAM_GEMM || p->steps != 2 || p->step[1].kind != STEP_STORE) return false;
    const struct port *d = &p->port[p->step[1].port];
    bool same = d->dtype == p->a.dtype || d->dtype == CODA_F32;
    return same && d->stride[2] == 1 && plan_suits_cublaslt(p);
}

static void use_cublaslt(struct plan *p, const struct plan_options *opt)
{
    for (int i = 0; i < p->programs; i++) {
        struct program *q = &p->program[i];
        const struct decision *d = plan_decision(opt, q->root);
        if (!(opt->cublaslt || (d && d->apart)) || !is_plain_gemm(q)) continue;
        q->tile.mainloop = MAINLOOP_CUBLASLT;
        q->scratch = p->buffers;
        p->buffer[p->buffers++] = (struct buffer){
            .space = SPACE_WORK, .bytes = JIT_LT_WORKSPACE, .first = -1, .last = -1, .value = -1};
    }
}

/* ---- Invariants ---- */

static coda_status verify_step(const struct plan *p, const struct program *q, int index)
{
    const struct step *s = &q->step[index];
    bool wants_port = s->kind == STEP_LOAD || s->kind == STEP_PARTIAL || s->kind == STEP_STORE;
    if ((wants_port || s->port >= 0) &&
        (s->port < 0 || s->port >= q->ports || q->port[s->port].buffer >= p->buffers))
        return fail(CODA_E_INVALID, "plan: step %d of @%d has no port", index, (int)(q - p->program));
    for (int i = 0; i < s->nin; i++) {
        bool optional = i == 1 && (s->kind == STEP_REDUCE || s->kind == STEP_ROPE);
        if (s->in[i] < 0 && optional) continue;
        if (s->in[i] < 0 || s->in[i] >= index || !step_has_value(q, &q->step[s->in[i]]))
            return fail(CODA_E_INVALID, "plan: step %d of @%d reads step %d", index, (int)(q - p->program),
                        s->in[i]);
    }
    return CODA_OK;
}

static coda_status verify_buffers(const struct plan *p)
{
    for (int i = 0; i < p->buffers; i++) {
        const struct buffer *b = &p->buffer[i];
        int64_t end = b->space == SPACE_PREPARED ? p->prepared : p->workspace;
        if (b->first < 0 || b->space == SPACE_ARG) continue;
        if (b->offset < 0 || b->offset % 256 || b->offset + b->bytes > end)
            return fail(CODA_E_INVALID, "plan: buffer %d of %lld bytes lies at %lld of %lld", i,
                        (long long)b->bytes, (long long)b->offset, (long long)end);
    }
    return CODA_OK;
}

static coda_status verify(const struct plan *p)
{
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        if (q->rank > CODA_MAX_RANK) return fail(CODA_E_INVALID, "plan: @%d has rank %d", i, q->rank);
        for (int s = 0; s < q->steps; s++) {
            coda_status status = verify_step(p, q, s);
            if (status) return status;
        }
    }
    return verify_buffers(p);
}

/* ---- Build ---- */

coda_status plan_build(struct plan *p, const graph *g, const struct plan_options *opt)
{
    memset(p, 0, sizeof *p);
    p->graph = insert_copies(g);
    if (!p->graph) return fail_status();
    coda_status status = plan_group(p, p->graph, opt);
    if (!status) status = order_programs(p);
    if (!status) use_cublaslt(p, opt);
    if (!status) plan_place(p);
    if (!status) status = verify(p);
    if (status) plan_free(p);
    return status;
}

/* ---- Figures ---- */

static int64_t extent_bytes(const struct program *q, const struct port *port, bool half)
{
    if (port->kind == PORT_PARTIAL_LOAD || port->kind == PORT_PARTIAL_STORE) {
        int64_t rows = 1;
        for (int d = 0; d + 1 < q->rank; d++) rows *= q->dim[d];
        return rows * port->blocks * port->reduce->state * 4;
    }
    int64_t n = dtype_size(port->dtype);
    for (int d = 0; d < q->rank; d++) {
        bool gathered = port->kind == PORT_GATHER && d + 1 < q->rank;
        if (port->stride[d] || gathered) n *= half && d + 1 == q->rank ? q->dim[d] / 2 : q->dim[d];
    }
    return n;
}

int64_t program_bytes(const struct program *q)
{
    int64_t bytes = 0;
    if (q->kind == PROGRAM_ATTENTION) {
        const struct attention_spec *a = &q->attention;
        int64_t size = dtype_size(a->q.dtype);
        return size * a->batch * a->head_dim * (2 * a->tq * a->heads + 2 * a->tk * a->kv_heads);
    }
    for (int i = 0; i < q->ports; i++) {
        bool half = false;
        for (int j = 0; j < q->steps; j++) half = half || (q->step[j].port == i && q->step[j].half);
        bytes += extent_bytes(q, &q->port[i], half);
    }
    if (q->kind != PROGRAM_GEMM) return bytes;
    int64_t a = q->dim[1] * q->k * (q->a.batch ? q->dim[0] : 1),
            b = q->dim[2] * q->k * (q->b.batch ? q->dim[0] : 1);
    return bytes + a * dtype_size(q->a.dtype) + b * dtype_size(q->b.dtype);
}

/* Pairs of query and key that are not masked. */
static double visible_pairs(const struct attention_spec *a)
{
    double pairs = 0;
    for (int64_t i = 0; i < a->tq; i++) {
        int64_t at = i + a->tk - a->tq, last = a->causal ? MIN(at, a->tk - 1) : a->tk - 1;
        int64_t first = a->window ? MAX(at - a->window + 1, 0) : 0;
        pairs += (double)MAX(last - first + 1, 0);
    }
    return pairs;
}

double program_flops(const struct program *q)
{
    const struct attention_spec *a = &q->attention;
    if (q->kind == PROGRAM_GEMM)
        return 2.0 * (double)q->dim[0] * (double)q->dim[1] * (double)q->dim[2] * (double)q->k;
    if (q->kind == PROGRAM_ATTENTION)
        return 4.0 * visible_pairs(a) * (double)(a->batch * a->heads) * (double)a->head_dim;
    return 0;
}
