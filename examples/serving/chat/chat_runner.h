/*
 * chat_runner.h -- a model as a server runs it: one graph and one plan for every mixture of prompts and
 * sequences that write, over caches of keys and values that lie in pages.
 *
 * A step has T rows (tokens) of B sequences. A sequence's rows are next to each other, those of b from
 * starts[b] below starts[b + 1]. Row i stores its keys and values in row slots[i] of the pools, and attends
 * to the pages that the sequence's row of the table names. Logits are made of a row of each sequence,
 * last[b]. Layers that carry a state have one of each sequence, by its number: with them a text is the same
 * sequence from step to step.
 */
#ifndef CHAT_RUNNER_H
#define CHAT_RUNNER_H

#include "chat_served.h"
#include "chat_timer.h"
#include "sample.h"

enum { PAGE_TOKENS = 16 };

enum runner_policy {
    RUNNER_POLICY_USUAL, /* background on a GPU, else wait */
    RUNNER_POLICY_WAIT,  /* all kernels are made before the first step */
    RUNNER_POLICY_BACKGROUND
};

struct runner_options {
    const struct served *served; /* lives as long as the runner */
    bool gpu;
    coda_dtype
        dtype; /* 0: F32 on the CPU device; on a GPU the files', or F16 for F32, BF16 for random weights */
    enum runner_policy policy;
    uint64_t seed;             /* of random weights */
    struct progress *progress; /* gets what is loaded, in MB, and then planned; NULL: nobody does */
    int rows;                  /* of a step, at most */
    int sequences;             /* of a step, at most */
    int context;               /* tokens of a sequence, at most; a multiple of PAGE_TOKENS */
    int pages;                 /* of the pools of keys and values */
    int graphs; /* on a GPU, steps in which so many sequences write, or fewer, are CUDA graphs; so are those
                    * that are rounded up to the same shape */
    int top;    /* the likeliest tokens that each step finds for each sequence, at most 64 */
    int ranks;  /* that share the model out (chat_crew.h); 0: 1. On GPUs rank r is on the r-th */
    coda_group *group; /* of one of several ranks */
};

/* What a step reads, in host memory that belongs to the runner. */
struct runner_inputs {
    int32_t *ids, *positions, *slots; /* [rows] */
    int32_t *starts;                  /* [sequences + 1] */
    int32_t *lengths, *last, *table;  /* [sequences], [sequences], [sequences, table_pages] */
    int table_pages;                  /* context / PAGE_TOKENS */
    int32_t *seeds, *places, *top_k;  /* [sequences, 2], [sequences] ...: how coda_sample is to draw */
    float *temperature, *top_p;
    bool
        *fresh; /* [sequences], for the host alone: the first row is a text's first, so states become zeros */
};

/* Sequence b has no rows in a step; its states stay. */
void runner_skip(struct runner_inputs *in, int b);

struct runner;

/* NULL, and the fault, if it cannot be had. A runner belongs to the thread that made it. */
struct runner *runner_new(const struct runner_options *opt, struct fault *f);
void runner_free(struct runner *m);
const char *runner_device(const struct runner *m);

/* Makes the plans of all shapes that runner_launch will ask for, so that no step waits for one; by
 * RUNNER_POLICY_BACKGROUND on a GPU just those of its CUDA graphs, of kernels that serve any shape. Captures
 * these, the largest first. */
bool runner_warm(struct runner *m, struct fault *f);

struct runner_inputs *runner_inputs(struct runner *m);

/* Launches a step of `rows` rows and `sequences` sequences, for which the inputs are filled in. Both are
 * rounded up to one of a few shapes, by rows that store nothing and sequences without rows. On the CPU device
 * the step is over then. */
bool runner_launch(struct runner *m, int rows, int sequences, struct fault *f);
/* The two halves of it: the shape of the step, for which the inputs are then padded; and its launch. */
void runner_round(struct runner *m, int rows, int sequences, int64_t dims[2]);
bool runner_run(struct runner *m, const int64_t dims[2], struct fault *f);
/* The inputs become those of another rank's runner, which are padded. */
void runner_copy_inputs(struct runner *m, const struct runner *from);
/* What a step was like, once it is over. */
struct runner_step {
    bool graph;              /* it was a CUDA graph; else runs */
    struct step_times times; /* of a GPU; 0 on the CPU device */
};
/* Waits for the step that was launched. */
bool runner_wait(struct runner *m, struct runner_step *out, struct fault *f);

/* Of a sequence of the last step, until the next one: the token drawn, whose logprob is NaN if the logits are
 * no numbers; the likeliest tokens, in descending order, of equals the first, and log(sum(exp)) of all
 * logits. */
struct sampled runner_chosen(const struct runner *m, int sequence);
struct logits runner_likeliest(const struct runner *m, int sequence);
/* All of a sequence's logits, in the order of tokens; on a GPU they are copied now. */
bool runner_logits(struct runner *m, int sequence, struct logits *out, struct fault *f);

struct runner_stats {
    int64_t planned, kernels, pending, runs, runs_base, improved, failed; /* as in coda_shape_stats */
    int64_t captures;                                                     /* graphs that were made */
    int64_t replays;                                                      /* steps that were one */
    int64_t state_bytes; /* of one sequence, of layers that carry a state */
};
/* In any thread, beside a step. */
void runner_stats(const struct runner *m, struct runner_stats *out);

#endif
