/* test_symbolic.c -- graphs over symbols: text, rules, calls, and what they are with numbers. */
#include "util_mistake.h"
#include "util_random.h"
#include "util_scale.h"
#include "util_symbolic.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *printed(const graph *g)
{
    struct text t = {0};
    graph_print(g, &t);
    ck_assert(!t.failed && t.str);
    return t.str;
}

/* ---- Text ---- */

static const struct {
    const char *text, *expected; /* NULL: the same */
} forms[] = {
    {"dim %T = 1..16384\n%x = input bf16[T,4096]\n%1 = relu %x  ; bf16[T,4096]\noutput %y = %1\n", NULL},
    {"dim %S = 16..131072 step 16\n%x = input f32[S]\n", NULL},
    {"dim %T=0..9 step 1 ; all of them\n%x = input f32[ T , 4 ]\n", "dim %T = 0..9\n%x = input f32[T,4]\n"},
    {"dim %B = 1..8\ndim %T = 1..128\n%x = input f32[T*B+B*T, 4]\n",
     "dim %B = 1..8\ndim %T = 1..128\n%x = input f32[2*B*T,4]\n"},
    {"dim %B = 1..8\ndim %T = 1..128\n%x = input f32[B,T,64]\n%1 = reshape %x {d0=B*T, d1=64, rank=2}  ; "
     "f32[B*T,64]\n%2 = slice %1 {start=1, stop=B*T, step=1}  ; f32[B*T-1,64]\n",
     NULL},
    {"dim %T = 1..9\n%x = input f32[2,T,4] stride=[8*T,8,1]\n%1 = relu %x  ; f32[2,T,4]\n"
     "output %y = %1 stride=[8*T+3,8,1]\n",
     NULL},
    {"dim %T = 1..9\n%x = input f32[4,T,4] stride=[T*4,4,1]\n", "dim %T = 1..9\n%x = input f32[4,T,4]\n"},
    {"map f(1) \"DEV static float apply(float x) { return x; }\"\ndim %T = 1..9\n%T.x = input f32[-1+T]\n",
     "dim %T = 1..9\nmap f(1) \"DEV static float apply(float x) { return x; }\"\n%T.x = input f32[T-1]\n"},
    {"dim %T = 1..9\n%x = input f32[10-T,4]\n", "dim %T = 1..9\n%x = input f32[-T+10,4]\n"},
};

START_TEST(form)
{
    graph *g = graph_parse(forms[_i].text);
    ck_assert_msg(g != NULL, "%s", coda_error());
    ck_assert_int_eq(graph_verify(g), CODA_OK);
    char *once = printed(g);
    ck_assert_str_eq(once, forms[_i].expected ? forms[_i].expected : forms[_i].text);
    graph *again = graph_parse(once);
    ck_assert_msg(again != NULL, "%s", coda_error());
    char *twice = printed(again);
    ck_assert_str_eq(once, twice);
    graph_free(g);
    graph_free(again);
    free(once);
    free(twice);
}
END_TEST

static const char leaves[] = "dim %B = 1..8\n"
                             "dim %T = 1..128\n"
                             "dim %S = 16..4096 step 16\n"
                             "dim %Z = 0..64\n"
                             "%x = input f32[B,T,64]\n"
                             "%y = input f32[B,S,64]\n"
                             "%w = weight f32[96,64]\n"
                             "%t = input f32[T,64]\n"
                             "%s = input f32[S,64]\n"
                             "%z = input f32[Z,64]\n"
                             "%one = input f32[1,64]\n"
                             "%v = input f32[T]\n"
                             "%i = input i32[B,T]\n"
                             "%len = input i32[B]\n"
                             "%k = state f32[S,64]\n"
                             "%slot = input i32[T]\n"
                             "%q = input f32[T,2*T]\n"
                             "%starts = input i32[B+1]\n"
                             "%some = input i32[Z]\n"
                             "%bias = input f32[2,T,S]\n";

