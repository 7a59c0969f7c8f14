/*
 * model_test.h -- tests of model against tiny checkpoints, whose logits another library has made.
 */
#ifndef MODEL_TEST_H
#define MODEL_TEST_H

#include "model.h"

extern int failures, checks;
extern const char *skipped; /* what the last line says of tests that did not run */
void check_that(bool holds, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define CHECK(holds, ...) check_that(holds, __FILE__, __LINE__, __VA_ARGS__)

/* Sanitizers look at code, not at numbers: of what costs much they take a part. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

/* One in n of a set that costs much, by $CODA_SEED; without a seed, and with $CODA_FULL, each. */
bool is_drawn(int n, int i);

/* The tiny checkpoints of decoders, by name. */
extern const char *const decoder[];
extern const int decoders;

/* |y - r| / |r|, Euclidean. */
double relative_error(const float *y, const float *r, int64_t n);

/* Tensors of a file: `type` is what it must call them. */
const void *golden_tensor(const struct checkpoint *c, const char *name, const char *type, int64_t *count);
bool golden_open(struct checkpoint *c, const char *path);

/* A checkpoint with one thing changed, and what its refusal says. */
struct change {
    const char *what, *old, *new; /* of equal length in tensors */
    const char *says;
};
/* Each change by itself of `file` of the checkpoint in the folder `from`. */
void change_each(const char *from, const char *scratch, const char *file, const struct change *all, int n);

/* `tiny` is the folder of checkpoints, `scratch` one to write to. */
void test_families(const char *tiny, const char *scratch);
void test_greedy(const char *tiny, const char *scratch);
void test_greedy_gpu(const char *tiny, const char *scratch);
void test_brief_gpu(const char *tiny, const char *scratch);
void test_sampling(const char *tiny, const char *scratch);
void test_keys(const char *tiny, const char *scratch);
void test_known(const char *tiny, const char *scratch);
void test_plain(const char *tiny, const char *scratch);
void test_files(const char *tiny, const char *scratch);
void test_recurrent(const char *tiny, const char *scratch);
void test_fuzz(const char *tiny, const char *scratch);
void test_turns(const char *tiny, const char *scratch);
void test_templates(const char *tiny, const char *scratch);
void test_template_work(const char *tiny, const char *scratch);
void test_template_depth(const char *tiny, const char *scratch);
void test_modules(const char *tiny, const char *scratch);
void test_words(const char *tiny, const char *scratch);
void test_adapters(const char *tiny, const char *scratch);
void test_quantised(const char *tiny, const char *scratch);
void test_quantised_gpu(const char *tiny, const char *scratch);
void test_quantize(const char *tiny, const char *scratch);
void test_rounding(const char *tiny, const char *scratch);
void test_ranks(const char *tiny, const char *scratch);
void test_ranks_encoders(const char *tiny, const char *scratch);
void test_cuts(const char *tiny, const char *scratch);
void test_minilm(const char *tiny, const char *scratch);

#endif
