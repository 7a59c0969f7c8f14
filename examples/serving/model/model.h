/*
 * model.h -- a checkpoint as a plan that runs: a decoder that continues a text over its caches of keys and
 * values, or an encoder that makes a vector of each sentence or image. One plan serves all lengths.
 */
#ifndef MODEL_H
#define MODEL_H

#include "build.h"
#include "modules.h"
#include "times.h"

struct model_options {
    coda_device device; /* CODA_DEVICE_NONE: a GPU if there is one, else the CPU device */
    coda_dtype dtype; /* of weights and activations; 0: F32 on the CPU, on a GPU the file's, or F16 for F32 */
    int context;      /* a decoder's tokens, at most; 0: 2048, or fewer if the model was made for fewer */
    int rows;         /* tokens of one run, at most; 0: 256, or an encoder's longest sentence by its files */
    int sentences;    /* an encoder's, or its images, in one run; 0: 16, or fewer if they are long */
    bool every_row;   /* a decoder's logits of every token, not of the last alone */
    int top;          /* the likeliest tokens that model_top wants, at most MOST_TOP; 0: none */
    bool random;      /* the path is a config.json's, and weights are random numbers, of BF16 on a GPU */
    uint64_t seed;    /* of these */
    const char *drawn;         /* their format, as stored_draws has it; NULL: the config's */
    struct progress *progress; /* gets the weights that are loaded, in MB; NULL: nobody does */
    const char *adapter;       /* a folder of PEFT's, see adapter.h; NULL: none */
    coda_group *group; /* a decoder's, of several ranks, each with a model of its own; NULL: there is one */
    int ranks;         /* as many as the group has; 0: 1. On GPUs rank r is on the r-th */
    bool only_plan;    /* no memory, no weights: model_run may not be called. A GPU need not be there. */
};

enum { MOST_TOP = 64 /* coda_top_k's */ };
enum { MODEL_KINDS = 7 };    /* of coda_arg_kind */
enum { MODEL_LENGTHS = 24 }; /* rows to which a decoder's runs are rounded up, at most */

struct model {
    struct model_options opt; /* without zeros */
    struct checkpoint files;
    struct config config;
    const struct family *family;
    struct modules modules; /* of an encoder */
    struct device device;
    struct weights weights;
    coda_plan *plan;
    coda_plan *short_plan; /* of an encoder whose plan folds: for a short sentence; NULL until there is one */
    void **args;
    int arg_count;
    void *memory[MODEL_KINDS]; /* of all weights, all inputs, all states, all outputs */
    size_t bytes[MODEL_KINDS];
    char *inputs; /* host memory, laid out as memory[CODA_ARG_INPUT]; that itself on the CPU device */
    void *workspace, *prepared;
    size_t recurrent;            /* bytes of a decoder's states that are no caches */
    int length;                  /* tokens that a decoder's caches hold */
    bool lost;                   /* a run failed that had begun to write to such states */
    int64_t rows[MODEL_LENGTHS]; /* rising */
    int ran;                     /* rows of the last run */
    struct times times;          /* what opening it took */
};

/* NULL, and the fault, if it cannot be had. */
struct model *model_open(const char *path, const struct model_options *opt, struct fault *f);
void model_close(struct model *m);

/* Appends `n` tokens to the text and chooses the likeliest one behind them, the first of equals. The first
 * run of a number of tokens plans it: numbers above 1 are rounded up to a few, by rows that keep nothing. */
bool model_decode(struct model *m, const int32_t *ids, int n, int32_t *next, struct fault *f);
/* Logits of the last `rows` tokens of the last call, which it must have run at once: 1, or with every_row up
 * to n. */
bool model_logits(struct model *m, float *to, int rows, struct fault *f);
/* opt.top of the last row's, in descending order, of equals the first; `log_sum` is log(sum(exp)) of all the
 * row. */
bool model_top(struct model *m, float *values, int32_t *ids, float *log_sum, struct fault *f);
/* Forgets all tokens from `length` on. false: layers that carry a state can forget all tokens alone. */
bool model_rewind(struct model *m, int length);

/* A vector of model_width floats for each sentence, of which ids[i] has counts[i] tokens, one at least. The
 * dense layers and the normalisation that modules.json names follow the pooling. */
bool model_embed(struct model *m, const int32_t *const *ids, const int *counts, int sentences,
                 enum pooling how, float *to, struct fault *f);

/* A vector of model_width floats for each image: of pixels [images, channels, side, side] as the model's
 * image processor makes them, scaled, less their mean and over their deviation (pixel_values). */
bool model_see(struct model *m, const float *pixels, int images, float *to, struct fault *f);

/* Numbers of a vector. */
int model_width(const struct model *m);
/* Tokens of a sentence, at most. */
int model_longest(const struct model *m);

/* Ahead of a decoder's run: states of a text that begins are zeros. */
bool model_begin(struct model *m, struct fault *f);
/* Behind it: whether it was `good`. */
bool model_ran(struct model *m, bool good);

/* ---- For decoder.c, encoder.c and images.c ---- */

/* Host memory of an input; what is there goes to the device with the next run. */
void *model_input(struct model *m, const char *name);
bool model_run(struct model *m, const int64_t *dims, int count, struct fault *f);
/* The same by another plan, which has the same arguments, but folds none. */
bool model_run_by(struct model *m, const coda_plan *p, const int64_t *dims, int count, struct fault *f);
/* What the encoder's plan does with the constants of norms. */
coda_fold model_fold(const struct model *m);
/* Copies the first bytes of an output to the host. */
bool model_output(struct model *m, const char *name, void *to, size_t offset, size_t bytes, struct fault *f);

/* `weights` gets the names, and is the model's own but for those who look at another graph of it. */
coda_graph *decoder_graph(struct model *m, struct weights *weights, struct fault *f);
bool decoder_lengths(struct model *m, struct fault *f); /* fills m->rows */
/* Of so many sentences of so many tokens, at most. */
coda_graph *encoder_graph(struct model *m, struct weights *weights, int sentences, int rows, struct fault *f);
coda_graph *images_graph(struct model *m, struct fault *f);

#endif