/* Line 21 of a text that begins with these, and what its type is, or why it has none. */
static const struct {
    const char *line, *expected;
} rules[] = {
    {"matmul %x, %w", "f32[B,T,96]"},
    {"matmul %t, %s", "matmul: w is [S,64]; y's columns, S, must be a number"},
    {"matmul %q, %w", "matmul: x is [T,2*T] but w is [96,64]; inner sizes 2*T and 64 differ"},
    {"add %t, %one", "f32[T,64]"},
    {"add %one, %z", "f32[Z,64]"},
    {"add %x, %t", "f32[B,T,64]"},
    {"add %t, %s", "add: operand 0 is [T,64] but operand 1 is [S,64]; T and S may differ: use one for both"},
    {"add %x, %s",
     "add: operand 0 is [B,T,64] but operand 1 is [S,64]; T and S may differ: use one for both"},
    {"add %w, %t",
     "add: operand 0 is [96,64] but operand 1 is [T,64]; 96 and T may differ: use one for both"},
    {"rms_norm %x {eps=0}", "f32[B,T,64]"},
    {"softmax %q", "softmax: x is [T,2*T]; its columns must be a number, not 2*T"},
    {"relu %q", "f32[T,2*T]"},
    {"sum %x", "f32[B,T,1]"},
    {"sum %x {columns=1}", "f32[B,1,64]"},
    {"sum %q", "sum: x is [T,2*T]; its columns must be a number, not 2*T"},
    {"top_k %t {k=3}", "f32[T,3]"},
    {"reshape %x {d0=B*T,d1=64,rank=2}", "f32[B*T,64]"},
    {"reshape %x {d0=64*B,d1=T,rank=2}", "f32[64*B,T]"},
    {"reshape %x {d0=T,d1=B,d2=32,rank=3}",
     "reshape: x is [B,T,64], 64*B*T elements, but [T,B,32] has 32*B*T"},
    {"reshape %x {d0=-1,rank=1}", "f32[64*B*T]"},
    {"reshape %x {d0=-1,d1=64,rank=2}", "f32[B*T,64]"},
    {"reshape %x {d0=T,d1=-1,d2=32,rank=3}", "f32[T,2*B,32]"},
    {"reshape %x {d0=B*T,d1=-1,rank=2}", "f32[B*T,64]"},
    {"reshape %z {d0=Z,d1=-1,rank=2}", "f32[Z,64]"},
    {"reshape %x {d0=-1,d1=128,rank=2}",
     "reshape: x is [B,T,64], 64*B*T elements; the dimensions beside the -1 make 128, which does"
     " not divide them"},
    {"reshape %x {d0=S,d1=-1,rank=2}",
     "reshape: x is [B,T,64], 64*B*T elements; the dimensions beside the -1 make S, which does"
     " not divide them"},
    {"slice %x {axis=-2,start=1,stop=T,step=1}", "f32[B,T-1,64]"},
    {"concat %t, %s {axis=-2}", "f32[T+S,64]"},
    {"slice %t {axis=0,start=1,stop=T,step=1}", "f32[T-1,64]"},
    {"slice %t {axis=0,start=0,stop=1,step=1}", "f32[1,64]"},
    {"slice %t {axis=0,start=0,stop=128,step=1}",
     "slice: start 0, stop 128, step 1; need 0 <= start <= stop <= T and step >= 1"},
    {"slice %z {axis=0,start=0,stop=1,step=1}",
     "slice: start 0, stop 1, step 1; need 0 <= start <= stop <= Z and step >= 1"},
    {"slice %s {axis=0,start=0,stop=16,step=2}", "slice: x is [S,64]; step 2 along S must be 1"},
    {"slice %x {axis=2,start=0,stop=64,step=2}", "f32[B,T,32]"},
    {"concat %x, %y {axis=1}", "f32[B,T+S,64]"},
    {"concat %t, %one", "f32[T+1,64]"},
    {"concat %t, %t {interleave=1}", "f32[2*T,64]"},
    {"transpose %x {p0=1,p1=0,p2=2}", "f32[T,B,64]"},
    {"embedding %w, %i", "f32[B,T,64]"},
    {"row_sums %x, %i {rows=96}", "f32[96,64]"},
    {"row_sums %t, %slot {rows=2*S+1}", "f32[2*S+1,64]"},
    {"row_sums %s, %slot {rows=9}",
     "row_sums: x is [S,64] but ids are i32[T]; must be i32 or i64, one for each row of x"},
    {"row_sums %q, %slot {rows=9}", "row_sums: x is [T,2*T]; its columns must be a number, not 2*T"},
    {"row_sums %t, %slot {rows=4097*S}", "row_sums: rows is 4097*S; must be 0..16777216"},
    {"rope %x {head_dim=32}", "f32[B,T,64]"},
    {"rope %x, %len {head_dim=32}",
     "rope: x is [B,T,64] but positions are i32[B]; must be i32 or i64 with x's leading dimensions or [T]"},
    {"attention %x, %y, %y, %len {heads=2}", "f32[B,T,64]"},
    {"attention %x, %y, %y {heads=2,causal=1,lse=1}", "f32[B,2,T]"},
    {"attention %x, %y, %y, %len {heads=2,causal=1}",
     "attention: causal, lengths, Tq T and Tk S: align must say where queries sit: CODA_ALIGN_LENGTH (3): the"
     " last before the length, CODA_ALIGN_END (2): before Tk, or CODA_ALIGN_START (1)"},
    {"attention %x, %x, %x, %len {heads=2,causal=1}", "f32[B,T,64]"},
    {"attention %x, %y, %y, %slot {heads=2}",
     "attention: q is [B,T,64] but lengths are i32[T]; must be i32 or i64[B]"},
    {"attention %t, %y, %y, %len, _, _, _, _, _, _, %starts {heads=2,causal=1,align=3}", "f32[T,64]"},
    {"attention %t, %y, %y, %slot, _, _, _, _, _, _, %starts {heads=2}",
     "attention: starts are i32[B+1] but lengths are i32[T]; must be i32 or i64[B]"},
    {"attention %t, %y, %y, _, _, _, _, _, _, _, %len {heads=2}",
     "attention: starts are i32[B] but k is [B,S,64]; must be [B-1,Tk,columns]"},
    {"attention %t, %y, %y, _, _, _, _, _, _, _, %some {heads=2}",
     "attention: q is [T,64] but starts are i32[Z]; q must be [T,columns], starts i32 or i64[B+1]"},
    {"attention %x, %y, %y, _, _, _, _, _, _, _, _, %bias {heads=2}", "f32[B,T,64]"},
    {"attention %x, %x, %x, _, _, _, _, _, _, _, _, %bias {heads=2}",
     "attention: bias is f32[2,T,S]; must be f32, of rank 1..4, and broadcast to [B,2,T,T]"},
    {"attention %t, %y, %y, _, _, _, _, _, _, _, %starts, %bias {heads=2}", "f32[T,64]"},
    {"append %k, %t, %slot", "f32[S,64]"},
    {"assign %k, %s", "f32[S,64]"},
    {"assign %k, %t", "assign: the state is f32[S,64] but the value is f32[T,64]; they must be equal"},
    {"cross_entropy %t, %slot", "f32[T]"},
    {"input f32[U]", "no dim is called `U`; a line above has to say `dim %U = 1..4096`"},
    {"input f32[T-2]", "dim: T-2 may be -1; must be >= 0"},
    {"input f32[T*T*T*T*T]", "dim: (T*T*T*T)*(T) is no polynomial of at most 8 terms, degree 4 and 63 bits"},
    {"weight f32[T,4]", "weight r: it is [T,4]; its dimensions and strides must be numbers"},
    {"input f32[T,S] stride=[S,1]", "f32[T,S]"},
    {"input f32[T,S] stride=[4096,1]", "f32[T,S]"},
    {"input f32[T,S] stride=[4095,1]",
     "input r: f32[T,S] has stride 4095 in dimension 0, but the next smaller"
     " one takes S elements; they may overlap"},
    {"input f32[T,64] stride=[0,1]",
     "input r: f32[T,64] has stride 0 in dimension 0, but the next smaller one"
     " takes 1 elements; they may overlap"},
    {"input f32[T+4611686018427387000]", "input r: f32[T+4611686018427387000] does not fit in 2^62 bytes"},
    {"input f32[T,72057594037927936]", "input r: f32[T,72057594037927936] does not fit in 2^62 bytes"},
};

