/*
 * speed.h -- what a step must read, and how fast a device can read at all.
 */
#ifndef SPEED_H
#define SPEED_H

#include "model.h"

/* Bytes that a step behind `length` tokens reads: all weights, but of a table of tokens that is not the head
 * as well, one row, which does not count; the keys and values that its layers see; and the states of layers
 * that carry one, which it also writes. */
double speed_bytes(const struct model *m, int length);

/* Bytes that the GPU moves in a second: reads and writes of a plain copy, the best of some. 0 if there is no
 * GPU, no memory, or no time that could be taken. */
double speed_copy(struct device *d);

#endif
