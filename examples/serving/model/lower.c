/*
 * lower.c -- each character's lower case, and of a capital sigma that ends a word the other small one.
 */
#include <string.h>

#include "lower.h"
#include "unicode.h"

enum { SIGMA = 0x3a3, LAST_SIGMA = 0x3c2 };

static bool is_letter(uint32_t c) { return unicode_word(c) && !unicode_digit(c) && c != '_'; }

static bool goes_on(const char *s, size_t n)
{
    uint32_t c;
    return n && unicode_get(s, n, &c) && is_letter(c);
}

char *lower_text(const char *line)
{
    struct text out = {0};
    size_t n = strlen(line);
    bool inside = false; /* of a word */
    for (size_t at = 0; at < n;) {
        uint32_t c;
        size_t used = (size_t)unicode_get(line + at, n - at, &c);
        if (!used) text_add(&out, line + at, 1);
        else if (c == SIGMA && inside && !goes_on(line + at + used, n - at - used))
            text_char(&out, LAST_SIGMA);
        else unicode_lower(&out, c);
        inside = used && is_letter(c);
        at += used ? used : 1;
    }
    text_add(&out, "", 1);
    if (!out.failed) return out.data;
    text_free(&out);
    return NULL;
}
