/*
 * accumulate.c -- sums of products that are added up where they end.
 *
 *     p1 -> a    a + p2 -> b    b + p3 -> d      ==>      p1 -> d    d += p2    d += p3
 *
 * An fp32 product whose epilogue adds what another one has left to its own, and leaves the sum where nobody
 * else reads it, is one of a chain. All members of a chain add to the memory in which the sum ends: an
 * output, one that runs add to, or a buffer. The gradient of a weight that several chunks of rows read is
 * such a sum: it needs neither memory of its own nor a product that fetches the old sum. The members may come
 * in any order, so that each comes where its operands die; order.c chooses. The first one stores what the
 * others add to. A run adds in the order of launches, so that each run leaves the same bits.
 */
#include "guards.h"
#include "plan.h"

#include <string.h>

/* How a buffer is used. */
struct traffic {
    int writers, readers; /* uses, not programs */
    int writer;           /* the last program that writes it */
};

struct chains {
    struct plan *p;
    struct traffic *traffic; /* of each buffer */
    int *source;             /* of a program: the one whose sum it adds to; -1 */
    bool *continued;         /* is its own sum added to? */
};

static void find_traffic(struct chains *c)
{
    const struct tensor_use *u;
    for (int i = 0; i < c->p->programs; i++)
        for (int j = 0; (u = program_use(&c->p->program[i], j)); j++) {
            struct traffic *t = &c->traffic[u->buffer];
            if (use_effect(u) == EFFECT_READ) t->readers++;
            else t->writers++, t->writer = i;
        }
}

/* ---- One member ---- */

/* The only step that stores; -1: there are several, or none. */
static int only_store(const struct program *q)
{
    int store = -1;
    for (int i = 0; i < q->steps; i++) {
        if (q->step[i].kind != STEP_STORE) continue;
        if (store >= 0) return -1;
        store = i;
    }
    return store;
}

static bool is_read_once(const struct program *q, int step)
{
    int reads = 0;
    for (int i = 0; i < q->steps; i++)
        for (int k = 0; k < q->step[i].nin; k++) reads += q->step[i].in[k] == step;
    return reads == 1;
}

/* A product of a run that leaves one fp32 value of its columns, whole, and does not write it over another. */
static bool may_be_member(const struct program *q)
{
    int store = only_store(q);
    if (q->kind != PROGRAM_GEMM || q->prepare || q->segment || q->ranges || store < 0) return false;
    const struct step *s = &q->step[store];
    const struct tensor_use *to = &q->port[s->port];
    return s->cls == CLASS_TILE && !s->store_columns.end && to->role == USE_STORE && to->dtype == CODA_F32 &&
           !to->version && !to->scale;
}

static bool is_sum(const struct step *s)
{
    return s->kind == STEP_MAP && s->nin == 2 && s->prim->header && !strcmp(s->prim->name, "add");
}

/* The load whose value the epilogue adds to what it stores, and nobody else reads; -1. */
static int added_load(const struct program *q)
{
    const struct step *store = &q->step[only_store(q)], *add = &q->step[store->in[0]];
    if (!is_sum(add) || !is_read_once(q, store->in[0])) return -1;
    for (int k = 0; k < 2; k++) {
        int i = add->in[k];
        if (i < 0 || add->in[!k] < 0 || q->step[i].kind != STEP_LOAD || !is_read_once(q, i)) continue;
        const struct tensor_use *from = &q->port[q->step[i].port];
        bool whole = q->step[i].cls == CLASS_TILE && q->step[i].half == store->half;
        if (whole && from->role == USE_LOAD && from->dtype == CODA_F32) return i;
    }
    return -1;
}

static bool lies_as(const struct program *q, const struct tensor_use *a, const struct tensor_use *b)
{
    return extents_equal(a->offset, b->offset) && extents_all_equal(a->stride, b->stride, q->rank);
}

/* Does product r leave, by its store, just what product q loads by the port? */
static bool leaves(const struct program *r, const struct program *q, const struct tensor_use *from)
{
    if (!may_be_member(r) || r->rank != q->rank || !extents_equal(r->sample, q->sample)) return false;
    const struct step *store = &r->step[only_store(r)];
    return store->half == q->step[only_store(q)].half && extents_all_equal(r->dim, q->dim, q->rank) &&
           lies_as(q, &r->port[store->port], from);
}

/* ---- Chains ---- */

