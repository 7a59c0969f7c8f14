/*
 * encoder.c -- an encoder of MiniLM's shape on sentences of 5 to 39 tokens, 22 on average, packed one behind
 * the other, beside the same sentences padded to 128 tokens.
 *
 *     encoder/packed    sentences of a batch
 *
 * Six layers: attention by 12 heads of 32 columns, LayerNorm behind each residual, GELU, fp16. Packed queries
 * see their own sentence by ranges, padded ones by lengths. "folded" is packed, with gains and biases of
 * norms in the weights, so that products read what is not normalised yet. All must agree.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { PACKED, PADDED, FOLDED };
enum { HIDDEN = 384, INNER = 1536, HEADS = 12, LAYERS = 6, PADDED_TO = 128 };
#define AGREE 0x1p-6 /* what rounding to 11 bits, some fifty times, leaves between two orders of sums */

static const struct way way[SIDES] = {
    {"packed", 0, CODA_FOLD_NONE}, {"padded", 0, CODA_FOLD_NONE}, {"folded", 0, CODA_FOLD_COPY}};

/* A figure's n is the number of sentences, its m that of their tokens. */
static int64_t length(int64_t sentence) { return 5 + sentence * 13 % 35; }

static int64_t start(int64_t sentence)
{
    int64_t at = 0;
    for (int64_t s = 0; s < sentence; s++) at += length(s);
    return at;
}

static int64_t sentence_of(int64_t token)
{
    int64_t s = 0;
    while (token >= length(s)) token -= length(s++);
    return s;
}

/* ---- Data: the same tokens on both sides, and others where one pads ---- */

static float element(int64_t token, int64_t column)
{
    uint64_t x = (uint64_t)(token * HIDDEN + column + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (float)((double)(x >> 40) * 0x1p-24 * 3.4 - 1.7);
}

static bool number(const struct figure *f, const char *tensor, int64_t i, float *out)
{
    int64_t sentence = i / HIDDEN / PADDED_TO, at = i / HIDDEN % PADDED_TO;
    if (!strcmp(tensor, "ranges")) *out = (float)start(sentence_of(i / 2) + i % 2);
    else if (!strcmp(tensor, "lengths")) *out = (float)length(i);
    else if (!strcmp(tensor, "tokens")) *out = element(i / HIDDEN, i % HIDDEN);
    else if (!strcmp(tensor, "rows"))
        *out = element(at < length(sentence) ? start(sentence) + at : f->m + i / HIDDEN, i % HIDDEN);
    else return false;
    return true;
}

/* ---- Graphs ---- */

static coda_value own(coda_graph *g, const char *name, int layer, int64_t n, int64_t k)
{
    char numbered[48];
    snprintf(numbered, sizeof numbered, "%s.%d", name, layer);
    return coda_weight(g, numbered, CODA_F16, k ? 2 : 1, (int64_t[]){n, k});
}

static coda_value linear(coda_graph *g, coda_value x, const char *name, int layer, int64_t n, int64_t k)
{
    char bias[32];
    snprintf(bias, sizeof bias, "%s_bias", name);
    return coda_add(g, coda_matmul(g, x, own(g, name, layer, n, k)), own(g, bias, layer, n, 0));
}

static coda_value norm(coda_graph *g, coda_value x, const char *name, int layer)
{
    char bias[32];
    snprintf(bias, sizeof bias, "%s_bias", name);
    return coda_layer_norm(g, x, own(g, name, layer, HIDDEN, 0), own(g, bias, layer, HIDDEN, 0), 1e-12f);
}

static coda_value encode(coda_graph *g, coda_value x, coda_value lengths, coda_value ranges, int layer)
{
    int axis = ranges.id ? 1 : 2;
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    opt.heads = HEADS;
    opt.ranges = ranges;
    coda_value qkv = linear(g, x, "qkv", layer, 3 * HIDDEN, HIDDEN), part[3];
    for (int i = 0; i < 3; i++) part[i] = coda_slice(g, qkv, axis, i * HIDDEN, (i + 1) * HIDDEN, 1);
    coda_value a = coda_attention(g, part[0], part[1], part[2], lengths, &opt);
    x = norm(g, coda_add(g, linear(g, a, "out", layer, HIDDEN, HIDDEN), x), "attended", layer);
    coda_value h = coda_gelu_erf(g, linear(g, x, "up", layer, INNER, HIDDEN));
    return norm(g, coda_add(g, linear(g, h, "down", layer, HIDDEN, INNER), x), "done", layer);
}

static coda_graph *build(const struct figure *f, int side)
{
    if (side > FOLDED) return NULL;
    coda_graph *g = coda_graph_new();
    coda_value x, lengths = CODA_NONE, ranges = CODA_NONE;
    if (side != PADDED) {
        x = coda_input(g, "tokens", CODA_F16, 2, (int64_t[]){f->m, HIDDEN});
        ranges = coda_input(g, "ranges", CODA_I32, 2, (int64_t[]){f->m, 2});
    } else {
        x = coda_input(g, "rows", CODA_F16, 3, (int64_t[]){f->n, PADDED_TO, HIDDEN});
        lengths = coda_input(g, "lengths", CODA_I32, 1, &f->n);
    }
    for (int l = 0; l < LAYERS; l++) x = encode(g, x, lengths, ranges, l);
    coda_output(g, way[side].name, x);
    return g;
}

/* ---- All agree ---- */

static void check(struct figure *f)
{
    double off[SIDES] = {0}, all = 0, row[SIDES][HIDDEN];
    for (int64_t t = 0; t < f->m; t++) {
        int64_t s = sentence_of(t);
        for (int i = PACKED; i <= FOLDED; i++)
            figure_row(f, i, way[i].name, i == PADDED ? s * PADDED_TO + t - start(s) : t, row[i]);
        for (int i = 0; i < HIDDEN; i++) {
            all += row[PADDED][i] * row[PADDED][i];
            for (int j = PACKED; j <= FOLDED; j++) off[j] += pow(row[j][i] - row[PADDED][i], 2);
        }
    }
    double worst = off[PACKED] > off[FOLDED] || isnan(off[PACKED]) ? off[PACKED] : off[FOLDED];
    f->error = sqrt(worst / all); /* NaN stays */
    f->excess = f->error / AGREE;
}

int main(int argc, char **argv)
{
    static const int64_t sentences[] = {16, 64}; /* a pool of numbers holds 85 */
    static struct figure figure[2];
    for (int i = 0; i < 2; i++) {
        struct figure *f = &figure[i];
        *f = (struct figure){.n = sentences[i],
                             .m = start(sentences[i]),
                             .k = HIDDEN,
                             .way = way,
                             .build = build,
                             .number = number,
                             .check = check};
        snprintf(f->name, sizeof f->name, "encoder/packed/%d", (int)f->n);
    }
    return bench_main(argc, argv, "encoder", figure, 2);
}
