/* emit_attention_simt.c -- attention_simt.cuh: any tensors, on any GPU. */
#include "emit_attention.h"

/* The operands by pointers, and the result. */
static const struct {
    int use;
    const char *type, *strides, *quads;
} tensors[] = {{ATTENTION_Q, "Q", "of_q", "q_quads"},
               {ATTENTION_K, "K", "of_k", "k_quads"},
               {ATTENTION_V, "V", "of_v", "v_quads"},
               {ATTENTION_O, "O", "of_o", "o_quads"}};

/* Do all rows begin at multiples of 4 elements? Buffers begin at multiples of 16 bytes. */
static bool moves_by_quads(const struct attention_spec *a, const struct tensor_use *v)
{
    return a->head_dim % 4 == 0 && v->offset % 4 == 0 && v->batch % 4 == 0 && v->time % 4 == 0 &&
           v->head % 4 == 0;
}

static void emit_config(struct attention_text *e)
{
    struct text *t = e->t;
    emit_attention_head(e, "attention/attention_simt.cuh");
    for (int i = 0; i < ARRAY_SIZE(tensors); i++)
        text_printf(t, "    typedef %s %s;\n", emit_dtype(e->a->use[tensors[i].use].dtype), tensors[i].type);
    emit_attention_semantics(e, false);
    for (int i = 0; i < ARRAY_SIZE(tensors); i++)
        emit_constant(t, "bool", tensors[i].quads, moves_by_quads(e->a, &e->a->use[tensors[i].use]));
    emit_constant(t, "i32", "bm", e->s->tile.bm);
    emit_constant(t, "i32", "bn", e->s->tile.bn);
    text_append(t, "};\n");
}

void emit_attention_simt(struct attention_text *e)
{
    struct text *t = e->t;
    for (int i = ATTENTION_Q; i <= ATTENTION_V; i++) emit_attention_pointer(e, i);
    emit_attention_pointers(e);
    emit_config(e);
    text_printf(t,
                "typedef AttentionSimt<Config> Kernel;\nstatic_assert(4 * Kernel::shared_floats == %d);\n\n",
                e->k->launch.shared_bytes);
    text_printf(t, "struct Args {\n    void *pointer[%d];\n", e->k->pointers);
    for (int i = 0; i < ARRAY_SIZE(tensors); i++)
        emit_attention_strides(e, tensors[i].strides, &e->a->use[tensors[i].use]);
    emit_attention_extents(e, false);
    text_append(t, "};\n");
    emit_body(t);
    text_append(t, "    Kernel::run(block, ");
    for (int i = 0; tensors[i].use != ATTENTION_O; i++)
        text_printf(t, "static_cast<const Config::%s *>(a.pointer[%d]),\n                ", tensors[i].type,
                    e->pointer[tensors[i].use]);
    emit_attention_result(e);
    text_append(t, ",\n                {a.of_q, a.of_k, a.of_v, a.of_o},\n                ");
    emit_attention_beside(e);
    text_append(t, ");\n}\n");
    emit_entry(e->k, &(struct entry){.residents = "Kernel::blocks"}, t);
}
