/*
 * tokenizer_stream.c -- the text of tokens that come one by one.
 *
 * A token's text may depend on the one before it (a space between words) and may end within a character. So the last
 * tokens are kept: what they are without the new ones is subtracted from what they are with them.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_parts.h"

enum { WAIT_MOST = 16 }; /* tokens that wait for the end of a character, which has four bytes */

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
    return tokenizer_text(s->t, s->ids.list, s->ids.count, false, &s->text);
}

/* The text that is new, if it is sure or if `all` asks for it anyway. */
static int advance(struct tokenizer_stream *s, bool all, char *out, size_t size)
{
    struct text now = {0}, none = {0};
    if (!tokenizer_text(s->t, s->ids.list, s->ids.count, false, &now)) return text_free(&now), -1;
    bool more = now.size > s->text.size && (all || !ends_broken(&now));
    struct text news = {.data = now.data + (more ? s->text.size : 0), .size = now.size - s->text.size};
    int count = tokenizer_hand_out(more ? &news : &none, out, size);
    text_free(&now);
    return more && !forget(s) ? -1 : count;
}

int tokenizer_stream_next(struct tokenizer_stream *s, int32_t id, char *out, size_t size)
{
    ids_add(&s->ids, id);
    if (s->ids.failed) return -1;
    return advance(s, s->ids.count - s->out > WAIT_MOST, out, size);
}

int tokenizer_stream_end(struct tokenizer_stream *s, char *out, size_t size) { return advance(s, true, out, size); }
