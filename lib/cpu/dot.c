/*
 * dot.c -- products along K without packing, by the instructions that the machine has.
 *
 * The operands are read where they lie, 16-bit ones are widened in registers. dot_tile.h is compiled for each
 * set of instructions by a target of its own, so one library runs everywhere.
 */
#include "dot.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never passed between functions that are not inlined */

#define ALWAYS_INLINE inline __attribute__((always_inline))

enum { TILE_MOST = 8, DOT_BLOCK_K = 2048, GROUP = 8, SHORT_K = 256, AHEAD = 32, FEW_NUMBERS = 1 << 16 };

typedef float lanes __attribute__((vector_size(4 * DOT_LANES)));
typedef uint32_t lane_bits __attribute__((vector_size(4 * DOT_LANES)));
typedef float quad __attribute__((vector_size(16)));
/* In memory, at any address that their elements may have. */
typedef float lanes_anywhere __attribute__((vector_size(4 * DOT_LANES), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * DOT_LANES), aligned(2), may_alias));
typedef float quad_anywhere __attribute__((vector_size(16), aligned(4), may_alias));

static ALWAYS_INLINE void put(quad sums, float *to, int64_t n, bool add)
{
    if (n >= 4) {
        if (add) sums += *(quad_anywhere *)to;
        *(quad_anywhere *)to = sums;
        return;
    }
    for (int j = 0; j < n; j++) to[j] = add ? to[j] + sums[j] : sums[j];
}

static ALWAYS_INLINE lanes all(float x) { return (lanes){x, x, x, x, x, x, x, x}; }

/* Exact: a subnormal number of fp16 is a normal one here. */
static ALWAYS_INLINE lanes widen_f16(const void *at)
{
    lane_bits h = __builtin_convertvector(*(const halves *)at, lane_bits);
    lane_bits beyond = (lane_bits)((h & 0x7c00) == 0x7c00) & 0x7f800000;
    lanes size = (lanes)((h & 0x7fff) << 13) * 0x1p112f;
    return (lanes)((lane_bits)size | beyond | (h & 0x8000) << 16);
}

/* ---- Without FMA, or on a machine whose own compiler options have it ---- */

#define OF(name) name##_v2
#define TILE_ROWS 1
#define ALONE 4
#define WIDEN_F16(at) widen_f16(at)
#ifdef __FP_FAST_FMAF
static ALWAYS_INLINE lanes fused(lanes sum, lanes x, lanes y)
{
#pragma GCC unroll 8
    for (int l = 0; l < DOT_LANES; l++) sum[l] = __builtin_fmaf(x[l], y[l], sum[l]);
    return sum;
}
#define MULTIPLY_ADD(sum, x, y) fused(sum, x, y)
#else
#define MULTIPLY_ADD(sum, x, y) ((sum) + (x) * (y))
#endif
#include "dot_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* ---- AVX2: 16 registers ---- */

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define OF(name) name##_v3
#define TILE_ROWS 3
#define ALONE 8
#define MULTIPLY_ADD(sum, x, y) ((lanes)_mm256_fmadd_ps((__m256)(x), (__m256)(y), (__m256)(sum)))
#define WIDEN_F16(at) ((lanes)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(at))))
#include "dot_tile.h"
#pragma GCC pop_options

/* ---- AVX-512: 32 registers of 256 bits ---- */

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=256")
#define OF(name) name##_v4
#define TILE_ROWS 4
#define ALONE 8
#define MULTIPLY_ADD(sum, x, y) ((lanes)_mm256_fmadd_ps((__m256)(x), (__m256)(y), (__m256)(sum)))
#define WIDEN_F16(at) ((lanes)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(at))))
#include "dot_tile.h"
#pragma GCC pop_options
#endif

/* ---- By the machine's set ---- */

static void columns(enum vectors level, const struct dot *d, int64_t j, int64_t end, int64_t k)
{
#if defined(__x86_64__)
    if (level == VECTORS_V4) dot_v4(d, j, end, k);
    else if (level == VECTORS_V3) dot_v3(d, j, end, k);
    else
#endif
        dot_v2(d, j, end, k);
}

bool dot_takes(coda_dtype type) { return type == CODA_F32 || type == CODA_BF16 || type == CODA_F16; }

/* Rows that stay in the second level of cache over all of K let B be read from its beginning to its end; of
 * more rows, a block of K does. */
void dot_by(enum vectors level, const struct dot *d)
{
    bool few = d->m <= FEW_NUMBERS && d->m * MIN(d->k, FEW_NUMBERS) <= FEW_NUMBERS;
    int64_t each = few ? GROUP : d->n;
    for (int64_t i = 0; i < d->m && d->k == 0; i++)
        memset(d->c + i * d->c_pitch, 0, sizeof(float) * (size_t)d->n);
    for (int64_t j = 0; j < d->n && d->m > 0; j += each)
        for (int64_t k = 0; k < d->k; k += DOT_BLOCK_K) columns(level, d, j, MIN(j + each, d->n), k);
}

void dot(const struct dot *d) { dot_by(vectors(), d); }

void add_weighted_by(enum vectors level, const struct weighted *w)
{
#if defined(__x86_64__)
    if (level == VECTORS_V4) add_weighted_v4(w);
    else if (level == VECTORS_V3) add_weighted_v3(w);
    else
#endif
        add_weighted_v2(w);
}

void add_weighted(const struct weighted *w) { add_weighted_by(vectors(), w); }
