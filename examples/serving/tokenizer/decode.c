/*
 * decode.c -- tokens to text: the decoders' steps, one after the other.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_json.h"

/* Adds what becomes of one piece. */
static void add_text(struct pieces *out, struct text *t)
{
    pieces_add(out, t->data, t->size, false);
    if (t->failed) out->failed = true;
    text_free(t);
}

/* All pieces' texts as one. */
static void fuse(const struct step *st, const struct pieces *in, struct pieces *out)
{
    (void)st;
    pieces_add(out, in->text.data, in->text.size, true);
}

/* GPT-2's alphabet back to bytes; a piece that has another character is added tokens' text, and stays. */
static void add_bytes(struct text *t, const char *s, size_t n)
{
    size_t start = t->size;
    uint32_t c;
    for (size_t at = 0, used; at < n; at += used) {
        used = (size_t)unicode_get(s + at, n - at, &c);
        int byte = used ? unicode_byte_of(c) : -1;
        if (byte < 0) {
            t->size = t->failed ? t->size : start;
            text_add(t, s, n);
            return;
        }
        text_add(t, &(char){(char)byte}, 1);
    }
}

static void byte_level(const struct step *st, const struct pieces *in, struct pieces *out)
{
    (void)st;
    struct text bytes = {0}, good = {.most = out->text.most};
    for (size_t i = 0; i < in->count; i++)
        add_bytes(&bytes, in->text.data + in->list[i].at, in->list[i].size);
    if (out->work->raw) text_add(&good, bytes.data, bytes.size);
    else unicode_add_lossy(&good, bytes.data, bytes.size);
    if (bytes.failed) out->failed = true;
    text_free(&bytes);
    add_text(out, &good);
}

static void replace(const struct step *st, const struct pieces *in, struct pieces *out)
{
    struct spans spans = {0};
    for (size_t i = 0; i < in->count; i++) {
        const char *s = in->text.data + in->list[i].at;
        struct text t = {.most = out->text.most};
        spans.count = 0;
        pattern_spans(&st->pattern, s, in->list[i].size, out->work, &spans);
        for (size_t k = 0; k < spans.count; k++) {
            struct span sp = spans.list[k];
            if (sp.match) text_add(&t, st->string.data, st->string.size);
            else text_add(&t, s + sp.from, sp.to - sp.from);
        }
        add_text(out, &t);
    }
    if (spans.failed) out->failed = true;
    spans_free(&spans);
}

/* <0x0A> is the byte 10: -1 for what is no such token. */
static int fallback_byte(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    if (!plain_hex(s[3]) || !plain_hex(s[4])) return -1;
    return (int)strtol((char[]){s[3], s[4], 0}, NULL, 16);
}

/* Bytes that stood next to each other: text, or U+FFFD for each of them. */
static void add_fallback(struct pieces *out, struct text *bytes)
{
    bool good = out->work->raw || unicode_valid(bytes->data, bytes->size);
    if (good && bytes->size) pieces_add(out, bytes->data, bytes->size, false);
    for (size_t i = 0; !good && i < bytes->size; i++) pieces_add(out, "\xef\xbf\xbd", 3, false);
    bytes->size = 0;
}

static void byte_fallback(const struct step *st, const struct pieces *in, struct pieces *out)
{
    (void)st;
    struct text bytes = {0};
    for (size_t i = 0; i < in->count; i++) {
        const char *s = in->text.data + in->list[i].at;
        int byte = fallback_byte(s, in->list[i].size);
        if (byte >= 0) text_add(&bytes, &(char){(char)byte}, 1);
        else add_fallback(out, &bytes), pieces_add(out, s, in->list[i].size, false);
    }
    add_fallback(out, &bytes);
    if (bytes.failed) out->failed = true;
    text_free(&bytes);
}

/* Of each piece: up to `start` of a character in front, up to `stop` behind. */
static void strip(const struct step *st, const struct pieces *in, struct pieces *out)
{
    size_t size = st->string.size;
    for (size_t i = 0; i < in->count; i++) {
        const char *s = in->text.data + in->list[i].at;
        size_t from = 0, to = in->list[i].size;
        for (int k = 0; k < st->start && to - from >= size; k++, from += size)
            if (memcmp(s + from, st->string.data, size) != 0) break;
        for (int k = 0; k < st->stop && to - from >= size; k++, to -= size)
            if (memcmp(s + to - size, st->string.data, size) != 0) break;
        pieces_add(out, s + from, to - from, false);
    }
}

