/* api.h -- what the builder calls share. */
#ifndef API_H
#define API_H

#include "graph.h"
#include "sized.h"

#define OPERANDS(...)                                                                                        \
    (coda_value[]){__VA_ARGS__}, (int)(sizeof((coda_value[]){__VA_ARGS__}) / sizeof(coda_value))

/* True if calls on the graph have an effect: it exists and made no mistake yet. */
bool build_ready(graph *g, const char *what);
/* The node of a value: -1 for CODA_NONE, -2 with the graph poisoned for a value of another graph. */
int build_index(graph *g, const char *what, coda_value v);
/* The type of a value; NULL: it is CODA_NONE, or another graph's, or the graph has made a mistake. */
const struct type *value_type(const graph *g, coda_value v);
/* The same, with the graph poisoned for a value of another graph. */
const struct type *build_type(graph *g, const char *what, coda_value v);
/* Reads a caller's options; false with the graph poisoned if they are not what this version knows. */
bool build_options(graph *g, const char *what, const struct sized *s, void *own, const void *given);
#define BUILD_OPTIONS(g, what, type, own, given) build_options(g, what, &sized[SIZED_##type], own, given)
/* Appends `n` with these operands, as a new origin. */
coda_value build_node(graph *g, const char *what, struct node n, const coda_value *in, int nin);
coda_value build_value(int index);
enum { DEFAULT_IGNORED = -100 }; /* target of a cross-entropy, if the options say 0 */
/* The graph's mistake is what fail() said last, of these operands by these names. */
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
coda_value build_refuse(graph *g, const char *const *names, const coda_value *in, int nin);

/* api_pack.c: a caller's format, checked. */
struct pack_format;
coda_status read_pack_format(const coda_pack_format *given, struct pack_format *out);

/* api_symbols.c: values of symbols, in order; `given` names the argument that counts them. Failures have the
 * symbols' names. */
coda_status symbols_check(const char *call, const char *what, const char *given, const struct dims *t,
                          const int64_t *values, int count);
/* A failure if there are any; `instead` is the call that takes values. */
coda_status symbols_refuse(const char *call, const char *what, const struct dims *t, const char *instead);
/* api_plan.c: fails as no argument of the plan has the name. */
coda_status refuse_argument(const char *call, const coda_plan *p, const char *name);
/* api_warming.c: a call of coda_warm, whose functions may call it again, and free its plan. */
struct warming {
    const coda_plan *plan;
    coda_plan *freed;      /* the plan, once coda_plan_free was called for it */
    struct warming *outer; /* whose function called this one */
};
void warming_begin(struct warming *w, const coda_plan *p);
coda_plan *warming_end(struct warming *w); /* what is to be freed now, or NULL */
bool warming_frees(coda_plan *p);          /* does a coda_warm of p under way free it in the end? */
coda_status symbol_info(const char *call, const struct dims *t, int index, coda_symbol_info *out);

#endif
