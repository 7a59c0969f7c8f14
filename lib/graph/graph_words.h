/* graph_words.h -- what is known by a name, for people: operations, maps, reductions, what maps may call. */
#ifndef GRAPH_WORDS_H
#define GRAPH_WORDS_H

#include "base.h"

/* Strings are static, and none is NULL. Calls of a map or a reduction are those that take its name. */
struct word {
    coda_word_kind kind;
    const char *name, *operands, *attributes, *result, *meaning, *calls, *gradient;
};

/* The operations in the order of ops.def, then maps, reductions and functions, each by name. */
int words_count(void);
struct word words_at(int index);
/* The index of a name, or -1. */
int words_find(const char *name);
/* Appends a graph that has it, in the text form; nothing for a function. */
void words_example(int index, struct text *out);

#endif
