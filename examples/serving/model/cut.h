/*
 * cut.h -- a model over several ranks, a part of each layer on every one: heads and hidden columns are
 * shared out, so products behind them add up what all ranks have (Shoeybi et al., arXiv 1909.08053). All
 * ranks have one graph, and tensors of their own.
 */
#ifndef CUT_H
#define CUT_H

#include "build.h"

/* What of a product's weight W [outputs, inputs] a rank has. */
enum cut {
    CUT_NONE,
    CUT_OUTPUTS, /* its share of the outputs */
    CUT_KEYS,    /* the same of heads of keys or values, of which there may be fewer than ranks */
    CUT_QKV,     /* shares of queries, keys and values, which lie one behind the other */
    CUT_PAIR,    /* shares of two halves, as of gates and what they are for */
    CUT_INPUTS   /* its share of the inputs: y is a part of a sum */
};

/* What is one rank's of a config, which then says what it was: false, and a line, if that cannot be. */
bool config_cut(struct config *c, int rank, int ranks, struct fault *f);

/* By the name of a part of a layer; CUT_NONE if there is one rank alone. */
enum cut build_cut(const struct build *b, const char *name);

/* Adds to `w` what the rank has of tensor `name`, of which the leaf wants `outputs` and `inputs`, 0 of a
 * vector. `turned`: it is stored [inputs, outputs]. False, and the fault, if the checkpoint has it not. */
bool build_cut_part(struct build *b, struct weight *w, enum cut cut, const char *name, int64_t outputs,
                    int64_t inputs, bool turned);
/* The same of a matrix that was found in its whole size, and whose rows and columns are the rank's now. Of
 * quantised ones GGUF's can be cut, where columns are whole blocks. */
bool build_cut_matrix(struct build *b, enum cut cut, const char *name, struct stored_matrix *m);
/* The blocks of its slabs as a tensor by itself, whose data is for free(). */
bool matrix_gather(const struct stored_matrix *m, struct stored_tensor *to, struct fault *f);
/* The tensor's whole size. */
void build_uncut(const struct build *b, enum cut cut, int64_t *outputs, int64_t *inputs);

/* The sum of what all ranks have, if y is a part of one. */
coda_value build_summed(struct build *b, coda_value y, enum cut cut);
/* All ranks' columns. */
coda_value build_gathered(struct build *b, coda_value y);

/* Stores a weight of which there are slabs. */
bool weight_load_cut(const struct weight *w, struct device *d, char *to, struct fault *f);

#endif
