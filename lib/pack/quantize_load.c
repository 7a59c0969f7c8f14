/* quantize_load.c -- weights of 16 and 32 bits as floats. */
#include "quantize.h"

#include <math.h>
#include <string.h>

enum { CHUNK = QUANTIZE_CHUNK };

void quantize_load(const struct quantize_weights *w, int64_t row, int64_t k, int n, float *x)
{
    uint32_t raw[CHUNK]; /* of 4 bytes or less each */
    const uint16_t *half = (const uint16_t *)raw;
    int64_t size = dtype_bytes(w->t, 1);
    memcpy(raw, (const uint8_t *)w->data + (row * w->columns + k) * size, (size_t)(n * size));
    if (w->t == CODA_F32) memcpy(x, raw, (size_t)n * 4);
    for (int i = 0; i < n && w->t == CODA_F16; i++) x[i] = (float)dtype_load(CODA_F16, raw, i);
    for (int i = 0; i < n && w->t == CODA_BF16; i++) {
        uint32_t u = (uint32_t)half[i] << 16;
        memcpy(&x[i], &u, 4);
    }
}

coda_status quantize_check_finite(const float *x, int n, int64_t row, int64_t k)
{
    for (int i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return fail(CODA_E_INVALID, "quantize_weight: the weight of row %lld, column %lld is %g",
                        (long long)row, (long long)k + i, (double)x[i]);
    return CODA_OK;
}
