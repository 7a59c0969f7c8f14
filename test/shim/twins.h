/*
 * twins.h -- twins, for a host compiler, of the PTX in types.cuh and math.cuh.
 *
 * The approximate instructions are made as wrong here as their manual allows, in a way that depends on
 * the operand: what holds on the host must not lean on luck.
 */
#ifndef TWINS_H
#define TWINS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---- types.cuh ---- */

namespace coda {

inline uint32_t float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
inline float bits_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

inline uint16_t round_bf16(float x)
{
    uint32_t u = float_bits(x);
    if (x != x) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* |x| is rounded to a multiple of its 11-bit ulp, which is at least 2^-24; what is left is exact. */
inline uint16_t round_f16(float x)
{
    uint16_t sign = float_bits(x) >> 16 & 0x8000;
    int e;
    if (x != x) return 0x7fff;
    frexpf(x, &e);
    float ulp = ldexpf(1.0f, e - 11 > -24 ? e - 11 : -24), a = fabsf(x);
    if (a >= 65520.0f) return sign | 0x7c00;
    a = rintf(a / ulp) * ulp;
    if (a < 0x1p-14f) return sign | (uint16_t)(a * 0x1p24f);
    return sign | (uint16_t)((float_bits(a) >> 13) - (112 << 10));
}
inline float widen_f16(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    float a = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(1024 + m, e - 25) : ldexpf(m, -24);
    return h & 0x8000 ? -a : a;
}
inline int truncate_i32(float x)
{
    return x != x ? 0 : x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int)x;
}
inline long long truncate_i64(float x)
{
    return x >= 0x1p63f ? INT64_MAX : x >= -0x1p63f ? (long long)x : INT64_MIN;
}

/* ---- math.cuh ---- */

namespace math {

/* y (1 + d), |d| <= bound; results below 2^-126 become 0. */
inline float worsen(float x, double y, double bound)
{
    uint32_t hash = float_bits(x) * 0x9e3779b9u;
    double d = bound * ((int)(hash >> 16 & 255) - 128) / 128.0;
    return fabs(y) < 0x1p-126 ? copysignf(0.0f, (float)y) : (float)(y * (1 + d));
}
inline float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

/* Its manual promises 2^0 = 1. */
inline float exp2(float x) { return flush(x) == 0 ? 1.0f : worsen(x, ::exp2((double)x), 0x1p-22); }
inline float rcp(float x) { return worsen(x, 1.0 / (double)flush(x), 0x1p-23); }
inline float rsqrt(float x) { return worsen(x, 1.0 / ::sqrt((double)x), 0x1p-22); }
inline float max(float x, float y) { return x != x || y != y ? NAN : x > y ? x : y; }

} // namespace math
} // namespace coda

#endif
