/*
 * options.h -- the command lines of embed.c and generate.c.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "model.h"

struct options {
    const char *usage;
    struct model_options open;
    bool ids, first;            /* --ids, --first */
    int tokens;                 /* --tokens N: to write */
    const char *model, *prompt; /* what is no option; prompt may be NULL */
};

/* false if the line makes no sense. */
bool options_read(struct options *o, int argc, char **argv);

#endif
