/*
 * quant_file.c -- the formats of safetensors, by the packages' own pages: compressed-tensors, AutoGPTQ,
 * AutoAWQ, ModelOpt, transformers' fp8.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "quant_file.h"
#include "tensor.h"

/* ---- Files ---- */

void made_add(struct made *t, const char *name, const char *type, int rank, const int64_t *dims,
              const void *data, size_t bytes)
{
    json_t *shape = json_array();
    if (!t->header) t->header = json_object();
    for (int d = 0; d < rank; d++) json_array_append_new(shape, json_integer(dims[d]));
    if (t->bytes + bytes > t->room) t->data = realloc(t->data, t->room = 2 * (t->bytes + bytes));
    memcpy(t->data + t->bytes, data, bytes);
    json_object_set_new(t->header, name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets",
                                  (json_int_t)t->bytes, (json_int_t)(t->bytes + bytes)));
    t->bytes += bytes;
}

static void put(const char *folder, const char *name, const void *head, size_t bytes, const void *data,
                size_t more)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(head, 1, bytes, f) == bytes && (!more || fwrite(data, 1, more, f) == more);
    CHECK(f && !fclose(f) && good, "%s cannot be written", path);
}

void made_write(struct made *t, const char *folder, const char *name)
{
    char *text = json_dumps(t->header, JSON_COMPACT);
    uint64_t length = strlen(text);
    char *all = malloc(8 + length);
    memcpy(all, &length, 8);
    memcpy(all + 8, text, length);
    put(folder, name, all, 8 + length, t->data, t->bytes);
    json_decref(t->header);
    free(all);
    free(text);
    free(t->data);
    *t = (struct made){0};
}

/* ---- Numbers ---- */

static const float e2m1[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};

static int draw(uint64_t *seed, int n) { return (int)(uniform(seed) * n); }

/* A scale that makes products keep their size. */
static float draw_scale(const struct quant_kind *k, int columns, uint64_t *seed)
{
    double most = k->floating ? k->bits == 8 ? 100 : 4 : k->bits == 8 ? 80 : 5;
    double s = (0.5 + uniform(seed)) / most / sqrt(columns);
    if (k->scales == 0) return (float)exp2(rint(log2(s)));
    if (k->scales < 0) return (float)double_of_f8(f8_of_double(s * 3584));
    uint64_t room = 0;
    element_set((coda_dtype)k->scales, &room, 0, s);
    return (float)element_get((coda_dtype)k->scales, &room, 0);
}

static float value(const struct quant_kind *k, const struct drawn *d, int n, int i)
{
    int g = d->of[i], q = d->q[(size_t)n * (size_t)d->columns + (size_t)i];
    float s = d->s[n * d->groups + g];
    if (k->floating) return (k->bits == 8 ? (float)double_of_f8((uint8_t)q) : e2m1[q]) * s * d->factor;
    return (float)(q - d->z[n * d->groups + g]) * s;
}

/* Columns of a group lie apart, as many in each. */
static void mix(int32_t *of, int n, uint64_t *seed)
{
    for (int i = n - 1; i > 0; i--) {
        int j = draw(seed, i + 1);
        int32_t x = of[i];
        of[i] = of[j];
        of[j] = x;
    }
}

static int draw_code(const struct quant_kind *k, uint64_t *seed)
{
    int q = draw(seed, 1 << k->bits);
    if (!k->floating) return q - (1 << (k->bits - 1));
    return k->bits == 8 && (q & 127) == 127 ? q - 1 : q; /* no NaN */
}

struct drawn drawn_new(const struct quant_kind *k, int rows, int columns, uint64_t *seed)
{
    int group = k->group ? k->group : columns, groups = (columns + group - 1) / group;
    struct drawn d = {rows, columns, group, groups, .factor = 1};
    size_t all = (size_t)rows * (size_t)columns, scales = (size_t)rows * (size_t)groups;
    d.q = malloc(all * sizeof *d.q);
    d.w = malloc(all * sizeof *d.w);
    d.z = calloc(scales, sizeof *d.z);
    d.s = malloc(scales * sizeof *d.s);
    d.of = malloc((size_t)columns * sizeof *d.of);
    if (k->scales < 0) d.factor = 1 / 3584.0f;
    for (size_t i = 0; i < all; i++) d.q[i] = draw_code(k, seed);
    for (int i = 0; i < columns; i++) d.of[i] = i / group;
    if (k->ordered) mix(d.of, columns, seed);
    for (int n = 0; n < rows; n++)
        for (int g = 0; g < groups; g++) {
            int first = k->shared ? n / k->shared * k->shared : 0;
            d.s[n * groups + g] = first == n ? draw_scale(k, columns, seed) : d.s[first * groups + g];
            if (k->zeros) d.z[n * groups + g] = draw(seed, 15) - 7; /* -8 is 0 of an unsigned code */
        }
    for (int n = 0; n < rows; n++)
        for (int i = 0; i < columns; i++) d.w[(size_t)n * (size_t)columns + (size_t)i] = value(k, &d, n, i);
    return d;
}

