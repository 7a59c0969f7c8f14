/* test_verify.c -- each invariant, broken behind graph_append's back, is found and named. */
#include "graph.h" /* before check.h, which has a macro called fail */

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

static const char text[] = "map mine(1; 1) \"source\"\n"
                           "%x = input f32[2,8]\n"
                           "%w = weight f32[4,8]\n"
                           "%2 = matmul %x, %w\n"
                           "%3 = mine %2 {p0=2}\n"
                           "%4 = sum %3\n"
                           "%5 = rope %x {base=10, head_dim=4}\n"
                           "output %y = %3\n"
                           "output %z = %5\n";

static void negative_op(graph *g) { g->node[2].op = (enum op) - 1; }
static void few_operands(graph *g) { g->node[2].nin = 1; }
static void later_operand(graph *g) { g->node[2].in[1] = 3; }
static void own_operand(graph *g) { g->node[2].in[0] = 2; }
static void absent_operand(graph *g) { g->node[2].in[0] = -1; }
static void no_prim(graph *g) { g->node[3].prim = NULL; }
static void needless_prim(graph *g) { g->node[2].prim = g->node[3].prim; }
static void map_for_reduction(graph *g) { g->node[4].prim = prim_find("relu"); }
static void reduction_for_map(graph *g) { g->node[3].prim = prim_find("sum"); }

static void foreign_prim(graph *g)
{
    static struct prim copy;
    copy = *g->node[3].prim;
    g->node[3].prim = &copy;
}

static void wrong_dim(graph *g) { g->node[2].type.dim[1] = 5; }
static void wrong_dtype(graph *g) { g->node[4].type.dtype = CODA_BF16; }
static void wrong_rank(graph *g) { g->node[4].type.rank = 1; }
static void wrong_leaf(graph *g) { g->node[0].type.dim[1] = 9; }
static void leaf_dim(graph *g) { g->node[0].type.dim[0] = -2; }
static void leaf_rank(graph *g) { g->node[0].type.rank = 7; }
static void leaf_dtype(graph *g) { g->node[0].type.dtype = (coda_dtype)10; }
static void leaf_stride(graph *g) { g->node[0].stride[0] = 7; }
static void leaf_unnamed(graph *g) { g->node[0].name = NULL; }
static void leaf_misnamed(graph *g) { g->node[0].name = "a b"; }
static void leaf_twice(graph *g) { g->node[0].name = "w"; }
static void output_twice(graph *g) { g->output[1].name = "y"; }
static void output_like_leaf(graph *g) { g->output[1].name = "w"; }
static void output_value(graph *g) { g->output[1].value = 6; }
static void output_absent(graph *g) { g->output[1].value = -1; }
static void output_stride(graph *g) { g->output[1].stride[1] = 0; }
static void open_attribute(graph *g) { g->node[5].attr.rope.rotary = 0; }
static void bad_attribute(graph *g) { g->node[5].attr.rope.rotary = 3; }
static void bad_sections(graph *g) { g->node[5].attr.rope.section[1] = 1; }
static void no_origin(graph *g) { g->node[5].origin = -1; }
static void far_origin(graph *g) { g->node[5].origin = 6; }
static void poisoned(graph *g) { graph_poison(g, CODA_E_IO, "poison %d", 7); }

static const struct {
    void (*damage)(graph *g);
    const char *message;
} table[] = {
    {negative_op, "%2: -1 is no operation"},
    {few_operands, "%2: matmul: takes 2 operands, got 1"},
    {later_operand, "%2: matmul: operand 1 is no earlier value of this graph"},
    {own_operand, "%2: matmul: operand 0 is no earlier value of this graph"},
    {absent_operand, "%2: matmul: operand 0 (x) is CODA_NONE"},
    {no_prim, "%3: map: it has no primitive"},
    {needless_prim, "%2: matmul: it takes no primitive"},
    {map_for_reduction, "%4: relu: it is a map, not a reduction"},
    {reduction_for_map, "%3: sum: it is a reduction, not a map"},
    {foreign_prim, "%3: its primitive mine belongs to no table of this graph"},
    {wrong_dim, "%2: its type is f32[2,5] but its operands make f32[2,4]"},
    {wrong_dtype, "%4: its type is bf16[2,1] but its operands make f32[2,1]"},
    {wrong_rank, "%4: its type is f32[2] but its operands make f32[2,1]"},
    {wrong_leaf, "%x: input x: stride 0 is 8 but the dimensions below it span 9 elements; they overlap"},
    {leaf_dim, "%x: input x: dimension 0 is -2; must be >= 0"},
    {leaf_rank, "%x: input x: rank is 7; must be 0..6"},
    {leaf_dtype, "%x: input x: 10 is no dtype"},
    {leaf_stride, "%x: input x: stride 0 is 7 but the dimensions below it span 8 elements; they overlap"},
    {leaf_unnamed, "`(NULL)` is no name"},
    {leaf_misnamed, "`a b` is no name"},
    {leaf_twice, "the name w is taken twice"},
    {output_twice, "the name y is taken twice"},
    {output_like_leaf, "the name w is taken twice"},
    {output_value, "output z: value 6 of 6"},
    {output_absent, "output z: value -1 of 6"},
    {output_stride, "output z: stride 1 is 0 but dimension 1 is 8; its elements overlap"},
    {open_attribute, "%5: its attributes are not complete"},
    {bad_attribute, "%5: rope: rotary is 3; it must be even, 2..head_dim (4)"},
    {bad_sections, "%5: rope: section1 is 1; sections are 2..4 positive numbers, then zeros"},
    {no_origin, "%5: its origin is -1; must be 0..5"},
    {far_origin, "%5: its origin is 6; must be 0..5"},
    {poisoned, "poison 7"},
};

START_TEST(damage)
{
    graph *g = graph_parse(text);
    ck_assert_msg(g != NULL, "%s", coda_error());
    ck_assert_int_eq(graph_verify(g), CODA_OK);
    table[_i].damage(g);
    ck_assert_int_ne(graph_verify(g), CODA_OK);
    ck_assert_str_eq(coda_error(), table[_i].message);
    graph_free(g);
}
END_TEST

/* The first number that is none. */
START_TEST(wrong_op)
{
    char want[64];
    graph *g = graph_parse(text);
    g->node[2].op = OP_COUNT;
    ck_assert_int_eq(graph_verify(g), CODA_E_INVALID);
    snprintf(want, sizeof want, "%%2: %d is no operation", (int)OP_COUNT);
    ck_assert_str_eq(coda_error(), want);
    graph_free(g);
}
END_TEST

START_TEST(null_graph)
{
    ck_assert_int_eq(graph_verify(NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "the graph is NULL");
}
END_TEST

/* Success leaves the last message alone. */
START_TEST(quiet_success)
{
    graph *g = graph_parse(text);
    graph_verify(NULL);
    ck_assert_int_eq(graph_verify(g), CODA_OK);
    ck_assert_str_eq(coda_error(), "the graph is NULL");
    graph_free(g);
}
END_TEST

TESTS(verify, EACH(damage, ARRAY_SIZE(table)), ONE(wrong_op), ONE(null_graph), ONE(quiet_success));
