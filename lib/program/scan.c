/* scan.c -- a selective scan as a program: its work, its text. */
#include "scan.h"
#include "own.h"

/* Each operand once, and states in and out. */
static int64_t bytes(const void *spec)
{
    static const int of_rows[] = {SCAN_X, SCAN_GATE, SCAN_Y};
    static const int of_groups[] = {SCAN_B, SCAN_C};
    const struct scan_spec *s = spec;
    int64_t rows = scan_rows(s), columns = scan_columns(s), sum = 0;
    int64_t states = mul_counts(mul_counts(s->batch, columns), s->states);
    for (int i = 0; i < ARRAY_SIZE(of_rows); i++)
        if (scan_has(s, of_rows[i]))
            sum = add_counts(sum, dtype_bytes(s->use[of_rows[i]].dtype, mul_counts(rows, columns)));
    for (int i = 0; i < ARRAY_SIZE(of_groups); i++)
        sum = add_counts(
            sum, dtype_bytes(s->use[of_groups[i]].dtype, mul_counts(rows, mul_counts(s->groups, s->states))));
    sum = add_counts(sum, dtype_bytes(s->use[SCAN_DT].dtype, mul_counts(rows, s->rank ? s->rank : s->heads)));
    if (s->rank) sum = add_counts(sum, dtype_bytes(s->weights.dtype, mul_counts(s->heads, s->rank)));
    sum = add_counts(sum, mul_counts(4 * s->heads, s->each ? s->states : 1));
    for (int i = 0; i < 2; i++) {
        const struct tensor_use *u = &s->use[i ? SCAN_AFTER : SCAN_STATE];
        if (u->buffer >= 0) sum = add_counts(sum, dtype_bytes(u->dtype, states));
    }
    return sum;
}

/* For each state and token: d x b and its sum with what decays, and y's; an exponential counts as one. */
static double flops(const void *spec)
{
    const struct scan_spec *s = spec;
    double rows = (double)scan_rows(s), columns = (double)scan_columns(s);
    double decays = rows * (double)s->heads * (s->each ? (double)s->states : 1);
    return 5 * rows * columns * (double)s->states + 2 * decays + 2 * rows * columns * (double)s->rank;
}

static void print(const void *spec, struct text *t)
{
    const struct scan_spec *s = spec;
    text_printf(t, "scan b=%lld tokens=%lld heads=%lld head_dim=%lld groups=%lld states=%lld%s%s%s",
                (long long)s->batch, (long long)s->tokens, (long long)s->heads, (long long)s->head_dim,
                (long long)s->groups, (long long)s->states, s->each ? " each" : "",
                s->softplus ? " softplus" : "", scan_has(s, SCAN_STARTS) ? " packed" : "");
    if (s->rank) text_printf(t, " rank=%lld", (long long)s->rank);
}

static struct tensor_use *extra(void *spec, int i)
{
    struct scan_spec *s = spec;
    return i == 0 && s->rank ? &s->weights : NULL;
}

static const char *const shown[SCAN_USES] = {
    [SCAN_X] = "x",       [SCAN_DT] = "dt",       [SCAN_A] = "a",           [SCAN_B] = "b",
    [SCAN_C] = "c",       [SCAN_STATE] = "state", [SCAN_STARTS] = "starts", [SCAN_DT_BIAS] = "bias",
    [SCAN_SKIP] = "skip", [SCAN_GATE] = "gate",   [SCAN_Y] = "y",           [SCAN_AFTER] = "after"};

const struct own_kind own_scan = {.index = OWN_SCAN,
                                  .op = OP_SCAN,
                                  .name = "scan",
                                  .size = sizeof(struct scan_spec),
                                  .shown = SCAN_USES + 1,
                                  .extra_name = {"weights"},
                                  .use_name = shown,
                                  .stride_name = {"batch", "time", "column"},
                                  .bytes = bytes,
                                  .flops = flops,
                                  .extra = extra,
                                  .print = print};
