/*
 * speech.c -- tokens to text as they come: by a tokenizer's stream, or byte by byte.
 */
#include <stdlib.h>

#include "chat_served.h"

enum { LONGEST = 1 << 14 }; /* bytes of a token and those that waited for it */

struct speech {
    struct tokenizer_stream *stream; /* NULL: bytes, or nothing */
    bool wordless;
    unsigned char byte[4]; /* of a character of which some are there */
    int have, need;
};

struct speech *speech_new(const struct served *s)
{
    struct speech *p = calloc(1, sizeof *p);
    if (p) p->wordless = s->wordless;
    if (!p || !s->tokenizer || (p->stream = tokenizer_stream_open(s->tokenizer))) return p;
    free(p);
    return NULL;
}

void speech_free(struct speech *p)
{
    if (p && p->stream) tokenizer_stream_close(p->stream);
    free(p);
}

bool speech_after(struct speech *p, const int32_t *ids, int n)
{
    return !p->stream || tokenizer_stream_after(p->stream, ids, n);
}

/* ---- Bytes to UTF-8: what is no character becomes U+FFFD ---- */

static void put_replacement(struct speech *p, struct text *to)
{
    text_add(to, "\xef\xbf\xbd", 3);
    p->have = 0;
}

/* Bytes of the character that begins so; 0: none does. */
static int length_of(unsigned char first)
{
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The second byte excludes long forms, surrogates, and what is beyond U+10FFFF. */
static bool goes_on(const struct speech *p, unsigned char byte)
{
    unsigned char first = p->byte[0], low = 0x80, high = 0xbf;
    if (p->have == 1) {
        if (first == 0xe0) low = 0xa0;
        if (first == 0xed) high = 0x9f;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f;
    }
    return byte >= low && byte <= high;
}

static void put_byte(struct speech *p, unsigned char byte, struct text *to)
{
    if (p->have && !goes_on(p, byte)) put_replacement(p, to);
    if (!p->have && !(p->need = length_of(byte))) {
        put_replacement(p, to);
        return;
    }
    p->byte[p->have++] = byte;
    if (p->have < p->need) return;
    text_add(to, (const char *)p->byte, (size_t)p->have);
    p->have = 0;
}

/* ---- Either ---- */

static void put_piece(struct text *to, const char *piece, int bytes)
{
    if (bytes > 0) text_add(to, piece, bytes < LONGEST ? (size_t)bytes : LONGEST - 1);
}

void speech_add(struct speech *p, int32_t id, struct text *to)
{
    char piece[LONGEST];
    if (p->stream) put_piece(to, piece, tokenizer_stream_next(p->stream, id, piece, sizeof piece));
    else if (!p->wordless && id < SERVED_BYTES) put_byte(p, (unsigned char)id, to);
}

void speech_end(struct speech *p, struct text *to)
{
    char piece[LONGEST];
    if (p->stream) put_piece(to, piece, tokenizer_stream_end(p->stream, piece, sizeof piece));
    else if (p->have) put_replacement(p, to);
}
