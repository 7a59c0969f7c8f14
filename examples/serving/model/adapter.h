/*
 * adapter.h -- adapters of low rank beside a checkpoint, plain or quantised, as PEFT's save_pretrained writes
 * them: adapter_config.json, and pairs of tensors in adapter_model.safetensors.
 *
 *     y = x W^T + s (x A^T) B^T      s = lora_alpha / r, or with use_rslora lora_alpha / sqrt(r)
 *
 * Hu et al., arXiv 2106.09685. The weight stays as it is stored.
 */
#ifndef ADAPTER_H
#define ADAPTER_H

#include "build.h"

/* Adds the tensors of the folder to those of an open checkpoint, as adapter.NAME. false, and one line, for
 * what is not supported. */
bool adapter_read(struct checkpoint *c, const char *folder, struct fault *f);

/* y, the product of x with these parts, plus what their adapters add: two products, however many parts have
 * one. */
coda_value adapter_add(struct build *b, coda_value x, coda_value y, const struct part *parts, int n,
                       int64_t columns);

#endif
