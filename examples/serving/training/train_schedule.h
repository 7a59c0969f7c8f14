/*
 * train_schedule.h -- the numbers of each step.
 */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "train_engine.h"

struct schedule {
    double rate; /* at its highest */
    int64_t warmup, steps;
};

/* Of step 1, 2, ...: rising in a line until `warmup`, then falling as a cosine to a tenth at the last step
 * (Loshchilov & Hutter, arXiv 1608.03983). */
struct rates schedule_rates(const struct schedule *s, int64_t step);

#endif
