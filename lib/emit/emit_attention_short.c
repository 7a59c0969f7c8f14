/* emit_attention_short.c -- attention_short_sm90.cuh: few keys for each query. */
#include "emit_attention.h"

void emit_attention_short(struct attention_text *e)
{
    emit_attention_maps(e);
    emit_attention_head(e, "attention/attention_short_sm90.cuh");
    text_printf(e->t, "    typedef %s T;\n", emit_dtype(e->a->use[ATTENTION_Q].dtype));
    emit_attention_semantics(e, false);
    emit_constant(e->t, "i32", "bn", e->s->tile.bn);
    emit_constant(e->t, "i32", "slots", e->s->tile.stages);
    emit_constant(e->t, "bool", "early", e->s->reads_early);
    text_append(e->t, "};\n");
    emit_attention_entry(e, "AttentionShort", false);
}
