/* api_log_softmax.c -- the call of one operation, as those of api_ops.c. */
#include "api.h"

CODA_API coda_value coda_log_softmax(coda_graph *g, coda_value x)
{
    return build_node(g, "log_softmax", (struct node){.op = OP_LOG_SOFTMAX}, OPERANDS(x));
}
