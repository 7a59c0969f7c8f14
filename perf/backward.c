/*
 * backward.c -- backward passes as coda_grad makes them, beside the same unfused on cuBLASLt and beside
 * cuBLASLt's bare products.
 *
 *     layer       x1 = x0 + y0 w0',  z1 = rms_norm(x1) w1',  x2 = x1 + swiglu(z1) w2',
 *                 qkv = rope(rms_norm(x2) w3'): gradients of all leaves from dx2 and dqkv and what the
 *                 forward has kept (coda_split, CODA_KEEP_MORE); those of weights in bf16
 *     layer-f32   the same, those of weights in fp32 and added to what is there; "bf16" is layer
 *     layer-both  forward and backward in one plan
 *     swiglu, rms  SwiGLU, F to D, or RMSNorm, D to 3 D, and its product: backward from their operands
 *     paper/rms   one product and what the gradient of an RMSNorm does to its result, M = N = K = D:
 *                 dx = g + (dz w gain - x r zdz) r, and the column sums of dz w x r, the gain's gradient
 *     columns     paper/rms of 16384 tokens, D to 3 D; "base" of both is without the column sums
 *     paper/swiglu  one product, of whose result SwiGLU's gradient, SwiGLU again, and row sums of z dz
 *     wgrad       gradients of the layer's four weights alone, in fp32
 *     loss        linear cross-entropy and its gradients; K is the vocabulary
 *     loss-chunks the same by four chunks of rows, dw in fp32
 *     adamw       AdamW of 2^27 parameters, beside a copy of as many bytes
 *     norm        the norm of 2^27 gradients, beside reading them
 *     embedding   the gradient of a table of 32768 rows by 16384 ids, random or all equal
 *     attention   its gradients, causal, two sequences of 32 heads; TFLOP/s are those of five products.
 *                 "attention-64" has heads of 64 columns, "attention-groups" 4 heads on each of keys
 *
 * LLaMA's shapes: D 2048, 4096, 8192; 16384 tokens; heads of 128. What the library cannot do yet is left out
 * with its reason. With --check, all is small.
 */
#include "backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 3, SEQUENCES = 2, VOCABULARY = 32768, ROW = 4096, EQUAL_ID = 7, KINDS = 21 };
enum shape { OF_D, SQUARE, OF_NORM, OF_VOCABULARY, OF_PARAMETERS, OF_TABLE, OF_HEADS };

struct kind {
    const char *name;
    void (*graph)(coda_graph *, const struct figure *, int side);
    void (*peer)(coda_graph *, const struct figure *); /* of the last side */
    void (*check)(struct figure *);
    double (*floor)(const struct figure *, double tflops, double tbytes);
    const struct way *way;
    enum shape shape;
    bool split; /* the plan is the graph's backward */
};

static const struct way against_products[SIDES] = {
    {"coda", 0, CODA_FOLD_NONE},
    {"unfused", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE},
    {"cublaslt", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE}};
static const struct way against_cublaslt[SIDES] = {
    {"coda", 0, CODA_FOLD_NONE}, {"cublaslt", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE}};
static const struct way against_copy[SIDES] = {{"coda", 0, CODA_FOLD_NONE}, {"copy", 0, CODA_FOLD_NONE}};
static const struct way against_read[SIDES] = {{"coda", 0, CODA_FOLD_NONE}, {"read", 0, CODA_FOLD_NONE}};
static const struct way against_bf16[SIDES] = {{"coda", 0, CODA_FOLD_NONE},
                                               {"unfused", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE},
                                               {"bf16", 0, CODA_FOLD_NONE},
                                               {"cublaslt", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE}};
static const struct way against_base[SIDES] = {{"coda", 0, CODA_FOLD_NONE},
                                               {"unfused", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE},
                                               {"base", 0, CODA_FOLD_NONE},
                                               {"cublaslt", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE}};
