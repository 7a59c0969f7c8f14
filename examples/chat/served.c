/*
 * served.c -- opens what chat_served.h describes, and makes tokens of texts and chats.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_served.h"
#include "text.h"

static const char tiny[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"intermediate_size\": 128, \"vocab_size\": 264, \"rms_norm_eps\": 1e-5,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"max_position_embeddings\": 65536,"
    " \"eos_token_id\": 257}";

/* Where tokens are bytes: a line with the role before each message, and one with the answer's. */
static const char plain[] =
    "{% for m in messages %}{{ m.role }}:\n{{ m.content ~ '\\n' }}{% endfor %}assistant:\n\n";

/* ---- Opening ---- */

static bool open_random(struct served *s, const char *random, struct fault *f)
{
    s->random = true;
    if (random && !checkpoint_open_config(&s->files, random, f)) return false;
    if (!random) s->files.config = json_loads(tiny, 0, NULL);
    s->plain = s->files.config ? template_parse(plain, sizeof plain - 1, f) : NULL;
    return s->plain || fault_set(f, "out of memory");
}

static bool open_words(struct served *s, const char *model, struct fault *f)
{
    if (!(s->tokenizer = text_tokenizer(model, f))) return false;
    s->turns = turns_open(model, s->files.config, s->tokenizer, &s->no_turns);
    config_end(&s->config, tokenizer_special(s->tokenizer, "eos"));
    if (s->turns) config_end(&s->config, turns_end(s->tokenizer));
    return true;
}

/* The last part of the path. */
static void set_name(struct served *s, const char *path)
{
    size_t n = path ? strlen(path) : 0;
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from && path[from - 1] != '/') from--;
    if (n > from) snprintf(s->name, sizeof s->name, "%.*s", (int)(n - from), path + from);
    else snprintf(s->name, sizeof s->name, "tiny");
    for (char *c = s->name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == '"' || *c == '\\' || *c & 0x80) *c = '_';
}

static bool open_all(struct served *s, const char *model, const char *random, struct fault *f)
{
    set_name(s, model ? model : random);
    if (!(model ? checkpoint_open(&s->files, model, f) : open_random(s, random, f))) return false;
    if (!config_read(&s->config, s->files.config, f) || !config_ends(&s->config, s->files.generation, f))
        return false;
    if (!(s->family = family_find(&s->config, f))) return false;
    if (s->family->encoder) return fault_set(f, "family %s makes no text", s->config.family);
    return !model || s->wordless || open_words(s, model, f);
}

bool served_open(struct served *s, const char *model, const char *random, bool wordless, struct fault *f)
{
    *s = (struct served){.wordless = wordless};
    fault_set(&s->no_turns, "tokens have no text here: prompts are tokens");
    f->text[0] = 0;
    if (open_all(s, model, random, f)) return true;
    served_close(s);
    return false;
}

void served_close(struct served *s)
{
    turns_close(s->turns);
    template_free(s->plain);
    if (s->tokenizer) tokenizer_close(s->tokenizer);
    checkpoint_close(&s->files);
    *s = (struct served){0};
}

/* ---- Tokens ---- */

static int bytes_of(const struct served *s, const char *text, size_t bytes, bool bare, int32_t *ids)
{
    int n = 0;
    if (!bare && s->config.vocabulary > SERVED_BOS) ids[n++] = SERVED_BOS;
    for (size_t i = 0; i < bytes; i++) ids[n++] = (unsigned char)text[i];
    return n;
}

/* Once more, with room for all, if the first guess is too small. */
int served_encode(const struct served *s, const char *text, size_t bytes, bool bare, int32_t **ids,
                  struct fault *f)
{
    size_t most = bytes + 8;
    *ids = NULL;
    if (s->wordless) return *f = s->no_turns, -1;
    for (int n = 0;; most = (size_t)n) {
        free(*ids);
        if (most > INT_MAX || !(*ids = malloc(most * sizeof **ids))) return fault_set(f, "out of memory"), -1;
        if (!s->tokenizer) return bytes_of(s, text, bytes, bare, *ids);
        n = (bare ? tokenizer_encode_bare : tokenizer_encode)(s->tokenizer, text, bytes, *ids, (int)most);
        if (n < 0) free(*ids), *ids = NULL, fault_set(f, "the text cannot be made into tokens");
        if (n < 0 || (size_t)n <= most) return n;
    }
}

static char *plain_prompt(const struct served *s, const json_t *messages, size_t *bytes, struct fault *f)
{
    json_t *all = json_object();
    if (!all) return fault_set(f, "out of memory"), NULL;
    json_object_set(all, "messages", (json_t *)(uintptr_t)messages);
    char *text = template_render(s->plain, all, bytes, f);
    json_decref(all);
    return text;
}

int served_chat(const struct served *s, const json_t *messages, const json_t *more, int32_t **ids,
                struct fault *f)
{
    size_t bytes = 0;
    *ids = NULL;
    *f = s->no_turns;
    if (s->wordless || (!s->turns && !s->plain)) return -1;
    char *text =
        s->turns ? turns_prompt(s->turns, messages, more, &bytes, f) : plain_prompt(s, messages, &bytes, f);
    int n = text ? served_encode(s, text, bytes, s->turns && turns_own(s->turns), ids, f) : -1;
    free(text);
    return n;
}

void served_token(const struct served *s, int32_t id, struct text *to)
{
    char piece[4096], byte = (char)id;
    if (!s->tokenizer && !s->wordless && id < SERVED_BYTES) unicode_add_lossy(to, &byte, 1);
    int n = s->tokenizer ? tokenizer_piece(s->tokenizer, id, piece, sizeof piece) : 0;
    if (n > 0 && (size_t)n < sizeof piece) text_add(to, piece, (size_t)n);
}
