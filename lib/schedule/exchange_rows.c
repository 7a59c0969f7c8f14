/*
 * exchange_rows.c -- a sum over ranks that the rows program behind it alone reads is made there: each piece,
 * where it is loaded. So what follows it, a residual and a row's statistic, costs no launch, and the sum no
 * memory. The program of the exchange stays in the plan, and nobody runs it.
 */
#include "exchange.h"
#include "own.h"
#include "schedule.h"

/* ---- Who else has to do with it ---- */

static bool has_one_reader(const struct plan *p, int exchange)
{
    const struct exchange_spec *s = p->program[exchange].spec;
    int sum = s->use[ALL_REDUCE_SUM].buffer;
    const struct tensor_use *u;
    if (p->buffer[sum].space != SPACE_WORK) return false;
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; i != exchange && i != exchange + 1 && (u = program_use(&p->program[i], j)); j++)
            if (u->buffer == sum && !exchange_is_order(&p->program[i], u)) return false;
    return true;
}

/* Rows that are written while others are not sent yet lie apart from these. */
static bool writes_apart(const struct plan *p, const struct program *q, int x)
{
    const struct buffer *from = &p->buffer[x];
    const struct tensor_use *u;
    if (from->space != SPACE_WORK) return false;
    for (int j = 0; (u = program_use(q, j)); j++) {
        const struct buffer *b = &p->buffer[u->buffer];
        if (use_effect(u) == EFFECT_READ || b->space != SPACE_WORK) continue;
        if (b->offset < from->offset + from->bytes && from->offset < b->offset + b->bytes) return false;
    }
    return true;
}

/* ---- How it is loaded ---- */

/* The port, if just one has to do with the buffer, and loads it; -1. */
static int port_of(const struct program *q, int buffer)
{
    int found = -1;
    for (int i = 0; i < q->ports; i++) {
        if (q->port[i].buffer != buffer) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found >= 0 && q->port[found].role == USE_LOAD ? found : -1;
}

/* Each row behind the other, in pieces of 16 bytes. */
static bool is_dense(const struct rows_walk *w, const struct tensor_use *u, int port,
                     const struct exchange_spec *s)
{
    const int64_t *stride = w->stride[port];
    bool one = w->rank == 1 || (w->rank == 2 && stride[0] == w->columns);
    return one && stride[w->rank - 1] == 1 && !u->offset && w->packed[port] &&
           dtype_bytes(u->dtype, w->width) % 16 == 0 && u->dtype == s->use[ALL_REDUCE_X].dtype &&
           use_start(&s->use[ALL_REDUCE_X]) % 16 == 0 && w->rows * w->columns == s->extent;
}

/* Once for each piece, by one step. */
static bool is_loaded_once(const struct rows_walk *w, struct arena *a, const struct program *q, int port)
{
    bool *needed = ARENA_NEW(a, bool, q->steps + 1);
    int loads = 0, walks = 0, step = 0;
    for (int i = 0; i < q->steps; i++) {
        const struct step *s = &q->step[i];
        if (!w->live[i]) continue;
        if (s->kind == STEP_PAIR) return false; /* which looks elsewhere in the row */
        if (s->kind == STEP_LOAD && s->port == port) loads++, step = i;
    }
    for (int phase = 0; needed && phase < w->phases; phase++)
        walks += rows_needs(w, q, phase, needed) && needed[step];
    return needed && loads == 1 && walks && (walks == 1 || w->kept[step]) && !w->folds && !w->finishes &&
           w->pieces;
}

/* A thread asks for all of its pieces at once. */
static bool has_registers(const struct rows_walk *w)
{
    enum { LARGE = 512, MOST = 64, MOST_OF_LARGE = 16 }; /* threads of a block; elements of a thread */
    return w->items * w->width <= (w->threads > LARGE ? MOST_OF_LARGE : MOST);
}

/* ---- Both as one ---- */

coda_status schedule_join_exchange(struct plan *p, int exchange, bool *joined)
{
    const struct program *q = &p->program[exchange + 1];
    const struct exchange_spec *s = p->program[exchange].spec;
    struct schedule *to = &p->schedule[exchange + 1];
    int port = port_of(q, s->use[ALL_REDUCE_SUM].buffer);
    *joined = false;
    if (s->op != OP_ALL_REDUCE || q->kind != PROGRAM_ROWS || q->prepare != p->program[exchange].prepare ||
        port < 0)
        return CODA_OK;
    if (!has_one_reader(p, exchange) || !writes_apart(p, q, s->use[ALL_REDUCE_X].buffer)) return CODA_OK;
    coda_status status = schedule_complete(to, &p->arena, q, &p->target);
    if (status || !is_dense(&to->walk, &q->port[port], port, s)) return status;
    rows_spread(&to->walk, q); /* as it will be */
    *joined = has_registers(&to->walk) && is_loaded_once(&to->walk, &p->arena, q, port);
    if (*joined) to->exchange = s;
    return CODA_OK;
}
