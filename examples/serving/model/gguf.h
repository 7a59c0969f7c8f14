/*
 * gguf.h -- between the two halves of the GGUF reader: what a file says, and what that is in the words of
 * config.json.
 */
#ifndef GGUF_H
#define GGUF_H

#include "checkpoint.h"

/* config.json of a file's metadata; NULL, and a fault, if the architecture is not known, or a key that is
 * neither read nor known to change nothing (gguf_keys.c). `c` has the tensors, by the names of gguf_name;
 * `file` is the file's name in messages. */
json_t *gguf_config(const struct checkpoint *c, const char *file, const json_t *metadata, struct fault *f);

/* model_type of an architecture, or NULL. */
const char *gguf_family(const char *architecture);

/* A tensor's name in safetensors: "blk.0.attn_q.weight" is "model.layers.0.self_attn.q_proj.weight". One
 * that is not known stays as it is. */
void gguf_name(const char *architecture, const char *name, char *to, size_t size);
/* A file's metadata with its lists, of which each has 2^22 entries at most; NULL, and a fault, if it is
 * damaged. `file` is its name in messages. */
json_t *gguf_metadata(const char *file, const struct mapped_file *map, struct fault *f);

#endif
