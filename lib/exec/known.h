/*
 * known.h -- the kernels that plans of one family have loaded, by their texts: one more plan of theirs takes
 * them without the cache or the driver. They stay loaded until the table is freed, so that a launch, or a
 * captured graph, of a plan that is gone may still use them. And texts by what they depend on, so that one
 * more plan does not print them. Many threads may ask.
 */
#ifndef KNOWN_H
#define KNOWN_H

#include "executable.h"
#include "identity.h"

struct known;

struct known *known_new(void); /* NULL: out of memory, with the message set */
void known_free(struct known *t);
/* Around fork(). */
void known_hold(struct known *t);
void known_let_go(struct known *t);

/* The words of programs with some key; equal texts have one. */
struct known_words {
    struct wording words;
    int entry; /* of the table of kernels; -1: it was not looked for, or is not there */
};
/* What a program with some key has: its words, and, where others with that key may take it over, a complete
 * schedule. */
struct known_program {
    struct known_words *words;
    const struct schedule *schedule; /* NULL: each has its own */
};
/* What a program with this key (emit.h) has, if it was learnt; it stays. NULL: it has to be printed. */
const struct known_program *known_seek(struct known *t, const struct identity *key);
/* The same, once they are printed; NULL: they are not kept. `schedule` is copied; or NULL. */
const struct known_program *known_learn(struct known *t, const struct identity *key,
                                        const struct wording *words, const struct schedule *schedule,
                                        int steps);

/* Gives p, whose kernels are emitted, those that are known; returns the number of the others. */
int known_take(struct known *t, struct coda_plan *p);
/* Adds those of p, which are loaded. */
coda_status known_add(struct known *t, const struct coda_plan *p);
int known_count(struct known *t);

#endif
