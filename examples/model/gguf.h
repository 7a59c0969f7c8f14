/*
 * gguf.h -- between the two halves of the GGUF reader: what a file says, and what that is in the words of
 * config.json.
 */
#ifndef GGUF_H
#define GGUF_H

#include "checkpoint.h"

/* config.json of a file's metadata, an object of numbers and texts by their names; NULL, and a fault, if the
 * architecture is not known. `c` has the tensors, by the names of gguf_name. */
json_t *gguf_config(const struct checkpoint *c, const json_t *metadata, struct fault *f);

/* A tensor's name in safetensors: "blk.0.attn_q.weight" is "model.layers.0.self_attn.q_proj.weight". One
 * that is not known stays as it is. */
void gguf_name(const char *architecture, const char *name, char *to, size_t size);
/* A file's metadata with its lists, of which each has 2^22 entries at most; NULL, and a fault, if it is
 * damaged. `file` is its name in messages. */
json_t *gguf_metadata(const char *file, const struct mapped_file *map, struct fault *f);

#endif
