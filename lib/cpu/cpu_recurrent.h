/* cpu_recurrent.h -- the rows of each sequence, for operations that carry a state along it. */
#ifndef CPU_RECURRENT_H
#define CPU_RECURRENT_H

#include "cpu.h"

struct cpu_rows {
    int64_t first, end;
};

/* The rows of sequence b, behind those of b - 1. With starts, -1 has the rows ahead of all sequences, and the
 * one behind the last those behind them; without, each has `time` rows, and these have none. */
static inline struct cpu_rows cpu_sequence(const struct cpu *c, const struct tensor_use *starts,
                                           struct cpu_rows before, int64_t b, int64_t sequences, int64_t time)
{
    int64_t end = before.end;
    if (starts->buffer < 0) end += b >= 0 && b < sequences ? time : 0;
    else if (b == sequences) end = time;
    else {
        double start = dtype_load(starts->dtype, cpu_buffer(c, starts->buffer),
                                  starts->offset + (b + 1) * starts->stride[0]);
        end = MAX(end, start >= (double)time ? time : start > 0 ? (int64_t)start : 0);
    }
    return (struct cpu_rows){before.end, end};
}

#endif
