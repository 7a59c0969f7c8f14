/*
 * grad_ids.c -- rows that are looked up by id, and rows that are added by id. Each is the other's transpose:
 *
 *     y = embedding(t, i)       dt = row_sums(dy, i), as many rows as t has
 *     s = row_sums(x, i)        dx = embedding(ds, i)
 *
 * Either has zeros for an id that is out of range.
 */
#include "rules.h"

void grad_embedding(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    int table = n->in[EMBEDDING_TABLE];
    struct node sums = {.op = OP_ROW_SUMS, .attr.row_sums = {grad_type(w, table)->dim[0]}};
    if (graph_packed(w->g, table) >= 0) {
        grad_refuse(w, v, EMBEDDING_TABLE, "reads a packed table, by which it has no derivative");
        return;
    }
    dy = make_wide(w, dy, &n->type);
    grad_give(w, table, make_append(w, sums, VALUES(dy, n->in[EMBEDDING_IDS])));
}

void grad_row_sums(struct grad *w, int v, int ds)
{
    const struct node *n = grad_node(w, v);
    ds = make_wide(w, ds, &n->type);
    grad_give(w, n->in[ROW_SUMS_X],
              make_append(w, (struct node){.op = OP_EMBEDDING}, VALUES(ds, n->in[ROW_SUMS_IDS])));
}
