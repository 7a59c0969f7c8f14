/* emit_conv1d.c -- a causal convolution becomes a kernel: the struct of constants that recurrent/conv1d.cuh
 * wants, and the entry. Rows, sequences and their strides are arguments. */
#include "emit_recurrent.h"

static const char *const words[CONV1D_USES] = {
    [CONV1D_X] = "x",           [CONV1D_W] = "w", [CONV1D_BIAS] = "bias",  [CONV1D_BEFORE] = "before",
    [CONV1D_STARTS] = "starts", [CONV1D_Y] = "y", [CONV1D_AFTER] = "after"};

/* The map of y; of 16 bits less than "apply" is enough. */
static void print_act(const struct conv1d_spec *s, struct text *t)
{
    bool narrow = s->map && s->map->narrow && dtype_bytes(s->use[CONV1D_X].dtype, 1) == 2;
    text_append(t, "    DEV static float act(float x) { return ");
    if (s->map)
        text_printf(t, "%s%s::%s(", emit_map_prefix(s->map), s->map->name, narrow ? "narrow" : "apply");
    text_append(t, "x");
    for (int i = 0; s->map && i < s->map->params; i++) text_printf(t, ", %s", emit_float(s->param[i]).s);
    text_append(t, s->map ? "); }\n" : "; }\n");
}

static void print_config(const struct conv1d_spec *s, const struct schedule *of, struct text *t)
{
    static const struct recurrent_type types[] = {{CONV1D_X, "T"},         {CONV1D_W, "W"},
                                                  {CONV1D_BIAS, "Bias"},   {CONV1D_BEFORE, "Before"},
                                                  {CONV1D_AFTER, "After"}, {CONV1D_STARTS, "Index"}};
    static const int flags[] = {CONV1D_Y, CONV1D_BIAS, CONV1D_BEFORE, CONV1D_AFTER};
    emit_recurrent_types(s->use, types, ARRAY_SIZE(types), t);
    for (int i = 0; i < ARRAY_SIZE(flags); i++)
        emit_constant(t, "bool", words[flags[i]], s->use[flags[i]].buffer >= 0);
    emit_constant(t, "bool", "packed", s->use[CONV1D_STARTS].buffer >= 0);
    emit_constant(t, "i32", "taps", s->taps);
    emit_constant(t, "u32", "columns", s->columns);
    emit_constant(t, "i32", "threads", of->threads);
    emit_constant(t, "i32", "width", of->tile.bn / of->threads);
    emit_constant(t, "i64", "w_column", s->use[CONV1D_W].stride[0]);
    emit_constant(t, "i64", "w_tap", s->use[CONV1D_W].stride[1]);
    emit_constant(t, "i64", "bias_stride", s->use[CONV1D_BIAS].stride[0]);
    emit_constant(t, "i64", "starts_stride", s->use[CONV1D_STARTS].stride[0]);
    print_act(s, t);
    text_append(t, "};\n");
}

static void print_numbers(const struct conv1d_spec *s, const struct schedule *of, struct kernel *k,
                          struct text *args, struct text *call)
{
    static const int strided[] = {CONV1D_X, CONV1D_Y, CONV1D_BEFORE, CONV1D_AFTER};
    const int64_t number[] = {s->sequences, s->time, of->tile.bm, of->tile.blocks};
    for (int i = 0; i < ARRAY_SIZE(strided); i++)
        emit_recurrent_strides(k, &s->use[strided[i]], words[strided[i]], 2, args, call);
    for (int i = 0; i < ARRAY_SIZE(number); i++) emit_count(k, number[i]);
    text_append(args, "    u32 sequences, time, rows, parts;\n");
    text_append(call, "a.sequences, a.time, a.rows, a.parts");
}

coda_status emit_conv1d(struct plan *plan, const struct program *p, const struct schedule *s,
                        struct kernel *k)
{
    const struct conv1d_spec *of = p->spec;
    struct text t = {0}, args = {0}, call = {0};
    k->symbol = emit_symbol(plan, p, "coda_conv1d");
    if (k->symbol) {
        emit_recurrent_tensors(k, of->use, CONV1D_USES, CONV1D_Y, &args, &call);
        print_numbers(of, s, k, &args, &call);
        text_printf(&t, "// a causal convolution of %lld columns by %lld rows\n", (wide)of->columns,
                    (wide)of->taps);
        if (of->map) emit_map(of->map, &t);
        emit_recurrent_begin(&t, "conv1d", &args);
        print_config(of, s, &t);
        emit_recurrent_body(k, s, "Conv1d", false, false, &call, &t);
    }
    return emit_recurrent_finish(plan, k, "conv1d", &t, &args, &call);
}
