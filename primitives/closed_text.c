/*
 * closed_text.c -- does a CUDA text make the compiler read nothing but itself?
 *
 * What the compiler takes from elsewhere, another file or the clock, would change under a kernel that a cache
 * keeps by its text. NVRTC tells nobody what it has read, so a text is judged by what could make it read:
 * directives and names. Whatever is not known to be harmless is not.
 *
 * A text is read as compilers do: spliced lines are joined, comments are blanks, literals are skipped.
 * Where compilers differ (blanks after a splice's backslash, trigraphs, raw strings in a skipped group) the
 * text is not closed either, for else it could look harmless here and be another one there.
 */
#include "closed_text.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- A text, character by character ---- */

struct reader {
    const char *at;
    int line;        /* of `at`, from 1 */
    bool line_start; /* nothing but blanks and comments since the line began */
    bool (*known)(const char *name);
    char *why;
    size_t size;
    bool open; /* the text is not closed; why has the reason */
};

static void open_up(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void open_up(struct reader *r, const char *format, ...)
{
    va_list args;
    int n;
    if (r->open) return;
    r->open = true;
    n = snprintf(r->why, r->size, "line %d has ", r->line);
    va_start(args, format);
    if (n > 0 && (size_t)n < r->size) vsnprintf(r->why + n, r->size - (size_t)n, format, args);
    va_end(args);
}

/* The character at `at`, after spliced lines; 0 at the end, and where the text is given up. */
static int peek(struct reader *r)
{
    while (*r->at == '\\') {
        size_t blanks = strspn(r->at + 1, " \t\v\f\r");
        if (r->at[1 + blanks] && r->at[1 + blanks] != '\n') break;
        bool plain = blanks == 0 || (blanks == 1 && r->at[1] == '\r');
        if (!r->at[1 + blanks] || !plain) open_up(r, "a backslash before blanks or the end");
        if (r->open) return 0;
        r->at += 2 + blanks;
        r->line++;
    }
    if (r->at[0] == '\r' && r->at[1] != '\n') open_up(r, "a carriage return alone");
    if (!strncmp(r->at, "?\?/", 3)) open_up(r, "a trigraph");
    return r->open ? 0 : (unsigned char)*r->at;
}

static int take(struct reader *r)
{
    int c = peek(r);
    if (c) r->at++;
    if (c == '\n') r->line++;
    return c;
}

static bool accept(struct reader *r, int c) { return peek(r) == c && take(r); }

static bool is_digit(int c) { return c >= '0' && c <= '9'; }

/* Letters of ASCII, and all that may be part of another one: NVRTC has no locale. */
static bool is_letter(int c)
{
    return ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c == '$' || c >= 0x80;
}

static bool is_word(int c) { return is_letter(c) || is_digit(c); }

/* ---- Tokens ---- */

static void skip_line_comment(struct reader *r)
{
    while (peek(r) && peek(r) != '\n') take(r);
}

static void skip_comment(struct reader *r)
{
    for (int c = take(r), before = 0; c != '/' || before != '*'; before = c, c = take(r)) {
        if (c) continue;
        open_up(r, "a comment without an end");
        return;
    }
}

/* Blanks and comments, but not the line's end. */
static void skip_blanks(struct reader *r)
{
    for (int c; (c = peek(r));) {
        if (c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r') take(r);
        else if (c == '/') {
            struct reader ahead = *r;
            take(&ahead);
            int next = peek(&ahead);
            if (next != '/' && next != '*') return;
            take(r), take(r);
            if (next == '/') skip_line_comment(r);
            else skip_comment(r);
        } else return;
    }
}

/* Behind its opening quote. */
static void skip_literal(struct reader *r, int quote)
{
    for (int c; (c = take(r)) != quote;) {
        if (c == '\\') c = take(r);
        if (c && c != '\n') continue;
        open_up(r, "a quote that is not closed");
        return;
    }
}

/* Behind R": nothing is spliced in it. One that ends where a plain literal would, so that it is the same for
 * those who do not know raw strings. */
static void skip_raw_literal(struct reader *r)
{
    const char *mark = r->at, *end = strpbrk(mark, "\"\n"), *open = strpbrk(mark, "( )\\\t\v\f\n\"");
    size_t n = open && *open == '(' ? (size_t)(open - mark) : 17;
    bool closed = n <= 16 && end && *end == '"' && end - open > (ptrdiff_t)n &&
                  end[-(ptrdiff_t)n - 1] == ')' && !memcmp(end - n, mark, n);
    if (closed) r->at = end + 1;
    else open_up(r, "a raw string of several lines, or with a quote in it");
}

enum { WORD = 64 };

/* An identifier, of which the first characters are kept; true if it is spelled in one piece. */
static bool read_word(struct reader *r, char word[WORD])
{
    const char *from = r->at;
    size_t n = 0, all = 0;
    for (; is_word(peek(r)); all++) {
        int c = take(r);
        if (n < WORD - 1) word[n++] = (char)c;
    }
    word[n] = 0;
    peek(r);
    return (size_t)(r->at - from) == all;
}

static bool is_one_of(const char *word, const char *const *list)
{
    while (*list && strcmp(word, *list)) list++;
    return *list;
}

/* Names that stand for the clock, for a file's name, or ask for a file. */
static const char *const telling[] = {
    "__TIME__",           "__DATE__",
    "__TIMESTAMP__",      "__FILE__",
    "__BASE_FILE__",      "__FILE_NAME__",
    "__has_include",      "__has_embed",
    "__builtin_FILE",     "__builtin_FILE_NAME",
    "__has_include_next", "_Pragma",
    "__pragma",           NULL,
};

bool text_word_tells(const char *word) { return is_one_of(word, telling); }

static void read_identifier(struct reader *r)
{
    static const char *const raw[] = {"R", "LR", "uR", "UR", "u8R", NULL};
    static const char *const modules[] = {"import", "module", "export", NULL};
    char word[WORD];
    bool first = r->line_start, whole = read_word(r, word);
    r->line_start = false;
    if (text_word_tells(word)) open_up(r, "%s", word);
    if (first && is_one_of(word, modules)) open_up(r, "%s", word);
    if (peek(r) != '"' || !is_one_of(word, raw)) return;
    if (!whole) open_up(r, "a raw string whose prefix is in pieces");
    take(r);
    if (!r->open) skip_raw_literal(r);
}

static void read_number(struct reader *r)
{
    int c, before = 0;
    while ((c = peek(r)) && (is_word(c) || c == '.' || ((c == '+' || c == '-') && strchr("eEpP", before))))
        before = take(r);
    if (c == '\'') open_up(r, "a quote in a number");
}

/* ---- Directives ---- */

/* "name" and the line's end. */
static void read_include(struct reader *r)
{
    char name[256];
    size_t n = 0;
    skip_blanks(r);
    bool good = r->known && accept(r, '"');
    for (int c; good && (c = peek(r)) != '"';) {
        good = c && c != '\n' && c != '\\' && n < sizeof name - 1;
        if (good) name[n++] = (char)take(r);
    }
    if (good) take(r);
    name[n] = 0;
    if (!good || !r->known(name)) open_up(r, "#include, which reads another file");
}

static void read_directive(struct reader *r)
{
    static const char *const harmless[] = {"define", "undef", "if",    "ifdef", "ifndef",
                                           "elif",   "else",  "endif", "error", NULL};
    static const char *const pragmas[] = {"unroll", "nounroll", "once", NULL};
    char word[WORD];
    r->line_start = false;
    skip_blanks(r);
    if (!peek(r) || peek(r) == '\n') return; /* # alone */
    read_word(r, word);
    if (!strcmp(word, "include")) read_include(r);
    else if (!strcmp(word, "pragma")) {
        skip_blanks(r);
        read_word(r, word);
        if (!is_one_of(word, pragmas)) open_up(r, "#pragma %s", word);
    } else if (!is_one_of(word, harmless)) open_up(r, "#%s", word);
}

/* # and %: begin a directive, and paste if there are two. */
static void read_hash(struct reader *r, bool digraph)
{
    if (r->line_start) {
        read_directive(r);
        return;
    }
    bool pasting = digraph ? accept(r, '%') && accept(r, ':') : accept(r, '#');
    if (pasting) open_up(r, "##, which could make any name");
}

static void read_token(struct reader *r)
{
    int c = peek(r);
    if (is_letter(c)) {
        read_identifier(r);
        return;
    }
    take(r);
    if (c == '\n') r->line_start = true;
    else if (c == '#') read_hash(r, false);
    else if (c == '?' && accept(r, '?') && peek(r) == '=') open_up(r, "a trigraph");
    else if (c == '%' && accept(r, ':')) read_hash(r, true);
    else if (c == '"' || c == '\'') skip_literal(r, c);
    else if (c == '\\' && peek(r) && strchr("uUN", peek(r))) open_up(r, "a character's number in a name");
    else if (is_digit(c) || (c == '.' && is_digit(peek(r)))) read_number(r);
    if (c != '\n') r->line_start = false;
}

bool text_is_closed(const char *text, bool (*known)(const char *name), char *why, size_t size)
{
    struct reader r = {.at = text, .line = 1, .line_start = true, .known = known, .why = why, .size = size};
    for (skip_blanks(&r); peek(&r); skip_blanks(&r)) read_token(&r);
    return !r.open;
}
