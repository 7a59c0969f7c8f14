/* source_bytes.c -- matrices whose codes lie row by row, in bytes or two a byte, with scales [N, G]. */
#include "source.h"

#include <string.h>

/* ---- A byte a code ---- */

static coda_status check_codes(const struct pack_source *s)
{
    const coda_pack_source *f = s->file;
    int size = source_scale_bytes(s), second = s->f->zeros == CODA_ZEROS_POINTS ? 1 : size;
    int64_t blocks = ceil_div(f->rows, MAX(f->block_rows, 1));
    if (pack_two_levels(s->f)) return source_refuse_format(s, "of one level of scales");
    coda_status status = source_in_order(s);
    if (status == CODA_OK && s->f->zeros == CODA_ZEROS_MINIMUM)
        status =
            source_divides(s, "columns with minima", f->columns, pack_has_gaps(s->f) ? s->group : s->p.group);
    if (status != CODA_OK) return status;
    return source_bytes(s, f->rows * f->columns, mul_counts(blocks * s->groups, size),
                        s->f->zeros ? f->rows * s->groups * second : 0);
}

/* Numbers q become codes: of those with a middle it is added. Fewer bits than 8 have a range. */
static coda_status number_codes(const struct pack_source *s, struct pack_tile *t, int r)
{
    int middle = pack_middle(s->f), most = (1 << s->bits) - 1, bad = 0;
    if (s->bits == 8) return CODA_OK;
    for (int k = 0; k < t->n; k++) {
        t->q[r][k] = (uint8_t)(t->q[r][k] + middle);
        bad |= t->q[r][k] > most;
    }
    for (int k = 0; bad && k < t->n; k++)
        if (t->q[r][k] > most)
            return fail(CODA_E_INVALID, "pack: the code of row %lld, column %lld is %d; %s has %d..%d",
                        (long long)(t->row + r), (long long)(t->k + k),
                        middle ? (int8_t)(t->q[r][k] - middle) : t->q[r][k], pack_word(s->f).s, -middle,
                        most - middle);
    return CODA_OK;
}

static void put_minimum(const struct pack_source *s, struct pack_tile *t, int r, int g, int64_t from)
{
    int size = pack_scale_bytes(s->f);
    memcpy(t->s[r].second + g * size, (const uint8_t *)s->file->zeros + from * size, (size_t)size);
}

static coda_status fetch_codes(const struct pack_source *s, struct pack_tile *t)
{
    const coda_pack_source *f = s->file;
    coda_status status = CODA_OK;
    for (int r = 0; r < t->rows && status == CODA_OK; r++) {
        int64_t row = source_row(s, t->row + r);
        memcpy(t->q[r], (const uint8_t *)f->codes + row * f->columns + t->k, (size_t)t->n);
        for (int g = 0; g < t->groups; g++) {
            int64_t group = source_group(s, t, g), own = row * s->groups + group;
            source_put_scale(s, &t->s[r], g, row / MAX(f->block_rows, 1) * s->groups + group);
            if (s->f->zeros == CODA_ZEROS_MINIMUM) put_minimum(s, t, r, g, own);
            if (s->f->zeros == CODA_ZEROS_POINTS) t->s[r].second[g] = ((const uint8_t *)f->zeros)[own];
            if (s->f->zeros == CODA_ZEROS_POINTS && s->bits == 4 && t->s[r].second[g] > 15)
                return fail(CODA_E_INVALID,
                            "pack: the zero point of row %lld, group %lld is %d; %s has 0..15",
                            (long long)(t->row + r), (long long)group, t->s[r].second[g], pack_word(s->f).s);
        }
        status = number_codes(s, t, r);
    }
    return status;
}

const struct pack_layout layout_codes = {"CODA_PACK_CODES", check_codes, fetch_codes};

/* ---- Two codes a byte ---- */

static coda_status check_nibbles(const struct pack_source *s)
{
    const coda_pack_source *f = s->file;
    if (s->f->codes != CODA_CODES_E2M1) return source_refuse_format(s, "e2m1");
    coda_status status = source_in_order(s);
    if (status == CODA_OK) status = source_divides(s, "columns", f->columns, 2);
    if (status == CODA_OK && s->f->group) status = source_divides(s, "columns", f->columns, s->f->group);
    if (status != CODA_OK) return status;
    return source_bytes(s, f->rows * (f->columns / 2), f->rows * s->groups * source_scale_bytes(s), 0);
}

static coda_status fetch_nibbles(const struct pack_source *s, struct pack_tile *t)
{
    for (int r = 0; r < t->rows; r++) {
        int64_t row = source_row(s, t->row + r);
        const uint8_t *from = (const uint8_t *)s->file->codes + row * (s->file->columns / 2) + t->k / 2;
        int odd = (int)(t->k % 2);
        if (odd) t->q[r][0] = from[0] >> 4;
        source_nibbles(from + odd, t->n - odd, t->q[r] + odd);
        for (int g = 0; g < t->groups; g++)
            source_put_scale(s, &t->s[r], g, row * s->groups + source_group(s, t, g));
    }
    return CODA_OK;
}

const struct pack_layout layout_nibbles = {"CODA_PACK_NIBBLES", check_nibbles, fetch_nibbles};
