/*
 * quantize_blocks.c -- weights of 16 and 32 bits as blocks of GGUF, and as MXFP4.
 *
 * A group of n weights x becomes integers q, w = s q + m, m <= 0 or none. Without a search s and m follow
 * from the group's range, and q is the nearest. With one they are fitted: for given q the squares of
 * x - s q - m are least where
 *
 *     sum q^2 s + sum q m = sum q x,     sum q s + n m = sum x
 *
 * (without m, s = sum q x / sum q^2), for given s and m at the nearest q; both in turn, from several ranges.
 *
 * K-quants store s as d a, a of 6 or 8 bits, d of all groups of 256 weights. What a group loses if s becomes
 * d a is, for its q, sum q^2 (s - d a)^2. So d is fitted to the groups' s by weighted least squares, with
 * weights h = sum q^2: for given a it is sum h a s / sum h a^2; for given d, a is the nearest to s / d.
 * Minima likewise, with weights n. Then codes are rounded once more to what the decoder will make of d and a,
 * for a and its neighbours.
 */
#include "quantize.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 256, GROUP_MOST = 32, GROUPS_MOST = 16, STARTS = 10, TURNS = 4 };

/* What codes a group may have, and whether a minimum is added. */
enum minimum { NO_MINIMUM, ANY_MINIMUM, MINIMUM_BELOW_0 };
struct grid {
    int n, least, most; /* weights; codes */
    enum minimum minimum;
};
struct fit {
    double s, m, lost; /* lost: the sum of squares */
    int8_t q[GROUP_MOST];
};

/* ---- One group ---- */

static void round_group(const struct grid *g, const float *x, struct fit *f)
{
    double over = f->s == 0 ? 0 : 1 / f->s;
    f->lost = 0;
    for (int i = 0; i < g->n; i++) {
        double q = rint(((double)x[i] - f->m) * over);
        q = MIN(MAX(q, g->least), g->most);
        f->q[i] = (int8_t)q;
        double d = (double)x[i] - (f->s * q + f->m);
        f->lost += d * d;
    }
}

/* The scale and the minimum that lose least with the codes that there are. */
static void fit_scale(const struct grid *g, const float *x, struct fit *f)
{
    double qq = 0, q1 = 0, qx = 0, x1 = 0, n = g->n;
    for (int i = 0; i < g->n; i++) {
        qq += f->q[i] * f->q[i], q1 += f->q[i];
        qx += f->q[i] * (double)x[i], x1 += (double)x[i];
    }
    double area = n * qq - q1 * q1, s = area > 0 ? (n * qx - q1 * x1) / area : 0, m = (x1 - s * q1) / n;
    bool both = g->minimum && area > 0 && (g->minimum == ANY_MINIMUM || m <= 0);
    if (!both && qq == 0) return;
    f->s = both ? s : qx / qq;
    f->m = both ? m : 0;
}

/* By so much of the range: the largest has the code that is farthest from 0. */
static struct fit begin(const struct grid *g, const float *x, double part)
{
    float low = 0, high = 0;
    if (g->minimum == ANY_MINIMUM) low = high = x[0];
    for (int i = 0; i < g->n; i++) low = MIN(low, x[i]), high = MAX(high, x[i]);
    if (g->minimum) return (struct fit){.s = ((double)high - (double)low) * part / g->most, .m = low * part};
    double far = high > -low ? (double)high : (double)low;
    if (g->least < -64) return (struct fit){.s = fabs(far) * part / g->most}; /* of 8 bits both ends serve */
    return (struct fit){.s = far * part / g->least};
}

static void find_fit(const struct grid *g, const float *x, bool search, struct fit *best)
{
    *best = begin(g, x, 1);
    round_group(g, x, best);
    for (int start = 0; start < STARTS && search; start++) {
        struct fit f = begin(g, x, 1.05 - 0.05 * start);
        round_group(g, x, &f);
        for (int turn = 0; turn < TURNS; turn++) {
            struct fit next = f;
            fit_scale(g, x, &next);
            round_group(g, x, &next);
            if (next.lost >= f.lost) break;
            f = next;
        }
        if (f.lost < best->lost) *best = f;
    }
}

