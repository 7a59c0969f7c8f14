/*
 * quant_golden.c -- small files that the packages themselves have written (AutoGPTQ, AutoAWQ,
 * compressed-tensors, llama.cpp's quantiser; test/golden/quant at the top of the tree): their tensors are
 * found, and mean what a decoder in numpy has made of them, whose floats are here by their digest (FNV-1a of
 * 64 bits).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "packing.h"
#include "quant_file.h"
#include "tensor.h"

static const char folder[] = "../../test/golden/quant";

#define GROUPS(bits, type, strategy)                                                                         \
    "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"g\": {\"weights\": "                   \
    "{\"num_bits\": " bits ", \"type\": \"" type "\", " strategy "}}}}"
#define OF(group) "\"strategy\": \"group\", \"group_size\": " group

static const struct {
    const char *file, *config;
    int64_t rows, columns;
    uint64_t digest;
} files[] = {
    {"awq_gemm", "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 64}", 32, 256, 0xda236d2baf13fef6},
    {"ct_act-order", GROUPS("4", "int", OF("64")), 32, 256, 0x914c22e8e04a6e30},
    {"ct_int8", GROUPS("8", "int", OF("128")), 32, 256, 0xf84c90d9dcf3f0d0},
    {"ct_odd_sizes", GROUPS("4", "int", "\"strategy\": \"channel\""), 13, 100, 0x2580f3f4dcccb70f},
    {"ct_symmetric", GROUPS("4", "int", OF("64")), 32, 256, 0x7a015c03d3cc5fe6},
    {"ct_zeros", GROUPS("4", "int", OF("64")), 40, 320, 0xc06d2b42b709b241},
    {"fp8_block", "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}", 136, 152,
     0x73c22921a1aeb865},
    {"fp8_block_bf16", "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}", 136, 152,
     0x73c22921a1aeb865},
    {"fp8_channel", GROUPS("8", "float", "\"strategy\": \"channel\""), 136, 152, 0x63bdf1defcafad79},
    {"fp8_tensor", "{\"quant_method\": \"fp8\"}", 136, 152, 0x6b892338a9efa537},
    {"gptq_act-order", "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 64}", 32, 256,
     0x69e451faca4b88f7},
    {"gptq_symmetric", "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 64}", 32, 256,
     0x71a424ed07db13d4},
    {"gptq_zeros", "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 64}", 32, 256,
     0x0b70026407539e9d},
    {"int8_channel", GROUPS("8", "int", "\"strategy\": \"channel\""), 16, 256, 0xc5c314d02e55fecb},
    {"nvfp4_compressed_tensors", GROUPS("4", "float", OF("16")), 16, 128, 0x79595a6eed80fdff},
    {"nvfp4_modelopt", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}", 16, 128,
     0x79595a6eed80fdff},
};

/* Of types.gguf, [4, 512] each. */
static const struct {
    const char *name;
    uint64_t digest;
} types[] = {{"t.Q4_0", 0x3d376b41410ed8b5},
             {"t.Q4_1", 0x7a7a0ace39460a5b},
             {"t.Q5_0", 0xe0f508e4d0ded219},
             {"t.Q5_1", 0xe154614231836d68},
             {"t.Q8_0", 0xf4b6e7e97cb24fee},
             {"t.Q4_K", 0x0558fb69aaa211c7},
             {"t.Q5_K", 0x0467e7e4e85efe52},
             {"t.Q6_K", 0x0fd4915af301c6f6},
             {"t.MXFP4", 0x8ead935ab816256b},
             {"t.NVFP4", 0x3b945994d51e9f17},
             {"t.Q2_K", 0},
             {"t.Q3_K", 0},
             {"t.IQ4_NL", 0},
             {"t.IQ4_XS", 0}}; /* 0: refused by name */

static uint64_t digest_of(const void *data, size_t bytes)
{
    uint64_t x = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++) x = (x ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
    return x;
}

