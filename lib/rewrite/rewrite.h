/* rewrite.h -- algebra on graphs: the ordered passes, and the copies that memory wants. */
#ifndef REWRITE_H
#define REWRITE_H

#include "explain.h"
#include "target.h"

/* When a pass runs: see passes.def. */
enum pass_when { PASS_LOWER, PASS_FUSE, PASS_DEFER, PASS_FOLD, PASS_ALWAYS };

struct rewrite_options {
    bool fuse; /* false: only lower what has no kernel of its own */
    coda_fold fold;
    bool fast_f16;               /* CODA_FAST_FP16 */
    bool no_deferral;            /* CODA_NO_DEFERRAL */
    const struct target *target; /* NULL: that of the first row */
    /* If not NULL it gets each graph that a pass has changed, and the log so far. */
    void (*stage)(void *context, const char *pass, const graph *g, const struct rewrite_log *log);
    void *context;
};
/* rewrite.c -- the passes of passes.def, each graph -> new graph, verified after each one. The rewritten
 * graph (the caller frees it), or NULL with the message set. Symbols stay, and no rule takes a value of
 * theirs for granted: where one depends on it, "needs numbers" is the failure. */
graph *rewrite(const graph *g, const struct rewrite_options *opt, struct rewrite_log *log);

/* The rules of backward passes alone, on a forward and a backward pass in one graph that are to be cut apart:
 * they look at both. Norms are lowered. Values of `joint` become those that take their places. NULL with the
 * message set. */
graph *rewrite_joint(const graph *joint, int *value, int n);

/* insert_copies.c -- the same graph with a copy (a cast to the same dtype) wherever an operand, an output or
 * a part of a concat cannot be read or written in place. `fuse`: products read the parts of their weights
 * where they lie. NULL with the message set. */
graph *insert_copies(const graph *g, coda_fold fold, bool fuse);

#endif
