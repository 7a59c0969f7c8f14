/*
 * mistake.c -- a graph's first mistake, in one line that says where it is:
 *
 *     matmul %312 in layers.17.mlp: x is [16,64] but w is [64,65]; inner sizes 64 and 65 differ;
 *     where x = %311 (swiglu) f32[16,64], w = layers.17.w f32[64,65]
 *
 * What fails says the operation and what is wrong, "matmul: x is ...". Here the line gets the node that was
 * to come of it, and the operands. In a text that is being read, values go by the names that they have there.
 */
#include "graph.h"

#include <stdio.h>
#include <string.h>

/* ---- Names ---- */

/* The text's name of a value, or NULL. */
static const char *text_name(const graph *g, int value)
{
    const struct names *t = g->text_names;
    for (int i = 0; t && i < t->capacity; i++) {
        const char *name = names_at(t, i);
        if (name && names_find(t, name, -1) == value) return name;
    }
    return NULL;
}

static void print_value(const graph *g, int value, struct text *t)
{
    const struct node *n = &g->node[value];
    const char *name = text_name(g, value);
    if (op_is_leaf(n->op)) text_append(t, n->name);
    else if (name) text_printf(t, "%%%s (%s)", name, node_text(n));
    else text_printf(t, "%%%d (%s)", value, node_text(n));
    if (n->op == OP_GROUP) text_printf(t, " of %lld ranks", (long long)n->attr.group.ranks);
    else text_printf(t, " %s", type_text(&n->type).s);
}

static void print_operands(const graph *g, const char *const *names, const int *in, int nin, struct text *t)
{
    int shown = 0;
    for (int i = 0; i < nin && shown < NODE_READABLE; i++) {
        if (i && names && *names) names++;
        if (in[i] < 0 || in[i] >= g->nodes) continue;
        text_append(t, shown++ ? ", " : "; where ");
        if (names && *names) text_append(t, *names);
        else text_printf(t, "operand %d", i);
        text_append(t, " = ");
        print_value(g, in[i], t);
    }
}

/* ---- Where it is ---- */

/* Does the message's first word name what comes with a name of its own, or no part of a formula? */
static bool is_named(const char *word, size_t length)
{
    static const char *const named[] = {
        "input",     "weight", "state",   "scalar",  "output",  "symbol",  "map",        "dim",
        "graph",     "bind",   "rewrite", "dim_mul", "dim_add", "dim_sub", "define_map", "scope_push",
        "scope_pop", "scope",  "grad",    "adamw",   "sgd",     "muon"};
    for (int i = 0; i < ARRAY_SIZE(named); i++)
        if (strlen(named[i]) == length && !memcmp(named[i], word, length)) return true;
    return false;
}

/* "matmul: x is ..." as "matmul %312 in layers.17.mlp: x is ...", "input x: ..." as "input x in ..." */
static void print_place(const graph *g, const char *message, struct text *t)
{
    size_t word = strcspn(message, ": ");
    const char *colon = strstr(message, ": "), *scope = g->text_scope ? g->text_scope : graph_scope_now(g);
    bool node = message[word] == ':' && !is_named(message, word);
    if (!colon) colon = message + word;
    text_printf(t, "%.*s", (int)(colon - message), message);
    if (node && g->text_name) text_printf(t, " %%%s", g->text_name);
    else if (node) text_printf(t, " %%%d", g->nodes);
    if (scope) text_printf(t, " in %s", scope);
    text_append(t, colon);
}

/* Numbers of nodes mean something to whoever built the graph; not in one that is made of another. */
static bool tells_place(const graph *g, coda_status s)
{
    return !g->rewritten && (s == CODA_E_INVALID || s == CODA_E_UNSUPPORTED);
}

void graph_refuse(graph *g, coda_status status, const char *const *names, const int *in, int nin)
{
    struct text t = {0};
    if (!g || g->status != CODA_OK) return;
    if (tells_place(g, status)) {
        print_place(g, fail_message(), &t);
        print_operands(g, names, in, nin, &t);
    }
    if (t.length && !t.failed) fail(status, "%s", text_str(&t));
    text_free(&t);
    g->status = status;
    snprintf(g->error, sizeof g->error, "%s", fail_message());
}

void graph_poison(graph *g, coda_status status, const char *format, ...)
{
    if (g && g->status != CODA_OK) return;
    va_list args;
    va_start(args, format);
    vfail(status, format, args);
    va_end(args);
    graph_refuse(g, status, NULL, NULL, 0);
}

coda_status graph_mistake(const graph *g)
{
    if (g->status == CODA_OK) return CODA_OK;
    return fail(g->status, "%s%s", g->error, g->later ? "; calls after it did nothing" : "");
}
