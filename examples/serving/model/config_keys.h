/*
 * config_keys.h -- the tables of what is read of each file, of what may be ignored and why, and of what is
 * refused. keys.md prints them.
 */
#ifndef CONFIG_KEYS_H
#define CONFIG_KEYS_H

#include "keys.h"

extern const struct key_table config_keys;        /* config.json, by model_type; and what gguf_config makes */
extern const struct key_table rope_keys;          /* rope_scaling and rope_parameters in it, by rope_type */
extern const struct key_table quant_keys;         /* quantization_config in it, by quant_method */
extern const struct key_table quant_group_keys;   /* an object of its config_groups */
extern const struct key_table quant_weights_keys; /* weights in that */
extern const struct key_table generation_keys;    /* generation_config.json */
extern const struct key_table modules_keys;       /* of sentence-transformers, by file */
extern const struct key_table gguf_keys;          /* a GGUF file's metadata, by architecture */
extern const struct key_table tensor_keys;        /* tensors that no graph reads, by model_type */

#endif
