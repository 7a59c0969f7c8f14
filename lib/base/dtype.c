/* dtype.c -- the element types on the host; stores of 16 and 8 bits round to nearest even. */
#include "base.h"

#include <math.h>
#include <string.h>

int dtype_size(coda_dtype t)
{
    switch (t) {
    case CODA_F32:
    case CODA_I32: return 4;
    case CODA_I64: return 8;
    case CODA_BF16:
    case CODA_F16: return 2;
    case CODA_F8E4M3: return 1;
    }
    return 0;
}

const char *dtype_name(coda_dtype t)
{
    switch (t) {
    case CODA_F32: return "f32";
    case CODA_I32: return "i32";
    case CODA_I64: return "i64";
    case CODA_BF16: return "bf16";
    case CODA_F16: return "f16";
    case CODA_F8E4M3: return "f8e4m3";
    }
    return "?";
}

bool dtype_is_float(coda_dtype t) { return t == CODA_F32 || t == CODA_BF16 || t == CODA_F16; }
bool dtype_is_index(coda_dtype t) { return t == CODA_I32 || t == CODA_I64; }

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static uint16_t bf16_of(float x)
{
    uint32_t u = bits_of(x);
    if (isnan(x)) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static uint16_t f16_of(float x)
{
    uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    float a = fabsf(x);
    if (isnan(x)) return sign | 0x7e00;
    if (a >= 65520.0f) return sign | 0x7c00;
    if (a < 0x1p-14f) return sign | (uint16_t)lrintf(a * 0x1p24f); /* subnormal; rounds up into 2^-14 */
    uint32_t u = bits_of(a);
    u += 0xfff + ((u >> 13) & 1);
    return sign | (uint16_t)((u >> 13) - (112 << 10));
}

static float of_f16(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
    float a = exponent == 0    ? (float)mantissa * 0x1p-24f
              : exponent == 31 ? float_of(0x7f800000 | mantissa << 13)
                               : float_of((exponent + 112) << 23 | mantissa << 13);
    return h & 0x8000 ? -a : a;
}

/* Beyond the largest, 448, it stays that. Below 2^-6 an ulp is 2^-9. */
static uint8_t f8_of(double x)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    double a = fmin(fabs(x), 448);
    if (isnan(x)) return 0x7f;
    if (a < 0x1p-6) return sign | (uint8_t)lrint(a * 0x1p9);
    int e = ilogb(a);
    return sign | (uint8_t)((e + 6) * 8 + (int)lrint(ldexp(a, 3 - e))); /* 8 to 16 eighths */
}

static float of_f8(uint8_t b)
{
    int e = b >> 3 & 15, m = b & 7;
    float a = e ? ldexpf((float)(8 + m), e - 10) : (float)m * 0x1p-9f;
    if ((b & 0x7f) == 0x7f) a = NAN;
    return b & 0x80 ? -a : a;
}

double dtype_load(coda_dtype t, const void *base, int64_t i)
{
    switch (t) {
    case CODA_F32: return ((const float *)base)[i];
    case CODA_I32: return ((const int32_t *)base)[i];
    case CODA_I64: return (double)((const int64_t *)base)[i];
    case CODA_BF16: return float_of((uint32_t)((const uint16_t *)base)[i] << 16);
    case CODA_F16: return of_f16(((const uint16_t *)base)[i]);
    case CODA_F8E4M3: return of_f8(((const uint8_t *)base)[i]);
    }
    return 0;
}

/* Towards zero, to the nearest that fits; NaN is 0. */
static int32_t i32_of(double x) { return isnan(x) ? 0 : (int32_t)fmax(INT32_MIN, fmin(INT32_MAX, x)); }
static int64_t i64_of(double x)
{
    if (isnan(x)) return 0;
    return x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (int64_t)x; /* INT64_MAX is no double */
}

void dtype_store(coda_dtype t, void *base, int64_t i, double value)
{
    switch (t) {
    case CODA_F32: ((float *)base)[i] = (float)value; break;
    case CODA_I32: ((int32_t *)base)[i] = i32_of(value); break;
    case CODA_I64: ((int64_t *)base)[i] = i64_of(value); break;
    case CODA_BF16: ((uint16_t *)base)[i] = bf16_of((float)value); break;
    case CODA_F16: ((uint16_t *)base)[i] = f16_of((float)value); break;
    case CODA_F8E4M3: ((uint8_t *)base)[i] = f8_of(value); break;
    }
}
