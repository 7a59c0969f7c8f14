/*
 * windows.c -- windows of a corpus, in an order that a seed tells, as what a run reads.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor.h"
#include "train_corpus.h"

/* ---- The order ---- */

/* Fisher and Yates, by Durstenfeld (CACM 7, 1964). */
static void shuffle(int32_t *order, int64_t n, uint64_t *state)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)(uniform(state) * (double)(i + 1));
        int32_t kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

bool windows_begin(struct windows *w, int64_t epoch, int64_t next, struct fault *f)
{
    int64_t all = w->to - w->from;
    uint64_t state = w->seed * 0x9e3779b97f4a7c15u + (uint64_t)epoch + 1;
    w->epoch = epoch;
    w->next = next;
    w->first = w->as_they_lie ? w->tokens : 1 + (int64_t)(uniform(&state) * (double)w->tokens);
    if (w->first > w->tokens) w->first = w->tokens;
    w->count = 1 + (all > w->first ? (all - w->first + w->tokens - 1) / w->tokens : 0);
    if (w->count > INT32_MAX)
        return fault_set(f, "the text has %lld windows; %d are the most", (long long)w->count, INT32_MAX);
    int32_t *order = realloc(w->order, sizeof *order * (size_t)w->count);
    if (!order) return fault_set(f, "out of memory for %lld windows", (long long)w->count);
    w->order = order;
    for (int64_t i = 0; i < w->count; i++) order[i] = (int32_t)i;
    if (!w->as_they_lie) shuffle(order, w->count, &state);
    return true;
}

void windows_free(struct windows *w)
{
    free(w->order);
    w->order = NULL;
}

/* ---- A run's arguments ---- */

enum { ALIGNED = 64 }; /* elements at which each of them begins */

bool batch_open(struct batch *b, int64_t rows, int64_t tokens, struct fault *f)
{
    size_t n = (size_t)(rows * tokens + ALIGNED - 1) / ALIGNED * ALIGNED;
    *b = (struct batch){.rows = rows, .tokens = tokens, .bytes = 5 * n * sizeof *b->ids};
    if (!(b->ids = malloc(b->bytes))) return fault_set(f, "out of memory for %zu tokens of a run", n);
    b->positions = b->ids + n;
    b->target = b->ids + 2 * n;
    b->ranges = b->ids + 3 * n;
    batch_clear(b);
    return true;
}

void batch_free(struct batch *b)
{
    free(b->ids);
    *b = (struct batch){0};
}

void batch_clear(struct batch *b)
{
    int64_t n = b->rows * b->tokens;
    b->filled = b->targets = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t at = (int32_t)(i % b->tokens);
        b->ids[i] = b->positions[i] = 0;
        b->target[i] = NO_TARGET;
        b->ranges[2 * i] = at;
        b->ranges[2 * i + 1] = at + 1;
    }
}

/* Tokens from..to of the corpus become row `row`: each sees those of its document from the window's beginning
 * to itself, and its target is the next one, if that is of its document. */
static void fill_row(struct batch *b, const struct windows *w, int64_t row, int64_t from, int64_t to)
{
    const struct corpus *c = w->c;
    for (int64_t i = from; i < to; i++) {
        int64_t at = row * b->tokens + i - from;
        int64_t begins = i - c->place[i] > from ? i - c->place[i] : from;
        b->ids[at] = c->id[i];
        b->positions[at] = (int32_t)(i - begins);
        b->ranges[2 * at] = (int32_t)(begins - from);
        b->ranges[2 * at + 1] = (int32_t)(i - from) + 1;
        if (i + 1 == w->to || !c->place[i + 1]) continue;
        b->target[at] = c->id[i + 1];
        b->targets++;
    }
}

static void fill_next(struct batch *b, struct windows *w)
{
    int64_t k = w->order[w->next++];
    int64_t from = k ? w->from + w->first + (k - 1) * w->tokens : w->from;
    int64_t to = k ? from + w->tokens : w->from + w->first;
    fill_row(b, w, b->filled++, from, to < w->to ? to : w->to);
}

bool batch_fill(struct batch *b, struct windows *w, struct fault *f)
{
    batch_clear(b);
    while (b->filled < b->rows && w->next < w->count) fill_next(b, w);
    return w->as_they_lie || w->next < w->count || windows_begin(w, w->epoch + 1, 0, f);
}