void drawn_free(struct drawn *d)
{
    free(d->q);
    free(d->z);
    free(d->s);
    free(d->of);
    free(d->w);
}

/* ---- Parts that layouts share ---- */

static void add(struct made *t, const char *name, const char *suffix, const char *type, int64_t rows,
                int64_t columns, const void *data, size_t bytes)
{
    char whole[160];
    snprintf(whole, sizeof whole, "%s.%s", name, suffix);
    made_add(t, whole, type, columns ? 2 : rows ? 1 : 0, (int64_t[]){rows, columns}, data, bytes);
}

static const char *type_of(int dtype)
{
    return dtype == CODA_BF16 ? "BF16" : dtype == CODA_F16 ? "F16" : "F32";
}

/* Scales of each row, or of each `shared` rows; turned: [groups, rows]. */
static void add_scales(struct made *t, const char *name, const char *suffix, const struct drawn *d,
                       const struct quant_kind *k, bool turned)
{
    int step = k->shared == 1 ? 1 : k->shared ? k->shared : d->rows, rows = (d->rows + step - 1) / step;
    size_t size = k->scales > 0 ? dtype_bytes((coda_dtype)k->scales) : 1, n = 0;
    unsigned char *all = malloc((size_t)rows * (size_t)d->groups * size);
    for (int i = 0; i < rows * d->groups; i++, n++) {
        int row = turned ? i % rows : i / d->groups, g = turned ? i / rows : i % d->groups;
        float s = d->s[row * step * d->groups + g];
        if (k->scales > 0) element_set((coda_dtype)k->scales, all, (int64_t)n, (double)s);
        else all[n] = k->scales ? f8_of_double((double)s) : (uint8_t)(ilogb((double)s) + 127);
    }
    const char *type = k->scales > 0 ? type_of(k->scales) : k->scales ? "F8_E4M3" : "U8";
    bool one = !k->shared;
    add(t, name, suffix, type,
        one      ? 0
        : turned ? d->groups
                 : rows,
        one      ? 0
        : turned ? rows
                 : d->groups,
        all, n * size);
    free(all);
}

/* Words along a line of n codes, b bits each. */
static void words(uint32_t *to, const int *code, int n, int b)
{
    for (int i = 0; i < n; i++) to[i * b / 32] |= ((uint32_t)code[i] & ((1u << b) - 1)) << (i * b % 32);
}

/* [lines][codes of one] -> words of it. Element (line, i) is from[line * by_line + i * by_code] + plus. */
static void add_words(struct made *t, const char *name, const char *suffix, const int *from, int lines,
                      int codes, int by_line, int by_code, int plus, int bits, bool turned)
{
    int each = (codes * bits + 31) / 32;
    uint32_t *all = calloc((size_t)lines * (size_t)each, 4), *line = calloc((size_t)each, 4);
    int *code = malloc((size_t)codes * sizeof *code);
    for (int n = 0; n < lines; n++) {
        for (int i = 0; i < codes; i++) code[i] = from[n * by_line + i * by_code] + plus;
        memset(line, 0, (size_t)each * 4);
        words(line, code, codes, bits);
        for (int i = 0; i < each; i++) all[turned ? i * lines + n : n * each + i] = line[i];
    }
    add(t, name, suffix, "I32", turned ? each : lines, turned ? lines : each, all,
        (size_t)lines * (size_t)each * 4);
    free(all);
    free(line);
    free(code);
}

/* ---- Layouts ---- */

