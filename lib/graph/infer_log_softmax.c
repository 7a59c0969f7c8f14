/* infer_log_softmax.c -- the type of the logarithm of a softmax: its operand's. */
#include "infer.h"

coda_status infer_log_softmax(const graph *g, struct node *n)
{
    n->type = *operand_type(g, n, LOG_SOFTMAX_X);
    return need_float(n, LOG_SOFTMAX_X, &n->type, 1);
}
