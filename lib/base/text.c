/* text.c -- growable text with one sticky failure. */
#include "base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_LINE = 128 };

static bool reserve(struct text *t, size_t more)
{
    if (t->failed || t->silent) return false;
    size_t need = t->length + more + 1;
    if (need <= t->capacity) return true;
    size_t capacity = MAX(need, MAX((size_t)256, 2 * t->capacity));
    char *str = realloc(t->str, capacity);
    if (!str) {
        t->failed = true;
        return false;
    }
    t->str = str;
    t->capacity = capacity;
    return true;
}

void text_vprintf(struct text *t, const char *format, va_list args)
{
    va_list again;
    if (!reserve(t, USUAL_LINE)) return;
    size_t room = t->capacity - t->length;
    va_copy(again, args);
    int n = format_print(t->str + t->length, room, format, args);
    if (n < 0) t->failed = true;
    if (n >= 0 && (size_t)n >= room) { /* once more, with the room that it needs */
        t->str[t->length] = 0;
        if (reserve(t, (size_t)n)) format_print(t->str + t->length, (size_t)n + 1, format, again);
        else n = 0;
    }
    va_end(again);
    t->length += (size_t)MAX(n, 0);
}

void text_printf(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_vprintf(t, format, args);
    va_end(args);
}

void text_append(struct text *t, const char *s)
{
    size_t n = t->silent ? 0 : strlen(s);
    if (!reserve(t, n)) return;
    memcpy(t->str + t->length, s, n + 1);
    t->length += n;
}

const char *text_str(const struct text *t) { return t->str ? t->str : ""; }

void text_free(struct text *t)
{
    free(t->str);
    *t = (struct text){0};
}

int64_t text_emit(const struct text *t, char *buf, size_t size)
{
    if (t->failed) return fail(CODA_E_MEMORY, "out of memory after %zu bytes of text", t->length);
    if (size) {
        size_t n = MIN(t->length, size - 1);
        memcpy(buf, text_str(t), n);
        buf[n] = 0;
    }
    return (int64_t)t->length;
}
