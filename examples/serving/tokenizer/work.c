/*
 * work.c -- what an encoding may cost, whatever the text and the files are.
 *
 * Everything that goes through a text counts steps of a few nanoseconds: characters, tries, look-ups, merges,
 * and each step that a regular expression makes, forwards or back. There are so many for each byte of the
 * text, for all of it together, so that the time is linear in the text. Real tokenizers need some 30.
 */
#include <limits.h>

#include "tokenizer_parts.h"

enum {
    STEPS_A_BYTE = 256,
    BYTES_A_BYTE = 64, /* that a text may grow to, in any stage */
    BYTES_LEAST = 1 << 16,
    ASK_EVERY = 20000 /* steps between two questions to the deadline */
};

struct work work_begin(const struct deadline *deadline, size_t bytes)
{
    return (struct work){.deadline = deadline,
                         .left = STEPS_LEAST + (int64_t)bytes * STEPS_A_BYTE,
                         .most = BYTES_LEAST + bytes * BYTES_A_BYTE};
}

bool work_fail(struct work *w, int why)
{
    if (!w->why) w->why = why;
    return false;
}

bool work_do(struct work *w, size_t steps)
{
    if (w->why) return false;
    if (steps > (size_t)w->left) return work_fail(w, REFUSED_INPUT);
    w->left -= (int64_t)steps;
    w->unasked += steps;
    if (w->unasked < ASK_EVERY) return true;
    w->unasked = 0;
    int why = deadline_passed(w->deadline);
    return !why || work_fail(w, why);
}
