/*
 * layer.c -- parts of a LLaMA block, and the whole of it, against the same unfused on cuBLASLt and
 * against cuBLASLt's bare products.
 *
 *     pattern   h = a w' + r;  y = f(rms_norm(h) v'),  f nothing, SwiGLU, RoPE or cross-entropy
 *     layer     qkv = rope(rms_norm(x) w'),  h = a o' + x,  y = swiglu(rms_norm(h) g') d' + h
 *     block     the layer, with a = attention(qkv): two causal sequences. Its bare side
 *               has our attention, too
 *     decode    for one token, layers with weights of their own, one after the other, in one plan; a is v,
 *               as attention to a single token is. Beside it, how long it takes to read as many bytes
 *     decode8   the same for a token of each of 8 sequences
 *
 * Each runs with the gains of its norms in the epilogues ("coda") and folded into the weights
 * ("folded"). LLaMA's shapes: D 2048, 4096, 8192; 16384 tokens; heads of 128, vocabulary 32768.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

enum { VOCABULARY = 32768, TOKENS = 16384, SEQUENCES = 2, CONTEXT = 16 };
enum { MOST_LAYERS = 32, MOST_WEIGHTS = 13 }; /* of decode; GB */
enum { PLAIN, SWIGLU, ROPE, LOSS, LAYER, BLOCK, DECODE, DECODE_8, VARIANTS };
enum { CODA, FOLDED, UNFUSED, BARE, READ };

static const char *const variant_name[VARIANTS] = {
    "pattern/plain", "pattern/swiglu", "pattern/rope", "pattern/loss", "layer", "block", "decode", "decode8"};
static const struct way way[SIDES] = {{"coda", 0, CODA_FOLD_NONE},
                                      {"folded", 0, CODA_FOLD_COPY},
                                      {"unfused", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE},
                                      {"cublaslt", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE},
                                      {"read", 0, CODA_FOLD_NONE}};

static bool decodes(const struct figure *f) { return f->variant >= DECODE; }

/* A figure's n is D and its k is F. */
static int64_t length(const struct figure *f) { return f->variant == BLOCK ? f->m / SEQUENCES : f->m; }

/* ---- Graphs ---- */

static coda_value tokens(coda_graph *g, const struct figure *f, const char *name, int64_t columns)
{
    if (f->variant != BLOCK) return coda_input(g, name, CODA_BF16, 2, (int64_t[]){f->m, columns});
    return coda_input(g, name, CODA_BF16, 3, (int64_t[]){SEQUENCES, length(f), columns});
}

static coda_value weight(coda_graph *g, const char *name, int64_t n, int64_t k)
{
    return coda_weight(g, name, CODA_BF16, 2, (int64_t[]){n, k});
}

/* A weight of layer l. */
static coda_value own(coda_graph *g, const char *name, int l, int rank, int64_t n, int64_t k)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%s.%d", name, l);
    return coda_weight(g, l ? numbered : name, CODA_BF16, rank, (int64_t[]){n, k});
}

static coda_value norm(coda_graph *g, const struct figure *f, coda_value x, const char *gain, int l)
{
    return coda_rms_norm(g, x, own(g, gain, l, 1, f->n, 1), 1e-5f);
}

static coda_value rotated(coda_graph *g, const struct figure *f, coda_value qkv)
{
    coda_rope_options opt = CODA_ROPE_OPTIONS_INIT;
    opt.head_dim = HEAD;
    opt.heads = 2 * f->n / HEAD;
    return coda_rope(g, qkv, CODA_NONE, &opt);
}

static coda_value losses(coda_graph *g, const struct figure *f, coda_value logits)
{
    coda_cross_entropy_options opt = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    opt.reduction = CODA_REDUCE_NONE;
    return coda_cross_entropy(g, logits, coda_input(g, "target", CODA_I32, 1, &f->m), &opt);
}

/* What follows the first product's residual, and columns of the second product. */
static int64_t width(const struct figure *f)
{
    return (int64_t[]){f->n, 2 * f->k, 3 * f->n, VOCABULARY}[f->variant];
}

static int64_t depth(const struct figure *f) { return f->variant <= SWIGLU ? f->n : f->k; }

