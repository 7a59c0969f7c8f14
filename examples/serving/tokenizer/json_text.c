/*
 * json_text.c -- the readers of json_text.h.
 */
#include <stdlib.h>
#include <string.h>

#include "json_text.h"
#include "unicode.h"

enum { SAFE_DIGITS = 18 }; /* of a number that certainly has 64 bits */

/* The end of a text that begins at byte `at`, behind its quotation mark. */
static size_t string_end(const char *s, size_t n, size_t at)
{
    for (at++; at < n && s[at] != '"'; at++) at += s[at] == '\\';
    return at < n ? at + 1 : n;
}

static bool is_infinity(const char *s, size_t n) { return n >= 8 && !memcmp(s, "Infinity", 8); }

/* The same text, with ".0" behind whole numbers of many digits, and a large one for infinity. */
static void widen(const char *s, size_t n, struct text *out)
{
    for (size_t at = 0, end; at < n; at = end) {
        bool number = strchr("-0123456789", s[at]) && s[at];
        if (s[at] == '"') end = string_end(s, n, at);
        else if (is_infinity(s + at, n - at)) {
            text_add(out, "1.7e+308", 8);
            end = at += 8;
        } else
            for (end = at + 1; number && end < n && s[end] && strchr("0123456789+-.eE", s[end]);) end++;
        text_add(out, s + at, end - at);
        bool whole = number && !memchr(s + at, '.', end - at) && !memchr(s + at, 'e', end - at) &&
                     !memchr(s + at, 'E', end - at);
        if (whole && end - at > SAFE_DIGITS) text_add(out, ".0", 2);
    }
}

json_t *json_text(const char *data, size_t bytes, size_t flags, json_error_t *e)
{
    struct text wide = {0};
    json_t *v = json_loadb(data, bytes, flags, e);
    bool infinite = !v && bytes && memmem(data, bytes, "Infinity", 8);
    if (v || (json_error_code(e) != json_error_numeric_overflow && !infinite)) return v;
    widen(data, bytes, &wide);
    if (!wide.failed) v = json_loadb(wide.data, wide.size, flags, e);
    text_free(&wide);
    return v;
}

json_t *json_stream(FILE *f, size_t flags, json_error_t *e)
{
    struct text all = {0};
    char some[1 << 14];
    for (size_t n; (n = fread(some, 1, sizeof some, f));) text_add(&all, some, n);
    json_t *v = all.failed ? NULL : json_text(all.data ? all.data : "", all.size, flags, e);
    if (all.failed) *e = (json_error_t){.line = 1, .text = "out of memory"};
    text_free(&all);
    return v;
}
