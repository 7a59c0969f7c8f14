/*
 * quantize.c -- weights of 16 and 32 bits, rounded to the nearest codes of a format.
 *
 * Formulas: calculate_qparams of compressed-tensors (quantization/utils/helpers.py), in fp64, with scales
 * that are rounded to their type first.
 */
#include "quantize.h"

#include <math.h>
#include <string.h>

/* What is rounded, and where to. */
struct rounding {
    const struct pack_format *f;
    struct pack_record p;
    struct quantize_weights weights;
    coda_dtype scales;
    int64_t group, groups; /* k of a scale; scales of a row */
    int block_rows;
    const coda_quantized *out;
};

/* One group of one block of rows. Codes are numbers from `least` to `most`; z is added to x / s. */
struct group {
    int64_t row, k;
    int rows;
    int64_t n;
    double low, high, s, z;
};

enum { CHUNK = QUANTIZE_CHUNK };

static void load(const struct rounding *w, int64_t row, int64_t k, int n, float *x)
{
    quantize_load(&w->weights, row, k, n, x);
}

/* ---- Scales ---- */

/* The least and the largest of a group and 0. */
static coda_status find_range(const struct rounding *w, struct group *g)
{
    float x[CHUNK], low = 0, high = 0;
    for (int64_t row = g->row; row < g->row + g->rows; row++)
        for (int64_t k = g->k; k < g->k + g->n; k += CHUNK) {
            int n = (int)MIN(CHUNK, g->k + g->n - k), bad = 0;
            load(w, row, k, n, x);
            for (int i = 0; i < n; i++) {
                low = MIN(low, x[i]);
                high = MAX(high, x[i]);
                bad |= !isfinite(x[i]);
            }
            if (bad) return quantize_check_finite(x, n, row, k);
        }
    g->low = low;
    g->high = high;
    return CODA_OK;
}

static double largest_code(const struct pack_format *f)
{
    switch (f->codes) {
    case CODA_CODES_E4M3: return 448;
    case CODA_CODES_E5M2: return 57344;
    case CODA_CODES_INT4: return 7.5;
    default: return 127.5;
    }
}

/* The scale, as its type has it, and the zero point of a part of the range. A scale of 0 is 1: all codes
 * are 0. Returns the scale before it is rounded. */
static double set_scale(const struct rounding *w, struct group *g, double part)
{
    bool points = w->f->zeros == CODA_ZEROS_POINTS;
    double largest = largest_code(w->f), low = g->low * part, high = g->high * part;
    double s = points ? (high - low) / (2 * largest) : MAX(high, -low) / largest;
    float own;
    dtype_store(w->scales, &own, 0, s);
    g->s = dtype_load(w->scales, &own, 0);
    if (g->s == 0) g->s = 1, low = 0;
    g->z = points ? MIN(rint(-low / g->s), 2 * largest) : 0;
    return s;
}

static void put_scale(const struct rounding *w, const struct group *g)
{
    int64_t at = g->row / w->block_rows * w->groups + g->k / w->group, size = dtype_bytes(w->scales, 1);
    float own;
    dtype_store(w->scales, &own, 0, g->s);
    memcpy((uint8_t *)w->out->scales + at * size, &own, (size_t)size);
}

/* ---- Codes, as records keep them but for the middle: integers with a zero point from 0 on ---- */

static uint8_t integer(double x, double least, double most)
{
    return (uint8_t)(int)lrint(MIN(MAX(x, least), most));
}

static double within(double x, double most) { return MIN(MAX(x, -most), most); }

static void round_codes(const struct rounding *w, const struct group *g, const float *x, int n, uint8_t *q)
{
    double s = g->s, z = g->z, half = w->f->codes == CODA_CODES_INT4 ? 8 : 128;
    double least = w->f->zeros ? 0 : -half, most = least + 2 * half - 1;
    if (w->f->codes == CODA_CODES_E4M3)
        for (int i = 0; i < n; i++) q[i] = dtype_f8e4m3_of(x[i] / s);
    else if (w->f->codes == CODA_CODES_E5M2)
        for (int i = 0; i < n; i++) q[i] = dtype_f8e5m2_of(within(x[i] / s, 57344)); /* never infinite */
    else
        for (int i = 0; i < n; i++) q[i] = integer(x[i] / s + z, least, most);
}

