/*
 * quantised.c -- models whose products are quantised, against fp64 of the weights that the formats mean; and
 * files whose tensors do not fit one another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "packing.h"
#include "quant_file.h"
#include "tensor.h"

enum { TOKENS = 12 };
static const int32_t prompt[TOKENS] = {3, 60, 1, 17, 17, 42, 9, 0, 63, 30, 5, 11};
static const double bar = 1e-5; /* of logits in fp32, relative */

static struct model *opened(const char *folder, const char *name, coda_device device, struct fault *f)
{
    char path[600];
    struct model_options o = {
        .device = device, .dtype = CODA_F32, .every_row = true, .rows = TOKENS, .context = 32};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return model_open(path, &o, f);
}

/* ---- fp64 ---- */

static void fill_input(const coda_arg_info *info, int32_t *to)
{
    for (int i = 0; i < TOKENS; i++) to[i] = strcmp(info->name, "ids") ? i : prompt[i];
    if (!strcmp(info->name, "lengths")) to[0] = TOKENS;
}

/* Memory of an argument: weights are the model's. */
static void *argument(struct model *m, const coda_arg_info *info)
{
    if (info->kind == CODA_ARG_WEIGHT) return m->args[coda_plan_find(m->plan, info->name)];
    void *p = calloc((size_t)element_count(info) + 64, sizeof(double));
    if (info->kind == CODA_ARG_INPUT) fill_input(info, p);
    return p;
}

/* Logits of the prompt by the graph's evaluator; NULL, and a failed check, if there are none. */
static double *evaluated(struct model *m)
{
    void *args[256] = {NULL};
    double *logits = NULL;
    struct weights weights = {0};
    struct fault f = {{0}};
    coda_arg_info info = CODA_ARG_INFO_INIT;
    coda_graph *g = decoder_graph(m, &weights, &f), *bound = NULL;
    bool good = g && coda_graph_bind(&bound, g, (int64_t[]){TOKENS}, 1) == CODA_OK;
    for (int i = 0; good && i < coda_graph_args(bound); i++) {
        coda_graph_arg(bound, i, &info);
        args[i] = argument(m, &info);
        if (!strcmp(info.name, "logits")) logits = args[i];
    }
    good = good && coda_evaluate(bound, args) == CODA_OK;
    CHECK(good, "%s %s", f.text, coda_error());
    for (int i = 0; bound && i < coda_graph_args(bound); i++) {
        coda_graph_arg(bound, i, &info);
        if (info.kind != CODA_ARG_WEIGHT && args[i] != logits) free(args[i]);
    }
    weights_free(&weights);
    coda_graph_free(bound);
    coda_graph_free(g);
    return logits;
}

static double off(const float *y, const double *r, int n)
{
    double difference = 0, size = 0;
    for (int i = 0; i < n; i++) {
        difference += (y[i] - r[i]) * (y[i] - r[i]);
        size += r[i] * r[i];
    }
    return sqrt(difference / size);
}

/* ---- Values: what is loaded means what the format does, bit for bit ---- */

static bool open_files(const char *folder, const char *name, struct checkpoint *c, struct config *config)
{
    char path[600];
    struct fault f = {{0}};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    bool good = checkpoint_open(c, path, &f) && config_read(config, c->config, &f);
    CHECK(good, "%s", f.text);
    return good;
}

static void check_rows(const char *what, const struct stored_matrix *m, const char *bytes,
                       const int32_t *order, const struct stored_tensor *want)
{
    float *row = malloc((size_t)m->columns * sizeof *row);
    float factor = m->factor ? stored_number(m->factor, 0) : 1;
    int64_t wrong = 0;
    if (m->divisor) factor = 1 / factor;
    for (int64_t n = 0; n < m->rows; n++) {
        if (coda_unpack(&m->format, bytes, m->rows, m->columns, n, 0, m->columns, row) != CODA_OK) wrong++;
        for (int64_t k = 0; k < m->columns; k++)
            wrong += row[k] * factor != stored_number(want, n * m->columns + (order ? order[k] : k));
    }
    CHECK(!wrong, "%s: %lld of %lld numbers of %s differ", what, (long long)wrong,
          (long long)(m->rows * m->columns), want->name);
    free(row);
}

/* A matrix that is packed. */
static void check_matrix(const char *what, const struct stored_matrix *m, const struct stored_tensor *want)
{
    struct device d;
    struct fault f = {{0}};
    size_t bytes = (size_t)coda_packed_bytes(&m->format, m->rows, m->columns);
    struct weight w = {.kind = WEIGHT_PACKED, .matrix = {*m}, .parts = 1, .name = want->name, .bytes = bytes};
    char *packed = malloc(bytes);
    int32_t *order = m->order ? malloc((size_t)m->columns * sizeof *order) : NULL;
    memset(packed, 0xff, bytes);
    device_open(&d, CODA_DEVICE_CPU);
    bool good = weight_load(&w, &d, packed, &f);
    w.kind = WEIGHT_ORDER;
    w.bytes = (size_t)m->columns * sizeof *order;
    if (good && order) good = weight_load(&w, &d, order, &f);
    CHECK(good, "%s: %s", what, f.text);
    if (good) check_rows(what, m, packed, order, want);
    free(packed);
    free(order);
}

