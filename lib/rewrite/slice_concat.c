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
#include "guards.h"
#include "walk.h"

/* A slice of a concat, as one of an operand. */
enum { NOWHERE = -1, UNDECIDED = -2 };
struct piece {
    int part; /* the operand; NOWHERE: it lies in no single one; UNDECIDED: values of symbols say */
    int64_t start, stop, step;
};

/* The piece of a slice of operands one after the other; extents may have symbols. */
static struct piece of_run(struct walk *w, const struct node *c, const struct attr_slice *a, int64_t stop)
{
    struct dims *t = w->out->dims;
    int64_t at = 0;
    for (int i = 0; i < c->nin && at != DIM_NONE; i++) {
        int64_t end = dims_add(t, at, w->in->node[c->in[i]].type.dim[c->attr.concat.axis]);
        if (dims_reaches(t, a->start, at) && dims_reaches(t, end, stop))
            return (struct piece){c->in[i], dims_subtract(t, a->start, at), dims_subtract(t, stop, at),
                                  a->step};
        bool outside =
            dims_reaches(t, at, dims_add(t, a->start, 1)) || dims_reaches(t, stop, dims_add(t, end, 1));
        if (!outside) return (struct piece){.part = UNDECIDED};
        at = end;
    }
    return (struct piece){.part = NOWHERE};
}

/* The piece of a slice of n operands that take turns. */
static struct piece of_turns(const struct node *c, const struct attr_slice *a, int64_t stop)
{
    int64_t n = c->nin, turn = 0;
    bool numbers = dim_is_number(a->start) && dim_is_number(stop);
    if (!numbers) return (struct piece){.part = UNDECIDED};
    if (a->step % n && !extent_reaches(a->start + 1, stop)) return (struct piece){.part = NOWHERE};
    while (!extent_is_multiple(a->start - turn, n)) turn++;
    int64_t start = (a->start - turn) / n;
    return (struct piece){c->in[turn], start, start + (stop - 1 - a->start) / n + 1, MAX(a->step / n, 1)};
}

/* Behind the last that it reads; DIM_NONE if no extent says that. */
static int64_t stop_of(struct dims *t, const struct attr_slice *a, int64_t count)
{
    if (a->step == 1) return dims_add(t, a->start, count);
    bool numbers = dim_is_number(a->start) && dim_is_number(count);
    return numbers ? a->start + (count - 1) * a->step + 1 : DIM_NONE;
}

static bool is_slice_of_concat(const graph *g, int v)
{
    const struct node *n = &g->node[v], *c = n->op == OP_SLICE ? &g->node[n->in[SLICE_X]] : NULL;
    return c && c->op == OP_CONCAT && n->attr.slice.axis == c->attr.concat.axis;
}

static int read_part(struct walk *w, int v)
{
    if (!is_slice_of_concat(w->in, v)) return RULE_COPY;
    const struct node *n = &w->in->node[v], *c = &w->in->node[n->in[SLICE_X]];
    const struct attr_slice *a = &n->attr.slice;
    int64_t count = n->type.dim[a->axis], stop = stop_of(w->out->dims, a, count);
    if (extents_equal(count, 0)) return RULE_COPY;
    if (stop == DIM_NONE) return rewrite_needs_numbers(w, "a slice in steps");
    struct piece p = c->attr.concat.interleave ? of_turns(c, a, stop) : of_run(w, c, a, stop);
    if (p.part == UNDECIDED) return rewrite_needs_numbers(w, "a slice of a concat");
    if (p.part == NOWHERE) return RULE_COPY;
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
    for (int v = 0; v < in->nodes; v++)
        if (is_slice_of_concat(in, v)) return rewrite_walk(in, read_part, opt, log, NULL);
    return rewrite_nothing(in);
}