static const struct way alone[SIDES] = {{"coda", 0, CODA_FOLD_NONE}};

/* ---- The program ---- */

static const struct kind kinds[KINDS] = {
    {"layer", layer_graph, layer_products, check_layer, layer_floor, against_products, OF_D, true},
    {"layer-f32", layer_graph, layer_products, check_layer, layer_floor, against_bf16, OF_D, true},
    {"layer-both", layer_graph, layer_products, check_layer_both, layer_floor, against_products, OF_D, false},
    {"swiglu", swiglu_graph, two_products, check_swiglu, swiglu_floor, against_products, OF_D, false},
    {"rms", rms_graph, two_products, check_rms, rms_floor, against_products, OF_D, false},
    {"paper/rms", paper_rms_graph, paper_product, check_paper_rms, paper_floor, against_base, SQUARE, false},
    {"columns", paper_rms_graph, paper_product, check_paper_rms, paper_floor, against_base, OF_NORM, false},
    {"paper/swiglu", paper_swiglu_graph, paper_product, check_paper_swiglu, paper_floor, against_products,
     SQUARE, false},
    {"wgrad/w0", weight_graph, weight_product, check_weight, weight_floor, against_cublaslt, OF_D, false},
    {"wgrad/w1", weight_graph, weight_product, check_weight, weight_floor, against_cublaslt, OF_D, false},
    {"wgrad/w2", weight_graph, weight_product, check_weight, weight_floor, against_cublaslt, OF_D, false},
    {"wgrad/w3", weight_graph, weight_product, check_weight, weight_floor, against_cublaslt, OF_D, false},
    {"loss", loss_graph, loss_products, check_loss, loss_floor, against_products, OF_VOCABULARY, false},
    {"loss-chunks", loss_graph, loss_products, check_loss, loss_floor, against_cublaslt, OF_VOCABULARY,
     false},
    {"adamw", adamw_graph, copy_graph, check_adamw, parameters_floor, against_copy, OF_PARAMETERS, false},
    {"norm", norm_graph, read_graph, check_norm, parameters_floor, against_read, OF_PARAMETERS, false},
    {"embedding/random", embedding_graph, NULL, check_embedding, table_floor, alone, OF_TABLE, false},
    {"embedding/equal", embedding_graph, NULL, check_embedding, table_floor, alone, OF_TABLE, false},
    {"attention", attention_graph, NULL, check_attention, attention_floor, alone, OF_HEADS, true},
    {"attention-64", attention_graph, NULL, check_attention, attention_floor, alone, OF_HEADS, true},
    {"attention-groups", attention_graph, NULL, check_attention, attention_floor, alone, OF_HEADS, true},
};

/* The forward or the backward of a joint graph, which is freed. */
static coda_graph *half(const struct figure *f, coda_graph *joint, bool backward)
{
    coda_split_options opt = CODA_SPLIT_OPTIONS_INIT;
    coda_graph *part[2] = {NULL, NULL};
    opt.keep = CODA_KEEP_MORE;
    int outputs = kinds[f->variant].shape == OF_HEADS ? 1 : 2;
    coda_split(joint, outputs, &opt, &part[0], &part[1]);
    coda_graph_free(joint);
    coda_graph_free(part[!backward]);
    return part[backward];
}

static coda_graph *build(const struct figure *f, int side)
{
    const struct kind *kind = &kinds[f->variant];
    if (side >= SIDES || !kind->way[side].name) return NULL;
    bool last = kind->peer && (side == SIDES - 1 || !kind->way[side + 1].name);
    coda_graph *g = coda_graph_new();
    if (last) kind->peer(g, f);
    else kind->graph(g, f, side);
    return kind->split && !last ? half(f, g, true) : g;
}

static coda_graph *before(const struct figure *f)
{
    coda_graph *g = coda_graph_new();
    kinds[f->variant].graph(g, f, FUSED);
    return half(f, g, false);
}

