/* util_print.c -- see util_print.h. */
#include "util_print.h"

#include <stdlib.h>

char *printed_graph(const coda_graph *g)
{
    int64_t n = coda_graph_print(g, NULL, 0);
    char *s = n < 0 ? NULL : malloc((size_t)n + 1);
    if (s && coda_graph_print(g, s, (size_t)n + 1) != n) abort();
    return s;
}

char *printed_plan(const coda_plan *p, coda_text what)
{
    int64_t n = coda_plan_print(p, what, NULL, 0);
    char *s = n < 0 ? NULL : malloc((size_t)n + 1);
    if (s && coda_plan_print(p, what, s, (size_t)n + 1) != n) abort();
    return s;
}
