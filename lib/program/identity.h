/* identity.h -- equal programs, so that what was found out of one serves the others. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "program.h"

/* All that a program is, but for what its tensors are called, where they are, and how it is scheduled. Of the
 * plan's buffers it has whether they hold anything; NULL: each does. */
struct identity {
    void *data;
    size_t size, capacity;
    uint64_t hash;
    int *buffer, buffers; /* in the order in which the program names them */
};
bool identity_of(struct identity *out, struct arena *a, const struct buffer *buffer, const struct program *q);
/* The same with the fields that a schedule has decided. */
bool identity_decided(struct identity *out, struct arena *a, const struct buffer *buffer,
                      const struct program *q);
/* Adds what else must be equal: bytes without padding or pointers into one program. */
bool identity_add(struct identity *id, struct arena *a, const void *data, size_t size);

bool identity_equal(const struct identity *a, const struct identity *b);

/* Programs by their identity. */
struct memo {
    struct memo_slot *slot;
    int count, capacity;
};
/* The program that was the first of its kind to come here: q itself, if it is. NULL if memory runs out.
 * *first are the buffers that it named. */
struct program *memo_first(struct memo *m, struct arena *a, const struct identity *id, struct program *q,
                           const int **first);
/* The same of a program by itself. */
struct program *memo_program(struct memo *m, struct arena *a, const struct buffer *buffer, struct program *q);

#endif
