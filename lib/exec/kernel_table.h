/*
 * kernel_table.h -- the kernels that plans of one family have loaded, by their texts: one more of these plans
 * takes them without the cache or the driver. They stay loaded until the table is freed, so that a launch, or
 * a captured graph, of a plan that is gone may still use them. The table also finds texts by what they depend
 * on, so that one more plan does not print them. Many threads may ask.
 */
#ifndef KERNEL_TABLE_H
#define KERNEL_TABLE_H

#include "executable.h"
#include "identity.h"

struct kernel_table;

struct kernel_table *kernel_table_new(void); /* NULL: out of memory, with the message set */
void kernel_table_free(struct kernel_table *t);
/* Around fork(). */
void kernel_table_hold(struct kernel_table *t);
void kernel_table_let_go(struct kernel_table *t);

/* The words of programs with some key; equal texts have one. */
struct table_words {
    struct wording words;
    int entry; /* of the table of kernels; -1: it was not looked for, or is not there */
};
/* What a program with some key has: its words, and, where others with that key may take it over, a complete
 * schedule. */
struct table_program {
    struct table_words *words;
    const struct schedule *schedule; /* NULL: each has its own */
};
/* What a program with this key (emit.h) has, if it was learnt; it stays. NULL: it has to be printed. */
const struct table_program *kernel_table_find(struct kernel_table *t, const struct identity *key);
/* The same, once they are printed; NULL: they are not kept. `schedule` is copied; or NULL. */
const struct table_program *kernel_table_keep(struct kernel_table *t, const struct identity *key,
                                              const struct wording *words, const struct schedule *schedule,
                                              int steps);

/* Gives p, whose kernels are emitted, those that the table has; returns the number of the others. */
int kernel_table_take(struct kernel_table *t, struct coda_plan *p);
/* Adds those of p, which are loaded. */
coda_status kernel_table_add(struct kernel_table *t, const struct coda_plan *p);
int kernel_table_count(struct kernel_table *t);

#endif
