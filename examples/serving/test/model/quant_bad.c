/*
 * quant_bad.c -- quantised checkpoints one tensor of which is not what the others want: one line names it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant_file.h"
#include "tensor.h"

static const char zeros[64]; /* 16 columns of one group */

/* Instead of what the file has of model.layers.1.mlp.up_proj, [inner, 256]. */
static const struct bad {
    const char *kind;   /* of quant_kinds */
    const char *suffix; /* of the tensor */
    const char *shape;  /* a list, of as many elements; NULL: it stays */
    const char *dtype;  /* likewise */
    const char *data;   /* bytes that come first */
    int bytes;
    const char *says;
} all[] = {
    {"fp8 by tensor", ".weight_scale", NULL, NULL, "\0\0\x80\x7f", 4,
     "up_proj.weight_scale: number 0 is inf"},
    {"fp8 by tensor", ".weight", NULL, NULL, "\x7f", 1, "up_proj.weight: 1 of its 81920 codes in F8_E4M3"},
    {"fp8 by channel", ".weight_scale", "[160, 2]", NULL, "", 0, "up_proj.weight_scale: 160 x 2 scales"},
    {"fp8 by channel", ".weight_scale", NULL, "I16", "", 0, "up_proj.weight_scale: I16 is not supported"},
    {"fp8 by channel", ".weight", "[256, 320]", NULL, "", 0, "up_proj.weight: rank 2 and 256 x 320"},
    {"int8 by channel", ".weight_scale", "[20, 4, 4]", NULL, "", 0, "up_proj.weight_scale: rank 3"},
    {"fp8 by blocks", ".weight_scale_inv", "[2, 3]", NULL, "", 0, "up_proj.weight_scale_inv: 2 x 3 scales"},
    {"fp8 by blocks", ".weight_scale_inv", NULL, NULL, "\0\0\xc0\x7f", 4, "up_proj.weight"},
    {"fp8 by blocks", ".weight", NULL, NULL, "\xff", 1, "up_proj.weight"},
    {"int4 of 128", ".weight_scale", "[192, 4]", NULL, "", 0, "up_proj.weight_scale: rank 2 and 192 x 4"},
    {"int4 of 128", ".weight_scale", "[768]", NULL, "", 0, "up_proj.weight_scale: rank 1"},
    {"int4 of 128", ".weight_shape", NULL, NULL, "\x01", 1, "up_proj.weight_shape: 257 x 256"},
    {"int4 of 128", ".weight_packed", "[192, 64]", NULL, "", 0, "up_proj.weight_packed: int of 8 bits"},
    {"int4 of 128", ".weight_packed", NULL, "F32", "", 0, "up_proj.weight_packed: F32 is not supported"},
    {"int4 of 128", ".weight_scale", NULL, NULL, "\xff\x7f", 2, "up_proj.weight_packed"},
    {"int4 of 32 with zero points", ".weight_zero_point", "[80, 4]", NULL, "", 0,
     "up_proj.weight_zero_point: rank 2 and 80 x 4"},
    {"int4 in another order", ".weight_g_idx", NULL, NULL, "\x04\0\0\0", 4,
     "up_proj.weight_g_idx: column 0 is of group 4 of 4"},
    {"int4 in another order", ".weight_g_idx", NULL, NULL, "\xfe\xff\xff\xff", 4,
     "up_proj.weight_g_idx: column 0 is of group -2"},
    {"int4 in another order", ".weight_g_idx", NULL, NULL, "\xff\xff\xff\xff", 4,
     "up_proj.weight_g_idx: 1 columns of 256 are of no group"},
    {"int4 in another order", ".weight_g_idx", "[128, 2]", NULL, "", 0, "up_proj.weight_g_idx"},
    {"gptq", ".qweight", "[384, 32]", NULL, "", 0, "up_proj.qweight: it has no 4 or 8 bits"},
    {"gptq", ".scales", NULL, NULL, "\0\x7c", 2, "up_proj.qweight"},
    {"gptq", ".qzeros", "[1, 96]", NULL, "", 0, "up_proj.qzeros: rank 2 and 1 x 96"},
    {"gptq in another order", ".g_idx", NULL, NULL, zeros, sizeof zeros, "up_proj.g_idx"},
    {"awq", ".scales", "[8, 160]", NULL, "", 0, "up_proj.scales: rank 2 and 8 x 160"},
    {"awq", ".qzeros", NULL, "F32", "", 0, "up_proj.qzeros: F32 is not supported"},
    {"mxfp4", ".weight_scale", NULL, NULL, "\xff", 1, "up_proj.weight_packed"},
    {"mxfp4", ".weight_scale", "[160, 16]", NULL, "", 0, "up_proj.weight_scale: rank 2 and 160 x 16"},
    {"nvfp4 of ModelOpt", ".weight_scale", NULL, NULL, "\x7f", 1, "up_proj.weight"},
    {"nvfp4 of ModelOpt", ".weight_scale_2", NULL, NULL, "\0\0\xc0\x7f", 4, "up_proj.weight_scale_2"},
    {"nvfp4 of compressed-tensors", ".weight_global_scale", NULL, NULL, "\0\0\0\0", 4,
     "up_proj.weight_global_scale"},
};

