/* attention.c -- attention as a program: its work, its text. */
#include "attention.h"
#include "own.h"

#include <string.h>

int64_t attention_bias_bytes(const struct attention_spec *a)
{
    int64_t extent[] = {attention_batches(a), a->heads, a->tq, a->tk}, elements = 1;
    for (int i = 0; i < ARRAY_SIZE(extent); i++)
        if (a->use[ATTENTION_BIAS].stride[i]) elements = mul_counts(elements, extent[i]);
    return !attention_has(a, ATTENTION_BIAS) ? 0 : dtype_bytes(a->use[ATTENTION_BIAS].dtype, elements);
}

static int64_t bytes(const void *spec)
{
    const struct attention_spec *a = spec;
    int64_t keys = mul_counts(mul_counts(a->batch, a->head_dim), mul_counts(a->tk, a->kv_heads));
    int64_t queries = mul_counts(mul_counts(attention_batches(a), a->head_dim), mul_counts(a->tq, a->heads));
    int64_t read = add_counts(dtype_bytes(a->use[ATTENTION_K].dtype, keys),
                              dtype_bytes(a->use[ATTENTION_V].dtype, keys));
    return add_counts(add_counts(mul_counts(2, dtype_bytes(a->use[ATTENTION_Q].dtype, queries)), read),
                      attention_bias_bytes(a));
}

/* The sum of min(max(j, 0), most) for j < n. */
static double ramp(double n, double most)
{
    if (n <= 0) return 0;
    return n <= most ? n * (n - 1) / 2 : most * (most - 1) / 2 + most * (n - most);
}

/* Pairs of query and key that are not masked, if every sequence has all keys and ranges hide none. The query
 * at position p sees the keys below min(max(p + ahead + 1, 0), tk), or, if nothing limits it, below tk; all
 * but those below min(max(p + 1 - window, 0), tk). Packed queries count as shared out evenly. */
double attention_pairs(const struct attention_spec *a)
{
    double tq = (double)a->tq / (attention_is_packed(a) ? (double)MAX(a->batch, 1) : 1), tk = (double)a->tk;
    double past = (a->align == CODA_ALIGN_START ? 0 : tk - tq) + 1;
    double last = past + (double)a->ahead;
    double below = tq * tk, hidden = 0, window = (double)a->window;
    bool rows = a->align == CODA_ALIGN_LENGTH; /* at positions below 0 are none of the sequence */
    if (attention_is_limited(a))
        below = ramp(last + tq, tk) - ramp(rows ? MAX(last, (double)a->ahead + 1) : last, tk);
    else if (rows && (a->window || attention_is_placed(a))) below = MIN(tq, tk) * tk;
    if (a->window) hidden = ramp(past - window + tq, tk) - ramp(past - window, tk);
    return MAX(below - hidden, 0);
}

static double flops(const void *spec)
{
    const struct attention_spec *a = spec;
    return 4.0 * attention_pairs(a) * (double)a->batch * (double)a->heads * (double)a->head_dim;
}

/* Does data say how much there is to do? Caches have as many keys as lengths say. */
static bool by_data(const void *spec)
{
    const struct attention_spec *a = spec;
    return attention_has(a, ATTENTION_LENGTHS) || attention_has(a, ATTENTION_RANGES);
}

/* ---- Text ---- */

static const struct prim *score(const void *spec) { return ((const struct attention_spec *)spec)->score; }

static void print_bias(const struct attention_spec *a, struct text *t)
{
    if (!attention_has(a, ATTENTION_BIAS)) return;
    text_printf(t, " bias=%s[", dtype_name(a->use[ATTENTION_BIAS].dtype));
    for (int i = 0; i < 4; i++)
        text_printf(t, "%s%lld", i ? "," : "", (long long)a->use[ATTENTION_BIAS].stride[i]);
    text_append(t, "]");
}

static void print_names(const struct attention_spec *a, int first, int last, struct text *t)
{
    for (int i = first; i <= last; i++)
        if (attention_has(a, i)) text_printf(t, " %s", op_info[OP_ATTENTION].name[i]);
}

void attention_print(const struct attention_spec *a, struct text *t)
{
    text_printf(t, " batch=%lld tq=%lld tk=%lld heads=%lld kv_heads=%lld head_dim=%lld", (long long)a->batch,
                (long long)a->tq, (long long)a->tk, (long long)a->heads, (long long)a->kv_heads,
                (long long)a->head_dim);
    if (a->causal) text_append(t, " causal");
    if (a->window) text_printf(t, " window=%lld", (long long)a->window);
    if (a->align == CODA_ALIGN_START) text_append(t, " from_start");
    if (a->align == CODA_ALIGN_LENGTH) text_append(t, " from_length");
    if (a->ahead) text_printf(t, " ahead=%lld", (long long)a->ahead);
    if (a->softcap != 0) text_printf(t, " softcap=%a", a->softcap);
    if (a->score) text_printf(t, " score=%s", a->score->name);
    for (int i = 0; a->score && i < a->score->params; i++)
        text_printf(t, "%s%s=%a%s", i ? " " : " {", a->score->param_name[i], (double)a->score_param[i],
                    i + 1 < a->score->params ? "" : "}");
    print_names(a, ATTENTION_LENGTHS, ATTENTION_SINKS, t);
    if (attention_has(a, ATTENTION_LSE))
        text_append(t, attention_has(a, ATTENTION_O) ? " lse" : " lse alone");
    if (a->page) text_printf(t, " page=%lld", (long long)a->page);
    print_names(a, ATTENTION_K_SCALE, ATTENTION_STARTS, t);
    print_bias(a, t);
}

static void print(const void *spec, struct text *t)
{
    text_append(t, "attention");
    attention_print(spec, t);
}

/* The slots of what this run writes of k and v; what blocks leave for each other. */
static struct tensor_use *extra(void *spec, int i)
{
    struct attention_spec *a = spec;
    if (i == 0) return a->appends ? &a->written : NULL;
    return i == 1 && a->shares ? &a->parts : NULL;
}

static const char *const shown[ATTENTION_USES] = {[ATTENTION_Q] = "q",
                                                  [ATTENTION_K] = "k",
                                                  [ATTENTION_V] = "v",
                                                  [ATTENTION_O] = "o",
                                                  [ATTENTION_LSE] = "lse"};

const struct own_kind own_attention = {.index = OWN_ATTENTION,
                                       .op = OP_ATTENTION,
                                       .name = "attention",
                                       .size = sizeof(struct attention_spec),
                                       .shown = 4,
                                       .use_name = shown,
                                       .stride_name = {"batch", "time", "head"},
                                       .bytes = bytes,
                                       .flops = flops,
                                       .by_data = by_data,
                                       .map = score,
                                       .extra = extra,
                                       .print = print};
