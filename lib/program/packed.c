/* packed.c -- operands that are packed: where their records are. */
#include "program.h"

struct packed_at packed_at(const struct tensor_use *u, int64_t stride)
{
    return (struct packed_at){stride / u->packing.columns, stride % u->packing.columns};
}

static int64_t blocks_bytes(const struct tensor_use *u, int64_t rows)
{
    struct pack_format f = graph_format_of(u->packing.format);
    return rows ? pack_bytes(&f, rows, u->packing.columns) : 0;
}

int64_t packed_block_bytes(const struct tensor_use *u) { return blocks_bytes(u, PACK_ROWS); }

int64_t packed_bytes(const struct tensor_use *u, int64_t stride)
{
    return mul_counts(packed_at(u, stride).row / PACK_ROWS, packed_block_bytes(u));
}

/* Rows of the matrix are N of a product, or its K where w is turned. */
int64_t packed_operand_bytes(const struct tensor_use *u, int64_t rows, int64_t k)
{
    struct pack_format f = graph_format_of(u->packing.format);
    bool turned = packed_at(u, u->k).row != 0;
    return rows && k ? pack_bytes(&f, turned ? k : rows, turned ? rows : k) : 0;
}
