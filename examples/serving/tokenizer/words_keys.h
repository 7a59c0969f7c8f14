/*
 * words_keys.h -- the tables of what is read of a tokenizer's files, of what may be ignored and why, and of
 * what is refused. model/keys.md prints them.
 */
#ifndef WORDS_KEYS_H
#define WORDS_KEYS_H

#include "keys.h"

extern const struct key_table words_keys;    /* tokenizer.* of GGUF, by tokenizer.ggml.model */
extern const struct key_table settings_keys; /* tokenizer_config.json, by the files beside it */
extern const struct key_table map_keys;      /* special_tokens_map.json */

/* Whether each key tokenizer.* of a GGUF file has a row, of whichever tokenizer. If not, `why` names it in a
 * line that begins with `what`. */
bool words_keys_known(const json_t *metadata, const char *what, char *why, size_t size);

#endif
