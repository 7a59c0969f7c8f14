/* pack_rows.c -- packs rows of a matrix, whatever file it comes from: a tile of 16 rows x a step at a time,
 * which is checked, filled up with zeros, and put into its record. */
#include "source.h"

#include <string.h>

static const struct pack_layout *const layouts[] = {
    [CODA_PACK_CODES] = &layout_codes,     [CODA_PACK_NIBBLES] = &layout_nibbles,
    [CODA_PACK_GPTQ] = &layout_gptq,       [CODA_PACK_COMPRESSED_TENSORS] = &layout_compressed_tensors,
    [CODA_PACK_GPTQ_V2] = &layout_gptq_v2, [CODA_PACK_AWQ] = &layout_awq,
    [CODA_PACK_GGUF] = &layout_gguf,
};

/* ---- What a tile has ---- */

/* Whether a value is finite: its exponent is not all ones. */
static bool scale_is_finite(coda_pack_scales type, const uint8_t *s, int g)
{
    uint32_t u = 0;
    switch (type) {
    case CODA_SCALES_F32: memcpy(&u, s + 4 * g, 4); return (u & 0x7f800000) != 0x7f800000;
    case CODA_SCALES_BF16: memcpy(&u, s + 2 * g, 2); return (u & 0x7f80) != 0x7f80;
    case CODA_SCALES_F16: memcpy(&u, s + 2 * g, 2); return (u & 0x7c00) != 0x7c00;
    case CODA_SCALES_E8M0: return s[g] != 255;
    case CODA_SCALES_E4M3: return (s[g] & 127) != 127;
    default: return true;
    }
}

static coda_status not_finite(const struct pack_tile *t, int r, const char *what, int64_t group)
{
    return fail(CODA_E_INVALID, "pack: %s of row %lld, group %lld is inf or NaN", what,
                (long long)(t->row + r), (long long)group);
}

static coda_status check_scales(const struct pack_source *s, const struct pack_tile *t, int r)
{
    const struct pack_scales *own = &t->s[r];
    bool minima = s->f->zeros == CODA_ZEROS_MINIMUM && !pack_two_levels(s->f);
    for (int g = 0; g < t->groups; g++) {
        if (!scale_is_finite(s->f->scales, own->scale, g))
            return not_finite(t, r, "the scale", source_group(s, t, g));
        if (minima && !scale_is_finite(s->f->scales, own->second, g))
            return not_finite(t, r, "the minimum", source_group(s, t, g));
    }
    if (!pack_two_levels(s->f)) return CODA_OK;
    if (!scale_is_finite(CODA_SCALES_F16, (const uint8_t *)&own->d, 0))
        return not_finite(t, r, "the scale", source_group(s, t, 0));
    if (s->f->zeros && !scale_is_finite(CODA_SCALES_F16, (const uint8_t *)&own->second_d, 0))
        return not_finite(t, r, "the minimum", source_group(s, t, 0));
    return CODA_OK;
}

/* NaN of e4m3 is 0x7f and 0xff; e5m2 has inf and NaN from 0x7c on. */
static coda_status check_codes(const struct pack_source *s, const struct pack_tile *t, int r)
{
    if (s->f->codes != CODA_CODES_E4M3 && s->f->codes != CODA_CODES_E5M2) return CODA_OK;
    int least = s->f->codes == CODA_CODES_E4M3 ? 127 : 124, bad = 0;
    for (int k = 0; k < t->n; k++) bad |= (t->q[r][k] & 127) >= least;
    for (int k = 0; bad && k < t->n; k++)
        if ((t->q[r][k] & 127) >= least)
            return fail(CODA_E_INVALID, "pack: the code of row %lld, column %lld is 0x%02x, inf or NaN",
                        (long long)(t->row + r), (long long)source_column(s, t->k + k), t->q[r][k]);
    return CODA_OK;
}

/* ---- What fills up ---- */

/* Whether groups of the tile, which follow one another there, lie apart in the record. */
static bool lies_apart(const struct pack_source *s) { return pack_has_gaps(s->f) && s->p.groups > 1; }

