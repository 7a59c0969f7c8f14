/*
 * reasons.h -- why programs are apart, noted where planning refuses to join them, and told as text.
 *
 * Refusals are noted only where someone asks for them: plan_options.reasons. What is refused on the way to
 * something else is forgotten; what stays refused is kept with the node and the group that did without it.
 */
#ifndef REASONS_H
#define REASONS_H

#include "base.h"

enum reason_kind {
    REASON_NONE,
#define APART(NAME, name, rank, sentence, help) REASON_##NAME,
#define SLOW(NAME, name, sentence, help) REASON_##NAME,
#include "reasons.def"
    REASON_KINDS
};

struct reason {
    enum reason_kind kind;
    int node, other; /* of the graph; -1: none */
    int64_t a, b;
};

struct grouper;
struct group;

struct refusal { /* of a node, by a group */
    const struct group *group;
    struct reason reason;
    const struct refusal *next; /* an older one of the same node */
};

struct reasons {
    struct arena *arena;
    const struct refusal **of; /* by node: the newest */
    struct reason last;        /* what the latest question was answered no for */
};

/* Says no, and why: false. gr->opt->reasons may be NULL. */
bool refuse_join(const struct grouper *gr, enum reason_kind kind, int other, int64_t a, int64_t b);
/* Keeps the latest reason as that for which q has not the node; a failure of memory stays in the arena. */
void refuse_keep(const struct grouper *gr, const struct group *q, int node);
/* Both. */
void refuse_note(const struct grouper *gr, const struct group *q, int node, enum reason_kind kind, int other,
                 int64_t a, int64_t b);
/* ---- reasons_find.c ---- */

/* Why the writer of a value and a reader of it are two; `read`: the value as the reader knows it. */
struct reason reason_find(struct grouper *gr, const struct group *writer, const struct group *reader,
                          int value, int read);
int reason_rank(enum reason_kind kind); /* of several the least one is told */

/* ---- As text: reasons_print.c ---- */

struct plan;
struct words_of { /* what a sentence may name */
    const struct plan *plan;
    int writer, reader; /* programs; -1: none */
    int value;          /* handed on; -1: none */
};
/* One line: "@0 -> @1  kind  cost  sentence; help". Cost, of a run, in bytes; -1: none is said. */
void reason_print(const struct reason *r, const struct words_of *of, int64_t bytes, struct text *t);

/* For each pair of programs of `plan` of which one reads what the other writes, and for products of the same
 * rows, a line. `gr` is what the plan's graph was cut by once more, with reasons, and `again` the plan of
 * that: its programs in their order. CODA_E_MEMORY comes without a message. */
coda_status reasons_print(struct grouper *gr, const struct plan *again, const struct plan *plan,
                          struct text *t);

#endif
