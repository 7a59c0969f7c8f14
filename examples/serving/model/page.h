/*
 * page.h -- what a plan needs, on one printed page.
 */
#ifndef PAGE_H
#define PAGE_H

#include <stdio.h>

#include "coda.h"
#include "weights.h"

/* Launches, memory by kind, each argument by its name, with its bytes (those of all layers in one line),
 * and each kernel with its registers, its shared memory and the time that it took to compile. Weights that
 * are packed are said by their format and its bits, if `weights` has them; it may be NULL. */
void page_print(FILE *to, const char *title, const coda_plan *p, const struct weights *weights);

#endif