static void move_apart(const struct pack_source *s, struct pack_tile *t, int r)
{
    int group = s->f->group;
    for (int g = t->groups - 1; g > 0; g--)
        memmove(t->q[r] + g * s->p.group, t->q[r] + g * group, (size_t)MIN(group, t->n - g * group));
}

static bool is_filled(const struct pack_source *s, const struct pack_tile *t, int k)
{
    if (!lies_apart(s)) return k < t->n;
    int in = k % s->p.group;
    return in < s->f->group && k / s->p.group * s->f->group + in < t->n;
}

/* Codes of the value 0 behind the columns, and in gaps; groups that begin there have scales of 0. */
static void fill_row(const struct pack_source *s, struct pack_tile *t, int r)
{
    int size = pack_scale_bytes(s->f), second = s->f->zeros == CODA_ZEROS_POINTS ? 1 : size;
    for (int g = t->groups; g < s->p.groups; g++) {
        memset(t->s[r].scale + g * size, 0, (size_t)size);
        memset(t->s[r].second + g * second, 0, (size_t)second);
    }
    for (int k = lies_apart(s) ? 0 : t->n, g; k < s->p.step; k++) {
        if (is_filled(s, t, k)) continue;
        g = k / s->p.group;
        t->q[r][k] = s->f->zeros == CODA_ZEROS_POINTS ? t->s[r].second[g] : (uint8_t)pack_middle(s->f);
    }
}

static void empty_row(const struct pack_source *s, struct pack_tile *t, int r)
{
    memset(&t->s[r], 0, sizeof t->s[r]);
    memset(t->q[r], pack_middle(s->f), (size_t)s->p.step);
}

static coda_status pack_tile(const struct pack_source *s, struct pack_tile *t, uint8_t *record)
{
    coda_status status = layouts[s->file->kind]->fetch(s, t);
    for (int r = 0; r < t->rows && status == CODA_OK; r++) {
        status = check_scales(s, t, r);
        if (status == CODA_OK) status = check_codes(s, t, r);
        if (lies_apart(s)) move_apart(s, t, r);
        if (t->n < s->p.step) fill_row(s, t, r);
    }
    if (status != CODA_OK) return status;
    for (int r = t->rows; r < PACK_ROWS; r++) empty_row(s, t, r);
    for (int r = 0; r < PACK_ROWS; r++) {
        pack_put_codes(&s->p, s->f->codes, record, r, t->q[r]);
        pack_put_scales(s->f, &s->p, record, r, &t->s[r]);
    }
    return CODA_OK;
}

/* ---- The whole ---- */

static coda_status check_shape(const coda_pack_source *f)
{
    if (f->kind < 1 || f->kind >= ARRAY_SIZE(layouts))
        return fail(CODA_E_INVALID, "pack: kind is %d; must be 1..%d", (int)f->kind, ARRAY_SIZE(layouts) - 1);
    if (f->rows < 1 || f->columns < 1 || f->rows > INT32_MAX || f->columns > INT32_MAX)
        return fail(CODA_E_INVALID, "pack: the source is %lld x %lld; must be 1..2^31 - 1 each",
                    (long long)f->rows, (long long)f->columns);
    if (f->block_rows < 0 || (f->block_rows > 1 && f->kind != CODA_PACK_CODES))
        return fail(CODA_E_INVALID,
                    "pack: block_rows is %d; must be at least 1, and is for CODA_PACK_CODES alone",
                    f->block_rows);
    return CODA_OK;
}

/* A scale of the file's type is one of the format's, exactly. */
static coda_status check_scale_type(const struct pack_source *s)
{
    coda_pack_scales type = s->file->scale_type, own = s->f->scales;
    bool wider = own == CODA_SCALES_F32 && (type == CODA_SCALES_BF16 || type == CODA_SCALES_F16);
    if (!type || type == own || (wider && s->f->zeros != CODA_ZEROS_MINIMUM)) return CODA_OK;
    return fail(CODA_E_INVALID, "pack: scale_type is %d, of %s; must be the format's, or bf16 or f16 of f32",
                (int)type, pack_word(s->f).s);
}

