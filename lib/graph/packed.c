/* packed.c -- what is asked of packed weights: their format, their matrices, who is one. */
#include "graph.h"

enum { SCALES_AT = 8, ZEROS_AT = 16, GROUP_AT = 24, FIELD = 255 };

int64_t graph_format(const struct pack_format *f)
{
    return (int64_t)f->codes | (int64_t)f->scales << SCALES_AT | (int64_t)f->zeros << ZEROS_AT |
           (int64_t)f->group << GROUP_AT;
}

struct pack_format graph_format_of(int64_t number)
{
    return (struct pack_format){.codes = (coda_pack_codes)(number & FIELD),
                                .scales = (coda_pack_scales)(number >> SCALES_AT & FIELD),
                                .zeros = (coda_pack_zeros)(number >> ZEROS_AT & FIELD),
                                .group = (int32_t)(number >> GROUP_AT)};
}

struct pack_format node_format(const struct node *n) { return graph_format_of(n->attr.unpack.format); }

void node_matrix(const struct node *n, int64_t *rows, int64_t *columns)
{
    *rows = n->type.dim[n->type.rank - 2];
    *columns = n->type.dim[n->type.rank - 1];
}

int64_t graph_packed_bytes(const struct pack_format *f, int rank, const int64_t *dim)
{
    int64_t bytes = pack_bytes(f, dim[rank - 2], dim[rank - 1]);
    for (int i = 0; i + 2 < rank; i++) bytes = mul_counts(bytes, dim[i]);
    return bytes;
}

bool node_is_small(const struct node *n)
{
    return n->op == OP_UNPACK || (n->op == OP_WEIGHT && dtype_is_storage(n->type.dtype));
}

int graph_packed(const graph *g, int value)
{
    while (op_is_view(g->node[value].op)) value = g->node[value].in[VIEW_OF];
    return g->node[value].op == OP_UNPACK ? value : -1;
}
