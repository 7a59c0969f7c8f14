/* source_words.c -- matrices whose codes lie in words of 32 bits: compressed-tensors, GPTQ, AWQ. */
#include "source.h"

#include <string.h>

static uint32_t word_at(const void *words, int64_t i)
{
    uint32_t w;
    memcpy(&w, (const uint8_t *)words + 4 * i, 4);
    return w;
}

/* Codes of 8 bits are signed here, and have 128 more in files. */
static uint8_t code_of(const struct pack_source *s, uint32_t bits)
{
    return s->bits == 8 ? (uint8_t)(bits ^ 128) : bits & 15;
}

static int in_word(const struct pack_source *s) { return 32 / s->bits; }

/* Element i of words along a dimension. */
static uint8_t element(const struct pack_source *s, const void *words, int64_t word, int64_t i)
{
    return code_of(s, word_at(words, word) >> s->bits * (i % in_word(s)));
}

static coda_status check_format(const struct pack_source *s, bool eight)
{
    bool good = s->f->codes == CODA_CODES_INT4 || (eight && s->f->codes == CODA_CODES_INT8);
    if (good && !pack_two_levels(s->f) && s->f->zeros != CODA_ZEROS_MINIMUM) return CODA_OK;
    return source_refuse_format(s, eight ? "int4 or int8, with zero points or without"
                                         : "int4, with zero points or without");
}

/* Zero points are there where the format has them, and may be there where it has not. */
static bool has_zeros(const struct pack_source *s)
{
    return s->f->zeros == CODA_ZEROS_POINTS || s->file->zeros;
}

/* ---- compressed-tensors ---- */

static coda_status check_compressed(const struct pack_source *s)
{
    const coda_pack_source *f = s->file;
    coda_status status = check_format(s, true);
    if (status == CODA_OK && s->f->group) status = source_divides(s, "columns", f->columns, s->f->group);
    if (status != CODA_OK) return status;
    return source_bytes(s, f->rows * ceil_div(f->columns, in_word(s)) * 4,
                        f->rows * s->groups * source_scale_bytes(s),
                        has_zeros(s) ? ceil_div(f->rows, in_word(s)) * 4 * s->groups : 0);
}

static void compressed_codes(const struct pack_source *s, struct pack_tile *t, int r, int64_t row)
{
    int64_t words = ceil_div(s->file->columns, in_word(s)), from = row * words;
    const uint8_t *at = (const uint8_t *)s->file->codes + 4 * from + t->k * s->bits / 8;
    if (s->file->column_order || (s->bits == 4 && t->k % 2))
        for (int k = 0; k < t->n; k++) {
            int64_t column = source_column(s, t->k + k);
            t->q[r][k] = element(s, s->file->codes, from + column / in_word(s), column);
        }
    else if (s->bits == 4) source_nibbles(at, t->n, t->q[r]);
    else
        for (int k = 0; k < t->n; k++) t->q[r][k] = at[k] ^ 128;
}

static coda_status fetch_compressed(const struct pack_source *s, struct pack_tile *t)
{
    coda_status status = CODA_OK;
    for (int r = 0; r < t->rows; r++) {
        int64_t row = source_row(s, t->row + r);
        compressed_codes(s, t, r, row);
        for (int g = 0; g < t->groups && status == CODA_OK; g++) {
            int64_t group = source_group(s, t, g), word = row / in_word(s) * s->groups + group;
            source_put_scale(s, &t->s[r], g, row * s->groups + group);
            if (has_zeros(s)) status = source_put_zero(s, t, r, g, element(s, s->file->zeros, word, row));
        }
    }
    return status;
}

const struct pack_layout layout_compressed_tensors = {"CODA_PACK_COMPRESSED_TENSORS", check_compressed,
                                                      fetch_compressed};

/* ---- GPTQ: [K, N], words along K; zero points along N ---- */

static coda_status check_transposed(const struct pack_source *s, int64_t codes)
{
    const coda_pack_source *f = s->file;
    return source_bytes(s, codes, s->groups * f->rows * source_scale_bytes(s),
                        has_zeros(s) ? s->groups * (f->rows / in_word(s)) * 4 : 0);
}

static coda_status check_gptq(const struct pack_source *s)
{
    coda_status status = check_format(s, true);
    if (status == CODA_OK) status = source_divides(s, "columns", s->file->columns, in_word(s));
    if (status == CODA_OK) status = source_divides(s, "rows", s->file->rows, in_word(s));
    if (status != CODA_OK) return status;
    return check_transposed(s, s->file->columns / in_word(s) * s->file->rows * 4);
}

