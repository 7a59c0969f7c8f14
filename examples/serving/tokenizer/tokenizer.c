/*
 * tokenizer.c -- a checkpoint's tokenizer: opened, and asked.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_json.h"

enum { MOST_BYTES = 1 << 28 }; /* of a text: what becomes of it still has int indices */

void tokenizer_normalize(const struct tokenizer *t, const char *s, size_t n, struct work *w, struct text *out)
{
    struct text now = {0};
    text_add(&now, s, n);
    for (int i = 0; i < t->normalizers.count && work_do(w, now.size); i++) {
        struct text next = {.most = w->most};
        const struct step *st = &t->normalizers.list[i];
        if (now.size) st->normalize(st, now.data, now.size, w, &next);
        next.failed |= now.failed;
        text_free(&now);
        now = next;
    }
    text_add(out, now.data, now.size);
    if (now.failed || w->why) out->failed = true;
    text_free(&now);
}

/* What an encoding has at hand. */
struct encoding {
    const struct tokenizer *t;
    struct ids *ids;
    struct scratch scratch;
    struct work work;
    size_t most; /* ids */
    bool failed;
};

/* Cuts all pieces once more. */
static struct pieces cut_again(const struct step *st, const struct pieces *in)
{
    struct pieces out = pieces_begin(in->work);
    for (size_t i = 0; i < in->count && !out.failed; i++) {
        struct piece p = in->list[i];
        if (!work_do(out.work, 1 + p.size)) break;
        if (p.size) st->cut(st, in->text.data + p.at, p.size, p.first, &out);
    }
    out.failed |= in->failed || out.work->why;
    return out;
}

/* Whether there are no more ids than there may be, with `more` to come for certain. */
static bool fits(struct encoding *e, size_t more)
{
    return (more <= e->most && e->ids->count <= e->most - more) || work_fail(&e->work, REFUSED_LONG);
}

/* The ids of words, of each of which at least one comes if no character is dropped. */
static void encode_pieces(struct encoding *e, const struct pieces *words)
{
    size_t full = 0;
    for (size_t i = 0; i < words->count; i++) full += words->list[i].size > 0;
    bool good = !words->failed && fits(e, e->t->drops ? 0 : full);
    for (size_t i = 0; i < words->count && good; i++) {
        const char *w = words->text.data + words->list[i].at;
        size_t size = words->list[i].size;
        if (size == 0) continue;
        good = work_do(&e->work, 1) && fits(e, 0) &&
               (e->t->model == MODEL_BPE ? bpe_word(e->t, w, size, &e->scratch, &e->work, e->ids)
                                         : wordpiece_word(e->t, w, size, &e->work, e->ids));
    }
    if (!good) e->failed = true;
}

/* Normalized text without added tokens. */
static void encode_words(struct encoding *e, const char *s, size_t n, bool first)
{
    struct pieces words = pieces_begin(&e->work);
    pieces_add(&words, s, n, first);
    for (int i = 0; i < e->t->cuts.count && !words.failed; i++) {
        struct pieces next = cut_again(&e->t->cuts.list[i], &words);
        pieces_free(&words);
        words = next;
    }
    encode_pieces(e, &words);
    pieces_free(&words);
}

static void encode_text(struct encoding *e, const struct trie *trie, const char *s, size_t n, bool first);

/* A stretch without the added tokens that are looked for in the text as it came. */
static void encode_raw(struct encoding *e, const char *s, size_t n, bool first)
{
    struct text normal = {0};
    tokenizer_normalize(e->t, s, n, &e->work, &normal);
    if (normal.failed) e->failed = true;
    else encode_text(e, &e->t->normalized, normal.data, normal.size, first);
    text_free(&normal);
}

/* A text without the added tokens of `trie`: those after it are looked for in what it has become. */
static void encode_text(struct encoding *e, const struct trie *trie, const char *s, size_t n, bool first)
{
    struct spans spans = {0};
    struct ids which = {0};
    added_spans(e->t, trie, s, n, &e->work, &spans, &which);
    for (size_t i = 0; i < spans.count && !spans.failed && !e->failed; i++) {
        struct span sp = spans.list[i];
        bool starts = first && sp.from == 0;
        if (!fits(e, 0)) e->failed = true;
        else if (sp.match) ids_add(e->ids, e->t->added[which.list[i]].id);
        else if (trie == &e->t->normalized) encode_words(e, s + sp.from, sp.to - sp.from, starts);
        else encode_raw(e, s + sp.from, sp.to - sp.from, starts);
    }
    if (spans.failed) e->failed = true;
    spans_free(&spans);
    free(which.list);
}

