/*
 * exchanges.h -- exchanges between ranks, for the passes that move them or do without them.
 *
 * Which leaves are equal on all ranks a graph does not say. So what moves past an exchange are values that it
 * exchanges itself, and numbers; never a gain or a bias.
 */
#ifndef EXCHANGES_H
#define EXCHANGES_H

#include "factors.h"

/* The dimension that one puts together, or of which it leaves a part; -1 of an all_reduce. */
int exchange_axis(const struct node *n);
int exchange_ranks(const graph *g, int v);
/* Are they the same exchange, of other values? */
bool exchange_alike(const graph *g, int a, int b);
/* Is v an exchange of this kind, whose result one operand reads, and no output? What comes behind it does not
 * read it. */
bool exchange_once(const struct walk *w, int v, enum op op);
int exchange_uses(const struct walk *w, int v);

/* In w->out: an exchange of value x, of the group of `like`, one of w->in, behind all that are there. */
int exchange_make(struct walk *w, enum op op, int axis, int x, int like);

/* live_walk of a graph that has exchanges of several ranks; others stay as they are. */
graph *exchange_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                     struct rewrite_log *log, bool (*matches)(const struct walk *w, int v));

#endif