/* ---- Scales of two levels ---- */

static double as_f16(double x, uint16_t *bits)
{
    dtype_store(CODA_F16, bits, 0, x);
    return dtype_load(CODA_F16, bits, 0);
}

/* Numbers s of groups as d a, a from `least` to `most`: what is lost, weighted by h. */
static double divide(const double *s, const double *h, int n, double d, int least, int most, int8_t *a)
{
    double lost = 0;
    for (int i = 0; i < n; i++) {
        double near = d == 0 ? 0 : rint(s[i] / d);
        a[i] = (int8_t)MIN(MAX(near, least), most);
        lost += h[i] * (s[i] - d * a[i]) * (s[i] - d * a[i]);
    }
    return lost;
}

static double fit_divisor(const double *s, const double *h, int n, const int8_t *a)
{
    double as = 0, aa = 0;
    for (int i = 0; i < n; i++) as += h[i] * a[i] * s[i], aa += h[i] * a[i] * a[i];
    return aa > 0 ? as / aa : 0;
}

/* The f16 d that loses least; a. The farthest s has the last number, or one near it. */
static double find_divisor(const double *s, const double *h, int n, int least, int most, bool search,
                           int8_t *a, uint16_t *bits)
{
    double far = 0;
    uint16_t other;
    int8_t b[GROUPS_MOST];
    for (int i = 0; i < n; i++)
        if (fabs(s[i]) > fabs(far)) far = s[i];
    int end = least < 0 ? least : most;
    double d = as_f16(far / end, bits), best = divide(s, h, n, d, least, most, a);
    for (int i = 0; i < STARTS && search; i++) {
        double e = as_f16(far / (end - (end < 0 ? -1 : 1) * (i - 1)), &other);
        for (int turn = 0; turn < 2; turn++) {
            double lost = divide(s, h, n, e, least, most, b);
            if (lost < best && isfinite(e)) {
                best = lost, d = e, *bits = other;
                memcpy(a, b, (size_t)n);
            }
            e = as_f16(fit_divisor(s, h, n, b), &other);
        }
    }
    return d;
}

/* ---- K-quants: 256 weights ---- */

struct block {
    uint16_t d, second_d; /* f16 */
    int8_t a[GROUPS_MOST], b[GROUPS_MOST];
    int8_t q[BLOCK];
};

/* Codes for what the decoder makes of a and b: of these, or of their neighbours, those that lose least. */
static void round_block(const struct grid *g, const float *x, double d, double second, bool search,
                        struct block *out)
{
    int ends[] = {g->minimum ? 0 : -128, g->minimum ? 63 : 127};
    for (int i = 0; i < BLOCK / g->n; i++) {
        struct fit best = {.lost = DBL_MAX};
        int a0 = out->a[i], b0 = out->b[i], near = search ? 1 : 0, beside = g->minimum ? near : 0;
        for (int a = MAX(a0 - near, ends[0]); a <= MIN(a0 + near, ends[1]); a++)
            for (int b = MAX(b0 - beside, 0); b <= MIN(b0 + beside, 63); b++) {
                struct fit f = {.s = (double)(float)(d * a),
                                .m = g->minimum ? -(double)(float)(second * b) : 0};
                round_group(g, x + i * g->n, &f);
                if (f.lost >= best.lost) continue;
                best = f;
                out->a[i] = (int8_t)a, out->b[i] = (int8_t)b;
            }
        memcpy(out->q + i * g->n, best.q, (size_t)g->n);
    }
}

