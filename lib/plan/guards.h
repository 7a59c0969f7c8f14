/*
 * guards.h -- what planning asks of numbers that may be a symbol's: of extents, numbers of rows, strides.
 *
 * Which programs a graph gets depends on the answers. They are noted, so that whoever plans several shapes of
 * one graph knows for which others each answer would be the same, and so the plan but for its numbers
 * (shapes/forms.c). A question of a number that no symbol can be in, of columns or heads, need not be noted.
 */
#ifndef GUARDS_H
#define GUARDS_H

#include <stdbool.h>
#include <stdint.h>

enum guard_kind { GUARD_EQUAL, GUARD_REACHES }; /* a == b, a >= b */

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

/* Of these two numbers, without a note. */
bool guard_answer(enum guard_kind kind, int64_t a, int64_t b);
void guards_free(struct guards *g);

/* Noted in `to`, unless that is NULL. */
bool extents_equal(struct guards *to, int64_t a, int64_t b);
bool extent_is_one(struct guards *to, int64_t extent);
bool extent_reaches(struct guards *to, int64_t extent, int64_t least); /* extent >= least */
/* So many extents, one by one, up to the first that differ. */
bool extents_all_equal(struct guards *to, const int64_t *a, const int64_t *b, int n);

#endif
