/*
 * slice_concat.c -- reads a part of a concat where it comes from.
 *
 *     slice(concat(a, b, ...))  ==>  slice(a)      along the concat's axis, where all of it lies in a
 *
 * Of n operands that interleave, a takes each n-th place: a step of n, or of a multiple, stays in it.
 * A slice that is a whole part becomes the part. Gradients are full of them: what a forward pass sliced, its
 * backward pass puts together, and the other way round. The concat goes when it has no other reader. In:
 * verified graph. Out: no slice along an axis of a concat that lies within one part. Exact.
 */
#include "walk.h"

/* The part of concat c that holds first..last of its axis, and where it begins; -1: no single one. */
static int part_of(const graph *g, const struct node *c, int64_t first, int64_t last, int64_t *begin)
{
    int64_t at = 0;
    for (int i = 0; i < c->nin; i++) {
        int64_t end = at + g->node[c->in[i]].type.dim[c->attr.concat.axis];
        *begin = at;
        if (first >= at && last < end) return c->in[i];
        at = end;
    }
    return -1;
}

/* A slice of a concat, as one of an operand. */
struct piece {
    int part; /* the operand; -1: it lies in no single one */
    int64_t start, stop, step;
};

static struct piece of_part(const graph *g, const struct node *c, const struct attr_slice *a, int64_t last)
{
    int64_t begin = 0, n = c->nin;
    if (!c->attr.concat.interleave) {
        int part = part_of(g, c, a->start, last, &begin);
        return (struct piece){part, a->start - begin, last + 1 - begin, a->step};
    }
    if (a->step % n && last > a->start) return (struct piece){.part = -1};
    return (struct piece){c->in[a->start % n], a->start / n, last / n + 1, MAX(a->step / n, 1)};
}

static int read_part(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v], *c = n->nin ? &w->in->node[n->in[0]] : NULL;
    const struct attr_slice *a = &n->attr.slice;
    if (n->op != OP_SLICE || c->op != OP_CONCAT || a->axis != c->attr.concat.axis) return RULE_COPY;
    int64_t count = n->type.dim[a->axis], last = a->start + (count - 1) * a->step;
    struct piece p = count ? of_part(w->in, c, a, last) : (struct piece){.part = -1};
    if (p.part < 0) return RULE_COPY;
    rewrite_note(w->log, "slice_concat", true, "%s: it is read from %s, of which %s is put together",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, p.part).s, rewrite_name(w->in, n->in[0]).s);
    if (type_equal(&w->in->node[p.part].type, &n->type)) return w->map[p.part];
    struct node slice = *n;
    slice.in = &w->map[p.part];
    slice.attr.slice = (struct attr_slice){a->axis, p.start, p.stop, p.step};
    return graph_append(w->out, &slice);
}

graph *slice_concat(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, read_part, opt, log, NULL);
}
