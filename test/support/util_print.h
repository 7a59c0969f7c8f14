/* util_print.h -- the texts of graphs and plans as strings, by the calls that a user has. */
#ifndef UTIL_PRINT_H
#define UTIL_PRINT_H

#include "coda.h"

/* The caller frees it. NULL: coda_error() says why. What is written is as long as was announced. */
char *printed_graph(const coda_graph *g);
char *printed_plan(const coda_plan *p, coda_text what);

#endif