START_TEST(rule)
{
    char text[2048], got[512];
    snprintf(text, sizeof text, "%s%%r = %s\n", leaves, rules[_i].line);
    graph *g = graph_parse(text);
    const char *line = mistake_plain(coda_error()), *message = strstr(line, "line 21: ");
    if (g) snprintf(got, sizeof got, "%s", type_text(&g->node[g->nodes - 1].type).s);
    else snprintf(got, sizeof got, "%s", message ? message + strlen("line 21: ") : line);
    ck_assert_str_eq(got, rules[_i].expected);
    if (g) ck_assert_int_eq(graph_verify(g), CODA_OK);
    graph_free(g);
}
END_TEST

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"dim T = 1..2", "line 1: expected `%` before `T = 1..2`"},
    {"dim %T = 1.2", "line 1: expected `.` before `2`"},
    {"dim %T = 1..", "line 1: expected an integer before ``"},
    {"dim %T = 5..4", "line 1: symbol T: its values are 5..4; need 0 <= least <= most, 1 <= most <= 2^62"},
    {"dim %T = 1..9 stop 2", "line 1: expected `step`, got `stop`"},
    {"dim %T = 1..9 x", "line 1: trailing text `x`"},
    {"dim %T = 1..9\ndim %T = 1..9", "line 2: symbol T: the name is taken, by a symbol"},
    {"dim %T = 1..9\n%T = input f32[4]", "line 2: input T: the name is taken, by a symbol"},
    {"dim %T = 1..9\n%x = relu %T", "line 2: %T is not defined above"},
    {"dim %1T = 1..9",
     "line 1: symbol: `1T` is no name: a letter or _, then letters, digits, _ or ., at most 255"},
    {"dim %T = 1..9\n%x = input f32[T*]", "line 2: expected an extent before `]`"},
    {"dim %T = 1..9\n%x = input f32[2T]", "line 2: `2T` is no integer"},
    {"%x = input f32[T]", "line 1: no dim is called `T`; a line above has to say `dim %T = 1..4096`"},
    {"dim %T = 1..9\n%x = input f32[T] stride=[-1]", "line 2: dim: -1; must be >= 0"},
};

