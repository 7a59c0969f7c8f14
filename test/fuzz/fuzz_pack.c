/*
 * fuzz_pack.c -- tensors of random shapes and bytes into the packers: fuzz_pack SECONDS [SEED].
 *
 * A source is mostly right and then has up to three mistakes: a tensor that ends early, in a block of exactly
 * the bytes that it says, another shape, kind or format, groups and orders at random. It is either refused
 * with one line, or packed: then all bytes of the matrix are written, none behind it, every value is finite
 * where scales are, and packing in ranges gives the same bytes. Run it under address and undefined-behaviour
 * sanitizers.
 */
#include "base.h"
#include "util_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct random rng;
static uint64_t seed;

static int64_t below(int64_t n) { return random_below(&rng, n); }
static bool chance(int percent) { return random_chance(&rng, percent); }

static void stop(const char *what)
{
    fprintf(stderr, "fuzz_pack: %s: \"%s\", seed %llu\n", what, coda_error(), (unsigned long long)seed);
    abort();
}

struct sample {
    coda_pack_format f;
    coda_pack_source s;
    char *codes, *scales, *zeros;
    int32_t *g_idx, *column_order, *row_order;
};

static const char *const words[] = {
    "q4_0",          "q4_1",         "q5_0",
    "q5_1",          "q8_0",         "q4_k",
    "q5_k",          "q6_k",         "mxfp4",
    "nvfp4",         "fp8_block",    "int4_g128_f16_zeros",
    "int4_g32_bf16", "int4_row_f16", "int4_g16_f32_zeros",
    "int8_row_f16",  "int8_g64_f16", "int8_g32_bf16_zeros",
    "e5m2_g128_f32", "int6_g32_f16", "int5_g64_bf16_min",
};

static int size_of_scale(const coda_pack_format *f)
{
    static const int size[] = {0, 4, 2, 2, 1, 1, 1, 1};
    return size[f->scales];
}

static int bits_of(const coda_pack_format *f)
{
    static const int bits[] = {0, 4, 5, 6, 8, 4, 8, 8};
    return bits[f->codes];
}

/* Bytes as the kind has them, all of one formula: what the packer's checks are held against. */
static void shape(struct sample *t, int64_t *codes, int64_t *scales, int64_t *zeros)
{
    const coda_pack_source *s = &t->s;
    int64_t n = s->rows, k = s->columns, groups = t->f.group ? CEIL_DIV(k, t->f.group) : 1;
    int b = bits_of(&t->f), size = size_of_scale(&t->f);
    bool points = t->f.zeros == CODA_ZEROS_POINTS;
    *scales = n * groups * size;
    *codes = k * b / 32 * n * 4;
    *zeros = points ? groups * (n * b / 32) * 4 : 0;
    if (s->kind == CODA_PACK_CODES) {
        *codes = n * k;
        *scales = CEIL_DIV(n, MAX(s->block_rows, 1)) * groups * size;
        *zeros = points ? n * groups : t->f.zeros ? n * groups * size : 0;
    } else if (s->kind == CODA_PACK_NIBBLES) *codes = n * k / 2;
    else if (s->kind == CODA_PACK_COMPRESSED_TENSORS) {
        *codes = n * CEIL_DIV(k * b, 32) * 4;
        *zeros = points ? CEIL_DIV(n * b, 32) * 4 * groups : 0;
    } else if (s->kind == CODA_PACK_GGUF) {
        *codes = coda_packed_bytes(&t->f, 16, k) / 16 * n; /* as long as k fills records */
        *scales = *zeros = 0;
    }
}

static char *bytes(int64_t n, int last)
{
    char *p = malloc((size_t)MAX(n, 1));
    for (int64_t i = 0; i < n; i++) p[i] = (char)(random_next(&rng) >> 40 & (chance(30) ? 0xff : last));
    return p;
}

