/*
 * turns.c -- the words around a message, for each of a few kinds of chats.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "turns.h"

static const struct kind {
    const char *token;                    /* a special token that only these have */
    const char *before, *behind, *answer; /* the message; what begins the answer */
    const char *end;                      /* a token; NULL: the text's */
} kinds[] = {
    {"<|im_start|>", "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>"},
    {"<|start_header_id|>", "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
    {"<start_of_turn>", "<start_of_turn>user\n", "<end_of_turn>\n", "<start_of_turn>model\n",
     "<end_of_turn>"},
    {"<|assistant|>", "<|user|>\n", "<|end|>\n", "<|assistant|>\n", "<|end|>"},
    {"[INST]", "[INST] ", "[/INST]", "", NULL},
};

char *turns_prompt(struct tokenizer *t, const char *message, int *end, struct fault *f)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        if (tokenizer_special(t, k->token) < 0) continue;
        size_t room = strlen(k->before) + strlen(message) + strlen(k->behind) + strlen(k->answer) + 1;
        char *text = malloc(room);
        if (!text) return fault_set(f, "out of memory"), NULL;
        snprintf(text, room, "%s%s%s%s", k->before, message, k->behind, k->answer);
        *end = k->end ? tokenizer_special(t, k->end) : -1;
        return text;
    }
    fault_set(f, "--chat: the tokenizer has no special tokens of a chat that is known");
    return NULL;
}
