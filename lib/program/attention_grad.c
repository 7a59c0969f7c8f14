/* attention_grad.c -- the gradients of attention as two programs, of which one makes what the other reads of
 * each query: their work, their text. */
#include "attention_grad.h"
#include "own.h"

struct attention_spec attention_grad_of(const struct attention_grad_spec *s)
{
    struct attention_spec a = s->of;
    for (int i = 0; i < ATTENTION_OPERANDS; i++)
        if (attention_grad_operand(i) >= 0) a.use[i] = s->use[attention_grad_operand(i)];
    return a;
}

struct tensor_use attention_delta_use(const struct attention_grad_spec *s)
{
    const struct attention_spec a = attention_grad_of(s);
    struct tensor_use u = s->use[ATTENTION_GRAD_O];
    int64_t pitch = attention_delta_pitch(a.tq);
    u.offset = pitch, u.batch = mul_counts(2 * pitch, a.heads), u.time = 1, u.head = 2 * pitch;
    return u;
}

/* q and do are read, as many elements each; k and v; and results of their sizes written. */
static int64_t bytes(const void *spec)
{
    static const int of_queries[] = {ATTENTION_GRAD_Q, ATTENTION_GRAD_DO, ATTENTION_GRAD_DQ};
    static const int of_keys[] = {ATTENTION_GRAD_K, ATTENTION_GRAD_V, ATTENTION_GRAD_DK, ATTENTION_GRAD_DV};
    const struct attention_grad_spec *s = spec;
    const struct attention_spec a = attention_grad_of(s);
    int64_t rows = mul_counts(mul_counts(attention_batches(&a), a.tq), a.heads), sum = mul_counts(8, rows);
    int64_t queries = mul_counts(rows, a.head_dim);
    int64_t keys = mul_counts(mul_counts(a.batch, a.tk), mul_counts(a.kv_heads, a.head_dim));
    for (int i = 0; i < ARRAY_SIZE(of_queries); i++)
        if (attention_grad_has(s, of_queries[i]))
            sum = add_counts(sum, dtype_bytes(s->use[of_queries[i]].dtype, queries));
    for (int i = 0; i < ARRAY_SIZE(of_keys); i++)
        if (attention_grad_has(s, of_keys[i]))
            sum = add_counts(sum, dtype_bytes(s->use[of_keys[i]].dtype, keys));
    sum = add_counts(sum, attention_bias_bytes(&a));
    return sum;
}

/* Products of each pair: q k, but for sinks alone; do v, but for dv alone; what dq, dk and dv add up. */
static double flops(const void *spec)
{
    const struct attention_grad_spec *s = spec;
    const struct attention_spec a = attention_grad_of(s);
    bool dq = attention_grad_has(s, ATTENTION_GRAD_DQ), dk = attention_grad_has(s, ATTENTION_GRAD_DK);
    bool dv = attention_grad_has(s, ATTENTION_GRAD_DV), ds = dq || dk || attention_grad_has_sums(s);
    int products = (ds || dv) + ds + dq + dk + dv;
    return 2.0 * products * attention_pairs(&a) * (double)a.batch * (double)a.heads * (double)a.head_dim;
}

/* Does data say how much there is to do? Sequences have as many keys as lengths say. */
static bool by_data(const void *spec)
{
    const struct attention_spec a = attention_grad_of(spec);
    return attention_has(&a, ATTENTION_LENGTHS) || attention_has(&a, ATTENTION_RANGES);
}

static const struct prim *score(const void *spec)
{
    return ((const struct attention_grad_spec *)spec)->of.score;
}

static void print(const void *spec, struct text *t)
{
    static const char *const result[] = {"dq", "dk", "dv", "dsinks", "dbias", "dslopes"};
    const struct attention_grad_spec *s = spec;
    const struct attention_spec a = attention_grad_of(s);
    text_append(t, "attention_grad");
    attention_print(&a, t);
    for (int i = 0; i < ARRAY_SIZE(result); i++)
        if (attention_grad_has(s, ATTENTION_GRAD_OPERANDS + i)) text_printf(t, " %s", result[i]);
}

/* The names of operands in the text; dbias has none here, as its strides are called otherwise. */
static const char *const shown[ATTENTION_GRAD_USES] = {[ATTENTION_GRAD_Q] = "q",
                                                       [ATTENTION_GRAD_K] = "k",
                                                       [ATTENTION_GRAD_V] = "v",
                                                       [ATTENTION_GRAD_O] = "delta",
                                                       [ATTENTION_GRAD_LSE] = "lse",
                                                       [ATTENTION_GRAD_DO] = "do",
                                                       [ATTENTION_GRAD_DQ] = "dq",
                                                       [ATTENTION_GRAD_DK] = "dk",
                                                       [ATTENTION_GRAD_DV] = "dv",
                                                       [ATTENTION_GRAD_DSINKS] = "dsinks",
                                                       [ATTENTION_GRAD_DSLOPES] = "dslopes"};

const struct own_kind own_attention_grad = {.index = OWN_ATTENTION_GRAD,
                                            .op = OP_ATTENTION_GRAD,
                                            .name = "attention_grad",
                                            .size = sizeof(struct attention_grad_spec),
                                            .shown = ATTENTION_GRAD_USES,
                                            .use_name = shown,
                                            .stride_name = {"batch", "time", "head"},
                                            .bytes = bytes,
                                            .flops = flops,
                                            .by_data = by_data,
                                            .map = score,
                                            .print = print};

/* ---- What they read of each query ---- */

static int64_t delta_bytes(const void *spec)
{
    const struct attention_delta_spec *s = spec;
    int64_t rows = mul_counts(mul_counts(s->batch, s->tq), s->heads);
    int64_t read = dtype_bytes(s->use[ATTENTION_GRAD_O].dtype, mul_counts(rows, s->head_dim));
    bool dlse = s->use[ATTENTION_GRAD_DLSE].buffer >= 0;
    return add_counts(mul_counts(2, read), mul_counts(4 * (3 + dlse), rows));
}

static void print_delta(const void *spec, struct text *t)
{
    const struct attention_delta_spec *s = spec;
    text_printf(t, "attention_delta b=%lld q=%lld heads=%lld head_dim=%lld", (long long)s->batch,
                (long long)s->tq, (long long)s->heads, (long long)s->head_dim);
}

static const char *const shown_of_delta[ATTENTION_GRAD_USES] = {[ATTENTION_GRAD_O] = "o",
                                                                [ATTENTION_GRAD_LSE] = "lse",
                                                                [ATTENTION_GRAD_DO] = "do",
                                                                [ATTENTION_GRAD_DLSE] = "dlse",
                                                                [ATTENTION_GRAD_DQ] = "to"};

const struct own_kind own_attention_delta = {.index = OWN_ATTENTION_DELTA,
                                             .op = OP_ATTENTION_GRAD,
                                             .name = "attention_delta",
                                             .size = sizeof(struct attention_delta_spec),
                                             .shown = ATTENTION_GRAD_USES,
                                             .use_name = shown_of_delta,
                                             .stride_name = {"batch", "time", "head"},
                                             .bytes = delta_bytes,
                                             .print = print_delta};
