/* conv1d.c -- a causal convolution of each column as a program: its work, its text. */
#include "own.h"

static int64_t all_of(const struct tensor_use *u, int64_t elements)
{
    return u->buffer >= 0 ? dtype_bytes(u->dtype, elements) : 0;
}

/* Where nobody wants y the last rows alone are read. */
static int64_t bytes(const void *spec)
{
    const struct conv1d_spec *s = spec;
    const struct tensor_use *use = s->use;
    bool packed = use[CONV1D_STARTS].buffer >= 0;
    int64_t rows = mul_counts(packed ? 1 : s->sequences, s->time),
            kept = mul_counts(s->sequences, s->taps - 1);
    if (s->edges) { /* it reads twice what it writes */
        int64_t parts = mul_counts(s->sequences, CEIL_DIV(s->time, EDGE_PERIOD));
        rows = mul_counts(parts, s->taps - 1);
    }
    int64_t read = s->edges ? mul_counts(2, rows) : use[CONV1D_Y].buffer >= 0 ? rows : MIN(rows, kept);
    int64_t all = all_of(&use[CONV1D_X], mul_counts(read, s->columns));
    all = add_counts(all, all_of(&use[CONV1D_Y], mul_counts(rows, s->columns)));
    all = add_counts(all, all_of(&use[CONV1D_W], mul_counts(s->taps, s->columns)));
    all = add_counts(all, all_of(&use[CONV1D_BIAS], s->columns));
    all = add_counts(all, all_of(&use[CONV1D_BEFORE], mul_counts(kept, s->columns)));
    all = add_counts(all, all_of(&use[CONV1D_STARTS], s->sequences + 1));
    return add_counts(all, all_of(&use[CONV1D_AFTER], mul_counts(kept, s->columns)));
}

static void print(const void *spec, struct text *t)
{
    const struct conv1d_spec *s = spec;
    bool packed = s->use[CONV1D_STARTS].buffer >= 0;
    text_printf(t, "conv1d k=%lld sequences=%lld %s=%lld columns=%lld", (long long)s->taps,
                (long long)s->sequences, packed ? "packed" : "time", (long long)s->time,
                (long long)s->columns);
    if (s->edges) text_append(t, " edges");
    if (s->map) text_printf(t, " map=%s", s->map->name);
    for (int i = 0; s->map && i < s->map->params; i++)
        text_printf(t, "%s%s=%a%s", i ? " " : " {", s->map->param_name[i], (double)s->param[i],
                    i + 1 < s->map->params ? "" : "}");
}

static const struct prim *map(const void *spec) { return ((const struct conv1d_spec *)spec)->map; }

static const char *const shown[CONV1D_USES] = {
    [CONV1D_X] = "of",      [CONV1D_W] = "by", [CONV1D_BIAS] = "bias", [CONV1D_BEFORE] = "before",
    [CONV1D_STARTS] = "by", [CONV1D_Y] = "to", [CONV1D_AFTER] = "to"};

const struct own_kind own_conv1d = {.index = OWN_CONV1D,
                                    .op = OP_CONV1D,
                                    .name = "conv1d",
                                    .size = sizeof(struct conv1d_spec),
                                    .shown = CONV1D_USES,
                                    .use_name = shown,
                                    .bytes = bytes,
                                    .map = map,
                                    .print = print};
