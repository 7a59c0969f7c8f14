/* emit_attention_split.c -- attention_split_sm90.cuh: few queries, the keys split over a cluster. */
#include "emit_attention.h"

/* Do rows of keys fill several chunks of 128 bytes? Then one copy can bring them all, chunk by chunk. */
static bool has_whole_chunks(const struct attention_spec *a)
{
    int64_t chunk = dtype_elements(a->use[ATTENTION_K].dtype, 128);
    return a->head_dim % chunk == 0 && a->head_dim > chunk;
}

/* Keys of a block that a warp asks for: all, where one warp does for a walk; else its own. */
static int asked_keys(const struct attention_text *e)
{
    enum { WARPS = 8 };
    return e->s->persistent ? e->s->tile.bn : e->s->tile.bn / WARPS;
}

/* A map of keys or values with the chunks of a row as a dimension behind the rows. */
static void emit_chunks_map(struct attention_text *e, int use)
{
    emit_attention_keys_map(e, use);
    struct map_spec *m = &e->k->map[e->k->maps - 1];
    m->box[2] = attention_box(e->a, asked_keys(e));
    if (!has_whole_chunks(e->a)) return;
    m->rank = 5;
    m->dim[4] = m->dim[3], m->stride[4] = m->stride[3], m->box[4] = 1;
    m->dim[3] = e->a->head_dim / m->box[0], m->stride[3] = m->box[0], m->box[3] = (int)m->dim[3];
    m->dim[0] = m->box[0];
}

/* Does it ask which rows the run appends? */
static bool reads_slots(const struct attention_text *e) { return e->s->reads_early && e->a->appends; }

static void emit_config(struct attention_text *e)
{
    const struct attention_spec *a = e->a;
    const struct tile *tile = &e->s->tile;
    struct text *t = e->t;
    emit_attention_head(e, "attention/attention_split_sm90.cuh");
    text_printf(t, "    typedef %s T;\n", emit_dtype(a->use[ATTENTION_Q].dtype));
    emit_attention_semantics(e, a->tq == 1 && !attention_is_packed(a));
    emit_constant(t, "i32", "rows", tile->bm);
    if (attention_is_packed(a)) emit_constant(t, "i32", "bm", tile->bm * a->kv_heads / a->heads);
    emit_constant(t, "i32", "box", attention_box(a, asked_keys(e)));
    emit_constant(t, "i32", "bn", tile->bn);
    emit_constant(t, "i32", "stages", tile->stages);
    emit_constant(t, "i32", "cluster", e->s->cluster);
    emit_constant(t, "bool", "walks", e->s->persistent);
    emit_constant(t, "bool", "alone", !e->s->persistent);
    emit_constant(t, "bool", "early", e->s->reads_early);
    emit_constant(t, "bool", "appends", reads_slots(e));
    emit_constant(t, "bool", "narrow", attention_is_narrow(a));
    emit_constant(t, "bool", "whole_rows", has_whole_chunks(a));
    emit_constant(t, "bool", "bf16_queries", a->use[ATTENTION_Q].dtype == CODA_BF16);
    text_append(t, "};\n");
}

void emit_attention_split(struct attention_text *e)
{
    const struct launch_spec *launch = &e->k->launch;
    struct text *t = e->t;
    emit_chunks_map(e, ATTENTION_K);
    emit_chunks_map(e, ATTENTION_V);
    emit_attention_pointer(e, ATTENTION_Q);
    emit_attention_pointers(e);
    int slots = reads_slots(e) ? emit_use(e->k, &e->a->written) : -1;
    emit_config(e);
    text_printf(t, "typedef AttentionSplit<Config> Kernel;\nstatic_assert(Kernel::shared_bytes == %d);\n\n",
                launch->shared_bytes);
    text_printf(t, "struct Args {\n    TensorMap k, v;\n    void *pointer[%d];\n", e->k->pointers);
    emit_attention_strides(e, "of_q", &e->a->use[ATTENTION_Q]);
    emit_attention_strides(e, "of_o", &e->a->use[ATTENTION_O]);
    if (slots >= 0) emit_long(e->k, e->a->written.table_rows);
    if (slots >= 0) text_append(t, "    i64 appended;\n");
    emit_attention_extents(e, false);
    text_append(t, "};\n");
    emit_body(t);
    text_printf(t, "    Kernel::run(block, a.k, a.v, static_cast<const %s *>(a.pointer[%d]), a.of_q,\n",
                emit_dtype(e->a->use[ATTENTION_Q].dtype), e->pointer[ATTENTION_Q]);
    text_append(t, "                ");
    emit_attention_result(e);
    text_append(t, ", a.of_o,\n                ");
    emit_attention_beside(e);
    if (slots >= 0)
        text_printf(t, ",\n                {static_cast<const %s *>(a.pointer[%d]), (i32)a.appended}",
                    emit_dtype(e->a->written.dtype), slots);
    text_append(t, ");\n}\n");
    emit_entry(e->k, &(struct entry){.cluster = launch->cluster, .residents = "1"}, t);
}