static void gptq_codes(const struct pack_source *s, struct pack_tile *t, int r, int64_t row)
{
    const coda_pack_source *f = s->file;
    int n = in_word(s);
    bool whole = !f->column_order && t->k % n == 0; /* words */
    for (int k = 0; k < t->n && !whole; k++) {
        int64_t column = source_column(s, t->k + k);
        t->q[r][k] = element(s, f->codes, column / n * f->rows + row, column);
    }
    for (int k = 0; k < t->n && whole; k += n) {
        uint32_t w = word_at(f->codes, (t->k + k) / n * f->rows + row);
        if (n == 8) source_nibbles((const uint8_t *)&w, 8, t->q[r] + k);
        else {
            w ^= 0x80808080;
            memcpy(t->q[r] + k, &w, 4);
        }
    }
}

/* The zero point of a row in group g: `more` than what is stored, modulo its bits. */
static uint8_t gptq_zero(const struct pack_source *s, int64_t group, int64_t row, int more)
{
    int64_t words = s->file->rows / in_word(s);
    uint32_t w = word_at(s->file->zeros, group * words + row / in_word(s));
    return code_of(s, (w >> s->bits * (row % in_word(s))) + (uint32_t)more);
}

static coda_status fetch_gptq(const struct pack_source *s, struct pack_tile *t, int more)
{
    coda_status status = CODA_OK;
    for (int r = 0; r < t->rows; r++) {
        int64_t row = source_row(s, t->row + r);
        gptq_codes(s, t, r, row);
        for (int g = 0; g < t->groups && status == CODA_OK; g++) {
            int64_t group = source_group(s, t, g);
            source_put_scale(s, &t->s[r], g, group * s->file->rows + row);
            if (has_zeros(s)) status = source_put_zero(s, t, r, g, gptq_zero(s, group, row, more));
        }
    }
    return status;
}

static coda_status fetch_v1(const struct pack_source *s, struct pack_tile *t) { return fetch_gptq(s, t, 1); }
static coda_status fetch_v2(const struct pack_source *s, struct pack_tile *t) { return fetch_gptq(s, t, 0); }

const struct pack_layout layout_gptq = {"CODA_PACK_GPTQ", check_gptq, fetch_v1};
const struct pack_layout layout_gptq_v2 = {"CODA_PACK_GPTQ_V2", check_gptq, fetch_v2};

/* ---- AWQ: [K, N], words along N, whose nibbles are rows 0 2 4 6 1 3 5 7 ---- */

static coda_status check_awq(const struct pack_source *s)
{
    const coda_pack_source *f = s->file;
    coda_status status = check_format(s, false);
    if (status == CODA_OK) status = source_in_order(s);
    if (status == CODA_OK && s->f->group) status = source_divides(s, "columns", f->columns, s->f->group);
    if (status == CODA_OK) status = source_divides(s, "rows", f->rows, 8);
    return status == CODA_OK ? check_transposed(s, f->columns * (f->rows / 8) * 4) : status;
}

static int awq_shift(int64_t row) { return (int)(4 * (row % 8 / 2 + 4 * (row % 2))); }

/* The words of 8 rows are gathered once: rows mostly follow one another. */
static coda_status fetch_awq(const struct pack_source *s, struct pack_tile *t)
{
    int64_t words = s->file->rows / 8, gathered = -1;
    uint32_t w[PACK_STEP_MOST];
    coda_status status = CODA_OK;
    for (int r = 0; r < t->rows; r++) {
        int64_t row = source_row(s, t->row + r);
        int shift = awq_shift(row);
        for (int k = 0; k < t->n && row / 8 != gathered; k++)
            w[k] = word_at(s->file->codes, (t->k + k) * words + row / 8);
        gathered = row / 8;
        for (int k = 0; k < t->n; k++) t->q[r][k] = w[k] >> shift & 15;
        for (int g = 0; g < t->groups && status == CODA_OK; g++) {
            int64_t group = source_group(s, t, g);
            source_put_scale(s, &t->s[r], g, group * s->file->rows + row);
            uint32_t z =
                has_zeros(s) ? word_at(s->file->zeros, group * words + row / 8) >> shift & 15 : s->middle;
            status = source_put_zero(s, t, r, g, (uint8_t)z);
        }
    }
    return status;
}

const struct pack_layout layout_awq = {"CODA_PACK_AWQ", check_awq, fetch_awq};
