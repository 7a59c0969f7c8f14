/* source.h -- what packers of file layouts share: a matrix that is read, a tile of 16 rows x a step. */
#ifndef SOURCE_H
#define SOURCE_H

#include "pack.h"

#include <string.h>

struct pack_source {
    const struct pack_format *f;
    struct pack_record p;
    const coda_pack_source *file;
    const char *name;      /* of its kind */
    int64_t group, groups; /* k of a scale; scales of a row */
    int bits;              /* of a code */
    uint8_t middle;        /* the zero point where a file has none, as records keep codes */
};

/* Codes as records keep them, and scales. */
struct pack_tile {
    int64_t row, k; /* where it begins in the matrix */
    int rows, n;    /* that the matrix has of it */
    int groups;     /* of these n */
    uint8_t q[PACK_ROWS][PACK_STEP_MOST];
    struct pack_scales s[PACK_ROWS];
};

/* A kind of file: bytes of its tensors, and what it can be packed as. */
struct pack_layout {
    const char *name;
    coda_status (*check)(const struct pack_source *s);
    /* Fills q[r][0..n-1] and s[r] of groups 0..groups-1, for all r of rows. */
    coda_status (*fetch)(const struct pack_source *s, struct pack_tile *t);
};
extern const struct pack_layout layout_codes, layout_nibbles, layout_compressed_tensors, layout_gptq,
    layout_gptq_v2, layout_awq, layout_gguf;

/* The file's row and column of a place in the packed matrix. */
static inline int64_t source_row(const struct pack_source *s, int64_t row)
{
    return s->file->row_order ? s->file->row_order[row] : row;
}
static inline int64_t source_column(const struct pack_source *s, int64_t k)
{
    return s->file->column_order ? s->file->column_order[k] : k;
}
/* The group of group g of a tile. */
static inline int64_t source_group(const struct pack_source *s, const struct pack_tile *t, int g)
{
    return t->k / s->group + g;
}
/* n codes of 4 bits, the first of each byte in its lower half. */
static inline void source_nibbles(const uint8_t *from, int n, uint8_t *q)
{
    int k = 0;
    for (; k + 8 <= n; k += 8) {
        uint32_t w;
        memcpy(&w, from + k / 2, 4);
        uint64_t x = (w | (uint64_t)w << 16) & 0x0000ffff0000ffff;
        x = (x | x << 8) & 0x00ff00ff00ff00ff;
        x = (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
        memcpy(q + k, &x, 8);
    }
    for (; k < n; k++) q[k] = from[k / 2] >> 4 * (k & 1) & 15;
}
/* source.c -- failures, if a tensor has not as many bytes as it should, or if there is one that the kind
 * does not have (bytes 0). */
coda_status source_bytes(const struct pack_source *s, int64_t codes, int64_t scales, int64_t zeros);
coda_status source_in_order(const struct pack_source *s); /* a failure, if columns are in another order */
coda_status source_divides(const struct pack_source *s, const char *what, int64_t size, int64_t by);
coda_status source_refuse_format(const struct pack_source *s, const char *takes);
int source_scale_bytes(const struct pack_source *s);
/* Scale `from` of an array of the file's becomes scale g of a row of a tile. */
void source_put_scale(const struct pack_source *s, struct pack_scales *out, int g, int64_t from);
/* A zero point as records keep it: it is kept, or must be the middle. */
coda_status source_put_zero(const struct pack_source *s, const struct pack_tile *t, int r, int g, uint8_t z);

#endif
