/*
 * fault.h -- why something failed: one line, whatever a file had to say in it.
 */
#ifndef FAULT_H
#define FAULT_H

#include "plain.h"

struct fault {
    char text[320];
};

/* \x1b for what a terminal would obey. Always false. */
static inline bool fault_clean(struct fault *f)
{
    char line[sizeof f->text];
    memcpy(line, f->text, sizeof line);
    plain_escape(f->text, sizeof f->text, line);
    return false;
}

/* Keeps the line, cleaned. Always false: `return fault_set(...)` fails. */
__attribute__((format(printf, 2, 3))) static inline bool fault_set(struct fault *f, const char *format, ...)
{
    char line[sizeof f->text] = ""; /* args may have f's text */
    va_list args;
    va_start(args, format);
    plain_vline(line, sizeof line, format, args);
    va_end(args);
    memcpy(f->text, line, sizeof line);
    return fault_clean(f);
}

#endif