/* The sum of squares of what rounding takes, of integers. */
static double lost_by(const struct rounding *w, const struct group *g)
{
    float x[CHUNK];
    uint8_t q[CHUNK];
    double lost = 0;
    for (int64_t row = g->row; row < g->row + g->rows; row++)
        for (int64_t k = g->k; k < g->k + g->n; k += CHUNK) {
            int n = (int)MIN(CHUNK, g->k + g->n - k);
            load(w, row, k, n, x);
            round_codes(w, g, x, n, q);
            for (int i = 0; i < n; i++) {
                double d = x[i] - ((w->f->zeros ? q[i] : (int8_t)q[i]) - g->z) * g->s;
                lost += d * d;
            }
        }
    return lost;
}

static coda_status choose_scale(const struct rounding *w, struct group *g)
{
    double s = set_scale(w, g, 1);
    if (!isfinite(g->s))
        return fail(CODA_E_INVALID,
                    "quantize_weight: the scale of row %lld, group %lld is %g, which %s has not",
                    (long long)g->row, (long long)(g->k / w->group), s, dtype_name(w->scales));
    if (!w->out->search || !pack_is_integer(w->f)) return CODA_OK;
    double least = lost_by(w, g);
    for (int i = 1; i < 8; i++) {
        struct group other = *g;
        set_scale(w, &other, 1 - 0.05 * i);
        double lost = lost_by(w, &other);
        if (lost >= least) continue;
        least = lost;
        *g = other;
    }
    return CODA_OK;
}

/* ---- Where they go ---- */

/* Codes of 4 bits without a zero point count from 8 in words, those of 8 bits from 128, as zero points do. */
static void put_words(const struct rounding *w, int64_t row, int64_t k, int n, const uint8_t *q)
{
    int bits = w->p.bits, middle = w->f->zeros ? 0 : 1 << (bits - 1), in_word = 32 / bits;
    int64_t words = w->weights.columns / in_word + (w->weights.columns % in_word > 0);
    uint8_t *line = (uint8_t *)w->out->codes + 4 * row * words;
    for (int i = 0; i < n; i++) {
        uint8_t code = (uint8_t)(q[i] + middle);
        if (bits == 8) line[k + i] = code;
        else if ((k + i) & 1) line[(k + i) / 2] |= (uint8_t)((code & 15) << 4);
        else line[(k + i) / 2] = code & 15;
    }
    if (k + n < w->weights.columns) return;
    for (int64_t i = CEIL_DIV(w->weights.columns * bits, 8); i < 4 * words; i++)
        line[i] = 0; /* the last word's rest */
}

static void put_codes(const struct rounding *w, int64_t row, int64_t k, int n, uint8_t *q)
{
    if (w->out->kind == CODA_PACK_COMPRESSED_TENSORS) {
        put_words(w, row, k, n, q);
        return;
    }
    bool shifted = w->f->codes == CODA_CODES_INT8 && w->f->zeros;
    for (int i = 0; i < n && shifted; i++) q[i] ^= 128;
    memcpy((uint8_t *)w->out->codes + row * w->weights.columns + k, q, (size_t)n);
}

/* A zero point, from 0 on; along N in words, the first row of a word clears it. */
static void put_zero(const struct rounding *w, const struct group *g, int64_t row)
{
    int bits = w->p.bits, in_word = 32 / bits;
    int64_t group = g->k / w->group;
    uint8_t z = (uint8_t)g->z, *zeros = w->out->zeros;
    if (w->out->kind != CODA_PACK_COMPRESSED_TENSORS) {
        zeros[row * w->groups + group] = bits == 8 ? z ^ 128 : z;
        return;
    }
    uint32_t word = 0;
    uint8_t *at = zeros + 4 * (row / in_word * w->groups + group);
    if (row % in_word) memcpy(&word, at, 4);
    word |= (uint32_t)z << bits * (row % in_word);
    memcpy(at, &word, 4);
}

