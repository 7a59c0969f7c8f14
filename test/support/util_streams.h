/* util_streams.h -- graphs of streams, each with rows and weights of its own, whose products have equal sizes
 * but for their rows: what one launch computes. Shared by the tests that plan them, compile them and run
 * them. */
#ifndef UTIL_STREAMS_H
#define UTIL_STREAMS_H

#include "graph.h"

enum { MOST_STREAMS = 5 };

struct streams_case {
    const char *name, *dtype;
    int batch, rows[MOST_STREAMS], n, k; /* streams up to the first without rows */
    void (*stream)(const struct streams_case *c, int i,
                   struct text *t); /* prints one, up to a value %y0, %y1 .. */
    bool concat;                    /* the results are one tensor, one behind the other */
    int joined;                     /* launches of several programs, on 4 SMs and on 132 */
};
extern const struct streams_case streams_cases[];
extern const int streams_case_count;

graph *streams_graph(const struct streams_case *c); /* NULL with the message set */

#endif
