/*
 * grad_view.c -- what moves data: slices, concats, reshapes and transposes.
 *
 * A value that is read through slices gets the cotangents of all of them as one concat, never as a sum of
 * padded tensors: slices that overlap are cut where they begin and end, what no slice reads is 0, and columns
 * that take turns, as gate and up do, interleave.
 */
#include "rules.h"

#include <stdlib.h>
#include <string.h>

void grad_reshape(struct grad *w, int v, int dy)
{
    int x = grad_node(w, v)->in[RESHAPE_X];
    grad_give(w, x, make_reshape(w, make_wide(w, dy, grad_type(w, v)), grad_type(w, x)));
}

void grad_transpose(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    struct node back = {.op = OP_TRANSPOSE};
    dy = make_wide(w, dy, &n->type);
    for (int i = 0; i < n->type.rank; i++) back.attr.transpose.perm[n->attr.transpose.perm[i]] = i;
    grad_give(w, n->in[TRANSPOSE_X], make_append(w, back, &dy, 1));
}

void grad_concat(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    int axis = (int)n->attr.concat.axis;
    bool turns = n->attr.concat.interleave;
    int64_t at = 0;
    dy = make_wide(w, dy, &n->type);
    for (int i = 0; i < n->nin; i++) {
        int64_t size = grad_type(w, n->in[i])->dim[axis];
        int64_t stop = turns ? n->type.dim[axis] : dims_add(w->g->dims, at, size);
        int64_t start = turns && size == 0 ? 0 : at;
        if (grad_wants(w, n, i))
            grad_give(w, n->in[i], make_slice(w, dy, axis, start, stop, turns ? n->nin : 1));
        at = turns ? i + 1 : stop;
    }
}

/* ---- Slices ---- */

/* The slices of a value along one axis, and their cotangents. */
struct slices {
    struct grad *w;
    struct type whole; /* of the value */
    int axis, count;
    struct part {
        int64_t start, stop, step;
        int value;
    } * part;
};

void grad_slice(struct grad *w, int v, int dy)
{
    grad_keep_slice(w, grad_node(w, v)->in[SLICE_X], v, make_wide(w, dy, grad_type(w, v)));
}

static int64_t length(const struct slices *s, int i)
{
    return grad_type(s->w, s->part[i].value)->dim[s->axis];
}

static int zeros(const struct slices *s, int64_t count)
{
    struct type t = s->whole;
    t.dim[s->axis] = count;
    return make_zeros(s->w, &t);
}

/* Every step-th element from each of the first: together they are all, once. */
static bool take_turns(const struct slices *s)
{
    int64_t step = s->part[0].step, size = s->whole.dim[s->axis];
    if (step < 2 || s->count != step || size % step) return false;
    for (int i = 0; i < s->count; i++)
        if (s->part[i].step != step || s->part[i].start != i || length(s, i) != size / step) return false;
    return true;
}

static int interleave(const struct slices *s)
{
    int *in = ARENA_NEW(&s->w->arena, int, s->count);
    for (int i = 0; in && i < s->count; i++) in[i] = s->part[i].value;
    return in ? make_concat(s->w, in, s->count, s->axis, true) : grad_no_memory(s->w);
}

/* A slice by steps as one without: zeros between its elements. */
static void spread(const struct slices *s, struct part *p)
{
    int count = (int)p->step, *in = ARENA_NEW(&s->w->arena, int, count);
    int64_t size = s->whole.dim[s->axis], n = grad_type(s->w, p->value)->dim[s->axis];
    int none = in ? zeros(s, n) : grad_no_memory(s->w);
    for (int i = 0; in && i < count; i++) in[i] = i ? none : p->value;
    if (none < 0) return;
    p->value = make_concat(s->w, in, count, s->axis, true);
    p->stop = MIN(p->start + n * count, size);
    if (p->stop < p->start + n * count)
        p->value = make_slice(s->w, p->value, s->axis, 0, p->stop - p->start, 1);
    p->step = 1;
}

static int by_number(const void *a, const void *b)
{
    int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;
    return p < q ? -1 : p > q;
}

/* The sum of what the slices have from `from` to `to`, between which none begins or ends. */
static int sum_between(const struct slices *s, int64_t from, int64_t to)
{
    int sum = -1;
    for (int i = 0; i < s->count; i++) {
        const struct part *p = &s->part[i];
        if (p->start > from || p->stop < to) continue;
        int value = p->start == from && p->stop == to
                        ? p->value
                        : make_slice(s->w, p->value, s->axis, from - p->start, to - p->start, 1);
        sum = sum < 0 ? value : make_add(s->w, sum, value);
    }
    return sum < 0 ? zeros(s, to - from) : sum;
}

