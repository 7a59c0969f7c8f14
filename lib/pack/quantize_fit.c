/*
 * quantize_fit.c -- scales and minima for groups of weights, and for blocks of such groups.
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
#include "quantize_fit.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { STARTS = 10, TURNS = 4 };

/* ---- One group ---- */

void fit_round(const struct grid *g, const float *x, struct fit *f)
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

void fit_group(const struct grid *g, const float *x, bool search, struct fit *best)
{
    *best = begin(g, x, 1);
    fit_round(g, x, best);
    for (int start = 0; start < STARTS && search; start++) {
        struct fit f = begin(g, x, 1.05 - 0.05 * start);
        fit_round(g, x, &f);
        for (int turn = 0; turn < TURNS; turn++) {
            struct fit next = f;
            fit_scale(g, x, &next);
            fit_round(g, x, &next);
            if (next.lost >= f.lost) break;
            f = next;
        }
        if (f.lost < best->lost) *best = f;
    }
}

/* ---- Scales of two levels ---- */

double fit_as_f16(double x, uint16_t *bits)
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
    double d = fit_as_f16(far / end, bits), best = divide(s, h, n, d, least, most, a);
    for (int i = 0; i < STARTS && search; i++) {
        double e = fit_as_f16(far / (end - (end < 0 ? -1 : 1) * (i - 1)), &other);
        for (int turn = 0; turn < 2; turn++) {
            double lost = divide(s, h, n, e, least, most, b);
            if (lost < best && isfinite(e)) {
                best = lost, d = e, *bits = other;
                memcpy(a, b, (size_t)n);
            }
            e = fit_as_f16(fit_divisor(s, h, n, b), &other);
        }
    }
    return d;
}

/* ---- Blocks of 256 weights ---- */

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
                fit_round(g, x + i * g->n, &f);
                if (f.lost >= best.lost) continue;
                best = f;
                out->a[i] = (int8_t)a, out->b[i] = (int8_t)b;
            }
        memcpy(out->q + i * g->n, best.q, (size_t)g->n);
    }
}

bool fit_block(const struct grid *g, const float *x, bool search, struct block *out)
{
    double s[GROUPS_MOST], h[GROUPS_MOST], m[GROUPS_MOST], n[GROUPS_MOST];
    int groups = BLOCK / g->n;
    for (int i = 0; i < groups; i++) {
        struct fit f;
        fit_group(g, x + i * g->n, search, &f);
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
