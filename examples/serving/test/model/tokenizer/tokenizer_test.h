/*
 * tokenizer_test.h -- what the parts of tokenizer_test share.
 */
#ifndef TOKENIZER_TEST_H
#define TOKENIZER_TEST_H

#include <jansson.h>
#include <stdbool.h>

#include "tokenizer.h"

/* Counts a check; says what was wrong, if it failed. Returns `good`. */
__attribute__((format(printf, 2, 3))) bool check(bool good, const char *format, ...);

json_t *load(const char *dir, const char *name); /* a JSON file that must be there */
void store(const char *dir, const char *name, const char *text, size_t n);
const char *new_folder(void); /* an empty one; the last one's files are gone */

/* All of a folder's goldens, by the tokenizer in another folder, which may be the same. */
void check_golden(const char *tokenizer, const char *golden, const json_t *strings);
/* The same by a tokenizer that is open. */
void check_golden_of(struct tokenizer *t, const char *golden, const json_t *strings);

void check_goldens(const char *dir);  /* of all tokenizers in a folder */
void check_legacy(const char *dir);   /* the same without tokenizer.json */
void check_settings(const char *dir); /* the files beside tokenizer.json */
void check_gguf(const char *dir);     /* the same by the metadata of GGUF files */
void check_real(const char *dir,
                const char *vocabulary); /* the golden `minilm`, if its vocabulary is there */
void check_refused(const char *dir);     /* files that are damaged, or ask for what is not known */
void check_calls(const char *dir);       /* arguments at their ends; long texts */
void check_limits(const char *dir);      /* ids, time and work that a text may cost */
/* That limits of ids hold for a text, of which there are ids. */
void check_limits_of(struct tokenizer *t, const char *name, const char *text, size_t n);
void check_fuzz(const char *dir, unsigned seed, int rounds);

#endif
