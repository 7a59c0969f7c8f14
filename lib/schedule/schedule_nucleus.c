/* schedule_nucleus.c -- a block for each row, with more threads for longer ones. */
#include "schedule.h"

enum { FEW_THREADS = 256, FEW_MOST = 4096 /* columns */, MANY_THREADS = 1024, MOST_BLOCKS = 1 << 30 };

void schedule_nucleus(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct nucleus_spec *of = q->spec;
    (void)opt;
    s->threads = of->columns <= FEW_MOST ? FEW_THREADS : MANY_THREADS;
    s->grid = MIN(of->rows, MOST_BLOCKS);
}
