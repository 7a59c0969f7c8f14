/*
 * turns.c -- which template a checkpoint has, and what it is told.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "json_text.h"
#include "regular.h"
#include "template.h"
#include "turns.h"

struct turns {
    struct template *template;
    json_t *names; /* special tokens, as bos_token */
    bool own;
};

/* For checkpoints that bring no template. */
static const struct kind {
    const char *token; /* a special token that only these have */
    const char *end;   /* one that ends an answer; NULL: the text's */
    const char *text;
} kinds[] = {
    {"<|im_start|>", "<|im_end|>",
     "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{{ '\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant{{ '\\n' }}{% endif %}"},
    {"<|start_header_id|>", "<|eot_id|>",
     "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
     "{{ m.content | trim }}<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}{% endif %}"},
    {"<start_of_turn>", "<end_of_turn>",
     "{% for m in messages %}<start_of_turn>"
     "{{ 'model' if m.role == 'assistant' else 'user' }}\n{{ m.content | trim }}<end_of_turn>{{ '\\n' }}"
     "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model{{ '\\n' }}{% endif %}"},
    {"<|assistant|>", "<|end|>",
     "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>{{ '\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>{{ '\\n' }}{% endif %}"},
    {"[INST]", NULL,
     "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' ~ m.content ~ eos_token }}"
     "{% else %}[INST] {{ m.content }}[/INST]{% endif %}{% endfor %}"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct kind *kind_of(struct tokenizer *t)
{
    for (int i = 0; i < KINDS; i++)
        if (tokenizer_special(t, kinds[i].token) >= 0) return &kinds[i];
    return NULL;
}

int turns_end(struct tokenizer *t)
{
    const struct kind *k = kind_of(t);
    return k && k->end ? tokenizer_special(t, k->end) : -1;
}

/* ---- Files ---- */

/* A folder's file; NULL, without a fault, if there is none. */
static FILE *open_file(const char *folder, const char *name, int64_t most, char path[PATH_MAX],
                       struct fault *f)
{
    char why[128];
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) return NULL;
    FILE *from = regular_stream(path, most, why, sizeof why);
    if (!from && errno != ENOENT) fault_set(f, "%s: %s", path, why);
    return from;
}

/* The text of a folder's file, for free(); NULL, without a fault, if there is none. */
static char *read_file(const char *folder, const char *name, size_t *bytes, struct fault *f)
{
    char path[PATH_MAX], *text = NULL;
    FILE *from = open_file(folder, name, REGULAR_JSON, path, f);
    if (!from) return NULL;
    if ((text = malloc(TEMPLATE_SOURCE + 2))) *bytes = fread(text, 1, TEMPLATE_SOURCE + 1, from);
    else fault_set(f, "%s: out of memory", path);
    fclose(from);
    return text;
}

/* An object of JSON; NULL, without a fault, if there is no such file. */
static json_t *read_json(const char *folder, const char *name, struct fault *f)
{
    char path[PATH_MAX];
    json_error_t e;
    FILE *from = open_file(folder, name, REGULAR_JSON, path, f);
    if (!from) return NULL;
    json_t *v = json_stream(from, 0, &e);
    if (!v) fault_set(f, "%s, line %d: %s", path, e.line, e.text);
    fclose(from);
    return v;
}

/* A template, or of several, [{"name": ..., "template": ...}, ...], the default one. */
static const json_t *template_in(const json_t *object)
{
    const json_t *v = json_object_get(object, "chat_template");
    size_t n = json_is_array(v) ? json_array_size(v) : 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(v, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && !strcmp(name, "default")) return json_object_get(one, "template");
    }
    return json_is_string(v) ? v : NULL;
}

static bool parse(struct turns *t, const char *text, size_t bytes, struct fault *f)
{
    t->own = true;
    return (t->template = template_parse(text, bytes, f)) != NULL;
}

static bool parse_json(struct turns *t, const json_t *object, struct fault *f)
{
    const json_t *v = template_in(object);
    return v && parse(t, json_string_value(v), json_string_length(v), f);
}

