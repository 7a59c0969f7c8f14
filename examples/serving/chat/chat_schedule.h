/*
 * chat_schedule.h -- which rows a step has: one for each sequence that writes, then prompts in chunks, oldest
 * first, up to a budget. Keys and values lie in pages of a free list; where none is left, the youngest
 * sequence gives its pages back and waits to be computed again. States of layers that carry one lie by
 * place: a sequence has the lowest one that is free as long as it runs, and begins there anew.
 */
#ifndef CHAT_SCHEDULE_H
#define CHAT_SCHEDULE_H

#include "chat_runner.h"
#include "chat_request.h"

struct schedule {
    int rows, sequences, pages, queue; /* at most: of a step, of a step, in all, waiting */
    struct request **running;          /* oldest first */
    struct request **waiting;          /* likewise; room for `queue` and all that run */
    int running_count, waiting_count;
    int32_t *free_pages;
    int free_count;
    struct request **placed; /* the running ones by place; NULL where there is none */
    bool by_place;           /* a sequence's number in a step is its place: states lie there */
    int64_t arrivals;
    int64_t preemptions;
};

bool schedule_new(struct schedule *s, const struct runner_options *opt, int queue);
void schedule_free(struct schedule *s);

/* false: as many wait already as may. */
bool schedule_add(struct schedule *s, struct request *r);
/* Takes a request out, from wherever it is, and its pages back. */
void schedule_remove(struct schedule *s, struct request *r);

/* Decides each running request's rows; gives those of all. It is 0 only if there are no requests. */
int schedule_step(struct schedule *s, double now);
/* Writes them down for the model, and gives the number of sequences: the running ones with rows, in order; or
 * by place, where those between have no rows. */
int schedule_fill(const struct schedule *s, struct runner_inputs *in);

#endif