START_TEST(mistake)
{
    coda_graph *g;
    ck_assert_int_eq(coda_graph_parse(&g, mistakes[_i].text), CODA_E_INVALID);
    ck_assert_str_eq(mistake_plain(coda_error()), mistakes[_i].message);
}
END_TEST

/* ---- Calls ---- */

static int64_t dims_are(coda_graph *g, coda_value v, int64_t first)
{
    int64_t dims[CODA_MAX_RANK];
    ck_assert_int_eq(coda_value_shape(g, v, dims, NULL), 2);
    ck_assert_int_eq(dims[0], first);
    return dims[1];
}

START_TEST(calls)
{
    coda_graph *g = coda_graph_new();
    coda_symbol_info info = CODA_SYMBOL_INFO_INIT;
    coda_arg_info arg = CODA_ARG_INFO_INIT;
    char text[32];
    coda_dim b = coda_symbol(g, "B", 1, 8, 1), t = coda_symbol(g, "T", 16, 128, 16);
    coda_dim bt = coda_dim_mul(g, b, t), more = coda_dim_sub(g, coda_dim_add(g, bt, 3), 2);
    ck_assert(b < 0 && t < 0 && bt < 0 && b != t);
    ck_assert_int_eq(coda_dim_mul(g, 3, 4), 12);
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){bt, 64});
    ck_assert_int_eq(dims_are(g, coda_relu(g, x), bt), 64);
    ck_assert_int_eq(coda_dim_print(g, more, text, sizeof text), 5);
    ck_assert_str_eq(text, "B*T+1");
    ck_assert_int_eq(coda_graph_symbols(g), 2);
    ck_assert_int_eq(coda_graph_symbol(g, 1, &info), CODA_OK);
    ck_assert(!strcmp(info.name, "T") && info.least == 16 && info.most == 128 && info.multiple == 16);
    ck_assert_int_eq(coda_graph_symbol(g, 2, &info), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "graph_symbol: index is 2 of 2");
    ck_assert_int_eq(coda_graph_arg(g, 0, &arg), CODA_OK);
    ck_assert(arg.dims[0] == bt && arg.strides[0] == 64 && arg.bytes == 8 * 128 * 64 * 2);
    ck_assert_int_eq(coda_dim_print(g, -77, text, sizeof text), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "dim_print: -77 is neither a number nor a dimension of this graph");
    ck_assert_int_eq(coda_evaluate(g, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(),
                     "evaluate: the graph has symbols (B, T): coda_graph_bind gives them values");
    coda_graph_free(g);
}
END_TEST

