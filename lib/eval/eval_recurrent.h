/* eval_recurrent.h -- the rows of each sequence, for operations that carry a state along it. */
#ifndef EVAL_RECURRENT_H
#define EVAL_RECURRENT_H

#include "eval.h"

#include <math.h>

struct eval_rows {
    int64_t first, end;
};

/* The rows of sequence b, behind those of b - 1. With starts, -1 has the rows ahead of all sequences, and the
 * one behind the last those behind them; without, each has `time` rows, and these have none. */
static inline struct eval_rows eval_sequence(struct eval_rows before, int64_t b, int64_t sequences,
                                             const double *starts, int64_t time)
{
    int64_t end = before.end;
    if (!starts) end += b >= 0 && b < sequences ? time : 0;
    else if (b == sequences) end = time;
    else end = MAX(end, (int64_t)fmax(0, fmin(starts[b + 1], (double)time)));
    return (struct eval_rows){before.end, end};
}

#endif
