/*
 * cut.c -- a text in words, each of which the model takes alone.
 */
#include <string.h>

#include "tokenizer_json.h"

/* Whether a span and the next one are one word. */
static bool joins(int how, bool match, bool next)
{
    if (how == CONTIGUOUS) return match == next;
    if (how == MERGED_WITH_PREVIOUS) return !match && next;
    return how == MERGED_WITH_NEXT && match && !next;
}

/* The words of s by its spans; `opposite` takes what was not found for what was. */
static void cut_spans(const struct spans *spans, int how, bool opposite, const char *s, bool first,
                      struct pieces *out)
{
    size_t from = 0;
    for (size_t i = 0; i < spans->count; i++) {
        struct span sp = spans->list[i];
        bool match = sp.match != opposite;
        if (i + 1 < spans->count && joins(how, match, spans->list[i + 1].match != opposite)) continue;
        if (how != REMOVED || !match) pieces_add(out, s + from, sp.to - from, first && from == 0);
        from = sp.to;
    }
    if (spans->failed) out->failed = true;
}

/* flag: invert. */
static void split(const struct step *st, const char *s, size_t n, bool first, struct pieces *out)
{
    struct spans spans = {0};
    pattern_spans(&st->pattern, s, n, out->work, &spans);
    cut_spans(&spans, st->how, st->flag[0], s, first, out);
    spans_free(&spans);
}

/* A span for each character of a class, and for each stretch of others. */
static void class_spans(const char *s, size_t n, bool (*is)(uint32_t c), struct spans *out)
{
    size_t from = 0;
    uint32_t c;
    for (size_t at = 0, used; at < n && (used = (size_t)unicode_get(s + at, n - at, &c)); at += used) {
        if (!is(c)) continue;
        if (at > from) spans_add(out, from, at, false);
        spans_add(out, at, from = at + used, true);
    }
    if (from < n) spans_add(out, from, n, false);
}

static void cut_class(const char *s, size_t n, bool (*is)(uint32_t c), int how, bool first,
                      struct pieces *out)
{
    struct spans spans = {0};
    class_spans(s, n, is, &spans);
    cut_spans(&spans, how, false, s, first, out);
    spans_free(&spans);
}

static void punctuation(const struct step *st, const char *s, size_t n, bool first, struct pieces *out)
{
    cut_class(s, n, unicode_punctuation, st->how, first, out);
}

static void digits(const struct step *st, const char *s, size_t n, bool first, struct pieces *out)
{
    cut_class(s, n, unicode_digit, st->how, first, out);
}

static void at_spaces(const struct step *st, const char *s, size_t n, bool first, struct pieces *out)
{
    (void)st;
    cut_class(s, n, unicode_space, REMOVED, first, out);
}

static void bert(const struct step *st, const char *s, size_t n, bool first, struct pieces *out)
{
    (void)st;
    struct pieces words = pieces_begin(out->work);
    cut_class(s, n, unicode_space, REMOVED, first, &words);
    for (size_t i = 0; i < words.count; i++) {
        struct piece w = words.list[i];
        cut_class(words.text.data + w.at, w.size, unicode_punctuation, ISOLATED, w.first, out);
    }
    if (words.failed) out->failed = true;
    pieces_free(&words);
}

/* What \w is to this step: with the two joiners, which Oniguruma's is without. */
static int word_class(uint32_t c)
{
    if (unicode_space(c)) return 0;
    return unicode_word(c) || c == 0x200c || c == 0x200d ? 1 : 2;
}

/* \w+|[^\w\s]+ */
static void words(const struct step *st, const char *s, size_t n, bool first, struct pieces *out)
{
    (void)st;
    size_t from = 0;
    int before = 0;
    uint32_t c;
    for (size_t at = 0, used; at < n && (used = (size_t)unicode_get(s + at, n - at, &c)); at += used) {
        int now = word_class(c);
        if (now != before && before) pieces_add(out, s + from, at - from, first && from == 0);
        if (now != before) from = at;
        before = now;
    }
    if (before) pieces_add(out, s + from, n - from, first && from == 0);
}

/* A word in GPT-2's alphabet of bytes. */
static void add_seen(const char *s, size_t n, bool first, struct pieces *out)
{
    struct text seen = {.most = out->text.most};
    for (size_t i = 0; i < n; i++) text_char(&seen, unicode_of_byte((unsigned char)s[i]));
    pieces_add(out, seen.data, seen.size, first);
    if (seen.failed) out->failed = true;
    text_free(&seen);
}

