/*
 * train_test.h -- tests of training: losses, gradients, optimisers, windows, what is written.
 */
#ifndef TRAIN_TEST_H
#define TRAIN_TEST_H

#include "train_corpus.h"
#include "train_engine.h"

extern int failures, checks;
void check_that(bool holds, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define CHECK(holds, ...) check_that(holds, __FILE__, __LINE__, __VA_ARGS__)

/* A tiny checkpoint that is learned from on the CPU device. */
struct bench {
    struct checkpoint files;
    struct config config;
    struct device device;
    struct engine engine;
};
struct bench_shape {
    int64_t rows, tokens;
    int adapter;
    bool muon;
    double decay, clip;
    coda_dtype dtype; /* 0: fp32 */
    int64_t chunk;    /* rows of logits; 0: all */
    bool whole;       /* a step is one plan */
    bool one_run;     /* a step's gradient is that of its only run */
};
/* `path` NULL: a LLaMA of random weights. */
bool bench_open(struct bench *b, const char *path, const struct bench_shape *how);
void bench_close(struct bench *b);

/* A corpus of documents of these lengths, of random tokens below `vocabulary`. */
void corpus_of(struct corpus *c, const int *lengths, int documents, int vocabulary, uint64_t *seed);

/* The gradient that batches have together, and their loss. The memory is the caller's. */
float *gradient_of(struct bench *b, const struct batch *batches, int n, double *loss);
double distance(const float *a, const float *b, int64_t n); /* |a - b| / |b|, Euclidean */

/* `tiny` is the folder of checkpoints, `scratch` one to write to. */
void test_losses(const char *tiny, const char *scratch);
void test_gradients(const char *tiny, const char *scratch);
void test_packing(const char *tiny, const char *scratch);
void test_accumulation(const char *tiny, const char *scratch);
void test_chunks(const char *tiny, const char *scratch);
void test_whole(const char *tiny, const char *scratch);
void test_adapters(const char *tiny, const char *scratch);
void test_optimizer(const char *tiny, const char *scratch);
void test_scale(const char *tiny, const char *scratch);
void test_schedule(const char *tiny, const char *scratch);
void test_windows(const char *tiny, const char *scratch);
void test_documents(const char *tiny, const char *scratch);
void test_vocabulary(const char *tiny, const char *scratch);
void test_saved(const char *tiny, const char *scratch);

#endif