static void lay_bytes(struct made *t, const char *name, const struct drawn *d, const struct quant_kind *k)
{
    size_t n = (size_t)d->rows * (size_t)d->columns;
    uint8_t *all = malloc(n);
    for (size_t i = 0; i < n; i++) all[i] = (uint8_t)d->q[i];
    add(t, name, "weight", k->floating ? "F8_E4M3" : "I8", d->rows, d->columns, all, n);
    add_scales(t, name, strstr(k->config, "weight_block_size") ? "weight_scale_inv" : "weight_scale", d, k,
               false);
    if (k->zeros) {
        int8_t *z = malloc((size_t)d->rows);
        for (int i = 0; i < d->rows; i++) z[i] = (int8_t)d->z[i];
        add(t, name, "weight_zero_point", "I8", d->rows, 1, z, (size_t)d->rows);
        free(z);
    }
    if (strstr(k->config, "static")) add(t, name, "input_scale", "F32", 0, 0, &(float){0.5f}, 4);
    free(all);
}

/* compressed-tensors' integers: codes and zero points plus half their range. */
static void lay_compressed(struct made *t, const char *name, const struct drawn *d,
                           const struct quant_kind *k)
{
    int half = 1 << (k->bits - 1);
    add_words(t, name, "weight_packed", d->q, d->rows, d->columns, d->columns, 1, half, k->bits, false);
    add_scales(t, name, "weight_scale", d, k, false);
    if (k->zeros)
        add_words(t, name, "weight_zero_point", d->z, d->groups, d->rows, 1, d->groups, half, k->bits, true);
    add(t, name, "weight_shape", "I64", 2, 0, (int64_t[]){d->rows, d->columns}, 16);
    if (k->ordered) add(t, name, "weight_g_idx", "I32", d->columns, 0, d->of, (size_t)d->columns * 4);
}

/* AutoGPTQ's: codes are 0 .. 15; zero points less 1 unless the format is its second version. */
static void lay_gptq(struct made *t, const char *name, const struct drawn *d, const struct quant_kind *k)
{
    int half = 1 << (k->bits - 1), less = strstr(k->config, "gptq_v2") ? 0 : 1;
    add_words(t, name, "qweight", d->q, d->rows, d->columns, d->columns, 1, half, k->bits, true);
    add_scales(t, name, "scales", d, k, true);
    add_words(t, name, "qzeros", d->z, d->groups, d->rows, 1, d->groups, half - less, k->bits, false);
    add(t, name, "g_idx", "I32", d->columns, 0, d->of, (size_t)d->columns * 4);
}

/* Nibble i of a word is column order[i] of eight. */
static void awq_order(int *to, const int *from, int n)
{
    static const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int i = 0; i < n; i++) to[i] = from[i / 8 * 8 + order[i % 8]];
}

static void lay_awq(struct made *t, const char *name, const struct drawn *d, const struct quant_kind *k)
{
    int n = d->rows, *line = malloc((size_t)n * sizeof *line);
    int *q = malloc((size_t)n * (size_t)d->columns * sizeof *q),
        *z = malloc((size_t)n * (size_t)d->groups * sizeof *z);
    for (int i = 0; i < d->columns; i++) {
        for (int r = 0; r < n; r++) line[r] = d->q[r * d->columns + i];
        awq_order(q + i * n, line, n);
    }
    for (int g = 0; g < d->groups; g++) {
        for (int r = 0; r < n; r++) line[r] = d->z[r * d->groups + g];
        awq_order(z + g * n, line, n);
    }
    add_words(t, name, "qweight", q, d->columns, n, n, 1, 8, 4, false);
    add_words(t, name, "qzeros", z, d->groups, n, n, 1, 8, 4, false);
    add_scales(t, name, "scales", d, k, true);
    free(q);
    free(z);
    free(line);
}

/* Elements 2 j and 2 j + 1 in byte j. */
static void lay_e2m1(struct made *t, const char *name, const struct drawn *d, const struct quant_kind *k)
{
    size_t n = (size_t)d->rows * (size_t)d->columns / 2;
    bool modelopt = strstr(k->config, "modelopt") != NULL;
    uint8_t *all = malloc(n);
    for (size_t i = 0; i < n; i++) all[i] = (uint8_t)(d->q[2 * i] | d->q[2 * i + 1] << 4);
    add(t, name, modelopt ? "weight" : "weight_packed", "U8", d->rows, d->columns / 2, all, n);
    add_scales(t, name, "weight_scale", d, k, false);
    if (k->scales && modelopt) add(t, name, "weight_scale_2", "F32", 0, 0, &d->factor, 4);
    else if (k->scales) add(t, name, "weight_global_scale", "F32", 1, 0, &(float){1 / d->factor}, 4);
    free(all);
}

