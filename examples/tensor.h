/*
 * tensor.h -- host tensors for the examples and the tool: random values, rounding, errors.
 *
 * Everything a program on coda.h needs around a graph's arguments, and nothing of the library's inside.
 */
#ifndef TENSOR_H
#define TENSOR_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coda.h"

/* ---- 16-bit numbers: to nearest, ties to even ---- */

static inline float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline uint16_t bf16_of_float(float f)
{
    uint32_t b = bits_of_float(f);
    if (f != f) return (uint16_t)(b >> 16 | 0x40);
    return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static inline uint16_t f16_of_float(float f)
{
    uint16_t sign = (uint16_t)(bits_of_float(f) >> 16 & 0x8000);
    float a = fabsf(f);
    if (f != f) return (uint16_t)(sign | 0x7e00);
    if (a >= 65520.0f) return (uint16_t)(sign | 0x7c00);
    if (a < 0x1p-14f) return (uint16_t)(sign | (uint16_t)rintf(a * 0x1p24f)); /* subnormal */
    uint32_t b = bits_of_float(a) - (112u << 23);                             /* new exponent bias */
    return (uint16_t)(sign | (b + 0xfff + (b >> 13 & 1)) >> 13);
}

static inline float float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return float_of_bits(sign | 0x7f800000 | m << 13);
    if (e == 0) return (sign ? -1.0f : 1.0f) * (float)m * 0x1p-24f;
    return float_of_bits(sign | (e + 112) << 23 | m << 13);
}

/* e4m3: above 448 it stays that; below 2^-6 an ulp is 2^-9. */
static inline uint8_t f8_of_double(double x)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    double a = fmin(fabs(x), 448);
    if (x != x) return 0x7f;
    if (a < 0x1p-6) return (uint8_t)(sign | (uint8_t)rint(a * 0x1p9));
    int e = ilogb(a);
    return (uint8_t)(sign | (uint8_t)((e + 6) * 8 + (int)rint(ldexp(a, 3 - e))));
}

static inline double double_of_f8(uint8_t b)
{
    int e = b >> 3 & 15, m = b & 7;
    double a = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    if ((b & 0x7f) == 0x7f) a = NAN;
    return b & 0x80 ? -a : a;
}

/* e5m2, the upper byte of an f16: from 61440 on it is infinite; below 2^-14 an ulp is 2^-16. */
static inline uint8_t e5m2_of_double(double x)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    double a = fabs(x);
    if (x != x) return 0x7e;
    if (a >= 61440) return (uint8_t)(sign | 0x7c);
    if (a < 0x1p-14) return (uint8_t)(sign | (uint8_t)rint(a * 0x1p16));
    int e = ilogb(a);
    return (uint8_t)(sign | (uint8_t)((e + 14) * 4 + (int)rint(ldexp(a, 2 - e))));
}

static inline double whole_within(double x, double least, double most)
{
    return x != x ? 0 : trunc(fmin(fmax(x, least), most));
}

static inline bool dtype_is_whole(coda_dtype t)
{
    return t == CODA_I32 || t == CODA_I64 || t == CODA_I8 || t == CODA_U8;
}

static inline size_t dtype_bytes(coda_dtype t)
{
    static const uint8_t bytes[] = {0, 4, 2, 2, 4, 1, 8, 1, 1, 1}; /* by coda_dtype */
    return bytes[t >= CODA_F32 && t <= CODA_U8 ? t : 0];
}

static inline const char *dtype_text(coda_dtype t)
{
    static const char *const text[] = {"?",      "f32", "bf16",   "f16", "i32",
                                       "f8e4m3", "i64", "f8e5m2", "i8",  "u8"}; /* by coda_dtype */
    return text[t >= CODA_F32 && t <= CODA_U8 ? t : 0];
}

static inline void element_set(coda_dtype t, void *base, int64_t i, double value)
{
    switch (t) {
    case CODA_F32: ((float *)base)[i] = (float)value; break;
    case CODA_BF16: ((uint16_t *)base)[i] = bf16_of_float((float)value); break;
    case CODA_F16: ((uint16_t *)base)[i] = f16_of_float((float)value); break;
    case CODA_I32: ((int32_t *)base)[i] = (int32_t)value; break;
    case CODA_I64: /* 2^63 is the double next to the largest */
        ((int64_t *)base)[i] = value < 0x1p63 ? (int64_t)value : INT64_MAX;
        break;
    case CODA_F8E4M3: ((uint8_t *)base)[i] = f8_of_double(value); break;
    case CODA_F8E5M2: ((uint8_t *)base)[i] = e5m2_of_double(value); break;
    case CODA_I8: ((int8_t *)base)[i] = (int8_t)whole_within(value, -128, 127); break;
    case CODA_U8: ((uint8_t *)base)[i] = (uint8_t)whole_within(value, 0, 255); break;
    }
}

