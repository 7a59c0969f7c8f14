/*
 * graph_verify.c -- every invariant of a graph, checked from nothing but the graph.
 *
 * Builders and rewrites append through node_check() and shape_infer(); graph_verify() runs both again
 * over the finished graph, so that an edit behind graph_append's back is found, and named.
 */
#include "infer.h"

#include <string.h>

/* ---- One node ---- */

/* What turns scores into others is a map, if there is one. */
static coda_status check_score(const struct node *n)
{
    if (!n->prim || n->prim->kind == PRIM_MAP) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: score is %s, a reduction; it must be a map", op_info[n->op].text,
                n->prim->name);
}

/* How many operands the node takes; a message if its operation or primitive is none. */
static coda_status arity(const struct node *n, int *least, int *most)
{
    if ((int)n->op < 0 || n->op >= OP_COUNT) return fail(CODA_E_INVALID, "%d is no operation", (int)n->op);
    bool takes_prim = op_is_prim(n->op);
    *least = op_info[n->op].least;
    *most = op_info[n->op].most;
    if (op_takes_map(n->op)) return check_score(n);
    if (takes_prim != (n->prim != NULL))
        return fail(CODA_E_INVALID, "%s: it %s", op_info[n->op].text,
                    takes_prim ? "has no primitive" : "takes no primitive");
    if (!takes_prim) return CODA_OK;
    if ((n->op == OP_MAP) != (n->prim->kind == PRIM_MAP))
        return fail(CODA_E_INVALID, "%s: it is a %s, not a %s", n->prim->name,
                    n->op == OP_MAP ? "reduction" : "map", n->op == OP_MAP ? "map" : "reduction");
    *least = *most = n->prim->inputs;
    return CODA_OK;
}

static coda_status fail_absent(const struct node *n, int i)
{
    const struct op_info *op = &op_info[n->op];
    if (i >= op->named) return fail(CODA_E_INVALID, "%s: operand %d is CODA_NONE", node_word(n), i);
    return fail(CODA_E_INVALID, "%s: operand %d (%s) is CODA_NONE", node_word(n), i, op->name[i]);
}

coda_status node_check(const graph *g, const struct node *n, int index)
{
    int least = 0, most = 0;
    coda_status s = arity(n, &least, &most);
    if (s != CODA_OK) return s;
    const char *word = node_word(n);
    if (n->nin < least || n->nin > most)
        return least == most
                   ? fail(CODA_E_INVALID, "%s: takes %d operands, got %d", word, most, n->nin)
                   : fail(CODA_E_INVALID, "%s: takes %d to %d operands, got %d", word, least, most, n->nin);
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] >= index || n->in[i] >= g->nodes)
            return fail(CODA_E_INVALID, "%s: operand %d is no earlier value of this graph", word, i);
        if (n->in[i] < 0 && (i < least || i >= op_info[n->op].named)) return fail_absent(n, i);
    }
    return state_check(g, n, index);
}

/* ---- A whole graph ---- */

/* Passes on a failure with the node's name before it. */
static coda_status blame(const graph *g, int value, coda_status s)
{
    struct text name = {0};
    value_print(g, value, &name);
    fail(s, "%s: %s", text_str(&name), fail_message());
    text_free(&name);
    return s;
}

static coda_status verify_prim(const graph *g, const struct node *n)
{
    if (!n->prim || graph_find_prim(g, n->prim->name) == n->prim) return CODA_OK;
    return fail(CODA_E_INVALID, "its primitive %s belongs to no table of this graph", n->prim->name);
}

/* Inference again must change nothing: neither type nor attributes. */
static coda_status verify_type(const graph *g, const struct node *n)
{
    struct node again = *n;
    coda_status s = shape_infer(g, &again);
    if (s != CODA_OK) return s;
    if (!type_agrees(&again.type, &n->type))
        return fail(CODA_E_INVALID, "its type is %s but its operands make %s", type_text(&n->type).s,
                    type_text(&again.type).s);
    if (!attr_equal(&again, n)) return fail(CODA_E_INVALID, "its attributes are not complete");
    return CODA_OK;
}

/* Each version has one next, and views know what they look at. */
static coda_status verify_state(const graph *g, const struct node *n, int value)
{
    int next = n->next;
    bool good = n->state == node_state(g, n, value);
    if (op_is_version(n->op)) good = good && g->node[n->in[VERSION_OF]].next == value;
    if (next >= 0)
        good = good && next < g->nodes && op_is_version(g->node[next].op) &&
               g->node[next].in[VERSION_OF] == value;
    return good ? CODA_OK : fail(CODA_E_INVALID, "it is state %d, next %d", n->state, next);
}

static coda_status verify_node(const graph *g, int value)
{
    const struct node *n = &g->node[value];
    coda_status s = node_check(g, n, value);
    if (s == CODA_OK) s = verify_prim(g, n);
    if (s == CODA_OK) s = verify_type(g, n);
    if (s == CODA_OK) s = verify_state(g, n, value);
    if (s == CODA_OK && (n->origin < 0 || n->origin >= g->origins))
        s = fail(CODA_E_INVALID, "its origin is %d; must be 0..%d", n->origin, g->origins - 1);
    return s;
}

/* Sums are of fp32, so that they do not stand still where they are large. */
coda_status output_check(const char *name, const struct type *t, bool add)
{
    if (!add || t->dtype == CODA_F32) return CODA_OK;
    return fail(CODA_E_INVALID, "output %.40s: %s cannot be added to, only f32", name ? name : "(NULL)",
                type_text(t).s);
}

static coda_status verify_output(const graph *g, const struct output *o)
{
    if (o->value < 0 || o->value >= g->nodes)
        return fail(CODA_E_INVALID, "output %s: value %d of %d", o->name, o->value, g->nodes);
    coda_status s = output_check(o->name, &g->node[o->value].type, o->add);
    if (s != CODA_OK) return s;
    return strides_check("output", o->name, &g->node[o->value].type, o->stride);
}

static coda_status verify_name(struct names *seen, struct arena *a, const char *name)
{
    if (!name || !name_valid(name)) return fail(CODA_E_INVALID, "`%.40s` is no name", name ? name : "(NULL)");
    if (names_find(seen, name, 0)) return fail(CODA_E_INVALID, "the name %s is taken twice", name);
    if (!names_add(seen, a, name, 1)) return fail(CODA_E_MEMORY, "graph: out of memory in verify");
    return CODA_OK;
}

static coda_status verify_names(const graph *g)
{
    struct arena arena = {0};
    struct names seen = {0};
    coda_status s = CODA_OK;
    for (int i = 0; s == CODA_OK && i < g->dims->symbols; i++)
        s = verify_name(&seen, &arena, g->dims->symbol[i].name);
    for (int i = 0; s == CODA_OK && i < g->nodes; i++)
        if (op_is_leaf(g->node[i].op)) s = verify_name(&seen, &arena, g->node[i].name);
    for (int i = 0; s == CODA_OK && i < g->outputs; i++) s = verify_name(&seen, &arena, g->output[i].name);
    arena_free(&arena);
    return s;
}

coda_status graph_verify(const graph *g)
{
    if (!g) return fail(CODA_E_INVALID, "the graph is NULL");
    if (g->status != CODA_OK) return graph_mistake(g);
    coda_status s = verify_names(g);
    for (int i = 0; s == CODA_OK && i < g->nodes; i++) {
        s = verify_node(g, i);
        if (s != CODA_OK) s = blame(g, i, s);
    }
    for (int i = 0; s == CODA_OK && i < g->outputs; i++) s = verify_output(g, &g->output[i]);
    return s;
}
