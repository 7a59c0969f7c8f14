/*
 * rewrite.h -- what the passes share. A pass is a rule applied to each node of a graph in order,
 * which rebuilds the graph beside the old one.
 */
#ifndef REWRITE_H
#define REWRITE_H

#include "graph.h"

typedef graph *rewrite_pass(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log);

/* The passes, each in the file of its name, in the order in which they run. All return a new graph
 * that computes the same, or NULL with the message set; a pass that changed something has noted it. */
rewrite_pass lower_norm, lower_softmax, lower_loss;
rewrite_pass tidy, cse, merge_rope;
rewrite_pass carry_col_shift, carry_col_scale, carry_row_shift, carry_row_scale, carry_cast;
rewrite_pass narrow;
rewrite_pass dead;

/* ---- A walk over a graph ---- */

struct walk {
    const graph *in;
    graph *out;
    int *map;           /* in's values -> out's; filled for leaves and up to the node at hand      */
    const struct rewrite_options *opt;
    struct rewrite_log *log;
    void *ctx;          /* of the pass                                                             */
};
enum { RULE_FAILED = -1, RULE_COPY = -2, RULE_DROP = -3 };
/* Replaces node n (no leaf): returns the value in `out` that takes its place, RULE_COPY if it does
 * not match, RULE_DROP if nothing needs it. */
typedef int rewrite_rule(struct walk *w, int n);
/* Applies a rule to all nodes. Leaves come first in the result. New nodes inherit n's origin, and
 * what replaces a value must have its type. */
graph *rewrite_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                    struct rewrite_log *log, void *ctx);

/* ---- Words for the derivation ---- */

struct words {
    char s[160];
};
/* Names a value as the caller's graph prints it: %x of a leaf or output, else %7 of its origin. */
struct words rewrite_name(const graph *g, int v);
/* Names a weight by the leaf that it is made of. */
struct words rewrite_weight(const graph *g, int v);
/* Names a factor of the rows by what it means: "1/rms(%x)", "mean(%x)", or its name; -1: a scale. */
struct words rewrite_meaning(const graph *g, int v);

/* ---- carry.c: factors and shifts on a matmul's operand ---- */

/*
 * A layer is a node that changes its base by one value for each row or for each column. A matmul's
 * operand x may be a stack of them, and each kind moves past the matmul, or into its weight, by a
 * law of its own. Type of the node and of its base are the same, but for a cast's dtype.
 */
enum layer_kind {
    LAYER_NONE,
    LAYER_ROW_SCALE, /* mul or div by [..,1], scale                                                */
    LAYER_COL_SCALE, /* mul by [K]                                                                 */
    LAYER_ROW_SHIFT, /* add or sub of [..,1]                                                       */
    LAYER_COL_SHIFT, /* add or sub of [K]                                                          */
    LAYER_CAST       /* between floats; it moves below the others                                  */
};
struct layer {
    enum layer_kind kind;
    int base, factor; /* factor: -1 if it has none                                                 */
};
struct layer layer_of(const graph *g, int v);
/* The same layer on another base, in w->out. */
int layer_apply(struct walk *w, int v, int base);

/* As rewrite_walk, with the facts about `in` that the questions below need. */
graph *carry_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                  struct rewrite_log *log);
/* All readers of v are matmuls that take it as x, perhaps through further layers, and moving the
 * stack under v saves a pass over memory. */
bool carry_pays(const struct walk *w, int v);
/* In w->out, in place of the old matmul v: the product of x and a weight whose factor or shift comes after
 * it, in f32 where v is f16; and what became of it in v's own dtype. */
int carry_product(struct walk *w, int v, int x, int weight, bool kn);
int carry_result(struct walk *w, int v, int y);
/* Layer v can disappear into weights: folding is on, and all that it meets is constant. */
bool carry_folds(const struct walk *w, int v);
/* In w->out: a vector over K (old value v) as it broadcasts against a weight: [K], or [K,1] for kn. */
int carry_vector(struct walk *w, int v, bool kn);
/* In w->out: a weight [..,K,N] as [..,N,K]. */
int carry_transpose(struct walk *w, int weight);
/* In w->out: the sums of a weight over K, as [N] or [..,1,N]. */
int carry_weight_sum(struct walk *w, int weight, bool kn);
/* In w->out: a weight [..,N,K] times a vector over K, each row brought to a mean square of 1, so that no
 * 16-bit range can be too small for it; and by what its product is to be multiplied, [N] or [..,1,N]. */
int carry_level(struct walk *w, int weight, int vector, int *factor);

#endif
