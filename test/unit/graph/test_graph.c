/* test_graph.c -- appending, poison, origins, and the way from one graph to another. */
#include "graph.h" /* before check.h, which has a macro called fail */

#include "util_mistake.h"
#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

static int leaf(graph *g, enum op op, const char *name, int64_t rows, int64_t columns)
{
    struct node n = {.op = op, .name = name, .type = {CODA_F32, 2, {rows, columns}}, .origin = -1};
    dense_strides(&n.type, n.stride);
    return graph_append(g, &n);
}

static int unary(graph *g, enum op op, int x, int origin)
{
    return graph_append(g, &(struct node){.op = op, .nin = 1, .in = &x, .origin = origin});
}

START_TEST(grows)
{
    enum { N = 5000 };
    graph *g = graph_new();
    int x = leaf(g, OP_INPUT, "x", 3, 4);
    const struct node *first = &g->node[0];
    for (int i = 0; i < N; i++) x = graph_map(g, "relu", x, -1, NULL);
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "y%d", i);
        ck_assert_int_eq(graph_append_output(g, name, i + 1, NULL), i);
    }
    ck_assert_int_eq(x, N);
    ck_assert_int_eq(g->nodes, N + 1);
    ck_assert_str_eq(first->name, "x"); /* a pointer from before still reads */
    ck_assert_int_eq(graph_verify(g), CODA_OK);
    ck_assert_int_eq(graph_uses(g, 0), 1);
    ck_assert_int_eq(graph_uses(g, 1), 2);
    graph_free(g);
    graph_free(NULL);
}
END_TEST

/* The template's arrays are copied, absent operands at the end are cut, and four may be read. */
START_TEST(owns_operands)
{
    graph *g = graph_new();
    int in[3] = {leaf(g, OP_INPUT, "x", 3, 4), -1, -7}, one = in[0];
    int n = graph_append(g, &(struct node){.op = OP_LAYER_NORM, .nin = 3, .in = in, .origin = -1});
    in[0] = 99;
    ck_assert_int_eq(g->node[n].nin, 1);
    ck_assert_int_eq(g->node[n].in[0], one);
    for (int i = 1; i < 4; i++) ck_assert_int_eq(g->node[n].in[i], -1);
    graph_free(g);
}
END_TEST

static int matmul(graph *g, int x, int w, bool kn)
{
    struct node n = {.op = OP_MATMUL, .nin = 2, .in = (int[]){x, w}, .attr.matmul.kn = kn, .origin = -1};
    return graph_append(g, &n);
}

START_TEST(poison_keeps_the_first_mistake)
{
    graph *g = graph_new();
    int x = leaf(g, OP_INPUT, "x", 3, 4);
    const char *first = "matmul %1: x is [3,4] but w is [3,4] (kn); inner sizes 4 and 3 differ;"
                        " a w of [N,K] is for coda_matmul, or kn=0; where x = x f32[3,4], w = x f32[3,4]";
    ck_assert_int_eq(matmul(g, x, x, true), -1);
    ck_assert_str_eq(coda_error(), first);
    ck_assert_str_eq(g->error, first);
    (fail)(CODA_E_IO, "another matter"); /* the function, not the macro */
    graph_poison(g, CODA_E_MEMORY, "second");
    ck_assert_int_eq(leaf(g, OP_INPUT, "z", -1, -1), -1);
    ck_assert_int_eq(graph_map(g, "no such map", x, x, NULL), -1);
    ck_assert_int_eq(graph_append_output(g, "y", x, NULL), -1);
    ck_assert_str_eq(coda_error(), "another matter"); /* quietly */
    ck_assert_int_eq(g->status, CODA_E_INVALID);
    ck_assert_str_eq(g->error, first);
    ck_assert_int_eq(g->nodes, 1);
    ck_assert_int_eq(graph_verify(g), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), first);
    graph_free(g);
}
END_TEST

static const struct {
    const char *name, *expected;
} names[] = {
    {"y", ""},
    {"_layer.0.w_q", ""},
    {NULL, "input: the name is NULL"},
    {"", "input: `` is no name: a letter or _, then letters, digits, _ or ., at most 255"},
    {"9x", "input: `9x` is no name: a letter or _, then letters, digits, _ or ., at most 255"},
    {".x", "input: `.x` is no name: a letter or _, then letters, digits, _ or ., at most 255"},
    {"a b", "input: `a b` is no name: a letter or _, then letters, digits, _ or ., at most 255"},
    {"\xc3\xa9", "input: `\xc3\xa9` is no name: a letter or _, then letters, digits, _ or ., at most 255"},
    {"x", "input x: the name is taken, by weight f32[3,4]"},
    {"out", "input out: the name is taken, by an output"},
};

