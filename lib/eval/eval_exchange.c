/* eval_exchange.c -- what ranks add up or put together, in fp64: each rank is a thread that evaluates the
 * graph, and they meet. */
#include "eval.h"
#include "ranks.h"

#include <string.h>

/* The value of a group is the address of its handle, in the place of a number. */
_Static_assert(sizeof(void *) == sizeof(double), "a handle takes the place of a number");

coda_status eval_group(const struct eval_call *c)
{
    memcpy(c->out, &c->data, sizeof c->data);
    return CODA_OK;
}

/* What is added or moved: `runs` runs of `run` elements of each rank. */
struct exchange {
    const double *const *x;
    double *y;
    int64_t ranks, rank, outer, extent, inner;
};

static void all_reduce(const struct exchange *e)
{
    int64_t n = e->outer * e->extent * e->inner;
    for (int64_t i = 0; i < n; i++) {
        e->y[i] = 0;
        for (int64_t r = 0; r < e->ranks; r++) e->y[i] += e->x[r][i];
    }
}

static void reduce_scatter(const struct exchange *e)
{
    int64_t part = e->extent / e->ranks;
    for (int64_t o = 0; o < e->outer; o++)
        for (int64_t i = 0; i < part * e->inner; i++) {
            double *y = &e->y[o * part * e->inner + i];
            *y = 0;
            for (int64_t r = 0; r < e->ranks; r++)
                *y += e->x[r][(o * e->extent + e->rank * part) * e->inner + i];
        }
}

static void all_gather(const struct exchange *e)
{
    int64_t run = e->extent * e->inner;
    for (int64_t o = 0; o < e->outer; o++)
        for (int64_t r = 0; r < e->ranks; r++)
            for (int64_t i = 0; i < run; i++) e->y[(o * e->ranks + r) * run + i] = e->x[r][o * run + i];
}

static coda_status exchange(const struct eval_call *c, const char *name, int64_t axis,
                            void (*work)(const struct exchange *))
{
    const struct type *x = c->type[EXCHANGE_X];
    const void *const *all;
    struct exchange e = {.y = c->out, .outer = 1, .extent = 1, .inner = 1};
    coda_group *g;
    memcpy(&g, c->in[EXCHANGE_GROUP], sizeof g);
    e.ranks = c->g->node[c->n->in[EXCHANGE_GROUP]].attr.group.ranks;
    for (int d = 0; d < x->rank; d++) *(d < axis ? &e.outer : d == axis ? &e.extent : &e.inner) *= x->dim[d];
    const struct offer mine = {
        .operation = name, .outer = e.outer, .extent = e.extent, .inner = e.inner, .x = c->in[EXCHANGE_X]};
    coda_status status = ranks_check(g, name, e.ranks);
    if (status || (status = ranks_meet(g, &mine, &all))) return status;
    const double *of[RANKS_MOST];
    for (int64_t r = 0; r < e.ranks; r++) of[r] = all[r];
    e.x = of, e.rank = ranks_rank(g);
    work(&e);
    return ranks_part(g);
}

coda_status eval_all_reduce(const struct eval_call *c) { return exchange(c, "all_reduce", -1, all_reduce); }
coda_status eval_reduce_scatter(const struct eval_call *c)
{
    return exchange(c, "reduce_scatter", c->n->attr.reduce_scatter.axis, reduce_scatter);
}
coda_status eval_all_gather(const struct eval_call *c)
{
    return exchange(c, "all_gather", c->n->attr.all_gather.axis, all_gather);
}
