/*
 * lex.c -- a template's text as tokens, with the white space around tags taken away as trim_blocks
 * and lstrip_blocks have it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "template_parts.h"

enum { MOST_NAME = 256 };

struct lexer {
    const char *s;
    size_t bytes, at;
    int line, brackets;
    bool line_starts; /* the last tag took a newline with it */
    struct arena *arena;
    struct tokens *out;
    struct fault *fault;
};

static bool fail(struct lexer *x, const char *what)
{
    return fault_set(x->fault, "line %d: %s", x->line, what);
}

static bool add(struct lexer *x, struct token t)
{
    struct tokens *all = x->out;
    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 256;
        struct token *more = realloc(all->of, room * sizeof *more);
        if (!more) return fail(x, "out of memory");
        all->of = more;
        all->room = room;
    }
    if (!t.line) t.line = x->line;
    all->of[all->count++] = t;
    return true;
}

static bool sees(const struct lexer *x, const char *text)
{
    size_t n = strlen(text);
    return x->bytes - x->at >= n && !memcmp(x->s + x->at, text, n);
}

static void step(struct lexer *x, size_t n)
{
    for (; n && x->at < x->bytes; n--)
        if (x->s[x->at++] == '\n') x->line++;
}

/* Bytes of the white-space character at `at`, 0: it is none. */
static size_t space_at(const struct lexer *x, size_t at)
{
    uint32_t c;
    int n = at < x->bytes ? unicode_get(x->s + at, x->bytes - at, &c) : 0;
    return n && python_space(c) ? (size_t)n : 0;
}

static void skip_space(struct lexer *x)
{
    for (size_t n; (n = space_at(x, x->at));) step(x, n);
}

/* ---- Text between tags ---- */

/* Where the next tag begins, or the end. */
static size_t next_tag(const struct lexer *x)
{
    for (size_t i = x->at; i + 1 < x->bytes; i++)
        if (x->s[i] == '{' && (x->s[i + 1] == '{' || x->s[i + 1] == '%' || x->s[i + 1] == '#')) return i;
    return x->bytes;
}

/* The text in front of a tag at `end`, as the tag's sign and kind have it. */
static struct string cut_before(const struct lexer *x, size_t end)
{
    struct string t = {x->s + x->at, end - x->at};
    char kind = end + 1 < x->bytes ? x->s[end + 1] : 0, sign = end + 2 < x->bytes ? x->s[end + 2] : 0;
    if (end == x->bytes || sign == '+') return t;
    if (sign == '-') return string_strip(t, false, true);
    if (kind == '{') return t;
    size_t line = t.bytes;
    while (line && t.data[line - 1] != '\n') line--;
    struct string rest = {t.data + line, t.bytes - line};
    if ((line || x->line_starts) && rest.bytes && !string_strip(rest, true, false).bytes) t.bytes = line;
    return t;
}

static bool add_text(struct lexer *x, size_t end)
{
    struct string t = cut_before(x, end);
    bool good = !t.bytes || add(x, (struct token){.kind = TOKEN_TEXT, .text = t});
    step(x, end - x->at);
    return good;
}

/* ---- Ends of tags ---- */

/* Takes "-%}" with the space behind it, "+%}", or "%}" with a newline behind it; false: it is not there. */
static bool take_end(struct lexer *x, const char *end)
{
    bool strip = sees(x, "-"), keep = sees(x, "+") && *end != '}';
    size_t from = x->at + (strip || keep);
    if (x->bytes - from < 2 || memcmp(x->s + from, end, 2)) return false;
    step(x, from + 2 - x->at);
    size_t before = x->at;
    if (strip) skip_space(x);
    else if (!keep && *end != '}' && sees(x, "\n")) step(x, 1);
    x->line_starts = x->at > before && x->s[x->at - 1] == '\n';
    return true;
}

