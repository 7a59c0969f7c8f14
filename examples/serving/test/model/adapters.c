/*
 * adapters.c -- PEFT's adapters beside quantised and plain checkpoints: logits are those of a checkpoint
 * whose weights have them added, W + s B A; and what is refused, in a line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "quant_file.h"
#include "tensor.h"

enum { TOKENS = 12, MOST_RANK = 8 };
static const int32_t prompt[TOKENS] = {3, 60, 1, 17, 17, 42, 9, 0, 63, 30, 5, 11};
static const double bar = 1e-5; /* of logits in fp32, relative */

/* What is adapted of the small models of quant_file.c: parts of products, some of which have none. */
static const struct module {
    const char *name;
    int rank;
} modules[] = {{"model.layers.0.self_attn.q_proj", 2}, {"model.layers.0.self_attn.v_proj", 3},
               {"model.layers.0.mlp.down_proj", 8},    {"model.layers.1.self_attn.o_proj", 1},
               {"model.layers.1.mlp.gate_proj", 4},    {"model.layers.1.mlp.up_proj", 4}};
enum { MODULES = sizeof modules / sizeof *modules };

struct low {
    float *a, *b;
    int64_t rows, columns;
};

static double drawn(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 33) * 0x1p-30 - 1;
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f), "%s cannot be written", path);
}

static void copy_config(const char *from, const char *to)
{
    char path[700], text[4096] = "";
    snprintf(path, sizeof path, "%s/config.json", from);
    FILE *f = fopen(path, "rb");
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 0 && !fclose(f), "%s cannot be read", path);
    write_text(to, "config.json", text);
}

static int64_t rows_of(const struct checkpoint *c, const char *module, int64_t *columns)
{
    char name[160];
    snprintf(name, sizeof name, "%s.weight", module);
    const struct stored_tensor *t = checkpoint_find(c, name);
    *columns = t->dims[1];
    return t->dims[0];
}

static void add_half(struct made *t, const char *module, const char *end, int64_t rows, int64_t columns,
                     const float *x)
{
    char name[200];
    snprintf(name, sizeof name, "base_model.model.%s.%s.weight", module, end);
    made_add(t, name, "F32", 2, (int64_t[]){rows, columns}, x, (size_t)(rows * columns) * sizeof *x);
}

static struct low draw_pair(int64_t rows, int64_t columns, int rank, uint64_t *seed)
{
    struct low l = {malloc((size_t)(rank * columns) * sizeof(float)),
                    malloc((size_t)(rows * rank) * sizeof(float)), rows, columns};
    for (int64_t i = 0; i < rank * columns; i++) l.a[i] = (float)(0.1 * drawn(seed));
    for (int64_t i = 0; i < rows * rank; i++) l.b[i] = (float)(0.1 * drawn(seed));
    return l;
}

/* W + s B A, in fp32. */
static void add_product(float *w, const struct low *l, int rank, double s)
{
    for (int64_t r = 0; r < l->rows; r++)
        for (int64_t k = 0; k < l->columns; k++) {
            double x = 0;
            for (int i = 0; i < rank; i++) x += (double)l->b[r * rank + i] * (double)l->a[i * l->columns + k];
            w[r * l->columns + k] = (float)((double)w[r * l->columns + k] + s * x);
        }
}

static int module_of(const char *tensor)
{
    for (int i = 0; i < MODULES; i++) {
        size_t n = strlen(modules[i].name);
        if (!strncmp(tensor, modules[i].name, n) && !strcmp(tensor + n, ".weight")) return i;
    }
    return -1;
}

void adapter_write(const char *scratch, double alpha, bool by_root, uint64_t seed)
{
    char plain[600], adapter[600], merged[600], text[256];
    struct checkpoint c;
    struct fault f = {{0}};
    struct made pairs = {0}, sum = {0};
    struct low low[MODULES];
    snprintf(plain, sizeof plain, "%s/plain", scratch),
        snprintf(adapter, sizeof adapter, "%s/adapter", scratch);
    snprintf(merged, sizeof merged, "%s/merged", scratch);
    mkdir(adapter, 0700), mkdir(merged, 0700);
    bool good = checkpoint_open(&c, plain, &f);
    CHECK(good, "%s", f.text);
    for (int i = 0; good && i < MODULES; i++) {
        int64_t columns, rows = rows_of(&c, modules[i].name, &columns);
        low[i] = draw_pair(rows, columns, modules[i].rank, &seed);
        add_half(&pairs, modules[i].name, "lora_A", modules[i].rank, columns, low[i].a);
        add_half(&pairs, modules[i].name, "lora_B", rows, modules[i].rank, low[i].b);
    }
    for (int i = 0; good && i < c.count; i++) {
        const struct stored_tensor *t = &c.tensor[i];
        float *w = malloc(t->bytes);
        int m = module_of(t->name);
        memcpy(w, t->data, t->bytes);
        double r = m < 0 ? 1 : modules[m].rank;
        if (m >= 0) add_product(w, &low[m], modules[m].rank, alpha / (by_root ? sqrt(r) : r));
        made_add(&sum, t->name, t->type, t->rank, t->dims, w, t->bytes);
        free(w);
    }
    made_write(&pairs, adapter, "adapter_model.safetensors");
    made_write(&sum, merged, "model.safetensors");
    copy_config(plain, merged);
    snprintf(
        text, sizeof text,
        "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": %g, \"use_rslora\": %s, \"bias\": \"none\", "
        "\"use_dora\": false, \"modules_to_save\": null, \"target_modules\": [\"q_proj\"]}",
        alpha, by_root ? "true" : "false");
    write_text(adapter, "adapter_config.json", text);
    for (int i = 0; good && i < MODULES; i++) free(low[i].a), free(low[i].b);
    checkpoint_close(&c);
}