static int tile(const struct slices *s)
{
    int cuts = 0, parts = 0;
    int64_t *cut = ARENA_NEW(&s->w->arena, int64_t, 2 * s->count + 2);
    int *in = ARENA_NEW(&s->w->arena, int, 2 * s->count + 1);
    if (!cut || !in) return grad_no_memory(s->w);
    cut[cuts++] = 0;
    cut[cuts++] = s->whole.dim[s->axis];
    for (int i = 0; i < s->count; i++) {
        if (s->part[i].step > 1) spread(s, &s->part[i]);
        cut[cuts++] = s->part[i].start;
        cut[cuts++] = s->part[i].stop;
    }
    qsort(cut, (size_t)cuts, sizeof *cut, by_number);
    for (int i = 0; i + 1 < cuts && s->w->g->status == CODA_OK; i++)
        if (cut[i] < cut[i + 1]) in[parts++] = sum_between(s, cut[i], cut[i + 1]);
    return parts ? make_concat(s->w, in, parts, s->axis, false) : zeros(s, s->whole.dim[s->axis]);
}

/* Zeros from `from` to `to`, behind what is in in[parts]; how many parts there are then. */
static int put_zeros(const struct slices *s, int *in, int parts, int64_t from, int64_t to)
{
    struct dims *t = s->w->g->dims;
    int64_t count = from == to ? 0 : dims_subtract(t, to, from);
    if (count == DIM_NONE)
        graph_poison(s->w->g, CODA_E_UNSUPPORTED,
                     "grad: a slice leaves %s - %s elements out, which is no extent", dim_text(t, to).s,
                     dim_text(t, from).s);
    if (count != 0) in[parts++] = count == DIM_NONE ? -1 : zeros(s, count);
    return parts;
}

/* A slice's cotangent among zeros. */
static int padded(const struct slices *s, const struct part *p)
{
    int in[3], parts = put_zeros(s, in, 0, 0, p->start);
    in[parts++] = p->value;
    parts = put_zeros(s, in, parts, p->stop, s->whole.dim[s->axis]);
    return make_concat(s->w, in, parts, s->axis, false);
}

/* Bounds over symbols, whose order is not known. Slices in steps have numbers. */
static int sum_padded(const struct slices *s)
{
    int sum = padded(s, &s->part[0]);
    for (int i = 1; i < s->count && sum >= 0; i++) sum = make_add(s->w, sum, padded(s, &s->part[i]));
    return sum;
}

/* Extents over symbols: slices that follow each other from the first element to the last are one concat. */
static int chain(const struct slices *s)
{
    int64_t at = 0, end = s->whole.dim[s->axis];
    int *in = ARENA_NEW(&s->w->arena, int, s->count), parts = 0;
    if (!in) return grad_no_memory(s->w);
    for (int i = 0; i < s->count && at != end; i++) {
        struct part *p = &s->part[i];
        if (p->start != at || p->step != 1) continue;
        in[parts++] = p->value;
        at = p->stop;
        p->step = 0; /* it has its place */
        i = -1;
    }
    if (at == end && parts == s->count) return make_concat(s->w, in, parts, s->axis, false);
    return sum_padded(s);
}

static int compare_parts(const void *a, const void *b)
{
    int64_t p = ((const struct part *)a)->start, q = ((const struct part *)b)->start;
    return p < q ? -1 : p > q;
}

/* The cotangents that came through slices of one axis. */
static int join(struct slices *s)
{
    bool numbers = dim_is_number(s->whole.dim[s->axis]);
    for (int i = 0; i < s->count; i++)
        numbers = numbers && dim_is_number(s->part[i].start) && dim_is_number(s->part[i].stop);
    if (!numbers) return chain(s);
    qsort(s->part, (size_t)s->count, sizeof *s->part, compare_parts);
    return take_turns(s) ? interleave(s) : tile(s);
}

void grad_join_slices(struct grad *w, int v)
{
    struct slices s = {.w = w, .whole = *grad_type(w, v)};
    s.whole.dtype = w->dtype[v];
    int count = 0;
    for (const struct cut *c = w->cuts[v]; c; c = c->next) count++;
    s.part = ARENA_NEW(&w->arena, struct part, count);
    if (!s.part) {
        grad_no_memory(w);
        return;
    }
    for (s.axis = 0; s.axis < s.whole.rank && w->g->status == CODA_OK; s.axis++) {
        s.count = 0;
        for (const struct cut *c = w->cuts[v]; c; c = c->next) {
            const struct attr_slice *a = &grad_node(w, c->node)->attr.slice;
            if (a->axis != s.axis) continue;
            s.part[s.count++] = (struct part){a->start, a->stop, a->step, c->value};
        }
        if (s.count) grad_give(w, v, join(&s));
    }
}
