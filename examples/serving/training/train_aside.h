/*
 * train_aside.h -- files that are there as a whole or not at all: written under another name, flushed to the
 * disk, and renamed.
 */
#ifndef TRAIN_ASIDE_H
#define TRAIN_ASIDE_H

#include <jansson.h>
#include <limits.h>
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

/* A whole file of them. */
bool aside_json(const char *folder, const char *name, const json_t *object, struct fault *f);
bool aside_bytes(const char *folder, const char *name, const void *data, size_t bytes, struct fault *f);

#endif
