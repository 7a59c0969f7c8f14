/*
 * power.h -- what a card draws and how fast it ticks while it works: NVML, opened at run time.
 */
#ifndef POWER_H
#define POWER_H

#include <stdbool.h>

struct machine;

struct draw {     /* means over a span of time; NAN where the driver does not say */
    double watts; /* from the card's energy counter */
    double mhz;   /* of the SMs, sampled */
};

/* Finds the card of `m`; false without NVML, and then draws are NAN. */
bool power_open(const struct machine *m);
/* Starts a span, which ends with the next power_end(). One at a time. */
void power_begin(void);
struct draw power_end(void);

#endif
