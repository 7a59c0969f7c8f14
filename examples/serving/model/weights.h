/*
 * weights.h -- what each weight of a graph is made of: tensors of a checkpoint, stacked on the way into
 * memory.
 */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "device.h"
#include "quant.h"

/* Rows of a matrix below end[0], from there below end[1], and the others are multiplied by a number each; all
 * zeros: none is. */
struct ranges {
    int64_t end[2];
    float times[3];
};

/* What the elements of a weight are made of. */
enum weight_kind {
    WEIGHT_NUMBERS, /* F32, F16, BF16, or `numbers` */
    WEIGHT_CODES,   /* of 8 bits, as they are */
    WEIGHT_FACTORS, /* F32: a number for each row of `matrix`, by its scales or its factor */
    WEIGHT_PACKED,  /* records of `matrix`, by its format */
    WEIGHT_ORDER,   /* I32: the columns of `matrix` by their groups */
    WEIGHT_DIAGONAL /* parts, or NULL where there is none, on the diagonal, `times` a number each; else 0 */
};

struct weight {
    char *name; /* of the graph's leaf */
    coda_dtype dtype;
    coda_value value;
    enum weight_kind kind;
    const struct stored_tensor *part[MOST_PARTS]; /* one behind the other */
    struct stored_matrix matrix[MOST_PARTS];      /* of what is quantised: the same */
    struct slab slab[MOST_PARTS];                 /* what of each part; of no rows: all of it */
    bool beside;                                  /* slabs lie side by side */
    int parts;
    char *stored[MOST_PARTS]; /* what a checkpoint calls the tensors, also where none is open, ... */
    int64_t rows[MOST_PARTS]; /* ... and the first dimension of each */
    float times[MOST_PARTS];
    int stored_count;     /* 0: no checkpoint has it */
    int64_t columns;      /* of a matrix; 0: a vector */
    int64_t height;       /* rows of all parts, or elements */
    const float *numbers; /* or these, where there are no parts */
    float plus;           /* added to each element: Gemma's gains are kept less 1 */
    struct ranges ranges;
    bool rates; /* -e^x of each element x: scans' are kept as logarithms */
    size_t bytes;
    size_t offset; /* in memory that holds all weights of the graph */
};

struct weights {
    struct weight *all;
    int count, room;
};

/* A copy, but for the name, which is copied, too; NULL if there is no memory. The names in `stored` become
 * the list's own. */
struct weight *weights_add(struct weights *w, const struct weight *one, const char *name);
const struct weight *weights_find(const struct weights *w, const char *name);
void weights_free(struct weights *w);
/* What weights_add would have taken. */
void weight_drop(struct weight *w);

/* What number `i` of a file becomes. */
double weight_number(const struct weight *w, double x, int64_t i);

/* Stores a weight in w->bytes of the device's memory, in its dtype: F32, F16 and BF16 become each other, to
 * the nearest. What has the dtype already is copied as it is. Codes and scales that are no finite numbers are
 * refused by the tensor's name. */
bool weight_load(const struct weight *w, struct device *d, void *to, struct fault *f);

#endif