static coda_graph *g;
static coda_dim t;

static void foreign(void) { coda_dim_add(g, t, -40); }
static void below(void) { coda_dim_sub(g, t, 5); }
static void foreign_input(void) { coda_input(g, "x", CODA_F32, 1, (int64_t[]){-3}); }
static void foreign_slice(void)
{
    coda_slice(g, coda_input(g, "x", CODA_F32, 1, (int64_t[]){4}), 0, -9, 4, 1);
}
static void gate_columns(void)
{
    coda_swiglu(g, coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, coda_dim_mul(g, 2, t)}), CODA_STACKED);
}
static void bias_columns(void)
{
    int64_t n = 8;
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, t});
    coda_bias(g, x, coda_input(g, "b", CODA_F32, 1, &n));
}
static void taken(void) { coda_symbol(g, "T", 1, 2, 1); }
static void nested(void)
{
    coda_dim d = coda_dim_add(g, coda_dim_sub(g, t, 5), 7);
    ck_assert(d == INT64_MIN && !coda_input(g, "x", CODA_F32, 1, &d).id);
}

static const struct {
    void (*call)(void);
    const char *message;
} wrong[] = {
    {foreign, "dim_add: -40 is neither a number nor a dimension of this graph"},
    {below, "dim: T-5 may be -4; must be >= 0"},
    {foreign_input, "input x: dimension 0 is -3; must be >= 0, or a symbolic one of this graph"},
    {foreign_slice, "slice: start -9, stop 4, step 1; need 0 <= start <= stop <= 4 and step >= 1"},
    {gate_columns, "swiglu: x is [4,2*T]; its columns must be even"},
    {bias_columns, "bias: x is [4,T] but bias is [8]; must be [T]"},
    {taken, "symbol T: the name is taken, by a symbol"},
    {nested, "dim: T-5 may be -4; must be >= 0"},
};

START_TEST(wrong_call)
{
    g = coda_graph_new();
    t = coda_symbol(g, "T", 1, 128, 1);
    wrong[_i].call();
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_str_eq(mistake_plain(coda_error()), wrong[_i].message);
    ck_assert(coda_symbol(g, "U", 1, 2, 1) == INT64_MIN);
    coda_graph_free(g);
}
END_TEST

START_TEST(no_graph)
{
    coda_symbol_info info = CODA_SYMBOL_INFO_INIT;
    coda_graph *out = (coda_graph *)1;
    ck_assert(coda_symbol(NULL, "T", 1, 2, 1) == INT64_MIN && coda_dim_add(NULL, 1, 2) == INT64_MIN);
    ck_assert_int_eq(coda_graph_symbols(NULL), 0);
    ck_assert_int_eq(coda_graph_symbol(NULL, 0, &info), CODA_E_INVALID);
    ck_assert_int_eq(coda_dim_print(NULL, 3, NULL, 0), CODA_E_INVALID);
    ck_assert_int_eq(coda_graph_bind(&out, NULL, NULL, 0), CODA_E_INVALID);
    ck_assert_ptr_null(out);
    ck_assert_int_eq(coda_graph_bind(NULL, NULL, NULL, 0), CODA_E_INVALID);
}
END_TEST

