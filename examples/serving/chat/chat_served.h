/*
 * chat_served.h -- what a server serves: a checkpoint's config, tensors, tokenizer and chat template; or a
 * config with random weights, whose tokens below 256 are bytes.
 *
 * It is not changed once it is open: threads share it.
 */
#ifndef CHAT_SERVED_H
#define CHAT_SERVED_H

#include "build.h"
#include "template.h"
#include "tokenizer.h"
#include "turns.h"
#include "unicode.h"

enum { SERVED_BYTES = 256, SERVED_BOS = 256, SERVED_EOS = 257 }; /* tokens, where there is no tokenizer */

struct served {
    char name[128]; /* by which requests may call it */
    struct checkpoint files;
    struct config config;
    const struct family *family;
    bool random;                 /* weights are random numbers: `files` has none */
    struct tokenizer *tokenizer; /* NULL: bytes, or, if `wordless`, none: prompts and answers are ids */
    bool wordless;
    struct turns *turns; /* NULL: by `plain`, or, if that is NULL, too, no_turns says why there is none */
    struct template *plain;
    struct fault no_turns;
};

/* `model` is a checkpoint, as generate takes it; else `random` is a config.json; else it is a LLaMA
 * of two small layers. `wordless`: no tokenizer is read. */
bool served_open(struct served *s, const char *model, const char *random, bool wordless, struct fault *f);
void served_close(struct served *s);
/* Can served_chat have tokens: is there a template? */
bool served_chats(const struct served *s);

/* Tokens of a text, for free(), with those that begin one unless it is `bare`; an enum refused, which is
 * negative, and a fault with it: there are none. The limits may be NULL. */
int served_encode(const struct served *s, const char *text, size_t bytes, bool bare,
                  const struct encode_limits *limits, int32_t **ids, struct fault *f);
/* Tokens of a chat's messages, with the words that begin an answer; `more` are variables of the template,
 * whose deadline is that of the limits, too. */
int served_chat(const struct served *s, const json_t *messages, const json_t *more,
                const struct encode_limits *limits, int32_t **ids, struct fault *f);
/* Adds the bytes that a token stands for inside of a text, special ones' names: of a part of a character
 * they are no UTF-8. */
void served_token(const struct served *s, int32_t id, struct text *to);

/* ---- The text of tokens that come one by one, never half a character ---- */

struct speech;
struct speech *speech_new(const struct served *s);
void speech_free(struct speech *p);
/* What comes goes on after the text of these tokens. Before all others; false: no memory. */
bool speech_after(struct speech *p, const int32_t *ids, int n);
/* Adds what is sure by now, or at the end all that waits; what is no character becomes U+FFFD. */
void speech_add(struct speech *p, int32_t id, struct text *to);
void speech_end(struct speech *p, struct text *to);

#endif
