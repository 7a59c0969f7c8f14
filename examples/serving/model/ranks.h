/*
 * ranks.h -- a program's ranks: threads that do the same with a model each, as cut.h shares one out. The
 * first is the caller's own thread; what one has failed at ends the others, too.
 */
#ifndef RANKS_H
#define RANKS_H

#include "options.h"
#include "text.h"

struct ranks;

/* What the first one tells the others, once it is ready. */
struct prompt {
    struct text *text; /* which nobody changes but the first; or NULL */
    const int32_t *ids;
    int count;
};

/* What each of the others does, with options of its own; false, and the fault, if it has failed. */
typedef bool ranks_work(const struct options *o, struct ranks *r, struct fault *f);

/* Begins them, as many as o->open.ranks says; o becomes the first's: o->open.group is its to free, behind
 * ranks_end. NULL, and the fault, if that cannot be. */
struct ranks *ranks_begin(struct options *o, ranks_work *work, struct fault *f);
void ranks_tell(struct ranks *r, const struct prompt *p);
/* Waits for it; false if the first has failed. */
bool ranks_hear(struct ranks *r, struct prompt *out, struct fault *f);
/* Waits for the others, who stop if the first was no `good`. Were all good? Else the fault of the rank that
 * was the first to fail. NULL gives `good`. */
bool ranks_end(struct ranks *r, bool good, struct fault *f);

#endif
