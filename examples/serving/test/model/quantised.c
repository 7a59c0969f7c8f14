/*
 * quantised.c -- models whose products are quantised, against fp64 of the weights that the formats mean; and
 * files whose tensors do not fit one another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant_file.h"
#include "tensor.h"

enum { TOKENS = 12 };
static const int32_t prompt[TOKENS] = {3, 60, 1, 17, 17, 42, 9, 0, 63, 30, 5, 11};
static const double bar = 1e-5; /* of logits in fp32, relative */

static struct model *opened(const char *folder, const char *name, struct fault *f)
{
    char path[600];
    struct model_options o = {.device = CODA_DEVICE_CPU, .every_row = true, .rows = TOKENS, .context = 32};
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

static void test_models(const char *scratch)
{
    static const char *const families[] = {"llama", "qwen2"};
    for (int i = 0; i < 3; i++) { /* those of 8 bits that have a scale for a tensor or a row */
        const char *family = families[i % 2], *what = quant_kinds[i].name;
        struct fault f = {{0}};
        quant_write(&quant_kinds[i], scratch, family, 7 + (uint64_t)i);
        struct model *m = opened(scratch, "quantised", &f);
        CHECK(m, "%s of %s: %s", family, what, f.text);
        struct model *plain = opened(scratch, "plain", &f);
        CHECK(plain, "%s of %s: %s", family, what, f.text);
        if (m && plain) compare(what, family, m, plain);
        model_close(m);
        model_close(plain);
    }
}

void test_quantised(const char *tiny, const char *scratch)
{
    (void)tiny;
    test_models(scratch);
}
