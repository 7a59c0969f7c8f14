/* row_sums.c -- rows added by id, as two programs: one sorts the ids, the other adds. Their work, their text.
 * */
#include "row_sums.h"
#include "own.h"

int64_t sorted_ids(int64_t tokens, int64_t rows)
{
    return add_counts(add_counts(mul_counts(2, tokens), rows), 1);
}

/* As if each row of the result were named by some id: which are is data. */
static int64_t sum_bytes(const void *spec)
{
    const struct row_sums_spec *s = spec;
    int64_t read = dtype_bytes(s->use[ROW_SUMS_X].dtype, mul_counts(s->tokens, s->columns));
    int64_t written = mul_counts(mul_counts(s->rows, s->columns), 4);
    if (use_effect(&s->use[ROW_SUMS_SUMS]) & EFFECT_ADD) written = mul_counts(2, written);
    return add_counts(add_counts(read, written), mul_counts(4, sorted_ids(s->tokens, s->rows)));
}

static void print_sums(const void *spec, struct text *t)
{
    const struct row_sums_spec *s = spec;
    bool add = use_effect(&s->use[ROW_SUMS_SUMS]) & EFFECT_ADD;
    text_printf(t, "row_sums tokens=%lld rows=%lld columns=%lld%s", (long long)s->tokens, (long long)s->rows,
                (long long)s->columns, add ? " add" : "");
}

static const char *const shown[ROW_SUMS_USES] = {
    [ROW_SUMS_X] = "of", [ROW_SUMS_IDS] = "by", [ROW_SUMS_SUMS] = "to"};

const struct own_kind own_row_sums = {.index = OWN_ROW_SUMS,
                                      .op = OP_ROW_SUMS,
                                      .name = "row_sums",
                                      .size = sizeof(struct row_sums_spec),
                                      .shown = ROW_SUMS_USES,
                                      .use_name = shown,
                                      .bytes = sum_bytes,
                                      .print = print_sums};

static int64_t sort_bytes(const void *spec)
{
    const struct sort_ids_spec *s = spec;
    return add_counts(dtype_bytes(s->use[ROW_SUMS_IDS].dtype, s->tokens),
                      mul_counts(4, sorted_ids(s->tokens, s->rows)));
}

static void print_sort(const void *spec, struct text *t)
{
    const struct sort_ids_spec *s = spec;
    text_printf(t, "sort_ids tokens=%lld rows=%lld", (long long)s->tokens, (long long)s->rows);
}

static const char *const shown_of_sort[ROW_SUMS_USES] = {
    [ROW_SUMS_X] = "of", [ROW_SUMS_IDS] = "of", [ROW_SUMS_SUMS] = "to"};

const struct own_kind own_sort_ids = {.index = OWN_SORT_IDS,
                                      .op = OP_ROW_SUMS,
                                      .name = "sort_ids",
                                      .size = sizeof(struct sort_ids_spec),
                                      .shown = ROW_SUMS_USES,
                                      .use_name = shown_of_sort,
                                      .bytes = sort_bytes,
                                      .print = print_sort};