static struct model *opened(const char *scratch, const char *name, bool adapted, struct fault *f)
{
    char path[600], adapter[600];
    struct model_options o = {
        .device = CODA_DEVICE_CPU, .dtype = CODA_F32, .every_row = true, .rows = TOKENS, .context = 32};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    snprintf(adapter, sizeof adapter, "%s/adapter", scratch);
    if (adapted) o.adapter = adapter;
    return model_open(path, &o, f);
}

static float *logits_of(const char *what, const char *scratch, const char *name, bool adapted, int64_t *n)
{
    struct fault f = {{0}};
    int32_t next;
    struct model *m = opened(scratch, name, adapted, &f);
    *n = m ? TOKENS * (int64_t)m->config.vocabulary : 0;
    float *y = calloc((size_t)*n + 1, sizeof *y);
    bool good = m && model_decode(m, prompt, TOKENS, &next, &f) && model_logits(m, y, TOKENS, &f);
    CHECK(good, "%s, %s: %s", what, name, f.text);
    model_close(m);
    return y;
}

static void test_one(const char *what, const char *scratch)
{
    int64_t n, bare_n;
    float *want = logits_of(what, scratch, "merged", false, &n);
    float *bare = logits_of(what, scratch, "plain", false, &bare_n);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "quantised" : "plain";
        float *got = logits_of(what, scratch, name, true, &bare_n);
        double e = n == bare_n ? relative_error(got, want, n) : 1;
        CHECK(e <= bar, "%s, %s: logits are off by %.2e", what, name, e);
        free(got);
    }
    double apart = relative_error(bare, want, n);
    CHECK(apart > 100 * bar, "%s: the adapter changes logits by %.2e", what, apart);
    free(want);
    free(bare);
}

/* ---- What is refused ---- */

static void refused(const char *scratch, const char *says)
{
    struct fault f = {{0}};
    struct model *m = opened(scratch, "quantised", true, &f);
    CHECK(!m && strstr(f.text, says) && !strchr(f.text, '\n'), "not \"%s\": %s", says, f.text);
    model_close(m);
}

static void test_configs(const char *scratch)
{
    static const struct {
        const char *text, *says;
    } all[] = {
        {"{\"lora_alpha\": 16, \"use_dora\": true}", "use_dora is not supported"},
        {"{\"lora_alpha\": 16, \"bias\": \"all\"}", "bias is not supported"},
        {"{\"lora_alpha\": 16, \"modules_to_save\": [\"lm_head\"]}", "modules_to_save is not supported"},
        {"{\"lora_alpha\": 16, \"alpha_pattern\": {\"q_proj\": 3}}", "alpha_pattern is not supported"},
        {"{\"lora_alpha\": 16, \"peft_type\": \"IA3\"}", "peft_type is IA3"},
        {"{\"lora_alpha\": \"16\"}", "lora_alpha is 0"},
        {"{\"peft_type\": \"LORA\"}", "lora_alpha is 0"},
        {"[]", "no JSON object"},
        {"{", "line 1"}};
    char folder[600];
    snprintf(folder, sizeof folder, "%s/adapter", scratch);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        write_text(folder, "adapter_config.json", all[i].text);
        refused(scratch, all[i].says);
    }
    write_text(folder, "adapter_config.json", "{\"lora_alpha\": 16}");
}

static void test_tensors(const char *scratch)
{
    static const struct {
        const char *module, *says;
        int64_t a[2], b[2]; /* shapes; 0: it is missing */
    } all[] = {
        {"model.layers.0.self_attn.q_proj",
         "q_proj.lora_A.weight: it has no lora_B beside it",
         {2, 256},
         {0}},
        {"model.layers.0.self_attn.q_proj",
         "q_proj.lora_B.weight: it has no lora_A beside it",
         {0},
         {128, 2}},
        {"model.layers.0.self_attn.q_proj", "q_proj.lora_A.weight: rank 2 and 2 x 255", {2, 255}, {128, 2}},
        {"model.layers.0.self_attn.q_proj", "q_proj.lora_B.weight: rank 2 and 128 x 3", {2, 256}, {128, 3}},
        {"model.layers.0.self_attn.q_proj", "q_proj.lora_B.weight: rank 2 and 127 x 2", {2, 256}, {127, 2}},
        {"model.layers.9.self_attn.q_proj", "is not read by family llama", {2, 256}, {128, 2}},
        {"lm_head", "lm_head.lora_A.weight is not read by family llama", {2, 256}, {64, 2}}};
    char folder[600];
    float *zeros = calloc(1 << 16, sizeof *zeros);
    snprintf(folder, sizeof folder, "%s/adapter", scratch);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct made t = {0};
        if (all[i].a[0]) add_half(&t, all[i].module, "lora_A", all[i].a[0], all[i].a[1], zeros);
        if (all[i].b[0]) add_half(&t, all[i].module, "lora_B", all[i].b[0], all[i].b[1], zeros);
        made_write(&t, folder, "adapter_model.safetensors");
        refused(scratch, all[i].says);
    }
    free(zeros);
}

void test_adapters(const char *tiny, const char *scratch)
{
    static const char *const kinds[] = {"int4 of 128", "fp8 by channel", "gptq in another order", "mxfp4"};
    (void)tiny;
    for (int i = 0; i < quant_kind_count; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            if (strcmp(quant_kinds[i].name, kinds[k])) continue;
            quant_write(&quant_kinds[i], scratch, k % 2 ? "qwen2" : "llama", 11 + (uint64_t)i);
            adapter_write(scratch, k % 2 ? 5 : 16, k == 1, 3 + (uint64_t)i);
            test_one(kinds[k], scratch);
            if (!k) test_configs(scratch), test_tensors(scratch);
        }
}