/* The group that the file gives to a column. compressed-tensors says -1 in all of g_idx for none. */
static int64_t group_of(const struct pack_source *s, int64_t k)
{
    const int32_t *g_idx = s->file->g_idx;
    return g_idx && (g_idx[0] != -1 || g_idx[k] != -1) ? g_idx[k] : k / s->group;
}

/* Columns by group, each group's in order: so a permutation, too. */
static coda_status check_columns(const struct pack_source *s)
{
    const int32_t *order = s->file->column_order;
    for (int64_t i = 0; i < s->file->columns && (order || s->file->g_idx); i++) {
        int64_t k = source_column(s, i), group = i / s->group;
        bool same = i > 0 && (i - 1) / s->group == group;
        if (k < 0 || k >= s->file->columns || (same && order && k <= order[i - 1]))
            return fail(CODA_E_INVALID, "pack: column_order[%lld] is %lld; it is what coda_pack_order makes",
                        (long long)i, (long long)k);
        if (group_of(s, k) == group) continue;
        return fail(CODA_E_INVALID, "pack: g_idx[%lld] is %lld, not %lld%s", (long long)k,
                    (long long)group_of(s, k), (long long)group,
                    order ? ", as its place in column_order" : "; see coda_pack_order");
    }
    return CODA_OK;
}

static coda_status check_rows(const struct pack_source *s, int64_t first, int64_t rows)
{
    int64_t all = s->file->rows;
    if (first < 0 || rows < 0 || first > all || rows > all - first || first % PACK_ROWS ||
        (rows % PACK_ROWS && first + rows != all))
        return fail(CODA_E_INVALID,
                    "pack: rows %lld and %lld more of %lld; must be multiples of 16, or end there",
                    (long long)first, (long long)rows, (long long)all);
    for (int64_t i = first; i < first + rows && s->file->row_order; i++)
        if (s->file->row_order[i] < 0 || s->file->row_order[i] >= all)
            return fail(CODA_E_INVALID, "pack: row_order[%lld] is %d of %lld rows", (long long)i,
                        s->file->row_order[i], (long long)all);
    return CODA_OK;
}

static coda_status begin(struct pack_source *s, const struct pack_format *f, const coda_pack_source *file)
{
    coda_status status = check_shape(file);
    if (status != CODA_OK) return status;
    *s = (struct pack_source){.f = f, .p = pack_record(f), .file = file, .name = layouts[file->kind]->name};
    s->group = f->group ? f->group : file->columns;
    s->groups = ceil_div(file->columns, s->group);
    s->bits = s->p.bits;
    s->middle = (uint8_t)(s->bits == 8 ? 0 : 1 << (s->bits - 1));
    status = check_scale_type(s);
    return status == CODA_OK ? layouts[file->kind]->check(s) : status;
}

/* The columns that the record beginning with column k has. */
static int columns_of(const struct pack_source *s, int64_t k)
{
    int64_t n = s->p.step, left = s->file->columns - k;
    if (lies_apart(s)) n = s->p.groups * s->f->group;
    else if (pack_has_gaps(s->f)) n = MIN(n, s->f->group - k % s->f->group);
    return (int)MIN(n, left);
}

coda_status pack_rows(const struct pack_format *f, const coda_pack_source *file, int64_t first, int64_t rows,
                      void *out)
{
    struct pack_source s;
    struct pack_tile t;
    uint8_t *record = out;
    coda_status status = begin(&s, f, file);
    if (status == CODA_OK) status = check_columns(&s);
    if (status == CODA_OK) status = check_rows(&s, first, rows);
    for (t.row = first; status == CODA_OK && t.row < first + rows; t.row += PACK_ROWS)
        for (t.k = 0; t.k < file->columns && status == CODA_OK; t.k += t.n, record += s.p.bytes) {
            t.rows = (int)MIN(PACK_ROWS, first + rows - t.row);
            t.n = columns_of(&s, t.k);
            t.groups = CEIL_DIV(t.n, lies_apart(&s) ? f->group : s.p.group);
            status = pack_tile(&s, &t, record);
        }
    return status;
}
