/*
 * quant.c -- weights of 4 to 8 bits, beside the same product of bf16 ones.
 *
 *     quant/FORMAT/M/..   y [M,22016] = x [M,4096] w', x and y bf16, w as the format has it
 *     w8a8/M/N            y [M,N] = x [M,4096] w', w f8e4m3 and x rounded to f8e4m3 row by row on the way
 *
 * Results are compared with fp64 of the weights as their codes mean them; those of w8a8 with fp64 of x as it
 * was, from which rounding it takes 2.6 %.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "tensor.h"

enum {
    N = 22016,
    K = 4096,
    PERIOD = 2048,
    SAMPLES = 256
}; /* PERIOD: rows after which packed weights repeat */
static const struct way way[SIDES] = {{"coda", 0, CODA_FOLD_NONE}, {"bf16", 0, CODA_FOLD_NONE}};

/* ---- Formats ---- */

/* A block of GGUF's, of random codes: where its scale lies, perhaps with a minimum behind it. */
enum scale { AS_F16, AS_F16_PAIR, AS_E8M0, AS_E4M3 };
static const struct format {
    const char *word; /* of coda_pack_format_find; NULL: a plain weight of 8 bits with a scale for each row */
    const char *name;
    coda_dtype plain;
    int bytes, columns, at; /* of a block; bytes 0: int4 as compressed-tensors has it */
    enum scale scale;
} format[] = {
    {NULL, "f8e4m3", CODA_F8E4M3, 0, 0, 0, AS_F16},
    {NULL, "i8", CODA_I8, 0, 0, 0, AS_F16},
    {"int4_g128_bf16", "int4_g128", CODA_U8, 0, 128, 0, AS_F16},
    {"q8_0", "q8_0", CODA_U8, 34, 32, 0, AS_F16},
    {"q4_0", "q4_0", CODA_U8, 18, 32, 0, AS_F16},
    {"q4_k", "q4_k", CODA_U8, 144, 256, 0, AS_F16_PAIR},
    {"q5_k", "q5_k", CODA_U8, 176, 256, 0, AS_F16_PAIR},
    {"q6_k", "q6_k", CODA_U8, 210, 256, 208, AS_F16},
    {"mxfp4", "mxfp4", CODA_U8, 17, 32, 0, AS_E8M0},
    {"nvfp4", "nvfp4", CODA_U8, 36, 64, 0, AS_E4M3},
};
enum { FORMATS = sizeof format / sizeof *format, W8A8 = FORMATS };

static coda_pack_format pack_format(const struct format *f)
{
    coda_pack_format p = CODA_PACK_FORMAT_INIT;
    must(coda_pack_format_find(f->word, &p), "coda_pack_format_find");
    return p;
}

static void set_scale(const struct format *f, uint8_t *block, uint64_t *seed)
{
    uint16_t h[] = {f16_of_float((float)(0.01 + 0.01 * uniform(seed))), f16_of_float(0.02f)};
    switch (f->scale) {
    case AS_F16: memcpy(block + f->at, h, 2); break;
    case AS_F16_PAIR: memcpy(block + f->at, h, 4); break;
    case AS_E8M0: block[f->at] = (uint8_t)(118 + (int)(4 * uniform(seed))); break;
    case AS_E4M3:
        for (int i = 0; i < 4; i++) block[f->at + i] = (uint8_t)(0x10 + (int)(8 * uniform(seed)));
    }
}

/* PERIOD rows of random codes, packed. Made once for each format. */
static const uint8_t *packed(const struct format *f)
{
    static uint8_t *made[FORMATS];
    uint8_t **to = &made[f - format];
    if (*to) return *to;
    coda_pack_format p = pack_format(f);
    coda_pack_source source = CODA_PACK_SOURCE_INIT;
    int64_t blocks = (int64_t)PERIOD * (K / f->columns), bytes = f->bytes ? f->bytes : f->columns / 2;
    uint64_t seed = 1;
    uint8_t *codes = malloc((size_t)(blocks * bytes));
    uint16_t *scales = malloc((size_t)blocks * 2);
    *to = malloc((size_t)coda_packed_bytes(&p, PERIOD, K));
    must(!codes || !scales || !*to, "malloc");
    for (int64_t i = 0; i < blocks * bytes; i++) codes[i] = (uint8_t)(256 * uniform(&seed));
    for (int64_t i = 0; i < blocks; i++)
        if (f->bytes) set_scale(f, codes + i * bytes, &seed);
        else scales[i] = bf16_of_float((float)(0.003 + 0.002 * uniform(&seed)));
    source.kind = f->bytes ? CODA_PACK_GGUF : CODA_PACK_COMPRESSED_TENSORS;
    source.rows = PERIOD, source.columns = K;
    source.codes = codes, source.codes_bytes = blocks * bytes;
    if (!f->bytes) source.scales = scales, source.scales_bytes = 2 * blocks;
    if (coda_pack(&p, &source, 0, PERIOD, *to))
        fprintf(stderr, "perf: %s: %s\n", f->name, coda_error()), exit(1);
    free(codes);
    free(scales);
    return *to;
}

