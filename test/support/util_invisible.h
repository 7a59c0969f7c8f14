/* util_invisible.h -- graphs of which some rows must not notice what other rows hold. */
#ifndef UTIL_INVISIBLE_H
#define UTIL_INVISIBLE_H

#include "util_run.h"

/* Every third row of an argument (the second, the fifth, ...) is poisoned: of its first dimension. */
struct invisible_case {
    const char *name, *text; /* $t is a float's dtype */
    int poisoned;            /* the argument */
    int ids;                 /* an argument of integers, -1: none; those of poisoned rows are `bad` */
    int most;                /* the others are below this */
    int bad[2];
    bool table; /* `poisoned` is a table: its first and last row are, and no id names them */
    bool whole; /* no row of an output depends on a poisoned one, else those with other numbers */
};
extern const struct invisible_case invisible_cases[];
extern const int invisible_case_count;

graph *invisible_graph(const struct invisible_case *c, coda_dtype t);
/* Arguments on the host, with numbers, or with NaN and infinities, where nobody may look. */
void **invisible_args(const struct invisible_case *c, const graph *g, bool poison, bool evaluate);
/* Elements of the outputs that must be equal and are not, or are no numbers. `evaluate`: dense doubles. */
int64_t invisible_difference(const struct invisible_case *c, const graph *g, void **clean, void **poisoned,
                             bool evaluate);

#endif
