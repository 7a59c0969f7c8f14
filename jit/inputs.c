/*
 * inputs.c -- does a kernel depend on its texts and options alone, as its key says?
 *
 * A key holds the kernel's text, the primitives and the compiler's options. What the compiler takes from
 * elsewhere, another file or the clock, would change under an entry that stays. NVRTC tells nobody what it
 * has read, so it is judged by what could make it read: directives and names in a text, and flags. Whatever
 * is not known to be harmless is not.
 *
 * A text is read as compilers do: spliced lines are joined, comments are blanks, literals are skipped.
 * Where compilers differ (blanks after a splice's backslash, trigraphs, raw strings in a skipped group) the
 * text is not closed either, for else it could look harmless here and be another one there.
 */
#include "compile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

static void read_identifier(struct reader *r)
{
    static const char *const raw[] = {"R", "LR", "uR", "UR", "u8R", NULL};
    static const char *const modules[] = {"import", "module", "export", NULL};
    char word[WORD];
    bool first = r->line_start, whole = read_word(r, word);
    r->line_start = false;
    if (is_one_of(word, telling)) open_up(r, "%s", word);
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

bool jit_text_is_closed(const char *text, bool (*known)(const char *name), char *why, size_t size)
{
    struct reader r = {.at = text, .line = 1, .line_start = true, .known = known, .why = why, .size = size};
    for (skip_blanks(&r); peek(&r); skip_blanks(&r)) read_token(&r);
    return !r.open;
}

/* ---- Flags ---- */

/* Each with what may follow: '=' a value, '+' text that goes on, '.' nothing. */
static const char *const harmless_flags[] = {
    "-D+",
    "-U+",
    "--define-macro=",
    "--undefine-macro=",
    "-std=",
    "--std=",
    "-G.",
    "--device-debug.",
    "-lineinfo.",
    "--generate-line-info.",
    "-dopt=",
    "--dopt=",
    "-use_fast_math.",
    "--use_fast_math.",
    "-ftz=",
    "--ftz=",
    "-prec-sqrt=",
    "--prec-sqrt=",
    "-prec-div=",
    "--prec-div=",
    "-fmad=",
    "--fmad=",
    "-maxrregcount=",
    "--maxrregcount=",
    "-extra-device-vectorization.",
    "--extra-device-vectorization.",
    "-restrict.",
    "--restrict.",
    "-w.",
    "--disable-warnings.",
    "-diag-suppress=",
    "--diag-suppress=",
    "-minimal.",
    "--minimal.",
    "-Ofc=",
    "--Ofast-compile=",
    "-split-compile=",
    "--split-compile=",
    "--no-cache.",
    "--ptxas-options=-v.",
    "--ptxas-options=-O+",
    NULL,
};

/* Letters, digits and signs that quote nothing; no name that tells. */
static bool is_plain(const char *value, size_t n)
{
    char copy[128], *word = copy, *rest;
    if (n >= sizeof copy) return false;
    memcpy(copy, value, n);
    copy[n] = 0;
    if (copy[strspn(copy, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.=+-,")])
        return false;
    while ((word = strtok_r(word, ".=+-,", &rest))) {
        if (is_one_of(word, telling)) return false;
        word = NULL;
    }
    return true;
}

static bool is_harmless(const char *flag, size_t n)
{
    for (const char *const *f = harmless_flags; *f; f++) {
        size_t length = strlen(*f) - 1;
        char follows = (*f)[length];
        if (follows == '=') length++;
        if (n >= length && !memcmp(flag, *f, length) && (follows != '.' || n == length))
            return is_plain(flag + length, n - length);
    }
    return false;
}

static bool flags_are_closed(const char *variable, char *why, size_t size)
{
    const char *s = environment(variable);
    for (size_t n; s && *(s += strspn(s, " \t\n\r\v\f")); s += n) {
        n = strcspn(s, " \t\n\r\v\f");
        if (is_harmless(s, n)) continue;
        snprintf(why, size, "$%s has \"%.*s\", so kernels may depend on files that are not in their keys",
                 variable, (int)(n < 60 ? n : 60), s);
        return false;
    }
    return true;
}

bool jit_inputs_are_known(char *why, size_t size)
{
    /* NVRTC reads these, too, and nobody has said what they do. */
    static const char *const dark[] = {"NVRTCWIZ", "NV_NVVM_", "EDG_", "LLVM_OVERRIDE_", "CPPCX_", NULL};
    static const char *const none[] = {NULL};
    char err[JIT_ERROR_SIZE];
    const struct sources *s = sources_open(err);
    if (!flags_are_closed("NVRTC_PREPEND_FLAGS", why, size) ||
        !flags_are_closed("NVRTC_APPEND_FLAGS", why, size))
        return false;
    const char *set = environment_begins(dark, none);
    if (set) snprintf(why, size, "$%.*s is set, which NVRTC reads", (int)strcspn(set, "="), set);
    else if (s && s->open[0]) snprintf(why, size, "%s", s->open);
    return !set && (!s || !s->open[0]);
}