static void pattern(coda_graph *g, const struct figure *f)
{
    coda_value a = tokens(g, f, "a", depth(f));
    coda_value h = coda_add(g, coda_matmul(g, a, weight(g, "w", f->n, depth(f))), tokens(g, f, "r", f->n));
    coda_value y = coda_matmul(g, norm(g, f, h, "gain", 0), weight(g, "v", width(f), f->n));
    if (f->variant == SWIGLU) y = coda_swiglu(g, y, CODA_STACKED);
    if (f->variant == ROPE) y = rotated(g, f, y);
    if (f->variant == LOSS) y = losses(g, f, y);
    if (f->variant != LOSS) coda_output(g, "h", h);
    coda_output(g, "y", y);
}

static coda_value attended(coda_graph *g, const struct figure *f, coda_value qkv)
{
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    opt.heads = f->n / HEAD;
    opt.causal = 1;
    coda_value part[3];
    for (int i = 0; i < 3; i++) part[i] = coda_slice(g, qkv, 2, i * f->n, (i + 1) * f->n, 1);
    return coda_attention(g, part[0], part[1], part[2], CODA_NONE, &opt);
}

/* Bytes of a layer's weights. */
static double weight_bytes(const struct figure *f)
{
    return 2.0 * (double)f->n * (4.0 * (double)f->n + 3.0 * (double)f->k);
}

static int layers(const struct figure *f)
{
    double most = MOST_WEIGHTS * 1e9 / weight_bytes(f);
    return !decodes(f) ? 1 : most < MOST_LAYERS ? (int)most : MOST_LAYERS;
}

static coda_value attention_of(coda_graph *g, const struct figure *f, coda_value qkv)
{
    if (f->variant == BLOCK) return attended(g, f, qkv);
    if (decodes(f)) return coda_slice(g, qkv, 1, 2 * f->n, 3 * f->n, 1);
    coda_output(g, "qkv", qkv);
    return tokens(g, f, "a", f->n);
}

static coda_value layer(coda_graph *g, const struct figure *f, coda_value x, int l)
{
    int64_t d = f->n;
    coda_value qkv = coda_matmul(g, norm(g, f, x, "gain", l), own(g, "w_qkv", l, 2, 3 * d, d));
    coda_value a = attention_of(g, f, rotated(g, f, qkv));
    coda_value h = coda_add(g, coda_matmul(g, a, own(g, "w_o", l, 2, d, d)), x);
    coda_value gate_up = coda_matmul(g, norm(g, f, h, "gain_mlp", l), own(g, "w_gate_up", l, 2, 2 * f->k, d));
    coda_value z = coda_swiglu(g, gate_up, CODA_STACKED);
    return coda_add(g, coda_matmul(g, z, own(g, "w_down", l, 2, d, f->k)), h);
}

static coda_value bare_layer(coda_graph *g, const struct figure *f, coda_value x, int l)
{
    int64_t d = f->n;
    coda_value qkv = coda_matmul(g, x, own(g, "w_qkv", l, 2, 3 * d, d));
    coda_value h = coda_matmul(g, coda_slice(g, qkv, 1, 2 * d, 3 * d, 1), own(g, "w_o", l, 2, d, d));
    coda_value gate_up = coda_matmul(g, h, own(g, "w_gate_up", l, 2, 2 * f->k, d));
    return coda_matmul(g, coda_slice(g, gate_up, 1, 0, f->k, 1), own(g, "w_down", l, 2, d, f->k));
}

static void stack(coda_graph *g, const struct figure *f,
                  coda_value (*one)(coda_graph *, const struct figure *, coda_value, int))
{
    coda_value x = tokens(g, f, "x", f->n);
    for (int l = 0; l < layers(f); l++) x = one(g, f, x, l);
    coda_output(g, "y", x);
}

/* The products alone, of matrices that lie there; of a block, beside the library's own attention. */
static void bare(coda_graph *g, const struct figure *f)
{
    int64_t d = f->n;
    if (f->variant < LAYER) {
        coda_value a = tokens(g, f, "a", depth(f)), r = tokens(g, f, "r", d);
        coda_output(g, "h", coda_matmul(g, a, weight(g, "w", d, depth(f))));
        coda_output(g, "y", coda_matmul(g, r, weight(g, "v", width(f), d)));
        return;
    }
    bool attends = f->variant == BLOCK;
    coda_value x = tokens(g, f, "x", d), z = tokens(g, f, "z", f->k);
    coda_value a = attends ? attended(g, f, tokens(g, f, "rotated", 3 * d)) : tokens(g, f, "a", d);
    coda_output(g, "qkv", coda_matmul(g, x, weight(g, "w_qkv", 3 * d, d)));
    coda_output(g, "h", coda_matmul(g, a, weight(g, "w_o", d, d)));
    coda_output(g, "gate_up", coda_matmul(g, x, weight(g, "w_gate_up", 2 * f->k, d)));
    coda_output(g, "y", coda_matmul(g, z, weight(g, "w_down", d, f->k)));
}

