/*
 * factors.h -- a value as a product of factors, for the rules of backward passes.
 *
 * A gradient is full of products like dy gain x r, in any order and by any brackets. factors_of() opens the
 * brackets: through multiplications, divisions and scales, through casts to f32, which lose nothing, and
 * through reshapes that join or split leading dimensions, where the columns stay. factors_apply() makes a
 * value of factors again.
 */
#ifndef FACTORS_H
#define FACTORS_H

#include "walk.h"

enum factor_kind {
    FACTOR_FULL,   /* it has the dims of the product, its leading ones perhaps joined or split */
    FACTOR_ROW,    /* one value for each row: the same, with 1 column */
    FACTOR_COLUMN, /* one for each column: [N], or a weight [1,N] */
    FACTOR_NUMBER, /* one for all */
    FACTOR_SCALE   /* a constant: what node `value` multiplies its operand by */
};
struct factor {
    int value; /* of `in` */
    enum factor_kind kind;
    bool divides;
};
enum { MOST_FACTORS = 24 };
struct factors {
    int n;
    struct factor f[MOST_FACTORS];
};

/* The factors of v, in the order in which they are read; false if they are too many. */
bool factors_of(const graph *g, int v, struct factors *fs);
/* Without the one at `index`; its place among the others; the first full one that multiplies, or -1. */
void factors_drop(struct factors *fs, int index);
int factors_first_full(const struct factors *fs);
/* The factors of the kind, or of all others. */
struct factors factors_select(const struct factors *fs, enum factor_kind kind, bool others);
/* The same factors, in whatever order? */
bool factors_equal(const struct factors *a, const struct factors *b);
/* Takes each factor of b out of a; false if a does not have them all. */
bool factors_take(struct factors *a, const struct factors *b);
/* Are they one value for each row, or for all, none of which can be 0? Constants are not among them. */
bool factors_are_rows(const graph *g, const struct factors *fs);

/* In w->out: y times the factors, y having the leading dims of `like`; -1 with `out` poisoned. */
int factors_apply(struct walk *w, int y, const struct factors *fs, const struct type *like);
/* In w->out: y in f32 where `like` is, or y itself. */
int factors_widen(struct walk *w, int y, const struct type *like);
/* In w->out: their product, of the dims and dtype of `like`. One of them is full and multiplies. */
int factors_multiply(struct walk *w, struct factors fs, const struct type *like);

/* Do two types have the same columns, and as many rows by other leading dimensions? */
bool rows_regroup(const struct type *a, const struct type *b);
/* v without the reshapes that join or split its leading dimensions. */
int rows_origin(const graph *g, int v);
/* In w->out: y with the leading dims of `like` and its own columns. */
int rows_as(struct walk *w, int y, const struct type *like);
/* Is node n a sum; of each row? */
bool is_sum(const struct node *n);
bool is_row_sum(const struct node *n);

/* ---- Who reads what, without what nothing depends on ---- */

struct live {
    struct arena arena;
    struct uses uses;
    bool *is;  /* does an output or a state depend on it? */
    void *own; /* of the rule */
};
/* As rewrite_walk, with a struct live as ctx. `matches` says of a live node whether the rule changes it;
 * where none is, the graph comes back as it is. `prepare`, or NULL, fills in `own`; false: no memory. */
graph *live_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                 struct rewrite_log *log, bool (*matches)(const struct walk *w, int v),
                 bool (*prepare)(const graph *in, struct live *live, const struct rewrite_options *opt));
int live_uses(const struct live *live, int v); /* live nodes that read v, each operand */
/* Is it computed element by element, or by a product, so that its kernel may do more with it? */
bool is_computed(const graph *g, int v);

#endif
