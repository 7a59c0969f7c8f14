/* api_scope.c -- where what is built comes from: prefixes for errors, texts and plans. */
#include "api.h"

CODA_API void coda_scope_push(coda_graph *g, const char *format, ...)
{
    char word[2 * MOST_SCOPE]; /* one that is too long is cut off, and too long still */
    if (!build_ready(g, "scope_push")) return;
    if (!format) return graph_poison(g, CODA_E_INVALID, "scope_push: the format is NULL");
    va_list args;
    va_start(args, format);
    format_print(word, sizeof word, format, args);
    va_end(args);
    graph_scope_push(g, word);
}

CODA_API void coda_scope_pop(coda_graph *g)
{
    if (build_ready(g, "scope_pop")) graph_scope_pop(g);
}