/* ---- Inside of tags ---- */

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (c & 0x80);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool lex_number(struct lexer *x)
{
    char digits[MOST_NAME], *end;
    size_t n = 0, i = x->at;
    bool real = false;
    for (; i < x->bytes && n + 1 < sizeof digits; i++) {
        char c = x->s[i], next = i + 1 < x->bytes ? x->s[i + 1] : 0;
        bool exponent = (c == 'e' || c == 'E') && (is_digit(next) || next == '-' || next == '+');
        bool sign = n && (c == '-' || c == '+') && (digits[n - 1] == 'e' || digits[n - 1] == 'E');
        real |= exponent || (c == '.' && is_digit(next) && !real);
        if (c == '_' && is_digit(next)) continue;
        if (!is_digit(c) && !exponent && !sign && !(c == '.' && is_digit(next) && !memchr(digits, '.', n)))
            break;
        digits[n++] = c;
    }
    digits[n] = 0;
    errno = 0;
    struct token t = {.kind = real ? TOKEN_FLOAT : TOKEN_INT};
    if (real) t.real = plain_number(digits, &end);
    else t.integer = strtoll(digits, &end, 10);
    if (*end || errno || (i < x->bytes && name_byte(x->s[i])))
        return fail(x, "a number that is not understood");
    bool good = add(x, t);
    step(x, i - x->at);
    return good;
}

