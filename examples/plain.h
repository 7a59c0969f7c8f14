/*
 * plain.h -- text for files, protocols and terminals, which has to be the same in every locale.
 *
 * The C library prints 1,5 where LC_NUMERIC has a decimal comma, reads "1.5" as 1 there, and knows other
 * letters. What the examples print, read and compare goes through these functions instead, so that their
 * parts also work in a program that calls setlocale(). glibc and musl return a "C" that they have, so
 * newlocale() costs nothing; it is the calling thread's alone, for the length of a call.
 */
#ifndef PLAIN_H
#define PLAIN_H

#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline locale_t plain_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* ---- Printing and reading ---- */

/* As vsnprintf. */
__attribute__((format(printf, 3, 0))) static inline int plain_vline(char *out, size_t size,
                                                                    const char *format, va_list args)
{
    locale_t before = uselocale(plain_locale());
    int n = vsnprintf(out, size, format, args);
    uselocale(before);
    return n;
}

/* As snprintf. */
__attribute__((format(printf, 3, 4))) static inline int plain_line(char *out, size_t size, const char *format,
                                                                   ...)
{
    va_list args;
    va_start(args, format);
    int n = plain_vline(out, size, format, args);
    va_end(args);
    return n;
}

/* As fprintf. */
__attribute__((format(printf, 2, 3))) static inline void plain_print(FILE *to, const char *format, ...)
{
    va_list args;
    locale_t before = uselocale(plain_locale());
    va_start(args, format);
    vfprintf(to, format, args);
    va_end(args);
    uselocale(before);
}

/* As strtod. */
static inline double plain_number(const char *s, char **end) { return strtod_l(s, end, plain_locale()); }

/* ---- Letters: those of ASCII ---- */

static inline bool plain_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool plain_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static inline bool plain_hex(char c) { return plain_digit(c) || (c && strchr("abcdefABCDEF", c)); }
static inline bool plain_mark(char c) { return c > ' ' && c < 127 && !plain_digit(c) && !plain_letter(c); }
static inline char plain_small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c; }

/* Does s begin with `word`, whose letters are small ones, in letters of any size? */
static inline bool plain_begins(const char *s, const char *word)
{
    while (*word && plain_small(*s) == *word) s++, word++;
    return !*word;
}

/* Are these n bytes, or fewer up to a NUL, alike but for the size of letters? */
static inline bool plain_alike(const char *a, const char *b, size_t n)
{
    for (; n; n--, a++, b++) {
        if (plain_small(*a) != plain_small(*b)) return false;
        if (!*a) return true;
    }
    return true;
}

/* ---- What a terminal shows, and does not obey ---- */

/* Bytes of the UTF-8 character at s if a terminal shows it as it is; 0 for control characters (C0, DEL, C1),
 * the marks that reorder (UAX #9) or break a line, and what is no UTF-8. */
static inline int plain_shown(const char *text)
{
    static const uint32_t least[] = {0, 0x20, 0xa0, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    int n = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
    uint32_t c = n == 1 ? *s : *s & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) return 0;
        c = c << 6 | (s[i] & 63);
    }
    bool mark = c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
                (c >= 0x2066 && c <= 0x2069);
    bool good = n && c >= least[n] && c != 0x7f && c <= 0x10ffff && c >> 11 != 0x1b; /* no surrogate */
    return good && !mark ? n : 0;
}

/* Copies s with \x1b for each byte that is not shown; as much as has room, and the 0. */
static inline void plain_escape(char *out, size_t size, const char *s)
{
    size_t length = 0;
    while (*s) {
        char word[8];
        int n = plain_shown(s), words = n;
        if (n) memcpy(word, s, (size_t)n);
        else words = snprintf(word, sizeof word, "\\x%02x", (unsigned char)*s);
        if (length + (size_t)words >= size) break;
        memcpy(out + length, word, (size_t)words);
        length += (size_t)words;
        s += n ? n : 1;
    }
    out[length] = 0;
}

#endif
