/* offers.c -- do two ranks do the same at an exchange? */
#include "company.h"

#include <string.h>

bool offers_agree(const struct offer *a, const struct offer *b)
{
    if (a->beside || b->beside) return a->beside == b->beside;
    return !strcmp(a->operation, b->operation) && a->dtype == b->dtype && a->outer == b->outer &&
           a->extent == b->extent && a->inner == b->inner;
}

/* "all_reduce of f32 [1,4,1]"; NULL: nothing. */
static const char *describe(char *buf, size_t size, const struct offer *o)
{
    struct text t = {0};
    if (!o) return "no more";
    if (o->beside) text_printf(&t, "a plan that begins, with %s", o->operation);
    else
        text_printf(&t, "%s of %s [%lld,%lld,%lld]", o->operation,
                    o->dtype ? dtype_name((coda_dtype)o->dtype) : "f64", (long long)o->outer,
                    (long long)o->extent, (long long)o->inner);
    text_emit(&t, buf, size);
    text_free(&t);
    return buf;
}

void company_end_of_two(struct company *c, unsigned long long number, const struct offer *of_0, int r,
                        const struct offer *of_r)
{
    char a[100] = "", b[100] = "";
    company_end(c, CODA_E_INVALID, "exchange %llu: rank 0 has %s, rank %d has %s", number,
                describe(a, sizeof a, of_0), r, describe(b, sizeof b, of_r));
}
