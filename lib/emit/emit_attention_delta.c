/* emit_attention_delta.c -- what attention's gradients read of each query becomes a kernel:
 * attention_delta.cuh. */
#include <inttypes.h>

#include "attention_grad.h"
#include "emit_attention.h"

static const struct {
    int use;
    const char *strides;
} operands[] = {{ATTENTION_GRAD_O, "of_o"},
                {ATTENTION_GRAD_DO, "of_do"},
                {ATTENTION_GRAD_LSE, "of_lse"},
                {ATTENTION_GRAD_DLSE, "of_dlse"}};

static void emit_config(const struct attention_delta_spec *d, const struct schedule *s, struct text *t)
{
    text_printf(t,
                "// attention_delta %s: %" PRId64 " heads of %" PRId64
                " columns\n#include \"attention/attention_delta.cuh\"\n#include \"tile/block.cuh\"\n"
                "using namespace coda;\n\nstruct Config {\n    typedef %s T;\n",
                dtype_name(d->use[ATTENTION_GRAD_O].dtype), d->heads, d->head_dim,
                emit_dtype(d->use[ATTENTION_GRAD_O].dtype));
    emit_constant(t, "i32", "head_dim", d->head_dim);
    emit_constant(t, "i32", "heads", d->heads);
    emit_constant(t, "i32", "width", s->tile.bn);
    emit_constant(t, "i32", "lanes", s->tile.groups);
    emit_constant(t, "i32", "threads", s->threads);
    emit_constant(t, "i32", "rows", s->tile.bm);
    emit_constant(t, "bool", "dlse", d->use[ATTENTION_GRAD_DLSE].buffer >= 0);
    text_append(t, "};\ntypedef AttentionDelta<Config> Kernel;\n\n");
}

static void print_kernel(struct attention_text *e, const struct attention_delta_spec *d)
{
    struct text *t = e->t;
    int pointer[ATTENTION_GRAD_USES];
    for (int i = 0; i < ATTENTION_GRAD_USES; i++)
        pointer[i] = d->use[i].buffer >= 0 ? emit_use(e->k, &d->use[i]) : -1;
    emit_config(d, e->s, t);
    text_printf(t, "struct Args {\n    void *pointer[%d];\n", e->k->pointers);
    for (int i = 0; i < ARRAY_SIZE(operands); i++)
        emit_attention_strides(e, operands[i].strides, &d->use[operands[i].use]);
    emit_number(e->k, d->tq);
    emit_number(e->k, attention_delta_pitch(d->tq));
    text_append(t, "    i32 tq, pitch;\n};\n");
    emit_body(t);
    text_append(t, "    Kernel::run(block, {");
    for (int i = 0; i < ARRAY_SIZE(operands); i++) {
        int at = pointer[operands[i].use];
        const char *type = i < 2 ? "Config::T" : "float";
        if (at < 0) text_append(t, "nullptr, ");
        else text_printf(t, "static_cast<const %s *>(a.pointer[%d]), ", type, at);
    }
    text_printf(t, "static_cast<float *>(a.pointer[%d]),\n                 ", pointer[ATTENTION_GRAD_DQ]);
    for (int i = 0; i < ARRAY_SIZE(operands); i++) text_printf(t, "a.%s, ", operands[i].strides);
    text_append(t, "a.tq, a.pitch});\n}\n");
    emit_entry(e->k, &(struct entry){.cluster = 1}, t);
}

static void print_nothing(struct attention_text *e)
{
    text_append(e->t,
                "// no queries\n#include \"tile/block.cuh\"\n\nusing namespace coda;\n\nstruct Args {};\n");
    emit_body(e->t);
    text_append(e->t, "}\n");
    emit_entry(e->k, &(struct entry){.cluster = 1}, e->t);
}

coda_status emit_attention_delta(struct plan *plan, const struct program *p, const struct schedule *s,
                                 struct kernel *k)
{
    struct text t = {0};
    struct attention_text e = {"attention_delta", NULL, s, k, &t, {0}, NULL, 0, 0};
    k->symbol = emit_symbol(plan, p, "coda_attention_delta");
    if (k->symbol && s->grid) print_kernel(&e, p->spec);
    else if (k->symbol) print_nothing(&e);
    k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return failed ? fail(CODA_E_MEMORY, "attention_delta: no memory for the kernel's text") : CODA_OK;
}
