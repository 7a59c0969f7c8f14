/*
 * price.c -- what a run of a whole plan costs, by price: a product what its main loop says of its tile, other
 * programs the larger of two times, memory's for their bytes and the matrix units' for their products. How
 * many keys attention reads from a cache is data: such a launch counts as one and no more, so that what the
 * other programs of a step cost weighs all the heavier.
 */
#include "mainloop.h"

enum {
    HOST_BYTES = 8, /* that a host moves in the time of an operation */
    LONG = 350000   /* clocks of products, 0.2 ms: see program_is_long */
};

/* Attention finishes three quarters of the multiply-adds that products do, fp8 by fp8 twice as many. */
static double product_clocks(const struct program *q, const struct target *t)
{
    return program_flops(q) / (2 * 0.75 * (program_is_f8(q) ? 2 : 1) * t->wgmma * t->sms);
}

static double work_clocks(const struct program *q, const struct target *t)
{
    if (q->own && q->own->by_data && q->own->by_data(q->spec)) return 0;
    return MAX(memory_clocks(t, (double)program_bytes(q)), product_clocks(q, t));
}

bool program_is_long(const struct program *q, const struct target *t)
{
    bool by_data = q->own && q->own->by_data && q->own->by_data(q->spec);
    return !by_data && product_clocks(q, t) > LONG;
}

double plan_price(const struct plan *p)
{
    double clocks = 0;
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        const struct tile *t = &p->schedule[i].tile;
        if (q->prepare) continue;
        clocks += LAUNCH + (q->kind == PROGRAM_GEMM ? t->mainloop->cost(q, t, &p->target)
                                                    : work_clocks(q, &p->target));
    }
    return clocks;
}

double plan_work(const struct plan *p)
{
    double work = 0;
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        if (!q->prepare) work += HOST_BYTES * program_flops(q) + (double)program_bytes(q);
    }
    return work;
}
