/*
 * quant_gguf.c -- GGUF files whose tensors have quantised types, of drawn bytes, and the same model in F32
 * by the types' formulas as llama.cpp's pages have them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gguf_file.h"
#include "quant_file.h"
#include "tensor.h"

/* ---- Blocks ---- */

static const float e2m1[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};

static float half(const uint8_t *p) { return float_of_f16((uint16_t)(p[0] | p[1] << 8)); }

static void put_half(uint8_t *p, double x)
{
    uint16_t h = f16_of_float((float)x);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

/* 2 n codes of 4 bits in n bytes: the lower halves first. */
static int nibble(const uint8_t *q, int i, int n) { return i < n ? q[i] & 15 : q[i - n] >> 4; }
static int fifth(const uint8_t *h, int i) { return (h[i / 8] >> i % 8 & 1) << 4; }

static float q4_0(const uint8_t *b, int i) { return (float)(nibble(b + 2, i, 16) - 8) * half(b); }
static float q4_1(const uint8_t *b, int i) { return (float)nibble(b + 4, i, 16) * half(b) + half(b + 2); }
static float q5_0(const uint8_t *b, int i)
{
    return (float)((nibble(b + 6, i, 16) | fifth(b + 2, i)) - 16) * half(b);
}
static float q5_1(const uint8_t *b, int i)
{
    return (float)(nibble(b + 8, i, 16) | fifth(b + 4, i)) * half(b) + half(b + 2);
}
static float q8_0(const uint8_t *b, int i) { return (float)(int8_t)b[2 + i] * half(b); }

/* Scale and minimum of group g, 6 bits each in 12 bytes. */
static void k_scale(const uint8_t *s, int g, int *scale, int *minimum)
{
    *scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    *minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
}

static float k_value(const uint8_t *b, int q, int g)
{
    int scale, minimum;
    k_scale(b + 4, g, &scale, &minimum);
    return half(b) * (float)scale * (float)q - half(b + 2) * (float)minimum;
}

/* Bytes 32 j .. 32 j + 31 have elements 64 j + i in the lower halves, 64 j + 32 + i in the upper ones. */
static int by_64(const uint8_t *q, int i)
{
    return i % 64 < 32 ? q[i / 64 * 32 + i % 32] & 15 : q[i / 64 * 32 + i % 32] >> 4;
}

static float q4_k(const uint8_t *b, int i) { return k_value(b, by_64(b + 16, i), i / 32); }
static float q5_k(const uint8_t *b, int i)
{
    return k_value(b, by_64(b + 48, i) | (b[16 + i % 32] >> i / 32 & 1) << 4, i / 32);
}
static float q6_k(const uint8_t *b, int i)
{
    int at = i % 128, low = b[i / 128 * 64 + at % 64];
    int high = b[128 + i / 128 * 32 + at % 32] >> at / 32 * 2 & 3;
    int q = ((at < 64 ? low & 15 : low >> 4) | high << 4) - 32;
    return half(b + 208) * (float)(int8_t)b[192 + i / 16] * (float)q;
}
static float mxfp4(const uint8_t *b, int i) { return e2m1[nibble(b + 1, i, 16)] * (float)exp2(b[0] - 127); }
static float nvfp4(const uint8_t *b, int i)
{
    float s = b[i / 16] == 0x7f ? 0 : (float)double_of_f8(b[i / 16] & 127);
    return e2m1[nibble(b + 4 + i / 16 * 8, i % 16, 8)] * s;
}

/* What is no drawn byte: scales that keep a product's size. */
static void no_minimum(uint8_t *b, double s) { put_half(b, s); }
static void with_minimum(uint8_t *b, double s) { put_half(b, s), put_half(b + 2, -7 * s); }
static void of_k(uint8_t *b, double s) { put_half(b, s / 32), put_half(b + 2, s / 5); }
static void of_q6_k(uint8_t *b, double s) { put_half(b + 208, s / 400); }
static void of_mxfp4(uint8_t *b, double s) { b[0] = (uint8_t)(127 + ilogb(s)); }
static void of_nvfp4(uint8_t *b, double s)
{
    for (int g = 0; g < 4; g++) b[g] = f8_of_double(s * (1 + g));
}

static const struct type {
    const char *name;
    unsigned number;
    int block, bytes;
    float (*value)(const uint8_t *b, int i);
    void (*scale)(uint8_t *b, double s);
} types[] = {{"Q4_0", 2, 32, 18, q4_0, no_minimum},  {"Q4_1", 3, 32, 20, q4_1, with_minimum},
             {"Q5_0", 6, 32, 22, q5_0, no_minimum},  {"Q5_1", 7, 32, 24, q5_1, with_minimum},
             {"Q8_0", 8, 32, 34, q8_0, no_minimum},  {"Q4_K", 12, 256, 144, q4_k, of_k},
             {"Q5_K", 13, 256, 176, q5_k, of_k},     {"Q6_K", 14, 256, 210, q6_k, of_q6_k},
             {"MXFP4", 39, 32, 17, mxfp4, of_mxfp4}, {"NVFP4", 40, 64, 36, nvfp4, of_nvfp4}};

static const struct type *type_of(const char *name, int n)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((int)strlen(types[i].name) == n && !strncmp(types[i].name, name, (size_t)n)) return &types[i];
    return NULL;
}

