/*
 * post.c -- the member `post_processor` of tokenizer.json: the tokens that stand around a single
 * text.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_json.h"

/* Puts ids in front of a list. */
static void put_before(struct ids *list, const struct ids *front)
{
    struct ids now = {0};
    for (size_t i = 0; i < front->count; i++) ids_add(&now, front->list[i]);
    for (size_t i = 0; i < list->count; i++) ids_add(&now, list->list[i]);
    now.failed |= list->failed || front->failed;
    free(list->list);
    *list = now;
}

static bool id_read(const json_t *v, struct ids *to, struct complaint *c)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id < 0 || id >= ID_LIMIT) return complain(c, "post_processor: an id is no number from 0 to 2^22 - 1");
    ids_add(to, (int32_t)id);
    return true;
}

/* The ids of {"id": NAME}, which `special_tokens` has. */
static bool special_read(const json_t *v, const json_t *tokens, struct ids *to, struct complaint *c)
{
    const char *name = json_string_value(json_object_get(v, "id"));
    const json_t *token = name ? json_object_get(tokens, name) : NULL, *ids = json_object_get(token, "ids");
    if (!read_only(&(struct reader){v, "SpecialToken", c}, "id type_id")) return false;
    if (!json_is_array(ids))
        return complain(c, "post_processor: special token '%s' has no ids", name ? name : "?");
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (!id_read(json_array_get(ids, i), to, c)) return false;
    return true;
}

/* One part of a template: the text (then `seen` is set), or a special token on either side of it. */
static bool part_read(const json_t *v, const json_t *tokens, struct ids sides[2], bool *seen,
                      struct complaint *c)
{
    const json_t *special = json_object_get(v, "SpecialToken"), *text = json_object_get(v, "Sequence");
    if (json_object_size(v) != 1 || (!special && !text))
        return complain(c, "post_processor: a part of 'single' is neither SpecialToken nor Sequence");
    if (special) return special_read(special, tokens, &sides[*seen], c);
    const char *name = json_string_value(json_object_get(text, "id"));
    if (*seen || !name || strcmp(name, "A") != 0)
        return complain(c, "post_processor: 'single' has another Sequence than one A");
    return *seen = true;
}

static bool template_read(const json_t *v, struct ids sides[2], struct complaint *c)
{
    const json_t *single = json_object_get(v, "single"), *tokens = json_object_get(v, "special_tokens");
    bool seen = false;
    if (!read_only(&(struct reader){v, "post_processor TemplateProcessing", c},
                   "type single pair special_tokens"))
        return false;
    for (size_t i = 0; i < json_array_size(single); i++)
        if (!part_read(json_array_get(single, i), tokens, sides, &seen, c)) return false;
    return seen || complain(c, "post_processor: 'single' has no Sequence");
}

/* ["[SEP]", 102] */
static bool pair_read(const json_t *v, const char *member, struct ids *to, struct complaint *c)
{
    const json_t *pair = json_object_get(v, member);
    if (json_array_size(pair) != 2)
        return complain(c, "post_processor: '%s' is not a token and its id", member);
    return id_read(json_array_get(pair, 1), to, c);
}

static bool processor_read(struct tokenizer *t, const json_t *v, struct complaint *c);

static bool sequence_read(struct tokenizer *t, const json_t *v, struct complaint *c)
{
    const json_t *list = json_object_get(v, "processors");
    if (!read_only(&(struct reader){v, "post_processor Sequence", c}, "type processors")) return false;
    if (!json_is_array(list)) return complain(c, "post_processor: 'processors' is no list");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!processor_read(t, json_array_get(list, i), c)) return false;
    return true;
}

static bool sides_read(const json_t *v, const char *type, struct ids sides[2], struct complaint *c)
{
    const char *members = strcmp(type, "BertProcessing") == 0 ? "type sep cls"
                          : strcmp(type, "RobertaProcessing") == 0
                              ? "type sep cls trim_offsets add_prefix_space"
                              : NULL;
    if (strcmp(type, "TemplateProcessing") == 0) return template_read(v, sides, c);
    if (!members) return complain(c, "post_processor '%s' is not known", type);
    return read_only(&(struct reader){v, "post_processor", c}, members) &&
           pair_read(v, "cls", &sides[0], c) && pair_read(v, "sep", &sides[1], c);
}

static bool processor_read(struct tokenizer *t, const json_t *v, struct complaint *c)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type) return complain(c, "post_processor has no type");
    if (strcmp(type, "Sequence") == 0) return sequence_read(t, v, c);
    if (strcmp(type, "ByteLevel") == 0) /* which moves offsets and no ids */
        return read_only(&(struct reader){v, "post_processor ByteLevel", c},
                         "type add_prefix_space trim_offsets use_regex");
    struct ids sides[2] = {{0}, {0}};
    bool good = sides_read(v, type, sides, c);
    if (good) put_before(&t->before, &sides[0]);
    for (size_t i = 0; good && i < sides[1].count; i++) ids_add(&t->after, sides[1].list[i]);
    bool failed = t->before.failed || t->after.failed || sides[0].failed || sides[1].failed;
    free(sides[0].list);
    free(sides[1].list);
    return good && (!failed || complain(c, "no memory"));
}

bool post_read(struct tokenizer *t, const json_t *v, struct complaint *c)
{
    return !v || json_is_null(v) || processor_read(t, v, c);
}

bool class_is(const json_t *config, const char *name)
{
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    size_t n = strlen(name);
    return class && strncmp(class, name, n) == 0 && (!class[n] || strcmp(class + n, "Fast") == 0);
}

/* One side: the part's token, if `wanted`, else nothing. */
static bool side_by_config(struct tokenizer *t, const char *member, bool wanted, const char *part,
                           struct ids *side, struct complaint *c)
{
    int32_t id = vocab_find(&t->parts, part, strlen(part));
    side->count = 0;
    if (!wanted) return true;
    if (id < 0) return complain(c, "tokenizer_config.json: %s, but there is no %s token", member, part);
    ids_add(side, id);
    return !side->failed || complain(c, "no memory");
}

bool post_by_config(struct tokenizer *t, const json_t *config, struct complaint *c)
{
    bool classes = class_is(config, "LlamaTokenizer") || class_is(config, "CodeLlamaTokenizer") ||
                   class_is(config, "GemmaTokenizer") || json_object_get(config, AROUND_BY_CONFIG);
    const json_t *first = json_object_get(config, "add_bos_token"),
                 *last = json_object_get(config, "add_eos_token");
    if (!classes || (!json_is_boolean(first) && !json_is_boolean(last))) return true;
    bool begins = !json_is_boolean(first) || json_is_true(first); /* as those classes have it */
    return side_by_config(t, "add_bos_token", begins, "bos", &t->before, c) &&
           side_by_config(t, "add_eos_token", json_is_true(last), "eos", &t->after, c);
}
