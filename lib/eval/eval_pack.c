/* eval_pack.c -- packed weights as numbers: a row block at a time, whose bytes come as doubles. */
#include "eval.h"

#include <stdatomic.h>
#include <stdlib.h>

struct unpacking {
    const struct eval_call *c;
    struct pack_format format;
    int64_t rows, columns, blocks; /* of a matrix; 16 rows are a block */
    int64_t bytes;                 /* of a block */
    atomic_bool failed;
};

static void decode(const struct unpacking *u, int64_t block, uint8_t *record, float *row)
{
    int64_t first = block % u->blocks * PACK_ROWS, rows = MIN(u->rows - first, PACK_ROWS);
    const double *from = u->c->in[UNPACK_W] + block * u->bytes;
    double *out = u->c->out + (block / u->blocks * u->rows + first) * u->columns;
    for (int64_t i = 0; i < u->bytes; i++) record[i] = (uint8_t)from[i];
    for (int64_t r = 0; r < rows; r++) {
        pack_decode(&u->format, record, rows, u->columns, r, 0, u->columns, row);
        for (int64_t k = 0; k < u->columns; k++) *out++ = (double)row[k];
    }
}

static void decode_block(void *ctx, int64_t block)
{
    struct unpacking *u = ctx;
    uint8_t *record = malloc((size_t)u->bytes);
    float *row = malloc(sizeof *row * (size_t)u->columns);
    if (record && row) decode(u, block, record, row);
    else atomic_store(&u->failed, true);
    free(record);
    free(row);
}

coda_status eval_unpack(const struct eval_call *c)
{
    struct unpacking u = {.c = c, .format = node_format(c->n)};
    node_matrix(c->n, &u.rows, &u.columns);
    int64_t matrices = type_rows(&c->n->type) / u.rows;
    u.blocks = CEIL_DIV(u.rows, PACK_ROWS);
    u.bytes = pack_bytes(&u.format, PACK_ROWS, u.columns);
    parallel_for(matrices * u.blocks, decode_block, &u);
    return u.failed
               ? fail(CODA_E_MEMORY, "evaluate: out of memory for rows of %lld columns", (long long)u.columns)
               : CODA_OK;
}
