/*
 * chat_runner.h -- a small LLaMA with random weights, as a server runs it: one graph and one plan for every
 * mixture of prompts and sequences that write, over caches of keys and values that lie in pages.
 *
 * A step has T rows (tokens) of B sequences. A sequence's rows are next to each other, those of b from
 * starts[b] below starts[b + 1]. Row i stores its keys and values in row slots[i] of the pools, and
 * attends to the pages that the sequence's row of the table names. Logits are made of a row of each
 * sequence, last[b].
 */
#ifndef CHAT_RUNNER_H
#define CHAT_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MODEL_BOS = 256, /* tokens below are bytes */
    MODEL_EOS = 257,
    MODEL_PAD = 258,
    MODEL_VOCABULARY = 259,
    MODEL_LOGITS = 264, /* columns of the logits; those beyond the vocabulary mean nothing */
    PAGE_TOKENS = 16     /* tokens */
};

enum runner_policy {
    RUNNER_POLICY_USUAL, /* background on a GPU, else wait */
    RUNNER_POLICY_WAIT,  /* all kernels are made before the first step */
    RUNNER_POLICY_BACKGROUND
};

struct runner_options {
    bool gpu;
    enum runner_policy policy;
    uint64_t seed; /* of the weights */
    int rows;      /* of a step, at most */
    int sequences; /* of a step, at most */
    int context;   /* tokens of a sequence, at most; a multiple of PAGE_TOKENS */
    int pages;     /* of the pools of keys and values */
    int graphs;    /* on a GPU, steps in which so many sequences write, or fewer, are CUDA graphs */
};

/* What a step reads, in host memory that belongs to the model. */
struct runner_inputs {
    int32_t *ids, *positions, *slots; /* [rows] */
    int32_t *starts;                  /* [sequences + 1] */
    int32_t *lengths, *last, *table;  /* [sequences], [sequences], [sequences, table_pages] */
    int table_pages;                  /* context / PAGE_TOKENS */
};

struct runner;

/* NULL, and a line in `why`, if it cannot be had. A model belongs to the thread that made it. */
struct runner *runner_new(const struct runner_options *opt, char *why, int size);
void runner_free(struct runner *m);
const char *runner_device(const struct runner *m);

/* Makes the plans of all shapes that runner_run will ask for, so that no step waits for one; by
 * RUNNER_POLICY_BACKGROUND on a GPU just those of its CUDA graphs, of kernels that serve any shape. Captures
 * these, the largest first. */
bool runner_warm(struct runner *m, char *why, int size);

struct runner_inputs *runner_inputs(struct runner *m);

/* Runs a step of `rows` rows and `sequences` sequences, for which the inputs are filled in. Both are rounded
 * up to one of a few shapes, by rows that store nothing and sequences without rows. Gives the logits,
 * [sequences, MODEL_LOGITS], valid until the next run; NULL, and a line in `why`, if it failed. */
const float *runner_run(struct runner *m, int rows, int sequences, char *why, int size);

struct runner_stats {
    int64_t planned, kernels, pending, runs, runs_base, improved, failed; /* as in coda_shape_stats */
    int64_t captures;                                                     /* graphs that were made */
    int64_t replays;                                                      /* steps that were one */
};
/* In any thread, beside a step. */
void runner_stats(const struct runner *m, struct runner_stats *out);

#endif
