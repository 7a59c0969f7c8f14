/* infer_log_softmax.c -- the type of the logarithm of a softmax: its operand's. */
#include "infer.h"

coda_status infer_log_softmax(const graph *g, struct node *n)
{
    n->type = *operand_type(g, n, 0);
    return need_float(n, "x", &n->type, 1);
}
