/* emit_conv1d.c -- a causal convolution becomes a kernel: the struct of constants that recurrent/conv1d.cuh
 * wants, and the entry. Rows, sequences and their strides are arguments. In the epilogue of a product it is
 * a sum of what that sees of the rows above: tile/rows_above.cuh. */
#include "emit_epilogue.h"
#include "emit_recurrent.h"

static const char *const words[CONV1D_USES] = {
    [CONV1D_X] = "x",           [CONV1D_W] = "w", [CONV1D_BIAS] = "bias",  [CONV1D_BEFORE] = "before",
    [CONV1D_STARTS] = "starts", [CONV1D_Y] = "y", [CONV1D_AFTER] = "after"};

/* ---- In an epilogue ---- */

/* Is step `source` of a slot made of step i? */
static bool is_made_of(const struct printer *e, int source, int i)
{
    const struct step *s = &e->p->step[source];
    bool made = source == i;
    for (int k = 0; k < s->nin && !made && source > i; k++)
        made = s->in[k] >= i && is_made_of(e, s->in[k], i);
    return made;
}

void printer_rows_above(struct printer *e)
{
    int index = conv1d_step_of(e->p);
    const struct step *s = &e->p->step[index];
    const struct column_range columns = step_columns(e->p, s);
    e->level = LEVEL_SLOT;
    text_printf(e->t, "\n    static constexpr int above = %d;\n", step_rows_above(s));
    text_printf(e->t, "    DEV static constexpr bool looks_up(int range) { return range == %d; }\n",
                MAX(s->range - 1, 0));
    text_append(e->t, "    template <int range, class S> DEV static float source(const S &s)\n    {\n");
    for (int i = 0; i <= s->in[READS_X]; i++)
        if (e->l->level[i] == LEVEL_SLOT && is_made_of(e, s->in[READS_X], i)) printer_slot(e, i);
    text_printf(e->t, "        return v%d;\n    }\n", s->in[READS_X]);
    text_printf(e->t, "    static constexpr int edge_first = %lld, edge_columns = %lld;\n",
                (wide)columns.first, (wide)(columns.end - columns.first));
    text_printf(e->t, "    DEV static %s *edges(const Args &g) { return g.y%d; }\n",
                emit_dtype(e->p->port[s->port].dtype), s->port);
}

void printer_conv1d(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    int bias = s->in[READS_BIAS], above = step_rows_above(s);
    text_printf(e->t, "        float v%d = %s;\n", i, bias < 0 ? "0.0f" : printer_value(e, bias, 0).s);
    for (int j = above; j >= 0; j--)
        text_printf(e->t, "        v%d = fmaf(%s, s.above[%d], v%d);\n", i,
                    printer_value(e, s->in[READS_TAPS + above - j], 0).s, j, i);
}

/* ---- As a kernel ---- */

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

/* Are weights loaded before the kernel waits for what is ahead of it? */
static bool loads_early(const struct conv1d_spec *s, const struct schedule *of)
{
    return s->edges && of->pdl && s->use[CONV1D_W].steady && s->use[CONV1D_BIAS].steady;
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
    emit_constant(t, "bool", "edges", s->edges);
    emit_constant(t, "bool", "steady", loads_early(s, of));
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
        emit_recurrent_body(k, s, "Conv1d", false, loads_early(of, s), &call, &t);
    }
    return emit_recurrent_finish(plan, k, "conv1d", &t, &args, &call);
}
