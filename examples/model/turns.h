/*
 * turns.h -- a message to a model that was trained on chats, as the text of a prompt.
 */
#ifndef TURNS_H
#define TURNS_H

#include "fault.h"
#include "tokenizer.h"

/* One message of a user, and the words that begin an answer, for free(). Which words is told by the
 * tokenizer's special tokens: those of ChatML (Qwen), LLaMA 3, Gemma, Phi-3 or Mistral are known; a folder's
 * chat_template, a program in Jinja, is not run. What begins a text (as <s>) the tokenizer itself adds.
 * `end` becomes the token that ends an answer, -1 if only the end of the text does. */
char *turns_prompt(struct tokenizer *t, const char *message, int *end, struct fault *f);

#endif
