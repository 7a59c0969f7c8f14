/*
 * aside.c -- exchanges that other programs run beside (plan.beside) go to a second stream of the group's,
 * whatever carries them. Where a program waits for one of the other stream, it waits for a mark behind the
 * last such: so one mark does for all that are ahead of it, and a stream waits for each once.
 *
 * The second stream begins behind a mark at which the run does, and the first one ends behind all that the
 * second has.
 */
#include "exchange.h"
#include "own.h"
#include "runner.h"
#include "schedule.h"

enum { NONE = -1, BEGIN = 0 }; /* marks */

/* ---- Found once ---- */

struct search {
    struct coda_plan *p;
    int seen[2]; /* of each stream: how far it has waited for the other; -1: for where that begins */
};

/* Which program has it done: a sum that is a part of the program behind it is there behind that. */
static int done_by(const struct coda_plan *p, int i)
{
    const struct plan *plan = &p->plan;
    bool folded = i + 1 < plan->programs && plan->schedule[i + 1].exchange &&
                  plan->schedule[i + 1].exchange == plan->program[i].spec;
    return i + folded;
}

static int mark_behind(struct coda_plan *p, int i)
{
    if (i < 0) return BEGIN;
    if (p->program[i].mark == NONE) p->program[i].mark = p->marks++;
    return p->program[i].mark;
}

static void find_one(struct search *s, int i)
{
    struct coda_plan *p = s->p;
    struct compiled_program *c = &p->program[i];
    const struct waits *w = &p->plan.waits[i];
    int last = c->aside ? NONE : s->seen[false];
    for (int k = 0; k < w->n; k++) {
        int other = done_by(p, w->on[k]);
        if (other < i && p->program[other].aside != c->aside) last = MAX(last, other);
    }
    if (last <= s->seen[c->aside]) return;
    s->seen[c->aside] = last;
    c->after = mark_behind(p, last);
}

static void find_all(struct coda_plan *p)
{
    struct search s = {p, {NONE, NONE - 1}};
    int last = NONE;
    p->marks = BEGIN + 1;
    for (int i = 0; i < p->plan.programs; i++) {
        if (p->plan.program[i].prepare) continue;
        find_one(&s, i);
        if (p->program[i].aside) last = i;
    }
    p->joins = last > s.seen[false] ? mark_behind(p, last) : NONE;
}

coda_status aside_find(struct coda_plan *p)
{
    bool any = false;
    for (int i = 0; i < p->plan.programs; i++) {
        struct compiled_program *c = &p->program[i];
        c->after = c->mark = NONE;
        c->aside = p->device == CODA_DEVICE_GPU && p->plan.beside && p->plan.beside[i] && c->runner;
        any = any || c->aside;
    }
    coda_status status = any && !p->plan.waits ? plan_find_waits(&p->plan) : CODA_OK;
    if (any && !status) find_all(p);
    return status;
}

/*
 * A persistent kernel with a block for each SM would wait with those for which an exchange left no SM until
 * others of its own have ended: twice its time. NCCL's exchanges have 24 blocks on a pair of H200s: rows of a
 * layer of 7B in two pieces took 832 us with 16 SMs left to them, 758 with 24.
 */
static int wanted_sms(const struct coda_plan *p, int exchange, int beside)
{
    enum { NCCL_BLOCKS = 24 };
    const struct exchange_spec *s = p->plan.program[exchange].spec;
    if (s->moves) return !p->plan.schedule[beside].leaves_warp;
    if (!p->program[exchange].runner->kernel) return NCCL_BLOCKS;
    bool copied = p->plan.schedule[exchange].tile.stages == EXCHANGE_BY_COPIES;
    return copied ? exchange_copies_sms(s) : EXCHANGE_BESIDE_BLOCKS;
}

int aside_sms(const struct coda_plan *p, int i)
{
    enum { MOST_SHARE = 4 };
    int most = 0;
    for (int k = 0; k < i && !p->program[i].aside; k++)
        if (p->program[k].aside && i < p->plan.beside[k]) most = MAX(most, wanted_sms(p, k, i));
    return MIN(most, p->gpu.sms / MOST_SHARE);
}

/* ---- In a run ---- */

coda_status aside_open(struct call *c)
{
    const struct coda_plan *p = c->p;
    char err[JIT_ERROR_SIZE] = "";
    struct jit_side *side;
    if (!p->marks || c->watch) return CODA_OK;
    coda_status status = carrier_side(c, c->args[p->group[0].arg], p->marks, &side);
    if (!status && (status = jit_side_mark(side, BEGIN, c->stream, err))) return fail(status, "run: %s", err);
    if (!status) c->side = side;
    return status;
}

coda_stream aside_stream(const struct call *c, int i)
{
    return c->side && c->p->program[i].aside ? jit_side_stream(c->side) : c->stream;
}

coda_status aside_before(const struct call *c, int i)
{
    char err[JIT_ERROR_SIZE] = "";
    int after = c->p->program[i].after;
    coda_status status =
        c->side && after != NONE ? jit_side_wait(c->side, after, aside_stream(c, i), err) : CODA_OK;
    return status ? fail(status, "run: %s", err) : CODA_OK;
}

coda_status aside_behind(const struct call *c, int i)
{
    char err[JIT_ERROR_SIZE] = "";
    int mark = c->p->program[i].mark;
    coda_status status =
        c->side && mark != NONE ? jit_side_mark(c->side, mark, aside_stream(c, i), err) : CODA_OK;
    return status ? fail(status, "run: %s", err) : CODA_OK;
}

/* Whether a run of so many programs has given some to the second stream. */
static bool has_forked(const struct call *c, int begun)
{
    bool any = false;
    for (int i = 0; i < c->p->plan.programs && begun; i++) {
        if (c->p->plan.program[i].prepare) continue;
        any = any || c->p->program[i].aside;
        begun--;
    }
    return any;
}

/* What has begun ends ahead of what the caller's stream gets next, though the run has failed. */
static void join_in_any_case(const struct call *c, int begun)
{
    char err[JIT_ERROR_SIZE];
    if (c->side && has_forked(c, begun) && !jit_side_mark(c->side, BEGIN, jit_side_stream(c->side), err))
        jit_side_wait(c->side, BEGIN, c->stream, err);
}

coda_status aside_close(const struct call *c, int begun, coda_status run)
{
    char err[JIT_ERROR_SIZE] = "";
    if (run) return join_in_any_case(c, begun), run;
    bool joins = c->side && c->p->joins != NONE;
    coda_status status = joins ? jit_side_wait(c->side, c->p->joins, c->stream, err) : CODA_OK;
    return status ? fail(status, "run: %s", err) : CODA_OK;
}
