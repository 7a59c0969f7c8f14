/* mainloop_cublaslt.c -- cuBLASLt instead of a kernel: bare products, where the caller or tuning wants it. */
#include "mainloop.h"

bool program_suits_cublaslt_alone(const struct program *p)
{
    if (p->kind != PROGRAM_GEMM || p->steps != 2 || p->step[1].kind != STEP_STORE) return false;
    const struct tensor_use *d = &p->port[p->step[1].port];
    if (use_effect(d) != EFFECT_WRITE) return false;
    bool same = d->dtype == p->a.dtype || d->dtype == CODA_F32;
    return same && d->stride[2] == 1 && program_suits_cublaslt(p);
}

/* ---- Instead of a main loop that it may beat ---- */

/* What waves that are not full cost, which smaller tiles or a split of K may make up for. */
static double stretch(const struct program *p, int sms)
{
    enum { TILE = 128 };
    int64_t tiles = p->dim[0] * CEIL_DIV(p->dim[1], TILE) * CEIL_DIV(p->dim[2], TILE);
    double all = (double)CEIL_DIV(tiles, sms) * sms * TILE * TILE;
    return MIN(all / ((double)p->dim[0] * (double)p->dim[1] * (double)p->dim[2]), 1.35);
}

/* Of an H200. What a store and a load cost between the product and each pass of the epilogue, besides. */
static double cost(const struct program *p, const struct tile *t, int sms)
{
    (void)t;
    double rate = p->a.dtype == CODA_F32 ? 52e6 / stretch(p, sms) : 130e6; /* operations in a us */
    int passes = p->steps > 2;
    for (int i = 0; i < p->steps; i++) passes += p->step[i].kind == STEP_PAIR;
    double elements = (double)p->dim[0] * (double)p->dim[1] * (double)p->dim[2];
    double product = MAX(program_flops(p) / rate, (double)program_bytes(p) / 3.5e6);
    return CLOCKS_A_US * (10 + product + passes * (2 + 2 * elements * dtype_size(p->a.dtype) / 2.8e6));
}

bool tile_loses(const struct program *p, const struct tile *t, const struct target *target)
{
    double margin = t->mainloop == &mainloop_simt ? 1.25 : 1.05; /* between two costs, rough ones or fitted */
    int sms = target->sms > 0 ? target->sms : TARGET_SMS;
    return t->mainloop->contested && program_suits_cublaslt(p) &&
           t->mainloop->cost(p, t, sms) > margin * cost(p, t, sms);
}

const struct mainloop mainloop_cublaslt = {.name = "cublaslt", .cost = cost};
