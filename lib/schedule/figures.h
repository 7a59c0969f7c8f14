/* figures.h -- what was measured of a GEMM program, and what follows. tune_record.c keeps it. */
#ifndef FIGURES_H
#define FIGURES_H

#include "plan.h"

enum { MOST_FIGURES = 56, CANDIDATE_SIZE = 96 };

struct figure {
    char candidate[CANDIDATE_SIZE]; /* "tile sm90 128x192x64 ...", "whole", "apart", "bare" */
    double us;
};

struct figures {
    struct figure figure[MOST_FIGURES];
    int n;
    char why[128]; /* there are none; or "" */
};

bool figure_is_tile(const struct figure *f);
int figures_tiles(const struct figures *f); /* that were measured */
/* The figure of a candidate; 0 if there is none. */
double figures_us(const struct figures *f, const char *candidate);
/* Writes the words of the fastest tile; returns true where cuBLASLt and the epilogue apart are faster. */
bool figures_decide(const struct figures *f, const char **tile);
/* For people: a line or two of the plan's text. */
void figures_print(const struct figures *f, struct text *t);

#endif