/* ---- Models ---- */

enum { HIDDEN = 256, INNER = 512, HEADS = 4, KV_HEADS = 2, HEAD = 64, VOCABULARY = 64, LAYERS = 2 };

/* Types of token_embd, attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down, output. */
const struct quant_gguf quant_ggufs[] = {
    {"Q4_0", "llama", "Q4_0 Q4_0 Q4_0 Q4_0 Q4_0 Q4_0 Q4_0 Q4_0 Q4_0"},
    {"Q4_1", "qwen2", "Q4_1 Q4_1 Q4_1 Q4_1 Q4_1 Q4_1 Q4_1 Q4_1 Q4_1"},
    {"Q5_0", "llama", "Q5_0 Q5_0 Q5_0 Q5_0 Q5_0 Q5_0 Q5_0 Q5_0 Q5_0"},
    {"Q5_1", "llama", "Q5_1 Q5_1 Q5_1 Q5_1 Q5_1 Q5_1 Q5_1 Q5_1 Q5_1"},
    {"Q8_0", "qwen2", "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 Q8_0"},
    {"Q5_K", "llama", "Q5_K Q5_K Q5_K Q5_K Q5_K Q5_K Q5_K Q5_K Q5_K"},
    {"Q6_K", "llama", "Q6_K Q6_K Q6_K Q6_K Q6_K Q6_K Q6_K Q6_K Q6_K"},
    {"MXFP4", "llama", "MXFP4 MXFP4 MXFP4 MXFP4 MXFP4 MXFP4 MXFP4 MXFP4 MXFP4"},
    {"NVFP4", "llama", "F32 NVFP4 NVFP4 NVFP4 NVFP4 NVFP4 NVFP4 NVFP4 F32"},
    {"Q4_K_M", "llama", "Q4_K Q4_K Q4_K Q6_K Q4_K Q4_K Q4_K Q6_K Q6_K"},
    {"Q4_K_M with biases", "qwen2", "Q4_K Q4_K Q4_K Q6_K Q4_K Q4_K Q4_K Q6_K Q6_K"},
    {"a mixture", "llama", "Q8_0 Q4_K Q5_K Q6_K Q5_0 Q4_K Q5_K F32 Q4_1"},
    {"a head that is the table", "llama", "Q6_K Q4_0 Q4_0 Q4_0 Q4_0 Q4_0 Q4_0 Q4_0 none"},
};
const int quant_gguf_count = sizeof quant_ggufs / sizeof *quant_ggufs;

/* Both files, and memory of their tensors. */
struct making {
    struct gguf_file file[2];
    struct stored_tensor tensor[2][GGUF_TENSORS];
    int count;
    uint64_t seed;
};

static void add_both(struct making *m, const char *name, const struct type *t, int rows, int columns,
                     void *bytes, float *values)
{
    struct stored_tensor one = {.rank = rows ? 2 : 1, .dims = {rows ? rows : columns, columns}};
    size_t n = (size_t)columns * (size_t)(rows ? rows : 1);
    for (int i = 0; i < 2; i++) {
        bool small = i == 0 && t;
        struct stored_tensor *to = &m->tensor[i][m->count];
        *to = one;
        to->data = small ? bytes : (void *)values;
        to->bytes = small ? n / (size_t)t->block * (size_t)t->bytes : 4 * n;
        gguf_file_tensor(&m->file[i], name, to);
        m->file[i].tensor[m->file[i].tensors - 1].type = small ? t->number : 0;
    }
    m->count++;
}