static int hex_digit(char c)
{
    return is_digit(c)            ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "\x41", "\u20ac" or "\U0001f600", at its letter; its bytes, 0: it is none. */
static size_t code_escape(const char *s, size_t n, struct text *to)
{
    size_t digits = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    uint32_t c = 0;
    for (size_t i = 1; i <= digits; i++) {
        if (i >= n || hex_digit(s[i]) < 0) return 0;
        c = c << 4 | (uint32_t)hex_digit(s[i]);
    }
    if (!digits || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    text_char(to, c);
    return digits + 1;
}

/* What stands behind a backslash, by Python's rules; one that is not known stays, with its backslash. */
static size_t escape(const char *s, size_t n, struct text *to)
{
    static const char letters[] = "abfnrtv\\'\"", meant[] = "\a\b\f\n\r\t\v\\'\"";
    const char *at = memchr(letters, *s, sizeof letters - 1);
    if (at) return text_add(to, &meant[at - letters], 1), 1;
    if (*s == '\n') return 1;
    if (*s >= '0' && *s <= '7') {
        uint32_t c = 0;
        size_t i = 0;
        for (; i < 3 && i < n && s[i] >= '0' && s[i] <= '7'; i++) c = c * 8 + (uint32_t)(s[i] - '0');
        return text_char(to, c), i;
    }
    size_t taken = code_escape(s, n, to);
    if (!taken) text_add(to, "\\", 1);
    return taken;
}

static bool lex_string(struct lexer *x)
{
    char quote = x->s[x->at];
    size_t from = x->at + 1, end = from;
    struct text t = {0};
    while (end < x->bytes && x->s[end] != quote) end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->bytes) return fail(x, "a string has no end");
    for (size_t i = from; i < end;) {
        if (x->s[i] != '\\') text_add(&t, &x->s[i], 1), i++;
        else i++, i += escape(x->s + i, end - i, &t);
    }
    char *data = t.failed ? NULL : arena_take(x->arena, t.size + 1);
    if (data && t.size) memcpy(data, t.data, t.size);
    bool good = data ? add(x, (struct token){.kind = TOKEN_STRING, .text = {data, t.size}})
                     : fail(x, "out of memory");
    text_free(&t);
    step(x, end + 1 - x->at);
    return good;
}

static bool lex_sign(struct lexer *x)
{
    static const char *const signs[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (!sees(x, signs[i])) continue;
        if (strchr("[({", *signs[i])) x->brackets++;
        if (strchr("])}", *signs[i]) && x->brackets-- == 0)
            return fail(x, "a bracket closes what is not open");
        bool good = add(x, (struct token){.kind = TOKEN_SIGN, .text = {signs[i], strlen(signs[i])}});
        step(x, strlen(signs[i]));
        return good;
    }
    return fail(x, "a character that is not understood");
}

static bool lex_inside(struct lexer *x, const char *end, enum token_kind kind)
{
    for (;;) {
        skip_space(x);
        if (x->at == x->bytes) return fail(x, "a tag has no end");
        int line = x->line;
        if (!x->brackets && take_end(x, end)) return add(x, (struct token){.kind = kind, .line = line});
        char c = x->s[x->at];
        bool good = true;
        if (is_digit(c)) good = lex_number(x);
        else if (c == '\'' || c == '"') good = lex_string(x);
        else if (name_byte(c)) {
            size_t n = 0;
            while (x->at + n < x->bytes && name_byte(x->s[x->at + n])) n++;
            good = add(x, (struct token){.kind = TOKEN_NAME, .text = {x->s + x->at, n}});
            step(x, n);
        } else good = lex_sign(x);
        if (!good) return false;
    }
}

/* ---- Tags ---- */

static bool skip_comment(struct lexer *x)
{
    step(x, 2);
    while (x->at < x->bytes)
        if (take_end(x, "#}")) return true;
        else step(x, 1);
    return fail(x, "a comment has no end");
}

/* "{% word %}" at x->at, with signs; takes it, or nothing. */
static bool take_word_tag(struct lexer *x, const char *word)
{
    struct lexer start = *x;
    step(x, 2);
    if (sees(x, "-") || sees(x, "+")) step(x, 1);
    skip_space(x);
    bool there = sees(x, word) && !(x->at + strlen(word) < x->bytes && name_byte(x->s[x->at + strlen(word)]));
    if (there) step(x, strlen(word));
    if (there) skip_space(x);
    bool trims = *word == 'e' || sees(x, "-"); /* raw keeps the newline behind it */
    if (there && !trims && sees(x, "%}")) return step(x, 2), x->line_starts = false, true;
    if (there && trims && take_end(x, "%}")) return true;
    *x = start;
    return false;
}

/* Behind {% raw %}: text up to {% endraw %}. */
static bool lex_raw(struct lexer *x)
{
    struct lexer from = *x;
    for (; x->at < x->bytes; step(x, 1)) {
        struct lexer tag = *x;
        if (!sees(x, "{%") || !take_word_tag(x, "endraw")) continue;
        struct string t = cut_before(&from, tag.at);
        return !t.bytes || add(x, (struct token){.kind = TOKEN_TEXT, .text = t, .line = from.line});
    }
    return fail(&from, "raw has no endraw");
}

static bool lex_tag(struct lexer *x)
{
    if (sees(x, "{#")) return skip_comment(x);
    if (sees(x, "{%") && take_word_tag(x, "raw")) return lex_raw(x);
    bool show = sees(x, "{{");
    if (!add(x, (struct token){.kind = show ? TOKEN_SHOW : TOKEN_BLOCK})) return false;
    step(x, 2);
    if (sees(x, "-") || (sees(x, "+") && !show)) step(x, 1);
    x->brackets = 0;
    return lex_inside(x, show ? "}}" : "%}", show ? TOKEN_SHOW_END : TOKEN_BLOCK_END);
}

/* Line ends become "\n", and one at the end is left out. */
static char *normalized(const char *s, size_t *bytes, struct arena *a)
{
    char *to = arena_take(a, *bytes + 1);
    size_t n = 0;
    for (size_t i = 0; to && i < *bytes; i++) {
        if (s[i] == '\r' && i + 1 < *bytes && s[i + 1] == '\n') continue;
        to[n++] = s[i] == '\r' ? '\n' : s[i];
    }
    *bytes = n && to[n - 1] == '\n' ? n - 1 : n;
    return to;
}

bool template_lex(const char *source, size_t bytes, struct arena *a, struct tokens *out, struct fault *f)
{
    struct lexer x = {.bytes = bytes, .line = 1, .line_starts = true, .arena = a, .out = out, .fault = f};
    if (!(x.s = normalized(source, &x.bytes, a))) return fail(&x, "out of memory");
    while (x.at < x.bytes) {
        size_t end = next_tag(&x);
        if (!add_text(&x, end)) return false;
        x.line_starts = false;
        if (end < x.bytes && !lex_tag(&x)) return false;
    }
    return add(&x, (struct token){.kind = TOKEN_END});
}
