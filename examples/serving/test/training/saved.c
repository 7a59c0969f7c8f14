/*
 * saved.c -- what is written is what was learned: a checkpoint's losses are the run's, adapters are in it,
 * and a damaged file is an error.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tensor.h"
#include "train_aside.h"
#include "train_save.h"
#include "train_test.h"

static bool random_batch(struct batch *b, int vocabulary)
{
    uint64_t seed = 23;
    struct corpus c;
    struct fault f = {{0}};
    corpus_of(&c, (const int[]){30}, 1, vocabulary, &seed);
    struct windows w = {.c = &c, .from = 0, .to = c.count, .tokens = 32, .as_they_lie = true};
    bool good = batch_open(b, 1, 32, &f) && windows_begin(&w, 0, 0, &f) && batch_fill(b, &w, &f);
    CHECK(good, "%s", f.text);
    windows_free(&w);
    corpus_free(&c);
    return good;
}

static double loss_of(struct bench *b, const struct batch *batch)
{
    struct fault f = {{0}};
    double sum = 0;
    CHECK(engine_judge(&b->engine, batch, &sum, &f), "%s", f.text);
    return sum;
}

/* All that is learned goes somewhere else, the second matrices of adapters away from 0. */
static void stir(struct bench *b)
{
    uint64_t seed = 29;
    struct parameters *p = &b->engine.params;
    for (int64_t i = 0; i < p->count; i++) ((float *)p->p)[i] += (float)(0.05 * normal(&seed));
}

/* A checkpoint that is written, and opened as another one. */
static void write_and_read(const char *tiny, const char *scratch, const char *name, int adapter)
{
    char path[512], out[512];
    struct bench b, again;
    struct batch batch = {0};
    struct fault f = {{0}};
    const struct bench_shape how = {.rows = 1, .tokens = 32, .adapter = adapter},
                             plain = {.rows = 1, .tokens = 32};
    snprintf(path, sizeof path, "%s/%s", tiny, name);
    snprintf(out, sizeof out, "%s/written", scratch);
    mkdir(out, 0777);
    bool good = bench_open(&b, path, &how) && random_batch(&batch, b.config.vocabulary);
    if (good) {
        double before = loss_of(&b, &batch);
        stir(&b);
        double loss = loss_of(&b, &batch);
        CHECK(fabs(loss - before) > 1e-3 * before, "%s: nothing was stirred", name);
        good = save_model(out, &b.engine.params, &b.config, CODA_F32, &f) &&
               aside_json(out, "config.json", b.files.config, &f);
        CHECK(good, "%s", f.text);
        if (good && bench_open(&again, out, &plain)) {
            double other = loss_of(&again, &batch);
            CHECK(fabs(loss - other) <= 3e-6 * loss, "%s: loss %.8f, and of what was written %.8f", name,
                  loss, other);
        }
        bench_close(&again);
    }
    batch_free(&batch);
    bench_close(&b);
}

/* A run's file with a byte changed, or cut short, is an error or the same run. */
static void damage(const char *scratch)
{
    char path[512];
    struct bench b;
    struct fault f = {{0}};
    struct history h = {0};
    struct place at = {1, 2, 3};
    json_t *settings = json_pack("{s:i}", "--steps", 5);
    if (!bench_open(&b, NULL, &(struct bench_shape){.rows = 1, .tokens = 8, .dtype = CODA_F16}))
        return bench_close(&b);
    float *scale = (float *)b.engine.params.scale, *steps = scale + SCALE_STEPS / sizeof *scale;
    *scale = 4096, *steps = 17;
    CHECK(history_add(&h, 1.5f, 2, 3, &f) && history_judge(&h, 1, 2.5f, &f), "%s", f.text);
    CHECK(save_training(scratch, &b.engine.params, &h, &at, settings, &f), "%s", f.text);
    history_free(&h);
    *scale = *steps = 0;
    CHECK(saved_restore(scratch, &b.engine.params, &h, &at, &f) && h.steps == 1 && h.judgements == 1 &&
              h.judged[0].loss == 2.5f && at.epoch == 1 && at.next == 2 && at.digest == 3 && *scale == 4096 &&
              *steps == 17,
          "a run is not what it was: %s", f.text);
    snprintf(path, sizeof path, "%s/" TRAINING_FILE, scratch);
    FILE *file = fopen(path, "rb");
    static char bytes[1 << 20];
    size_t n = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file) fclose(file);
    uint64_t seed = 31;
    int refused = 0;
    for (int i = 0; n && i < 300; i++) {
        size_t where = i < 8 ? (size_t)i : (size_t)(uniform(&seed) * 900), keep = n;
        char old = bytes[where];
        if (i % 5 == 4) keep = (size_t)(uniform(&seed) * (double)n);
        else bytes[where] = (char)(bytes[where] ^ (1 << i % 7));
        file = fopen(path, "wb");
        if (file) fwrite(bytes, 1, keep, file), fclose(file);
        history_free(&h);
        f = (struct fault){{0}};
        if (!saved_restore(scratch, &b.engine.params, &h, &at, &f)) refused++, CHECK(*f.text, "no line");
        bytes[where] = old;
    }
    CHECK(refused > 100, "%d of 300 damaged files are refused", refused);
    history_free(&h);
    json_decref(settings);
    bench_close(&b);
}

void test_saved(const char *tiny, const char *scratch)
{
    write_and_read(tiny, scratch, "llama", 0);
    write_and_read(tiny, scratch, "llama", 3);
    write_and_read(tiny, scratch, "qwen2", 0);
    write_and_read(tiny, scratch, "gemma2", 0);
    write_and_read(tiny, scratch, "gemma2", 5);
    write_and_read(tiny, scratch, "gpt2", 0);
    damage(scratch);
}
