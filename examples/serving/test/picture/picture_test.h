/*
 * picture_test.h -- tests of picture against tiny networks, whose latents diffusers has made.
 */
#ifndef PICTURE_TEST_H
#define PICTURE_TEST_H

#include "picture.h"

extern int failures, checks;
void check_that(bool holds, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define CHECK(holds, ...) check_that(holds, __FILE__, __LINE__, __VA_ARGS__)

enum { TINY_KINDS = 10 };
extern const char *const tiny_kind[TINY_KINDS];

/* The options by which the network of this name was run, with files in its folder. `paths` keeps their
 * names. */
struct tiny {
    struct picture_options o;
    char folder[4096], paths[5][4096];
};
bool tiny_options(struct tiny *t, const char *folder, const char *name);
/* |y - r| / |r|, Euclidean. */
double relative_error(const float *y, const float *r, int64_t n);
/* Latents that a folder draws with these options, for free(); NULL, and a failed check. */
float *tiny_draw(const char *folder, const struct picture_options *o, int64_t *count);
/* Copies what a folder has to a new one. */
void copy_folder(const char *from, const char *to);

/* `tiny` is the folder of networks, `scratch` one to write to. */
void test_goldens(const char *tiny, const char *scratch);
void test_goldens_gpu(const char *tiny, const char *scratch);
void test_seeds(const char *tiny, const char *scratch);
void test_parts(const char *tiny, const char *scratch);
void test_bad(const char *tiny, const char *scratch);
void test_fuzz(const char *tiny, const char *scratch);
void test_digits(const char *tiny, const char *scratch);

#endif
