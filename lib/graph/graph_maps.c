/* graph_maps.c -- maps of the caller, which belong to one graph: their texts and derivatives. */
#include "graph.h"

#include "closed_text.h"

#include <string.h>

const struct prim *graph_find_prim(const graph *g, const char *name)
{
    int i = names_find(&g->map_names, name, -1);
    return i >= 0 ? g->map[i] : prim_find(name);
}

/* Words of the text form that a map's name would make ambiguous. */
static bool is_reserved(const char *name)
{
    for (int i = 0; i < OP_COUNT; i++)
        if (strcmp(name, op_info[i].text) == 0) return true;
    return strcmp(name, "output") == 0;
}

/* The map that a derivative of d names, of `own` if it is d itself; NULL with the message set. */
static const struct prim *find_partial(const graph *g, const coda_map_def *d, int i, const struct prim *own)
{
    const char *name = d->grad[i];
    const struct prim *p = strcmp(name, d->name) == 0 ? own : graph_find_prim(g, name);
    if (!p || p->kind != PRIM_MAP)
        fail(CODA_E_INVALID, "map %s: grad[%d] is `%.64s`, which is no map of this graph, nor 0 or 1",
             d->name, i, name);
    else if (p->inputs > d->inputs || p->params != d->params)
        fail(CODA_E_INVALID,
             "map %s: grad[%d] is %s, which takes %d operands and %d params; %s has %d and %d", d->name, i,
             p->name, p->inputs, p->params, d->name, d->inputs, d->params);
    else return p;
    return NULL;
}

static coda_status read_partials(const graph *g, const coda_map_def *d, struct prim *p)
{
    for (int i = 0; i < PRIM_MAX_INPUTS; i++) {
        const char *name = d->grad[i];
        if (!name) continue;
        if (i >= d->inputs)
            return fail(CODA_E_INVALID, "map %s: grad[%d] is `%.64s`, but it has %d operands", d->name, i,
                        name, d->inputs);
        if (strcmp(name, "0") == 0) p->facts.zero |= 1u << i;
        else if (strcmp(name, "1") == 0) p->facts.one |= 1u << i;
        else if (!(p->facts.grad[i] = find_partial(g, d, i, p))) return fail_status();
    }
    return CODA_OK;
}

static coda_status check_map(const graph *g, const coda_map_def *d)
{
    char why[160];
    if (!d->name || !name_valid(d->name) || strchr(d->name, '.') || strlen(d->name) > 63)
        return fail(CODA_E_INVALID, "map: `%.40s` is no identifier of at most 63 characters",
                    d->name ? d->name : "(NULL)");
    if (is_reserved(d->name) || graph_find_prim(g, d->name))
        return fail(CODA_E_INVALID, "map %s: the name is taken", d->name);
    if (d->inputs < 1 || d->inputs > PRIM_MAX_INPUTS)
        return fail(CODA_E_INVALID, "map %s: %d inputs; must be 1..%d", d->name, d->inputs, PRIM_MAX_INPUTS);
    if (d->params < 0 || d->params > PRIM_MAX_PARAMS)
        return fail(CODA_E_INVALID, "map %s: %d params; must be 0..%d", d->name, d->params, PRIM_MAX_PARAMS);
    if (!d->source || !d->source[0]) return fail(CODA_E_INVALID, "map %s: it has no source", d->name);
    if (!text_is_closed(d->source, NULL, why, sizeof why))
        return fail(CODA_E_INVALID, "map %s: its source must stand for itself, but %s", d->name, why);
    return CODA_OK;
}

static coda_status out_of_memory(const graph *g)
{
    return fail(CODA_E_MEMORY, "graph: out of memory after %d maps", g->maps);
}

static coda_status add_map(graph *g, const coda_map_def *d)
{
    static const char *const param_name[PRIM_MAX_PARAMS] = {"p0", "p1", "p2", "p3"};
    struct prim **map = arena_grow(&g->arena, g->map, g->maps, &g->map_capacity, sizeof *map);
    if (!map) return out_of_memory(g);
    g->map = map;
    struct prim *p = ARENA_NEW(&g->arena, struct prim, 1);
    if (!p) return out_of_memory(g);
    *p = (struct prim){.name = arena_string(&g->arena, d->name),
                       .kind = PRIM_MAP,
                       .inputs = d->inputs,
                       .params = d->params,
                       .source = arena_string(&g->arena, d->source),
                       .reference = d->reference};
    if (!p->name || !p->source) return out_of_memory(g);
    coda_status s = read_partials(g, d, p);
    if (s != CODA_OK) return s;
    memcpy(p->param_name, param_name, sizeof param_name[0] * (size_t)d->params);
    if (!names_add(&g->map_names, &g->arena, p->name, g->maps)) return out_of_memory(g);
    g->map[g->maps++] = p;
    return CODA_OK;
}

coda_status graph_define_map(graph *g, const coda_map_def *def)
{
    if (g->status != CODA_OK) return graph_mistake(g);
    coda_status s = check_map(g, def);
    if (s == CODA_OK) s = add_map(g, def);
    if (s != CODA_OK) graph_poison(g, s, "%s", fail_message());
    return s;
}
