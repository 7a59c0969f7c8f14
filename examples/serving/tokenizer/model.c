/*
 * model.c -- the member `model` of tokenizer.json: a vocabulary, and how it is applied.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer_json.h"

static bool vocab_read(struct vocab *v, const json_t *words, struct complaint *c)
{
    if (!json_is_object(words)) return complain(c, "model: 'vocab' is no object");
    const char *word;
    json_t *id;
    json_object_foreach((json_t *)words, word, id)
    {
        json_int_t i = json_is_integer(id) ? json_integer_value(id) : -1;
        if (i < 0 || i >= ID_LIMIT)
            return complain(c, "model: the id of '%.40s' is no number from 0 to 2^22 - 1", word);
        if (!vocab_add(v, word, strlen(word), (int32_t)i)) return complain(c, "no memory");
    }
    return true;
}

/* The id of the token that a member names: -1 where it is absent. */
static int32_t token_read(const struct tokenizer *t, const struct reader *r, const char *member)
{
    struct text name = {0};
    read_text(r, member, &name);
    int32_t id = name.size ? vocab_find(&t->vocab, name.data, name.size) : -1;
    if (name.size && id < 0)
        complain(r->complaint, "model: the %s '%.*s' is not in the vocabulary", member,
                 (int)(name.size < 40 ? name.size : 40), name.data);
    text_free(&name);
    return id;
}

/* The two strings of a merge: "left right", or ["left", "right"]. */
struct halves {
    const char *left, *right;
    size_t left_size, right_size;
};

static bool halves_read(const json_t *v, struct halves *h)
{
    if (json_is_string(v)) {
        const char *s = json_string_value(v), *end = s + json_string_length(v),
                   *blank = memchr(s, ' ', json_string_length(v));
        if (!blank || memchr(blank + 1, ' ', (size_t)(end - blank - 1))) return false;
        *h = (struct halves){s, blank + 1, (size_t)(blank - s), (size_t)(end - blank - 1)};
        return true;
    }
    const json_t *left = json_array_get(v, 0), *right = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_string(left) || !json_is_string(right)) return false;
    *h = (struct halves){json_string_value(left), json_string_value(right), json_string_length(left),
                         json_string_length(right)};
    return true;
}

static bool merge_read(struct tokenizer *t, const json_t *v, size_t rank, struct text *both,
                       struct complaint *c)
{
    struct halves h;
    size_t skip = t->bpe.prefix.size; /* which the right half leaves behind */
    if (!halves_read(v, &h)) return complain(c, "model: merge %zu is not two strings", rank);
    both->size = 0;
    text_add(both, h.left, h.left_size);
    if (h.right_size > skip) text_add(both, h.right + skip, h.right_size - skip);
    if (both->failed) return complain(c, "no memory");
    int32_t left = vocab_find(&t->vocab, h.left, h.left_size),
            right = vocab_find(&t->vocab, h.right, h.right_size),
            id = h.right_size < skip ? -1 : vocab_find(&t->vocab, both->data, both->size);
    if (left < 0 || right < 0 || id < 0)
        return complain(c, "model: merge %zu, '%.40s' and '%.40s': one of them, or both joined, is no token",
                        rank, h.left, h.right);
    bpe_merge(&t->bpe, left, right, (uint32_t)rank, id);
    return true;
}

static bool merges_read(struct tokenizer *t, const json_t *merges, struct complaint *c)
{
    size_t count = json_array_size(merges);
    struct text both = {0};
    if (!json_is_array(merges)) return complain(c, "model: 'merges' is no list");
    if (count >= ID_LIMIT) return complain(c, "model: %zu merges, more than 2^22", count);
    if (!bpe_merges(&t->bpe, count)) return complain(c, "no memory");
    bool good = true;
    for (size_t i = 0; good && i < count; i++) good = merge_read(t, json_array_get(merges, i), i, &both, c);
    text_free(&both);
    return good;
}

static void byte_tokens(struct tokenizer *t)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        t->bpe.bytes[i] = vocab_find(&t->vocab, name, 6);
    }
}

static bool bpe_read(struct tokenizer *t, const struct reader *r)
{
    const json_t *dropout = json_object_get(r->object, "dropout");
    if (!read_only(
            r, "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
               "ignore_merges vocab merges"))
        return false;
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return complain(r->complaint, "model: a dropout draws tokens at random");
    t->model = MODEL_BPE;
    read_text(r, "continuing_subword_prefix", &t->bpe.prefix);
    read_text(r, "end_of_word_suffix", &t->bpe.suffix);
    t->bpe.fuse_unk = read_flag(r, "fuse_unk", false);
    t->bpe.byte_fallback = read_flag(r, "byte_fallback", false);
    t->bpe.ignore_merges = read_flag(r, "ignore_merges", false);
    if (!vocab_read(&t->vocab, json_object_get(r->object, "vocab"), r->complaint)) return false;
    t->bpe.unk = token_read(t, r, "unk_token");
    byte_tokens(t);
    return merges_read(t, json_object_get(r->object, "merges"), r->complaint) && !r->complaint->made;
}

/* No member of a tokenizer.json, but what file_of_scores makes. */
static bool scores_read(struct tokenizer *t, const struct reader *r)
{
    const json_t *words = json_object_get(r->object, "vocab");
    if (!read_only(r, "type unk_token vocab scores")) return false;
    t->model = MODEL_BPE;
    t->bpe.fuse_unk = true;
    if (!vocab_read(&t->vocab, words, r->complaint)) return false;
    t->bpe.unk = token_read(t, r, "unk_token");
    byte_tokens(t);
    int bytes = 0;
    for (int i = 0; i < 256; i++) bytes += t->bpe.bytes[i] >= 0;
    t->bpe.byte_fallback = bytes > 0;
    if (t->bpe.unk < 0 && bytes < 256)
        return complain(r->complaint, "model: %d of 256 bytes have a token, and there is none for all else",
                        bytes);
    return merges_of_scores(t, words, json_object_get(r->object, "scores"), r->complaint) &&
           !r->complaint->made;
}

static bool wordpiece_read(struct tokenizer *t, const struct reader *r)
{
    if (!read_only(r, "type unk_token continuing_subword_prefix max_input_chars_per_word vocab"))
        return false;
    t->model = MODEL_WORDPIECE;
    if (json_object_get(r->object, "continuing_subword_prefix"))
        read_text(r, "continuing_subword_prefix", &t->wordpiece.prefix);
    else text_add(&t->wordpiece.prefix, "##", 2);
    t->wordpiece.most = (size_t)read_int(r, "max_input_chars_per_word", 100);
    if (!vocab_read(&t->vocab, json_object_get(r->object, "vocab"), r->complaint)) return false;
    t->wordpiece.unk = token_read(t, r, "unk_token");
    if (t->wordpiece.unk < 0) return complain(r->complaint, "model: a WordPiece without unk_token");
    return !r->complaint->made;
}

bool model_read(struct tokenizer *t, const json_t *v, struct complaint *c)
{
    struct reader r = {v, "model", c};
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!json_is_object(v)) return complain(c, "there is no model");
    /* Older files name no type. */
    if (!type && json_object_get(v, "merges")) type = "BPE";
    if (!type && json_object_get(v, "max_input_chars_per_word")) type = "WordPiece";
    if (!type) return complain(c, "model has no type");
    if (strcmp(type, "BPE") == 0) return bpe_read(t, &r);
    if (strcmp(type, "WordPiece") == 0) return wordpiece_read(t, &r);
    if (strcmp(type, SCORED_MODEL) == 0) return scores_read(t, &r);
    return complain(c, "model '%s' is not known", type);
}
