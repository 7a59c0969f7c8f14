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

/* The fault of a text without tokens; why, again. */
static int no_tokens(struct fault *f, int why, size_t bytes, const struct encode_limits *limits)
{
    long long most = limits ? (long long)limits->tokens : 0;
    if (why == REFUSED_LONG) fault_set(f, "a text of %zu bytes has more than %lld tokens", bytes, most);
    else if (why == REFUSED_LATE) fault_set(f, "making tokens of %zu bytes takes too long", bytes);
    else if (why == REFUSED_CANCELLED) fault_set(f, "nobody waits for the text's tokens any more");
    else if (why == REFUSED_MEMORY) fault_set(f, "out of memory");
    else fault_set(f, "the text cannot be made into tokens");
    return why;
}

/* Whether a text is certainly too long where tokens are bytes, or is not to be read for another reason. */
static int refused(const struct served *s, size_t bytes, bool bare, const struct encode_limits *limits)
{
    size_t most = limits && limits->tokens ? (size_t)limits->tokens : SIZE_MAX;
    if (!s->tokenizer && bytes + (!bare && s->config.vocabulary > SERVED_BOS) > most) return REFUSED_LONG;
    return limits ? deadline_passed(limits->deadline) : 0;
}

/* Once more, with room for all, if the first guess is too small. */
int served_encode(const struct served *s, const char *text, size_t bytes, bool bare,
                  const struct encode_limits *limits, int32_t **ids, struct fault *f)
{
    size_t most = bytes + 8;
    *ids = NULL;
    if (s->wordless) return *f = s->no_turns, REFUSED_INPUT;
    int n = refused(s, bytes, bare, limits);
    for (; n >= 0; most = (size_t)n) {
        free(*ids);
        if (most > INT_MAX || !(*ids = malloc(most * sizeof **ids)))
            return no_tokens(f, REFUSED_MEMORY, bytes, limits);
        if (!s->tokenizer) return bytes_of(s, text, bytes, bare, *ids);
        n = (bare ? tokenizer_encode_bare : tokenizer_encode)(s->tokenizer, text, bytes, *ids, (int)most,
                                                              limits);
        if (n >= 0 && (size_t)n <= most) return n;
    }
    free(*ids);
    *ids = NULL;
    return no_tokens(f, n, bytes, limits);
}

static int plain_prompt(const struct served *s, const json_t *messages, const struct deadline *deadline,
                        char **text, struct fault *f)
{
    json_t *all = json_object();
    if (!all) return fault_set(f, "out of memory"), REFUSED_MEMORY;
    json_object_set(all, "messages", (json_t *)(uintptr_t)messages);
    int bytes = template_render(s->plain, all, deadline, text, f);
    json_decref(all);
    return bytes;
}

bool served_chats(const struct served *s) { return !s->wordless && (s->turns || s->plain); }

int served_chat(const struct served *s, const json_t *messages, const json_t *more,
                const struct encode_limits *limits, int32_t **ids, struct fault *f)
{
    const struct deadline *deadline = limits ? limits->deadline : NULL;
    char *text = NULL;
    *ids = NULL;
    *f = s->no_turns;
    if (!served_chats(s)) return REFUSED_INPUT;
    int n = s->turns ? turns_prompt(s->turns, messages, more, deadline, &text, f)
                     : plain_prompt(s, messages, deadline, &text, f);
    if (n >= 0) n = served_encode(s, text, (size_t)n, s->turns && turns_own(s->turns), limits, ids, f);
    free(text);
    return n;
}

void served_token(const struct served *s, int32_t id, struct text *to)
{
    char usual[256], byte = (char)id, *piece = usual;
    if (!s->tokenizer && !s->wordless && id < SERVED_BYTES) text_add(to, &byte, 1);
    int n = s->tokenizer ? tokenizer_bytes(s->tokenizer, id, usual, sizeof usual) : 0;
    if (n >= (int)sizeof usual && (piece = malloc((size_t)n + 1)))
        tokenizer_bytes(s->tokenizer, id, piece, (size_t)n + 1);
    if (!piece) to->failed = true;
    else if (n > 0) text_add(to, piece, (size_t)n);
    if (piece != usual) free(piece);
}
