/*
 * deadline.h -- until when work on a text or a template may last, and whether anybody still waits for it.
 *
 * Whoever asks for the work makes a deadline and passes it down; what works asks every few microseconds. NULL
 * is no deadline. One thread may set *cancelled while another works.
 */
#ifndef DEADLINE_H
#define DEADLINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Why there is no result, for those who answer differently. All are negative. */
enum refused {
    REFUSED_INPUT = -1,     /* what came is wrong, or wants more than its own limits allow */
    REFUSED_LATE = -2,      /* the deadline passed */
    REFUSED_CANCELLED = -3, /* nobody waits for the result any more */
    REFUSED_LONG = -4,      /* a text of more tokens than there may be */
    REFUSED_MEMORY = -5     /* there is no memory */
};

struct deadline {
    int64_t at;                   /* nanoseconds of CLOCK_MONOTONIC; INT64_MAX: never */
    const atomic_bool *cancelled; /* NULL: nothing cancels */
};

static inline int64_t deadline_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* So many seconds from now; 0, or more than 10^9: no limit of time. */
static inline struct deadline deadline_in(double seconds, const atomic_bool *cancelled)
{
    bool limited = seconds > 0 && seconds <= 1e9;
    return (struct deadline){limited ? deadline_now() + (int64_t)(seconds * 1e9) : INT64_MAX, cancelled};
}

/* 0, REFUSED_LATE or REFUSED_CANCELLED. Costs some 30 ns. */
static inline int deadline_passed(const struct deadline *d)
{
    if (!d) return 0;
    if (d->cancelled && atomic_load_explicit(d->cancelled, memory_order_relaxed)) return REFUSED_CANCELLED;
    return d->at != INT64_MAX && deadline_now() >= d->at ? REFUSED_LATE : 0;
}

#endif
