/* infer_iota.c -- the type of 0, 1, 2, ...: int32, as many as a float counts. */
#include "infer.h"

coda_status infer_iota(const graph *g, struct node *n)
{
    int64_t extent = n->attr.iota.n;
    if (!dims_has(g->dims, extent) || dims_most(g->dims, extent) > IOTA_MOST)
        return fail(CODA_E_INVALID, "iota: n is %s; must be 0..%d", dim_text(g->dims, extent).s, IOTA_MOST);
    n->type = (struct type){.dtype = CODA_I32, .rank = 1, .dims = g->dims};
    n->type.dim[0] = extent;
    return CODA_OK;
}