static bool fit_block(const struct grid *g, const float *x, bool search, struct block *out)
{
    double s[GROUPS_MOST], h[GROUPS_MOST], m[GROUPS_MOST], n[GROUPS_MOST];
    int groups = BLOCK / g->n;
    for (int i = 0; i < groups; i++) {
        struct fit f;
        find_fit(g, x + i * g->n, search, &f);
        s[i] = f.s, m[i] = -f.m, h[i] = 0, n[i] = g->n;
        for (int k = 0; k < g->n; k++) h[i] += f.q[k] * f.q[k];
    }
    int least = g->minimum ? 0 : -128, most = g->minimum ? 63 : 127;
    double d = find_divisor(s, h, groups, least, most, search, out->a, &out->d), second = 0;
    if (g->minimum) second = find_divisor(m, n, groups, 0, 63, search, out->b, &out->second_d);
    if (!isfinite(d) || !isfinite(second)) return false;
    round_block(g, x, d, second, search, out);
    return true;
}

/* ---- Blocks, as source_gguf.c reads them ---- */

/* Lower halves, then upper ones. */
static void put_halves(uint8_t *b, int n, const uint8_t *q)
{
    for (int i = 0; i < n; i++) b[i] = (uint8_t)((q[i] & 15) | (q[n + i] & 15) << 4);
}

static void put_k_scales(const struct block *k, uint8_t *b)
{
    for (int i = 0; i < 4; i++) {
        uint8_t a = (uint8_t)k->a[4 + i], c = (uint8_t)k->b[4 + i];
        b[i] = (uint8_t)(k->a[i] | (a >> 4) << 6);
        b[4 + i] = (uint8_t)(k->b[i] | (c >> 4) << 6);
        b[8 + i] = (uint8_t)((a & 15) | (c & 15) << 4);
    }
}

static void put_k_head(const struct block *k, uint8_t *b)
{
    memcpy(b, &k->d, 2);
    memcpy(b + 2, &k->second_d, 2);
    put_k_scales(k, b + 4);
}

static bool put_q4_k(const float *x, bool search, uint8_t *b)
{
    struct block k = {0};
    if (!fit_block(&(struct grid){32, 0, 15, MINIMUM_BELOW_0}, x, search, &k)) return false;
    put_k_head(&k, b);
    for (int i = 0; i < 4; i++) put_halves(b + 16 + 32 * i, 32, (const uint8_t *)k.q + 64 * i);
    return true;
}

static bool put_q5_k(const float *x, bool search, uint8_t *b)
{
    struct block k = {0};
    if (!fit_block(&(struct grid){32, 0, 31, MINIMUM_BELOW_0}, x, search, &k)) return false;
    put_k_head(&k, b);
    memset(b + 16, 0, 32);
    for (int i = 0; i < 4; i++) put_halves(b + 48 + 32 * i, 32, (const uint8_t *)k.q + 64 * i);
    for (int i = 0; i < BLOCK; i++) b[16 + i % 32] |= (uint8_t)((k.q[i] >> 4 & 1) << i / 32);
    return true;
}

static bool put_q6_k(const float *x, bool search, uint8_t *b)
{
    struct block k = {0};
    uint8_t q[BLOCK];
    if (!fit_block(&(struct grid){16, -32, 31, NO_MINIMUM}, x, search, &k)) return false;
    for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)(k.q[i] + 32);
    memset(b + 128, 0, 64);
    for (int h = 0; h < 2; h++) put_halves(b + 64 * h, 64, q + 128 * h);
    for (int i = 0; i < BLOCK; i++)
        b[128 + i / 128 * 32 + i % 32] |= (uint8_t)(q[i] >> 4 << i % 128 / 32 * 2);
    memcpy(b + 192, k.a, 16);
    memcpy(b + 208, &k.d, 2);
    return true;
}

/* A scale, perhaps a minimum, both f16; codes for what they are then. */
static bool fit_f16(const struct grid *g, const float *x, bool search, struct fit *f, uint8_t *b)
{
    uint16_t s, m = 0;
    find_fit(g, x, search, f);
    f->s = as_f16(f->s, &s);
    if (g->minimum) f->m = as_f16(f->m, &m);
    memcpy(b, &s, 2);
    if (g->minimum) memcpy(b + 2, &m, 2);
    if (!isfinite(f->s) || !isfinite(f->m)) return false;
    round_group(g, x, f);
    return true;
}

