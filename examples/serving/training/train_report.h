/*
 * train_report.h -- what a run says of itself: lines, a table of losses, a picture of them.
 */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include "train_save.h"

struct pace {
    double seconds;
    int64_t tokens;
    double flops; /* that these took */
    double peak;  /* flops a second that the device has; 0: not known */
    double scale; /* of the loss, in fp16; 0: it has none */
};
/* A line for the last step that the history has; `skipped`: it has changed nothing. */
void report_step(const struct history *h, int64_t steps, const struct pace *pace, bool skipped);

/* flops a second of products of 16 bits, by the name of a GPU; 0: not known. */
double report_peak(const char *device);

/* losses.tsv and loss.svg. */
bool report_write(const char *folder, const struct history *h, struct fault *f);

#endif
