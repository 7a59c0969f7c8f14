/*
 * stream.c -- the text of tokens that come one by one, and of one among others.
 *
 * A token's text may depend on the one before it (a space between words) and may end within a character. So
 * the last tokens are kept: what they are without the new ones is subtracted from what they are with them.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_parts.h"

enum {
    WAIT_MOST = 16,  /* tokens that wait for the end of a character, which has four bytes */
    AFTER_MOST = 64, /* tokens that the text goes on after: enough that some are text */
};

struct tokenizer_stream {
    const struct tokenizer *t;
    struct ids ids;   /* the last ones: first those whose text is out, then those that wait */
    size_t out;       /* how many of them are out */
    struct text text; /* of those */
};

struct tokenizer_stream *tokenizer_stream_open(struct tokenizer *t)
{
    struct tokenizer_stream *s = calloc(1, sizeof *s);
    if (s) s->t = t;
    return s;
}

void tokenizer_stream_close(struct tokenizer_stream *s)
{
    if (!s) return;
    free(s->ids.list);
    text_free(&s->text);
    free(s);
}

static bool ends_broken(const struct text *t)
{
    return t->size >= 3 && memcmp(t->data + t->size - 3, "\xef\xbf\xbd", 3) == 0;
}

/* What waited is out; of what was out before, nothing is needed any more. */
static bool forget(struct tokenizer_stream *s)
{
    s->ids.count -= s->out;
    memmove(s->ids.list, s->ids.list + s->out, s->ids.count * sizeof *s->ids.list);
    s->out = s->ids.count;
    s->text.size = 0;
    return tokenizer_text(s->t, s->ids.list, s->ids.count, SAY_TEXT, &s->text);
}

/* The text of the tokens that wait, if it is more than none. A byte may make the one before it, which was a
 * character, no text any more; that one is out, and the new ones are taken alone. */
static bool news_of(const struct tokenizer_stream *s, struct text *news)
{
    struct text now = {0};
    size_t old = s->text.size;
    bool good = tokenizer_text(s->t, s->ids.list, s->ids.count, SAY_TEXT, &now);
    bool goes_on = now.size >= old && (old == 0 || memcmp(now.data, s->text.data, old) == 0);
    if (good && goes_on) text_add(news, now.data + old, now.size - old);
    else if (good) good = tokenizer_text(s->t, s->ids.list + s->out, s->ids.count - s->out, SAY_TEXT, news);
    text_free(&now);
    return good && !news->failed;
}

/* The text that is new, if it is sure or if `all` asks for it anyway. */
static int advance(struct tokenizer_stream *s, bool all, char *out, size_t size)
{
    struct text news = {0};
    int count = -1;
    if (news_of(s, &news)) {
        if (!all && ends_broken(&news)) news.size = 0;
        count = tokenizer_hand_out(&news, out, size);
    }
    if (count > 0 && !forget(s)) count = -1;
    text_free(&news);
    return count;
}

bool tokenizer_stream_after(struct tokenizer_stream *s, const int32_t *ids, int n)
{
    for (int i = n > AFTER_MOST ? n - AFTER_MOST : 0; i < n; i++) ids_add(&s->ids, ids[i]);
    s->out = s->ids.count;
    return !s->ids.failed && tokenizer_text(s->t, s->ids.list, s->ids.count, SAY_TEXT, &s->text);
}

int tokenizer_stream_next(struct tokenizer_stream *s, int32_t id, char *out, size_t size)
{
    ids_add(&s->ids, id);
    if (s->ids.failed) return -1;
    return advance(s, s->ids.count - s->out > WAIT_MOST, out, size);
}

int tokenizer_stream_end(struct tokenizer_stream *s, char *out, size_t size)
{
    return advance(s, true, out, size);
}

/* What a second one adds to the first. */
static int piece_of(struct tokenizer *t, int32_t id, enum saying how, char *out, size_t size)
{
    struct text one = {0}, two = {0}, piece = {0};
    bool good = tokenizer_text(t, &id, 1, how, &one) && tokenizer_text(t, (int32_t[]){id, id}, 2, how, &two);
    bool longer = two.size > one.size && (!one.size || !memcmp(two.data, one.data, one.size));
    if (longer) text_add(&piece, two.data + one.size, two.size - one.size);
    else text_add(&piece, one.data, one.size);
    int count = good && !piece.failed ? tokenizer_hand_out(&piece, out, size) : -1;
    text_free(&one);
    text_free(&two);
    text_free(&piece);
    return count;
}

int tokenizer_piece(struct tokenizer *t, int32_t id, char *out, size_t size)
{
    return piece_of(t, id, SAY_SPECIALS, out, size);
}

int tokenizer_bytes(struct tokenizer *t, int32_t id, char *out, size_t size)
{
    return piece_of(t, id, SAY_BYTES, out, size);
}
