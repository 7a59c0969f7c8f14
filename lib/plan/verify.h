/* verify.h -- what plan_verify.c asks of one program after the other. */
#ifndef VERIFY_H
#define VERIFY_H

#include "plan.h"

/* verify_in_place.c: what a program writes over it has read, element by element. */
coda_status verify_in_place(const struct plan *p, int index);

#endif
