/*
 * kept.h -- which memory of this process holds what coda_prepare left there: weights that are folded in
 * place, and prepared memory. Asked before each run, so that no weight is folded twice, and none is read
 * that holds something else than the plan was made for.
 */
#ifndef KEPT_H
#define KEPT_H

#include "bind.h"

/* May a run of a plan read this memory? What the run writes over is forgotten. It neither allocates nor
 * locks. */
coda_status kept_check(const struct arguments *b, uint64_t prepared_id);

/* Around the programs of coda_prepare. begin: refuses what is folded already, and claims the rest. end: it
 * now holds what the plan says, or, after a failure, nobody knows what; touched: something may have been
 * written. */
struct keeping; /* of one coda_prepare, freed by end */
coda_status kept_begin(struct keeping **out, const struct arguments *b, uint64_t prepared_id, bool gpu);
void kept_end(struct keeping *k, coda_status status, bool touched);

/* coda_prepare_adopt, coda_prepare_forget */
coda_status kept_adopt(const struct arguments *b, uint64_t prepared_id, bool gpu);
void kept_forget(const void *first, size_t bytes);

#endif
