/* tuning.h -- what was measured of a GEMM program, and what follows. tune.c measures it. */
#ifndef TUNING_H
#define TUNING_H

#include "plan.h"

enum { MOST_FIGURES = 56 };

struct figure {
    char way[WAY_SIZE]; /* "tile sm90 128x192x64 ...", "whole", "apart", "bare"                    */
    double us;
};

struct figures {
    struct figure figure[MOST_FIGURES];
    int n;
    char why[128]; /* there are none; or ""                                                        */
};

/* Which programs of a plan touch each value. */
struct touch {
    int *at, *program;
};
bool touch_find(struct touch *out, struct arena *a, const struct plan *p); /* false: no memory     */
/* The program and its neighbours without names: what is equal has equal figures. `touch` may be NULL. */
void figures_key(const struct plan *p, const struct touch *touch, int index, struct text *t);
void figures_add(struct figures *f, double us, const char *format, ...) PRINTF(3, 4);
int figures_tiles(const struct figures *f); /* that were measured                               */
/* The figure of a way; 0 if there is none. */
double figures_us(const struct figures *f, const char *way);
void figures_write(const struct figures *f, struct text *t);
/* False, and *f without figures, if the text is not one that figures_write makes. */
bool figures_read(struct figures *f, const char *text);
/* Fills in d->tile and d->apart. */
void figures_decide(const struct figures *f, struct decision *d);
/* For people: a line or two of the plan's text. */
void figures_print(const struct figures *f, struct text *t);

#endif
