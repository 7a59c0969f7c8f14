/*
 * power.h -- what a card draws and how fast it ticks while it works: NVML, opened at run time.
 */
#ifndef POWER_H
#define POWER_H

#include <stdbool.h>
#include <stddef.h>

struct machine;

struct draw {         /* over a span of time; NAN where the driver does not say */
    double watts;     /* the mean, by the card's energy counter */
    double mhz;       /* of the SMs: the mean, ... */
    double least_mhz; /* ... and the least that was sampled */
    unsigned limits;  /* NVML's reasons why the clock was not higher, all that were seen */
};

/* Finds the card of `m`; false without NVML, and then draws are NAN. */
bool power_open(const struct machine *m);
/* Starts a span, which ends with the next power_end(). One at a time. */
void power_begin(void);
struct draw power_end(void);
/* The limits as words: "power, hardware". */
void power_limits(unsigned limits, char *to, size_t size);

#endif
