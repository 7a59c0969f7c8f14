/* report.h -- results as JSON: see report.c. */
#ifndef REPORT_H
#define REPORT_H

#include <stddef.h>
#include <stdio.h>

struct report {
    FILE *json;
    int cases;
};
/* perf/results/CARD/NAME.json, where CARD is "h100", "h200", ..., or "cpu" without a GPU; makes the
 * folder. */
void report_path(char *to, size_t size, const char *name);
/* Opens that file, or `path`, which may be a NAME, too, and describes the machine in it. */
void report_begin(struct report *r, const char *name, const char *path);
/* The next case's line, up to its name; the caller adds fields and calls report_end_case(). */
void report_case(struct report *r, const char *name);
void report_end_case(struct report *r);
int report_end(struct report *r);

#endif
