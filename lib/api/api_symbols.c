/* api_symbols.c -- what calls say of symbols: which there are, and whether values fit. */
#include "api.h"

#include <stdio.h>

coda_status symbol_info(const char *call, const struct dims *t, int index, coda_symbol_info *out)
{
    if (SIZED_CHECK(call, coda_symbol_info, out)) return CODA_E_INVALID;
    if (index < 0 || index >= t->symbols)
        return fail(CODA_E_INVALID, "%s: index is %d of %d", call, index, t->symbols);
    const struct symbol *s = &t->symbol[index];
    coda_symbol_info own = {sizeof own, s->name, s->least, s->most, s->multiple};
    SIZED_WRITE(coda_symbol_info, out, &own);
    return CODA_OK;
}

/* "2 symbols (B, T)", cut off where there are many. */
static struct type_text count_text(const struct dims *t)
{
    struct type_text out;
    struct text names = {0};
    dims_print_symbols(t, &names);
    snprintf(out.s, sizeof out.s, "%d symbol%s%s%.120s%s", t->symbols, t->symbols == 1 ? "" : "s",
             t->symbols ? " (" : "", text_str(&names), t->symbols ? ")" : "");
    text_free(&names);
    return out;
}

coda_status symbols_check(const char *call, const char *what, const char *given, const struct dims *t,
                          const int64_t *values, int count)
{
    if (count != t->symbols)
        return fail(CODA_E_INVALID, "%s: the %s has %s; %s is %d", call, what, count_text(t).s, given, count);
    if (count && !values)
        return fail(CODA_E_INVALID, "%s: dims is NULL; the %s has %s", call, what, count_text(t).s);
    return dims_check(t, call, values);
}

/* For what takes no values. */
coda_status symbols_refuse(const char *call, const char *what, const struct dims *t, const char *instead)
{
    struct text names = {0};
    if (!t->symbols) return CODA_OK;
    dims_print_symbols(t, &names);
    coda_status s = fail(CODA_E_INVALID, "%s: the %s has symbols (%.200s): %s gives them values", call, what,
                         text_str(&names), instead);
    text_free(&names);
    return s;
}
