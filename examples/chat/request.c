/*
 * request.c -- from logits to tokens, from tokens to text that may be sent.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chat_runner.h"
#include "chat_request.h"
#include "tensor.h"

enum { GROWTH = 6 }; /* bytes of text that a token adds at most: U+FFFD twice */

struct request *request_new(const int32_t *prompt, int count, int most)
{
    struct request *r = calloc(1, sizeof *r);
    size_t all = (size_t)count + (size_t)most;
    if (!r) return NULL;
    r->prompt = r->count = count;
    r->most = most;
    r->tokens = malloc(sizeof *r->tokens * all);
    r->pages = malloc(sizeof *r->pages * (all / PAGE_TOKENS + 1));
    r->text = malloc(GROWTH * ((size_t)most + 1));
    if (!r->tokens || !r->pages || !r->text) {
        request_free(r);
        return NULL;
    }
    memcpy(r->tokens, prompt, sizeof *prompt * (size_t)count);
    return r;
}

void request_free(struct request *r)
{
    if (!r) return;
    for (int i = 0; i < r->stops; i++) free(r->stop[i]);
    free(r->tokens);
    free(r->pages);
    free(r->text);
    free(r);
}

/* ---- Which token ---- */

int request_choose(struct request *r, const float *logits)
{
    double weight[MODEL_VOCABULARY], sum = 0, draw = uniform(&r->random);
    int best = 0;
    for (int v = 1; v < MODEL_VOCABULARY; v++) best = logits[v] > logits[best] ? v : best;
    if (r->temperature <= 0) return best;
    for (int v = 0; v < MODEL_VOCABULARY; v++)
        sum += weight[v] = exp(((double)logits[v] - (double)logits[best]) / r->temperature);
    draw *= sum;
    for (int v = 0; v < MODEL_VOCABULARY; v++)
        if ((draw -= weight[v]) < 0) return v;
    return best;
}

/* ---- Bytes to UTF-8: what is no character becomes U+FFFD ---- */

static void put(struct request *r, const void *bytes, size_t n)
{
    memcpy(r->text + r->bytes, bytes, n);
    r->bytes += n;
}

static void put_replacement(struct request *r)
{
    put(r, "\xef\xbf\xbd", 3);
    r->partial.have = 0;
}

/* Bytes of the character that begins so; 0: none does. */
static int length_of(unsigned char first)
{
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The second byte excludes long forms, surrogates, and what is beyond U+10FFFF. */
static bool goes_on(const struct utf8 *p, unsigned char byte)
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

static void put_byte(struct request *r, unsigned char byte)
{
    struct utf8 *p = &r->partial;
    if (p->have && !goes_on(p, byte)) put_replacement(r);
    if (!p->have && !(p->need = length_of(byte))) {
        put_replacement(r);
        return;
    }
    p->byte[p->have++] = byte;
    if (p->have < p->need) return;
    put(r, p->byte, (size_t)p->have);
    p->have = 0;
}

/* ---- Stop strings ---- */

/* Bytes at the text's end with which the stop string begins. */
static size_t overlap(const struct request *r, const char *stop)
{
    size_t n = strlen(stop) - 1;
    if (n > r->bytes) n = r->bytes;
    while (n && memcmp(r->text + r->bytes - n, stop, n) != 0) n--;
    return n;
}

/* The text ends before the first stop string in it; what may become one is not settled. */
static void look_for_stops(struct request *r)
{
    size_t open = 0, end = r->bytes;
    for (int i = 0; i < r->stops; i++) {
        char *at = memmem(r->text + r->settled, r->bytes - r->settled, r->stop[i], strlen(r->stop[i]));
        if (!at) continue;
        if ((size_t)(at - r->text) < end) end = (size_t)(at - r->text);
        r->finish = FINISH_STOP;
    }
    r->bytes = end;
    for (int i = 0; i < r->stops && !r->finish; i++) {
        size_t n = overlap(r, r->stop[i]);
        open = n > open ? n : open;
    }
    r->settled = r->bytes - open;
}

void request_push(struct request *r, int token)
{
    r->tokens[r->count++] = token;
    if (token < MODEL_BOS) put_byte(r, (unsigned char)token);
    look_for_stops(r);
    if (r->finish) return;
    if (token == MODEL_EOS && !r->ignore_eos) r->finish = FINISH_STOP;
    else if (r->count == r->prompt + r->most) r->finish = FINISH_LENGTH;
    if (!r->finish) return;
    if (r->partial.have) put_replacement(r);
    r->settled = r->bytes;
}