/* Each of them is needed, but for g_idx, weight_shape and zero points. */
static const struct bad missing[] = {
    {"fp8 by channel", ".weight_scale", .says = "up_proj.weight_scale is missing"},
    {"fp8 by blocks", ".weight_scale_inv", .says = "up_proj.weight_scale"},
    {"int4 of 128", ".weight_packed", .says = "up_proj.weight is missing"},
    {"int4 of 128", ".weight_scale", .says = "up_proj.weight_scale is missing"},
    {"gptq", ".qzeros", .says = "up_proj.qzeros is missing"},
    {"gptq", ".scales", .says = "up_proj.scales is missing"},
    {"awq", ".scales", .says = "up_proj.scales is missing"},
    {"mxfp4", ".weight_scale", .says = "up_proj.weight_scale is missing"},
    {"nvfp4 of ModelOpt", ".weight_scale_2", .says = "weight_scale_2 is missing"}};

static const struct quant_kind *kind_of(const char *name)
{
    for (int i = 0; i < quant_kind_count; i++)
        if (!strcmp(quant_kinds[i].name, name)) return &quant_kinds[i];
    return NULL;
}

/* A whole file, for free(). */
static unsigned char *take(const char *path, size_t *bytes)
{
    unsigned char *data = malloc(1 << 23);
    FILE *f = fopen(path, "rb");
    *bytes = f ? fread(data, 1, 1 << 23, f) : 0;
    if (f) fclose(f);
    CHECK(*bytes > 8, "%s cannot be read", path);
    return data;
}

static void put(const char *path, json_t *header, const unsigned char *data, size_t bytes)
{
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t length = strlen(text);
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(&length, 8, 1, f) == 1 && fwrite(text, 1, length, f) == length &&
                fwrite(data, 1, bytes, f) == bytes;
    CHECK(f && !fclose(f) && good, "%s cannot be written", path);
    free(text);
}

/* Changes the tensor, or with `away` gives it another name. */
static void spoil(const char *path, const char *name, const struct bad *b, bool away)
{
    size_t bytes;
    uint64_t length = 0;
    unsigned char *data = take(path, &bytes);
    memcpy(&length, data, 8);
    json_t *header = json_loadb((char *)data + 8, length, 0, NULL), *t = json_object_get(header, name);
    CHECK(t, "%s is not there", name);
    if (t && away) json_object_set(header, "odd", t), json_object_del(header, name);
    if (t && b->shape) json_object_set_new(t, "shape", json_loads(b->shape, 0, NULL));
    if (t && b->dtype) json_object_set_new(t, "dtype", json_string(b->dtype));
    json_int_t at = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
    if (t && b->bytes) memcpy(data + 8 + length + at, b->data, (size_t)b->bytes);
    put(path, header, data + 8 + length, bytes - 8 - length);
    json_decref(header);
    free(data);
}

static void refused(const char *scratch, const struct bad *b, const char *says)
{
    char path[600];
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU, .context = 32};
    snprintf(path, sizeof path, "%s/quantised", scratch);
    struct model *m = model_open(path, &o, &f);
    CHECK(!m && strstr(f.text, says) && !strchr(f.text, '\n'), "%s of %s: '%s' does not say '%s'", b->suffix,
          b->kind, f.text, says);
    model_close(m);
}

