/* cotangent.c -- what each value got so far, and the message for what has no derivative. */
#include "rules.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- Cotangents ---- */

void grad_give(struct grad *w, int v, int value)
{
    struct addends *list = &w->addends[v];
    struct addend *t = value < 0 ? NULL : ARENA_NEW(&w->arena, struct addend, 1);
    if (value < 0) return;
    if (!t) {
        grad_no_memory(w);
        return;
    }
    *t = (struct addend){value, NULL};
    if (list->last) list->last->next = t;
    else list->first = t;
    list->last = t;
}

void grad_keep_slice(struct grad *w, int of, int slice, int value)
{
    struct cut *c = ARENA_NEW(&w->arena, struct cut, 1);
    if (!c) grad_no_memory(w);
    if (!c || value < 0) return;
    *c = (struct cut){slice, value, w->cuts[of]};
    w->cuts[of] = c;
}

static bool is_product(const struct grad *w, int v)
{
    while (op_is_view(grad_node(w, v)->op) || grad_node(w, v)->op == OP_CAST) v = grad_node(w, v)->in[0];
    return grad_node(w, v)->op == OP_MATMUL;
}

/* The last addend is a product if any is: its epilogue adds the others. */
static void product_last(const struct grad *w, struct addend *first)
{
    struct addend *last = first, *product = NULL;
    for (struct addend *t = first; t; t = t->next) {
        if (is_product(w, t->value)) product = t;
        last = t;
    }
    if (!product || product == last) return;
    int value = product->value;
    for (struct addend *t = product; t != last; t = t->next) t->value = t->next->value;
    last->value = value;
}

int grad_take(struct grad *w, int v)
{
    struct addend *t = w->addends[v].first;
    if (!t || w->g->status != CODA_OK) return -1;
    product_last(w, t);
    int sum = make_cast(w, t->value, w->dtype[v]);
    while ((t = t->next)) sum = make_add(w, sum, make_cast(w, t->value, w->dtype[v]));
    return sum;
}

/* ---- What has none ---- */

/* The leaf, or the other x, whose path to v leads through this operand. */
static int path_begins(const struct grad *w, int v)
{
    for (;;) {
        const struct node *n = grad_node(w, v);
        int next = -1;
        for (int i = 0; i < n->nin && next < 0; i++)
            if (grad_wants(w, n, i)) next = n->in[i];
        if (next < 0) return v;
        v = next;
    }
}

void grad_refuse(struct grad *w, int v, int operand, const char *format, ...)
{
    char why[256];
    va_list args;
    va_start(args, format);
    format_print(why, sizeof why, format, args);
    va_end(args);
    const struct node *n = grad_node(w, v);
    int leaf = path_begins(w, n->in[operand]);
    if (grad_node(w, leaf)->op == OP_UNPACK) leaf = grad_node(w, leaf)->in[UNPACK_W]; /* which has a name */
    graph_poison(w->g, CODA_E_UNSUPPORTED, "grad: %s %s, on the way from %s, %s", node_text(n),
                 value_text(w->g, v).s, value_text(w->g, leaf).s, why);
}
