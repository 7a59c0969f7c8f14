/*
 * json_text.h -- JSON as Python writes it: whole numbers beyond 64 bits are reals. transformers says 10^30,
 * digit by digit, where a tokenizer has no longest text. Infinity is the number that stands for it here.
 */
#ifndef JSON_TEXT_H
#define JSON_TEXT_H

#include <jansson.h>
#include <stdio.h>

/* As json_loadb and json_loadf. */
json_t *json_text(const char *data, size_t bytes, size_t flags, json_error_t *e);
json_t *json_stream(FILE *f, size_t flags, json_error_t *e);

#endif
