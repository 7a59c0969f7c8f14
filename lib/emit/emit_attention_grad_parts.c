/* emit_attention_grad_parts.c -- what the texts of all kernels of attention's gradients share. */
#include "emit_attention_grad.h"

void emit_grad_pointers(struct grad_text *g)
{
    const struct tensor_use delta = attention_delta_use(g->s);
    for (int i = 0; i < ATTENTION_GRAD_USES; i++) {
        const struct tensor_use *u = i == ATTENTION_GRAD_O ? &delta : &g->s->use[i];
        g->pointer[i] = u->buffer >= 0 ? emit_use(g->e.k, u) : -1;
    }
}

void emit_grad_tensor(const struct grad_text *g, int use, struct text *t)
{
    const struct tensor_use *u = &g->s->use[use];
    const char *type = u->dtype == CODA_F32 ? "float" : emit_dtype(u->dtype);
    const char *is_const = use < ATTENTION_GRAD_OPERANDS ? "const " : "";
    if (g->pointer[use] < 0) text_append(t, "nullptr");
    else text_printf(t, "static_cast<%s%s *>(a.pointer[%d])", is_const, type, g->pointer[use]);
}

void emit_grad_results(const struct grad_text *g)
{
    static const struct {
        int use;
        const char *name;
    } result[] = {{ATTENTION_GRAD_DQ, "has_dq"},       {ATTENTION_GRAD_DK, "has_dk"},
                  {ATTENTION_GRAD_DV, "has_dv"},       {ATTENTION_GRAD_DSINKS, "has_dsinks"},
                  {ATTENTION_GRAD_DBIAS, "has_dbias"}, {ATTENTION_GRAD_DSLOPES, "has_dslopes"}};
    for (int i = 0; i < ARRAY_SIZE(result); i++)
        emit_constant(g->e.t, "bool", result[i].name, attention_grad_has(g->s, result[i].use));
}
