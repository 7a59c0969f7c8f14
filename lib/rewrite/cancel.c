/*
 * cancel.c -- drops a factor that is divided by and multiplied with.
 *
 *     (y / s) c s    ==>  y c           s of the rows, and of a map that is never 0
 *     a / s + b / s  ==>  (a + b) / s
 *
 * row_dot and factor_k leave such divisions, and a norm's gradient has the factor that meets them, behind a
 * sum where several products read the norm. In: verified graph. Out: no such product or sum. Inexact: the
 * division rounds.
 */
#include "factors.h"

#include "guards.h"

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

/* The only divisor of v, which is a quotient; -1. */
static int divisor(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    struct factors by = {.n = 1};
    bool quotient = n->op == OP_MAP && n->nin == 2 && n->prim->facts.quotient == 2;
    if (!quotient || !type_equal(&n->type, &g->node[n->in[0]].type)) return -1;
    by.f[0] = (struct factor){n->in[1], FACTOR_ROW, true};
    return extent_is_one(type_columns(&g->node[n->in[1]].type)) && factors_are_rows(g, &by) ? n->in[1] : -1;
}

/* By what both operands of a sum, or of a difference, are divided; -1. */
static int shared_divisor(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    int s = n->prim->facts.jointly == 3 ? divisor(g, n->in[0]) : -1;
    bool shared = s >= 0 && n->in[0] != n->in[1] && divisor(g, n->in[1]) == s &&
                  type_equal(&n->type, &g->node[n->in[0]].type) &&
                  type_equal(&n->type, &g->node[n->in[1]].type);
    return shared ? s : -1;
}

static int share_divisor(struct walk *w, int v, int s)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    struct node sum = *n;
    sum.in = (int[]){w->map[g->node[n->in[0]].in[0]], w->map[g->node[n->in[1]].in[0]]};
    sum.origin = -1;
    rewrite_note(w->log, "cancel", false, "%s: both are divided by %s, and now their sum is",
                 rewrite_name(g, v).s, rewrite_meaning(g, s).s);
    int y = graph_append(w->out, &sum);
    return y < 0 ? y : graph_map(w->out, g->node[n->in[0]].prim->name, y, w->map[s], NULL);
}

/* The factors of a product that are left, if some of its first operand meet some of its second one. */
static bool meet(const graph *g, int v, struct factors *left)
{
    struct factors all, right;
    if (!factors_of(g, v, &all) || all.n < 3 || !factors_of(g, g->node[v].in[0], left) || left->n >= all.n)
        return false;
    right = (struct factors){.n = all.n - left->n};
    for (int i = 0; i < right.n; i++) right.f[i] = all.f[left->n + i];
    *left = all, left->n = all.n - right.n;
    bool fewer = false;
    while (take_pair(g, left, &right)) fewer = true;
    if (!fewer) return false;
    for (int i = 0; i < right.n; i++) left->f[left->n++] = right.f[i];
    int first = factors_first_full(left);
    coda_dtype t = g->node[v].type.dtype, own = first < 0 ? t : g->node[left->f[first].value].type.dtype;
    return first >= 0 && (own == t || (t == CODA_F32 && dtype_is_half(own)));
}

static bool is_binary_map(const struct walk *w, int v)
{
    const struct live *live = w->ctx;
    return w->in->node[v].op == OP_MAP && w->in->node[v].nin == 2 && live->is[v];
}

static bool matches(const struct walk *w, int v)
{
    struct factors left;
    return is_binary_map(w, v) && (shared_divisor(w->in, v) >= 0 || meet(w->in, v, &left));
}

static int replace(struct walk *w, int v)
{
    struct factors left;
    if (!is_binary_map(w, v)) return RULE_COPY;
    int s = shared_divisor(w->in, v);
    if (s >= 0) return share_divisor(w, v, s);
    if (!meet(w->in, v, &left)) return RULE_COPY;
    rewrite_note(w->log, "cancel", false, "%s: what it is divided by and multiplied with is left out",
                 rewrite_name(w->in, v).s);
    return factors_multiply(w, left, &w->in->node[v].type);
}

/* A quotient, without which nothing cancels. */
static bool has_quotient(const graph *g)
{
    for (int n = 0; n < g->nodes; n++)
        if (g->node[n].op == OP_MAP && g->node[n].prim->facts.quotient) return true;
    return false;
}

graph *cancel(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return has_quotient(in) ? live_walk(in, replace, opt, log, matches, NULL) : rewrite_nothing(in);
}
