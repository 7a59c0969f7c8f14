/*
 * grad_exchange.c -- exchanges between ranks. What is differentiated is the sum of all ranks' y's, so each
 * exchange has an exchange as its transpose:
 *
 *     y = all_reduce(x)        dx = all_reduce(dy)
 *     y = reduce_scatter(x)    dx = all_gather(dy)
 *     y = all_gather(x)        dx = reduce_scatter(dy)
 *
 * That needs nobody who says which values are equal on all ranks: of such a leaf each rank has a part of the
 * gradient, of a share of a leaf its own rank has all of it.
 */
#include "rules.h"

/* Behind the exchange of its group that the graph had last. */
static int exchange(struct grad *w, struct node n, int v, int dy)
{
    int group = grad_node(w, v)->in[EXCHANGE_GROUP];
    return make_append(w, n, VALUES(dy, group, graph_last_exchange(w->g, group)));
}

/* The sum of what broadcasts to v is as narrow. */
void grad_all_reduce(struct grad *w, int v, int dy)
{
    grad_give(w, grad_node(w, v)->in[EXCHANGE_X], exchange(w, (struct node){.op = OP_ALL_REDUCE}, v, dy));
}

void grad_reduce_scatter(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    struct node all = {.op = OP_ALL_GATHER, .attr.all_gather.axis = n->attr.reduce_scatter.axis};
    dy = make_wide(w, dy, &n->type);
    grad_give(w, grad_node(w, v)->in[EXCHANGE_X], exchange(w, all, v, dy));
}

void grad_all_gather(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    struct node part = {.op = OP_REDUCE_SCATTER, .attr.reduce_scatter.axis = n->attr.all_gather.axis};
    dy = make_wide(w, dy, &n->type);
    grad_give(w, grad_node(w, v)->in[EXCHANGE_X], exchange(w, part, v, dy));
}
