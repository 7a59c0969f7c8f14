/* emit_recurrent.c -- what the kernels of operations that carry a state along a sequence have in common. */
#include "emit_recurrent.h"

void emit_recurrent_types(const struct tensor_use *use, const struct recurrent_type *types, int n,
                          struct text *t)
{
    text_append(t, "\nstruct Config {\n");
    for (int i = 0; i < n; i++) {
        const struct tensor_use *u = &use[types[i].use];
        text_printf(t, "    typedef %s %s;\n", u->buffer >= 0 ? emit_dtype(u->dtype) : "float",
                    types[i].name);
    }
}

void emit_recurrent_tensors(struct kernel *k, const struct tensor_use *use, int uses, int results,
                            struct text *args, struct text *call)
{
    for (int i = 0; i < uses; i++) {
        if (use[i].buffer < 0) {
            text_append(call, "nullptr, ");
            continue;
        }
        int known = k->pointers, at = emit_use(k, &use[i]);
        if (at == known) text_printf(args, "    void *a%d;\n", at);
        text_printf(call, "(%s%s *)a.a%d, ", i < results ? "const " : "", emit_dtype(use[i].dtype), at);
    }
}

void emit_recurrent_strides(struct kernel *k, const struct tensor_use *u, const char *name, int n,
                            struct text *args, struct text *call)
{
    for (int d = 0; d < n; d++) emit_long(k, u->stride[d]);
    text_printf(args, "    %s of_%s;\n", n == 2 ? "RowStrides" : "StateStrides", name);
    text_printf(call, "a.of_%s, ", name);
}

void emit_recurrent_begin(struct text *t, const char *file, const struct text *args)
{
    text_printf(t, "#include \"ptx/control.cuh\"\n#include \"recurrent/%s.cuh\"\n\nusing namespace coda;\n",
                file);
    text_printf(t, "\nstruct Args {\n%s};\n", text_str(args));
}

void emit_recurrent_body(struct kernel *k, const struct schedule *s, const char *name, bool declares,
                         bool waits, const struct text *call, struct text *t)
{
    emit_body(t);
    if (s->early) emit_launch_next(t);
    if (s->pdl && !waits) text_append(t, "    ptx::grid_wait();\n");
    if (s->grid) text_printf(t, "    %s<Config>::run(block,\n        {%s});\n", name, text_str(call));
    text_append(t, "}\n");
    struct word residents = emit_word("%d", MAX(s->residents, 1));
    emit_entry(k, &(struct entry){.cluster = 1, .residents = residents.s, .declares = declares}, t);
}

coda_status emit_recurrent_finish(struct plan *plan, struct kernel *k, const char *what, struct text *t,
                                  struct text *args, struct text *call)
{
    k->text = arena_string(&plan->arena, text_str(t));
    bool failed = t->failed || args->failed || call->failed || plan->arena.failed;
    text_free(t);
    text_free(args);
    text_free(call);
    return failed ? fail(CODA_E_MEMORY, "%s: no memory for the kernel's text", what) : CODA_OK;
}
