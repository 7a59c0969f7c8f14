/*
 * times.h -- where a program's time goes from its start to its first token, part by part.
 */
#ifndef TIMES_H
#define TIMES_H

#include <stdio.h>

enum { MOST_TIMES = 16 };

struct times {
    const char *name[MOST_TIMES];
    double seconds[MOST_TIMES];
    int count;
    double last;    /* when the last part ended */
    double loading; /* of a thread that loaded weights beside these parts */
};

double times_now(void); /* seconds of a steady clock */
void times_begin(struct times *t);
/* What has passed since the last call counts as `name`, a string that stays. */
void times_end(struct times *t, const char *name);

/* The first part, "start": what the processor did for the process until this call, the first of main. */
void times_start(struct times *t);
/* All of `from` counts in `t`, too; `t` goes on where `from` ended. */
void times_add(struct times *t, const struct times *from);
/* Two lines that begin with `what`: how long it took part by part, and where the process's kernels came from,
 * and what that took of those parts. */
void times_print(FILE *to, const char *what, const struct times *t);

#endif