/* What is loaded, in the file's order of columns. */
static bool load(const struct stored_matrix *m, float *to, struct fault *f)
{
    struct device d;
    size_t bytes = (size_t)coda_packed_bytes(&m->format, m->rows, m->columns);
    struct weight w = {
        .kind = WEIGHT_PACKED, .matrix = {*m}, .parts = 1, .name = m->codes->name, .bytes = bytes};
    char *packed = malloc(bytes);
    int32_t *order = malloc((size_t)m->columns * sizeof *order);
    float *row = malloc((size_t)m->columns * sizeof *row),
          factor = m->factor ? stored_number(m->factor, 0) : 1;
    device_open(&d, CODA_DEVICE_CPU);
    bool good = weight_load(&w, &d, packed, f);
    w.kind = WEIGHT_ORDER;
    w.bytes = (size_t)m->columns * sizeof *order;
    if (good && m->order) good = weight_load(&w, &d, order, f);
    for (int64_t n = 0; good && n < m->rows; n++, to += m->columns) {
        coda_unpack(&m->format, packed, m->rows, m->columns, n, 0, m->columns, row);
        for (int64_t k = 0; k < m->columns; k++)
            to[m->order ? order[k] : k] = row[k] * (m->divisor ? 1 / factor : factor);
    }
    free(packed);
    free(order);
    free(row);
    return good;
}

/* Of 8 bits with a scale for a row. */
static bool load_scaled(const struct stored_matrix *m, float *to)
{
    bool one = stored_elements(m->scales) == 1;
    for (int64_t i = 0; i < m->rows * m->columns; i++)
        to[i] = (float)element_get(m->dtype, m->codes->data, i) *
                stored_number(m->scales, one ? 0 : i / m->columns);
    return true;
}

static void check(const char *name, const struct stored_matrix *m, uint64_t digest)
{
    struct fault f = {{0}};
    size_t n = (size_t)(m->rows * m->columns);
    float *x = calloc(n, sizeof *x);
    bool good = m->layout == STORED_SCALED ? load_scaled(m, x) : load(m, x, &f);
    CHECK(good && digest_of(x, n * sizeof *x) == digest, "%s: other numbers than numpy's %s", name, f.text);
    free(x);
}

static void test_tensors(void)
{
    char path[256];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct checkpoint c;
        struct quant_config q;
        struct stored_matrix m;
        struct fault f = {{0}};
        json_t *config = json_loads(files[i].config, 0, NULL);
        snprintf(path, sizeof path, "%s/%s.safetensors", folder, files[i].file);
        if (!golden_open(&c, path)) continue;
        bool good = quant_config_read(&q, config, &f) &&
                    stored_find(&q, &c, "l", files[i].rows, files[i].columns, &m, &f) &&
                    packing_format(&m, &f);
        CHECK(good, "%s: %s", files[i].file, f.text);
        for (int k = 0; k < c.count; k++)
            CHECK(c.tensor[k].used, "%s: %s is not used", files[i].file, c.tensor[k].name);
        if (good) check(files[i].file, &m, files[i].digest);
        checkpoint_close(&c);
        json_decref(config);
    }
}

static void test_types(void)
{
    char path[256], name[32];
    struct checkpoint c = {0};
    struct mapped_file map;
    struct quant_config q = {0};
    struct fault f = {{0}};
    snprintf(path, sizeof path, "%s/types.gguf", folder);
    CHECK(checkpoint_map(&c, path, &map, &f) && gguf_read(&c, path, &map, &f), "%s", f.text);
    for (int i = 0; i < c.count; i++) { /* as stored_find wants them to be called */
        snprintf(name, sizeof name, "%s.weight", c.tensor[i].name);
        free(c.tensor[i].name);
        c.tensor[i].name = strdup(name);
    }
    CHECK(checkpoint_sort(&c, &f), "%s", f.text);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct stored_matrix m;
        bool good = stored_find(&q, &c, types[i].name, 4, 512, &m, &f) && packing_format(&m, &f);
        CHECK(good == (types[i].digest != 0), "%s: %s", types[i].name, f.text);
        CHECK(good || strstr(f.text, "is not supported: F32, F16, BF16, Q4_0"), "%s: %s", types[i].name,
              f.text);
        if (good) check(types[i].name, &m, types[i].digest);
    }
    checkpoint_close(&c);
}

void quant_golden(void)
{
    test_tensors();
    test_types();
}
