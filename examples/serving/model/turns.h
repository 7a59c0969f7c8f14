/*
 * turns.h -- messages to a model that was trained on chats, as the text of a prompt: by the checkpoint's own
 * chat template, or one of those of ChatML, LLaMA 3, Gemma, Phi-3 or Mistral, by the special tokens that
 * there are.
 */
#ifndef TURNS_H
#define TURNS_H

#include <jansson.h>
#include <stdbool.h>

#include "fault.h"
#include "tokenizer.h"

struct turns;

/* The template is chat_template.jinja of the checkpoint's folder, or chat_template of its
 * tokenizer_config.json or chat_template.json, or `config`'s (a GGUF file has one there), which may be NULL.
 * NULL, and a fault, if there is none and the tokenizer has no special tokens of a chat that is known, or if
 * it is not understood. */
struct turns *turns_open(const char *model, const json_t *config, struct tokenizer *t, struct fault *f);
void turns_close(struct turns *t);

/* The prompt of messages, [{"role": ..., "content": ...}, ...], with the words that begin an answer, as
 * template_render gives it. Members of `more`, an object or NULL, are variables of the template, too. A
 * checkpoint's own template writes what begins a text (as <s>), too, so that tokenizer_encode_bare takes its
 * text; of another one tokenizer_encode does. */
int turns_prompt(const struct turns *t, const json_t *messages, const json_t *more,
                 const struct deadline *deadline, char **text, struct fault *f);

/* Whether the template came with the checkpoint. */
bool turns_own(const struct turns *t);

/* The token by which answers of the known chats end; -1: none. */
int turns_end(struct tokenizer *t);

#endif
