/*
 * normalize.c -- what a text becomes before it is cut.
 */
#include <string.h>

#include "tokenizer_json.h"

/* Each character c of s, in a loop's head; s is UTF-8. */
#define EACH_CHARACTER(c, s, n)                                                                              \
    for (size_t at_ = 0, used_; at_ < (n) && (used_ = (size_t)unicode_get((s) + at_, (n)-at_, &(c)));        \
         at_ += used_)

static void form(const struct step *st, const char *s, size_t n, struct work *w, struct text *out)
{
    (void)w;
    unicode_normal(out, s, n, (enum unicode_form)st->how);
}

static void lower(const struct step *st, const char *s, size_t n, struct work *w, struct text *out)
{
    (void)st, (void)w;
    uint32_t c;
    EACH_CHARACTER(c, s, n) unicode_lower(out, c);
}

static void strip_accents(const struct step *st, const char *s, size_t n, struct work *w, struct text *out)
{
    (void)st, (void)w;
    uint32_t c;
    EACH_CHARACTER(c, s, n)
    {
        if (!unicode_mark(c)) text_char(out, c);
    }
}

static void prepend(const struct step *st, const char *s, size_t n, struct work *w, struct text *out)
{
    (void)w;
    if (n) text_add(out, st->string.data, st->string.size);
    text_add(out, s, n);
}

static void replace(const struct step *st, const char *s, size_t n, struct work *w, struct text *out)
{
    struct spans spans = {0};
    pattern_spans(&st->pattern, s, n, w, &spans);
    for (size_t i = 0; i < spans.count; i++) {
        struct span sp = spans.list[i];
        if (sp.match) text_add(out, st->string.data, st->string.size);
        else text_add(out, s + sp.from, sp.to - sp.from);
    }
    if (spans.failed) out->failed = true;
    spans_free(&spans);
}

/* flag: strip_left, strip_right. */
static void strip(const struct step *st, const char *s, size_t n, struct work *w, struct text *out)
{
    (void)w;
    size_t from = n, to = 0, at = 0; /* from the first character that is no space to the last one's end */
    uint32_t c;
    for (size_t used; at < n && (used = (size_t)unicode_get(s + at, n - at, &c)); at += used)
        if (!unicode_space(c)) from = from < at ? from : at, to = at + used;
    if (!st->flag[0]) from = 0;
    if (!st->flag[1]) to = n;
    if (from < to) text_add(out, s + from, to - from);
}

static void bytes_seen(const struct step *st, const char *s, size_t n, struct work *w, struct text *out)
{
    (void)st, (void)w;
    for (size_t i = 0; i < n; i++) text_char(out, unicode_of_byte((unsigned char)s[i]));
}

/* BERT's, of which the flags are clean_text, handle_chinese_chars, strip_accents and lowercase. */
static void bert_clean(const struct step *st, const char *s, size_t n, struct text *out)
{
    uint32_t c;
    EACH_CHARACTER(c, s, n)
    {
        bool chinese = st->flag[1] && unicode_chinese(c);
        if (st->flag[0] && (c == 0xfffd || unicode_control(c))) continue;
        if (st->flag[0] && unicode_space(c)) c = ' ';
        if (chinese) text_char(out, ' ');
        text_char(out, c);
        if (chinese) text_char(out, ' ');
    }
}

static void bert_strip(const char *s, size_t n, struct text *out)
{
    struct text apart = {.most = out->most};
    unicode_normal(&apart, s, n, UNICODE_NFD);
    uint32_t c;
    EACH_CHARACTER(c, apart.data, apart.size)
    {
        if (!unicode_accent(c)) text_char(out, c);
    }
    if (apart.failed) out->failed = true;
    text_free(&apart);
}

static void bert(const struct step *st, const char *s, size_t n, struct work *w, struct text *out)
{
    struct text clean = {.most = out->most}, bare = clean;
    bert_clean(st, s, n, &clean);
    if (st->flag[2]) bert_strip(clean.data, clean.size, &bare);
    else text_add(&bare, clean.data, clean.size);
    if (st->flag[3]) lower(st, bare.data, bare.size, w, out);
    else text_add(out, bare.data, bare.size);
    if (clean.failed || bare.failed) out->failed = true;
    text_free(&clean);
    text_free(&bare);
}

static void read_bert(const struct reader *r, struct step *st)
{
    st->flag[0] = read_flag(r, "clean_text", true);
    st->flag[1] = read_flag(r, "handle_chinese_chars", true);
    st->flag[3] = read_flag(r, "lowercase", true);
    st->flag[2] = read_flag(r, "strip_accents", st->flag[3]);
}

static void read_prepend(const struct reader *r, struct step *st) { read_text(r, "prepend", &st->string); }

static void read_replace(const struct reader *r, struct step *st)
{
    read_pattern(r, "pattern", &st->pattern);
    read_text(r, "content", &st->string);
    size_t size = st->pattern.size, put = st->string.size; /* of a string, not of an expression */
    st->reach = size && put && size < 1 << 20 ? (int)((size + put - 1) / put) : 0;
}

static void read_strip(const struct reader *r, struct step *st)
{
    st->flag[0] = read_flag(r, "strip_left", true);
    st->flag[1] = read_flag(r, "strip_right", true);
}

const struct kind normalizer_kinds[] = {
    {"BertNormalizer",
     "clean_text handle_chinese_chars strip_accents lowercase",
     read_bert,
     {.normalize = bert}},
    {"NFD", "", NULL, {.normalize = form, .how = UNICODE_NFD, .reach = 4}},
    {"NFC", "", NULL, {.normalize = form, .how = UNICODE_NFC, .reach = 4}},
    {"NFKD", "", NULL, {.normalize = form, .how = UNICODE_NFKD, .reach = 8}},
    {"NFKC", "", NULL, {.normalize = form, .how = UNICODE_NFKC, .reach = 8}},
    {"Lowercase", "", NULL, {.normalize = lower, .reach = 4}},
    {"StripAccents", "", NULL, {.normalize = strip_accents}},
    {"Strip", "strip_left strip_right", read_strip, {.normalize = strip}},
    {"Prepend", "prepend", read_prepend, {.normalize = prepend, .reach = 1}},
    {"Replace", "pattern content", read_replace, {.normalize = replace}},
    {"ByteLevel", "", NULL, {.normalize = bytes_seen, .reach = 1, .makes = MAKES_BYTES}},
    {0},
};
