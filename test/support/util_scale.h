/*
 * util_scale.h -- how much of a large set of cases a run takes.
 *
 * `make test` takes a part of a share that covers what matters, and a few more, both drawn by its seed, so
 * that many runs see everything; `make test-full` ($CODA_FULL=1) takes all. $CODA_SHARE=7, which `make test`
 * sets, is how many times smaller it takes the parts that a test asks for; of one in 2 or 3, behind the first
 * few, one in 3 or 5. A GPU takes them as the tests say.
 * Sanitizers, under which a case takes five to twenty times as long, take a smaller share: they look at
 * code, not at numbers.
 */
#ifndef UTIL_SCALE_H
#define UTIL_SCALE_H

#include <stdbool.h>
#include <stdint.h>

/* Is this a build with one of these sanitizers? */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

/* Is it one of a program, of which this file may be no part? */
bool scale_is_sanitized(void);

bool scale_is_full(void);

/* Does this run take smaller shares of costly sets than the tests say? `make test` does, by $CODA_SHARE. */
bool scale_is_thinned(void);

/* How many random cases to draw of n: ten times as many in a full run, a twelfth in `make test`, else a
 * quarter, and a smaller share under sanitizers; at least one. */
int scaled(int n);

/* Does this run take case i of a set that costs much? All in a full run; else one in n, or fewer, by seed. */
bool scale_takes_one_in(int n, int i);
static inline bool scale_takes_half(int i) { return scale_takes_one_in(2, i); }

/* Does this run take case i of a set? All in a full run; else a part of those that cover, and some others. */
bool scale_takes(int i, bool covers);

/* Is there a place for kernels that compiled well ($CODA_CACHE_DIR)? Then the library's cache, whose key is
 * the text, the primitives and the compiler, keeps a kernel from being proved twice. */
bool scale_kernels_are_kept(void);

/* ---- Covering arrays: few cases of a product of factors, in which pairs of levels still meet ---- */

enum { COVER_FACTORS = 3 };

struct cover_case {
    uint64_t level[COVER_FACTORS]; /* equal for two cases if they have the same of this factor */
};

/* Marks the cases that bring a pair of levels which no case before them had. Bit f of `pairs` says that
 * levels of factor f and of the next factor count as a pair; after the last factor comes the first. */
void cover(const struct cover_case *cases, int n, unsigned pairs, bool *covers);

#endif
