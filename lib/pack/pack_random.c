/* pack_random.c -- random packed weights, for tuning and tests: codes of all values but NaN and infinity,
 * scales that are finite and no 0. */
#include "pack.h"

#include <math.h>
#include <string.h>

/* Root mean squares of codes that are drawn alike. */
static double code_rms(coda_pack_codes codes)
{
    switch (codes) {
    case CODA_CODES_INT4: return 4.6;
    case CODA_CODES_INT5: return 9.2;
    case CODA_CODES_INT6: return 18.5;
    case CODA_CODES_INT8: return 74;
    case CODA_CODES_E2M1: return 2.9;
    case CODA_CODES_E4M3: return 130;
    default: return 13000;
    }
}

static uint32_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* Within a factor of 2 around x. */
static double near(uint64_t *seed, double x) { return x * exp2(draw(seed) * 0x1p-31 - 0.5); }

static uint8_t draw_code(const struct pack_format *f, const struct pack_record *p, uint64_t *seed)
{
    uint8_t q;
    do {
        q = (uint8_t)(draw(seed) & ((1u << p->bits) - 1));
    } while (!isfinite(pack_code_value(f->codes, q)));
    return q;
}

/* As many bytes as the type has, of a number that it has not as 0. */
static void put_scale(const struct pack_format *f, uint8_t *to, int g, double x)
{
    switch (f->scales) {
    case CODA_SCALES_F32: dtype_store(CODA_F32, to, g, x); break;
    case CODA_SCALES_BF16: dtype_store(CODA_BF16, to, g, x); break;
    case CODA_SCALES_F16: dtype_store(CODA_F16, to, g, copysign(fmax(fabs(x), 0x1p-20), x)); break;
    case CODA_SCALES_E8M0: to[g] = (uint8_t)fmax(1, fmin(254, 127 + rint(log2(x)))); break;
    default: dtype_store(CODA_F8E4M3, to, g, fmax(x, 0x1p-9)); break;
    }
}

static void draw_two_levels(const struct pack_format *f, double unit, struct pack_scales *s, uint64_t *seed)
{
    dtype_store(CODA_F16, &s->d, 0, near(seed, unit / 32));
    dtype_store(CODA_F16, &s->second_d, 0, -near(seed, unit / 4));
    for (int g = 0; g < PACK_GROUPS_MOST; g++) {
        s->scale[g] = (uint8_t)(f->scales == CODA_SCALES_F16_I8 ? draw(seed) & 255 : draw(seed) & 63);
        s->second[g] = (uint8_t)(draw(seed) & 63);
    }
}

static void draw_scales(const struct pack_format *f, const struct pack_record *p, double unit,
                        struct pack_scales *s, uint64_t *seed)
{
    memset(s, 0, sizeof *s);
    if (pack_two_levels(f)) {
        draw_two_levels(f, unit, s, seed);
        return;
    }
    for (int g = 0; g < p->groups; g++) {
        double scale = near(seed, unit);
        put_scale(f, s->scale, g, scale);
        if (f->zeros == CODA_ZEROS_MINIMUM) put_scale(f, s->second, g, -code_rms(f->codes) * scale);
        if (f->zeros == CODA_ZEROS_POINTS) s->second[g] = draw_code(f, p, seed);
    }
}

/* What fills up columns is 0 where codes can be; what fills up rows has scales of 0. */
static void draw_row(const struct pack_format *f, const struct pack_record *p, int r, int64_t places,
                     double unit, uint8_t *record, uint64_t *seed)
{
    uint8_t q[PACK_STEP_MOST];
    struct pack_scales s;
    for (int k = 0; k < p->step; k++) q[k] = k < places ? draw_code(f, p, seed) : (uint8_t)pack_middle(f);
    draw_scales(f, p, unit, &s, seed);
    pack_put_codes(p, f->codes, record, r, q);
    pack_put_scales(f, p, record, r, &s);
}

/* All records of a row have one scale, or all of a group. */
static void share_scales(const struct pack_format *f, const struct pack_record *p, int64_t records, int r,
                         uint8_t *block)
{
    struct pack_scales s;
    int64_t each = f->group ? pack_group(f) / p->step : records;
    for (int64_t i = 0; i < records && each > 1; i++) {
        if (i % each == 0) pack_get_scales(f, p, block + i * p->bytes, r, &s);
        pack_put_scales(f, p, block + i * p->bytes, r, &s);
    }
}

void pack_random(const struct pack_format *f, int64_t rows, int64_t columns, double rms, uint64_t seed,
                 uint8_t *out)
{
    struct pack_record p = pack_record(f);
    int64_t records = pack_records(f, columns), places = pack_place(f, columns - 1) + 1;
    memset(out, 0, (size_t)pack_bytes(f, rows, columns));
    for (int64_t row = 0; row < rows; row++) {
        uint8_t *block = out + row / PACK_ROWS * records * p.bytes;
        int r = (int)(row % PACK_ROWS);
        for (int64_t i = 0; i < records; i++)
            draw_row(f, &p, r, places - i * p.step, rms / code_rms(f->codes), block + i * p.bytes, &seed);
        share_scales(f, &p, records, r, block);
    }
}
