/* gather.h -- the kernels that the shapes of a family want, all of them, in a plan that has nothing else. */
#ifndef GATHER_H
#define GATHER_H

#include "family.h"
#include "shapes.h"

/* As texts; `base`: with those for any number of rows. */
coda_status gather_texts(coda_plan **out, struct family *f, const coda_plan *whole, bool base);
/* Compiles them; if they are to be loaded, but those that the family has. Of a plan that is only planned they
 * stay texts. */
coda_status gather_compile(struct family *f, coda_plan *gathered, const struct gathering *how);

#endif
