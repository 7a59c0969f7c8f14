/*
 * scope.c -- where nodes come from: "layers.17.mlp", for errors, texts and plans. A scope is no part of what
 * a node computes: nothing compares it, and no kernel has it in its text, name or key.
 *
 * A graph has each scope once, so that equal ones of a graph are equal pointers.
 */
#include "graph.h"

#include <string.h>

static bool is_valid(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" SCOPE_SIGNS);
    return n > 0 && n < MOST_SCOPE && s[n] == 0;
}

static coda_status refuse(graph *g, coda_status s)
{
    graph_poison(g, s, "%s", fail_message());
    return s;
}

static coda_status out_of_memory(const char *scope)
{
    return fail(CODA_E_MEMORY, "scope %s: out of memory", scope);
}

/* Its place in g->scope, or -1. Nodes mostly have the scope of those before them. */
static int find(const graph *g, const char *scope)
{
    if (g->last_scope && !strcmp(g->scope[g->last_scope - 1], scope)) return g->last_scope - 1;
    return names_find(&g->scope_names, scope, -1);
}

static bool add(graph *g, const char *scope)
{
    const char *copy = arena_string(&g->arena, scope);
    const char **more = arena_grow(&g->arena, g->scope, g->scopes, &g->scope_capacity, sizeof *more);
    if (!more) return false;
    g->scope = more;
    if (!copy || !names_add(&g->scope_names, &g->arena, copy, g->scopes)) return false;
    g->scope[g->scopes++] = copy;
    return true;
}

coda_status graph_scope(graph *g, const char **scope)
{
    if (!*scope) return CODA_OK;
    int i = find(g, *scope);
    if (i < 0 && !add(g, *scope)) return out_of_memory(*scope);
    if (i < 0) i = g->scopes - 1;
    g->last_scope = i + 1;
    *scope = g->scope[i];
    return CODA_OK;
}

/* What is open, with the word behind it. */
static coda_status join(const graph *g, const char *word, char *out)
{
    const char *outer = g->depth ? g->open[g->depth - 1] : "";
    if (g->depth == MOST_SCOPES)
        return fail(CODA_E_INVALID,
                    "scope_push: %d scopes are open; %.80s would be one more than there may be", g->depth,
                    word);
    if (!is_valid(word))
        return fail(CODA_E_INVALID,
                    "scope_push: `%.80s` is no scope: letters, digits and " SCOPE_SIGNS ", at most %d", word,
                    MOST_SCOPE - 1);
    if (strlen(outer) + strlen(word) + 1 >= MOST_SCOPE)
        return fail(CODA_E_INVALID, "scope_push: %.80s in %.80s has %d characters; at most %d", word, outer,
                    (int)(strlen(outer) + strlen(word) + 1), MOST_SCOPE - 1);
    format_line(out, MOST_SCOPE, "%s%s%s", outer, *outer ? "." : "", word);
    return CODA_OK;
}

coda_status graph_scope_push(graph *g, const char *word)
{
    char scope[MOST_SCOPE];
    const char *name = scope;
    coda_status s = join(g, word, scope);
    if (s == CODA_OK) s = graph_scope(g, &name);
    if (s != CODA_OK) return refuse(g, s);
    g->open[g->depth++] = name;
    return CODA_OK;
}

coda_status graph_scope_pop(graph *g)
{
    if (!g->depth) return refuse(g, fail(CODA_E_INVALID, "scope_pop: no scope is open"));
    g->depth--;
    return CODA_OK;
}
