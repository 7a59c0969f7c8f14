/* quantize.h -- what quantize.c and quantize_blocks.c share. */
#ifndef QUANTIZE_H
#define QUANTIZE_H

#include "pack.h"

/* A matrix [rows, columns] of t, at any address. */
struct quantize_weights {
    coda_dtype t;
    const void *data;
    int64_t rows, columns;
};

enum { QUANTIZE_CHUNK = 256 };

/* quantize_load.c -- n <= QUANTIZE_CHUNK elements of a row, as floats: exactly. */
void quantize_load(const struct quantize_weights *w, int64_t row, int64_t k, int n, float *x);
/* CODA_E_INVALID, with the place: one of them is no finite number. */
coda_status quantize_check_finite(const float *x, int n, int64_t row, int64_t k);

/* quantize_blocks.c -- as CODA_PACK_GGUF and CODA_PACK_NIBBLES have them. */
bool quantize_takes_blocks(coda_pack_kind kind);
coda_status quantize_blocks(const struct pack_format *f, const struct quantize_weights *w,
                            const coda_quantized *out);

#endif
