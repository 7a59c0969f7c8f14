/*
 * text.h -- tokens of the command line: written as numbers, or made of text by tokenizer.h, where that is
 * there.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stdint.h>

#include "fault.h"

struct text; /* a tokeniser */

/* NULL, and a fault, if the model has none that is known. */
struct text *text_open(const char *model, struct fault *f);
void text_close(struct text *t);

/* The tokens of a line, for free(): by `t`, or if that is NULL numbers with commas or blanks between. -1: a
 * fault. */
int text_tokens(struct text *t, const char *line, int32_t **ids, struct fault *f);
/* Text of some tokens, for free(), or NULL. */
char *text_of(struct text *t, const int32_t *ids, int n);

#endif
