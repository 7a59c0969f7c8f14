/* emit_conv1d.c -- a causal convolution becomes a kernel: the struct of constants that recurrent/conv1d.cuh
 * wants, and the entry. Rows, sequences and their strides are arguments. */
#include "emit.h"
#include "emit_text.h"

static const char *const words[CONV1D_USES] = {
    [CONV1D_X] = "x",           [CONV1D_W] = "w", [CONV1D_BIAS] = "bias",  [CONV1D_BEFORE] = "before",
    [CONV1D_STARTS] = "starts", [CONV1D_Y] = "y", [CONV1D_AFTER] = "after"};

static bool is_there(const struct conv1d_spec *s, int use) { return s->use[use].buffer >= 0; }

static void print_config(const struct conv1d_spec *s, const struct schedule *of, struct text *t)
{
    static const struct {
        int use;
        const char *type;
    } types[] = {{CONV1D_X, "T"},           {CONV1D_W, "W"},         {CONV1D_BIAS, "Bias"},
                 {CONV1D_BEFORE, "Before"}, {CONV1D_AFTER, "After"}, {CONV1D_STARTS, "Index"}};
    static const int flags[] = {CONV1D_Y, CONV1D_BIAS, CONV1D_BEFORE, CONV1D_AFTER};
    text_append(t, "\nstruct Config {\n");
    for (int i = 0; i < ARRAY_SIZE(types); i++) {
        bool there = is_there(s, types[i].use);
        text_printf(t, "    typedef %s %s;\n", there ? emit_dtype(s->use[types[i].use].dtype) : "float",
                    types[i].type);
    }
    for (int i = 0; i < ARRAY_SIZE(flags); i++)
        emit_constant(t, "bool", words[flags[i]], is_there(s, flags[i]));
    emit_constant(t, "bool", "packed", is_there(s, CONV1D_STARTS));
    emit_constant(t, "i32", "taps", s->taps);
    emit_constant(t, "u32", "columns", s->columns);
    emit_constant(t, "i32", "threads", of->threads);
    emit_constant(t, "i32", "width", of->tile.bn / of->threads);
    emit_constant(t, "i64", "w_column", s->use[CONV1D_W].stride[0]);
    emit_constant(t, "i64", "w_tap", s->use[CONV1D_W].stride[1]);
    emit_constant(t, "i64", "bias_stride", s->use[CONV1D_BIAS].stride[0]);
    emit_constant(t, "i64", "starts_stride", s->use[CONV1D_STARTS].stride[0]);
    text_append(t, "};\n");
}

/* The call's tensors, in the order of Conv1d::Tensors; args get what they point to. */
static void print_tensors(const struct conv1d_spec *s, struct kernel *k, struct text *args, struct text *call)
{
    for (int i = 0; i < CONV1D_USES; i++) {
        const struct tensor_use *u = &s->use[i];
        if (u->buffer < 0) {
            text_append(call, "nullptr, ");
            continue;
        }
        int known = k->pointers, at = emit_use(k, u);
        if (at == known) text_printf(args, "    void *a%d;\n", at);
        text_printf(call, "(%s%s *)a.a%d, ", i < CONV1D_Y ? "const " : "", emit_dtype(u->dtype), at);
    }
}

static void print_numbers(const struct conv1d_spec *s, const struct schedule *of, struct kernel *k,
                          struct text *args, struct text *call)
{
    static const int strided[] = {CONV1D_X, CONV1D_Y, CONV1D_BEFORE, CONV1D_AFTER};
    const int64_t number[] = {s->sequences, s->time, of->tile.bm, of->tile.blocks};
    for (int i = 0; i < ARRAY_SIZE(strided); i++) {
        emit_long(k, s->use[strided[i]].stride[0]);
        emit_long(k, s->use[strided[i]].stride[1]);
        text_printf(args, "    RowStrides of_%s;\n", words[strided[i]]);
        text_printf(call, "a.of_%s, ", words[strided[i]]);
    }
    for (int i = 0; i < ARRAY_SIZE(number); i++) emit_number(k, number[i]);
    text_append(args, "    u32 sequences, time, rows, parts;\n");
    text_append(call, "a.sequences, a.time, a.rows, a.parts");
}

static void print_kernel(const struct conv1d_spec *s, const struct schedule *of, struct kernel *k,
                         struct text *t)
{
    struct text args = {0}, call = {0};
    print_tensors(s, k, &args, &call);
    print_numbers(s, of, k, &args, &call);
    text_printf(t, "// a causal convolution of %lld columns by %lld rows\n", (wide)s->columns, (wide)s->taps);
    text_append(t,
                "#include \"ptx/control.cuh\"\n#include \"recurrent/conv1d.cuh\"\n\nusing namespace coda;\n");
    text_printf(t, "\nstruct Args {\n%s};\n", text_str(&args));
    print_config(s, of, t);
    emit_body(t);
    if (of->pdl) text_append(t, "    ptx::grid_wait();\n");
    if (of->grid)
        text_printf(t, "    Conv1d<Config>::run(block,\n                        {%s});\n", text_str(&call));
    text_append(t, "}\n");
    emit_entry(k, &(struct entry){.cluster = 1}, t);
    t->failed = t->failed || args.failed || call.failed;
    text_free(&args);
    text_free(&call);
}

coda_status emit_conv1d(struct plan *plan, const struct program *p, const struct schedule *s,
                        struct kernel *k)
{
    struct text t = {0};
    k->symbol = emit_symbol(plan, p, "coda_conv1d");
    if (k->symbol) print_kernel(p->spec, s, k, &t);
    k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return failed ? fail(CODA_E_MEMORY, "conv1d: no memory for the kernel's text") : CODA_OK;
}