static const uint8_t *bytes_of(const struct figure *f, int64_t *period)
{
    coda_pack_format p = pack_format(&format[f->variant]);
    *period = coda_packed_bytes(&p, PERIOD, K);
    return packed(&format[f->variant]);
}

/* ---- Graphs ---- */

static coda_value scaled(coda_graph *g, coda_value y, int64_t n)
{
    return coda_mul(g, y, coda_weight(g, "scale", CODA_F32, 1, &n));
}

static coda_value narrow_product(coda_graph *g, coda_value x, const struct figure *f)
{
    int64_t dims[] = {f->n, f->k};
    coda_value s;
    if (f->variant == W8A8) {
        coda_value q = coda_quantize_rows(g, x, CODA_F8E4M3, 0, &s);
        coda_value y = coda_matmul(g, q, coda_weight(g, "w", CODA_F8E4M3, 2, dims));
        return coda_cast(g, scaled(g, coda_mul(g, y, s), f->n), CODA_BF16);
    }
    const struct format *t = &format[f->variant];
    if (!t->word) return scaled(g, coda_matmul(g, x, coda_weight(g, "w", t->plain, 2, dims)), f->n);
    coda_pack_format p = pack_format(t);
    return coda_matmul(g, x, coda_weight_packed(g, "packed", &p, 2, dims, CODA_BF16));
}

static coda_graph *build(const struct figure *f, int side)
{
    if (side > 1) return NULL;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){f->m, f->k});
    coda_output(g, "y",
                side ? coda_matmul(g, x, coda_weight(g, "b", CODA_BF16, 2, (int64_t[]){f->n, f->k}))
                     : narrow_product(g, x, f));
    return g;
}

/* ---- What it should be ---- */

static void weight_row(struct figure *f, int64_t j, double *out)
{
    if (f->variant < FORMATS && format[f->variant].word) {
        static float w[K];
        coda_pack_format p = pack_format(&format[f->variant]);
        must(coda_unpack(&p, packed(&format[f->variant]), PERIOD, K, j % PERIOD, 0, K, w), "coda_unpack");
        for (int64_t i = 0; i < K; i++) out[i] = (double)w[i];
        return;
    }
    double scale = tensor_at(figure_tensor(f, "scale"), j);
    tensor_row(figure_tensor(f, "w"), j, out);
    for (int64_t i = 0; i < f->k; i++) out[i] *= scale;
}

/* Columns from all of the matrix, of the first row and the last. */
static void check(struct figure *f)
{
    double *got = malloc(sizeof *got * (size_t)(2 * f->n)), *w = malloc(sizeof *w * (size_t)(3 * f->k));
    must(!got || !w, "malloc");
    double *x = w + f->k, off = 0, all = 0, limit = f->variant == W8A8 ? 0.05 : 0x1p-8;
    for (int r = 0; r < 2; r++) {
        figure_row(f, 0, "y", r * (f->m - 1), got + r * f->n);
        tensor_row(figure_tensor(f, "x"), r * (f->m - 1), x + r * f->k);
    }
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t j = i * (f->n - 1) / (SAMPLES - 1);
        weight_row(f, j, w);
        for (int r = 0; r < 2; r++) {
            double y = 0;
            for (int64_t c = 0; c < f->k; c++) y += x[r * f->k + c] * w[c];
            off += (got[r * f->n + j] - y) * (got[r * f->n + j] - y), all += y * y;
        }
    }
    f->error = sqrt(off / all);
    f->excess = f->error / limit;
    free(got);
    free(w);
}

/* ---- Figures ---- */

static double floor_of(const struct figure *f, double tflops, double tbytes)
{
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    coda_plan_stats_get(f->side[0].plan, &s);
    double rate = f->variant == W8A8 ? 2 * tflops : tflops;
    return 1e3 * fmax(s.flops / (rate * 1e12), (double)s.bytes / (tbytes * 1e12));
}

int main(int argc, char **argv)
{
    static const int64_t m[] = {1, 8, 16, 64, 96, 256, 2048}, many[] = {2048, 16384}, n[] = {4096, 12288};
    enum { HEIGHTS = sizeof m / sizeof *m };
    static struct figure figure[FORMATS * HEIGHTS + 4];
    int count = 0;
    for (int v = 0; v < FORMATS; v++)
        for (int i = 0; i < HEIGHTS; i++, count++) {
            figure[count] = (struct figure){.m = m[i], .n = N, .k = K, .variant = v};
            figure[count].small = m[i] == 1;
            snprintf(figure[count].name, sizeof figure->name, "quant/%s/%d/22016x4096", format[v].name,
                     (int)m[i]);
        }
    for (int i = 0; i < 4; i++, count++) {
        figure[count] = (struct figure){.m = many[i / 2], .n = n[i % 2], .k = K, .variant = W8A8};
        snprintf(figure[count].name, sizeof figure->name, "w8a8/%d/%d", (int)many[i / 2], (int)n[i % 2]);
    }
    for (int i = 0; i < count; i++) {
        figure[i].way = way, figure[i].build = build, figure[i].check = check, figure[i].floor = floor_of;
        figure[i].bytes = bytes_of;
    }
    return bench_main(argc, argv, "quant", figure, count);
}
