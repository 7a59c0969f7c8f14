/*
 * quantize_parts.h -- the parts of quantize.c: rows as codes and scales, a checkpoint that is written of
 * them, and how much is lost.
 */
#ifndef QUANTIZE_PARTS_H
#define QUANTIZE_PARTS_H

#include <stdio.h>

#include "model.h"

enum shrink_format { SHRINK_FP8, SHRINK_FP8_BLOCK, SHRINK_INT4 };

struct shrink {
    enum shrink_format format;
    int group;       /* columns of a scale of int4; 0: a row */
    bool asymmetric; /* int4 with zero points */
};

enum { SHRINK_BLOCK = 128 }; /* rows and columns of a scale of SHRINK_FP8_BLOCK */

/* ---- rows.c ---- */

/* Columns of a scale. */
int64_t shrink_group(const struct shrink *s, int64_t columns);
/* Rounds rows x [rows][columns], of whole blocks and words of zero points but at a matrix's end, to the
 * nearest codes. `lost` and `size` are sums of squares: of what that changed, and of all. false, and
 * coda_error says why, if there are numbers that are not finite. */
bool shrink_rows(const struct shrink *s, const float *x, int64_t rows, int64_t columns,
                 const coda_quantized *to, double *lost, double *size);

/* ---- folder.c ---- */

/* Writes a checkpoint of `from`, whose products have codes in compressed-tensors' layout, into a folder that
 * it makes: false, and nothing is written, if it is there already. What is lost goes to `report` by the name
 * of the matrices, unless that is NULL. */
bool shrink_folder(const struct shrink *s, const struct checkpoint *from, const char *model,
                   const char *folder, FILE *report, struct fault *f);

/* ---- judge.c ---- */

/* The tokens of a file's text, `most` at most, for free(), by the tokenizer of the model, whose config is
 * `config`. -1, and a fault, if there are not two. */
int judge_tokens(const char *model, const json_t *config, const char *path, int most, int32_t **ids,
                 struct fault *f);

/* exp of the mean of -log p of n tokens, each behind up to 254 others; `judged` of them have such. NaN, and a
 * fault, if it cannot be had. */
double judge_model(const char *model, const struct model_options *opt, const int32_t *ids, int n, int *judged,
                   struct fault *f);

#endif
