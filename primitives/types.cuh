// types.cuh -- the words that every device file shares: integers, storage types, conversions.
//
// Values in kernels are float. All other types exist in memory only: to_float and from_float convert one
// element, unpack2 and pack2 two adjacent 16-bit ones. Floats round to nearest, ties to even; f16 and f8e5m2
// overflow to infinity, f8e4m3 to 448; integers truncate and saturate, NaN becomes 0. Needs no CUDA header.
#pragma once

#define DEV __device__ __forceinline__

namespace coda {

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

struct bf16 { u16 bits; };
struct f16 { u16 bits; };
struct f8e4m3 { u8 bits; }; // sign, 4 bits of exponent, 3 of mantissa; 0x7f and 0xff are NaN
struct f8e5m2 { u8 bits; }; // the upper byte of an f16
typedef float f32;

struct Pair { float a, b; }; // two values that one thread holds: adjacent columns, gate and up, ...

// The few words of PTX below have twins in test/shim/host.h, so that a host compiler takes these files.
#ifdef __CUDACC__
DEV u32 float_bits(float x) { return __float_as_uint(x); }
DEV float bits_float(u32 x) { return __uint_as_float(x); }

DEV u16 round_bf16(float x)
{
    u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
DEV u16 round_f16(float x)
{
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
DEV float widen_f16(u16 x)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
}
DEV i32 truncate_i32(float x)
{
    i32 r;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}
DEV i64 truncate_i64(float x) // NaN becomes the least, unlike above
{
    i64 r;
    asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(r) : "f"(x));
    return r;
}
#endif

DEV float to_float(float x) { return x; }
DEV float to_float(bf16 x) { return bits_float((u32)x.bits << 16); }
DEV float to_float(f16 x) { return widen_f16(x.bits); }
DEV float to_float(i32 x) { return (float)x; }
DEV float to_float(i64 x) { return (float)x; } // 2^32 + 5 is no 5
DEV float to_float(i8 x) { return (float)x; }
DEV float to_float(u8 x) { return (float)x; }
DEV float to_float(f8e5m2 x) { return widen_f16((u16)(x.bits << 8)); }
// In f16's places its exponent counts 8 more.
DEV float to_float(f8e4m3 x)
{
    const u32 sign = x.bits & 0x80, rest = x.bits & 0x7f;
    return rest == 0x7f ? bits_float(0x7fc00000) : 256.0f * widen_f16((u16)(sign << 8 | rest << 7));
}

// Below 2^-6 an ulp is 2^-9, as fp32's at 2^14 is.
DEV u8 round_e4m3(float x)
{
    const float a = fabsf(x) < 448.0f ? fabsf(x) : 448.0f;
    const u32 u = float_bits(a), normal = ((u + 0x7ffff + (u >> 20 & 1)) >> 20) - (120 << 3);
    const u32 small = float_bits(a + 16384.0f) - float_bits(16384.0f), sign = float_bits(x) >> 24 & 0x80;
    return (u8)(x != x ? 0x7f : sign | (a < 0.015625f ? small : normal));
}
// Below 2^-14 an ulp is 2^-16, as fp32's at 2^7 is.
DEV u8 round_e5m2(float x)
{
    const float a = fabsf(x);
    const u32 u = float_bits(a), normal = ((u + 0xfffff + (u >> 21 & 1)) >> 21) - (112 << 2);
    const u32 small = float_bits(a + 128.0f) - float_bits(128.0f), sign = float_bits(x) >> 24 & 0x80;
    return (u8)(sign | (x != x ? 0x7e : a >= 61440.0f ? 0x7c : a < 0x1p-14f ? small : normal));
}
// Two e4m3, the first in the lower byte.
DEV u16 round_e4m3x2(float lo, float hi)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
    u16 r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
    return r;
#else
    return (u16)(round_e4m3(lo) | round_e4m3(hi) << 8);
#endif
}

DEV i32 clamp(i32 x, i32 least, i32 most) { return x < least ? least : x > most ? most : x; }

template <class T> DEV T from_float(float x);
template <> DEV float from_float<float>(float x) { return x; }
template <> DEV bf16 from_float<bf16>(float x) { return {round_bf16(x)}; }
template <> DEV f16 from_float<f16>(float x) { return {round_f16(x)}; }
template <> DEV f8e4m3 from_float<f8e4m3>(float x) { return {round_e4m3(x)}; }
template <> DEV f8e5m2 from_float<f8e5m2>(float x) { return {round_e5m2(x)}; }
template <> DEV i8 from_float<i8>(float x) { return (i8)clamp(truncate_i32(x), -128, 127); }
template <> DEV u8 from_float<u8>(float x) { return (u8)clamp(truncate_i32(x), 0, 255); }
template <> DEV i32 from_float<i32>(float x) { return truncate_i32(x); }
template <> DEV i64 from_float<i64>(float x) { return x != x ? 0 : truncate_i64(x); }

// Two 8-bit elements, the first in the lower byte.
DEV u32 byte_of(f8e5m2 x) { return x.bits; }
DEV u32 byte_of(i8 x) { return (u8)x; }
DEV u32 byte_of(u8 x) { return x; }
template <class T> DEV u16 pack_bytes(float lo, float hi)
{
    return (u16)(byte_of(from_float<T>(lo)) | byte_of(from_float<T>(hi)) << 8);
}
template <> DEV u16 pack_bytes<f8e4m3>(float lo, float hi) { return round_e4m3x2(lo, hi); }

// Two 16-bit elements in one register; `lo` is the one at the lower address.
template <class T> DEV u32 pack2(float lo, float hi)
{
    return (u32)from_float<T>(lo).bits | (u32)from_float<T>(hi).bits << 16;
}
#ifdef __CUDACC__
template <> DEV u32 pack2<bf16>(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
template <> DEV u32 pack2<f16>(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
#endif
template <class T> DEV Pair unpack2(u32 x) { return {to_float(T{(u16)x}), to_float(T{(u16)(x >> 16)})}; }
template <> DEV Pair unpack2<bf16>(u32 x) { return {bits_float(x << 16), bits_float(x & 0xffff0000)}; }

// One element in memory.
template <class T> DEV float load(const T *p) { return to_float(*p); }
template <class T> DEV void store(T *p, float x) { *p = from_float<T>(x); }
template <class T> DEV void accumulate(T *p, float x) { store(p, load(p) + x); }

} // namespace coda
