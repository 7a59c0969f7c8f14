/*
 * rows.c -- rows of numbers as codes with scales, to the nearest.
 */
#include <math.h>

#include "quantize_parts.h"
#include "tensor.h"

/* f8e4m3 of |x| <= 448, ties to even: a float's rounding of its upper three bits, or steps of 2^-9. */
static uint8_t e4m3_of(float x)
{
    uint32_t b = bits_of_float(x), sign = b >> 24 & 0x80;
    float a = fminf(fabsf(x), 448);
    if (a < 0x1p-6f) return (uint8_t)(sign | (uint32_t)rintf(a * 0x1p9f));
    b = bits_of_float(a);
    b += 0x7ffff + (b >> 20 & 1);
    return (uint8_t)(sign | ((b >> 20) - (120 << 3)));
}

static float e4m3_value(uint8_t c)
{
    int e = c >> 3 & 15, m = c & 7;
    float a = e ? ldexpf((float)(8 + m), e - 10) : (float)m * 0x1p-9f;
    return c & 0x80 ? -a : a;
}

int64_t shrink_group(const struct shrink *s, int64_t columns)
{
    int group = s->format == SHRINK_FP8_BLOCK ? SHRINK_BLOCK : s->format == SHRINK_INT4 ? s->group : 0;
    return group && group < columns ? group : columns;
}

static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* ---- fp8 ---- */

static void round_fp8(const float *x, int64_t n, float scale, int8_t *codes, struct shrunk *to)
{
    float value[256];
    for (int c = 0; c < 256; c++) value[c] = e4m3_value((uint8_t)c);
    for (int64_t i = 0; i < n; i++) {
        uint8_t c = e4m3_of(x[i] / scale);
        double lost = (double)x[i] - (double)value[c] * (double)scale;
        codes[i] = (int8_t)c;
        to->lost += lost * lost;
        to->size += (double)x[i] * (double)x[i];
    }
}

/* The largest number of a row, or of a block of rows and columns, becomes 448. */
static void shrink_fp8(const struct shrink *s, const float *x, int64_t rows, struct shrunk *to)
{
    int64_t group = shrink_group(s, to->columns), together = s->format == SHRINK_FP8_BLOCK ? rows : 1;
    for (int64_t r = 0; r < rows; r += together)
        for (int64_t g = 0, k = 0; k < to->columns; g++, k += group) {
            int64_t n = to->columns - k < group ? to->columns - k : group;
            float most = 0;
            for (int64_t i = r; i < r + together; i++)
                most = fmaxf(most, largest(x + i * to->columns + k, n));
            float scale = most > 0 ? most / 448 : 1;
            if (scale < 0x1p-126f) scale = 1; /* numbers that only 0 stands for */
            to->scales[(together == 1 ? r : 0) * to->groups + g] = scale;
            for (int64_t i = r; i < r + together; i++)
                round_fp8(x + i * to->columns + k, n, scale, to->codes + i * to->columns + k, to);
        }
}

/* ---- int4 ---- */

struct step {
    float scale;
    int zero; /* of codes -8 .. 7 */
};

static int code_of(float x, struct step s)
{
    float q = rintf(x / s.scale) + (float)s.zero;
    return (int)fminf(fmaxf(q, -8), 7);
}

static double lost_by(const float *x, int64_t n, struct step s)
{
    double lost = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)(code_of(x[i], s) - s.zero) * (double)s.scale;
        lost += d * d;
    }
    return lost;
}

/* From the least to the greatest number, times `part`. */
static struct step step_of(const struct shrink *s, float least, float most, float part)
{
    float width = s->asymmetric ? (most - least) * part : 2 * fmaxf(most, -least) * part;
    struct step t = {float_of_bits((uint32_t)bf16_of_float(width / 15) << 16), 0};
    if (!(t.scale >= 0x1p-126f)) return (struct step){1, 0};
    if (s->asymmetric) t.zero = (int)fminf(fmaxf(rintf(-8 - least * part / t.scale), -8), 7);
    return t;
}

/* Of some ranges that cut a little off the ends, the one that loses least. */
static struct step best_step(const struct shrink *s, const float *x, int64_t n)
{
    float least = 0, most = 0;
    for (int64_t i = 0; i < n; i++) least = fminf(least, x[i]), most = fmaxf(most, x[i]);
    struct step best = step_of(s, least, most, 1);
    double lost = lost_by(x, n, best);
    for (int i = 1; i < 8; i++) {
        struct step t = step_of(s, least, most, 1 - 0.05f * (float)i);
        double other = lost_by(x, n, t);
        if (other < lost) best = t, lost = other;
    }
    return best;
}

static void shrink_int4(const struct shrink *s, const float *x, int64_t rows, struct shrunk *to)
{
    int64_t group = shrink_group(s, to->columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0, k = 0; k < to->columns; g++, k += group) {
            const float *at = x + r * to->columns + k;
            int64_t n = to->columns - k < group ? to->columns - k : group;
            struct step t = best_step(s, at, n);
            to->scales[r * to->groups + g] = t.scale;
            if (to->zeros) to->zeros[r * to->groups + g] = (int8_t)t.zero;
            for (int64_t i = 0; i < n; i++) to->codes[r * to->columns + k + i] = (int8_t)code_of(at[i], t);
            to->lost += lost_by(at, n, t);
            for (int64_t i = 0; i < n; i++) to->size += (double)at[i] * (double)at[i];
        }
}

void shrink_rows(const struct shrink *s, const float *x, int64_t rows, struct shrunk *to)
{
    to->lost = to->size = 0;
    (s->format == SHRINK_INT4 ? shrink_int4 : shrink_fp8)(s, x, rows, to);
}
