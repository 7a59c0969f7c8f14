/* view.c -- slices, transposes and reshapes as strides over the tensor they look at. */
#include "view.h"

#include "guards.h"

#include <string.h>

struct type type_as_rows(const struct type *t)
{
    struct type r = *t;
    if (r.rank < CODA_MAX_RANK) r.dim[r.rank++] = 1;
    return r;
}

bool view_collapse(const struct type *t, const int64_t *s, int lo, int hi, int64_t *out)
{
    int64_t stride = 0, extent = 1;
    for (int d = hi - 1; d >= lo; d--) {
        if (extent_is_one(t->dim[d])) continue;
        bool empty = extents_equal(extent, 0) || extents_equal(t->dim[d], 0); /* lies anyhow */
        if (extent_is_one(extent)) stride = s[d];
        else if (!empty && !extents_equal(s[d], dims_times(t->dims, stride, extent))) return false;
        extent = dims_times(t->dims, extent, t->dim[d]);
    }
    *out = stride;
    return true;
}

void view_part(const struct node *concat, int64_t *stride)
{
    int64_t axis = concat->attr.concat.axis;
    dense_strides(&concat->type, stride);
    if (concat->attr.concat.interleave && extent_reaches(concat->type.dim[axis], concat->nin + 1))
        stride[axis] *= concat->nin;
}

void view_broadcast(const struct type *t, const int64_t *s, const struct type *to, int64_t *out)
{
    int shift = to->rank - t->rank;
    for (int d = 0; d < to->rank; d++)
        out[d] = d < shift || extent_is_one(t->dim[d - shift]) ? 0 : s[d - shift];
}

/* Strides of `from` seen as `to`: both are cut into runs of equal extent, and within a run the old
 * dimensions must walk memory with one stride. */
bool view_reshape(const struct type *from, const int64_t *s, const struct type *to, int64_t *out)
{
    if (extents_equal(type_elements(from), 0)) {
        dense_strides(to, out);
        return true;
    }
    int i = 0, j = 0;
    while (i < from->rank || j < to->rank) {
        int i0 = i, j0 = j;
        int64_t a = i < from->rank ? from->dim[i++] : 1, b = j < to->rank ? to->dim[j++] : 1, stride;
        while (!extents_equal(a, b)) {
            if (!extent_reaches(a, b)) a *= from->dim[i++];
            else b *= to->dim[j++];
        }
        if (!view_collapse(from, s, i0, i, &stride)) return false;
        for (int d = j - 1; d >= j0; stride *= to->dim[d--]) out[d] = stride;
    }
    return true;
}

/* From the view of its operand, `in`. */
static bool view_through(const graph *g, const struct node *n, const struct view *in, struct view *v)
{
    const struct type *from = &g->node[n->in[VIEW_OF]].type;
    const struct attr_slice *s = &n->attr.slice;
    *v = *in;
    switch (n->op) {
    case OP_SLICE:
        if (extent_reaches(n->type.dim[s->axis], 1)) v->offset += s->start * in->stride[s->axis];
        if (extent_reaches(n->type.dim[s->axis], 2)) v->stride[s->axis] *= s->step; /* else it may be huge */
        return true;
    case OP_TRANSPOSE:
        for (int d = 0; d < n->type.rank; d++) v->stride[d] = in->stride[n->attr.transpose.perm[d]];
        return true;
    default: return view_reshape(from, in->stride, &n->type, v->stride);
    }
}

bool view_extend(const graph *g, int value, struct view *view)
{
    const struct node *n = &g->node[value];
    struct view *v = &view[value];
    if (op_is_view(n->op)) {
        const struct view *in = &view[n->in[VIEW_OF]];
        bool good = in->base >= 0 && view_through(g, n, in, v);
        if (!good) v->base = -1;
        return good;
    }
    *v = (struct view){.base = value};
    if (op_is_leaf(n->op) || op_is_version(n->op)) memcpy(v->stride, n->stride, sizeof v->stride);
    else dense_strides(&n->type, v->stride);
    return true;
}

static int64_t product(const struct type *t, int lo, int hi)
{
    int64_t p = 1;
    for (int d = lo; d < hi; d++) p *= t->dim[d];
    return p;
}

/* ---- Products ---- */

/* One weight for all rows: the leading dimensions join M if x's strides allow, else they are a batch
 * in which the weight repeats. */
static bool rows_of(const struct type *x, const int64_t *s, bool shared, struct matmul_view *v)
{
    int r = x->rank;
    if (shared && view_collapse(x, s, 0, r - 1, &v->a.row)) {
        v->batch = 1;
        v->m = product(x, 0, r - 1);
        v->a.batch = 0;
        return true;
    }
    v->batch = product(x, 0, r - 2);
    v->m = x->dim[r - 2];
    v->a.row = s[r - 2];
    return view_collapse(x, s, 0, r - 2, &v->a.batch);
}

/* The scales of an operand's blocks; their leading dimensions are one if those of the operand are. */
static bool scales_of(const struct type *t, const struct view *scales, bool one, struct matrix_view *out)
{
    int r = t->rank;
    if (scales->base < 0) return false;
    out->base = scales->base;
    out->offset = scales->offset;
    out->k = scales->stride[r - 1];
    if (one) return view_collapse(t, scales->stride, 0, r - 1, &out->row);
    out->row = scales->stride[r - 2];
    return view_collapse(t, scales->stride, 0, r - 2, &out->batch);
}

static bool view_scales(const graph *g, const struct node *n, const struct view *view, struct matmul_view *v)
{
    int x = n->in[SCALED_MATMUL_X], a = n->in[SCALED_MATMUL_X_SCALE], b = n->in[SCALED_MATMUL_W_SCALE];
    const struct type *t = &g->node[x].type;
    int64_t row;
    bool one = g->node[n->in[SCALED_MATMUL_W]].type.rank == 2 &&
               view_collapse(t, view[x].stride, 0, t->rank - 1, &row);
    return scales_of(&g->node[a].type, &view[a], one, &v->a_scale) &&
           scales_of(&g->node[b].type, &view[b], false, &v->b_scale);
}

bool view_matmul(const graph *g, const struct node *n, const struct view *view, struct matmul_view *v)
{
    const struct type *x = &g->node[n->in[MATMUL_X]].type, *w = &g->node[n->in[MATMUL_W]].type;
    struct view a = view[n->in[MATMUL_X]], b = view[n->in[MATMUL_W]];
    memset(v, 0, sizeof *v);
    v->a_scale.base = v->b_scale.base = -1;
    if (a.base < 0 || b.base < 0) return false;
    if (!rows_of(x, a.stride, w->rank == 2, v)) return false;
    if (!view_collapse(w, b.stride, 0, w->rank - 2, &v->b.batch)) return false;
    if (n->op == OP_SCALED_MATMUL && !view_scales(g, n, view, v)) return false;
    int kn = n->op == OP_MATMUL && n->attr.matmul.kn != 0;
    v->k = x->dim[x->rank - 1];
    v->n = w->dim[w->rank - (kn ? 1 : 2)];
    v->a.base = a.base;
    v->a.offset = a.offset;
    v->a.k = a.stride[x->rank - 1];
    v->b.base = b.base;
    v->b.offset = b.offset;
    v->b.row = b.stride[w->rank - (kn ? 1 : 2)];
    v->b.k = b.stride[w->rank - (kn ? 2 : 1)];
    const struct node *base = &g->node[b.base];
    return base->op != OP_UNPACK || view_packed_matrices(base, v, &v->b);
}
