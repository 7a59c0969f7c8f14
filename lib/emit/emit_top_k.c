/* emit_top_k.c -- the k largest of each row become a kernel: the struct of constants that tile/top_k.cuh
 * wants, and the entry. */
#include <inttypes.h>

#include "emit.h"
#include "emit_text.h"
#include "view.h"

static void constant(struct text *t, const char *type, const char *name, int64_t value)
{
    text_printf(t, "    static constexpr %s %s = %" PRId64 ";\n", type, name, value);
}

/* Where a row begins: leading dimensions that lie as one are. */
static void emit_start(const struct program *p, const struct top_k_spec *s, struct text *t)
{
    struct type x = {.dtype = s->x.dtype, .rank = p->rank};
    int64_t stride, inner = 1;
    for (int d = 0; d < p->rank; d++) x.dim[d] = p->dim[d];
    text_append(t, "    DEV static i64 start(i64 row) { return ");
    if (s->x.reduce) {
        text_printf(t, "row * %" PRId64 "; }\n", 2 * top_k_candidates(s));
        return;
    }
    if (view_collapse(&x, s->x.stride, 0, p->rank - 1, &stride)) {
        text_printf(t, "row * %" PRId64 "; }\n", stride);
        return;
    }
    for (int d = p->rank - 2; d >= 0; inner *= p->dim[d--])
        text_printf(t, "row / %" PRId64 " %% %" PRId64 " * %" PRId64 "%s", inner, p->dim[d], s->x.stride[d],
                    d ? " + " : "; }\n");
}

static void emit_config(const struct program *p, const struct schedule *of, struct text *t)
{
    const struct top_k_spec *s = p->spec;
    text_append(t, "\nstruct Config {\n");
    if (s->x.reduce) text_append(t, "    // elements and columns that tiles of a product have left\n");
    text_printf(t, "    typedef %s T;\n", emit_dtype(s->x.dtype));
    constant(t, "i64", "rows", s->rows);
    constant(t, "u32", "columns", top_k_candidates(s));
    constant(t, "bool", "parts", s->x.reduce != NULL);
    constant(t, "i64", "stride", s->x.reduce ? 2 : s->x.stride[p->rank - 1]);
    constant(t, "i32", "k", s->k);
    constant(t, "i32", "rows_at_once", of->tile.bm);
    constant(t, "i32", "warps", of->tile.groups);
    emit_start(p, s, t);
    text_append(t, "};\n");
}

static const struct tensor_use *result(const struct top_k_spec *s, bool indices)
{
    for (int i = 0; i < s->outs; i++)
        if ((s->out[i].dtype == CODA_I32) == indices) return &s->out[i];
    return NULL;
}

static void emit_result(struct kernel *k, const struct tensor_use *out, struct text *args, struct text *call)
{
    if (!out) {
        text_append(call, ", (i32 *)nullptr");
        return;
    }
    int pointer = emit_pointer(k, out->buffer, 0);
    text_printf(args, "    %s *a%d;\n", emit_dtype(out->dtype), pointer);
    text_printf(call, ", a.a%d", pointer);
}

static void print_kernel(const struct program *p, const struct schedule *of, struct kernel *k, struct text *t)
{
    const struct top_k_spec *s = p->spec;
    struct text args = {0}, call = {0};
    emit_pointer(k, s->x.buffer, s->x.offset * dtype_size(s->x.dtype));
    emit_result(k, result(s, false), &args, &call);
    emit_result(k, result(s, true), &args, &call);
    text_printf(t, "// the %" PRId64 " largest of %" PRId64 " rows of %" PRId64 ", %d warp%s for each\n",
                s->k, s->rows, s->columns, of->tile.groups, of->tile.groups > 1 ? "s" : "");
    text_append(t, "#include \"ptx/control.cuh\"\n#include \"tile/top_k.cuh\"\n\nusing namespace coda;\n");
    emit_config(p, of, t);
    text_printf(t, "\nstruct Args {\n    const %s *a0;\n%s};\n", emit_dtype(s->x.dtype), text_str(&args));
    text_printf(t, "\nextern \"C\" __global__ void __launch_bounds__(%d)\n", of->threads);
    text_printf(t, "%s(const __grid_constant__ Args a)\n{\n", k->symbol);
    if (of->pdl) text_append(t, "    ptx::grid_wait();\n");
    if (of->grid) text_printf(t, "    TopK<Config>::run(a.a0%s);\n", text_str(&call));
    text_append(t, "}\n");
    t->failed = t->failed || args.failed || call.failed;
    text_free(&args);
    text_free(&call);
}

coda_status emit_top_k(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k)
{
    struct text t = {0};
    k->symbol = emit_symbol(plan, p, "coda_top_k");
    if (k->symbol) print_kernel(p, s, k, &t);
    k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return failed ? fail(CODA_E_MEMORY, "top_k: no memory for the kernel's text") : CODA_OK;
}