/* flag: add_prefix_space, trim_offsets (which changes no id), use_regex (the pattern is GPT-2's). */
static void byte_level(const struct step *st, const char *s, size_t n, bool first, struct pieces *out)
{
    struct text spaced = {.most = out->text.most};
    struct spans spans = {0};
    if (st->flag[0] && *s != ' ') text_add(&spaced, " ", 1);
    text_add(&spaced, s, n);
    if (st->flag[2]) pattern_spans(&st->pattern, spaced.data, spaced.size, out->work, &spans);
    else spans_add(&spans, 0, spaced.size, true);
    for (size_t i = 0; i < spans.count && !spaced.failed; i++) {
        struct span sp = spans.list[i];
        add_seen(spaced.data + sp.from, sp.to - sp.from, first && sp.from == 0, out);
    }
    if (spaced.failed || spans.failed) out->failed = true;
    spans_free(&spans);
    text_free(&spaced);
}

/* Spaces become st->string, which the pattern finds; how: enum prepend. flag: split. */
static void metaspace(const struct step *st, const char *s, size_t n, bool first, struct pieces *out)
{
    struct text spaced = {.most = out->text.most};
    bool starts = n >= st->string.size && memcmp(s, st->string.data, st->string.size) == 0;
    bool wants = st->how == PREPEND_ALWAYS || (st->how == PREPEND_FIRST && first);
    if (wants && !starts && *s != ' ') text_add(&spaced, st->string.data, st->string.size);
    for (size_t i = 0; i < n; i++)
        if (s[i] == ' ') text_add(&spaced, st->string.data, st->string.size);
        else text_add(&spaced, s + i, 1);
    struct spans spans = {0};
    pattern_spans(&st->pattern, spaced.data, spaced.size, out->work, &spans);
    if (!st->flag[0]) pieces_add(out, spaced.data, spaced.size, first);
    else cut_spans(&spans, MERGED_WITH_NEXT, false, spaced.data, first, out);
    if (spaced.failed) out->failed = true;
    spans_free(&spans);
    text_free(&spaced);
}

static void read_split(const struct reader *r, struct step *st)
{
    read_pattern(r, "pattern", &st->pattern);
    st->how = read_choice(r, "behavior", behavior_names);
    if (!json_object_get(r->object, "behavior"))
        complain(r->complaint, "%s: there is no 'behavior'", r->what);
    st->flag[0] = read_flag(r, "invert", false);
    st->reach = st->how != REMOVED;
}

static void read_punctuation(const struct reader *r, struct step *st)
{
    st->how = ISOLATED;
    if (json_object_get(r->object, "behavior")) st->how = read_choice(r, "behavior", behavior_names);
    st->reach = st->how != REMOVED;
}

static void read_digits(const struct reader *r, struct step *st)
{
    st->how = read_flag(r, "individual_digits", false) ? ISOLATED : CONTIGUOUS;
}

static void read_byte_level(const struct reader *r, struct step *st)
{
    static const char gpt2[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    st->flag[0] = read_flag(r, "add_prefix_space", true);
    st->flag[1] = read_flag(r, "trim_offsets", true);
    st->flag[2] = read_flag(r, "use_regex", true);
    pattern_regex(&st->pattern, gpt2, sizeof gpt2 - 1, r->complaint);
}

static void read_metaspace(const struct reader *r, struct step *st)
{
    metaspace_read(r, st);
    st->flag[0] = read_flag(r, "split", true);
    if (!r->complaint->made) pattern_literal(&st->pattern, st->string.data, st->string.size, r->complaint);
}

const struct kind cut_kinds[] = {
    {"ByteLevel",
     "add_prefix_space trim_offsets use_regex",
     read_byte_level,
     {.cut = byte_level, .reach = 1, .makes = MAKES_BYTES}},
    {"Split", "pattern behavior invert", read_split, {.cut = split, .makes = MAKES_NONE}},
    {"Metaspace", METASPACE_MEMBERS, read_metaspace, {.cut = metaspace, .reach = 1}},
    {"BertPreTokenizer", "", NULL, {.cut = bert}},
    {"Whitespace", "", NULL, {.cut = words}},
    {"WhitespaceSplit", "", NULL, {.cut = at_spaces}},
    {"Punctuation", "behavior", read_punctuation, {.cut = punctuation, .makes = MAKES_NONE}},
    {"Digits", "individual_digits", read_digits, {.cut = digits, .reach = 1, .makes = MAKES_NONE}},
    {0},
};
