/* api_sequence.c -- calls of what knows that rows are tokens: rotary embedding and attention. */
#include "api.h"
#include "suggest.h"

#include <string.h>

CODA_API coda_value coda_rope(coda_graph *g, coda_value x, coda_value positions, const coda_rope_options *opt)
{
    coda_rope_options o;
    if (!BUILD_OPTIONS(g, "rope", coda_rope_options, &o, opt)) return CODA_NONE;
    if (o.style != CODA_ROPE_HALF && o.style != CODA_ROPE_INTERLEAVED) {
        fail(CODA_E_INVALID, "rope: style is %d; must be 0..1", (int)o.style);
        return build_refuse(g, NAMES("x", "positions"), OPERANDS(x, positions));
    }
    bool half = o.style == CODA_ROPE_HALF;
    struct node n = {.op = OP_ROPE,
                     .attr.rope = {o.base, o.head_dim, o.rotary, o.heads, half, o.inverse != 0, o.scale}};
    memcpy(n.attr.rope.section, o.sections, sizeof o.sections);
    n.attr.rope.interleave_sections = o.interleave_sections != 0;
    return build_node(g, "rope", n, OPERANDS(x, positions, o.frequencies));
}

/* The map of the scores, if options name one, and what they set of its parameters; false with the graph
 * poisoned. */
static bool read_score(graph *g, const coda_attention_options *o, struct node *n)
{
    if (o->score && !(n->prim = graph_find_prim(g, o->score)))
        return graph_poison(g, CODA_E_INVALID, "attention: no map is called `%.64s`%s", o->score,
                            suggest_operation(g, o->score, SUGGEST_MAPS).text),
               false;
    int params = n->prim ? n->prim->params : 0;
    for (int i = params; i < PRIM_MAX_PARAMS; i++) {
        if (o->score_params[i] == 0) continue;
        graph_poison(g, CODA_E_INVALID, "attention: score_params[%d] is %g; score is %.64s, of %d params", i,
                     (double)o->score_params[i], o->score ? o->score : "NULL", params);
        return false;
    }
    memcpy(n->attr.attention.score, o->score_params, sizeof o->score_params);
    return true;
}

CODA_API coda_value coda_attention(coda_graph *g, coda_value q, coda_value k, coda_value v,
                                   coda_value lengths, const coda_attention_options *opt)
{
    coda_attention_options o;
    if (!BUILD_OPTIONS(g, "attention", coda_attention_options, &o, opt)) return CODA_NONE;
    struct node n = {.op = OP_ATTENTION,
                     .attr.attention = {o.scale, o.heads, o.kv_heads, o.window, o.causal != 0, o.align,
                                        o.ahead, o.page, 0, o.layout, o.softcap}};
    if (!read_score(g, &o, &n)) return CODA_NONE;
    return build_node(g, "attention", n,
                      OPERANDS(q, k, v, lengths, o.ranges, o.slopes, o.sinks, o.table, o.k_scale, o.v_scale,
                               o.starts, o.bias));
}

/* The sums are another node of the same origin. */
CODA_API coda_value coda_attention_lse(coda_graph *g, coda_value q, coda_value k, coda_value v,
                                       coda_value lengths, const coda_attention_options *opt, coda_value *lse)
{
    if (lse) *lse = CODA_NONE;
    coda_value o = coda_attention(g, q, k, v, lengths, opt);
    if (!o.id) return o;
    if (!lse) return graph_poison(g, CODA_E_INVALID, "attention_lse: lse is NULL"), CODA_NONE;
    struct node n = g->node[o.id - 1];
    n.attr.attention.lse = 1;
    *lse = build_value(graph_append(g, &n));
    return lse->id ? o : CODA_NONE;
}