/* Sums of as many numbers as the layers' weights have. */
static void read_all(coda_graph *g, const struct figure *f)
{
    int64_t rows = layers(f) * (4 * f->n + 3 * f->k);
    coda_output(g, "sums", coda_row_sum(g, weight(g, "all", rows, f->n)));
}

static coda_graph *build(const struct figure *f, int side)
{
    if (side > BARE && !decodes(f)) return NULL;
    coda_graph *g = coda_graph_new();
    if (side == READ) read_all(g, f);
    else if (side == BARE && decodes(f)) stack(g, f, bare_layer);
    else if (side == BARE) bare(g, f);
    else if (f->variant < LAYER) pattern(g, f);
    else stack(g, f, layer);
    return g;
}

/* ---- The same in fp64, for some rows ---- */

/* q and k of a row are turned by its place in its sequence. */
static void rotate_rows(const struct figure *f, int rows, const int64_t *row, double *qkv)
{
    int64_t position[CONTEXT];
    for (int i = 0; i < rows; i++) position[i] = row[i] % length(f);
    rotate(f->n, rows, position, 1, qkv);
}

/* Rows of logits become one loss each, in place. */
static void lose(struct figure *f, int rows, const int64_t *row, double *logits)
{
    const struct tensor *target = figure_tensor(f, "target");
    for (int i = 0; i < rows; i++) {
        double *y = logits + (int64_t)i * VOCABULARY, most = -INFINITY, sum = 0;
        for (int j = 0; j < VOCABULARY; j++) most = fmax(most, y[j]);
        for (int j = 0; j < VOCABULARY; j++) sum += exp(y[j] - most);
        logits[i] = most + log(sum) - y[(int64_t)tensor_at(target, row[i])];
    }
}

/* Attention's result for every STEP-th of the CONTEXT rows of a sequence's start. */
static double *attend(const struct figure *f, int step, const double *qkv)
{
    int64_t d = f->n;
    double *out = calloc((size_t)(CONTEXT / step * d), sizeof *out);
    must(!out, "calloc");
    for (int i = 0; i < CONTEXT; i += step)
        for (int64_t at = 0; at < d; at += HEAD) {
            double p[CONTEXT], sum = 0;
            for (int j = 0; j <= i; j++) {
                p[j] = 0;
                for (int c = 0; c < HEAD; c++) p[j] += qkv[i * 3 * d + at + c] * qkv[j * 3 * d + d + at + c];
                sum += p[j] = exp(p[j] / sqrt(HEAD));
            }
            for (int j = 0; j <= i; j++)
                for (int c = 0; c < HEAD; c++)
                    out[i / step * d + at + c] += p[j] / sum * qkv[j * 3 * d + 2 * d + at + c];
        }
    return out;
}

/* ---- Checks: no side of libcoda may be off much further than the unfused computation ---- */

/* At most 1.2 times the error of the unfused computation, or half a unit of bf16; never above 1 % in a
 * layer, whose errors add up as the roots of their squares do. */
static void judge(struct figure *f, const char *output, int rows, const int64_t *row, const double *want)
{
    double unfused = distance(f, UNFUSED, output, rows, row, want);
    double limit = fmin(1e-2 * sqrt(layers(f)), fmax(0x1p-8, 1.2 * unfused));
    for (int side = CODA; side <= FOLDED; side++) {
        double error = distance(f, side, output, rows, row, want);
        f->error = error <= f->error ? f->error : error; /* NaN stays */
        f->excess = error / limit <= f->excess ? f->excess : error / limit;
    }
}

