/*
 * graph_print.c -- a graph as text, one node per line; graph_parse.c reads the same text back.
 *
 *     map leaky(2; 1) "DEV static float apply(float x, float y, float a) { return x > y ? x : a * y; }"
 *     dim %T = 16..4096 step 16
 *     %x = input bf16[T,4096] stride=[8192,1]
 *     %w = weight bf16[4096,4096]
 *     %2 = matmul %x, %w  ; bf16[T,4096]
 *     %3 = rms_norm %2 {eps=0x1.4f8b58p-17}  ; bf16[T,4096]
 *     output %y = %3
 *
 * Leaves go by their names, other values by their index. A map or a reduction is the name of its
 * primitive. `_` is an absent operand, `@%2` says that a node is part of the operation that began
 * with %2, `@layers.17.mlp` which scope it has. Integer attributes of 0 and dense strides are left
 * out. Floats are hexadecimal, hence exact. Everything after `;` is a comment.
 * Of a graph with a mistake it is what was built until then, and the mistake as its last line.
 */
#include "graph.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Words ---- */

/* As %a, but with the same digits in every locale and C library. */
static void print_float(float x, struct text *t)
{
    if (signbit(x) && !isnan(x)) text_append(t, "-");
    if (!isfinite(x) || x == 0) {
        text_append(t, isnan(x) ? "nan" : isinf(x) ? "inf" : "0x0p+0");
        return;
    }
    int exponent;
    double mantissa = 2 * frexp(fabsf(x), &exponent); /* [1,2), 23 bits after the point */
    unsigned bits = (unsigned)((mantissa - 1) * 0x1p24);
    int digits = 6;
    for (; digits && !(bits & 15); digits--) bits >>= 4;
    text_append(t, "0x1");
    if (digits) text_printf(t, ".%0*x", digits, bits);
    text_printf(t, "p%+d", exponent - 1);
}

static void print_string(const char *s, struct text *t)
{
    text_append(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '\n') text_append(t, "\\n");
        else if (c == '"' || c == '\\') text_printf(t, "\\%c", c);
        else if (c < 32 || c > 126) text_printf(t, "\\x%02x", c);
        else text_printf(t, "%c", c);
    }
    text_append(t, "\"");
}

void value_print(const graph *g, int value, struct text *t)
{
    const struct node *n = value >= 0 && value < g->nodes ? &g->node[value] : NULL;
    if (!n) text_append(t, "_");
    else if (op_is_leaf(n->op)) text_printf(t, "%%%s", n->name ? n->name : "?");
    else text_printf(t, "%%%d", value);
}

struct value_text value_text(const graph *g, int value)
{
    struct value_text out;
    struct text t = {0};
    value_print(g, value, &t);
    format_line(out.s, sizeof out.s, "%s", text_str(&t));
    text_free(&t);
    return out;
}

static void print_strides(const struct type *type, const int64_t *stride, struct text *t)
{
    int64_t dense[CODA_MAX_RANK];
    dense_strides(type, dense);
    if (memcmp(dense, stride, sizeof dense[0] * (size_t)type->rank) == 0) return;
    text_append(t, " stride=[");
    extents_print(type->dims, stride, type->rank, t);
    text_append(t, "]");
}

/* ---- Attributes ---- */

static void print_format(int64_t number, struct text *t)
{
    struct pack_format f = graph_format_of(number);
    text_append(t, pack_word(&f).s);
}

static void print_value(const graph *g, const struct node *n, int k, struct text *t)
{
    switch (attr_kind(n, k)) {
    case ATTR_FLOAT:
    case ATTR_FACTOR: print_float(attr_float(n, k), t); break;
    case ATTR_INTEGER:
    case ATTR_RESULT: text_printf(t, "%" PRId64, attr_integer(n, k)); break;
    case ATTR_EXTENT: dims_print(g->dims, attr_integer(n, k), t); break;
    case ATTR_FORMAT: print_format(attr_integer(n, k), t); break;
    case ATTR_DTYPE: text_append(t, dtype_name((coda_dtype)attr_integer(n, k))); break;
    }
}

/* Prints attributes `first` to `end` - 1, in the order of ops.def; behind them "score=MAP {...}" where
 * `score` is its map. */
