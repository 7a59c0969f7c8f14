/* eval_iota.c -- 0, 1, 2, ... in fp64. */
#include "eval.h"

coda_status eval_iota(const struct eval_call *c)
{
    for (int64_t i = 0; i < type_elements(&c->n->type); i++) c->out[i] = (double)i;
    return CODA_OK;
}
