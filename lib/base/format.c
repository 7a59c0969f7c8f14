/*
 * format.c -- numbers as text and back, alike in every locale: the only file of lib that asks the C library
 * to print or to read a float (`make locale` is the law).
 *
 * A kernel's text is some hundred short lines, and a run of a new shape waits for it: strings, integers and
 * characters are printed here. What else a format asks for, floats above all, is left to the C library, and
 * so is then the whole line, in the locale "C". That locale is this thread's alone for the length of a call:
 * neither the program's setlocale() nor another thread notices. It costs no allocation, as glibc and musl
 * keep one and return it.
 */
#include "base.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sink {
    char *out;
    size_t size, length; /* length: of all, also of what has no room */
};

static void put(struct sink *s, const char *from, size_t n)
{
    if (s->length < s->size) memcpy(s->out + s->length, from, MIN(n, s->size - s->length));
    s->length += n;
}

static void put_number(struct sink *s, uint64_t n, bool negative)
{
    char digits[24], *at = digits + sizeof digits;
    do *--at = (char)('0' + n % 10);
    while (n /= 10);
    if (negative) *--at = '-';
    put(s, at, (size_t)(digits + sizeof digits - at));
}

static void put_signed(struct sink *s, int64_t n)
{
    put_number(s, n < 0 ? -(uint64_t)n : (uint64_t)n, n < 0);
}

/* "." and digits ahead of a string's s: the most of it that is printed. */
static const char *read_most(const char *at, size_t *most)
{
    *most = SIZE_MAX;
    if (*at != '.') return at;
    for (at++, *most = 0; *at >= '0' && *at <= '9'; at++) *most = 10 * *most + (size_t)(*at - '0');
    return at;
}

/* All of it, or false at what it does not know. */
static bool print_plainly(struct sink *s, const char *at, va_list args)
{
    for (size_t most;; at++) {
        const char *from = at;
        while (*at && *at != '%') at++;
        put(s, from, (size_t)(at - from));
        if (!*at) return true;
        at = read_most(at + 1, &most);
        if (*at == 's') {
            const char *string = va_arg(args, const char *);
            put(s, string ? string : "(null)", string ? strnlen(string, most) : 6);
        } else if (most != SIZE_MAX) return false;
        else if (*at == 'd') put_signed(s, va_arg(args, int));
        else if (*at == 'u') put_number(s, va_arg(args, unsigned), false);
        else if (*at == 'c') put(s, &(char){(char)va_arg(args, int)}, 1);
        else if (*at == '%') put(s, "%", 1);
        else if (!strncmp(at, "lld", 3)) put_signed(s, va_arg(args, long long)), at += 2;
        else if (!strncmp(at, "ld", 2)) put_signed(s, va_arg(args, long)), at += 1;
        else return false;
    }
}

static locale_t c_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

static int print_as_c(char *out, size_t size, const char *format, va_list args)
{
    locale_t c = c_locale();
    if (!c) return -1;
    locale_t before = uselocale(c);
    int n = vsnprintf(out, size, format, args);
    uselocale(before);
    freelocale(c);
    return n;
}

int format_print(char *out, size_t size, const char *format, va_list args)
{
    struct sink s = {.out = out, .size = size ? size - 1 : 0};
    va_list again;
    va_copy(again, args);
    int n = print_plainly(&s, format, args) ? (int)s.length : -1;
    if (n >= 0 && size) out[MIN(s.length, s.size)] = 0;
    if (n < 0) n = print_as_c(out, size, format, again);
    va_end(again);
    return n;
}

int format_line(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = format_print(out, size, format, args);
    va_end(args);
    return n;
}

float format_read_float(const char *s, char **end)
{
    locale_t c = c_locale();
    if (!c) return *end = (char *)(uintptr_t)s, 0;
    float x = strtof_l(s, end, c);
    freelocale(c);
    return x;
}

double format_read_double(const char *s, char **end)
{
    locale_t c = c_locale();
    if (!c) return *end = (char *)(uintptr_t)s, 0;
    double x = strtod_l(s, end, c);
    freelocale(c);
    return x;
}
