/* view.h -- where a value's elements lie, as far as the graph alone can say. */
#ifndef VIEW_H
#define VIEW_H

#include "graph.h"

/* Element (i0, i1, ...) of a value is at offset + sum stride[d] * i_d of `base`: a leaf, a version of a
 * state, or a node that computes, whose result is dense in memory of its own. */
struct view {
    int base;
    int64_t offset;
    int64_t stride[CODA_MAX_RANK];
};

/* Fills in view[value] from the view of its operand. Without strides that can say it, which a reshape on
 * the way may need, its base is -1: false. */
bool view_extend(const graph *g, int value, struct view *view);

/* Strides of an operand of type `t` and strides `s` over the dimensions of `to`, broadcast from the
 * right; 0 wherever the extent is 1 or the dimension absent. */
void view_broadcast(const struct type *t, const int64_t *s, const struct type *to, int64_t *out);

/* The strides of each operand of a concat in its dense result. */
void view_part(const struct node *concat, int64_t *stride);

/* One stride that walks dimensions lo..hi-1 in row-major order; false if there is none. */
bool view_collapse(const struct type *t, const int64_t *s, int lo, int hi, int64_t *out);

/* The strides of a tensor of type `from` and strides s, seen with the dimensions of `to`; false if there are
 * none. */
bool view_reshape(const struct type *from, const int64_t *s, const struct type *to, int64_t *out);

/* t with a last dimension of 1: how a per-row operand without columns is read. */
struct type type_as_rows(const struct type *t);

/* view_packed.c. How elements of an UNPACK lie in its bytes: matrices whose rows fill up to whole blocks
 * of 16, one behind the other, are one of `columns`. Offsets and strides count its elements as if it were
 * dense. */
struct packed_view {
    int64_t format; /* graph_format(); 0: not packed */
    int64_t columns;
};
/* Turns n strides over the UNPACK's own dimensions, of so many elements each, into those of that matrix,
 * and the offset likewise. False: one of them leads from a row into the next, or from a matrix. */
bool view_packed(const struct node *unpack, int64_t *offset, int64_t *stride, const int64_t *extent, int n,
                 struct packed_view *out);

/* The matrices of a product: [batch][rows][k] by strides. */
struct matrix_view {
    int base;
    int64_t offset, batch, row, k;
    struct packed_view packed; /* of w */
};
struct matmul_view {
    int64_t batch, m, n, k;
    struct matrix_view a, b;
    struct matrix_view a_scale,
        b_scale; /* of a scaled product: by blocks of rows and of k; else base is -1 */
};
/* w, a view of `unpack`, as it lies there; each of its matrices begins with a row block. False: it cannot. */
bool view_packed_matrices(const struct node *unpack, const struct matmul_view *v, struct matrix_view *w);
/* `view` has those of the operands. */
bool view_matmul(const graph *g, const struct node *n, const struct view *view, struct matmul_view *out);

#endif
