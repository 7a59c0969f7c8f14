/*
 * grad_loss.c -- cross-entropy: a row's gradient is k (softmax - one hot of its target), k the cotangent of
 * its loss: that of the row, the sum's, or the mean's over the number of rows that count.
 *
 * A row whose target is ignored gets exactly 0, whatever its logits hold. One whose target is no class has a
 * loss of NaN, and so its gradient is NaN.
 */
#include "rules.h"

#include <math.h>

/* 1 for each row that counts, [.., 1]. */
static int counts(struct grad *w, const struct node *n, int target)
{
    float ignore = (float)n->attr.cross_entropy.ignore;
    return make_prim(w, prim_find("valid"), &target, 1, &ignore);
}

/* How many rows count, as [1]. */
static int count_rows(struct grad *w, int valid)
{
    int64_t rows = type_count(grad_type(w, valid));
    bool known = dim_is_number(rows); /* else they stand in a column: a row's length is a number */
    struct type line = {.rank = 2, .dim = {known ? 1 : rows, known ? rows : 1}},
                one = {.rank = 1, .dim = {1}};
    return make_reshape(w, make_reduce(w, "sum", make_reshape(w, valid, &line), -1, !known), &one);
}

/* The cotangent of each row's loss, [.., 1]. */
static int of_rows(struct grad *w, const struct node *n, int valid, int dy)
{
    struct type row = *grad_type(w, valid);
    if (n->attr.cross_entropy.reduction == LOSS_ROWS)
        return make_reshape(w, make_wide(w, dy, &n->type), &row);
    if (n->attr.cross_entropy.reduction == LOSS_SUM) return dy;
    return make_map(w, "div", VALUES(dy, count_rows(w, valid)));
}

/* NaN where the target is none of so many classes, else k. */
static int checked(struct grad *w, int k, int target, int64_t classes)
{
    int none = make_map(w, "less", VALUES(target, graph_constant(w->g, CODA_I32, 0)));
    int beyond = make_map(w, "greater_equal", VALUES(target, graph_constant(w->g, CODA_I32, (float)classes)));
    int wrong = make_map(w, "logical_or", VALUES(none, beyond));
    return make_where(w, wrong, graph_constant(w->g, CODA_F32, NAN), k);
}

void grad_cross_entropy(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    int z = n->in[CROSS_ENTROPY_LOGITS], target = make_key(w, z, n->in[CROSS_ENTROPY_TARGETS]);
    if (target < 0) return;
    int valid = counts(w, n, target), k = valid < 0 ? -1 : of_rows(w, n, valid, dy);
    if (k < 0) return;
    int p = make_map(w, "exp_sub", VALUES(z, make_reduce(w, "log_sum_exp", z, -1, false)));
    int dz = make_mul(w, make_sub(w, p, make_one_hot(w, z, target)),
                      checked(w, k, target, type_columns(grad_type(w, z))));
    grad_give(w, z, make_where(w, valid, dz, make_zero(w, z)));
}