static void test_values(const char *what, const char *scratch, const char *end)
{
    struct checkpoint c = {0}, plain = {0};
    struct config *config = calloc(2, sizeof *config);
    char name[2][32], stem[160];
    struct fault f = {{0}};
    snprintf(name[0], sizeof name[0], "quantised%s", end);
    snprintf(name[1], sizeof name[1], "plain%s", end);
    bool good =
        open_files(scratch, name[0], &c, &config[0]) && open_files(scratch, name[1], &plain, &config[1]);
    for (int i = 0; good && i < plain.count; i++) {
        const struct stored_tensor *t = &plain.tensor[i];
        struct stored_matrix m = {0};
        if (t->rank != 2) continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
        bool found =
            stored_find(&config[0].quant, &c, stem, t->dims[0], t->dims[1], &m, &f) && packing_format(&m, &f);
        CHECK(found, "%s: %s", what, f.text);
        if (found && m.layout != STORED_PLAIN && m.layout != STORED_SCALED) check_matrix(what, &m, t);
    }
    checkpoint_close(&c);
    checkpoint_close(&plain);
    free(config);
}

/* ---- Models ---- */

static void compare(const char *what, const char *family, struct model *m, struct model *plain)
{
    int n = TOKENS * m->config.vocabulary;
    float *logits = malloc((size_t)n * sizeof *logits);
    double *want = evaluated(plain);
    struct fault f = {{0}};
    int32_t next;
    bool ran = model_decode(m, prompt, TOKENS, &next, &f) && model_logits(m, logits, TOKENS, &f);
    CHECK(ran, "%s of %s: %s", family, what, f.text);
    double e = ran && want ? off(logits, want, n) : 1;
    CHECK(e <= bar, "%s of %s: logits are off by %.2e", family, what, e);
    free(logits);
    free(want);
}

static void test_one(const char *what, const char *family, const char *scratch, const char *end,
                     coda_device device)
{
    struct fault f = {{0}};
    char name[2][32];
    snprintf(name[0], sizeof name[0], "quantised%s", end);
    snprintf(name[1], sizeof name[1], "plain%s", end);
    struct model *m = opened(scratch, name[0], device, &f);
    CHECK(m, "%s of %s: %s", family, what, f.text);
    struct model *plain = opened(scratch, name[1], CODA_DEVICE_CPU, &f);
    CHECK(plain, "%s of %s: %s", family, what, f.text);
    if (m && plain) compare(what, family, m, plain);
    model_close(m);
    model_close(plain);
}

static void test_ggufs(const char *scratch)
{
    for (int i = 0; i < quant_gguf_count; i++) {
        if (SANITIZED && !is_drawn(3, i)) continue;
        quant_write_gguf(&quant_ggufs[i], scratch, 7 + (uint64_t)i);
        test_values(quant_ggufs[i].name, scratch, ".gguf");
        test_one(quant_ggufs[i].name, quant_ggufs[i].family, scratch, ".gguf", CODA_DEVICE_CPU);
    }
}

static void test_models(const char *scratch)
{
    static const char *const families[] = {"llama", "qwen2"};
    for (int i = 0; i < quant_kind_count; i++) {
        if (SANITIZED && !is_drawn(4, i / 2)) continue; /* one of each family */
        const char *family = families[i % 2];
        quant_write(&quant_kinds[i], scratch, family, 7 + (uint64_t)i);
        test_values(quant_kinds[i].name, scratch, "");
        test_one(quant_kinds[i].name, family, scratch, "", CODA_DEVICE_CPU);
    }
}

void test_quantised(const char *tiny, const char *scratch)
{
    (void)tiny;
    quant_golden();
    test_models(scratch);
    test_ggufs(scratch);
    quant_bad(scratch);
}

/* A mixture with a packed table of tokens: threads pack it into slots that are copied. */
void test_quantised_gpu(const char *tiny, const char *scratch)
{
    (void)tiny;
    for (int i = 0; i < quant_gguf_count; i++) {
        if (strcmp(quant_ggufs[i].name, "Q4_K_M")) continue;
        quant_write_gguf(&quant_ggufs[i], scratch, 5);
        test_one(quant_ggufs[i].name, quant_ggufs[i].family, scratch, ".gguf", CODA_DEVICE_GPU);
    }
}