static bool put_q8_0(const float *x, bool search, uint8_t *b)
{
    struct fit f;
    if (!fit_f16(&(struct grid){32, -128, 127, NO_MINIMUM}, x, search, &f, b)) return false;
    memcpy(b + 2, f.q, 32);
    return true;
}

static bool put_4_bits(const struct grid *g, const float *x, bool search, uint8_t *b)
{
    struct fit f;
    uint8_t q[32];
    if (!fit_f16(g, x, search, &f, b)) return false;
    for (int i = 0; i < 32; i++) q[i] = (uint8_t)(f.q[i] - g->least);
    put_halves(b + (g->minimum ? 4 : 2), 16, q);
    return true;
}

static bool put_5_bits(const struct grid *g, const float *x, bool search, uint8_t *b)
{
    struct fit f;
    uint8_t q[32];
    uint32_t fifth = 0;
    int head = g->minimum ? 4 : 2;
    if (!fit_f16(g, x, search, &f, b)) return false;
    for (int i = 0; i < 32; i++) {
        q[i] = (uint8_t)(f.q[i] - g->least);
        fifth |= (uint32_t)(q[i] >> 4) << i;
    }
    memcpy(b + head, &fifth, 4);
    put_halves(b + head + 4, 16, q);
    return true;
}

static bool put_q4_0(const float *x, bool search, uint8_t *b)
{
    return put_4_bits(&(struct grid){32, -8, 7, NO_MINIMUM}, x, search, b);
}
static bool put_q4_1(const float *x, bool search, uint8_t *b)
{
    return put_4_bits(&(struct grid){32, 0, 15, ANY_MINIMUM}, x, search, b);
}
static bool put_q5_0(const float *x, bool search, uint8_t *b)
{
    return put_5_bits(&(struct grid){32, -16, 15, NO_MINIMUM}, x, search, b);
}
static bool put_q5_1(const float *x, bool search, uint8_t *b)
{
    return put_5_bits(&(struct grid){32, 0, 31, ANY_MINIMUM}, x, search, b);
}

/* ---- MXFP4 ---- */

/* The nearest of e2m1, ties to the code that is even. */
static uint8_t e2m1_of(double x)
{
    static const double middle[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5}; /* between codes i and i + 1 */
    double a = fabs(x);
    uint8_t q = 0;
    while (q < 7 && (a > middle[q] || (a == middle[q] && q % 2))) q++;
    return q | (signbit(x) ? 8 : 0);
}

static double round_e2m1(const float *x, int exponent, uint8_t *q)
{
    double lost = 0;
    for (int i = 0; i < 32; i++) {
        q[i] = e2m1_of(ldexp((double)x[i], -exponent));
        double d = (double)x[i] - ldexp((double)pack_code_value(CODA_CODES_E2M1, q[i]), exponent);
        lost += d * d;
    }
    return lost;
}

/* OCP Microscaling Formats 1.0, 6.3: the exponent of the largest, less that of the largest e2m1, which is 2.
 * With a search perhaps one more, where that would cut off what is above 6. */
static uint8_t fit_mxfp4(const float *x, bool search, uint8_t *q)
{
    uint8_t other[32];
    float most = 0;
    for (int i = 0; i < 32; i++) most = MAX(most, fabsf(x[i]));
    int e = most > 0 ? MAX(ilogbf(most) - 2, -127) : 0;
    double lost = round_e2m1(x, e, q);
    if (search && round_e2m1(x, e + 1, other) < lost) {
        memcpy(q, other, sizeof other);
        e++;
    }
    return (uint8_t)(e + 127);
}

static bool put_mxfp4(const float *x, bool search, uint8_t *b)
{
    uint8_t q[32];
    b[0] = fit_mxfp4(x, search, q);
    put_halves(b + 1, 16, q);
    return true;
}

/* gpt-oss: neighbours in a byte, and scales apart. */
static void put_nibbles(const float *x, bool search, uint8_t *codes, uint8_t *scale)
{
    uint8_t q[32];
    *scale = fit_mxfp4(x, search, q);
    for (int i = 0; i < 16; i++) codes[i] = (uint8_t)(q[2 * i] | q[2 * i + 1] << 4);
}

