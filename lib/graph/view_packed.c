/* view_packed.c -- where views of packed weights lie. No symbol is in the numbers of a weight. */
#include "view.h"

/* How far a stride over [matrix][row][column] leads in each. */
struct packed_step {
    int64_t matrix, row, column;
};

static struct packed_step packed_step(int64_t stride, int64_t rows, int64_t columns)
{
    return (struct packed_step){stride / columns / rows, stride / columns % rows, stride % columns};
}

/* Matrices of whole row blocks are one. */
static void packed_matrix(const struct node *unpack, int64_t *rows, int64_t *columns)
{
    node_matrix(unpack, rows, columns);
    int64_t all = type_elements(&unpack->type) / *columns;
    if (*rows % PACK_ROWS == 0) *rows = all;
}

bool view_packed(const struct node *unpack, int64_t *offset, int64_t *stride, const int64_t *extent, int n,
                 struct packed_view *out)
{
    int64_t rows, columns;
    packed_matrix(unpack, &rows, &columns);
    int64_t padded = CEIL_DIV(rows, PACK_ROWS) * PACK_ROWS;
    int64_t width = MAX(columns, 2); /* so that rows of one column are no neighbours of each other */
    struct packed_step at = packed_step(*offset, rows, columns);
    *offset = (at.matrix * padded + at.row) * width + at.column;
    for (int i = 0; i < n; i++) {
        struct packed_step s = packed_step(extent[i] > 1 ? stride[i] : 0, rows, columns);
        stride[i] = (s.matrix * padded + s.row) * width + s.column;
        at.row += s.row * MAX(extent[i] - 1, 0);
        at.column += s.column * MAX(extent[i] - 1, 0);
    }
    *out = (struct packed_view){unpack->attr.unpack.format, width};
    return at.row < rows && at.column < columns;
}

/* Where the packed matrices of a product lie: each begins with a row block. */
bool view_packed_matrices(const struct node *unpack, const struct matmul_view *v, struct matrix_view *w)
{
    int64_t stride[] = {w->batch, w->row, w->k}, extent[] = {v->batch, v->n, v->k};
    bool good = view_packed(unpack, &w->offset, stride, extent, ARRAY_SIZE(stride), &w->packed);
    w->batch = stride[0], w->row = stride[1], w->k = stride[2];
    return good && w->batch % (PACK_ROWS * w->packed.columns) == 0;
}
