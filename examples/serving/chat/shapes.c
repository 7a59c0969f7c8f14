/*
 * shapes.c -- the shapes of chat_shapes.h, by coda_plan_buckets.
 */
#include "chat_shapes.h"

enum {
    MOST_WRITERS = 64, /* sequences of a step for which all that write have a shape */
    GPU_PADDING = 10,  /* per cent of a step's time that rounding up T, or B, may cost */
    CPU_PADDING = 50,
};

enum { T, B }; /* the graph's symbols */

/* Values of a symbol, up to `most`, to which others are rounded up: for little time, but no more of them than
 * there is room for. 0: it failed. */
static int buckets_of(const coda_plan *plan, int symbol, int percent, int64_t most, int64_t *shapes)
{
    int n = 0, below = 0;
    for (;; percent *= 2) {
        n = coda_plan_buckets(plan, symbol, percent, shapes, SHAPES_MOST);
        if (n < 0) return 0;
        if (n <= SHAPES_MOST || shapes[SHAPES_MOST - 1] >= most) break;
    }
    while (shapes[below] < most) below++;
    shapes[below] = most;
    return below + 1;
}

/* Of the shapes of rows those up to `most`, and it; of too many every second one, or third. */
static int writers_of(const struct shapes *s, int64_t most, int64_t *shapes)
{
    int below = 0, n = 0;
    while (below < s->row_count && s->rows[below] < most) below++;
    int step = (below + CAPTURES_MOST - 2) / (CAPTURES_MOST - 1);
    for (int i = below ? (below - 1) % step : 0; i < below; i += step) shapes[n++] = s->rows[i];
    shapes[n++] = most;
    return n;
}

bool shapes_choose(struct shapes *s, const coda_plan *plan, const struct runner_options *o, struct fault *f)
{
    int writers = o->sequences < MOST_WRITERS ? o->sequences : MOST_WRITERS;
    int percent = o->gpu ? GPU_PADDING : CPU_PADDING;
    if (writers > o->rows) writers = o->rows;
    s->row_count = buckets_of(plan, T, percent, o->rows, s->rows);
    s->sequence_count = buckets_of(plan, B, percent, o->sequences, s->sequences);
    s->writer_count = writers_of(s, writers, s->writers);
    return (s->row_count && s->sequence_count) || fault_set(f, "%s", coda_error());
}

int shapes_list(const struct shapes *s, int64_t *dims)
{
    int n = 0;
    for (int i = 0; i < s->writer_count; i++, n++) dims[2 * n] = dims[2 * n + 1] = s->writers[i];
    for (int r = 0; r < s->row_count; r++)
        for (int b = 0; b < s->sequence_count; b++, n++)
            dims[2 * n] = s->rows[r], dims[2 * n + 1] = s->sequences[b];
    return n;
}

static int64_t round_up(const int64_t *shapes, int count, int n)
{
    int i = 0;
    while (i < count - 1 && shapes[i] < n) i++;
    return shapes[i];
}

void shapes_round(const struct shapes *s, int rows, int sequences, int64_t dims[2])
{
    bool write = rows <= sequences && sequences <= s->writers[s->writer_count - 1];
    dims[0] = round_up(s->rows, s->row_count, rows);
    dims[1] = round_up(s->sequences, s->sequence_count, sequences);
    if (write) dims[0] = dims[1] = round_up(s->writers, s->writer_count, sequences);
}