static inline double element_get(coda_dtype t, const void *base, int64_t i)
{
    switch (t) {
    case CODA_F32: return ((const float *)base)[i];
    case CODA_BF16: return float_of_bits((uint32_t)((const uint16_t *)base)[i] << 16);
    case CODA_F16: return float_of_f16(((const uint16_t *)base)[i]);
    case CODA_I32: return ((const int32_t *)base)[i];
    case CODA_I64: return (double)((const int64_t *)base)[i];
    case CODA_F8E4M3: return double_of_f8(((const uint8_t *)base)[i]);
    case CODA_F8E5M2: return float_of_f16((uint16_t)(((const uint8_t *)base)[i] << 8));
    case CODA_I8: return ((const int8_t *)base)[i];
    case CODA_U8: return ((const uint8_t *)base)[i];
    }
    return 0;
}

/* ---- Random numbers ---- */

static inline double uniform(uint64_t *state) /* splitmix64; (0, 1) */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
}

static inline double normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

/* ---- The arguments of a graph, in host memory ---- */

static inline int64_t element_count(const coda_arg_info *a)
{
    int64_t n = 1;
    for (int d = 0; d < a->rank; d++) n *= a->dims[d];
    return n;
}

/* Where the i-th element in row-major order lies, in elements. */
static inline int64_t element_at(const coda_arg_info *a, int64_t i)
{
    int64_t at = 0;
    for (int d = a->rank - 1; d >= 0; d--) {
        at += i % a->dims[d] * a->strides[d];
        i /= a->dims[d];
    }
    return at;
}

struct tensors {
    int n;
    coda_arg_info *info;
    void **host; /* one allocation each, at least one byte, zeroed */
};

static inline void tensors_free(struct tensors *t)
{
    for (int i = 0; t->host && i < t->n; i++) free(t->host[i]);
    free(t->host);
    free(t->info);
    *t = (struct tensors){0};
}

/* Room for every argument of a graph; -1 when memory runs out. The infos' names belong to the graph. */
static inline int tensors_new(struct tensors *t, const coda_graph *g)
{
    t->n = coda_graph_args(g);
    t->info = calloc((size_t)t->n + 1, sizeof *t->info);
    t->host = calloc((size_t)t->n + 1, sizeof *t->host);
    for (int i = 0; t->info && t->host && i < t->n; i++) {
        coda_graph_arg(g, i, &t->info[i]);
        t->host[i] = calloc(1, t->info[i].bytes + 1);
        if (!t->host[i]) {
            tensors_free(t);
            return -1;
        }
    }
    return t->info && t->host ? 0 : -1;
}

/* Standard normal values, matrices of weights divided by the root of their columns, so that products
 * keep their size; integers are uniform in 0 .. ints-1. */
static inline void tensor_random(const coda_arg_info *a, void *host, uint64_t *seed, int ints)
{
    double scale = a->kind == CODA_ARG_WEIGHT && a->rank > 1 ? 1 / sqrt((double)a->dims[a->rank - 1]) : 1;
    int64_t n = element_count(a);
    for (int64_t i = 0; i < n; i++) {
        double v = dtype_is_whole(a->dtype) ? floor(uniform(seed) * ints) : normal(seed) * scale;
        element_set(a->dtype, host, element_at(a, i), v);
    }
}

/* |y - r| / |r|, Euclidean, over all elements; r dense. NaN if y has one. */
static inline double tensor_error(const coda_arg_info *a, const void *y, const double *r)
{
    double difference = 0, size = 0;
    int64_t n = element_count(a);
    for (int64_t i = 0; i < n; i++) {
        double v = element_get(a->dtype, y, element_at(a, i)), d = v - r[i];
        if (v == r[i]) d = 0; /* infinities too */
        difference += d * d;
        if (isfinite(r[i])) size += r[i] * r[i];
    }
    return sqrt(difference / (size > 0 ? size : 1));
}

/* ---- Plans ---- */

/* Host memory as coda_run wants it; free() it. */
static inline void *host_scratch(size_t bytes) { return aligned_alloc(256, (bytes + 256) / 256 * 256); }

/* The text of a plan, free() it; NULL when there is none. */
static inline char *plan_text(const coda_plan *p, coda_text what)
{
    int64_t length = coda_plan_print(p, what, NULL, 0);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (text) coda_plan_print(p, what, text, (size_t)length + 1);
    return text;
}

#endif
