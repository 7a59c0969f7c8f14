/* suggest.h -- what a message adds to a word that is not known: how it is called here, or what is near. */
#ifndef SUGGEST_H
#define SUGGEST_H

#include "graph.h"

/* The end of a sentence about the word; "" if nothing comes to mind. */
struct suggestion {
    char text[256];
};

enum { SUGGEST_OPERATIONS = 1, SUGGEST_MAPS = 2, SUGGEST_REDUCTIONS = 4, SUGGEST_ALL = 7 };
struct suggestion suggest_operation(const graph *g, const char *word, unsigned which);
struct suggestion suggest_dtype(const char *word);
struct suggestion suggest_symbol(const struct names *symbols, const char *word);
struct suggestion suggest_line(const char *word);
/* A near one among values that have names. */
struct suggestion suggest_value(const struct names *names, const char *word);
/* A near one among attributes first to end - 1 of a node's operation. */
struct suggestion suggest_attribute(const struct node *n, const char *word, int first, int end);

#endif
