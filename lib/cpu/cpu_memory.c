/* cpu_memory.c -- where a program's buffers are in one call, and how they are read. */
#include "cpu.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { APART = 256 }; /* elements that are brought together at one time */

void *cpu_buffer(const struct cpu *c, int buffer)
{
    const struct buffer *b = &c->plan->buffer[buffer];
    switch (b->space) {
    case SPACE_ARG: return c->args[b->arg];
    case SPACE_WORK: return c->workspace + b->offset;
    case SPACE_PREPARED: return c->prepared + b->offset;
    case SPACE_INBOX: break; /* of GPUs alone */
    }
    return NULL;
}

static void read_bf16(float *out, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* A subnormal number of fp16 is a normal one here, so that a product with a power of two is exact for all. */
static void read_f16(float *out, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t half = from[i], bits = (half & 0x7fff) << 13;
        uint32_t beyond = (half & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
        memcpy(&out[i], &bits, sizeof bits);
        out[i] *= 0x1p112f;
        memcpy(&bits, &out[i], sizeof bits);
        bits |= beyond | (half & 0x8000) << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* Elements that lie apart are brought together first: loops over neighbours become vectors. */
static void read_halves(float *out, coda_dtype t, const uint16_t *from, int64_t stride, int64_t n)
{
    uint16_t room[APART];
    for (int64_t i = 0, part = stride == 1 ? n : APART; i < n; i += part, from += part * stride) {
        int64_t some = MIN(part, n - i);
        for (int64_t k = 0; k < some && stride != 1; k++) room[k] = from[k * stride];
        (t == CODA_F16 ? read_f16 : read_bf16)(out + i, stride == 1 ? from : room, some);
    }
}

/* What dtype_load makes of every code of 8 bits. */
#define DTYPE(NAME, name, ...) NUMBER_##NAME,
enum {
#include "dtypes.def"
    NUMBERS
};
#undef DTYPE
static float value_of[NUMBERS + 1][256]; /* by dtype */

static void make_values(void)
{
    for (int t = 1; t <= NUMBERS; t++)
        for (int code = 0; code < 256 && dtype_bits((coda_dtype)t) == 8; code++)
            value_of[t][code] = (float)dtype_load((coda_dtype)t, &(uint8_t){(uint8_t)code}, 0);
}

static const float *values_of(coda_dtype t)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_values);
    return value_of[t];
}

static void read_bytes(float *out, coda_dtype t, const uint8_t *from, int64_t stride, int64_t n)
{
    const float *value = values_of(t);
    for (int64_t i = 0; i < n; i++) out[i] = value[from[i * stride]];
}

void cpu_read(float *out, coda_dtype t, const void *base, int64_t at, int64_t stride, int64_t n)
{
    if (t == CODA_F32 && stride == 1) memcpy(out, (const float *)base + at, sizeof *out * (size_t)n);
    else if (t == CODA_F32)
        for (int64_t i = 0; i < n; i++) out[i] = ((const float *)base)[at + i * stride];
    else if (dtype_is_half(t)) read_halves(out, t, (const uint16_t *)base + at, stride, n);
    else if (dtype_bits(t) == 8) read_bytes(out, t, (const uint8_t *)base + at, stride, n);
    else
        for (int64_t i = 0; i < n; i++) out[i] = (float)dtype_load(t, base, at + i * stride);
}

/* Neighbours of a row are decoded together. */
static void read_packed(float *out, const struct tensor_use *u, const void *base, int64_t at, int64_t stride,
                        int64_t n)
{
    const struct pack_format f = graph_format_of(u->packing.format);
    int64_t columns = u->packing.columns, step = stride == 1 ? n : 1;
    for (int64_t i = 0; i < n; i += step, at += stride) {
        int64_t row = at / columns;
        pack_decode(&f, base, row + 1, columns, row, at % columns, step, out + i);
    }
}

void cpu_read_use(float *out, const struct tensor_use *u, const void *base, int64_t at, int64_t stride,
                  int64_t n)
{
    if (use_is_packed(u)) read_packed(out, u, base, at, stride, n);
    else cpu_read(out, u->dtype, base, at, stride, n);
}

/* As dtype_store rounds. */
static void write_bf16(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40;
        out[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
    }
}

/* Below 2^-14 an ulp of fp16 is 2^-24, which is one of floats from 1/2 on. */
static void write_f16(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits, small;
        memcpy(&bits, &x[i], sizeof bits);
        uint32_t a = bits & 0x7fffffff, normal = ((a + 0xfff + (a >> 13 & 1)) >> 13) - (112 << 10);
        float above = fabsf(x[i]) + 0.5f;
        memcpy(&small, &above, sizeof small);
        uint32_t least = a < 0x38800000 ? small - 0x3f000000 : normal;
        uint32_t most = a >= 0x477ff000 ? 0x7c00 : least;
        out[i] = (uint16_t)((a > 0x7f800000 ? 0x7e00 : most) | (bits >> 16 & 0x8000));
    }
}

void cpu_write(coda_dtype t, void *base, int64_t at, const float *x, int64_t n)
{
    if (t == CODA_F32) memcpy((float *)base + at, x, sizeof *x * (size_t)n);
    else if (t == CODA_BF16) write_bf16((uint16_t *)base + at, x, n);
    else if (t == CODA_F16) write_f16((uint16_t *)base + at, x, n);
    else
        for (int64_t i = 0; i < n; i++) dtype_store(t, base, at + i, (double)x[i]);
}
