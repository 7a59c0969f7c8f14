/* eval_conv1d.c -- a causal convolution of each column, token by token, in fp64. */
#include "eval_recurrent.h"

#include <string.h>

struct conv1d {
    const struct eval_call *c;
    int64_t time, columns, taps, sequences;
    const double *starts;
};

/* Row t of sequence b, which begins in row `first` of x and is preceded by `before`. */
static double row(const struct conv1d *j, int64_t b, int64_t first, int64_t t, int64_t column)
{
    const double *before = j->c->in[CONV1D_BEFORE];
    if (t >= 0) return j->c->in[CONV1D_X][(first + t) * j->columns + column];
    return before ? before[((b + 1) * (j->taps - 1) + t) * j->columns + column] : 0;
}

static double convolve(const struct conv1d *j, int64_t b, int64_t first, int64_t t, int64_t column)
{
    const double *bias = j->c->in[CONV1D_BIAS], *w = j->c->in[CONV1D_W] + column * j->taps;
    double sum = bias ? bias[column] : 0;
    for (int64_t i = 0; i < j->taps; i++) sum += w[i] * row(j, b, first, t - (j->taps - 1) + i, column);
    return sum;
}

/* All sequences, some of the columns. */
static void conv1d_columns(void *ctx, int64_t from, int64_t to)
{
    const struct conv1d *j = ctx;
    int64_t n = j->columns, kept = j->taps - 1;
    bool after = j->c->n->attr.conv1d.after;
    struct eval_rows rows = {0, 0};
    for (int64_t b = -1; b <= j->sequences; b++) {
        rows = eval_sequence(rows, b, j->sequences, j->starts, j->time);
        bool none = b < 0 || b == j->sequences;
        for (int64_t column = from; column < to; column++) {
            for (int64_t t = 0; t < rows.end - rows.first && !after; t++)
                j->c->out[(rows.first + t) * n + column] = none ? 0 : convolve(j, b, rows.first, t, column);
            for (int64_t i = 0; i < kept && after && !none; i++)
                j->c->out[(b * kept + i) * n + column] =
                    row(j, b, rows.first, rows.end - rows.first - kept + i, column);
        }
    }
}

coda_status eval_conv1d(const struct eval_call *c)
{
    const struct type *x = c->type[CONV1D_X], *starts = c->type[CONV1D_STARTS];
    struct conv1d j = {.c = c,
                       .time = x->dim[x->rank - 2],
                       .columns = type_columns(x),
                       .taps = type_columns(c->type[CONV1D_W]),
                       .starts = c->in[CONV1D_STARTS]};
    j.sequences = starts ? type_columns(starts) - 1 : x->rank == 3 ? x->dim[0] : 1;
    eval_spread(j.columns, mul_counts(type_rows(x), j.taps), conv1d_columns, &j);
    return CODA_OK;
}
