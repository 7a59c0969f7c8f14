/* tune_record.h -- figures of a GEMM program as text, and the key they are kept under. */
#ifndef TUNE_RECORD_H
#define TUNE_RECORD_H

#include "figures.h"

/* Which programs of a plan touch each value. */
struct touch {
    int *at, *program;
};
bool touch_find(struct touch *out, struct arena *a, const struct plan *p); /* false: no memory */
/* The program and its neighbours without names: what is equal has equal figures. `touch` may be NULL. */
void figures_key(const struct plan *p, const struct touch *touch, int index, struct text *t);
void figures_add(struct figures *f, double us, const char *format, ...) PRINTF(3, 4);
void figures_write(const struct figures *f, struct text *t);
/* False, and *f without figures, if the text is not one that figures_write makes. */
bool figures_read(struct figures *f, const char *text);

#endif