/* ---- Numbers ---- */

START_TEST(bind_mistakes)
{
    coda_graph *h = graph_parse("dim %B = 1..8\ndim %S = 16..64 step 16\n%x = input f32[B,S]\n"), *out;
    ck_assert_int_eq(coda_graph_bind(&out, h, (int64_t[]){1}, 1), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: the graph has 2 symbols (B, S); dim_count is 1");
    ck_assert_int_eq(coda_graph_bind(&out, h, (int64_t[]){9, 16}, 2), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: B is 9; must be 1..8");
    ck_assert_int_eq(coda_graph_bind(&out, h, (int64_t[]){1, 40}, 2), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: S is 40; must be a multiple of 16");
    ck_assert_int_eq(coda_graph_bind(&out, h, NULL, 2), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: dims is NULL; the graph has 2 symbols (B, S)");
    ck_assert_ptr_null(out);
    coda_graph_free(h);
    ck_assert_int_eq(coda_graph_parse(&h, "%x = input f32[3]\n"), CODA_OK);
    ck_assert_int_eq(coda_graph_bind(&out, h, (int64_t[]){1}, 1), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "bind: the graph has 0 symbols; dim_count is 1");
    ck_assert_int_eq(coda_graph_bind(&out, h, NULL, 0), CODA_OK);
    coda_graph_free(out);
    coda_graph_free(h);
}
END_TEST

static void expect_equal(const graph *a, const graph *b)
{
    char *x = printed(a), *y = printed(b);
    ck_assert_str_eq(x, y);
    ck_assert(a->origins == b->origins && graph_is_bound(a));
    for (int i = 0; i < a->nodes; i++)
        ck_assert(a->node[i].origin == b->node[i].origin && a->node[i].next == b->node[i].next &&
                  !memcmp(a->node[i].stride, b->node[i].stride, sizeof a->node[i].stride));
    free(x);
    free(y);
}

/* A bound graph is the one that the same calls make with numbers; so is one that goes by its text. */
START_TEST(bound_is_built)
{
    uint64_t seed = random_seed();
    for (int i = 0; i < scaled(60); i++, seed++) {
        graph *s = symbolic_graph(seed, NULL);
        ck_assert_msg(s->status == CODA_OK, "%llu: %s", (unsigned long long)seed, s->error);
        ck_assert_msg(graph_verify(s) == CODA_OK, "%s", coda_error());
        char *text = printed(s);
        graph *parsed = graph_parse(text);
        ck_assert_msg(parsed != NULL, "%s\n%s", coda_error(), text);
        for (int shape = 0; shape < 10; shape++) {
            int64_t values[SYMBOLIC_DIMS];
            coda_graph *bound, *again;
            symbolic_shape(seed, shape, values);
            graph *built = symbolic_graph(seed, values);
            ck_assert_msg(built->status == CODA_OK, "%llu: %s", (unsigned long long)seed, built->error);
            ck_assert_msg(!coda_graph_bind(&bound, s, values, SYMBOLIC_DIMS), "%s", coda_error());
            ck_assert_int_eq(coda_graph_bind(&again, parsed, values, SYMBOLIC_DIMS), CODA_OK);
            ck_assert_msg(graph_verify(bound) == CODA_OK, "%s", coda_error());
            expect_equal(bound, built);
            expect_equal(again, built);
            graph_free(bound);
            graph_free(again);
            graph_free(built);
        }
        graph_free(parsed);
        graph_free(s);
        free(text);
    }
}
END_TEST

TESTS(symbolic, EACH(form, ARRAY_SIZE(forms)), EACH(rule, ARRAY_SIZE(rules)),
      EACH(mistake, ARRAY_SIZE(mistakes)), ONE(calls), EACH(wrong_call, ARRAY_SIZE(wrong)), ONE(no_graph),
      ONE(bind_mistakes), ONE(bound_is_built));
