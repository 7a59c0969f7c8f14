/* eval_log_softmax.c -- the logarithm of a softmax in fp64: x - max - log(sum e^(x - max)), row by row. */
#include "eval.h"

#include <math.h>

static void log_softmax_rows(void *ctx, int64_t from, int64_t to)
{
    const struct eval_call *c = ctx;
    int64_t columns = type_columns(c->type[LOG_SOFTMAX_X]);
    for (int64_t row = from; row < to; row++) {
        const double *x = c->in[LOG_SOFTMAX_X] + row * columns;
        double *y = c->out + row * columns, most = eval_row_max(x, columns), sum = 0;
        for (int64_t i = 0; i < columns; i++) sum += exp(x[i] - most);
        for (int64_t i = 0; i < columns; i++) y[i] = x[i] - most - log(sum);
    }
}

coda_status eval_log_softmax(const struct eval_call *c)
{
    struct eval_call call = *c;
    int64_t work = type_columns(c->type[LOG_SOFTMAX_X]) * EVAL_TRANSCENDENTAL;
    eval_spread(type_rows(c->type[LOG_SOFTMAX_X]), work, log_softmax_rows, &call);
    return CODA_OK;
}
