/*
 * walk.h -- what the passes share. A pass is a rule applied to each node of a graph in order, which rebuilds
 * the graph beside the old one.
 */
#ifndef WALK_H
#define WALK_H

#include "rewrite.h"

/* A pass returns a new graph that computes the same, or the same graph where it finds nothing, or NULL with
 * the message set; if it changed something it has noted it. */
typedef graph *rewrite_pass(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log);
#define PASS(name, when) rewrite_pass name;
#include "passes.def"
#undef PASS

struct walk {
    const graph *in;
    graph *out;
    int *map; /* in's values -> out's; filled for leaves and up to the node at hand */
    const struct rewrite_options *opt;
    struct rewrite_log *log;
    void *ctx; /* of the pass */
};
enum { RULE_FAILED = -1, RULE_COPY = -2, RULE_DROP = -3 };
/* Replaces node n (no leaf): returns the value in `out` that takes its place, RULE_COPY if it does
 * not match, RULE_DROP if nothing needs it. */
typedef int rewrite_rule(struct walk *w, int n);
/* Applies a rule to all nodes; `in` itself if it matches none. Leaves come first in the result. New nodes
 * inherit n's origin, and what replaces a value must have its type. The first node that matches is shown to
 * the rule twice: first w->out is `in` up to there, and what is appended is refused with -1. Without a rule
 * the result is a copy. */
graph *rewrite_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                    struct rewrite_log *log, void *ctx);
/* What a pass returns that finds nothing to change, so that nothing is copied: the graph itself. */
graph *rewrite_nothing(const graph *in);
/* Poisons `out`: whether the rule applies, or what it makes, is decided by values of symbols. RULE_FAILED. */
int rewrite_needs_numbers(struct walk *w, const char *what);
/* The float 1 / extent, of 1 where it is 0. An extent with symbols has none: that needs numbers. */
float rewrite_part(struct walk *w, int64_t extent);

#endif
