/* pack_format.c -- which formats there are, their sizes and their words. */
#include "near.h"
#include "pack.h"

#include <stdlib.h>
#include <string.h>

enum code_class { NO_CODES, INTEGER, FLOATING };
enum { LEAST_GROUP = 8, MOST_GROUP = INT32_MAX / 128 * 128 };

static const struct codes {
    const char *name;
    int bits;
    enum code_class class;
} codes_of[] = {
#define PACK_CODES(NAME, name, bits, class) [CODA_CODES_##NAME] = {#name, bits, class},
#include "formats.def"
};

static const struct scales {
    const char *name;
    int bytes, levels;
} scales_of[] = {
#define PACK_SCALES(NAME, name, bytes, levels) [CODA_SCALES_##NAME] = {#name, bytes, levels},
#include "formats.def"
};

static const struct named {
    const char *name;
    struct pack_format format;
    bool own;
} named[] = {
#define PACK_FORMAT(name, codes, group, scales, zeros, own)                                                  \
    {#name, {CODA_CODES_##codes, CODA_SCALES_##scales, CODA_ZEROS_##zeros, group}, own},
#include "formats.def"
};

static const char *const zeros_of[] = {"", "_zeros", "_min"};

bool pack_same(const struct pack_format *a, const struct pack_format *b)
{
    return a->codes == b->codes && a->scales == b->scales && a->zeros == b->zeros && a->group == b->group;
}

bool pack_is_integer(const struct pack_format *f) { return codes_of[f->codes].class == INTEGER; }
const char *pack_codes_name(const struct pack_format *f) { return codes_of[f->codes].name; }
const char *pack_scales_name(const struct pack_format *f) { return scales_of[f->scales].name; }
int pack_scale_bytes(const struct pack_format *f) { return scales_of[f->scales].bytes; }
bool pack_two_levels(const struct pack_format *f) { return scales_of[f->scales].levels == 2; }

static bool has_short_scales(const struct pack_format *f)
{
    return f->scales == CODA_SCALES_E8M0 || f->scales == CODA_SCALES_E4M3;
}

bool pack_fits(const struct pack_format *f, coda_dtype half)
{
    if (pack_is_integer(f) || !has_short_scales(f)) return false;
    return half == CODA_BF16 || (f->codes == CODA_CODES_E2M1 && f->scales == CODA_SCALES_E4M3);
}

int pack_middle(const struct pack_format *f)
{
    bool counts = pack_is_integer(f) && f->codes != CODA_CODES_INT8 && f->zeros == CODA_ZEROS_NONE;
    return counts ? 1 << (codes_of[f->codes].bits - 1) : 0;
}

/* ---- Checks ---- */

static coda_status check_fields(const struct pack_format *f)
{
    if (f->codes < 1 || f->codes >= ARRAY_SIZE(codes_of))
        return fail(CODA_E_INVALID, "packed format: codes is %d; must be 1..%d", (int)f->codes,
                    ARRAY_SIZE(codes_of) - 1);
    if (f->scales < 1 || f->scales >= ARRAY_SIZE(scales_of))
        return fail(CODA_E_INVALID, "packed format: scales is %d; must be 1..%d", (int)f->scales,
                    ARRAY_SIZE(scales_of) - 1);
    if (f->zeros < 0 || f->zeros >= ARRAY_SIZE(zeros_of))
        return fail(CODA_E_INVALID, "packed format: zeros is %d; must be 0..%d", (int)f->zeros,
                    ARRAY_SIZE(zeros_of) - 1);
    if (f->group == 0 || (f->group >= LEAST_GROUP && f->group <= MOST_GROUP)) return CODA_OK;
    return fail(CODA_E_INVALID, "packed format: group is %d; must be %d..%d, or 0 for the whole row",
                f->group, LEAST_GROUP, MOST_GROUP);
}

static coda_status check_two_levels(const struct pack_format *f)
{
    if (!pack_two_levels(f)) return CODA_OK;
    for (int i = 0; i < ARRAY_SIZE(named); i++)
        if (pack_same(f, &named[i].format)) return CODA_OK;
    return fail(CODA_E_INVALID,
                "packed format: scales %s are those of q4_k, q5_k and q6_k, not of %s in groups of %d",
                scales_of[f->scales].name, codes_of[f->codes].name, f->group);
}

static coda_status check_zeros(const struct pack_format *f)
{
    bool sixteen = f->scales == CODA_SCALES_F16 || f->scales == CODA_SCALES_BF16;
    if (f->zeros == CODA_ZEROS_POINTS && f->codes != CODA_CODES_INT4 && f->codes != CODA_CODES_INT8)
        return fail(CODA_E_INVALID, "packed format: %s codes with zero points; int4 and int8 have them",
                    codes_of[f->codes].name);
    if (f->zeros == CODA_ZEROS_MINIMUM && f->codes != CODA_CODES_INT4 && f->codes != CODA_CODES_INT5)
        return fail(CODA_E_INVALID, "packed format: %s codes with minima; int4 and int5 have them",
                    codes_of[f->codes].name);
    if (f->zeros == CODA_ZEROS_MINIMUM && !sixteen && !pack_two_levels(f))
        return fail(CODA_E_INVALID, "packed format: minima of %s; must be f16 or bf16",
                    scales_of[f->scales].name);
    return CODA_OK;
}

coda_status pack_check(const struct pack_format *f)
{
    coda_status s = check_fields(f);
    if (s == CODA_OK) s = check_two_levels(f);
    if (s == CODA_OK) s = check_zeros(f);
    if (s == CODA_OK && has_short_scales(f) && pack_is_integer(f))
        s = fail(CODA_E_INVALID, "packed format: %s codes with scales of %s; must be f32, bf16 or f16",
                 codes_of[f->codes].name, scales_of[f->scales].name);
    return s;
}

/* ---- Groups ---- */

int64_t pack_group(const struct pack_format *f)
{
    int g = f->group;
    return g > 64 ? CEIL_DIV(g, 128) * (int64_t)128 : g > 32 ? 64 : g > 16 ? 32 : g ? 16 : 0;
}

bool pack_has_gaps(const struct pack_format *f) { return pack_group(f) != f->group; }

int64_t pack_place(const struct pack_format *f, int64_t column)
{
    if (!pack_has_gaps(f)) return column;
    return add_counts(mul_counts(column / f->group, pack_group(f)), column % f->group);
}

/* ---- Sizes ---- */

struct pack_record pack_record(const struct pack_format *f)
{
    struct pack_record p = {.bits = codes_of[f->codes].bits};
    int group = (int)pack_group(f);
    bool wide = group == 0 || group >= 128;
    p.tile = p.bits == 8 ? 64 : 128;
    p.step = pack_two_levels(f) ? 256 : wide ? 128 : p.tile;
    p.tiles = p.step / p.tile;
    p.group = wide ? p.step : group;
    p.groups = p.step / p.group;
    p.high = 1024 * p.tiles;
    p.scales = p.high + (p.bits & 3) * p.step * PACK_ROWS / 8;
    int one = pack_scale_bytes(f) * p.groups * PACK_ROWS;
    if (pack_two_levels(f)) one = f->zeros ? 16 * PACK_ROWS : one + 2 * PACK_ROWS;
    p.second = p.scales + one;
    p.bytes = p.second;
    if (f->zeros == CODA_ZEROS_POINTS) p.bytes += p.groups * PACK_ROWS;
    if (f->zeros == CODA_ZEROS_MINIMUM && !pack_two_levels(f)) p.bytes += one;
    return p;
}

int64_t pack_records(const struct pack_format *f, int64_t columns)
{
    return columns ? pack_place(f, columns - 1) / pack_record(f).step + 1 : 0;
}

int64_t pack_bytes(const struct pack_format *f, int64_t rows, int64_t columns)
{
    int64_t blocks = rows / PACK_ROWS + (rows % PACK_ROWS > 0);
    return mul_counts(mul_counts(blocks, pack_records(f, columns)), pack_record(f).bytes);
}

/* ---- Words ---- */

struct pack_word pack_word(const struct pack_format *f)
{
    struct pack_word w;
    char group[16];
    for (int i = 0; i < ARRAY_SIZE(named); i++)
        if (named[i].own && pack_same(f, &named[i].format)) {
            format_line(w.s, sizeof w.s, "%s", named[i].name);
            return w;
        }
    format_line(group, sizeof group, f->group ? "g%d" : "row", f->group);
    format_line(w.s, sizeof w.s, "%s_%s_%s%s", codes_of[f->codes].name, group, scales_of[f->scales].name,
                zeros_of[f->zeros]);
    return w;
}

/* Whether *s goes on with `part` as a whole; then it is behind it. */
static bool takes(const char **s, const char *part)
{
    size_t n = strlen(part);
    if (strncmp(*s, part, n) != 0 || ((*s)[n] && (*s)[n] != '_')) return false;
    *s += n;
    return true;
}

static bool read_group(const char **s, int32_t *group)
{
    char digits[12] = "";
    if (takes(s, "_row")) return true;
    if (strncmp(*s, "_g", 2) != 0) return false;
    size_t n = strspn(*s + 2, "0123456789");
    if (n < 1 || n > 9 || (*s)[2] == '0') return false;
    memcpy(digits, *s + 2, n);
    *group = atoi(digits);
    *s += 2 + n;
    return true;
}

/* CODES_GROUP_SCALES or CODES_GROUP_SCALES_ZEROS. */
static bool read_parts(const char *s, struct pack_format *f)
{
    *f = (struct pack_format){0};
    for (int i = 1; i < ARRAY_SIZE(codes_of) && !f->codes; i++)
        if (takes(&s, codes_of[i].name)) f->codes = (coda_pack_codes)i;
    if (!f->codes || !read_group(&s, &f->group) || *s++ != '_') return false;
    for (int i = 1; i < ARRAY_SIZE(scales_of) && !f->scales; i++)
        if (takes(&s, scales_of[i].name)) f->scales = (coda_pack_scales)i;
    for (int i = 1; i < ARRAY_SIZE(zeros_of) && !f->zeros; i++)
        if (takes(&s, zeros_of[i])) f->zeros = (coda_pack_zeros)i;
    return f->scales && !*s;
}

coda_status pack_find(const char *word, struct pack_format *out)
{
    struct near near = {.word = word};
    struct pack_format f;
    for (int i = 0; i < ARRAY_SIZE(named); i++) {
        near_try(&near, named[i].name);
        if (strcmp(word, named[i].name) != 0) continue;
        *out = named[i].format;
        return CODA_OK;
    }
    if (read_parts(word, &f)) {
        coda_status s = pack_check(&f);
        if (s == CODA_OK) *out = f;
        return s;
    }
    return fail(CODA_E_INVALID, "no packed format is called \"%.40s\"; do you mean %s?", word,
                near.best ? near.best : "one like int4_g128_f16");
}