#define COMPRESSED(format, weights)                                                                          \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"" format                                       \
    "\", \"ignore\": [\"lm_head\"], \"quantization_status\": \"compressed\", \"config_groups\": "            \
    "{\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {" weights "}}}}"
#define WORDS(method, more) "{\"quant_method\": \"" method "\", " more "}"

const struct quant_kind quant_kinds[] = {
    {"fp8 by tensor", "{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\"}", 8, 0, true, false,
     false, CODA_F32, 0, .lay = lay_bytes},
    {"fp8 by channel",
     COMPRESSED("float-quantized", "\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\""), 8, 0,
     true, false, false, CODA_BF16, 1, .lay = lay_bytes},
    {"int8 by channel",
     COMPRESSED("int-quantized", "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\""), 8, 0,
     false, false, false, CODA_F32, 1, .lay = lay_bytes},
    {"int8 by channel with zero points",
     COMPRESSED("int-quantized", "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\""), 8, 0,
     false, true, false, CODA_BF16, 1, .lay = lay_bytes},
    {"int8 of 32",
     COMPRESSED("int-quantized",
                "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 32"),
     8, 32, false, false, false, CODA_F32, 1, .lay = lay_bytes},
    {"fp8 by blocks, scales in bf16",
     COMPRESSED("float-quantized", "\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"block\", "
                                   "\"block_structure\": [128, 128]"),
     8, 128, true, false, false, CODA_BF16, 128, .lay = lay_bytes},
    {"fp8 by blocks", WORDS("fp8", "\"weight_block_size\": [128, 128]"), 8, 128, true, false, false, CODA_F32,
     128, .lay = lay_bytes},
    {"int4 of 128",
     COMPRESSED("pack-quantized",
                "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 128"),
     4, 128, false, false, false, CODA_BF16, 1, .lay = lay_compressed},
    {"int4 of 32 with zero points",
     COMPRESSED("pack-quantized",
                "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 32"),
     4, 32, false, true, false, CODA_F16, 1, .lay = lay_compressed},
    {"int4 by channel",
     COMPRESSED("pack-quantized", "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"channel\""), 4, 0,
     false, false, false, CODA_F32, 1, .lay = lay_compressed},
    {"int4 in another order",
     COMPRESSED("pack-quantized", "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", "
                                  "\"group_size\": 64, \"actorder\": \"group\""),
     4, 64, false, false, true, CODA_BF16, 1, .lay = lay_compressed},
    {"int8 of 64",
     COMPRESSED("pack-quantized",
                "\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 64"),
     8, 64, false, false, false, CODA_BF16, 1, .lay = lay_compressed},
    {"gptq", WORDS("gptq", "\"bits\": 4, \"group_size\": 128"), 4, 128, false, true, false, CODA_F16, 1,
     .lay = lay_gptq},
    {"gptq of version 2",
     WORDS("gptq", "\"bits\": 4, \"group_size\": 32, \"checkpoint_format\": \"gptq_v2\""), 4, 32, false, true,
     false, CODA_F16, 1, .lay = lay_gptq},
    {"gptq in another order", WORDS("gptq", "\"bits\": 4, \"group_size\": 64, \"desc_act\": true"), 4, 64,
     false, true, true, CODA_F16, 1, .lay = lay_gptq},
    {"awq", WORDS("awq", "\"bits\": 4, \"group_size\": 64, \"version\": \"gemm\", \"zero_point\": true"), 4,
     64, false, true, false, CODA_F16, 1, .lay = lay_awq},
    {"mxfp4",
     COMPRESSED("mxfp4-pack-quantized",
                "\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"group\", \"group_size\": 32"),
     4, 32, true, false, false, 0, 1, .lay = lay_e2m1},
    {"nvfp4 of compressed-tensors",
     COMPRESSED("nvfp4-pack-quantized",
                "\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"tensor_group\", \"group_size\": 16"),
     4, 16, true, false, false, -1, 1, .lay = lay_e2m1},
    {"nvfp4 of ModelOpt", WORDS("modelopt", "\"quant_algo\": \"NVFP4\""), 4, 16, true, false, false, -1, 1,
     .lay = lay_e2m1},
};
const int quant_kind_count = sizeof quant_kinds / sizeof *quant_kinds;