static coda_status round_group(const struct rounding *w, struct group *g)
{
    float x[CHUNK];
    uint8_t q[CHUNK];
    coda_status status = find_range(w, g);
    if (status == CODA_OK) status = choose_scale(w, g);
    if (status == CODA_OK) put_scale(w, g);
    for (int64_t row = g->row; row < g->row + g->rows && status == CODA_OK; row++) {
        for (int64_t k = g->k; k < g->k + g->n; k += CHUNK) {
            int n = (int)MIN(CHUNK, g->k + g->n - k);
            load(w, row, k, n, x);
            round_codes(w, g, x, n, q);
            put_codes(w, row, k, n, q);
        }
        if (w->f->zeros) put_zero(w, g, row);
    }
    return status;
}

/* ---- The whole ---- */

static coda_status check_format(const struct rounding *w)
{
    const struct pack_format *f = w->f;
    bool integers = f->codes == CODA_CODES_INT4 || f->codes == CODA_CODES_INT8;
    bool floats = f->codes == CODA_CODES_E4M3 || f->codes == CODA_CODES_E5M2,
         words = w->out->kind != CODA_PACK_CODES;
    bool wide = f->scales == CODA_SCALES_F32 || f->scales == CODA_SCALES_BF16 || f->scales == CODA_SCALES_F16;
    if ((!integers && !floats) || !wide || f->zeros == CODA_ZEROS_MINIMUM)
        return fail(CODA_E_INVALID,
                    "quantize_weight: the format is %s; codes are int4, int8, e4m3 or e5m2, scales f32, "
                    "bf16 or f16",
                    pack_word(f).s);
    if (words && (w->out->kind != CODA_PACK_COMPRESSED_TENSORS || floats))
        return fail(CODA_E_INVALID,
                    "quantize_weight: kind is %d of %s; must be CODA_PACK_CODES, or for int4 and int8 "
                    "CODA_PACK_COMPRESSED_TENSORS",
                    (int)w->out->kind, pack_word(f).s);
    if (w->out->block_rows < 0 || (w->block_rows > 1 && (words || f->zeros)))
        return fail(CODA_E_INVALID,
                    "quantize_weight: block_rows is %d; must be at least 1, and 1 with zero points or as "
                    "CODA_PACK_COMPRESSED_TENSORS",
                    w->out->block_rows);
    return CODA_OK;
}

static coda_status check(const struct rounding *w)
{
    coda_status status = quantize_takes_blocks(w->out->kind) ? CODA_OK : check_format(w);
    if (status != CODA_OK) return status;
    if (!dtype_is_float(w->weights.t))
        return fail(CODA_E_INVALID, "quantize_weight: the weight is %s; must be f32, bf16 or f16",
                    dtype_name(w->weights.t));
    if (w->weights.rows < 1 || w->weights.columns < 1 || w->weights.rows > INT32_MAX ||
        w->weights.columns > INT32_MAX)
        return fail(CODA_E_INVALID, "quantize_weight: %lld x %lld; must be 1..2^31 - 1 each",
                    (long long)w->weights.rows, (long long)w->weights.columns);
    if (w->out->kind == CODA_PACK_COMPRESSED_TENSORS && w->f->group && w->weights.columns % w->f->group)
        return fail(CODA_E_INVALID, "quantize_weight: %lld columns, which groups of %d do not divide",
                    (long long)w->weights.columns, w->f->group);
    return CODA_OK;
}

coda_status pack_quantize(const struct pack_format *f, coda_dtype t, const void *weight, int64_t rows,
                          int64_t columns, const coda_quantized *out)
{
    struct rounding w = {.f = f,
                         .p = pack_record(f),
                         .weights = {t, weight, rows, columns},
                         .block_rows = MAX(out->block_rows, 1),
                         .out = out};
    w.scales = f->scales == CODA_SCALES_F32 ? CODA_F32 : f->scales == CODA_SCALES_BF16 ? CODA_BF16 : CODA_F16;
    coda_status status = check(&w);
    if (status != CODA_OK) return status;
    if (quantize_takes_blocks(out->kind)) return quantize_blocks(f, &w.weights, out);
    w.group = f->group ? f->group : columns;
    w.groups = columns / w.group + (columns % w.group > 0);
    for (int64_t row = 0; row < rows && status == CODA_OK; row += w.block_rows)
        for (int64_t k = 0; k < columns && status == CODA_OK; k += w.group) {
            struct group g = {.row = row, .k = k};
            g.rows = (int)MIN(w.block_rows, rows - row);
            g.n = MIN(w.group, columns - k);
            status = round_group(&w, &g);
        }
    return status;
}
