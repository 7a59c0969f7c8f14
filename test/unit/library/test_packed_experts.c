/* test_packed_experts.c -- stacks of packed matrices, as files of experts have them: packed, evaluated and
 * run on the CPU device, against the files' formulas in fp64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "coda.h"
#include "util_random.h"
#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { EXPERTS = 3, TOKENS = 5, INNER = 64, BLOCK = 32 /* weights of a scale, of both formats */ };

/* Weight (row, k) of rows of INNER: MXFP4 as gpt-oss has it, two codes a byte, scales apart. */
static double mxfp4_weight(const uint8_t *codes, const uint8_t *scales, int64_t row, int64_t k)
{
    static const double magnitude[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    int q = codes[(row * INNER + k) / 2] >> 4 * (k % 2) & 15;
    return (q & 8 ? -1 : 1) * ldexp(magnitude[q & 7], scales[(row * INNER + k) / BLOCK] - 127);
}

/* Q8_0 of GGUF: blocks of an f16 and 32 bytes. The f16s here are powers of two, 2^(e - 15) of exponent e. */
static double q8_0_weight(const uint8_t *blocks, const uint8_t *unused, int64_t row, int64_t k)
{
    const uint8_t *at = blocks + (row * INNER + k) / BLOCK * (2 + BLOCK);
    (void)unused;
    return ldexp((int8_t)at[2 + k % BLOCK], (at[1] >> 2) - 15);
}

static const struct stack {
    const char *word;
    coda_pack_kind kind;
    int64_t code_bytes, scale_bytes; /* of a row */
    double (*weight)(const uint8_t *codes, const uint8_t *scales, int64_t row, int64_t k);
} stacks[] = {
    {"mxfp4", CODA_PACK_NIBBLES, INNER / 2, INNER / BLOCK, mxfp4_weight},
    {"q8_0", CODA_PACK_GGUF, INNER / BLOCK *(2 + BLOCK), 0, q8_0_weight},
};

static void draw_stack(const struct stack *s, int64_t rows, struct random *r, uint8_t *codes, uint8_t *scales)
{
    for (int64_t i = 0; i < rows * s->code_bytes; i++) codes[i] = (uint8_t)random_next(r);
    for (int64_t i = 0; i < rows * s->scale_bytes; i++) scales[i] = (uint8_t)(120 + random_below(r, 8));
    for (int64_t i = 0; i < rows * INNER / BLOCK && !s->scale_bytes; i++) {
        codes[i * (2 + BLOCK)] = 0;
        codes[i * (2 + BLOCK) + 1] = (uint8_t)((6 + random_below(r, 8)) << 2);
    }
}

/* Each matrix behind the last. Where row blocks fill matrices, all of them are one of as many rows. */
static void pack_stack(const struct stack *s, const coda_pack_format *f, int64_t n, const uint8_t *codes,
                       const uint8_t *scales, uint8_t *out)
{
    int64_t each = coda_packed_bytes(f, n, INNER);
    coda_pack_source source = CODA_PACK_SOURCE_INIT;
    source.kind = s->kind, source.columns = INNER;
    for (int e = 0; e < EXPERTS; e++) {
        source.rows = n;
        source.codes = codes + e * n * s->code_bytes, source.codes_bytes = n * s->code_bytes;
        if (scales) source.scales = scales + e * n * s->scale_bytes, source.scales_bytes = n * s->scale_bytes;
        ck_assert_msg(!coda_pack(f, &source, 0, n, out + e * each), "%s", coda_error());
    }
    if (n % 16) return;
    uint8_t *whole = malloc((size_t)(EXPERTS * each));
    source.rows = EXPERTS * n, source.codes = codes, source.scales = scales;
    source.codes_bytes *= EXPERTS, source.scales_bytes *= EXPERTS;
    ck_assert_msg(!coda_pack(f, &source, 0, EXPERTS * n, whole), "%s", coda_error());
    ck_assert(!memcmp(whole, out, (size_t)(EXPERTS * each)));
    free(whole);
}

static void run_stack(coda_graph *g, void *x, void *w, float *y)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    void *workspace = malloc(coda_plan_workspace(p) + 1);
    ck_assert_msg(!coda_run(p, (void *[]){x, w, y}, NULL, workspace, NULL), "%s", coda_error());
    free(workspace);
    coda_plan_free(p);
}

/* y[e] = x[e] w[e]^T, by the formats' formulas in fp64. */
static void check_stack(const struct stack *s, int64_t n)
{
    static uint8_t codes[EXPERTS * 48 * 2 * INNER], scales[EXPERTS * 48 * 2];
    static float x[EXPERTS * TOKENS * INNER], y[EXPERTS * TOKENS * 48];
    static double exact[EXPERTS * TOKENS * 48];
    struct random r = {random_seed() + (uint64_t)n};
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_pack_format_find(s->word, &f);
    draw_stack(s, EXPERTS * n, &r, codes, scales);
    uint8_t *packed = malloc((size_t)(EXPERTS * coda_packed_bytes(&f, n, INNER)));
    pack_stack(s, &f, n, codes, s->scale_bytes ? scales : NULL, packed);
    for (int i = 0; i < ARRAY_SIZE(x); i++) x[i] = (float)random_normal(&r);
    memset(y, 0xff, sizeof y);
    coda_graph *g = coda_graph_new();
    coda_value v = coda_input(g, "x", CODA_F32, 3, (int64_t[]){EXPERTS, TOKENS, INNER}),
               w = coda_weight_packed(g, "w", &f, 3, (int64_t[]){EXPERTS, n, INNER}, CODA_F32);
    coda_output(g, "y", coda_matmul(g, v, w));
    run_stack(g, x, packed, y);
    ck_assert_msg(!coda_evaluate(g, (void *[]){x, packed, exact}), "%s", coda_error());
    for (int64_t i = 0; i < EXPERTS * TOKENS * n; i++) {
        double want = 0, size = 0;
        for (int64_t k = 0; k < INNER; k++) {
            double one =
                (double)x[i / n * INNER + k] * s->weight(codes, scales, i / n / TOKENS * n + i % n, k);
            want += one, size += fabs(one);
        }
        ck_assert_msg(fabs(exact[i] - want) <= 1e-13 * size && fabs(y[i] - want) <= 1e-6 * size,
                      "%s, %d rows, %d: %g, evaluated %g, not %g", s->word, (int)n, (int)i, (double)y[i],
                      exact[i], want);
    }
    coda_graph_free(g);
    free(packed);
}

START_TEST(experts_of_files)
{
    for (int i = 0; i < ARRAY_SIZE(stacks); i++) check_stack(&stacks[i], 48), check_stack(&stacks[i], 21);
}
END_TEST

TESTS(packed_experts, ONE(experts_of_files));
