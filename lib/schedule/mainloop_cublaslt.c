/* mainloop_cublaslt.c -- cuBLASLt instead of a kernel: bare products, where the caller or tuning wants it. */
#include "mainloop.h"

#include <string.h>

/* Can cuBLASLt compute all of p, a product that is stored as it is? */
static bool suits_alone(const struct program *p)
{
    if (p->kind != PROGRAM_GEMM || p->steps != 2 || p->step[1].kind != STEP_STORE) return false;
    const struct tensor_use *d = &p->port[p->step[1].port];
    if (use_effect(d) != EFFECT_WRITE) return false;
    bool same = d->dtype == p->a.dtype || d->dtype == CODA_F32;
    return same && d->stride[2] == 1 && program_suits_cublaslt(p);
}

/* ---- Instead of a main loop that it may beat ---- */

/* The cost of waves that are not full, for which smaller tiles or a split of K may make up. */
static double stretch(const struct program *p, const struct target *target)
{
    enum { TILE = 128 };
    int64_t tiles = p->dim[0] * CEIL_DIV(p->dim[1], TILE) * CEIL_DIV(p->dim[2], TILE);
    double all = (double)CEIL_DIV(tiles, target->sms) * target->sms * TILE * TILE;
    return MIN(all / ((double)p->dim[0] * (double)p->dim[1] * (double)p->dim[2]), 1.35);
}

/* Clocks of `bytes` where a kernel gets the part `share` of what memory gives. */
static double pass_clocks(const struct target *target, double bytes, double share)
{
    return memory_clocks(target, bytes) / share;
}

/* Its fp32 kernels, and those of operands that wgmma does not take; what a launch costs; and what a store
 * and a load do between the product and each pass of the epilogue. */
static double cost(const struct program *p, const struct tile *t, const struct target *target)
{
    enum { LAUNCH_US = 10, PASS_US = 2 };
    (void)t;
    double rate = p->a.dtype == CODA_F32 ? target->cublaslt_f32 / stretch(p, target) : target->cublaslt_odd;
    int passes = p->steps > 2;
    for (int i = 0; i < p->steps; i++) passes += p->step[i].kind == STEP_PAIR;
    double elements = (double)p->dim[0] * (double)p->dim[1] * (double)p->dim[2];
    double product =
        MAX(program_flops(p) / (2 * rate * target->sms), pass_clocks(target, (double)program_bytes(p), 0.81));
    double pass = pass_clocks(target, 2 * elements * dtype_bits(p->a.dtype) / 8, 0.65);
    return target->clock_mhz * (LAUNCH_US + passes * PASS_US) + product + passes * pass;
}

bool tile_loses(const struct program *p, const struct tile *t, const struct target *target)
{
    double margin = t->mainloop == &mainloop_simt ? 1.25 : 1.05; /* between two costs, rough ones or fitted */
    return t->mainloop->contested && program_suits_cublaslt(p) &&
           t->mainloop->cost(p, t, target) > margin * cost(p, t, target);
}

/* A workspace for the library. */
static int64_t scratch(const struct program *p, const struct tile *t)
{
    (void)p, (void)t;
    return 64 << 20;
}

const struct mainloop mainloop_cublaslt = {.name = "cublaslt", .cost = cost, .scratch = scratch};

/* ---- Where it is wanted ---- */

void schedule_cublaslt(struct plan *p, const struct plan_options *opt)
{
    for (int i = 0; i < p->programs; i++) {
        struct program *q = &p->program[i];
        const struct decision *d = plan_decision(opt, q->root);
        if (opt->invariant || !(opt->cublaslt || (d && d->apart)) || !suits_alone(q)) continue;
        p->schedule[i].tile.mainloop = &mainloop_cublaslt;
    }
}

bool program_is_cublaslt(const struct plan *p, int index)
{
    return p->program[index].kind == PROGRAM_GEMM && p->schedule[index].tile.mainloop == &mainloop_cublaslt;
}