static coda_pack_kind kind_of(const coda_pack_format *f)
{
    if (chance(25)) return (coda_pack_kind)(1 + below(7));
    if (f->codes == CODA_CODES_E2M1) return chance(50) ? CODA_PACK_NIBBLES : CODA_PACK_GGUF;
    if (f->codes == CODA_CODES_INT4 && f->zeros == CODA_ZEROS_POINTS) return (coda_pack_kind)(3 + below(4));
    if (f->codes == CODA_CODES_INT4 || f->codes == CODA_CODES_INT8) return CODA_PACK_COMPRESSED_TENSORS;
    return f->scales >= CODA_SCALES_F16_U6 || chance(50) ? CODA_PACK_GGUF : CODA_PACK_CODES;
}

static void draw_orders(struct sample *t)
{
    int64_t k = t->s.columns, n = t->s.rows, g = t->f.group ? t->f.group : k;
    if (chance(40)) {
        t->s.g_idx = t->g_idx = malloc((size_t)k * 4);
        int64_t step = chance(50) ? 1 : 1 + 2 * below(40);
        for (int64_t i = 0; i < k; i++) t->g_idx[i] = (int32_t)(i * step % k / g);
        if (chance(20)) t->g_idx[below(k)] = (int32_t)(below(2) ? random_next(&rng) : (uint64_t)below(k));
        t->column_order = malloc((size_t)k * 4);
        int moved = coda_pack_order(&t->f, &t->s, t->column_order);
        if (moved > 0) t->s.column_order = t->column_order;
        if (chance(5)) t->column_order[below(k)] = (int32_t)random_next(&rng);
    }
    if (!chance(20)) return;
    t->s.row_order = t->row_order = malloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++) t->row_order[i] = (int32_t)below(n);
    if (chance(10)) t->row_order[below(n)] = (int32_t)random_next(&rng);
}

static void mistake(struct sample *t)
{
    switch (below(9)) {
    case 0: t->s.codes_bytes -= below(t->s.codes_bytes + 1); break;
    case 1: t->s.scales_bytes -= below(t->s.scales_bytes + 1); break;
    case 2: t->s.zeros_bytes -= below(t->s.zeros_bytes + 1); break;
    case 3: t->s.kind = (coda_pack_kind)below(9); break;
    case 4: t->s.rows += below(9) - 4; break;
    case 5: t->s.columns += below(65) - 32; break;
    case 6: t->s.scale_type = (coda_pack_scales)below(8); break;
    case 7: t->s.block_rows = (int32_t)(below(300) - 10); break;
    case 8: coda_pack_format_find(words[below(ARRAY_SIZE(words))], &t->f); break;
    }
}

/* Blocks of exactly so many bytes, which a sanitizer watches. */
static void cut(char **p, const void **field, int64_t n)
{
    if (!*p) return;
    char *less = malloc((size_t)MAX(n, 1));
    memcpy(less, *p, (size_t)n);
    free(*p);
    *field = *p = less;
}

static struct sample draw(void)
{
    static const int units[] = {1, 8, 32, 64, 128, 256};
    struct sample t = {.f = CODA_PACK_FORMAT_INIT, .s = CODA_PACK_SOURCE_INIT};
    coda_pack_format_find(words[below(ARRAY_SIZE(words))], &t.f);
    t.s.kind = kind_of(&t.f);
    t.s.rows = 1 + below(chance(50) ? 64 : 5);
    if (chance(60)) t.s.rows = CEIL_DIV(t.s.rows, 8) * 8;
    t.s.columns = units[below(6)] * (1 + below(5));
    t.s.block_rows = t.s.kind == CODA_PACK_CODES && chance(50) ? (int32_t)(1 + below(200)) : 0;
    shape(&t, &t.s.codes_bytes, &t.s.scales_bytes, &t.s.zeros_bytes);
    t.s.codes = t.codes = bytes(t.s.codes_bytes, 0x3b);
    if (t.s.scales_bytes) t.s.scales = t.scales = bytes(t.s.scales_bytes, 0x3b);
    if (t.s.zeros_bytes) t.s.zeros = t.zeros = bytes(t.s.zeros_bytes, 0x0b);
    draw_orders(&t);
    int64_t was[2] = {t.s.rows, t.s.columns};
    for (int n = chance(50) ? (int)below(4) : 0; n > 0; n--) mistake(&t);
    if (t.s.columns > was[1] || t.s.rows > was[0]) t.s.g_idx = NULL, t.s.column_order = t.s.row_order = NULL;
    cut(&t.codes, &t.s.codes, t.s.codes_bytes);
    cut(&t.scales, &t.s.scales, t.s.scales_bytes);
    cut(&t.zeros, &t.s.zeros, t.s.zeros_bytes);
    return t;
}

