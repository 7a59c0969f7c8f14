/*
 * eval_attention_grad.c -- the gradients of attention in fp64, pair by pair of query and key.
 *
 * With l the log of the sum of e^s of a query, and s its scores:
 *     delta = sum(do o) - dl;  p = e^(s - l) of a key that it sees;  ds = p (do v - delta), times the
 *     derivative of the map that made s of another score, if there is one;
 *     dv = sum p do;  dq = scale sum dr k;  dk = scale sum dr q, where dr is the derivative by scale q k;
 *     d sink = -sum e^(sink - l) delta;  d slope = -sum ds |i - j|;  d bias = ds, summed over what it is for
 * (Dao et al., FlashAttention, appendix B.4). Who sees no key has l = -inf, and adds nothing.
 */
#include "eval_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gradient {
    struct attention a;
    const struct prim *map;             /* of scores; NULL: none */
    const double *o, *lse, *d_o, *dlse; /* dlse NULL: 0 */
    double *out;
    int use; /* which result is out: ATTENTION_GRAD_DQ, ... */
    atomic_bool failed;
};

/* One query of a head while its keys are walked. */
struct row {
    const double *q, *d_o;
    double lse, delta;
    double *dq;
};

/* What a key is to a query: its weight, and the derivatives of the loss by the score and by scale q k. */
struct pair {
    double p, ds, dr;
};

static double dot(const double *x, const double *y, int64_t n)
{
    double even = n % 2 ? *x * *y : 0, odd = 0; /* one sum would wait for itself */
    for (int64_t i = n % 2; i < n; i += 2) even += x[i] * y[i], odd += x[i + 1] * y[i + 1];
    return even + odd;
}

static void add(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += factor * x[i];
}

/* The score is capped, then less the slope times the distance, then more by the bias, then mapped. */
static struct pair pair_of(const struct gradient *g, const struct queries *s, const struct row *row,
                           int64_t i, int64_t j)
{
    const struct attention *a = &g->a;
    double by_map = 1, position = (double)(s->first + i + s->shift);
    double x = a->scale * dot(row->q, s->k.at + j * s->k.row, a->head_dim), by_product = 1;
    if (a->softcap != 0) {
        double t = tanh(x / a->softcap);
        x = a->softcap * t, by_product = 1 - t * t;
    }
    if (a->slopes) x -= a->slopes[s->head] * fabs(position - (double)j);
    if (s->bias) x += s->bias[(s->first + i) * a->bias_stride[2] + j * a->bias_stride[3]];
    if (g->map) {
        double in[PRIM_MAX_INPUTS] = {x, position, (double)j, (double)s->head};
        by_map = score_partial(g->map, in, a->map_param);
        x = a->map(in, a->map_param);
    }
    if (x == -INFINITY) return (struct pair){0, 0, 0};
    double p = exp(x - row->lse);
    double ds = by_map * p * (dot(row->d_o, s->v.at + j * s->v.row, a->head_dim) - row->delta);
    return (struct pair){p, ds, ds * by_product};
}

/* Adds what a pair gives. Key j of a head is row j of k and v. */
static void add_pair(const struct gradient *g, const struct queries *s, const struct row *row, int64_t i,
                     int64_t j, struct pair p)
{
    const struct attention *a = &g->a;
    const double *k = s->k.at + j * s->k.row;
    double distance = fabs((double)(s->first + i + s->shift - j));
    switch (g->use) {
    case ATTENTION_GRAD_DQ: add(row->dq, a->scale * p.dr, k, a->head_dim); break;
    case ATTENTION_GRAD_DK: add(g->out + (k - a->k), a->scale * p.dr, row->q, a->head_dim); break;
    case ATTENTION_GRAD_DV: add(g->out + (s->v.at + j * s->v.row - a->v), p.p, row->d_o, a->head_dim); break;
    case ATTENTION_GRAD_DSLOPES: g->out[s->head] -= p.ds * distance; break;
    case ATTENTION_GRAD_DBIAS:
        g->out[s->bias - a->bias + (s->first + i) * a->bias_stride[2] + j * a->bias_stride[3]] += p.ds;
        break;
    }
}

static void add_row(const struct gradient *g, const struct piece *p, const struct queries *s, int64_t i)
{
    const struct attention *a = &g->a;
    const struct key_range seen = queries_see(a, s, i);
    int64_t at = s->q.at - a->q + i * s->q.row, sum = attention_row_of_sums(a, p, s->head) + i;
    if (seen.first >= seen.end || g->lse[sum] == -INFINITY) return;
    struct row row = {.q = a->q + at, .d_o = g->d_o + at, .lse = g->lse[sum], .dq = g->out + at};
    row.delta = dot(row.d_o, g->o + at, a->head_dim) - (g->dlse ? g->dlse[sum] : 0);
    if (g->use == ATTENTION_GRAD_DSINKS) {
        g->out[s->head] -= exp(a->sinks[s->head] - row.lse) * row.delta;
        return;
    }
    for (int64_t j = seen.first; j < seen.end; j++) add_pair(g, s, &row, i, j, pair_of(g, s, &row, i, j));
}

/* All queries that read a key head: no other task adds to what these do, but to a bias. */
static void gradient_task(void *ctx, int64_t kv_head)
{
    struct gradient *g = ctx;
    int64_t group = g->a.heads / g->a.kv_heads;
    struct queries *s = malloc(sizeof *s);
    if (!s) atomic_store(&g->failed, true);
    for (int64_t h = kv_head * group; s && h < (kv_head + 1) * group; h++)
        for (int64_t p = 0; p < g->a.pieces; p++) {
            attention_queries(&g->a, &g->a.piece[p], h, s);
            for (int64_t i = 0; i < s->count; i++) add_row(g, &g->a.piece[p], s, i);
        }
    free(s);
}

coda_status eval_attention_grad(const struct eval_call *c)
{
    int node[ATTENTION_OPERANDS];
    const struct node of = attention_of_grad(c->n, node);
    const double *in[ATTENTION_OPERANDS];
    const struct type *type[ATTENTION_OPERANDS];
    for (int i = 0; i < ATTENTION_OPERANDS; i++) {
        int operand = node[i] < 0 ? -1 : attention_grad_operand(i);
        in[i] = operand < 0 ? NULL : c->in[operand];
        type[i] = operand < 0 ? NULL : c->type[operand];
    }
    struct gradient g = {.map = c->n->prim,
                         .o = c->in[ATTENTION_GRAD_O],
                         .lse = c->in[ATTENTION_GRAD_LSE],
                         .d_o = c->in[ATTENTION_GRAD_DO],
                         .dlse = c->in[ATTENTION_GRAD_DLSE],
                         .out = c->out,
                         .use = ATTENTION_GRAD_OPERANDS + node_result(c->n)};
    if (!score_has_reference(c->n->prim))
        return fail(CODA_E_UNSUPPORTED, "evaluate: map %s, or its derivative, has no reference",
                    c->n->prim->name);
    if (!attention_open(&g.a, &of, type, in)) return fail_status();
    memset(c->out, 0, sizeof *c->out * (size_t)type_elements(&c->n->type));
    double pairs = (double)type_elements(type[ATTENTION_Q]) * (double)g.a.tk;
    if (g.use == ATTENTION_GRAD_DBIAS || pairs < 1 << 16)
        for (int64_t i = 0; i < g.a.kv_heads; i++) gradient_task(&g, i);
    else parallel_for(g.a.kv_heads, gradient_task, &g);
    free(g.a.piece);
    return g.failed ? fail(CODA_E_MEMORY, "evaluate: out of memory in attention_grad") : CODA_OK;
}
