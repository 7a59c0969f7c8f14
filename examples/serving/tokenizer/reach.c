/*
 * reach.c -- what is certain of all texts: how many bytes one id may stand for, and whether words may be left
 * out. So a text that is far too long is refused unread, and one with too many words before they are ids.
 */
#include "tokenizer_parts.h"

/* Whether the model sees bytes by GPT-2's alphabet, and nothing else: the last step that makes characters
 * says so. */
static bool sees_bytes(const struct tokenizer *t)
{
    for (int i = t->cuts.count; i-- > 0;)
        if (t->cuts.list[i].makes != MAKES_NONE) return t->cuts.list[i].makes == MAKES_BYTES;
    for (int i = t->normalizers.count; i-- > 0;)
        if (t->normalizers.list[i].makes != MAKES_NONE) return t->normalizers.list[i].makes == MAKES_BYTES;
    return false;
}

/* Whether each character that may come has tokens of its own. */
static bool is_complete(const struct tokenizer *t)
{
    bool fallback = t->bpe.byte_fallback,
         alphabet = sees_bytes(t) && !t->bpe.prefix.size && !t->bpe.suffix.size;
    for (int i = 0; i < 256; i++) {
        struct text seen = {0};
        text_char(&seen, unicode_of_byte((unsigned char)i));
        fallback = fallback && t->bpe.bytes[i] >= 0;
        alphabet = alphabet && !seen.failed && vocab_find(&t->vocab, seen.data, seen.size) >= 0;
        text_free(&seen);
    }
    return fallback || alphabet;
}

/* Bytes of a text of which steps make one, at most; 0: any number. */
static size_t shrinking(const struct steps *steps)
{
    size_t all = 1;
    for (int i = 0; i < steps->count; i++) {
        size_t reach = (size_t)steps->list[i].reach;
        if (!reach || all > SIZE_MAX / 1024 / reach) return 0;
        all *= reach;
    }
    return all;
}

/* Bytes of the longest token, among them added ones; 0: one takes white space beside it along. */
static size_t longest(const struct tokenizer *t)
{
    size_t all = t->vocab.longest > 4 ? t->vocab.longest : 4; /* a character that is not known */
    for (size_t i = 0; i < t->added_count; i++) {
        if (t->added[i].lstrip || t->added[i].rstrip) return 0;
        if (t->added[i].content.size > all) all = t->added[i].content.size;
    }
    return all;
}

void tokenizer_reach(struct tokenizer *t)
{
    bool complete = t->model == MODEL_BPE && is_complete(t);
    bool chars = t->model == MODEL_BPE && t->bpe.unk >= 0; /* of those that are not known an id comes, too */
    size_t normal = shrinking(&t->normalizers), cut = shrinking(&t->cuts), most = longest(t);
    t->drops = t->model == MODEL_BPE && !complete && !chars;
    t->reach = 0;
    if (!complete && (!chars || t->bpe.fuse_unk)) return;
    if (normal && cut && most < SIZE_MAX / normal / cut) t->reach = normal * cut * most;
}