static void find_source(struct chains *c, int program)
{
    const struct program *q = &c->p->program[program];
    c->source[program] = -1;
    int load = may_be_member(q) ? added_load(q) : -1;
    if (load < 0) return;
    const struct tensor_use *from = &q->port[q->step[load].port], *to = &q->port[q->step[only_store(q)].port];
    const struct traffic *t = &c->traffic[from->buffer];
    bool alone = t->readers == 1 && t->writers == 1 && c->p->buffer[from->buffer].space == SPACE_WORK;
    if (!alone || c->traffic[to->buffer].writers != 1 || !leaves(&c->p->program[t->writer], q, from)) return;
    c->source[program] = t->writer;
    c->continued[t->writer] = true;
}

/* Takes step `gone` out, whose readers read `instead`. */
static void take_out_step(struct program *q, int gone, int instead)
{
    for (int i = 0; i < q->steps; i++)
        for (int k = 0; k < q->step[i].nin; k++) {
            int *in = &q->step[i].in[k];
            if (*in == gone) *in = instead;
            *in -= *in > gone;
        }
    for (int i = 0; i < q->ports; i++) q->port[i].index -= q->port[i].index > gone;
    q->steps--;
    memmove(&q->step[gone], &q->step[gone + 1], sizeof *q->step * (size_t)(q->steps - gone));
}

/* Factors and zeros of operands, and scales, count ports from 1. */
static void take_out_port(struct program *q, int gone)
{
    int *from_one[] = {&q->a.scale, &q->a.zero, &q->b.scale, &q->b.zero};
    for (int i = 0; i < ARRAY_SIZE(from_one); i++) *from_one[i] -= *from_one[i] > gone;
    for (int i = 0; i < q->ports; i++) q->port[i].scale -= q->port[i].scale > gone;
    for (int i = 0; i < q->steps; i++) q->step[i].port -= q->step[i].port > gone;
    q->ports--;
    memmove(&q->port[gone], &q->port[gone + 1], sizeof *q->port * (size_t)(q->ports - gone));
}

/* The product stores what it has added to the load. */
static void leave_out_old_sum(struct program *q)
{
    int load = added_load(q), add = q->step[only_store(q)].in[0], port = q->step[load].port;
    int other = q->step[add].in[q->step[add].in[0] == load];
    take_out_step(q, add, other);
    take_out_step(q, load, -1);
    for (int i = 0; i < q->steps; i++)
        if (q->step[i].port == port) return; /* another step uses it */
    take_out_port(q, port);
}

/* All from `last` on add to where its sum ends. */
static void join(struct chains *c, int last)
{
    struct program *end = &c->p->program[last];
    const struct tensor_use to = end->port[end->step[only_store(end)].port];
    for (int i = last; i >= 0; i = c->source[i]) {
        struct program *q = &c->p->program[i];
        if (c->source[i] >= 0) leave_out_old_sum(q);
        struct tensor_use *port = &q->port[q->step[only_store(q)].port];
        port->buffer = to.buffer;
        port->offset = to.offset;
        port->effect = EFFECT_ADD;
        memcpy(port->stride, to.stride, sizeof port->stride);
    }
}

coda_status plan_accumulate(struct plan *p)
{
    struct chains c = {.p = p};
    c.traffic = ARENA_NEW(&p->arena, struct traffic, p->buffers + 1);
    c.source = ARENA_NEW(&p->arena, int, p->programs + 1);
    c.continued = ARENA_NEW(&p->arena, bool, p->programs + 1);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for sums of %d programs", p->programs);
    find_traffic(&c);
    for (int i = 0; i < p->programs; i++) find_source(&c, i);
    for (int i = 0; i < p->programs; i++)
        if (c.source[i] >= 0 && !c.continued[i]) join(&c, i);
    return CODA_OK;
}

/* ---- In order ---- */

/* Does it hold something before a run, to which the run adds? */
static bool is_added_to(const struct plan *p, const struct buffer *b)
{
    return b->space == SPACE_ARG && b->arg >= p->graph->leaves &&
           p->graph->output[b->arg - p->graph->leaves].add;
}

/* The first member of a chain stores what the others add to. */
coda_status plan_begin_sums(struct plan *p)
{
    bool *begun = ARENA_NEW(&p->arena, bool, p->buffers + 1);
    struct tensor_use *u;
    if (!begun) return fail(CODA_E_MEMORY, "out of memory for sums in %d buffers", p->buffers);
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; (u = program_use(&p->program[i], j)); j++) {
            if (use_effect(u) != EFFECT_ADD) continue;
            if (!begun[u->buffer] && !is_added_to(p, &p->buffer[u->buffer])) u->effect = 0;
            begun[u->buffer] = true;
        }
    return CODA_OK;
}