static void accepted(const char *scratch, const struct bad *b)
{
    char path[600];
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU, .context = 32};
    snprintf(path, sizeof path, "%s/quantised", scratch);
    struct model *m = model_open(path, &o, &f);
    CHECK(m, "%s of %s: %s", b->suffix, b->kind, f.text);
    model_close(m);
}

/* `away`: each tensor has another name, instead of what the table has of it. */
static void test_tensors(const char *scratch, const struct bad *table, size_t n, bool away)
{
    char path[600], name[128];
    snprintf(path, sizeof path, "%s/quantised/model.safetensors", scratch);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "model.layers.1.mlp.up_proj%s", table[i].suffix);
        quant_write(kind_of(table[i].kind), scratch, "llama", 5);
        spoil(path, name, &table[i], away);
        refused(scratch, &table[i], table[i].says);
    }
}

/* A config that does not describe the tensors. */
static void test_configs(const char *scratch)
{
    static const struct {
        const char *kind, *config, *says;
    } others[] = {
        {"fp8 by channel", NULL, "q_proj.weight: F8_E4M3 is not supported without a quantization_config"},
        {"int4 of 128", NULL, "q_proj.weight_packed: I32 is not supported without"},
        {"gptq", NULL, "q_proj.qweight: quantization_config is neither"},
        {"gptq", "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128}",
         "q_proj.qweight: it has no 4 bits"},
        {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 128}",
         "q_proj.qweight: int of 4 bits"},
        {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 96}",
         "q_proj.scales: 2 scales for 256"},
        {"fp8 by blocks", "{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}",
         "q_proj.weight_scale_inv"},
        {"fp8 by blocks", "{\"quant_method\": \"fp8\"}", "q_proj.weight_scale_inv: 1 x 2 scales"},
        {"fp8 by channel", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}", "float of 8 bits"},
        {"awq", "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128}",
         "q_proj.scales: 4 scales for 256"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct quant_kind k = *kind_of(others[i].kind);
        struct bad b = {.kind = others[i].kind, .suffix = others[i].config ? others[i].config : "no config"};
        k.said = others[i].config ? others[i].config : "";
        quant_write(&k, scratch, "llama", 5);
        refused(scratch, &b, others[i].says);
    }
}

/* quantization_config in a file beside config.json. */
static void test_beside(const char *scratch)
{
    static const struct {
        const char *kind, *file, *text, *says; /* NULL: it is read */
    } others[] = {
        {"gptq", "quantize_config.json", "{\"bits\": 4, \"group_size\": 128, \"desc_act\": false}", NULL},
        {"gptq", "quantize_config.json", "{\"bits\": 8, \"group_size\": 128}", "int of 4 bits"},
        {"gptq", "quantize_config.json", "[]", "no JSON object"},
        {"nvfp4 of ModelOpt", "hf_quant_config.json",
         "{\"producer\": {\"name\": \"modelopt\"}, \"quantization\": {\"quant_algo\": \"NVFP4\", "
         "\"kv_cache_quant_algo\": null, \"group_size\": 16, \"exclude_modules\": [\"lm_head\"]}}",
         NULL},
        {"nvfp4 of ModelOpt", "hf_quant_config.json", "{\"quantization\": 3}", "it cannot be understood"},
    };
    char path[600];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct quant_kind k = *kind_of(others[i].kind);
        struct bad b = {.kind = others[i].kind, .suffix = others[i].file};
        k.said = "";
        quant_write(&k, scratch, "llama", 5);
        snprintf(path, sizeof path, "%s/quantised/%s", scratch, others[i].file);
        FILE *f = fopen(path, "wb");
        CHECK(f && fputs(others[i].text, f) >= 0 && !fclose(f), "%s cannot be written", path);
        if (others[i].says) refused(scratch, &b, others[i].says);
        else accepted(scratch, &b);
        remove(path);
    }
}

void quant_bad(const char *scratch)
{
    test_beside(scratch);
    test_tensors(scratch, all, sizeof all / sizeof *all, false);
    test_tensors(scratch, missing, sizeof missing / sizeof *missing, true);
    test_configs(scratch);
}
