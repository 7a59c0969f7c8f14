/* delta.c -- the gated delta rule as a program: its work, its text. */
#include "own.h"

static int64_t rows_of(const struct delta_spec *s)
{
    return mul_counts(s->use[DELTA_STARTS].buffer >= 0 ? 1 : s->sequences, s->time);
}

static int64_t bytes(const void *spec)
{
    const struct delta_spec *s = spec;
    int64_t state = mul_counts(s->heads, mul_counts(s->keys, s->values)), tokens = rows_of(s);
    const int64_t row[DELTA_USES] = {[DELTA_Q] = s->key_heads * s->keys,
                                     [DELTA_K] = s->key_heads * s->keys,
                                     [DELTA_V] = s->heads * s->values,
                                     [DELTA_DECAY] = s->heads * (s->by_row ? s->keys : 1),
                                     [DELTA_BETA] = s->heads,
                                     [DELTA_O] = s->heads * s->values};
    int64_t all = 0;
    for (int i = 0; i < DELTA_USES; i++) {
        bool is_state = i == DELTA_BEFORE || i == DELTA_AFTER;
        int64_t n = is_state ? mul_counts(s->sequences, state) : mul_counts(tokens, row[i]);
        if (i == DELTA_STARTS) n = s->sequences + 1;
        if (s->use[i].buffer >= 0) all = add_counts(all, dtype_bytes(s->use[i].dtype, n));
    }
    return all;
}

/* k S, q S and k^T e. */
static double flops(const void *spec)
{
    const struct delta_spec *s = spec;
    return 6.0 * (double)rows_of(s) * (double)s->heads * (double)s->keys * (double)s->values;
}

static void print(const void *spec, struct text *t)
{
    const struct delta_spec *s = spec;
    bool packed = s->use[DELTA_STARTS].buffer >= 0;
    text_printf(t, "delta heads=%lld key_heads=%lld keys=%lld values=%lld sequences=%lld %s=%lld",
                (long long)s->heads, (long long)s->key_heads, (long long)s->keys, (long long)s->values,
                (long long)s->sequences, packed ? "packed" : "time", (long long)s->time);
    text_printf(t, " scale=%a%s", (double)s->scale, s->by_row ? " by_row" : "");
    if (s->norm) text_printf(t, " norm eps=%a", (double)s->eps);
}

static const char *const shown[DELTA_USES] = {
    [DELTA_Q] = "q",         [DELTA_K] = "k",       [DELTA_V] = "v",
    [DELTA_DECAY] = "decay", [DELTA_BETA] = "beta", [DELTA_BEFORE] = "before",
    [DELTA_STARTS] = "by",   [DELTA_O] = "to",      [DELTA_AFTER] = "to"};

const struct own_kind own_delta = {.index = OWN_DELTA,
                                   .op = OP_DELTA,
                                   .name = "delta",
                                   .size = sizeof(struct delta_spec),
                                   .shown = DELTA_USES,
                                   .use_name = shown,
                                   .bytes = bytes,
                                   .flops = flops,
                                   .print = print};
