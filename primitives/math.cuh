// math.cuh -- the few functions that maps and reductions are made of.
//
// They are the same on every device, whatever the compiler's fast-math flags, and take part in no
// table lookup, call or branch. Errors are relative unless said otherwise; a result whose magnitude is
// below 2^-126 may become 0. NaN stays NaN. Lines `// coda: function` say what a map may call as math::NAME.
#pragma once
#include "types.cuh"

namespace coda::math {

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;
// coda: function infinity() +inf
// coda: function not_a_number() NaN
DEV float infinity() { return bits_float(0x7f800000u); }
DEV float not_a_number() { return bits_float(0x7fc00000u); }

// One instruction each; test/shim/host.h has their twins.
// coda: function exp2(x) 2^x; error 2^-22
// coda: function rcp(x) 1 / x; error 1 ulp
// coda: function rsqrt(x) 1 / sqrt(x); error 2^-22.4
// coda: function max(x, y) the larger one; NaN if either is
#ifdef __CUDACC__
DEV float exp2(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
DEV float rcp(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
DEV float rsqrt(float x)
{
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
DEV float max(float x, float y)
{
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
#endif

// coda: function exp(x) e^x, subnormal results included; error 3e-7
// x = n ln 2 + f, and 2^n is put together from its bits.
DEV float exp(float x)
{
    const float magic = 12582912.0f; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    float shifted = fminf(fmaxf(x * LOG2_E, -126.0f), 127.0f) + magic;
    float n = shifted - magic;
    float f = fmaf(n, -0.693145752f, x);
    f = fmaf(n, -1.42860677e-6f, f);
    return exp2(f * LOG2_E) * bits_float((float_bits(shifted) << 23) + 0x3f800000u);
}

// coda: function count_ratio(x, y) x / y of counts, 0 <= x <= y, 1 <= y <= 2^24, correctly rounded
// As `/` rounds it, which would branch to cases that these are not.
DEV float count_ratio(float x, float y)
{
    float r = rcp(y);
    r = fmaf(fmaf(-y, r, 1.0f), r, r);
    const float q = x * r;
    return fmaf(fmaf(-y, q, x), r, q);
}

// coda: function sigmoid(x) 1 / (1 + e^-x); error 3e-7 + 6e-8 |x|
// coda: function sigmoid_exp2(y) 1 / (1 + 2^-y), sigmoid of y = x log2 e for who has constants to fold
DEV float sigmoid_exp2(float y) { return rcp(1.0f + exp2(-y)); }
DEV float sigmoid(float x) { return sigmoid_exp2(LOG2_E * x); }

// coda: function atanh_twice(s) 2 atanh(s) = log((1 + s) / (1 - s)) for |s| <= 1/3; error 1e-7
// Both logarithms below are this one.
DEV float atanh_twice(float s)
{
    float u = s * s;
    float p = fmaf(fmaf(fmaf(0.134257495f, u, 0.141183093f), u, 0.200037807f), u, 0.333333194f);
    return 2.0f * fmaf(s * u, p, s);
}

// coda: function log(x) the natural logarithm: -inf of 0, NaN of what is below; error 3e-7, near 1 too
DEV float log(float x)
{
    bool subnormal = x < 1.17549435e-38f;
    u32 bits = float_bits(subnormal ? x * 8388608.0f : x);
    i32 e = (i32)(bits - 0x3f3504f3u) >> 23; // x = m 2^e with m from sqrt(1/2) to sqrt(2)
    float m = bits_float(bits - ((u32)e << 23));
    float r = fmaf((float)(subnormal ? e - 23 : e), LN_2, atanh_twice((m - 1.0f) * rcp(m + 1.0f)));
    if (x > 0.0f && x < infinity()) return r;
    return x == 0.0f ? -infinity() : x < 0.0f ? not_a_number() : x;
}

// coda: function log1p(y) log(1 + y) for 0 <= y <= 1; error 3e-7
DEV float log1p(float y) { return atanh_twice(y * rcp(y + 2.0f)); }

// coda: function tanh(x) the hyperbolic tangent; error 4e-7
DEV float tanh(float x)
{
    float u = x * x;
    float p = fmaf(fmaf(fmaf(0.0179887451f, u, -0.0533871092f), u, 0.13330476f), u, -0.333333105f);
    float small = fmaf(x * u, p, x);
    float large = 1.0f - 2.0f * rcp(1.0f + exp2(2.0f * LOG2_E * fabsf(x)));
    return fabsf(x) < 0.5f ? small : copysignf(large, x);
}

// coda: function normal_cdf(x) P(X <= x) of a normal X; error 6e-7 + 6e-8 x^2, in the left tail too
// It is erfc(-x / sqrt 2) / 2, and erfc(z) / 2 = e^(-z^2) t p(t) with t = 1 / (1 + 0.3 z).
// coda: function normal_tail(a) P(X > a) e^(a^2 / 2) of a normal X, for a from 0 on; error 4e-7
DEV float normal_tail(float a)
{
    float t = rcp(fmaf(a, 0.212132034f, 1.0f));
    float p = -0.06538544f;
    p = fmaf(p, t, 0.24596713f);
    p = fmaf(p, t, -0.26307583f);
    p = fmaf(p, t, 0.2822571f);
    p = fmaf(p, t, -0.05349168f);
    p = fmaf(p, t, 0.110269584f);
    p = fmaf(p, t, 0.07339801f);
    p = fmaf(p, t, 0.08547456f);
    p = fmaf(p, t, 0.08458653f);
    return t * p;
}
DEV float normal_cdf(float x)
{
    float a = fabsf(x), tail = exp2(-0.5f * LOG2_E * (a * a)) * normal_tail(a);
    return x > 0.0f ? 1.0f - tail : tail;
}

// coda: function normal_cdf_narrow(x) the same; error 2^-16.5 from x = -6.5 on, absolute 1e-14 below
// Half of the instructions, and no reciprocal: the logarithm of the tail, fitted as a polynomial. For what is
// rounded to 16 bits.
DEV float normal_cdf_narrow(float x)
{
    float a = fabsf(x), p = -1.75777814e-6f;
    p = fmaf(p, a, 5.9936614e-5f);
    p = fmaf(p, a, -0.000916363206f);
    p = fmaf(p, a, 0.00844738632f);
    p = fmaf(p, a, -0.053824503f);
    p = fmaf(p, a, -0.45861572f);
    p = fmaf(p, a, -1.15118015f);
    float tail = exp2(fmaf(p, a, -1.00000381f));
    return x > 0.0f ? 1.0f - tail : tail;
}

// {cos, sin} of n + r half turns, pi (n + r), for |r| <= 0.51 and an integer n, whose lowest bit counts: each
// half turn changes both signs. Absolute error 1.7e-7; r = 0 gives exactly {1, 0} or {-1, 0}.
DEV Pair cos_sin_half_turns(u32 n, float r)
{
    float u = r * r;
    float c = fmaf(fmaf(fmaf(0.219483986f, u, -1.33183837f), u, 4.05841923f), u, -4.93479443f);
    float s = fmaf(fmaf(fmaf(0.0770269334f, u, -0.597946703f), u, 2.55001497f), u, -5.16770601f);
    c = fmaf(c, u, 1.0f);
    s = fmaf(s, u, 3.1415925f) * r;
    return {bits_float(float_bits(c) ^ n << 31), bits_float(float_bits(s) ^ n << 31)};
}

} // namespace coda::math
