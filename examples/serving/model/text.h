/*
 * text.h -- tokens of the command line: made of text by tokenizer.h, or written as numbers.
 */
#ifndef TEXT_H
#define TEXT_H

#include <jansson.h>
#include <stdint.h>

#include "fault.h"

struct tokenizer;
struct text; /* a tokeniser, and an answer that it writes */

/* The tokenizer of a model's folder, or of the folder that its file is in, or where that has none the one in
 * a GGUF file. NULL, and a fault, if there is none that is known. */
struct tokenizer *text_tokenizer(const char *model, struct fault *f);

/* The same with what a text needs. `config` is the model's. */
struct text *text_open(const char *model, const json_t *config, struct fault *f);
void text_close(struct text *t);

/* The tokens of a line, for free(): by `t`, or if that is NULL numbers with commas or blanks between. -1: a
 * fault. */
int text_tokens(struct text *t, const char *line, int32_t **ids, struct fault *f);
/* The same of a message to a model of chats, whose answers may end by a token of their own. */
int text_message(struct text *t, const char *message, int32_t **ids, struct fault *f);
/* Whether a token ends the answer to text_message. */
bool text_ends(const struct text *t, int32_t id);

/* The answer goes on after the text of these tokens. Nothing if `t` is NULL. */
bool text_after(struct text *t, const int32_t *ids, int n, struct fault *f);

/* `count` tokens of a line in at most `most`, as transformers cuts them: a token that the tokenizer puts
 * behind each text stays the last. */
int text_shorten(struct text *t, int32_t *ids, int count, int most);

/* Prints the next token of an answer, or what is left at its end: a number if `t` is NULL, else such of the
 * text as is sure by now. */
void text_print(struct text *t, int32_t id);
/* The same in one line: control characters and backslashes as in C. Nothing if `t` is NULL. */
void text_print_quoted(struct text *t, int32_t id);
void text_print_end(struct text *t);

#endif