START_TEST(name)
{
    graph *g = graph_new();
    graph_append_output(g, "out", leaf(g, OP_WEIGHT, "x", 3, 4), NULL);
    int n = leaf(g, OP_INPUT, names[_i].name, 1, 1);
    ck_assert_int_eq(n < 0, names[_i].expected[0] != 0);
    ck_assert_str_eq(g->error, names[_i].expected);
    graph_free(g);
}
END_TEST

START_TEST(name_length)
{
    char longest[257];
    memset(longest, 'a', sizeof longest);
    longest[256] = 0;
    ck_assert(!name_valid(longest));
    longest[255] = 0;
    ck_assert(name_valid(longest));
}
END_TEST

START_TEST(outputs)
{
    graph *g = graph_new();
    int x = leaf(g, OP_INPUT, "x", 3, 4);
    ck_assert_int_eq(graph_append_output(g, "y", x, (int64_t[]){1, 3}), 0);
    ck_assert_int_eq(g->output[0].stride[1], 3);
    ck_assert_int_eq(graph_append_output(g, "z", x, NULL), 1);
    ck_assert_int_eq(g->output[1].stride[0], 4);
    ck_assert_int_eq(graph_append_output(g, "x", x, NULL), -1);
    ck_assert_str_eq(g->error, "output x: the name is taken, by input f32[3,4]");
    graph_free(g);
    g = graph_new();
    ck_assert_int_eq(graph_append_output(g, "y", 0, NULL), -1);
    ck_assert_str_eq(g->error, "output y: no value of this graph");
    graph_free(g);
}
END_TEST

/* A new operation gets an origin that no node has, in a graph and in one made from it. */
START_TEST(origins)
{
    graph *g = graph_new();
    int x = leaf(g, OP_INPUT, "x", 3, 4), a = unary(g, OP_SOFTMAX, x, -1), b = unary(g, OP_SOFTMAX, a, a);
    int c = unary(g, OP_SOFTMAX, b, -1);
    ck_assert_int_eq(g->node[x].origin, 0);
    ck_assert_int_eq(g->node[b].origin, a);
    ck_assert_int_eq(g->node[c].origin, c);
    graph *h = graph_like(g);
    int map[] = {graph_copy_node(h, g, x, NULL), -1, -1, -1};
    map[c] = unary(h, OP_SOFTMAX, map[x], -1);
    ck_assert_int_eq(h->node[map[x]].origin, 0);
    ck_assert_int_ge(h->node[map[c]].origin, g->nodes);
    map[b] = map[c];
    int copy = graph_copy_node(h, g, c, map);
    ck_assert_int_eq(h->node[copy].origin, c);
    ck_assert_int_eq(graph_verify(h), CODA_OK);
    graph_free(g);
    graph_free(h);
}
END_TEST

static double twice(const double *in, const double *params) { return in[0] * params[0]; }

/* A copy stands on its own: names, user maps and outputs are in its own arena. */
START_TEST(copies_stand_alone)
{
    graph *g = graph_new();
    coda_map_def def = {
        sizeof def, "my_map", 1, 1, "DEV static float apply(float x, float a) { return a * x; }",
        twice,      {"scale"}};
    ck_assert_int_eq(graph_define_map(g, &def), CODA_OK);
    coda_map_def self = {sizeof def, "self", 2, 1, "source", NULL, {"my_map", "self"}};
    ck_assert_int_eq(graph_define_map(g, &self), CODA_OK);
    int x = leaf(g, OP_WEIGHT, "x", 3, 4), y = graph_map(g, "my_map", x, -1, (float[]){2});
    graph_append_output(g, "y", y, (int64_t[]){1, 3});
    graph *h = graph_like(g);
    int map[2];
    for (int i = 0; i < g->nodes; i++) map[i] = graph_copy_node(h, g, i, map);
    ck_assert_int_eq(graph_copy_outputs(h, g, map), 0);
    struct text before = {0}, after = {0};
    graph_print(g, &before);
    graph_free(g);
    ck_assert_int_eq(graph_verify(h), CODA_OK);
    graph_print(h, &after);
    ck_assert_str_eq(text_str(&before), text_str(&after));
    ck_assert(h->node[1].prim->reference == twice);
    text_free(&before);
    text_free(&after);
    graph_free(h);
}
END_TEST

/* Another graph's map counts only if this one has a map of that name. */
START_TEST(foreign_map)
{
    graph *g = graph_new(), *h = graph_new();
    coda_map_def def = {sizeof def, "my_map", 1, 0, "source", NULL, {NULL}};
    graph_define_map(g, &def);
    int x = leaf(h, OP_INPUT, "x", 1, 1);
    struct node n = {.op = OP_MAP, .prim = g->map[0], .nin = 1, .in = &x, .origin = -1};
    ck_assert_int_eq(graph_append(h, &n), -1);
    ck_assert_str_eq(mistake_plain(h->error), "my_map: not defined in this graph");
    graph_free(g);
    graph_free(h);
}
END_TEST

