/*
 * rows.c -- rows of numbers as codes with scales, by coda_quantize_weight, and what that loses.
 */
#include "quantize_parts.h"
#include "tensor.h"

int64_t shrink_group(const struct shrink *s, int64_t columns)
{
    int group = s->format == SHRINK_FP8_BLOCK ? SHRINK_BLOCK : s->format == SHRINK_INT4 ? s->group : 0;
    return group && group < columns ? group : columns;
}

static coda_pack_format codes_of(const struct shrink *s, int64_t columns)
{
    coda_pack_format p = CODA_PACK_FORMAT_INIT;
    bool words = s->format == SHRINK_INT4, block = s->format == SHRINK_FP8_BLOCK;
    int64_t group = shrink_group(s, columns);
    p.codes = words ? CODA_CODES_INT4 : CODA_CODES_E4M3;
    p.scales = words ? CODA_SCALES_BF16 : CODA_SCALES_F32;
    p.zeros = s->asymmetric ? CODA_ZEROS_POINTS : CODA_ZEROS_NONE;
    p.group = block ? SHRINK_BLOCK : group == columns ? 0 : (int32_t)group;
    return p;
}

/* What code k of row r means. */
static double value_of(const struct shrink *s, const coda_quantized *q, int64_t columns, int64_t r, int64_t k)
{
    int64_t group = shrink_group(s, columns), groups = (columns + group - 1) / group, g = k / group;
    if (s->format != SHRINK_INT4) {
        int64_t row = s->format == SHRINK_FP8_BLOCK ? r / SHRINK_BLOCK : r;
        return double_of_f8(((const uint8_t *)q->codes)[r * columns + k]) *
               (double)((const float *)q->scales)[row * groups + g];
    }
    const uint32_t *words = q->codes, *zeros = q->zeros;
    int code = (int)(words[r * ((columns + 7) / 8) + k / 8] >> (k % 8 * 4) & 15);
    int zero = zeros ? (int)(zeros[r / 8 * groups + g] >> (r % 8 * 4) & 15) : 8;
    return (code - zero) * element_get(CODA_BF16, q->scales, r * groups + g);
}

bool shrink_rows(const struct shrink *s, const float *x, int64_t rows, int64_t columns,
                 const coda_quantized *to, double *lost, double *size)
{
    coda_pack_format p = codes_of(s, columns);
    *lost = *size = 0;
    if (coda_quantize_weight(&p, CODA_F32, x, rows, columns, to) != CODA_OK) return false;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) {
            double was = (double)x[r * columns + k], d = was - value_of(s, to, columns, r, k);
            *lost += d * d;
            *size += was * was;
        }
    return true;
}
