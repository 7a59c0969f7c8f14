/*
 * schedule.c -- how each program runs on one machine: a GEMM's tile, attention's kernel, and how many states
 * a reduction leaves of each row, which follows from the tiles.
 */
#include "schedule.h"

#include "attention_tile.h"
#include "epilogue_layout.h"
#include "tile.h"

/* ---- Tiles ---- */

/* Equal products have equal tiles: the cheapest is sought once. */
static bool set_tile(struct plan *p, struct program *q, struct memo *tiles, const struct plan_options *opt)
{
    const struct decision *d = plan_decision(opt, q->root);
    struct identity id;
    const int *ignored;
    q->figures = d ? d->figures : NULL;
    if (d && d->tile[0]) {
        q->tile = tile_named(q, &opt->machine, d->tile);
        return true;
    }
    bool good = identity_of(&id, &p->arena, p, q);
    struct program *first = good ? memo_first(tiles, &p->arena, &id, q, &ignored) : NULL;
    if (first == q) q->tile = tile_named(q, &opt->machine, "");
    else if (first) q->tile = first->tile;
    return first;
}

/* ---- States ---- */

static coda_status size_state(struct plan *p, struct program *q, const struct port *port, int *blocks)
{
    int64_t states = program_states(q);
    if (states > INT32_MAX)
        return fail(CODA_E_UNSUPPORTED, "plan: %%%d reduces %lld columns in %lld tiles; most are %d",
                    port->value, (long long)q->dim[2], (long long)states, INT32_MAX);
    blocks[port->value] = (int)states;
    p->buffer[port->buffer].bytes =
        mul_counts(mul_counts(q->dim[0] * q->dim[1], states), port->reduce->state * 4);
    return CODA_OK;
}

/* Tiles decide how many states a row has: by node, for those who leave them and those who finish them. */
static coda_status size_states(struct plan *p)
{
    int *blocks = ARENA_NEW(&p->arena, int, p->graph->nodes + 1);
    coda_status status = CODA_OK;
    if (!blocks) return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", p->graph->nodes);
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; j < p->program[i].ports && p->program[i].kind == PROGRAM_GEMM && !status; j++)
            if (p->program[i].port[j].kind == PORT_PARTIAL_STORE)
                status = size_state(p, &p->program[i], &p->program[i].port[j], blocks);
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; j < p->program[i].ports; j++) {
            struct port *port = &p->program[i].port[j];
            if (port->kind == PORT_PARTIAL_STORE || port->kind == PORT_PARTIAL_LOAD)
                port->blocks = blocks[port->value];
        }
    return status;
}

coda_status schedule(struct plan *p, const struct plan_options *opt)
{
    struct memo tiles = {0};
    bool good = true;
    for (int i = 0; i < p->programs && good; i++) {
        struct program *q = &p->program[i];
        if (q->kind == PROGRAM_GEMM) good = set_tile(p, q, &tiles, opt);
        if (q->kind == PROGRAM_ATTENTION)
            q->attention.sm90 = attention_fits_sm90(&q->attention, &opt->machine);
    }
    if (!good || p->arena.failed)
        return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", p->graph->nodes);
    return size_states(p);
}

/* ---- cuBLASLt ---- */

static bool is_plain_gemm(const struct program *p)
{
    if (p->kind != PROGRAM_GEMM || p->steps != 2 || p->step[1].kind != STEP_STORE) return false;
    const struct port *d = &p->port[p->step[1].port];
    bool same = d->dtype == p->a.dtype || d->dtype == CODA_F32;
    return same && d->stride[2] == 1 && plan_suits_cublaslt(p);
}

coda_status schedule_cublaslt(struct plan *p, const struct plan_options *opt)
{
    for (int i = 0; i < p->programs; i++) {
        struct program *q = &p->program[i];
        const struct decision *d = plan_decision(opt, q->root);
        if (!(opt->cublaslt || (d && d->apart)) || !is_plain_gemm(q)) continue;
        q->tile.mainloop = MAINLOOP_CUBLASLT;
        q->scratch = plan_add_buffer(p, (struct buffer){.space = SPACE_WORK,
                                                        .bytes = CUBLASLT_WORKSPACE,
                                                        .first = -1,
                                                        .last = -1,
                                                        .value = -1});
    }
    return p->arena.failed ? fail(CODA_E_MEMORY, "out of memory for %d programs", p->programs) : CODA_OK;
}
