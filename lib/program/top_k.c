/* top_k.c -- the k largest of each row as a program: its work, its text. */
#include "top_k.h"
#include "own.h"

int64_t top_k_candidates(const struct top_k_spec *s)
{
    const struct tensor_use *x = &s->use[TOP_K_X];
    return x->reduce ? (int64_t)x->blocks * (x->reduce->state / 2) : s->columns;
}

static int64_t bytes(const void *spec)
{
    const struct top_k_spec *s = spec;
    const struct tensor_use *x = &s->use[TOP_K_X];
    int64_t row = x->reduce ? mul_counts(top_k_candidates(s), 8) : dtype_bytes(x->dtype, top_k_candidates(s));
    for (int i = TOP_K_OPERANDS; i < TOP_K_USES; i++)
        if (s->use[i].buffer >= 0) row = add_counts(row, dtype_bytes(s->use[i].dtype, s->k));
    return mul_counts(s->rows, row);
}

static void print(const void *spec, struct text *t)
{
    const struct top_k_spec *s = spec;
    text_printf(t, "top_k k=%lld rows=%lld columns=%lld", (long long)s->k, (long long)s->rows,
                (long long)s->columns);
}

static const char *const shown[TOP_K_USES] = {
    [TOP_K_X] = "of", [TOP_K_VALUES] = "to", [TOP_K_INDICES] = "to"};

const struct own_kind own_top_k = {.index = OWN_TOP_K,
                                   .op = OP_TOP_K,
                                   .name = "top_k",
                                   .size = sizeof(struct top_k_spec),
                                   .shown = TOP_K_USES,
                                   .use_name = shown,
                                   .bytes = bytes,
                                   .print = print};
