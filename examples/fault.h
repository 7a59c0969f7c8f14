/*
 * fault.h -- why something failed: one line, whatever a file had to say in it.
 */
#ifndef FAULT_H
#define FAULT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

struct fault {
    char text[320];
};

/* Puts '?' for control characters. Always false. */
static inline bool fault_clean(struct fault *f)
{
    for (char *c = f->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    return false;
}

/* Keeps the line. Always false, so that `return fault_set(...)` fails. */
__attribute__((format(printf, 2, 3))) static inline bool fault_set(struct fault *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    return fault_clean(f);
}

#endif
