/* nucleus.c -- the least element of each row that top-k, top-p and min-p keep, as a program. */
#include "own.h"

static int64_t bytes(const void *spec)
{
    const struct nucleus_spec *s = spec;
    return mul_counts(s->rows, add_counts(dtype_bytes(s->use[NUCLEUS_X].dtype, s->columns), 4));
}

static void print(const void *spec, struct text *t)
{
    const struct nucleus_spec *s = spec;
    text_printf(t, "nucleus rows=%lld columns=%lld", (long long)s->rows, (long long)s->columns);
}

static const char *const shown[NUCLEUS_USES] = {
    [NUCLEUS_X] = "of",     [NUCLEUS_TEMPERATURE] = "by", [NUCLEUS_TOP_K] = "by",
    [NUCLEUS_TOP_P] = "by", [NUCLEUS_MIN_P] = "by",       [NUCLEUS_LEAST] = "to"};

const struct own_kind own_nucleus = {.index = OWN_NUCLEUS,
                                     .op = OP_NUCLEUS,
                                     .name = "nucleus",
                                     .size = sizeof(struct nucleus_spec),
                                     .shown = NUCLEUS_USES,
                                     .use_name = shown,
                                     .bytes = bytes,
                                     .print = print};
