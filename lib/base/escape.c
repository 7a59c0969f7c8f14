/*
 * escape.c -- text of unknown origin as one line that a terminal shows as it is.
 *
 * Names, tokens of a text, paths and values of the environment reach messages. What a terminal would obey
 * instead of showing it is printed as \n, \t or \x1b: control characters (also U+0080 to U+009F, which are
 * commands in 8 bits), the marks that reorder a line (bidirectional formatting) or break it, and bytes that
 * are no UTF-8.
 */
#include "base.h"

#include <stdio.h>
#include <string.h>

static bool is_control(uint32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }

/* They change the order or the lines of what is shown: the marks of Unicode's bidirectional algorithm
 * (UAX #9), and the separators of lines and paragraphs. */
static bool is_mark(uint32_t c)
{
    return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* Bytes of the character at s if it is one that is shown as it is; 0 if not. A 0 ends s. */
static int shown_length(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
    uint32_t c = n == 1 ? *s : *s & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) return 0;
        c = c << 6 | (s[i] & 63);
    }
    bool good = n && c >= least[n] && c <= 0x10ffff && c >> 11 != 0x1b; /* no surrogate */
    return good && !is_control(c) && !is_mark(c) ? n : 0;
}

size_t escape(char *out, size_t size, const char *in)
{
    const unsigned char *s = (const unsigned char *)in;
    size_t length = 0;
    while (*s) {
        char word[8];
        int n = shown_length(s), words = n;
        if (n) memcpy(word, s, (size_t)n);
        else words = snprintf(word, sizeof word, *s == '\n' ? "\\n" : *s == '\t' ? "\\t" : "\\x%02x", *s);
        if (length + (size_t)words >= size) break;
        memcpy(out + length, word, (size_t)words);
        length += (size_t)words;
        s += n ? n : 1;
    }
    out[length] = 0;
    return length;
}
