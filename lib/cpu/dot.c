/*
 * dot.c -- products along K without packing, by the instructions that the machine has.
 *
 * The operands are read where they lie, 16-bit ones are widened in registers. dot_tile.h is compiled for each
 * set of instructions by a target of its own, so one library runs everywhere.
 */
#include "dot.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never passed between functions that are not inlined */

/* Each kernel is a copy of the loops. Sanitizers look at the loops, of which one copy is enough. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALWAYS_INLINE inline
#else
#define ALWAYS_INLINE inline __attribute__((always_inline))
#endif

enum {
    TILE_MOST = 8,
    DOT_BLOCK_K = 2048,
    PART_K = 256, /* of a block of K, so that a tile's part stays in the first level of cache */
    KEPT_ROWS = 64,
    GROUP = 8,
    SHORT_K = 256,
    AHEAD = 32,
    FEW_NUMBERS = 1 << 16
};

typedef float quad __attribute__((vector_size(16)));
typedef uint32_t quad_bits __attribute__((vector_size(16)));
/* In memory, at any address that their elements may have. */
typedef float quad_anywhere __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint16_t quad_halves __attribute__((vector_size(8), aligned(2), may_alias));

static ALWAYS_INLINE void put(quad sums, float *to, int64_t n, bool add)
{
    if (n >= 4) {
        if (add) sums += *(quad_anywhere *)to;
        *(quad_anywhere *)to = sums;
        return;
    }
    for (int j = 0; j < n; j++) to[j] = add ? to[j] + sums[j] : sums[j];
}

/* ---- Without FMA, or on a machine whose own compiler options have it ---- */

/* Compilers keep a vector that is wider than a register in memory: eight lanes are two of four. */
struct two {
    quad low, high;
};

static ALWAYS_INLINE struct two two_all(float x) { return (struct two){{x, x, x, x}, {x, x, x, x}}; }

static ALWAYS_INLINE struct two two_f32(const void *at)
{
    const quad_anywhere *q = at;
    return (struct two){q[0], q[1]};
}

static ALWAYS_INLINE void two_store(float *to, struct two x)
{
    ((quad_anywhere *)to)[0] = x.low;
    ((quad_anywhere *)to)[1] = x.high;
}

static ALWAYS_INLINE quad_bits four_halves(const void *at)
{
    return __builtin_convertvector(*(const quad_halves *)at, quad_bits);
}

static ALWAYS_INLINE struct two two_bf16(const void *at)
{
    const quad_halves *h = at;
    return (struct two){(quad)(four_halves(h) << 16), (quad)(four_halves(h + 1) << 16)};
}

/* Exact: a subnormal number of fp16 is a normal one here. */
static ALWAYS_INLINE quad quad_of_f16(quad_bits h)
{
    quad_bits beyond = (quad_bits)((h & 0x7c00) == 0x7c00) & 0x7f800000;
    quad size = (quad)((h & 0x7fff) << 13) * 0x1p112f;
    return (quad)((quad_bits)size | beyond | (h & 0x8000) << 16);
}

static ALWAYS_INLINE struct two two_f16(const void *at)
{
    const quad_halves *h = at;
    return (struct two){quad_of_f16(four_halves(h)), quad_of_f16(four_halves(h + 1))};
}

static ALWAYS_INLINE quad two_halves(struct two x) { return x.low + x.high; }

#ifdef __FP_FAST_FMAF
static ALWAYS_INLINE quad quad_multiply_add(quad sum, quad x, quad y)
{
#pragma GCC unroll 4
    for (int l = 0; l < 4; l++) sum[l] = __builtin_fmaf(x[l], y[l], sum[l]);
    return sum;
}
#else
static ALWAYS_INLINE quad quad_multiply_add(quad sum, quad x, quad y) { return sum + x * y; }
#endif

static ALWAYS_INLINE struct two two_multiply_add(struct two sum, struct two x, struct two y)
{
    return (struct two){quad_multiply_add(sum.low, x.low, y.low),
                        quad_multiply_add(sum.high, x.high, y.high)};
}

#define OF(name) name##_v2
#define TILE_ROWS 1
#define ALONE 4
#define LANES struct two
#define ON(name) two_##name
#include "dot_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* ---- With AVX2: 16 registers ---- */

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
static ALWAYS_INLINE __m256 lanes_all(float x) { return _mm256_set1_ps(x); }
static ALWAYS_INLINE __m256 lanes_f32(const void *at) { return _mm256_loadu_ps(at); }
static ALWAYS_INLINE void lanes_store(float *to, __m256 x) { _mm256_storeu_ps(to, x); }

static ALWAYS_INLINE __m256 lanes_bf16(const void *at)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), 16));
}

static ALWAYS_INLINE __m256 lanes_f16(const void *at) { return _mm256_cvtph_ps(_mm_loadu_si128(at)); }

static ALWAYS_INLINE quad lanes_halves(__m256 x)
{
    return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

static ALWAYS_INLINE __m256 lanes_multiply_add(__m256 sum, __m256 x, __m256 y)
{
    return _mm256_fmadd_ps(x, y, sum);
}

#define OF(name) name##_v3
#define TILE_ROWS 3
#define ALONE 8
#define LANES __m256
#define ON(name) lanes_##name
#include "dot_tile.h"
#pragma GCC pop_options

/* ---- With AVX-512: 32 registers, of which 256 bits are used ---- */

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=256")
#define OF(name) name##_v4
#define TILE_ROWS 4
#define ALONE 8
#define LANES __m256
#define ON(name) lanes_##name
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
