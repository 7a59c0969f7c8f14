/*
 * slice_concat.c -- reads a part of a concat where it comes from.
 *
 *     slice(concat(a, b, ...))  ==>  slice(a)      along the concat's axis, where all of it lies in a
 *
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

static int read_part(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v], *c = n->nin ? &w->in->node[n->in[0]] : NULL;
    const struct attr_slice *a = &n->attr.slice;
    if (n->op != OP_SLICE || c->op != OP_CONCAT || a->axis != c->attr.concat.axis) return RULE_COPY;
    int64_t count = n->type.dim[a->axis], last = a->start + (count - 1) * a->step, begin;
    int part = count ? part_of(w->in, c, a->start, last, &begin) : -1;
    if (part < 0) return RULE_COPY;
    rewrite_note(w->log, "slice_concat", true, "%s: it is read from %s, of which %s is put together",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, part).s, rewrite_name(w->in, n->in[0]).s);
    if (type_equal(&w->in->node[part].type, &n->type)) return w->map[part];
    struct node slice = *n;
    slice.in = &w->map[part];
    slice.attr.slice.start = a->start - begin;
    slice.attr.slice.stop = last + 1 - begin;
    return graph_append(w->out, &slice);
}

graph *slice_concat(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, read_part, opt, log, NULL);
}
