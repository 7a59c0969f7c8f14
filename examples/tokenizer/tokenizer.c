/*
 * tokenizer.c -- a checkpoint's tokenizer: opened, and asked.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_json.h"

enum { MOST_BYTES = 1 << 28 }; /* of a text: what becomes of it still has int indices */

void tokenizer_normalize(const struct tokenizer *t, const char *s, size_t n, struct text *out)
{
    struct text now = {0};
    text_add(&now, s, n);
    for (int i = 0; i < t->normalizers.count; i++) {
        struct text next = {0};
        const struct step *st = &t->normalizers.list[i];
        if (now.size) st->normalize(st, now.data, now.size, &next);
        next.failed |= now.failed;
        text_free(&now);
        now = next;
    }
    text_add(out, now.data, now.size);
    if (now.failed) out->failed = true;
    text_free(&now);
}

/* What an encoding has at hand. */
struct encoding {
    const struct tokenizer *t;
    struct ids *ids;
    struct scratch scratch;
    bool failed;
};

/* Cuts all pieces once more. */
static struct pieces cut_again(const struct step *st, const struct pieces *in)
{
    struct pieces out = {0};
    for (size_t i = 0; i < in->count; i++) {
        struct piece p = in->list[i];
        if (p.size) st->cut(st, in->text.data + p.at, p.size, p.first, &out);
    }
    out.failed |= in->failed;
    return out;
}

/* Normalized text without added tokens. */
static void encode_words(struct encoding *e, const char *s, size_t n, bool first)
{
    struct pieces words = {0};
    pieces_add(&words, s, n, first);
    for (int i = 0; i < e->t->cuts.count && !words.failed; i++) {
        struct pieces next = cut_again(&e->t->cuts.list[i], &words);
        pieces_free(&words);
        words = next;
    }
    for (size_t i = 0; i < words.count && !words.failed; i++) {
        const char *w = words.text.data + words.list[i].at;
        size_t size = words.list[i].size;
        if (size == 0) continue;
        bool good = e->t->model == MODEL_BPE ? bpe_word(e->t, w, size, &e->scratch, e->ids)
                                             : wordpiece_word(e->t, w, size, e->ids);
        if (!good) e->failed = true;
    }
    if (words.failed) e->failed = true;
    pieces_free(&words);
}

/* A text without the added tokens of `trie`: those after it are looked for in what it has become. */
static void encode_text(struct encoding *e, const struct trie *trie, const char *s, size_t n, bool first)
{
    struct spans spans = {0};
    struct ids which = {0};
    added_spans(e->t, trie, s, n, &spans, &which);
    for (size_t i = 0; i < spans.count && !spans.failed; i++) {
        struct span sp = spans.list[i];
        size_t size = sp.to - sp.from;
        bool starts = first && sp.from == 0;
        if (sp.match) ids_add(e->ids, e->t->added[which.list[i]].id);
        else if (trie == &e->t->normalized) encode_words(e, s + sp.from, size, starts);
        else {
            struct text normal = {0};
            tokenizer_normalize(e->t, s + sp.from, size, &normal);
            if (normal.failed) e->failed = true;
            else encode_text(e, &e->t->normalized, normal.data, normal.size, starts);
            text_free(&normal);
        }
    }
    if (spans.failed) e->failed = true;
    spans_free(&spans);
    free(which.list);
}

static int encode(struct tokenizer *t, const char *text, size_t len, bool bare, int32_t *ids, int most)
{
    struct ids all = {0};
    struct encoding e = {.t = t, .ids = &all};
    if (len > MOST_BYTES || !unicode_valid(text, len)) return -1;
    for (size_t i = 0; !bare && i < t->before.count; i++) ids_add(&all, t->before.list[i]);
    encode_text(&e, &t->raw, text, len, true);
    for (size_t i = 0; !bare && i < t->after.count; i++) ids_add(&all, t->after.list[i]);
    bool good = !all.failed && !e.failed && all.count <= INT_MAX;
    int count = good ? (int)all.count : -1;
    for (int i = 0; i < count && i < most; i++) ids[i] = all.list[i];
    free(all.list);
    free(e.scratch.memory);
    return count;
}

