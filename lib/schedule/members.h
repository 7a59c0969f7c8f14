/* members.h -- between together.c, which makes one launch of several programs, and members.c, which knows
 * whose texts are equal. */
#ifndef MEMBERS_H
#define MEMBERS_H

#include "plan.h"

/* A copy of the program as it is in such a launch: samples that are one dimension, whose extent the text
 * would say, are batches. NULL: no memory. */
const struct program *member_of(struct arena *a, const struct program *q);
bool member_may_be(const struct program *q, const struct plan_options *opt);
/* At first sight; and by all that their texts say. */
bool members_are_alike(const struct program *a, const struct program *b);
bool members_have_one_text(const struct program *a, const struct program *b, struct arena *scratch);

#endif
