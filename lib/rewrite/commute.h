/* commute.h -- factors and shifts on a matmul's operand, for the passes that move them. */
#ifndef COMMUTE_H
#define COMMUTE_H

#include "walk.h"

/*
 * A layer is a node that changes its base by one value for each row or for each column. A matmul's
 * operand x may be a stack of them, and each kind moves past the matmul, or into its weight, by a
 * law of its own. Type of the node and of its base are the same, but for a cast's dtype.
 */
enum layer_kind {
    LAYER_NONE,
    LAYER_ROW_SCALE, /* mul or div by [..,1], scale */
    LAYER_COL_SCALE, /* mul by [K] */
    LAYER_ROW_SHIFT, /* add or sub of [..,1] */
    LAYER_COL_SHIFT, /* add or sub of [K] */
    LAYER_CAST       /* between floats; it moves below the others */
};
struct layer {
    enum layer_kind kind;
    int base, factor; /* factor: -1 if it has none */
};
struct layer layer_of(const graph *g, int v);
/* The same layer on another base, in w->out. */
int layer_apply(struct walk *w, int v, int base);

/* Facts about the values of `in`, which the caller frees; NULL with the message set. Is v made of constants
 * alone, which are not packed; does it depend on value `on`? */
struct fact;
struct fact *carry_facts(const graph *in, coda_fold fold);
bool carry_is_constant(const struct fact *f, int v);
int carry_uses(const struct fact *f, int v); /* operands and outputs that are v */
bool carry_depends(const graph *g, struct fact *f, int v, int on);
/* Does a product's epilogue write `base`, so that it may write that times a gain beside it? And is it less to
 * move `rows` values of each row past the readers of v, a stack of layers over it? */
bool carry_pays_beside(struct walk *w, const struct fact *f, int v, int base, int rows);

/* As rewrite_walk, with the facts about `in` that the questions below need. */
graph *carry_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                  struct rewrite_log *log);
/* All readers of v are matmuls that take it as x, perhaps through further layers, or residuals of products,
 * which compute it again; and moving the stack under v saves a pass over memory. */
bool carry_pays(struct walk *w, int v);
/* In w->out, in place of the old matmul v: the product of x and a weight whose factor or shift comes after
 * it, in f32 where v is f16; and what became of it in v's own dtype. */
int carry_product(struct walk *w, int v, int x, int weight, bool kn);
int carry_result(struct walk *w, int v, int y);
int carry_as(struct walk *w, int v, coda_dtype t); /* in w->out; v itself if it has that dtype */
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