int tokenizer_encode(struct tokenizer *t, const char *text, size_t len, int32_t *ids, int most)
{
    return encode(t, text, len, false, ids, most);
}

int tokenizer_encode_bare(struct tokenizer *t, const char *text, size_t len, int32_t *ids, int most)
{
    return encode(t, text, len, true, ids, most);
}

/* The tokens' strings through all decoders, joined. */
bool tokenizer_text(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, struct text *out)
{
    struct pieces now = {0};
    for (size_t i = 0; i < n; i++) {
        int32_t id = ids[i];
        if (id < 0 || id >= t->size || !t->names[id] || (t->special[id] && !special)) continue;
        if (now.count && !t->decoders.count) pieces_add(&now, " ", 1, false);
        pieces_add(&now, t->names[id], t->name_sizes[id], false);
    }
    for (int i = 0; i < t->decoders.count; i++) {
        struct pieces next = {0};
        const struct step *st = &t->decoders.list[i];
        st->decode(st, &now, &next);
        next.failed |= now.failed;
        pieces_free(&now);
        now = next;
    }
    text_add(out, now.text.data, now.text.size);
    bool good = !now.failed && !out->failed && out->size <= INT_MAX;
    pieces_free(&now);
    return good;
}

int tokenizer_hand_out(const struct text *t, char *out, size_t size)
{
    size_t n = t->size < size ? t->size : size ? size - 1 : 0;
    if (n) memcpy(out, t->data, n);
    if (size) out[n] = '\0';
    return (int)t->size;
}

static int decode(struct tokenizer *t, const int32_t *ids, int n, bool special, char *out, size_t size)
{
    struct text text = {0};
    int count = -1;
    if (tokenizer_text(t, ids, n > 0 ? (size_t)n : 0, special, &text))
        count = tokenizer_hand_out(&text, out, size);
    text_free(&text);
    return count;
}

int tokenizer_decode(struct tokenizer *t, const int32_t *ids, int n, char *out, size_t size)
{
    return decode(t, ids, n, false, out, size);
}

int tokenizer_decode_all(struct tokenizer *t, const int32_t *ids, int n, char *out, size_t size)
{
    return decode(t, ids, n, true, out, size);
}

int tokenizer_size(struct tokenizer *t) { return t->size; }

static int token_id(const struct tokenizer *t, const char *s, size_t n)
{
    int32_t id = vocab_find(&t->added_names, s, n);
    return id >= 0 ? id : vocab_find(&t->vocab, s, n);
}

int tokenizer_special(struct tokenizer *t, const char *name)
{
    int32_t id = vocab_find(&t->parts, name, strlen(name));
    return id >= 0 ? id : token_id(t, name, strlen(name));
}

/* "bos" by "bos_token" in one file, else by "bos_token_id" in another. */
static bool part_read(struct tokenizer *t, const char *part, const json_t *names, const json_t *ids)
{
    char member[32];
    snprintf(member, sizeof member, "%s_token", part);
    const json_t *v = json_object_get(names, member);
    if (json_is_object(v)) v = json_object_get(v, "content");
    int32_t id = json_is_string(v) ? token_id(t, json_string_value(v), json_string_length(v)) : -1;
    snprintf(member, sizeof member, "%s_token_id", part);
    v = json_object_get(ids, member);
    if (json_is_array(v)) v = json_array_get(v, 0); /* the first of several ends */
    json_int_t number = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id < 0 && number >= 0 && number < t->size) id = (int32_t)number;
    return id < 0 || vocab_add(&t->parts, part, strlen(part), id);
}

