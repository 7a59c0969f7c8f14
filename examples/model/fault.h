/*
 * fault.h -- why something failed: one line, whatever a file had to say in it.
 */
#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>

struct fault {
    char text[320];
};

/* Keeps the line, with '?' for control characters. Always false, so that `return fault_set(...)` fails. */
bool fault_set(struct fault *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