/* ---- Models ---- */

enum { HIDDEN = 256, HEADS = 16, KV_HEADS = 1, HEAD = 8, WORDS_OF = 64, LAYERS = 2 };

/* Columns that groups divide, and the last block of which is not whole. */
static int inner_of(const struct quant_kind *k) { return k->group == 128 && k->shared != 128 ? 384 : 320; }

static void write_config(const char *folder, const char *family, const char *quantised, int inner)
{
    char text[2048];
    int n =
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"num_hidden_layers\": %d, \"hidden_size\": %d, "
                 "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
                 "\"intermediate_size\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 64, "
                 "\"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\"%s%s}",
                 family, LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, inner, WORDS_OF,
                 quantised && *quantised ? ", \"quantization_config\": " : "", quantised ? quantised : "");
    put(folder, "config.json", text, (size_t)n, NULL, 0);
}

/* The same in both files. */
static void add_floats(struct made *both, const char *name, int64_t rows, int64_t columns, double mean,
                       double by, uint64_t *seed)
{
    int64_t n = rows * (columns ? columns : 1);
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(mean + by * normal(seed));
    for (int i = 0; i < 2; i++)
        made_add(&both[i], name, "F32", columns ? 2 : 1, (int64_t[]){rows, columns}, x, (size_t)n * 4);
    free(x);
}

static void add_linear(struct made *both, const struct quant_kind *k, const char *name, int rows, int columns,
                       uint64_t *seed)
{
    char whole[160];
    struct drawn d = drawn_new(k, rows, columns, seed);
    k->lay(&both[0], name, &d, k);
    snprintf(whole, sizeof whole, "%s.weight", name);
    made_add(&both[1], whole, "F32", 2, (int64_t[]){rows, columns}, d.w, (size_t)rows * (size_t)columns * 4);
    drawn_free(&d);
}

static void add_layer(struct made *both, const struct quant_kind *k, int layer, bool biases, uint64_t *seed)
{
    int inner = inner_of(k);
    const struct {
        const char *name;
        int rows, columns;
    } all[] = {{"self_attn.q_proj", HEADS * HEAD, HIDDEN},
               {"self_attn.k_proj", KV_HEADS * HEAD, HIDDEN},
               {"self_attn.v_proj", KV_HEADS * HEAD, HIDDEN},
               {"self_attn.o_proj", HIDDEN, HEADS * HEAD},
               {"mlp.gate_proj", inner, HIDDEN},
               {"mlp.up_proj", inner, HIDDEN},
               {"mlp.down_proj", HIDDEN, inner}};
    char name[96];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s", layer, all[i].name);
        add_linear(both, k, name, all[i].rows, all[i].columns, seed);
        snprintf(name, sizeof name, "model.layers.%d.%s.bias", layer, all[i].name);
        if (biases && i < 3) add_floats(both, name, all[i].rows, 0, 0, 0.1, seed);
    }
    snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", layer);
    add_floats(both, name, HIDDEN, 0, 1, 0.1, seed);
    snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", layer);
    add_floats(both, name, HIDDEN, 0, 1, 0.1, seed);
}

void quant_write(const struct quant_kind *k, const char *folder, const char *family, uint64_t seed)
{
    static const char *const names[] = {"quantised", "plain"};
    struct made both[2] = {{0}};
    char path[512];
    add_floats(both, "model.embed_tokens.weight", WORDS_OF, HIDDEN, 0, 1, &seed);
    for (int l = 0; l < LAYERS; l++) add_layer(both, k, l, !strcmp(family, "qwen2"), &seed);
    add_floats(both, "model.norm.weight", HIDDEN, 0, 1, 0.1, &seed);
    if (strstr(k->config, "gptq")) add_linear(both, k, "lm_head", WORDS_OF, HIDDEN, &seed);
    else add_floats(both, "lm_head.weight", WORDS_OF, HIDDEN, 0, 1 / sqrt(HIDDEN), &seed);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        mkdir(path, 0700);
        write_config(path, family, i ? NULL : k->said ? k->said : k->config, inner_of(k));
        made_write(&both[i], path, "model.safetensors");
    }
}
