/*
 * json.c -- a whole tokenizer.json: its members, the added tokens, and each id's string.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_json.h"

static bool added_read(struct tokenizer *t, const json_t *v, struct complaint *c)
{
    struct reader r = {v, "added_tokens", c};
    struct added *a = &t->added[t->added_count];
    if (!read_only(&r, "id content single_word lstrip rstrip normalized special")) return false;
    t->added_count++;
    if (!json_is_integer(json_object_get(v, "id"))) return complain(c, "added_tokens: a token without an id");
    a->id = read_int(&r, "id", 0);
    read_text(&r, "content", &a->content);
    a->special = read_flag(&r, "special", false);
    a->single_word = read_flag(&r, "single_word", false);
    a->lstrip = read_flag(&r, "lstrip", false);
    a->rstrip = read_flag(&r, "rstrip", false);
    a->normalized = read_flag(&r, "normalized", !a->special);
    if (c->made) return false;
    int n = (int)(a->content.size < 40 ? a->content.size : 40);
    if (n == 0) return complain(c, "added_tokens: token %d has no content", a->id);
    if (a->id >= ID_LIMIT)
        return complain(c, "added_tokens: the id of '%.*s' is above 2^22", n, a->content.data);
    int32_t same = vocab_find(&t->vocab, a->content.data, a->content.size);
    if (same >= 0 && same != a->id)
        return complain(c, "added_tokens: '%.*s' has id %d, but %d in the vocabulary", n, a->content.data,
                        a->id, same);
    int32_t before = vocab_find(&t->added_names, a->content.data, a->content.size);
    if (before >= 0 && before != a->id)
        return complain(c, "added_tokens: '%.*s' has the ids %d and %d", n, a->content.data, before, a->id);
    return vocab_add(&t->added_names, a->content.data, a->content.size, a->id) || complain(c, "no memory");
}

static bool all_added_read(struct tokenizer *t, const json_t *list, struct complaint *c)
{
    if (!list || json_is_null(list)) return true;
    if (!json_is_array(list)) return complain(c, "'added_tokens' is no list");
    t->added = calloc(json_array_size(list) + 1, sizeof *t->added);
    if (!t->added) return complain(c, "no memory");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!added_read(t, json_array_get(list, i), c)) return false;
    return true;
}

static void widen(struct tokenizer *t, const struct vocab *v)
{
    for (size_t i = 0; i < v->count; i++)
        if (v->words[i].id >= t->size) t->size = v->words[i].id + 1;
}

/* Enters the names of a vocabulary: false, and a complaint, where an id has two. */
static bool name_all(struct tokenizer *t, const struct vocab *v, struct complaint *c)
{
    for (size_t i = 0; i < v->count; i++) {
        const struct word *w = &v->words[i];
        const char *name = v->bytes.data + w->at, *other = t->names[w->id];
        if (other && (t->name_sizes[w->id] != w->size || memcmp(other, name, w->size) != 0))
            return complain(c, "id %d belongs to '%.*s' and to '%.*s'", w->id,
                            (int)(t->name_sizes[w->id] < 40 ? t->name_sizes[w->id] : 40), other,
                            (int)(w->size < 40 ? w->size : 40), name);
        t->names[w->id] = name;
        t->name_sizes[w->id] = w->size;
    }
    return true;
}

static bool name_ids(struct tokenizer *t, struct complaint *c)
{
    widen(t, &t->vocab);
    widen(t, &t->added_names);
    size_t n = (size_t)t->size + 1;
    t->names = calloc(n, sizeof *t->names);
    t->name_sizes = calloc(n, sizeof *t->name_sizes);
    t->special = calloc(n, sizeof *t->special);
    if (!t->names || !t->name_sizes || !t->special) return complain(c, "no memory");
    if (!name_all(t, &t->vocab, c) || !name_all(t, &t->added_names, c)) return false;
    for (size_t i = 0; i < t->added_count; i++) t->special[t->added[i].id] |= t->added[i].special;
    return true;
}

/* Ids that stand around a text are ids of something. */
static bool sides_known(const struct tokenizer *t, const struct ids *side, struct complaint *c)
{
    for (size_t i = 0; i < side->count; i++)
        if (side->list[i] >= t->size || !t->names[side->list[i]])
            return complain(c, "post_processor: there is no token %d", side->list[i]);
    return true;
}

/* A token that is found in normalized text is written as that, too; but a special one as it stands in the
 * file. */
static void rename_to(struct tokenizer *t, struct added *a, struct text *s)
{
    if (!a->normalized || a->special || !s->size) return;
    struct text other = a->content;
    a->content = *s;
    *s = other;
    t->names[a->id] = a->content.data;
    t->name_sizes[a->id] = (uint32_t)a->content.size;
}

/* A token that is searched for in normalized text has its own text normalized. */
static bool plant(struct tokenizer *t, struct complaint *c)
{
    bool good = true;
    struct work w = work_begin(NULL, t->added_names.bytes.size); /* for all of them */
    for (size_t i = 0; good && i < t->added_count; i++) {
        struct added *a = &t->added[i];
        struct text s = {0};
        if (a->normalized) tokenizer_normalize(t, a->content.data, a->content.size, &w, &s);
        else text_add(&s, a->content.data, a->content.size);
        good = !s.failed && trie_add(a->normalized ? &t->normalized : &t->raw, s.data, s.size, (int32_t)i);
        if (w.why) complain(c, "added_tokens: normalizing token %d takes too much work", a->id);
        else if (!good) complain(c, "no memory");
        else if (s.size == 0)
            good = complain(c, "added_tokens: nothing is left of token %d when it is normalized", a->id);
        if (good) rename_to(t, a, &s);
        text_free(&s);
    }
    return good;
}

bool tokenizer_read(struct tokenizer *t, const json_t *file, struct complaint *c)
{
    struct reader r = {file, "tokenizer.json", c};
    const char *version = json_string_value(json_object_get(file, "version"));
    if (!read_only(&r,
                   "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder "
                   "model"))
        return false;
    if (version && strcmp(version, "1.0") != 0) return complain(c, "version '%s' is not 1.0", version);
    return model_read(t, json_object_get(file, "model"), c) &&
           steps_read(json_object_get(file, "normalizer"), "normalizer", "normalizers", normalizer_kinds,
                      &t->normalizers, c) &&
           steps_read(json_object_get(file, "pre_tokenizer"), "pre_tokenizer", "pretokenizers", cut_kinds,
                      &t->cuts, c) &&
           steps_read(json_object_get(file, "decoder"), "decoder", "decoders", decoder_kinds, &t->decoders,
                      c) &&
           post_read(t, json_object_get(file, "post_processor"), c) &&
           all_added_read(t, json_object_get(file, "added_tokens"), c) && name_ids(t, c) &&
           sides_known(t, &t->before, c) && sides_known(t, &t->after, c) && plant(t, c) &&
           (tokenizer_reach(t), true);
}
