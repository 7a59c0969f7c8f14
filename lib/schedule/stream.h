/* stream.h -- what the main loops whose B streams past a few rows of A have in common. */
#ifndef STREAM_H
#define STREAM_H

#include "mainloop.h"

enum { STREAM_WINDOW = 48 << 10 }; /* bytes of B on their way to an SM */

/* Groups of four columns. A patch of 16 columns has four of them even where it lacks some of its columns. */
int64_t stream_quads(const struct program *p);
/* Columns of the largest share of a block: blocks share those of a batch, by so many quads at a time. A
 * cluster has whole segments, where statistics of these are folded. */
int stream_columns(const struct program *p, const struct tile *t, int share_quads);
/* Whole patches of what is paired, both operands K-major, and no statistics of segments? */
bool stream_takes(const struct program *p);
/* The same, but with such statistics, of whole segments? */
bool stream_takes_segments(const struct program *p);
bool stream_folds_segments(const struct program *p);
/* Are B's weights of 8 bits each, which copies of 16 bytes reach all of, and nothing else? */
bool stream_takes_bytes(const struct program *p);
/* Shared memory for them (segments.cuh), where a block has so many columns. */
int stream_segment_floats(const struct program *p, const struct tile *t, int columns);
void stream_print_segments(const struct program *p, const struct schedule *s, struct text *t);
/* Bytes of shared memory for one of two blocks on an SM: the next program's can begin beside this one's. */
int stream_half_room(const struct search *s);
/* Blocks, columns and the like of a tile whose bk and mainloop are set, for so many splits; share_quads as
 * above. */
void stream_share(const struct search *s, struct tile *t, int share_quads);
/* Cycles in which memory gives all of B; more if few blocks ask for it, or one has a large share. */
double stream_clocks(const struct program *p, const struct tile *t, const struct target *target);
/* Does no program of a run write B, so that a kernel may load it before the one ahead has ended? */
bool stream_is_early(const struct program *p);
void stream_print_config(const struct program *p, const struct schedule *s, struct text *t);

#endif