static void metaspace(const struct step *st, const struct pieces *in, struct pieces *out)
{
    const char *put = st->string.data;
    size_t size = st->string.size;
    for (size_t i = 0; i < in->count; i++) {
        const char *s = in->text.data + in->list[i].at;
        struct text t = {.most = out->text.most};
        for (size_t at = 0, n = in->list[i].size; at < n;) {
            bool space = n - at >= size && memcmp(s + at, put, size) == 0;
            if (!space) text_add(&t, s + at, 1);
            else if (i > 0 || st->how == PREPEND_NEVER) text_add(&t, " ", 1);
            at += space ? size : 1;
        }
        add_text(out, &t);
    }
}

/* In place of each suffix a space, but none behind the last piece. */
static void bpe(const struct step *st, const struct pieces *in, struct pieces *out)
{
    size_t size = st->string.size;
    for (size_t i = 0; i < in->count; i++) {
        const char *s = in->text.data + in->list[i].at;
        struct text t = {.most = out->text.most};
        for (size_t at = 0, n = in->list[i].size; at < n;) {
            bool suffix = n - at >= size && memcmp(s + at, st->string.data, size) == 0;
            if (!suffix) text_add(&t, s + at, 1);
            else if (i + 1 < in->count) text_add(&t, " ", 1);
            at += suffix ? size : 1;
        }
        add_text(out, &t);
    }
}

/* The blanks that a WordPiece decoder takes out of a piece, one rule after the other over all of it. */
static void clean_up(struct text *t)
{
    static const char *const rules[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        struct text now = {0};
        size_t size = strlen(rules[r][0]);
        for (size_t at = 0; at < t->size;) {
            bool found = t->size - at >= size && memcmp(t->data + at, rules[r][0], size) == 0;
            if (found) text_add(&now, rules[r][1], strlen(rules[r][1]));
            else text_add(&now, t->data + at, 1);
            at += found ? size : 1;
        }
        now.failed |= t->failed;
        text_free(t);
        *t = now;
    }
}

/* flag: cleanup. */
static void wordpiece(const struct step *st, const struct pieces *in, struct pieces *out)
{
    size_t size = st->string.size;
    for (size_t i = 0; i < in->count; i++) {
        const char *s = in->text.data + in->list[i].at;
        size_t n = in->list[i].size;
        struct text t = {.most = out->text.most};
        bool goes_on = n >= size && memcmp(s, st->string.data, size) == 0;
        if (i > 0 && !goes_on) text_add(&t, " ", 1);
        if (i > 0 && goes_on) text_add(&t, s + size, n - size);
        else text_add(&t, s, n);
        if (st->flag[0]) clean_up(&t);
        add_text(out, &t);
    }
}

static void read_replace(const struct reader *r, struct step *st)
{
    read_pattern(r, "pattern", &st->pattern);
    read_text(r, "content", &st->string);
}

static void read_strip(const struct reader *r, struct step *st)
{
    uint32_t c;
    read_text(r, "content", &st->string);
    st->start = read_int(r, "start", 0);
    st->stop = read_int(r, "stop", 0);
    size_t n = st->string.size;
    if (n == 0 || (size_t)unicode_get(st->string.data, n, &c) != n)
        complain(r->complaint, "%s: 'content' is not one character", r->what);
}

static void read_wordpiece(const struct reader *r, struct step *st)
{
    read_text(r, "prefix", &st->string);
    st->flag[0] = read_flag(r, "cleanup", true);
    if (!st->string.size) complain(r->complaint, "%s: 'prefix' is empty", r->what);
}

static void read_suffix(const struct reader *r, struct step *st)
{
    read_text(r, "suffix", &st->string);
    if (!st->string.size) complain(r->complaint, "%s: 'suffix' is empty", r->what);
}

const struct kind decoder_kinds[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", NULL, {.decode = byte_level}},
    {"Replace", "pattern content", read_replace, {.decode = replace}},
    {"ByteFallback", "", NULL, {.decode = byte_fallback}},
    {"Fuse", "", NULL, {.decode = fuse}},
    {"Strip", "content start stop", read_strip, {.decode = strip}},
    {"Metaspace", METASPACE_MEMBERS, metaspace_read, {.decode = metaspace}},
    {"WordPiece", "prefix cleanup", read_wordpiece, {.decode = wordpiece}},
    {"BPEDecoder", "suffix", read_suffix, {.decode = bpe}},
    {0},
};