/* Says why not. */
static bool possible(const struct figure *f)
{
    coda_graph *g = build(f, FUSED);
    bool fits = g && coda_graph_status(g) == CODA_OK;
    if (!fits) fprintf(stderr, "%-28s left out: %s\n", f->name, coda_error());
    coda_graph_free(g);
    return fits;
}

static bool ids(const struct figure *f, const char *tensor, int64_t i, float *out)
{
    uint64_t z = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
    if (strcmp(tensor, "ids") != 0) return false;
    *out = is(f, "embedding/equal") ? EQUAL_ID : (float)((z ^ z >> 29) % (uint64_t)f->k);
    return true;
}

/* Sums begin at 0; rates and corrections are those of a training's start. */
static bool number(const struct figure *f, const char *tensor, int64_t i, float *out)
{
    static const char *const scalar[] = {"lr", "c1", "c2", "wd"};
    static const float value[] = {1e-3f, 1.5f, 2.5f, 0.1f};
    for (int s = 0; s < 4; s++)
        if (!strcmp(tensor, scalar[s])) return *out = value[s], true;
    bool sum = !strncmp(tensor, "dw", 2) || !strncmp(tensor, "dgain", 5) || !strncmp(tensor, "u_d", 3);
    return sum ? *out = 0, true : ids(f, tensor, i, out);
}

static void shape_of(struct figure *f, enum shape shape, int size, bool small)
{
    static const int64_t d[SIZES] = {2048, 4096, 8192}, hidden[SIZES] = {5632, 11008, 22016};
    static const int64_t vocabulary[] = {VOCABULARY, 128256};
    f->m = small ? 64 : 16384;
    f->n = small ? 256 << size : d[size];
    f->k = small ? 320 << size : hidden[size];
    if (shape == SQUARE) f->m = f->k = f->n;
    if (shape == OF_NORM) f->k = 3 * f->n;
    if (shape == OF_VOCABULARY) f->n = small ? 256 : 4096, f->k = small ? 512 << size : vocabulary[size];
    if (shape == OF_PARAMETERS) f->n = small ? 64 : ROW, f->m = small ? 128 : (1 << 27) / ROW;
    if (shape == OF_TABLE) f->n = small ? 128 : ROW, f->k = small ? 32 : VOCABULARY;
    if (shape == OF_HEADS) f->n = (small ? 2 : 32) * head_columns(f), f->k = f->m / SEQUENCES;
}

/* false: there is no such figure. */
static bool make(struct figure *f, int kind, int size, bool small)
{
    enum shape shape = kinds[kind].shape;
    *f = (struct figure){.variant = kind, .way = kinds[kind].way, .build = build, .number = number};
    int sizes = shape <= OF_NORM ? SIZES : !strcmp(kinds[kind].name, "loss-chunks") ? 2 : 1;
    if (size >= sizes) return false;
    f->small = small;
    snprintf(f->name, sizeof f->name, "backward/%s/", kinds[kind].name); /* shapes are by kind */
    shape_of(f, shape, size, small);
    f->check = kinds[kind].check;
    f->floor = kinds[kind].floor;
    if (kinds[kind].split) f->before = before;
    if (shape == OF_HEADS) f->flops = attention_flops(f);
    int64_t shown = shape == OF_VOCABULARY ? f->k : shape == OF_PARAMETERS ? f->m * f->n : f->n;
    snprintf(f->name, sizeof f->name, "backward/%s/%lld", kinds[kind].name, (long long)shown);
    return possible(f);
}

int main(int argc, char **argv)
{
    static struct figure figure[SIZES * KINDS];
    bool small = false;
    int n = 0;
    for (int i = 1; i < argc; i++) small = small || !strcmp(argv[i], "--check");
    for (int k = 0; k < KINDS; k++)
        for (int size = 0; size < SIZES; size++) n += make(&figure[n], k, size, small);
    return bench_main(argc, argv, "backward", figure, n);
}
