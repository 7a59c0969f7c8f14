/* emit_attention_grad_wgmma.c -- attention_grad_sm90.cuh: by TMA and wgmma. */
#include "emit_attention_grad.h"

/* Rows of a copy: they divide the rows of all tiles. */
static int box(const struct tile *tile)
{
    int rows = 64;
    while (tile->bm % rows || tile->bn % rows || tile->bk % rows) rows /= 2;
    return rows;
}

static void emit_config(const struct grad_text *g)
{
    const struct schedule *s = g->e.s;
    struct text *t = g->e.t;
    emit_attention_head((struct attention_text *)&g->e, "attention/attention_grad_sm90.cuh");
    text_printf(t, "    typedef %s Q;\n", emit_dtype(g->s->use[ATTENTION_GRAD_Q].dtype));
    emit_attention_semantics((struct attention_text *)&g->e, false);
    emit_grad_results(g);
    emit_constant(t, "i32", "groups", s->tile.bm / 64);
    emit_constant(t, "i32", "box", box(&s->tile));
    emit_constant(t, "i32", "walked_queries", s->tile.bn);
    emit_constant(t, "i32", "query_stages", s->tile.stages);
    emit_constant(t, "i32", "walked_keys", s->tile.bk);
    emit_constant(t, "i32", "key_stages", attention_grad_key_stages(g->e.a, &s->tile, s->shared_bytes));
    text_append(t, "};\n");
}

static void emit_tiles(const struct grad_text *g, bool of_keys)
{
    const struct attention_grad_walk w = attention_grad_walk(g->s, &g->e.s->tile, of_keys);
    const int64_t number[] = {w.rows, w.streams, w.bands, w.band};
    for (int i = 0; i < ARRAY_SIZE(number); i++) emit_number(g->e.k, number[i]);
    emit_divisor(g->e.k, w.rows * w.band);
}

static void emit_args(struct grad_text *g)
{
    static const struct {
        int use;
        const char *name;
    } result[] = {{ATTENTION_GRAD_DQ, "of_dq"}, {ATTENTION_GRAD_DK, "of_dk"}, {ATTENTION_GRAD_DV, "of_dv"}};
    const struct attention_spec *a = g->e.a;
    struct text *t = g->e.t;
    text_printf(t, "struct Args {\n    TensorMap q, k, v, d_o;\n    void *pointer[%d];\n", g->e.k->pointers);
    for (int i = 0; i < ARRAY_SIZE(result); i++)
        emit_attention_strides(&g->e, result[i].name, &g->s->use[result[i].use]);
    const int64_t number[] = {a->tq, a->tk, attention_shift(a, a->tq, a->tk), attention_delta_pitch(a->tq)};
    for (int i = 0; i < ARRAY_SIZE(number); i++) emit_number(g->e.k, number[i]);
    emit_tiles(g, true);
    emit_tiles(g, false);
    text_append(t, "    AttentionGradExtents extents;\n};\n");
}

static void emit_maps(struct grad_text *g)
{
    const struct attention_spec *a = g->e.a;
    const struct attention_spec gradient = {.use[ATTENTION_Q] = g->s->use[ATTENTION_GRAD_DO],
                                            .head_dim = a->head_dim};
    const int rows = box(&g->e.s->tile);
    struct attention_text of = g->e;
    emit_attention_map(&g->e, ATTENTION_Q, a->heads, a->tq, a->batch, rows);
    emit_attention_map(&g->e, ATTENTION_K, a->kv_heads, a->tk, a->batch, rows);
    emit_attention_map(&g->e, ATTENTION_V, a->kv_heads, a->tk, a->batch, rows);
    of.a = &gradient;
    emit_attention_map(&of, ATTENTION_Q, a->heads, a->tq, a->batch, rows);
}

void emit_attention_grad_wgmma(struct grad_text *g)
{
    static const int result[] = {ATTENTION_GRAD_DQ, ATTENTION_GRAD_DK, ATTENTION_GRAD_DV};
    struct text *t = g->e.t;
    emit_maps(g);
    emit_grad_pointers(g);
    emit_config(g);
    text_printf(t, "typedef %s<Config> Kernel;\nstatic_assert(Kernel::shared_bytes <= %d);\n\n",
                g->e.s->attention_grad->unit, g->e.k->launch.shared_bytes);
    emit_args(g);
    emit_body(t);
    text_append(t, "    Kernel::run(block, {a.q, a.k, a.v, a.d_o},\n                ");
    emit_grad_tensor(g, ATTENTION_GRAD_O, t);
    text_append(t, " - a.extents.pitch,\n                {");
    for (int i = 0; i < ARRAY_SIZE(result); i++) {
        emit_grad_tensor(g, result[i], t);
        text_append(t, ", ");
    }
    text_append(t, "a.of_dq, a.of_dk, a.of_dv},\n                a.extents);\n}\n");
    emit_entry(g->e.k, &(struct entry){.cluster = 1, .residents = "1"}, t);
}
