/*
 * in_place.c -- states that a program reads and writes over.
 *
 * A version of a state comes after all that reads the one ahead of it. If the same program reads that, each
 * element has to be read by the thread that then writes it, and once: by maps of tensors that lie as the
 * state does. A program that walks its columns several times writes in the last walk that reads
 * (rows_schedule.c).
 */
#include "fuse.h"

/* Does a value of q read the version that n writes over, each element by the thread that then writes it? */
static bool reads_in_place(const struct grouper *gr, const struct group *q, const struct node *n, int value)
{
    const graph *g = gr->g;
    const struct node *r = &g->node[value];
    bool walks = q->p.kind == PROGRAM_ROWS && n->op == OP_ASSIGN && n->type.rank == q->domain.rank &&
                 extents_all_equal(n->type.dim, q->domain.dim, n->type.rank);
    if (!walks || op_combines_pairs(r->op)) return false;
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        if (op_combines_pairs(g->node[m].op) || g->node[m].op == OP_EMBEDDING) return false;
    for (int i = 0; i < r->nin; i++)
        if (r->in[i] >= 0 && g->node[r->in[i]].state == n->in[ASSIGN_STATE] &&
            r->in[i] != n->in[ASSIGN_STATE])
            return false;
    return true;
}

bool group_reads_in_place(const struct grouper *gr, const struct group *q, int value)
{
    const struct node *node = gr->g->node, *n = &node[value];
    for (int m = q->first; m >= 0 && state_is_read(gr->g, n); m = gr->site[m].next)
        for (int i = 0; i < n->nin && op_is_version(node[m].op); i++) {
            bool over = n->in[i] >= 0 && node[n->in[i]].state == node[m].in[VERSION_OF];
            if (over && !reads_in_place(gr, q, &node[m], value))
                return refuse_join(gr, REASON_LOADED_ONCE, m, 0, 0);
        }
    return true;
}

bool group_may_write(struct grouper *gr, struct group *q, const struct node *n)
{
    for (int i = 0; i < n->nin; i++) {
        bool ahead = i == VERSION_OF || i >= state_operands(n);
        if (n->in[i] < 0 || i == VERSION_VALUE) continue;
        if (ahead && i && group_holds(gr, q, n->in[i]) && reads_in_place(gr, q, n, n->in[i])) continue;
        if (n->op == OP_APPEND && i == APPEND_SCALE) {
            if (gr->view[n->in[i]].base < 0) return refuse_join(gr, REASON_LAYOUT, n->in[i], 0, 0);
            if (group_depends(gr, n->in[i], q)) return refuse_source(gr, q, n->in[i]);
            continue;
        }
        if (ahead && group_depends(gr, n->in[i], q))
            return refuse_join(gr, REASON_WRITE_ORDER, n->in[i], 0, 0);
        enum source_kind slots = ahead ? SOURCE_MEMBER : group_source(gr, q, n->in[i]).kind;
        if (slots == SOURCE_OUTSIDE && !group_can_load(gr, q, n, i)) return false;
        if (slots != SOURCE_OUTSIDE && slots != SOURCE_MEMBER) return refuse_source(gr, q, n->in[i]);
    }
    return true;
}
