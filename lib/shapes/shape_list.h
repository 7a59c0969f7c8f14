/*
 * shape_list.h -- the shapes whose plans are kept: by their dims, and by their last use. All calls are made
 * under the lock of who owns the list, but for shape_list_free.
 */
#ifndef SHAPE_LIST_H
#define SHAPE_LIST_H

#include "executable.h"

enum { SHAPE_CHAINS = 256 };

struct shape {
    struct shape *chain, *newer, *older; /* the chain goes on among those that are gone */
    coda_plan *plan;                     /* NULL until its maker is done */
    bool makes;                          /* one of its users is at work on the plan */
    bool compiles;                       /* and that may take seconds */
    bool best;                           /* `plan` is: no other would be faster */
    bool asked;                          /* the background was asked for the best one */
    bool replaced;                       /* another one is in its place: it goes with its last user */
    int users;
    int64_t dims[];
};

struct shape_list {
    int symbols; /* numbers in the dims of each */
    struct shape *chain[SHAPE_CHAINS], *newest, *oldest;
    struct shape *gone; /* to be freed without the lock */
    int kept;
};

struct shape *shape_find(struct shape_list *l, const int64_t *dims);      /* NULL: there is none */
struct shape *shape_new(const struct shape_list *l, const int64_t *dims); /* in no list; NULL: no memory */
struct shape *shape_add(struct shape_list *l, const int64_t *dims);       /* the newest; NULL: no memory */
void shape_use(struct shape_list *l, struct shape *e);                    /* becomes the newest */
/* Another one, in no list, takes its place; it goes when it has no users. */
void shape_replace(struct shape_list *l, struct shape *old, struct shape *by);
void shape_drop(struct shape_list *l, struct shape *e);
/* It is in no list any more, and is to be freed. */
void shape_bury(struct shape_list *l, struct shape *e);
/* Shapes that are to be freed, which the list forgets; and, without the lock, frees them: to unload a
 * kernel may take long. */
struct shape *shape_list_gone(struct shape_list *l);
void shape_list_free(struct shape *gone);

#endif
