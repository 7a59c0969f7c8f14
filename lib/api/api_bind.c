/* api_bind.c -- which memory is which argument, by name: looked up once, before any number of runs. */
#include "api.h"
#include "executable.h"
#include "shapes.h"

#include <string.h>

/* The sizes of all arguments: those of a plan without symbols, or of the largest values, or of these. */
struct sizes {
    const coda_plan *p;
    graph *bound; /* NULL: the plan's own */
};

static coda_status sizes_open(struct sizes *s, const coda_plan *p, const int64_t *dims)
{
    *s = (struct sizes){.p = p};
    if (!dims || !p->shapes) return CODA_OK;
    const graph *g = shapes_graph(p->shapes);
    coda_status status = symbols_check("bind", "plan", "dims", g->dims, dims, g->dims->symbols);
    if (status) return status;
    s->bound = graph_bind(g, "bind", dims);
    return s->bound ? CODA_OK : fail_status();
}

static size_t size_of(const struct sizes *s, int i)
{
    coda_arg_info a = CODA_ARG_INFO_INIT;
    if (!s->bound) return s->p->arg[i].bytes;
    graph_arg(s->bound, i, &a);
    return a.bytes;
}

/* Lists are mostly in the plan's own order: so the search begins where the last one ended. */
static int find(const coda_plan *p, const char *name, int from)
{
    for (int k = 0; k < p->args; k++) {
        int i = (from + k) % p->args;
        if (!strcmp(p->arg[i].name, name)) return i;
    }
    return -1;
}

static char missing; /* its address marks what is not bound yet: no caller has it */

static coda_status bind_one(void **args, const struct sizes *s, const coda_binding *b, int index, int *at)
{
    if (!b->name) return fail(CODA_E_INVALID, "bind: the name of bindings[%d] is NULL", index);
    int i = find(s->p, b->name, *at);
    if (i < 0) return refuse_argument("bind", s->p, b->name);
    if (args[i] != &missing) return fail(CODA_E_INVALID, "bind: %s is bound twice", b->name);
    if (b->bytes && b->bytes < size_of(s, i))
        return fail(CODA_E_INVALID, "bind: %s has %zu bytes; the plan wants %zu", b->name, b->bytes,
                    size_of(s, i));
    args[i] = b->data;
    *at = i + 1;
    return CODA_OK;
}

static coda_status check_all_bound(void *const *args, const coda_plan *p)
{
    int first = -1, count = 0;
    for (int i = 0; i < p->args; i++)
        if (args[i] == &missing && !count++) first = i;
    if (!count) return CODA_OK;
    if (count == 1) return fail(CODA_E_INVALID, "bind: %s is not bound", p->arg[first].name);
    return fail(CODA_E_INVALID, "bind: %s and %d other argument%s are not bound", p->arg[first].name,
                count - 1, count > 2 ? "s" : "");
}

CODA_API coda_status coda_bind(void **args, const coda_plan *p, const coda_binding *bindings, int count,
                               const int64_t *dims)
{
    struct sizes s;
    if (!args || !p || (!bindings && count))
        return fail(CODA_E_INVALID, "bind: %s is NULL", !args ? "args" : !p ? "plan" : "bindings");
    if (count < 0) return fail(CODA_E_INVALID, "bind: count is %d; must be >= 0", count);
    coda_status status = sizes_open(&s, p, dims);
    for (int i = 0; i < p->args; i++) args[i] = &missing;
    for (int i = 0, at = 0; i < count && !status; i++) status = bind_one(args, &s, &bindings[i], i, &at);
    if (!status) status = check_all_bound(args, p);
    for (int i = 0; i < p->args; i++)
        if (args[i] == &missing) args[i] = NULL;
    graph_free(s.bound);
    return status;
}