static void print_some(const graph *g, const struct node *n, int first, int end, const struct prim *score,
                       struct text *t)
{
    int printed = 0;
    for (int k = first; k < end; k++) {
        bool integer = !attr_is_float(n, k), factor = attr_kind(n, k) == ATTR_FACTOR;
        if ((integer && attr_integer(n, k) == 0) || (factor && attr_float(n, k) == 0)) continue;
        text_printf(t, "%s%s=", printed++ ? ", " : " {", attr_key(n, k));
        print_value(g, n, k, t);
    }
    if (score) {
        text_printf(t, "%sscore=%s", printed++ ? ", " : " {", score->name);
        print_some(g, n, end, attr_count(n), NULL, t);
    }
    if (printed) text_append(t, "}");
}

static void print_attributes(const graph *g, const struct node *n, struct text *t)
{
    if (op_is_prim(n->op)) print_some(g, n, 0, attr_count(n), NULL, t);
    else print_some(g, n, 0, attr_own(n), n->prim, t);
}

/* ---- Lines ---- */

static void print_scope(const struct node *n, struct text *t)
{
    if (n->scope) text_printf(t, " @%s", n->scope);
}

/* `first` is the first node of this one's origin. */
static void print_node(const graph *g, int value, int first, struct text *t)
{
    const struct node *n = &g->node[value];
    value_print(g, value, t);
    text_printf(t, " = %s", node_text(n));
    if (op_is_leaf(n->op)) {
        if (n->op != OP_GROUP) text_append(t, " ");
        if (n->op == OP_SCALAR) text_append(t, dtype_name(n->type.dtype));
        else if (n->op != OP_GROUP) type_print(&n->type, t);
        print_strides(&n->type, n->stride, t);
        print_attributes(g, n, t);
        print_scope(n, t);
        return;
    }
    for (int i = 0; i < n->nin; i++) {
        text_append(t, i ? ", " : " ");
        value_print(g, n->in[i], t);
    }
    print_attributes(g, n, t);
    if (first != value) {
        text_append(t, " @");
        value_print(g, first, t);
    }
    print_scope(n, t);
    text_append(t, "  ; ");
    type_print(&n->type, t);
}

void node_print(const graph *g, int value, struct text *t)
{
    int first = 0;
    while (g->node[first].origin != g->node[value].origin) first++;
    print_node(g, value, first, t);
}

static void print_map(const struct prim *p, struct text *t)
{
    text_printf(t, "map %s(%d", p->name, p->inputs);
    if (p->params) text_printf(t, "; %d", p->params);
    text_append(t, ") ");
    print_string(p->source, t);
    const char *before = " {";
    for (int i = 0; i < p->inputs; i++) {
        const char *name = prim_partial_name(p, i);
        if (!name) continue;
        text_printf(t, "%sgrad%d=%s", before, i, name);
        before = ", ";
    }
    text_append(t, *before == ',' ? "}\n" : "\n");
}

static void print_symbol(const struct symbol *s, struct text *t)
{
    text_printf(t, "dim %%%s = %" PRId64 "..%" PRId64, s->name, s->least, s->most);
    if (s->multiple > 1) text_printf(t, " step %" PRId64, s->multiple);
    text_append(t, "\n");
}

static void print_output(const graph *g, const struct output *o, struct text *t)
{
    text_printf(t, "output %%%s %s ", o->name, o->add ? "+=" : "=");
    value_print(g, o->value, t);
    print_strides(&g->node[o->value].type, o->stride, t);
    text_append(t, "\n");
}

void graph_print(const graph *g, struct text *t)
{
    int *first = calloc((size_t)g->origins + 1, sizeof *first); /* of each origin: node + 1, or 0 */
    if (!first) t->failed = true;
    for (int i = 0; i < g->dims->symbols; i++) print_symbol(&g->dims->symbol[i], t);
    for (int i = 0; i < g->maps; i++) print_map(g->map[i], t);
    for (int i = 0; i < g->nodes && !t->failed; i++) {
        int *f = &first[MIN((unsigned)g->node[i].origin, (unsigned)g->origins)];
        if (!*f) *f = i + 1;
        print_node(g, i, *f - 1, t);
        text_append(t, "\n");
    }
    for (int i = 0; i < g->outputs; i++) print_output(g, &g->output[i], t);
    if (g->status != CODA_OK) text_printf(t, "; mistake: %s\n", g->error);
    free(first);
}

/* ---- For debuggers ---- */

const char *debug_graph(const graph *g)
{
    struct text t = {0};
    if (g) graph_print(g, &t);
    return debug_show(&t);
}