/* 0, or why a text is refused before it is read: `reach` bytes of it have a token at least. */
static int refused_unread(const struct tokenizer *t, size_t len, const struct encode_limits *limits)
{
    if (len > MOST_BYTES) return REFUSED_INPUT;
    if (!limits) return 0;
    size_t most = limits->tokens > 0 ? (size_t)limits->tokens : SIZE_MAX;
    if (t->reach && len / t->reach > most) return REFUSED_LONG;
    return deadline_passed(limits->deadline);
}

/* Why there are no ids; 0: there are. */
static int refusal_of(const struct encoding *e)
{
    if (e->work.why) return e->work.why;
    if (e->failed || e->ids->failed) return REFUSED_MEMORY;
    return e->ids->count > INT_MAX ? REFUSED_INPUT : e->ids->count > e->most ? REFUSED_LONG : 0;
}

static int encode(struct tokenizer *t, const char *text, size_t len, bool bare, int32_t *ids, int most,
                  const struct encode_limits *limits)
{
    struct ids all = {0};
    struct encoding e = {.t = t, .ids = &all, .work = work_begin(limits ? limits->deadline : NULL, len)};
    int why = refused_unread(t, len, limits);
    e.most = limits && limits->tokens > 0 ? (size_t)limits->tokens : SIZE_MAX;
    if (why) return why;
    if (!unicode_valid(text, len)) return REFUSED_INPUT;
    for (size_t i = 0; !bare && i < t->before.count; i++) ids_add(&all, t->before.list[i]);
    encode_text(&e, &t->raw, text, len, true);
    for (size_t i = 0; !bare && i < t->after.count; i++) ids_add(&all, t->after.list[i]);
    why = refusal_of(&e);
    int count = why ? why : (int)all.count;
    for (int i = 0; i < count && i < most; i++) ids[i] = all.list[i];
    free(all.list);
    free(e.scratch.memory);
    return count;
}

int tokenizer_encode(struct tokenizer *t, const char *text, size_t len, int32_t *ids, int most,
                     const struct encode_limits *limits)
{
    return encode(t, text, len, false, ids, most, limits);
}

int tokenizer_encode_bare(struct tokenizer *t, const char *text, size_t len, int32_t *ids, int most,
                          const struct encode_limits *limits)
{
    return encode(t, text, len, true, ids, most, limits);
}

/* The tokens' strings through all decoders, joined. */
bool tokenizer_text(const struct tokenizer *t, const int32_t *ids, size_t n, enum saying how,
                    struct text *out)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += ids[i] >= 0 && ids[i] < t->size ? 1 + t->name_sizes[ids[i]] : 0;
    struct work w = work_begin(NULL, bytes);
    w.left -= STEPS_LEAST - STEPS_OF_TOKENS; /* it is done again and again, for each token that comes */
    struct pieces now = pieces_begin(&w);
    w.raw = how == SAY_BYTES;
    for (size_t i = 0; i < n; i++) {
        int32_t id = ids[i];
        if (id < 0 || id >= t->size || !t->names[id] || (t->special[id] && how == SAY_TEXT)) continue;
        if (now.count && !t->decoders.count) pieces_add(&now, " ", 1, false);
        pieces_add(&now, t->names[id], t->name_sizes[id], false);
    }
    for (int i = 0; i < t->decoders.count && work_do(&w, now.text.size + now.count); i++) {
        struct pieces next = pieces_begin(&w);
        const struct step *st = &t->decoders.list[i];
        st->decode(st, &now, &next);
        next.failed |= now.failed;
        pieces_free(&now);
        now = next;
    }
    text_add(out, now.text.data, now.text.size);
    bool good = !now.failed && !w.why && !out->failed && out->size <= INT_MAX;
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

static int decode(struct tokenizer *t, const int32_t *ids, int n, enum saying how, char *out, size_t size)
{
    struct text text = {0};
    int count = -1;
    if (tokenizer_text(t, ids, n > 0 ? (size_t)n : 0, how, &text))
        count = tokenizer_hand_out(&text, out, size);
    text_free(&text);
    return count;
}

int tokenizer_decode(struct tokenizer *t, const int32_t *ids, int n, char *out, size_t size)
{
    return decode(t, ids, n, SAY_TEXT, out, size);
}

int tokenizer_decode_all(struct tokenizer *t, const int32_t *ids, int n, char *out, size_t size)
{
    return decode(t, ids, n, SAY_SPECIALS, out, size);
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