static void check_pattern(struct figure *f, int rows, const int64_t *row)
{
    double *h = times(f, "w", rows, rows_of(f, "a", rows, row)), *r = rows_of(f, "r", rows, row);
    add(h, r, rows * f->n);
    if (f->variant != LOSS) judge(f, "h", rows, row, h);
    double *y = times(f, "v", rows, normed(f, "gain", rows, f->n, h));
    if (f->variant == SWIGLU) gate(rows, f->k, y);
    if (f->variant == ROPE) rotate_rows(f, rows, row, y);
    if (f->variant == LOSS) lose(f, rows, row, y);
    judge(f, "y", rows, row, y);
    free(h);
    free(r);
    free(y);
}

static double *projected(struct figure *f, int rows, const int64_t *row)
{
    double *x = rows_of(f, "x", rows, row), *qkv = times(f, "w_qkv", rows, normed(f, "gain", rows, f->n, x));
    rotate_rows(f, rows, row, qkv);
    free(x);
    return qkv;
}

static double *attended_rows(struct figure *f, int rows, const int64_t *row)
{
    int64_t context[CONTEXT];
    for (int i = 0; i < CONTEXT; i++) context[i] = row[0] + i;
    double *qkv = projected(f, CONTEXT, context), *a = attend(f, CONTEXT / rows, qkv);
    free(qkv);
    return a;
}

/* What follows attention. Frees a and x. */
static double *rest_of_layer(struct figure *f, int rows, double *a, double *x)
{
    double *h = times(f, "w_o", rows, a);
    add(h, x, rows * f->n);
    double *z = times(f, "w_gate_up", rows, normed(f, "gain_mlp", rows, f->n, h));
    gate(rows, f->k, z);
    double *y = times(f, "w_down", rows, z);
    add(y, h, rows * f->n);
    free(h);
    free(x);
    return y;
}

static void check_layer(struct figure *f, int rows, const int64_t *row)
{
    if (f->variant != BLOCK) {
        double *qkv = projected(f, rows, row);
        judge(f, "qkv", rows, row, qkv);
        free(qkv);
    }
    double *a = f->variant == BLOCK ? attended_rows(f, rows, row) : rows_of(f, "a", rows, row);
    double *y = rest_of_layer(f, rows, a, rows_of(f, "x", rows, row));
    judge(f, "y", rows, row, y);
    free(y);
}

/* Equal numbers in all layers. */
static void check_decode(struct figure *f, int rows, const int64_t *row)
{
    double *x = rows_of(f, "x", rows, row);
    for (int l = 0; l < layers(f); l++) {
        double *qkv = times(f, "w_qkv", rows, normed(f, "gain", rows, f->n, x)), *v = room(rows * f->n);
        for (int i = 0; i < rows; i++)
            memcpy(v + i * f->n, qkv + (3 * i + 2) * f->n, sizeof *v * (size_t)f->n);
        x = rest_of_layer(f, rows, v, x);
        free(qkv);
    }
    judge(f, "y", rows, row, x);
    free(x);
}

/* Row i of those to check: near the start, and the end; for a block, of the second sequence's first CONTEXT;
 * of few rows, the first and the last. */
static int64_t row_to_check(const struct figure *f, int i)
{
    if (decodes(f)) return i * (f->m - 1) / (ROWS - 1);
    return f->variant == BLOCK ? length(f) + i * (CONTEXT / ROWS) : i * (f->m - 1) / ROWS + i;
}

static void check(struct figure *f)
{
    int64_t row[ROWS];
    int rows = f->m < ROWS ? 1 : ROWS;
    for (int i = 0; i < rows; i++) row[i] = row_to_check(f, i);
    if (decodes(f)) check_decode(f, rows, row);
    else if (f->variant < LAYER) check_pattern(f, rows, row);
    else check_layer(f, rows, row);
}

int main(int argc, char **argv)
{
    static const int64_t d[] = {2048, 4096, 8192}, hidden[] = {5632, 11008, 22016};
    static struct figure figure[3 * VARIANTS];
    int n = 0;
    for (int v = 0; v < VARIANTS; v++)
        for (int i = 0; i < 3; i++) {
            struct figure *f = &figure[n++];
            int64_t m = v == DECODE ? 1 : v == DECODE_8 ? 8 : TOKENS;
            *f = (struct figure){.m = m, .n = d[i], .k = hidden[i], .variant = v};
            f->way = way;
            f->build = build;
            f->check = check;
            snprintf(f->name, sizeof f->name, "%s/%d", variant_name[v], (int)d[i]);
        }
    return bench_main(argc, argv, "layer", figure, n);
}
