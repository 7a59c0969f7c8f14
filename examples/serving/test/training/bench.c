/*
 * bench.c -- a tiny checkpoint that is learned from.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor.h"
#include "train_test.h"

static bool read_config(struct bench *b, const char *path, struct fault *f)
{
    if (path) return checkpoint_open(&b->files, path, f) && config_read(&b->config, b->files.config, f);
    b->files.config =
        json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f}", "model_type", "llama",
                  "hidden_act", "silu", "tie_word_embeddings", 1, "hidden_size", 32, "intermediate_size", 48,
                  "num_hidden_layers", 2, "num_attention_heads", 4, "num_key_value_heads", 2, "vocab_size",
                  40, "max_position_embeddings", 256, "rms_norm_eps", 1e-5, "rope_theta", 10000.0);
    return config_read(&b->config, b->files.config, f);
}

bool bench_open(struct bench *b, const char *path, const struct bench_shape *how)
{
    struct fault f = {{0}};
    *b = (struct bench){.engine = {.device = NULL}};
    bool good = read_config(b, path, &f) && device_open(&b->device, CODA_DEVICE_CPU);
    b->engine = (struct engine){.device = &b->device,
                                .config = &b->config,
                                .family = good ? family_find(&b->config, &f) : NULL,
                                .from = path ? &b->files : NULL,
                                .dtype = how->dtype ? how->dtype : CODA_F32,
                                .adapter = how->adapter,
                                .rows = how->rows,
                                .tokens = how->tokens,
                                .accumulates = !how->one_run && !how->whole,
                                .whole = how->whole,
                                .chunk = how->chunk,
                                .how = {how->muon, how->decay, how->clip > 0 ? how->clip : 1e30, 256, 3}};
    good = good && b->engine.family && engine_open(&b->engine, &f) &&
           parameters_fill(&b->engine.params, 7, b->config.layers, &f);
    CHECK(good, "%s: %s", path ? path : "a LLaMA of random weights", f.text);
    return good;
}

void bench_close(struct bench *b)
{
    engine_close(&b->engine);
    checkpoint_close(&b->files);
}

void corpus_of(struct corpus *c, const int *lengths, int documents, int vocabulary, uint64_t *seed)
{
    *c = (struct corpus){.documents = documents};
    for (int i = 0; i < documents; i++) c->count += lengths[i];
    c->id = malloc(sizeof *c->id * (size_t)c->count);
    c->place = malloc(sizeof *c->place * (size_t)c->count);
    for (int64_t i = 0, at = 0; i < documents; at += lengths[i++])
        for (int k = 0; k < lengths[i]; k++) {
            c->id[at + k] = (int32_t)(uniform(seed) * vocabulary);
            c->place[at + k] = k;
        }
    c->learned = c->count;
}

float *gradient_of(struct bench *b, const struct batch *batches, int n, double *loss)
{
    struct fault f = {{0}};
    struct parameters *p = &b->engine.params;
    int64_t targets = 0;
    float *g = malloc((size_t)p->count * sizeof *g), sum;
    for (int i = 0; i < n; i++) targets += batches[i].targets;
    if (b->engine.accumulates)
        memset(p->g, 0xff, (size_t)p->count * sizeof *g); /* which the beginning of a step clears */
    bool good = engine_begin(&b->engine, targets, &(struct rates){0}, &f);
    for (int i = 0; good && i < n; i++) good = engine_learn(&b->engine, &batches[i], &f);
    CHECK(good, "%s", f.text);
    memcpy(g, p->g, (size_t)p->count * sizeof *g);
    memcpy(&sum, b->engine.sums, sizeof sum);
    *loss = (double)sum / (double)targets;
    return g;
}

double distance(const float *a, const float *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / size);
}
