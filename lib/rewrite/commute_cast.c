/*
 * commute_cast.c -- casts before a stack of factors and shifts instead of after it.
 *
 *     cast(x r)  ==>  cast(x) r       and so for x g, and where no bits are lost for x - m, x + b
 *
 * where the rest of the stack can then move past the matmul that reads it, so that x's producer
 * writes the cast copy. In: verified graph. Out: no such cast. Inexact: rounding moves.
 */
#include "commute.h"

static int carry(struct walk *w, int v)
{
    struct layer l = layer_of(w->in, v);
    if (l.kind != LAYER_CAST || !carry_pays(w, v)) return RULE_COPY;
    struct layer below = layer_of(w->in, l.base);
    if (below.kind == LAYER_NONE || below.kind == LAYER_CAST) return RULE_COPY;
    rewrite_note(w->log, "carry_cast", false, "%s: the cast goes before %s", rewrite_name(w->in, v).s,
                 rewrite_meaning(w->in, below.factor).s);
    return layer_apply(w, l.base, layer_apply(w, v, w->map[below.base]));
}

graph *carry_cast(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return carry_walk(in, carry, opt, log);
}