static void drop(struct sample *t)
{
    void *all[] = {t->codes, t->scales, t->zeros, t->g_idx, t->column_order, t->row_order};
    for (int i = 0; i < ARRAY_SIZE(all); i++) free(all[i]);
}

/* Decodes it, too, and compares with ranges of 16 rows. */
static void check_packed(const struct sample *t, const char *packed, int64_t size)
{
    int64_t n = t->s.rows, k = t->s.columns;
    char *block = malloc((size_t)coda_packed_bytes(&t->f, MIN(n, 16), k)), *at = block;
    float *row = malloc((size_t)k * sizeof *row);
    for (int64_t first = 0; first < n; first += 16) {
        int64_t rows = MIN(16, n - first), from = first ? coda_packed_bytes(&t->f, first, k) : 0;
        int64_t some = coda_packed_bytes(&t->f, rows, k);
        if (coda_pack(&t->f, &t->s, first, rows, at) != CODA_OK) stop("a range is refused");
        if (from + some > size || memcmp(packed + from, at, (size_t)some)) stop("a range differs");
    }
    for (int64_t r = 0; r < n; r++)
        if (coda_unpack(&t->f, packed, n, k, r, 0, k, row) != CODA_OK) stop("it is not unpacked");
    for (int i = 0; i < 20; i++) {
        int64_t r = below(n), k0 = below(k), some = below(k - k0 + 1);
        float *part = malloc((size_t)some * sizeof *part + 1);
        if (coda_unpack(&t->f, packed, n, k, r, k0, some, part) != CODA_OK) stop("a part is not unpacked");
        coda_unpack(&t->f, packed, n, k, r, 0, k, row);
        if (memcmp(part, row + k0, (size_t)some * sizeof *part)) stop("a part differs");
        free(part);
    }
    free(row);
    free(block);
}

/* Twice, over different bytes: what is not written differs. */
static bool try(const struct sample *t)
{
    int64_t size = coda_packed_bytes(&t->f, t->s.rows, t->s.columns);
    char *packed[2];
    coda_status status[2];
    for (int i = 0; i < 2; i++) {
        packed[i] = malloc((size_t)MAX(size, 1));
        memset(packed[i], i ? 0x5a : 0xa5, (size_t)MAX(size, 1));
        status[i] = coda_pack(&t->f, &t->s, 0, t->s.rows, packed[i]);
    }
    if (status[0] != status[1]) stop("refused once, packed once");
    if (status[0] != CODA_OK && (!*coda_error() || strchr(coda_error(), '\n'))) stop("not one line");
    if (status[0] == CODA_OK && memcmp(packed[0], packed[1], (size_t)size)) stop("bytes that nobody wrote");
    if (status[0] == CODA_OK) check_packed(t, packed[0], size);
    free(packed[0]);
    free(packed[1]);
    return status[0] == CODA_OK;
}

int main(int argc, char **argv)
{
    double end = (double)time(NULL) + (argc > 1 ? atof(argv[1]) : 10);
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : random_seed();
    long cases = 0, good = 0, of_kind[8] = {0};
    for (seed = first; (double)time(NULL) < end; seed++, cases++) {
        rng = (struct random){seed};
        struct sample t = draw();
        bool packed = try(&t);
        good += packed;
        if (packed) of_kind[t.s.kind]++;
        drop(&t);
    }
    for (int i = 1; i < ARRAY_SIZE(of_kind) && cases > 2000; i++)
        if (!of_kind[i]) return fprintf(stderr, "fuzz_pack: kind %d was never packed\n", i), 1;
    printf("fuzz_pack: %ld sources, %ld of them packed, seed %llu: ok\n", cases, good,
           (unsigned long long)first);
    return 0;
}