/* The first that there is; no fault: there is none. */
static void find(struct turns *t, const char *folder, const json_t *tokenizer, const json_t *config,
                 struct fault *f)
{
    size_t bytes = 0;
    char *text = read_file(folder, "chat_template.jinja", &bytes, f);
    if (text) parse(t, text, bytes, f);
    free(text);
    if (t->template || *f->text || parse_json(t, tokenizer, f) || *f->text) return;
    json_t *older = read_json(folder, "chat_template.json", f);
    if (!*f->text) parse_json(t, older, f);
    json_decref(older);
    if (!t->template && !*f->text) parse_json(t, config, f);
}

/* ---- Variables ---- */

/* A special token's text by tokenizer_config.json; without that file, as the tokenizer knows it. */
static void name_token(struct turns *t, const json_t *config, struct tokenizer *tokens, const char *part)
{
    char name[32], text[256];
    snprintf(name, sizeof name, "%s_token", part);
    const json_t *v = json_object_get(config, name);
    if (json_is_object(v)) v = json_object_get(v, "content");
    if (json_is_string(v)) json_object_set(t->names, name, (json_t *)(uintptr_t)v);
    if (config) return;
    int32_t id = tokenizer_special(tokens, part);
    int n = id < 0 ? -1 : tokenizer_decode_all(tokens, &id, 1, text, sizeof text);
    if (n > 0 && (size_t)n < sizeof text) json_object_set_new(t->names, name, json_string(text));
}

static bool open_all(struct turns *t, const char *folder, const json_t *config, struct tokenizer *tokens,
                     struct fault *f)
{
    static const char *const parts[] = {"bos", "eos", "unk", "sep", "pad", "cls", "mask"};
    json_t *of_tokenizer = read_json(folder, "tokenizer_config.json", f);
    if (!*f->text) find(t, folder, of_tokenizer, config, f);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) name_token(t, of_tokenizer, tokens, parts[i]);
    json_decref(of_tokenizer);
    if (t->template || *f->text) return t->template && !*f->text;
    const struct kind *k = kind_of(tokens);
    if (!k)
        return fault_set(
            f, "there is no chat_template, and the tokenizer has no special tokens of a chat that is "
               "known");
    for (size_t i = 0; i < 2; i++) /* what the known ones name is there */
        if (!json_object_get(t->names, i ? "eos_token" : "bos_token"))
            name_token(t, NULL, tokens, i ? "eos" : "bos");
    return (t->template = template_parse(k->text, strlen(k->text), f)) != NULL;
}

struct turns *turns_open(const char *model, const json_t *config, struct tokenizer *tokens, struct fault *f)
{
    char folder[PATH_MAX];
    struct turns *t = calloc(1, sizeof *t);
    f->text[0] = 0;
    if (t && (t->names = json_object())) {
        if (!checkpoint_folder(model, folder, sizeof folder)) fault_set(f, "%s: the path is too long", model);
        else if (open_all(t, folder, config, tokens, f)) return t;
    } else {
        fault_set(f, "out of memory");
    }
    turns_close(t);
    return NULL;
}

void turns_close(struct turns *t)
{
    if (!t) return;
    template_free(t->template);
    json_decref(t->names);
    free(t);
}

bool turns_own(const struct turns *t) { return t->own; }

int turns_prompt(const struct turns *t, const json_t *messages, const json_t *more,
                 const struct deadline *deadline, char **text, struct fault *f)
{
    json_t *all = json_copy(t->names);
    *text = NULL;
    if (!all) return fault_set(f, "out of memory"), REFUSED_MEMORY;
    json_object_set_new(all, "tools", json_null());
    json_object_set_new(all, "documents", json_null());
    json_object_set_new(all, "add_generation_prompt", json_true());
    if (more) json_object_update(all, (json_t *)(uintptr_t)more);
    json_object_set(all, "messages", (json_t *)(uintptr_t)messages);
    int bytes = template_render(t->template, all, deadline, text, f);
    json_decref(all);
    return bytes;
}
