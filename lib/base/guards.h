/*
 * guards.h -- what rewriting and planning ask of numbers that a symbol may be in: of extents, numbers of
 * rows, strides, offsets.
 *
 * Which programs a graph gets depends on the answers. A thread notes those that it gets, where it is told to:
 * shapes of a graph with the same answers have the same plan but for its numbers (shapes/forms.c). Numbers
 * that no symbol can be in, of columns or heads, need not be asked for here, but may be: their answers are
 * the same for all shapes.
 */
#ifndef GUARDS_H
#define GUARDS_H

#include <stdbool.h>
#include <stdint.h>

enum guard_kind { GUARD_EQUAL, GUARD_REACHES, GUARD_MULTIPLE }; /* a == b, a >= b, a % b == 0 */

struct guard {
    enum guard_kind kind;
    bool answer;
    int64_t a, b;
};

struct guards {
    struct guard *note;
    int notes, capacity;
    bool failed; /* memory ran out: some are missing */
};

/* From now on this thread notes its answers in `to`, behind those that are there; NULL: nowhere. Returns
 * where it did before. */
struct guards *guards_note(struct guards *to);
/* How many notes there are, and back to so many: what is asked once more replaces what was asked before. */
int guards_noted(void);
void guards_take_back(int notes);
void guards_free(struct guards *g);

/* From now on, while this thread's questions are those of `of`, two extents of 2 or more that happen to be
 * equal are not, if they are not there: what is planned then is what is planned of them. Notes must be taken.
 * NULL: no longer. Once a question or an answer differs in anything else, it no longer does. */
void guards_follow(const struct guards *of);

/* The same questions, with the same answers, of whatever numbers. A hash of these. */
bool guards_same(const struct guards *a, const struct guards *b);
uint64_t guards_hash(const struct guards *g);
/* The answer of two numbers, without a note. */
bool guard_answer(enum guard_kind kind, int64_t a, int64_t b);

bool extents_equal(int64_t a, int64_t b);
bool extent_is_one(int64_t extent);
bool extent_reaches(int64_t extent, int64_t least);                /* extent >= least */
bool extent_is_multiple(int64_t extent, int64_t of);               /* of 0 none is but 0 */
bool extents_all_equal(const int64_t *a, const int64_t *b, int n); /* up to the first that differ */
/* The larger one. */
int64_t extent_max(int64_t a, int64_t b);

#endif
