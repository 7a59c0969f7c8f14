/* emit_attention_wgmma.c -- attention_sm90.cuh: many queries, by TMA and wgmma. */
#include "emit_attention.h"

void emit_attention_wgmma(struct attention_text *e)
{
    const struct tile *tile = &e->s->tile;
    emit_attention_maps(e);
    emit_attention_head(e, "attention/attention_sm90.cuh");
    text_printf(e->t, "    typedef %s T;\n", emit_dtype(e->a->use[ATTENTION_Q].dtype));
    emit_attention_semantics(e, false);
    emit_constant(e->t, "i32", "box", attention_box(e->a, tile->bn));
    emit_constant(e->t, "i32", "bn", tile->bn);
    emit_constant(e->t, "i32", "stages", tile->stages);
    emit_constant(e->t, "i32", "groups", tile->bm / 64);
    emit_constant(e->t, "i32", "query_slots", attention_query_slots(e->a, e->s->cluster, tile->bm));
    emit_constant(e->t, "bool", "held", attention_holds_queries(e->a, e->s->cluster, tile->bm));
    emit_constant(e->t, "bool", "shares", e->a->shares);
    emit_constant(e->t, "i32", "cluster", MAX(e->s->cluster, 1));
    text_append(e->t, "};\n");
    emit_attention_entry(e, "AttentionSm90", !attention_is_packed(e->a));
}
