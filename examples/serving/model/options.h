/*
 * options.h -- the command lines of embed.c and generate.c.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "model.h"
#include "ranks.h"
#include "sample.h"

struct options {
    const char *usage; /* what --help prints */
    struct model_options open;
    bool ids, first;           /* --ids, --first */
    int tokens;                /* --tokens N: to write */
    struct sampling sampling;  /* --temperature X, --top-k N, --top-p X, --seed N */
    bool logprobs, plan, chat; /* --logprobs, --plan, --chat */
    bool times;                /* --times */
    const char *bundle;        /* --bundle FILE */
    int burst;                 /* --burst N: steps of a CUDA graph */
    double bandwidth; /* --bandwidth X: of the device, in bytes a second (GB/s on the line); 0: measure */
    const char *model, *prompt; /* what is no option; prompt may be NULL */
    struct fault wrong;
};

/* What --dtype takes: f32, f16 or bf16. false, and nothing is written, for another word or NULL. */
bool options_dtype(const char *word, coda_dtype *out);

/* false if the line makes no sense, and why in `wrong`; or if it asks for help, which is printed, and `wrong`
 * is empty. */
bool options_read(struct options *o, int argc, char **argv);

#endif
