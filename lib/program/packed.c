/* packed.c -- operands that are packed: where their records are. */
#include "program.h"

struct packed_at packed_at(const struct tensor_use *u, int64_t stride)
{
    return (struct packed_at){stride / u->packing.columns, stride % u->packing.columns};
}

int64_t packed_block_bytes(const struct tensor_use *u)
{
    struct pack_format f = graph_format_of(u->packing.format);
    return pack_bytes(&f, PACK_ROWS, u->packing.columns);
}

int64_t packed_bytes(const struct tensor_use *u, int64_t stride)
{
    return mul_counts(packed_at(u, stride).row / PACK_ROWS, packed_block_bytes(u));
}

int64_t packed_elements_bytes(const struct tensor_use *u, int64_t elements)
{
    struct pack_format f = graph_format_of(u->packing.format);
    struct pack_record p = pack_record(&f);
    if (pack_has_gaps(&f)) elements = CEIL_DIV(mul_counts(elements, pack_group(&f)), f.group);
    return CEIL_DIV(mul_counts(elements, p.bytes), PACK_ROWS * p.step);
}

/* How many pieces of so many units are met by n units, `step` apart from `first` on. */
static int64_t pieces_met(int64_t first, int64_t step, int64_t n, int64_t piece)
{
    return step > piece ? n : (first % piece + (n - 1) * step) / piece + 1;
}

/* Rows of the matrix are N of a product, or its K where w is turned. */
int64_t packed_operand_bytes(const struct tensor_use *u, int64_t rows, int64_t k)
{
    if (!rows || !k) return 0;
    struct pack_format f = graph_format_of(u->packing.format);
    struct pack_record record = pack_record(&f);
    int64_t step = pack_has_gaps(&f) ? record.step * f.group / pack_group(&f) : record.step;
    struct packed_at first = packed_at(u, u->offset), row = packed_at(u, u->row), next = packed_at(u, u->k);
    int64_t blocks = pieces_met(first.row, row.row + next.row, row.row ? rows : k, PACK_ROWS);
    int64_t records = pieces_met(first.column, row.column + next.column, row.column ? rows : k, step);
    if (!row.row && !next.row) blocks = 1;
    if (!row.column && !next.column) records = 1;
    return mul_counts(mul_counts(blocks, records), record.bytes);
}

bool packed_has_whole_records(const struct tensor_use *u, int64_t k)
{
    struct pack_format f = graph_format_of(u->packing.format);
    struct packed_at first = packed_at(u, u->offset);
    bool rows = u->k == 1 && u->row == u->packing.columns && first.row % PACK_ROWS == 0 && !first.column;
    return rows && !pack_has_gaps(&f) && (k == u->packing.columns || k % pack_record(&f).step == 0);
}
