/*
 * known.h -- the kernels that plans of one family have loaded, by their texts: one more plan of theirs takes
 * them without the cache or the driver. They stay loaded until the table is freed, so that a launch, or a
 * captured graph, of a plan that is gone may still use them. And texts by what they depend on, so that one
 * more plan does not print them. Many threads may ask.
 */
#ifndef KNOWN_H
#define KNOWN_H

#include "executable.h"

struct known;

struct known *known_new(void); /* NULL: out of memory, with the message set */
void known_free(struct known *t);
/* Around fork(). */
void known_hold(struct known *t);
void known_let_go(struct known *t);

/* The text of a program with this key (emit.h), if it was learnt; it stays. NULL: it has to be printed. */
const char *known_text(struct known *t, const struct identity *key);
void known_learn(struct known *t, const struct identity *key, const char *text);

/* Gives p, whose kernels are emitted, those that are known; returns the number of the others. */
int known_take(struct known *t, struct coda_plan *p);
/* Adds those of p, which are loaded. */
coda_status known_add(struct known *t, const struct coda_plan *p);
int known_count(struct known *t);

#endif
