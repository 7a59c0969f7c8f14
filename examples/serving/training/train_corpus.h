/*
 * train_corpus.h -- a text as tokens of documents, and windows of them in an order that a seed tells.
 */
#ifndef TRAIN_CORPUS_H
#define TRAIN_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"

struct tokenizer;

/* All documents, one behind the other. */
struct corpus {
    int32_t *id;
    int32_t *place; /* of each token in its document */
    int64_t count, room;
    int64_t learned; /* tokens that are learned from; those behind are held out */
    int64_t documents;
    uint64_t digest; /* of the tokens */
};

/* The file's documents, between which `separator` stands; NULL: it is one. Without a tokenizer tokens are
 * bytes, and one of 0 separates documents, too. `begins` and `ends`, unless they are below 0, stand around
 * each document that does not have them. The last `held` of the tokens is held out: whole documents, if these
 * are many. */
struct corpus_format {
    const char *separator;
    struct tokenizer *tokenizer;
    int begins, ends;
    int vocabulary; /* ids are below it */
    double held;
};
bool corpus_read(struct corpus *c, const char *path, const struct corpus_format *how, struct fault *f);
void corpus_free(struct corpus *c);

/* Windows of some tokens of a corpus, each epoch in another order, and cut at other places. What comes is a
 * function of the seed, the epoch and how many of its windows have come. */
struct windows {
    const struct corpus *c;
    int64_t from, to; /* tokens */
    int64_t tokens;   /* of a window; the first and the last one of an epoch may have fewer */
    uint64_t seed;
    bool as_they_lie; /* in the text's order, cut at its beginning: no seed, and one epoch */
    int64_t epoch, next;
    int64_t first; /* tokens of the first window */
    int64_t count;
    int32_t *order;
};
bool windows_begin(struct windows *w, int64_t epoch, int64_t next, struct fault *f);
void windows_free(struct windows *w);

/* What a run reads: `rows` windows of `tokens`. Rows behind `filled` and tokens behind a window's end are
 * there for the shape: they see themselves, and have no target. */
enum { NO_TARGET = -100 };
struct batch {
    int64_t rows, tokens;
    int64_t filled;
    int64_t targets;                            /* that count */
    int32_t *ids, *positions, *target, *ranges; /* one memory, in this order */
    size_t bytes;
};
bool batch_open(struct batch *b, int64_t rows, int64_t tokens, struct fault *f);
void batch_free(struct batch *b);
/* Fills b with the next windows: as many as it has rows, or are left of the epoch, of which the last one
 * begins the next. Of windows as they lie 0 come when all have come. */
bool batch_fill(struct batch *b, struct windows *w, struct fault *f);
/* The same of none. */
void batch_clear(struct batch *b);

#endif
