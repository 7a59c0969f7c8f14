/*
 * train_source.h -- what is trained: sizes, a family, a tokenizer, and maybe a checkpoint's weights.
 */
#ifndef TRAIN_SOURCE_H
#define TRAIN_SOURCE_H

#include "build.h"
#include "train_settings.h"

struct tokenizer;

struct source {
    struct checkpoint files; /* of --from */
    bool opened;
    json_t *object;  /* config.json, or of a GGUF file in the same words and some of its own */
    json_t *written; /* the same without these */
    struct config config;
    const struct family *family;
    const char *speaks; /* the checkpoint that has the tokenizer; NULL: bytes */
    struct tokenizer *tokenizer;
    int begins, ends; /* tokens around a document; below 0: none, or by the tokenizer */
};
bool source_open(struct source *s, const struct settings *o, struct fault *f);
void source_close(struct source *s);

/* config.json and the files of the tokenizer into a folder. */
bool source_write(const struct source *s, const char *folder, coda_dtype dtype, struct fault *f);

/* ---- vocabulary.c ---- */

/* The tokenizer's files: a tokenizer of bytes; copies; or what a GGUF file has, as tokenizer.json. */
bool vocabulary_write_bytes(const char *folder, struct fault *f);
bool vocabulary_copy(const char *model, const char *folder, struct fault *f);

/* Tokens of bytes: the one of byte 0, which no text has, begins and ends documents. */
enum { BYTES = 256, BYTES_END = 0 };

#endif