/* Attributes are what ops.def names: bytes between them, and those of other operations, say nothing. */
START_TEST(attributes_are_compared_by_name)
{
    const struct attr_rope rope = {10000, 64, 32, 4, 1, 1, 2, {4, 6, 6}, 1};
    struct node a = {.op = OP_ROPE}, b = {.op = OP_ROPE};
    memset(&a.attr, 0x55, sizeof a.attr);
    memset(&b.attr, 0xaa, sizeof b.attr);
    ck_assert_int_eq(attr_count(&a), 7 + CODA_MAX_RANK + 1);
    for (struct node *n = &a; n; n = n == &a ? &b : NULL) {
        n->attr.rope.base = rope.base;
        n->attr.rope.head_dim = rope.head_dim;
        n->attr.rope.rotary = rope.rotary;
        n->attr.rope.heads = rope.heads;
        n->attr.rope.half = rope.half;
        n->attr.rope.inverse = rope.inverse;
        n->attr.rope.scale = rope.scale;
        memcpy(n->attr.rope.section, rope.section, sizeof rope.section);
        n->attr.rope.interleave_sections = rope.interleave_sections;
    }
    ck_assert(memcmp(&a.attr, &b.attr, sizeof a.attr) != 0);
    ck_assert(attr_equal(&a, &b));
    for (int k = 0; k < attr_count(&a); k++) {
        struct node other = b;
        if (attr_is_float(&b, k)) attr_set_float(&other, k, attr_float(&b, k) + 1);
        else attr_set_integer(&other, k, attr_integer(&b, k) + 1);
        ck_assert_msg(!attr_equal(&a, &other), "%s makes no difference", attr_key(&a, k));
    }
}
END_TEST

/* A map has as many as it has parameters, by their names; a 0 and its negative differ. */
START_TEST(attributes_of_maps)
{
    struct node a = {.op = OP_MAP, .prim = prim_find("nll_loss")}, b = a;
    ck_assert_int_eq(attr_count(&a), 2);
    ck_assert_str_eq(attr_key(&a, 1), "classes");
    b.attr.map.param[2] = 1;
    ck_assert(attr_equal(&a, &b));
    b.attr.map.param[1] = -0.0f;
    ck_assert(!attr_equal(&a, &b));
    ck_assert_str_eq(attr_key(&(struct node){.op = OP_REDUCE, .prim = prim_find("sum")}, 0), "columns");
    ck_assert_str_eq(attr_key(&(struct node){.op = OP_TRANSPOSE}, 5), "p5");
}
END_TEST

START_TEST(shorthands)
{
    graph *g = graph_new();
    int x = leaf(g, OP_INPUT, "x", 3, 4), key = leaf(g, OP_INPUT, "key", 3, 1);
    int scaled = graph_map(g, "scale", x, -1, (float[]){0.5f});
    ck_assert(g->node[scaled].attr.map.param[0] == 0.5f);
    ck_assert_str_eq(type_text(&g->node[graph_reduce(g, "sum", x, -1)].type).s, "f32[3,1]");
    ck_assert_str_eq(type_text(&g->node[graph_reduce(g, "select", x, key)].type).s, "f32[3,1]");
    ck_assert_str_eq(type_text(&g->node[graph_reshape(g, x, 3, (int64_t[]){2, 3, 2})].type).s, "f32[2,3,2]");
    ck_assert_int_eq(graph_map(g, "sum", x, -1, NULL), -1);
    ck_assert_str_eq(mistake_plain(g->error), "sum: it is a reduction, not a map");
    graph_free(g);
}
END_TEST

START_TEST(name_table)
{
    enum { N = 1000 };
    static char key[N][16];
    struct arena a = {0};
    struct names t = {0};
    ck_assert_int_eq(names_find(&t, "k", -5), -5);
    for (int i = 0; i < N; i++) {
        snprintf(key[i], sizeof key[i], "k%d", i);
        ck_assert(names_add(&t, &a, key[i], i));
    }
    ck_assert(names_add(&t, &a, "k7", -7));
    for (int i = 0; i < N; i++) ck_assert_int_eq(names_find(&t, key[i], -1), i == 7 ? -7 : i);
    ck_assert_int_eq(names_find(&t, "k1000", -1), -1);
    ck_assert_int_eq(t.count, N);
    arena_free(&a);
}
END_TEST

TESTS(graph, ONE(grows), ONE(owns_operands), ONE(poison_keeps_the_first_mistake),
      EACH(name, ARRAY_SIZE(names)), ONE(name_length), ONE(outputs), ONE(origins), ONE(copies_stand_alone),
      ONE(foreign_map), ONE(attributes_are_compared_by_name), ONE(attributes_of_maps), ONE(shorthands),
      ONE(name_table));
