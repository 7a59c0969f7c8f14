/*
 * wordpiece.c -- a word's longest start in the vocabulary, then the longest start of the rest,
 * with the prefix of those that go on. A word that this does not reach the end of is unknown as a whole.
 */
#include "tokenizer_parts.h"

static size_t count_characters(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

/* The longest start of s that is a token: its bytes, 0 if there is none. */
static size_t longest(const struct tokenizer *t, const char *s, size_t n, bool first, struct text *spelt,
                      struct work *w, int32_t *id)
{
    size_t ahead = first ? 0 : t->wordpiece.prefix.size;
    if (n > t->vocab.longest)
        n = t->vocab.longest; /* and maybe within a character: that is in no vocabulary */
    spelt->size = 0;
    text_add(spelt, t->wordpiece.prefix.data, ahead);
    text_add(spelt, s, n);
    for (size_t k = spelt->failed ? 0 : n; k > 0;) {
        if (!work_do(w, 1 + (ahead + k) / 16)) return 0;
        if ((*id = vocab_find(&t->vocab, spelt->data, ahead + k)) >= 0) return k;
        while (--k > 0 && ((unsigned char)s[k] & 0xc0) == 0x80) {}
    }
    return 0;
}

bool wordpiece_word(const struct tokenizer *t, const char *s, size_t n, struct work *w, struct ids *out)
{
    size_t start = out->count, used;
    bool known = count_characters(s, n) <= t->wordpiece.most;
    struct text spelt = {0};
    int32_t id;
    for (size_t i = 0; known && i < n; i += used) {
        known = (used = longest(t, s + i, n - i, i == 0, &spelt, w, &id)) > 0;
        if (known) ids_add(out, id);
    }
    bool good = !spelt.failed && !w->why;
    text_free(&spelt);
    if (!known) {
        out->count = out->count > start ? start : out->count;
        ids_add(out, t->wordpiece.unk);
    }
    return good;
}