/* ---- The whole ---- */

static const struct writer {
    struct pack_format f;
    int elements, bytes;
    bool (*put)(const float *x, bool search, uint8_t *b); /* false: a scale that f16 has not */
} writers[] = {
    {{CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, 32, 18, put_q4_0},
    {{CODA_CODES_INT4, CODA_SCALES_F16, CODA_ZEROS_MINIMUM, 32}, 32, 20, put_q4_1},
    {{CODA_CODES_INT5, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, 32, 22, put_q5_0},
    {{CODA_CODES_INT5, CODA_SCALES_F16, CODA_ZEROS_MINIMUM, 32}, 32, 24, put_q5_1},
    {{CODA_CODES_INT8, CODA_SCALES_F16, CODA_ZEROS_NONE, 32}, 32, 34, put_q8_0},
    {{CODA_CODES_INT4, CODA_SCALES_F16_U6, CODA_ZEROS_MINIMUM, 32}, 256, 144, put_q4_k},
    {{CODA_CODES_INT5, CODA_SCALES_F16_U6, CODA_ZEROS_MINIMUM, 32}, 256, 176, put_q5_k},
    {{CODA_CODES_INT6, CODA_SCALES_F16_I8, CODA_ZEROS_NONE, 16}, 256, 210, put_q6_k},
    {{CODA_CODES_E2M1, CODA_SCALES_E8M0, CODA_ZEROS_NONE, 32}, 32, 17, put_mxfp4},
};

bool quantize_takes_blocks(coda_pack_kind kind)
{
    return kind == CODA_PACK_GGUF || kind == CODA_PACK_NIBBLES;
}

static const struct writer *writer_of(const struct pack_format *f, bool nibbles)
{
    for (int i = 0; i < ARRAY_SIZE(writers); i++)
        if (pack_same(f, &writers[i].f) && (!nibbles || writers[i].put == put_mxfp4)) return &writers[i];
    return NULL;
}

static coda_status check(const struct pack_format *f, const struct quantize_weights *w,
                         const coda_quantized *out, const struct writer *to)
{
    bool nibbles = out->kind == CODA_PACK_NIBBLES;
    if (!to)
        return fail(CODA_E_INVALID, "quantize_weight: the format is %s; as %s it must be %s", pack_word(f).s,
                    nibbles ? "CODA_PACK_NIBBLES" : "CODA_PACK_GGUF",
                    nibbles ? "mxfp4" : "q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k or mxfp4");
    if (w->columns % to->elements)
        return fail(CODA_E_INVALID, "quantize_weight: %lld columns; %s has blocks of %d",
                    (long long)w->columns, pack_word(f).s, to->elements);
    return CODA_OK;
}

coda_status quantize_blocks(const struct pack_format *f, const struct quantize_weights *w,
                            const coda_quantized *out)
{
    bool nibbles = out->kind == CODA_PACK_NIBBLES;
    const struct writer *to = writer_of(f, nibbles);
    coda_status status = check(f, w, out, to);
    uint8_t *codes = out->codes, *scales = out->scales;
    float x[QUANTIZE_CHUNK];
    for (int64_t row = 0; row < w->rows && status == CODA_OK; row++)
        for (int64_t k = 0; k < w->columns && status == CODA_OK; k += to->elements) {
            quantize_load(w, row, k, to->elements, x);
            status = quantize_check_finite(x, to->elements, row, k);
            if (status != CODA_OK) break;
            if (nibbles) put_nibbles(x, out->search, codes, scales++), codes += 16;
            else if (to->put(x, out->search, codes)) codes += to->bytes;
            else
                status =
                    fail(CODA_E_INVALID,
                         "quantize_weight: the scale of row %lld, columns %lld..%lld is more than f16 has",
                         (long long)row, (long long)k, (long long)k + to->elements - 1);
        }
    return status;
}
