/*
 * cancel.c -- drops a factor that is divided by and multiplied with.
 *
 *     (y / s) c s  ==>  y c         s of the rows, and of a map that is never 0
 *
 * row_dot and factor_k leave such divisions, and a norm's gradient has the factor that meets them. In:
 * verified graph. Out: no such product. Inexact: the division rounds.
 */
#include "factors.h"

/* Takes out a factor of a and its opposite of b; false if there are none. */
static bool take_pair(const graph *g, struct factors *a, struct factors *b)
{
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            struct factors one = {.n = 1, .f = {a->f[i]}};
            one.f[0].kind = FACTOR_ROW;
            bool opposite = a->f[i].value == b->f[j].value && a->f[i].divides != b->f[j].divides &&
                            a->f[i].kind == b->f[j].kind && a->f[i].kind != FACTOR_SCALE;
            if (!opposite || !factors_are_rows(g, &one)) continue;
            factors_drop(a, i), factors_drop(b, j);
            return true;
        }
    return false;
}

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    const struct live *live = w->ctx;
    struct factors all, left, right;
    bool binary = g->node[v].op == OP_MAP && g->node[v].nin == 2 && live->is[v];
    if (!binary || !factors_of(g, v, &all) || all.n < 3) return RULE_COPY;
    /* What comes of the first operand, and of the second. */
    if (!factors_of(g, g->node[v].in[0], &left) || left.n >= all.n) return RULE_COPY;
    right = (struct factors){.n = all.n - left.n};
    for (int i = 0; i < right.n; i++) right.f[i] = all.f[left.n + i];
    left = all, left.n = all.n - right.n;
    bool fewer = false;
    while (take_pair(g, &left, &right)) fewer = true;
    if (!fewer) return RULE_COPY;
    for (int i = 0; i < right.n; i++) left.f[left.n++] = right.f[i];
    int first = factors_first_full(&left);
    coda_dtype t = g->node[v].type.dtype, own = first < 0 ? t : g->node[left.f[first].value].type.dtype;
    if (first < 0 || !(own == t || (t == CODA_F32 && dtype_is_half(own)))) return RULE_COPY;
    rewrite_note(w->log, "cancel", false, "%s: what it is divided by and multiplied with is left out",
                 rewrite_name(g, v).s);
    return factors_multiply(w, left, &g->node[v].type);
}

/* A division of what came out of a map that is never 0. */
static bool has_quotient(const graph *g)
{
    for (int n = 0; n < g->nodes; n++)
        if (g->node[n].op == OP_MAP && g->node[n].prim->facts.quotient) return true;
    return false;
}

graph *cancel(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return live_walk(in, replace, opt, log, has_quotient, NULL);
}
