/* exchange.c -- what ranks add up or put together, as a program: its work, its text. */
#include "own.h"

_Static_assert((int)REDUCE_SCATTER_USES == ALL_REDUCE_USES && (int)ALL_GATHER_USES == ALL_REDUCE_USES,
               "one struct");

static int64_t elements(const struct exchange_spec *s)
{
    return mul_counts(mul_counts(s->outer, s->extent), s->inner);
}

/* Each rank reads what it needs of the others, and writes its result. */
static int64_t bytes(const void *spec)
{
    const struct exchange_spec *s = spec;
    int64_t x = elements(s), all = mul_counts(x, s->ranks);
    int64_t moved = s->op == OP_ALL_REDUCE       ? add_counts(all, x)
                    : s->op == OP_REDUCE_SCATTER ? add_counts(x, x / s->ranks)
                                                 : mul_counts(2, all);
    return dtype_bytes(s->use[ALL_REDUCE_X].dtype, moved);
}

static void print(const void *spec, struct text *t)
{
    const struct exchange_spec *s = spec;
    text_printf(t, "%s ranks=%lld outer=%lld extent=%lld inner=%lld", op_info[s->op].text,
                (long long)s->ranks, (long long)s->outer, (long long)s->extent, (long long)s->inner);
}

static const char *const shown[ALL_REDUCE_USES] = {[ALL_REDUCE_X] = "of",
                                                   [ALL_REDUCE_GROUP] = "by",
                                                   [ALL_REDUCE_BEFORE] = "behind",
                                                   [ALL_REDUCE_SUM] = "to"};

const struct own_kind own_exchange = {.index = OWN_EXCHANGE,
                                      .op = OP_ALL_REDUCE,
                                      .like = {OP_REDUCE_SCATTER, OP_ALL_GATHER},
                                      .likes = 2,
                                      .name = "exchange",
                                      .size = sizeof(struct exchange_spec),
                                      .shown = ALL_REDUCE_USES,
                                      .use_name = shown,
                                      .bytes = bytes,
                                      .print = print};
