/* fuzz_group.h -- a part of fuzz_api.c: the calls of coda_group.h. */
static coda_group *ranked; /* one of two ranks, whose other one has left; NULL at first */

static int call_coda_group_local(void)
{
    coda_group *out[2] = {NULL, NULL};
    coda_group_options o = {.timeout_ms = chance(98) ? (int)below(50) : (int)number()};
    int ranks = chance(95) ? 2 : -(int)below(3);
    int status = coda_group_local(chance(98) ? out : NULL, ranks, BOXED(o));
    if (status) return status;
    coda_group_free(ranked);
    coda_group_free(out[1]);
    ranked = out[0];
    return CODA_OK;
}
/* What it would take for one cannot be drawn. */
static int call_coda_group_nccl(void)
{
    coda_group *out;
    coda_group_options o = {.timeout_ms = (int)number()};
    return coda_group_nccl(chance(98) ? &out : NULL, NULL, BOXED(o));
}
static int call_coda_group_rank(void) { return sign(coda_group_rank(ranked) + !ranked), SILENT; }
static int call_coda_group_status(void)
{
    coda_status s = coda_group_status(ranked);
    return (int)s;
}
static int call_coda_group_abort(void) { return coda_group_abort(ranked), SILENT; }
static int call_coda_group_free(void)
{
    coda_group_free(ranked);
    ranked = NULL;
    return SILENT;
}
/* clang-format off */
BUILD(coda_group_input, name(), chance(50) ? 1 : chance(90) ? (int)below(5) : (int)number())
BINARY(coda_all_reduce)
BUILD(coda_reduce_scatter, value(), (int)below(4) - 1, value())
BUILD(coda_all_gather, value(), (int)below(4) - 1, value())
/* clang-format on */
