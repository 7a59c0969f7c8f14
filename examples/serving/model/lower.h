/*
 * lower.h -- a text in lower case.
 */
#ifndef LOWER_H
#define LOWER_H

/* As Python's str.lower() has it, for free(); NULL: there is no memory. What is no UTF-8 stays as it is. */
char *lower_text(const char *line);

#endif
