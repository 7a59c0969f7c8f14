/* dtype.c -- the element types on the host, as dtypes.def lists them. */
#include "base.h"

#include <math.h>
#include <string.h>

enum dtype_class { NO_DTYPE, FLOAT, INDEX, STORAGE };

static const struct dtype {
    const char *name;
    enum dtype_class class;
    int bits, block, bytes; /* bytes of a block */
} table[] = {
#define DTYPE(NAME, name, class, bits, block)                                                                \
    [CODA_##NAME] = {#name, class, bits, block, (bits) * (block) / 8},
#include "dtypes.def"
#undef DTYPE
};

#define DTYPE(NAME, name, class, bits, block)                                                                \
    _Static_assert((bits) * (block) % 8 == 0, "a block of " #name " is whole bytes");
#include "dtypes.def"
#undef DTYPE

static const struct dtype *row_of(coda_dtype t)
{
    return &table[t > 0 && (size_t)t < sizeof table / sizeof *table ? t : 0];
}

int dtype_bits(coda_dtype t) { return row_of(t)->bits; }
const char *dtype_name(coda_dtype t) { return row_of(t)->name ? row_of(t)->name : "?"; }
bool dtype_is_float(coda_dtype t) { return row_of(t)->class == FLOAT; }
bool dtype_is_half(coda_dtype t) { return row_of(t)->class == FLOAT && row_of(t)->bits == 16; }
bool dtype_is_index(coda_dtype t) { return row_of(t)->class == INDEX; }
bool dtype_is_storage(coda_dtype t) { return row_of(t)->class == STORAGE; }
bool dtype_is_f8(coda_dtype t) { return t == CODA_F8E4M3 || t == CODA_F8E5M2; }

int64_t dtype_bytes(coda_dtype t, int64_t elements)
{
    const struct dtype *d = row_of(t);
    return mul_counts(d->block > 1 ? elements / d->block + (elements % d->block > 0) : elements, d->bytes);
}

int64_t dtype_elements(coda_dtype t, int64_t bytes)
{
    const struct dtype *d = row_of(t);
    return d->bytes ? mul_counts(bytes / d->bytes, d->block) : 0;
}

bool dtype_find(const char *name, coda_dtype *out)
{
    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        if (!table[i].name || strcmp(table[i].name, name) != 0) continue;
        *out = (coda_dtype)i;
        return true;
    }
    return false;
}

const char *dtype_names(void)
{
    static const char names[] =
#define DTYPE(NAME, name, ...) ", " #name
#include "dtypes.def"
#undef DTYPE
        ;
    return names + strlen(", ");
}

/* ---- Elements ---- */

#define DTYPE(NAME, name, ...)                                                                               \
    double load_##name(const void *base, int64_t i);                                                         \
    void store_##name(void *base, int64_t i, double x);
#include "dtypes.def"
#undef DTYPE

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

static uint16_t bf16_of(double value)
{
    float x = (float)value;
    uint32_t u = bits_of(x);
    if (isnan(x)) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static float of_bf16(uint16_t b) { return float_of((uint32_t)b << 16); }

static uint16_t f16_of(double value)
{
    float x = (float)value;
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

/* a >= 0, no more than the type has: the nearest, ties to even. `mantissa` bits; the least that is normal is
 * 2^(1 - bias), and an ulp below it 2^-mantissa of that. */
static uint8_t small_of(double a, int mantissa, int bias, double least, double ulps)
{
    int cut = 52 - mantissa;
    uint64_t u;
    if (a < least) return (uint8_t)lrint(a * ulps);
    memcpy(&u, &a, 8);
    u += ((uint64_t)1 << (cut - 1)) - 1 + (u >> cut & 1);
    return (uint8_t)((u >> cut) - ((uint64_t)(1023 - bias) << mantissa));
}

/* Beyond the largest, 448, it stays that. */
uint8_t dtype_f8e4m3_of(double x)
{
    if (isnan(x)) return 0x7f;
    return (signbit(x) ? 0x80 : 0) | small_of(fmin(fabs(x), 448), 3, 7, 0x1p-6, 0x1p9);
}

static float of_f8(uint8_t b)
{
    int e = b >> 3 & 15, m = b & 7;
    float a = e ? ldexpf((float)(8 + m), e - 10) : (float)m * 0x1p-9f;
    if ((b & 0x7f) == 0x7f) a = NAN;
    return b & 0x80 ? -a : a;
}

/* As f16 with 2 of its 10 bits. */
uint8_t dtype_f8e5m2_of(double x)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    if (isnan(x)) return sign | 0x7e;
    if (fabs(x) >= 61440) return sign | 0x7c;
    return sign | small_of(fabs(x), 2, 15, 0x1p-14, 0x1p16);
}

static float of_e5m2(uint8_t b) { return of_f16((uint16_t)(b << 8)); }

/* Towards zero, to the nearest that fits; NaN is 0. */
static int32_t i32_of(double x) { return isnan(x) ? 0 : (int32_t)fmax(INT32_MIN, fmin(INT32_MAX, x)); }
static int8_t i8_of(double x) { return isnan(x) ? 0 : (int8_t)fmax(INT8_MIN, fmin(INT8_MAX, x)); }
static uint8_t u8_of(double x) { return isnan(x) ? 0 : (uint8_t)fmax(0, fmin(UINT8_MAX, x)); }
static int64_t i64_of(double x)
{
    if (isnan(x)) return 0;
    return x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (int64_t)x; /* INT64_MAX is no double */
}

/* Loads and stores elements that are `type`s, by the two conversions. */
#define ELEMENTS(name, type, to_double, from_double)                                                         \
    double load_##name(const void *base, int64_t i) { return (double)to_double(((const type *)base)[i]); }   \
    void store_##name(void *base, int64_t i, double x) { ((type *)base)[i] = from_double(x); }

ELEMENTS(f32, float, , (float))
ELEMENTS(bf16, uint16_t, of_bf16, bf16_of)
ELEMENTS(f16, uint16_t, of_f16, f16_of)
ELEMENTS(i32, int32_t, , i32_of)
ELEMENTS(i64, int64_t, , i64_of)
ELEMENTS(f8e4m3, uint8_t, of_f8, dtype_f8e4m3_of)
ELEMENTS(f8e5m2, uint8_t, of_e5m2, dtype_f8e5m2_of)
ELEMENTS(i8, int8_t, , i8_of)
ELEMENTS(u8, uint8_t, , u8_of)

double dtype_load(coda_dtype t, const void *base, int64_t i)
{
    switch (t) {
#define DTYPE(NAME, name, ...)                                                                               \
    case CODA_##NAME:                                                                                        \
        return load_##name(base, i);
#include "dtypes.def"
#undef DTYPE
    }
    return 0;
}

void dtype_store(coda_dtype t, void *base, int64_t i, double value)
{
    switch (t) {
#define DTYPE(NAME, name, ...)                                                                               \
    case CODA_##NAME:                                                                                        \
        store_##name(base, i, value);                                                                        \
        break;
#include "dtypes.def"
#undef DTYPE
    }
}