/* `map` is special_tokens_map.json, `model` config.json; any of the three may be NULL. */
static bool parts_read(struct tokenizer *t, const json_t *map, const json_t *config, const json_t *model,
                       struct complaint *c)
{
    static const char *const parts[] = {"bos", "eos", "pad", "unk", "cls", "sep", "mask"};
    bool good = !c->made;
    for (size_t i = 0; good && i < sizeof parts / sizeof *parts; i++)
        good = (part_read(t, parts[i], map, NULL) && part_read(t, parts[i], config, NULL)) ||
               complain(c, "no memory");
    for (size_t i = 0; good && i < sizeof parts / sizeof *parts; i++)
        if (vocab_find(&t->parts, parts[i], strlen(parts[i])) < 0)
            good = part_read(t, parts[i], NULL, model) || complain(c, "no memory");
    return good;
}

/* Small files beside the words. */
struct beside {
    json_t *config, *map, *older, *model;
};

static struct beside beside_read(const char *dir, struct complaint *c)
{
    return (struct beside){file_json(dir, "tokenizer_config.json", c),
                           file_json(dir, "special_tokens_map.json", c),
                           file_json(dir, "added_tokens.json", c), file_json(dir, "config.json", c)};
}

static bool open_all(struct tokenizer *t, const char *dir, struct complaint *c)
{
    const char *words = "tokenizer.json";
    struct beside b = beside_read(dir, c);
    json_t *file = c->made ? NULL : file_json(dir, words, c);
    if (!c->made && !file) file = file_legacy(dir, b.config, &words, c);
    bool good = file && !c->made && settings_apply(file, words, b.config, b.map, b.older, c) &&
                tokenizer_read(t, file, c) && parts_read(t, b.map, b.config, b.model, c) &&
                post_by_config(t, b.config, c);
    json_decref(b.config);
    json_decref(b.map);
    json_decref(b.older);
    json_decref(b.model);
    json_decref(file);
    return good;
}

static bool open_gguf(struct tokenizer *t, const json_t *metadata, struct complaint *c)
{
    json_t *config = NULL, *file = file_of_gguf(metadata, &config, c);
    bool good = file && tokenizer_read(t, file, c) && parts_read(t, NULL, config, NULL, c) &&
                post_by_config(t, config, c);
    json_decref(config);
    json_decref(file);
    return good;
}

/* By one of the two; `name` is the folder's, or the file's. */
static struct tokenizer *open_by(const char *name, const json_t *metadata, char *err, size_t n)
{
    char what[300] = "";
    struct complaint c = {what, sizeof what, false};
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) complain(&c, "no memory");
    if (t && (metadata ? open_gguf(t, metadata, &c) : open_all(t, name, &c))) return t;
    if (!*what) complain(&c, "no memory");
    if (n) snprintf(err, n, "tokenizer in %s: %s", name, what);
    tokenizer_close(t);
    return NULL;
}

struct tokenizer *tokenizer_open(const char *dir, char *err, size_t n) { return open_by(dir, NULL, err, n); }

struct tokenizer *tokenizer_open_gguf(const json_t *metadata, const char *name, char *err, size_t n)
{
    return open_by(name, metadata, err, n);
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) return;
    vocab_free(&t->vocab);
    vocab_free(&t->added_names);
    vocab_free(&t->parts);
    for (size_t i = 0; i < t->added_count; i++) text_free(&t->added[i].content);
    free(t->added);
    free(t->raw.nodes);
    free(t->normalized.nodes);
    free(t->bpe.table);
    text_free(&t->bpe.prefix);
    text_free(&t->bpe.suffix);
    text_free(&t->wordpiece.prefix);
    steps_free(&t->normalizers);
    steps_free(&t->cuts);
    steps_free(&t->decoders);
    free(t->before.list);
    free(t->after.list);
    free(t->names);
    free(t->name_sizes);
    free(t->special);
    free(t);
}
