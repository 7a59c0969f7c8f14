/* stream.h -- what the main loops whose B streams past a few rows of A have in common. */
#ifndef STREAM_H
#define STREAM_H

#include "mainloop.h"

enum { STREAM_WINDOW = 48 << 10 }; /* bytes of B on their way to an SM */

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
/* A ring of slots of `slot` bytes; `sums` floats, of the warps; the values of all rows and of a block's
 * columns; 32 bytes of empty structures and of what aligns the others. */
struct footprint stream_footprint(const struct program *p, const struct tile *t, int slot, int sums);
/* Bytes of shared memory for one of two blocks on an SM: the next program's can begin beside this one's. */
int stream_half_room(const struct search *s);
/* Blocks, columns and the like of a tile whose bk and mainloop are set, for so many splits; share_quads as
 * above. */
void stream_share(const struct search *s, struct tile *t, int share_quads);
/* Cuts K into the fewest pieces of at most `most` elements and makes them as equal as multiples of `step` can
 * be: the length of all but the last. */
int stream_piece(int64_t k, int most, int step);
/* Slots of `slot` bytes that hold the `bytes` which may be on their way at one time; 0: all of the ring. */
int stream_window(const struct tile *t, int bytes, int slot);
/* Adds a tile that has work and a ring. */
void stream_add(struct search *s, const struct tile *t, double cost);
/* Cycles in which memory gives all of B; more if few blocks ask for it, or one has a large share. */
double stream_clocks(const struct program *p, const struct tile *t, const struct target *target);
/* Has the target what GEMV and SKINNY are made of, and is the program of a form that they take? */
bool stream_supports(const struct target *target, const struct program *p);
/* Does GEMV take the program: one row of A, or two short ones, that fit the registers? */
bool gemv_suits(const struct program *p);
/* Does no program of a run write B, so that a kernel may load it before the one ahead has ended? */
bool stream_is_early(const struct program *p);
void stream_complete(struct schedule *s, const struct program *p, const struct target *target);
void stream_print_config(const struct program *p, const struct schedule *s, struct text *t);

#endif