static void add_floats(struct making *m, const char *name, int rows, int columns, double mean, double by)
{
    size_t n = (size_t)columns * (size_t)(rows ? rows : 1);
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(mean + by * normal(&m->seed));
    add_both(m, name, NULL, rows, columns, NULL, x);
}

static void add_matrix(struct making *m, const char *name, const struct type *t, int rows, int columns)
{
    if (!t) return add_floats(m, name, rows, columns, 0, 1 / sqrt(columns));
    size_t n = (size_t)rows * (size_t)columns, blocks = n / (size_t)t->block;
    uint8_t *bytes = malloc(blocks * (size_t)t->bytes);
    float *values = malloc(n * sizeof *values);
    double most = t->number == 8 ? 80 : t->number == 6 || t->number == 7 ? 10 : t->number >= 39 ? 4 : 5;
    for (size_t b = 0; b < blocks; b++) {
        uint8_t *at = bytes + b * (size_t)t->bytes;
        for (int i = 0; i < t->bytes; i++) at[i] = (uint8_t)(uniform(&m->seed) * 256);
        t->scale(at, (0.5 + uniform(&m->seed)) / most / sqrt(columns));
        for (int i = 0; i < t->block; i++) values[b * (size_t)t->block + (size_t)i] = t->value(at, i);
    }
    add_both(m, name, t, rows, columns, bytes, values);
}

static void add_layer(struct making *m, int layer, const char *list, bool biases)
{
    static const struct {
        const char *name;
        int rows, columns;
    } all[] = {{"attn_q", HEADS * HEAD, HIDDEN},    {"attn_k", KV_HEADS * HEAD, HIDDEN},
               {"attn_v", KV_HEADS * HEAD, HIDDEN}, {"attn_output", HIDDEN, HEADS * HEAD},
               {"ffn_gate", INNER, HIDDEN},         {"ffn_up", INNER, HIDDEN},
               {"ffn_down", HIDDEN, INNER}};
    char name[64];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int n = (int)strcspn(list, " ");
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, all[i].name);
        add_matrix(m, name, type_of(list, n), all[i].rows, all[i].columns);
        list += n + 1;
        snprintf(name, sizeof name, "blk.%d.%s.bias", layer, all[i].name);
        if (biases && i < 3) add_floats(m, name, 0, all[i].rows, 0, 0.1);
    }
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
    add_floats(m, name, 0, HIDDEN, 1, 0.1);
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", layer);
    add_floats(m, name, 0, HIDDEN, 1, 0.1);
}

static void begin(struct gguf_file *g, const char *family)
{
    gguf_file_begin(g, family);
    gguf_file_keys(g,
                   "u block_count 2, u context_length 64, u embedding_length 256, u feed_forward_length 512,"
                   " u attention.head_count 4, u attention.head_count_kv 2, u attention.key_length 64,"
                   " u attention.value_length 64, f attention.layer_norm_rms_epsilon 1e-5");
}

void quant_write_gguf(const struct quant_gguf *k, const char *folder, uint64_t seed)
{
    static const char *const names[] = {"quantised.gguf", "plain.gguf"};
    char path[512];
    const char *list = k->types, *last = strrchr(k->types, ' ') + 1;
    struct making *m = calloc(1, sizeof *m);
    m->seed = seed;
    for (int i = 0; i < 2; i++) begin(&m->file[i], k->family);
    int n = (int)strcspn(list, " ");
    add_matrix(m, "token_embd.weight", type_of(list, n), VOCABULARY, HIDDEN);
    for (int l = 0; l < LAYERS; l++) add_layer(m, l, list + n + 1, !strcmp(k->family, "qwen2"));
    add_floats(m, "output_norm.weight", 0, HIDDEN, 1, 0.1);
    if (strcmp(last, "none"))
        add_matrix(m, "output.weight", type_of(last, (int)strlen(last)), VOCABULARY, HIDDEN);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        gguf_file_write(&m->file[i], path, 0, m->file[i].tensors);
    }
    for (int i = 0; i < m->count; i++) {
        if (m->tensor[0][i].data != m->tensor[1][i].data) free((void *)(uintptr_t)m->tensor[0][i].data);
        free((void *)(uintptr_t)m->tensor[1][i].data);
    }
    free(m);
}
