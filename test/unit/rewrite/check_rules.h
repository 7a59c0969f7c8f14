/* check_rules.h -- which rules fire on a graph, and what operations they leave. */
#ifndef CHECK_RULES_H
#define CHECK_RULES_H

#include "rewrite.h"

#define FOLD(kind)                                                                                           \
    (struct rewrite_options) { .fuse = true, .fold = CODA_FOLD_##kind }
#define FAST(kind)                                                                                           \
    (struct rewrite_options) { .fuse = true, .fold = CODA_FOLD_##kind, .fast_f16 = true }
#define PLAIN                                                                                                \
    (struct rewrite_options) { .fuse = false }

/* Rewrites the text; the operations left must be `want`, and `rule` must have fired (or, with a `-`
 * before it, not). NULL: not looked at. The caller frees the graph. */
graph *rules_check(const char *text, struct rewrite_options opt, const char *rule, const char *want);
void rules_expect(const char *text, struct rewrite_options opt, const char *rule, const char *want);
/* The text of the first node with this operation, without its type. */
void rules_expect_line(const graph *g, const char *op, const char *want);
int rules_fired(const struct rewrite_log *log, const char *rule);

#endif
