/*
 * train_aside.h -- files that are there as a whole or not at all: written under another name, flushed to the
 * disk, and renamed.
 */
#ifndef TRAIN_ASIDE_H
#define TRAIN_ASIDE_H

#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>

#include "fault.h"

struct aside {
    FILE *file;
    char path[PATH_MAX], other[PATH_MAX];
};

bool aside_open(struct aside *a, const char *folder, const char *name, struct fault *f);
bool aside_write(struct aside *a, const void *data, size_t bytes, struct fault *f);
/* Puts the file in its place if all was `good`, else removes it. */
bool aside_close(struct aside *a, bool good, struct fault *f);

/* A file of safetensors: the length of its header, the header, the data. An entry for the next tensor, whose
 * data begin at *at, which moves on; false: no memory. Then the header, as one has made it of its entries. */
bool aside_entry(json_t *header, const char *name, const char *type, int rank, const int64_t *dims,
                 size_t bytes, size_t *at);
bool aside_header(struct aside *a, const json_t *header, struct fault *f);

/* A whole file of them. */
bool aside_json(const char *folder, const char *name, const json_t *object, struct fault *f);
bool aside_bytes(const char *folder, const char *name, const void *data, size_t bytes, struct fault *f);

#endif
