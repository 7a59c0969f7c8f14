/* util_mistake.h -- a message of the builder without the place that lib/graph/mistake.c adds: for tables of
 * what is wrong alone. */
#ifndef UTIL_MISTAKE_H
#define UTIL_MISTAKE_H

/* "line 3: matmul %h in mlp: x is ...; where x = ..." as "line 3: matmul: x is ...". Of this thread, until
 * the next call. */
const char *mistake_plain(const char *line);

#endif
