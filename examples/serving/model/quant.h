/*
 * quant.h -- weights of fewer than 16 bits: what quantization_config says of them, and which tensors a matrix
 * is made of. Tensors decide what is quantised and how; the config must agree, and says what they do not.
 */
#ifndef QUANT_H
#define QUANT_H

#include <jansson.h>

#include "checkpoint.h"

enum quant_method {
    QUANT_NONE,
    QUANT_COMPRESSED_TENSORS,
    QUANT_FP8,
    QUANT_FBGEMM,
    QUANT_GPTQ,
    QUANT_AWQ,
    QUANT_MODELOPT
};

enum { QUANT_RULES = 16, QUANT_MOST_GROUP = 1 << 20 };

/* Weights that a config describes. */
struct quant_rule {
    bool floating; /* else integers */
    int bits;
    int group; /* columns of a scale; 0: a scale for a row, or for all of them, or a block */
    int block_rows, block_columns; /* of a scale; 0: there are no blocks */
};

struct quant_config {
    enum quant_method method;
    struct quant_rule rule[QUANT_RULES];
    int rules;
    bool zeros_as_they_are; /* GPTQ of version 2: zero points are not stored less 1 */
    char drawn[40]; /* without a checkpoint: the format of random weights, see stored_draw; "": none */
};

/* false, and one line, for what is not supported. */
bool quant_config_read(struct quant_config *q, const json_t *o, struct fault *f);

/* How a matrix W [rows, columns] lies in a checkpoint, y = x W^T. */
enum stored_layout {
    STORED_PLAIN,      /* F32, F16, BF16 */
    STORED_SCALED,     /* `codes` of 8 bits, `scales` one number or one for each row */
    STORED_BLOCKS,     /* `codes` of 8 bits, `scales` one for each block of rows and columns */
    STORED_COMPRESSED, /* compressed-tensors: integers in words along rows, or int8 with zeros or groups */
    STORED_GPTQ,       /* integers in words along columns */
    STORED_AWQ,        /* integers in words along rows, in AWQ's order */
    STORED_MXFP4,      /* e2m1 by 32 with e8m0 */
    STORED_NVFP4,      /* e2m1 by 16 with e4m3 */
    STORED_GGUF        /* blocks of `codes`' type */
};

/* Some rows and columns of a stored tensor, of a vector column 0. */
struct slab {
    int64_t row, rows, column, columns;
};

enum { MOST_PARTS = 4 };

struct stored_matrix {
    enum stored_layout layout;
    int64_t rows, columns;
    struct slab slab[MOST_PARTS]; /* of GGUF's blocks: what of `codes` it has, one behind the other; ... */
    int slabs;                    /* ... 0: all of them */
    int bits;                     /* of a code, but for GGUF */
    int group;                    /* columns of a scale; 0: a row */
    int block_rows;               /* rows of a scale of STORED_BLOCKS, whose columns are `group` */
    bool zeros_as_they_are;       /* of GPTQ */
    bool divisor;                 /* `factor` divides */
    coda_dtype dtype;             /* of STORED_SCALED: CODA_F8E4M3, CODA_F8E5M2, CODA_I8 */
    coda_pack_format format;      /* of all behind that */
    const struct stored_tensor *codes;  /* NULL where there is no checkpoint */
    const struct stored_tensor *scales; /* NULL where codes have them */
    const struct stored_tensor *zeros;  /* or NULL */
    const struct stored_tensor *order;  /* the group of each column, I32, or NULL: they are in order */
    const struct stored_tensor *factor; /* of the whole matrix, F32, or NULL */
};

/* Finds the tensors of `name`, without ".weight", and marks them as used. false, and a line that names the
 * tensor that is missing, of another shape or type than the others want, or not supported. */
bool stored_find(const struct quant_config *q, const struct checkpoint *c, const char *name, int64_t rows,
                 int64_t columns, struct stored_matrix *out, struct fault *f);

/* Whether `word` is a format of random weights: "fp8" and "int8", which have a scale for each row; what
 * coda_pack_format_find reads; a mixture "q4_k_m" or "q5_k_m", whose matrices have the types that llama.cpp
 * gives them. */
bool stored_draws(const char *word);
/* Of a matrix without a checkpoint: as the config's `drawn` has it, or else its first rule. Tables and
 * heads of tokens are quantised by the types of GGUF alone. `layers` is how many the model has. */
bool stored_draw(const struct quant_config *q, const char *name, int layers, struct stored_matrix *m,
                 struct fault *f);

/* Number i of a tensor of F32, F16 or BF16, where nothing is aligned. */
float stored_number(const struct stored_tensor *t, int64_t i);

#endif
