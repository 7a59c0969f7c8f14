/* explain.h -- the log of what was rewritten, and the words for it. */
#ifndef EXPLAIN_H
#define EXPLAIN_H

#include "graph.h"

struct rewrite_event { /* a rule that fired */
    const char *rule;  /* the pass, as passes.def names it: "carry_row_scale" */
    const char *text;  /* one line, names values */
    bool exact;
};
struct rewrite_log {
    struct arena arena;
    struct rewrite_event *event;
    int events, capacity;
};
void rewrite_note(struct rewrite_log *log, const char *rule, bool exact, const char *format, ...)
    PRINTF(4, 5);
void rewrite_log_free(struct rewrite_log *log);

/* Words for the derivation. */
struct words {
    char s[160];
};
/* Names a value as the caller's graph prints it: %x of a leaf or output, else %7 of its origin. */
struct words rewrite_name(const graph *g, int v);
/* Names a weight by the leaf that it is made of. */
struct words rewrite_weight(const graph *g, int v);
/* Names a factor of the rows by what it means: "1/rms(%x)", "mean(%x)", or its name; -1: a scale. */
struct words rewrite_meaning(const graph *g, int v);

#endif
