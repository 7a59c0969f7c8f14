/* test_text.c -- print and parse: the form, its fixed point, and what hostile text is told. */
#include "graph.h" /* before check.h, which has a macro called fail */

#include "util_mistake.h"
#include "tests.h" /* last: Check has a macro named fail */
#include <float.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *printed(const graph *g)
{
    struct text t = {0};
    graph_print(g, &t);
    ck_assert(!t.failed);
    return t.str ? t.str : calloc(1, 1);
}

/* print -> parse -> print changes nothing. */
static void expect_fixed(const graph *g)
{
    char *once = printed(g);
    graph *again = graph_parse(once);
    ck_assert_msg(again != NULL, "%s\n%s", coda_error(), once);
    char *twice = printed(again);
    ck_assert_str_eq(once, twice);
    ck_assert_int_eq(graph_verify(again), CODA_OK);
    graph_free(again);
    free(once);
    free(twice);
}

static void expect_text(const char *text, const char *expected)
{
    graph *g = graph_parse(text);
    ck_assert_msg(g != NULL, "%s", coda_error());
    expect_fixed(g);
    char *t = printed(g);
    ck_assert_str_eq(t, expected);
    free(t);
    graph_free(g);
}

static const struct {
    const char *text, *expected;
} forms[] = {
    {"", ""},
    {"\n\n; nothing\n # nothing at all\n\t ", ""},
    {"%x=input f32[]", "%x = input f32[]\n"},
    {"%x = input bf16 [ 2 , 3 ] stride = [ 8 , 1 ] # pitch 8\r\n", "%x = input bf16[2,3] stride=[8,1]\n"},
    {"%x = weight i32[2,3] stride=[3,1]", "%x = weight i32[2,3]\n"},
    {"%x = input f32[0,3] stride=[0,0]", "%x = input f32[0,3] stride=[0,0]\n"},
    /* values may have any name; printing renumbers */
    {"%x = input f32[4]\n%7 = relu %x\n%h.a = add %7, %x\noutput %y = %h.a\noutput %h.a = %7",
     "%x = input f32[4]\n%1 = relu %x  ; f32[4]\n%2 = add %1, %x  ; f32[4]\noutput %y = %2\n"
     "output %h.a = %1\n"},
    {"%x = input f32[2,3]\noutput %y = %x stride=[1,2]",
     "%x = input f32[2,3]\noutput %y = %x stride=[1,2]\n"},
    /* attributes: order of ops.def, integers of 0 left out, floats in hexadecimal */
    {"%x = input f32[4,8]\n%p = input i32[4,2]\n%r = rope %x, %p {interleave_sections=1, section1=2, "
     "section0=2}",
     "%x = input f32[4,8]\n%p = input i32[4,2]\n"
     "%2 = rope %x, %p {base=0x1.388p+13, head_dim=8, rotary=8, heads=1, section0=2, section1=2,"
     " interleave_sections=1}  ; f32[4,8]\n"},
    {"%q = input f32[6,8]\n%k = input f32[2,9,8]\n%n = input i32[2]\n%s = input i32[3]\n"
     "%a = attention %q, %k, %k, %n, _, _, _, _, _, _, %s {heads=2, causal=1, align=3}",
     "%q = input f32[6,8]\n%k = input f32[2,9,8]\n%n = input i32[2]\n%s = input i32[3]\n"
     "%4 = attention %q, %k, %k, %n, _, _, _, _, _, _, %s {scale=0x1p-1, heads=2, kv_heads=2, causal=1,"
     " align=3}  ; f32[6,8]\n"},
    {"%q = input bf16[6,8]\n%b = input f32[2,1,6]\n"
     "%a = attention %q, %q, %q, _, _, _, _, _, _, _, _, %b {heads=2}",
     "%q = input bf16[6,8]\n%b = input f32[2,1,6]\n"
     "%2 = attention %q, %q, %q, _, _, _, _, _, _, _, _, %b {scale=0x1p-1, heads=2, kv_heads=2}  ; "
     "bf16[6,8]\n"},
    {"%x = input f32[4,8]\n%r = rope %x, _ {half=1, head_dim=4, base=1e4}",
     "%x = input f32[4,8]\n"
     "%1 = rope %x {base=0x1.388p+13, head_dim=4, rotary=4, heads=2, half=1}  ; f32[4,8]\n"},
    {"%x = input f32[4,8]\n%b = weight f32[8]\n%n = layer_norm %x, _, %b {eps=1e-5}",
     "%x = input f32[4,8]\n%b = weight f32[8]\n%2 = layer_norm %x, _, %b {eps=0x1.4f8b58p-17}  ; f32[4,8]\n"},
    {"%x = input f32[4,8]\n%n = rms_norm %x",
     "%x = input f32[4,8]\n%1 = rms_norm %x {eps=0x0p+0}  ; f32[4,8]\n"},
    {"%x = input f32[4]\n%1 = cast %x {to=bf16}", "%x = input f32[4]\n%1 = cast %x {to=bf16}  ; bf16[4]\n"},
    {"%x = input f32[4]\n%1 = scale %x {alpha=-0x1p-149}",
     "%x = input f32[4]\n%1 = scale %x {alpha=-0x1p-149}  ; f32[4]\n"},
    {"%x = input f32[4]\n%1 = scale %x {alpha=-inf}\n%2 = scale %x {alpha=nan}\n%3 = scale %x {alpha=-0.0}",
     "%x = input f32[4]\n%1 = scale %x {alpha=-inf}  ; f32[4]\n%2 = scale %x {alpha=nan}  ; f32[4]\n"
     "%3 = scale %x {alpha=-0x0p+0}  ; f32[4]\n"},
    {"%x = input f32[4]\n%1 = slice %x {axis=0, start=1, stop=3, step=1}",
     "%x = input f32[4]\n%1 = slice %x {start=1, stop=3, step=1}  ; f32[2]\n"},
    {"%x = input f32[2,4]\n%t = input i32[2]\n%1 = cross_entropy %x, %t {ignore=-100, reduction=1}",
     "%x = input f32[2,4]\n%t = input i32[2]\n"
     "%2 = cross_entropy %x, %t {ignore=-100, reduction=1}  ; f32[1]\n"},
    /* reductions and maps go by their primitive */
    {"%x = input f32[2,4]\n%t = input i32[2]\n%1 = select %x, %t",
     "%x = input f32[2,4]\n%t = input i32[2]\n%2 = select %x, %t  ; f32[2,1]\n"},
    /* parts of one operation */
    {"%x = input f32[2,4]\n%a = sum %x\n%b = scale %a {alpha=0.25} @%a\n%c = relu %b @%b",
     "%x = input f32[2,4]\n%1 = sum %x  ; f32[2,1]\n%2 = scale %1 {alpha=0x1p-2} @%1  ; f32[2,1]\n"
     "%3 = relu %2 @%1  ; f32[2,1]\n"},
    /* maps of the user */
    {"map leaky(2; 1) \"return x > 0 ? \\x5c\\x22 : \\\\ \\\"\\n\\x09\\xFF;\"\n%x = input f32[4]\n"
     "%1 = leaky %x, %x {p0=0.5}",
     "map leaky(2; 1) \"return x > 0 ? \\\\\\\" : \\\\ \\\"\\n\\x09\\xff;\"\n%x = input f32[4]\n"
     "%1 = leaky %x, %x {p0=0x1p-1}  ; f32[4]\n"},
    {"map f(1) \"\\x10\\xA0\"", "map f(1) \"\\x10\\xa0\"\n"},
    {"map d(2; 1) \"a\" { grad1=0,grad0 = 1 }\nmap f(2; 1) \"b\"{grad1=f ,grad0=d} ; comment\n"
     "map s(1) \"c\" {grad0=silu_grad}",
     "map d(2; 1) \"a\" {grad0=1, grad1=0}\nmap f(2; 1) \"b\" {grad0=d, grad1=f}\n"
     "map s(1) \"c\" {grad0=silu_grad}\n"},
    {"map one(1) \"a\" ; comment\nmap two ( 2 ; 0 ) \"b ; c # d\"",
     "map one(1) \"a\"\nmap two(2) \"b ; c # d\"\n"},
};

START_TEST(form) { expect_text(forms[_i].text, forms[_i].expected); }
END_TEST

static const char block[] = "%x = input bf16[2,16,64]\n"
                            "%pos = input i32[2,16]\n"
                            "%len = input i32[2]\n"
                            "%ids = input i32[2,16]\n"
                            "%wqkv = weight bf16[128,64] stride=[72,1]\n"
                            "%wo = weight bf16[64,64]\n"
                            "%wg = weight bf16[96,64]\n"
                            "%wd = weight bf16[48,64]\n"
                            "%emb = weight bf16[100,64]\n"
                            "%gain = weight f32[64]\n"
                            "%e = embedding %emb, %ids\n"
                            "%x1 = add %e, %x\n"
                            "%n = rms_norm %x1, %gain {eps=1e-6}\n"
                            "%qkv = matmul %n, %wqkv\n"
                            "%r = rope %qkv, %pos {base=500000, head_dim=16, heads=6}\n"
                            "%q = slice %r {axis=2, start=0, stop=64, step=1}\n"
                            "%k = slice %r {axis=2, start=64, stop=96, step=1}\n"
                            "%v = slice %r {axis=2, start=96, stop=128, step=1}\n"
                            "%a = attention %q, %k, %v, %len {heads=4, kv_heads=2, window=8, "
                            "causal=1, align=3}\n"
                            "%o = matmul %a, %wo\n"
                            "%x2 = add %o, %x1\n"
                            "%n2 = layer_norm %x2, %gain, %gain {eps=1e-5}\n"
                            "%gu = matmul %n2, %wg\n"
                            "%gate = slice %gu {axis=2, start=0, stop=96, step=2}\n"
                            "%up = slice %gu {axis=2, start=1, stop=96, step=2} @%gate\n"
                            "%s = swiglu %gate, %up @%gate\n"
                            "%d = matmul %s, %wd {kn=1}\n"
                            "%x3 = add %d, %x2\n"
                            "%f = reshape %x3 {d0=32, d1=64, rank=2}\n"
                            "%t = transpose %f {p0=1}\n"
                            "%cc = concat %f, %f, %f {axis=1}\n"
                            "%ci = concat %f, %f {axis=1, interleave=1}\n"
                            "%logits = matmul %f, %emb\n"
                            "%p = softmax %logits\n"
                            "%fids = reshape %ids {d0=32, rank=1}\n"
                            "%loss = cross_entropy %logits, %fids {ignore=-100, reduction=1}\n"
                            "%lse = log_sum_exp %logits\n"
                            "%best = top_k %logits {k=3}\n"
                            "%which = top_k %logits {k=3, indices=1} @%best\n"
                            "%h = cast %p {to=f16}\n"
                            "output %y = %x3\noutput %yt = %t stride=[1,64]\noutput %loss = %loss\n"
                            "output %cat = %cc\noutput %ci = %ci\noutput %lse = %lse\noutput %prob = %h\n";

START_TEST(fixed_point)
{
    graph *g = graph_parse(block);
    ck_assert_msg(g != NULL, "%s", coda_error());
    expect_fixed(g);
    graph_free(g);
}
END_TEST

/* Every fp32 survives, and prints as glibc's %a does. */
/* What a person sees in a debugger: the text, as much of it as there is room for. */
START_TEST(debuggers_see_graphs)
{
    graph *g = graph_parse("%x = input f32[2,3]\n%y = relu %x\noutput %y = %y\n"), *long_one = graph_new();
    char *text = printed(g);
    ck_assert_str_eq(debug_graph(g), text);
    ck_assert_str_eq(debug_graph(NULL), "");
    for (int i = 0; i < 5000; i++)
        coda_input(long_one,
                   (char[]){'x', (char)('a' + i / 676), (char)('a' + i / 26 % 26), (char)('a' + i % 26), 0},
                   CODA_F32, 1, (int64_t[]){1});
    char *all = printed(long_one);
    size_t n = strlen(debug_graph(long_one));
    ck_assert(n > 1000 && n < strlen(all) && !strncmp(debug_graph(long_one), all, n));
    free(text), free(all);
    graph_free(g), graph_free(long_one);
}
END_TEST

START_TEST(floats)
{
    const float value[] = {0.1f,  1e-45f,   FLT_MIN,     FLT_MAX,       1.0f,
                           -3.0f, 10000.0f, 16777215.0f, 1.1754942e-38f};
    for (int i = 0; i < ARRAY_SIZE(value); i++) {
        graph *g = graph_parse("%x = input f32[4]\n");
        char expected[64], *line;
        graph_map(g, "scale", 0, -1, &value[i]);
        locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
        snprintf(expected, sizeof expected, "{alpha=%a}", (double)value[i]);
        uselocale(before);
        line = printed(g);
        ck_assert_msg(strstr(line, expected) != NULL, "%s in %s", expected, line);
        graph *again = graph_parse(line);
        ck_assert(again->node[1].attr.map.param[0] == value[i]);
        free(line);
        graph_free(again);
        graph_free(g);
    }
}
END_TEST

#define LONG_NAME                                                                                            \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"%x", "line 1: expected `=` before ``"},
    {"\n\nx = input f32[2]", "line 3: expected `%`, `dim`, `map` or `output`, got `x`; values are %x"},
    {"= 3", "line 1: expected `%`, `dim`, `map` or `output` before `= 3`"},
    {"% = input f32[2]", "line 1: expected a name before `= input f32[2]`"},
    {"%x = ", "line 1: expected an operation before ``"},
    {"%x = input f64[2]",
     "line 1: `f64` is no dtype: they are f32, bf16, f16, i32, i64, f8e4m3, f8e5m2, i8, u8"},
    {"%x = input f32", "line 1: expected `[` before ``"},
    {"%x = input f32 abcdefghijklmnopqrstuvwxyz", "line 1: expected `[` before `abcdefghijklmnopqrst`"},
    {"%x = input f32[2", "line 1: expected `]` before ``"},
    {"%x = input f32[2,]", "line 1: expected an extent before `]`"},
    {"%x = input f32[2]]", "line 1: trailing text `]`"},
    {"%x = input f32[1,1,1,1,1,1,1]", "line 1: more than 6 dimensions"},
    {"%x = input f32[-2]", "line 1: dim: -2; must be >= 0"},
    {"%x = input f32[99999999999999999999]", "line 1: 99999999999999999999 does not fit in 64 bits"},
    {"%x = input f32[1000000000,1000000000,1000000000]",
     "line 1: input x: f32[1000000000,1000000000,1000000000] does not fit in 2^62 bytes"},
    {"%x = input f32[1-2]", "line 1: dim: -1; must be >= 0"},
    {"%x = input f32[2] strides=[1]", "line 1: expected `stride`, got `strides`"},
    {"%x = input f32[2] stride=[1,1]", "line 1: 2 strides for 1 dimensions"},
    {"%x = input f32[2,2] stride=[1,1]",
     "line 1: input x: stride 0 is 1 but the dimensions below it span 2 elements; they overlap"},
    {"%1 = input f32[2]",
     "line 1: input: `1` is no name: a letter or _, then letters, digits, _ or ., at most 255"},
    {"%" LONG_NAME "b = input f32[]", "line 1: a name is longer than 255 characters"},
    {"%x = input f32[2]\n%x = input f32[2]", "line 2: %x is defined already"},
    {"%y = relu %x", "line 1: %x is not defined above"},
    {"%y = frobnicate %x", "line 1: unknown operation `frobnicate`"},
    {"%y = map %x", "line 1: unknown operation `map`; do you mean max?"},
    {"%x = input f32[2]\n%y = relu %x %x", "line 2: trailing text `%x`; commas between operands"},
    {"%x = input f32[2]\n%y = relu %x,", "line 2: expected `%` before ``"},
    {"%x = input f32[2]\n%y = relu", "line 2: relu: takes 1 operands, got 0"},
    {"%x = input f32[2]\n%y = relu %x {alpha=1}",
     "line 2: no attribute is called `alpha` here: relu has none"},
    {"%x = input f32[2]\n%y = scale %x {alpha}", "line 2: expected `=` before `}`"},
    {"%x = input f32[2]\n%y = scale %x {alpha=}", "line 2: expected a number before `}`"},
    {"%x = input f32[2]\n%y = scale %x {alpha=1", "line 2: expected `}` before ``"},
    {"%x = input f32[2]\n%y = scale %x {alpha=1x}", "line 2: `1x` is no number"},
    {"%x = input f32[2]\n%y = scale %x {alpha=1e39}", "line 2: 1e39 does not fit in fp32"},
    {"%x = input f32[2]\n%y = scale %x", "line 2: scale: its parameter `alpha` is missing"},
    {"%x = input f32[2,2]\n%y = attention %x, %x, %x {score=sofcap}",
     "line 2: attention: no map is called `sofcap`; do you mean softcap?"},
    {"%x = input f32[2,2]\n%y = attention %x, %x, %x {score=softcap}",
     "line 2: softcap: its parameter `cap` is missing"},
    {"%x = input f32[2,2]\n%y = attention %x, %x, %x {score=softcap {cap=1, cap=2}}",
     "line 2: the attribute `cap` is given twice"},
    {"%x = input f32[2,2]\n%y = attention %x, %x, %x {score=softcap {heads=1}}",
     "line 2: no attribute is called `heads` here: softcap has cap"},
    {"%x = input f32[2,2]\n%y = attention %x, %x, %x {cap=1, score=softcap {cap=1}}",
     "line 2: no attribute is called `cap` here: attention has scale, heads, kv_heads, window, causal, "
     "align, "
     "ahead, page, lse, layout, softcap"},
    {"%x = input f32[2,2]\n%y = attention %x, %x, %x {score=tanh, score=relu}",
     "line 2: the attribute `score` is given twice"},
    {"%x = input f32[2,2]\n%y = rope %x {score=tanh}",
     "line 2: no attribute is called `score` here: rope has base, head_dim, rotary, heads, half, inverse, "
     "scale, section0, section1, section2, section3, section4, section5, interleave_sections"},
    {"%x = input f32[2]\n%y = swish %x", "line 2: unknown operation `swish`; here it is silu"},
    {"%x = input f32[2]\n%y = Einsum %x", "line 2: unknown operation `Einsum`; here it is matmul"},
    {"%x = input f32[2]\n%y = atention %x", "line 2: unknown operation `atention`; do you mean attention?"},
    {"%gate = input f32[2]\n%y = relu %gaet", "line 2: %gaet is not defined above; do you mean %gate?"},
    {"%x = input f32[2]\n%y = rms_norm %x {espilon=1}",
     "line 2: no attribute is called `espilon` here: rms_norm has eps"},
    {"%x = input f32[2,2]\n%y = attention %x, %x, %x {score=softcap {cap=1}",
     "line 2: expected `}` before ``"},
    {"%x = input f32[2]\n%y = scale %x {alpha=1, alpha=2}", "line 2: the attribute `alpha` is given twice"},
    {"map f(1; 3) \"x\"\n%x = input f32[2]\n%y = f %x {p2=1, p0=1}",
     "line 3: f: its parameter `p1` is missing"},
    {"%x = input f32[2]\n%y = slice %x {axis=0, stop=1, step=1, axis=0}",
     "line 2: the attribute `axis` is given twice"},
    {"%x = input f32[2]\n%y = slice %x {stop=2.5, step=1}", "line 2: expected `}` before `.5, step=1}`"},
    {"%x = input f32[2]\n%y = cast %x {to=1}",
     "line 2: `1` is no dtype: they are f32, bf16, f16, i32, i64, f8e4m3, f8e5m2, i8, u8"},
    {"%x = input f32[2,2]\n%w = weight f32[2,3]\n%y = matmul %x, %w",
     "line 3: matmul: x is [2,2] but w is [2,3]; inner sizes 2 and 3 differ;"
     " a w of [K,N] is for coda_matmul_kn, or kn=1"},
    {"%x = input f32[2]\n%y = relu %x @%z", "line 2: %z is not defined above"},
    {"%x = input f32[2]\n%y = relu %x @%y", "line 2: %y is not defined above"},
    {"output %y = %x", "line 1: %x is not defined above"},
    {"%x = input f32[2]\noutput %x = %x", "line 2: output x: the name is taken, by input f32[2]"},
    {"%x = input f32[2]\noutput y = %x", "line 2: expected `%` before `y = %x`"},
    {"%x = input f32[2,2]\noutput %y = %x stride=[0,1]",
     "line 2: output y: stride 0 is 0 but dimension 0 is 2; its elements overlap"},
    {"map f(1) \"x", "line 1: the string has no end"},
    {"map f(1) \"x\\", "line 1: unknown escape in a string"},
    {"map f(1) \"x\\q\"", "line 1: unknown escape in a string"},
    {"map f(1) \"x\\x0\"", "line 1: \\x needs two hexadecimal digits, not both 0"},
    {"map f(1) \"x\\x00\"", "line 1: \\x needs two hexadecimal digits, not both 0"},
    {"map f(1) x", "line 1: expected `\"` before `x`"},
    {"map f(1) \"\"", "line 1: map f: it has no source"},
    {"map f(0) \"x\"", "line 1: map f: 0 inputs; must be 1..4"},
    {"map f(1) \"x\" {}", "line 1: expected grad0 to grad3 before `}`"},
    {"map f(1) \"x\" {grad=silu}", "line 1: expected grad0 to grad3, got `grad`"},
    {"map f(1) \"x\" {grad4=silu}", "line 1: expected grad0 to grad3, got `grad4`"},
    {"map f(1) \"x\" {g=silu}", "line 1: expected grad0 to grad3, got `g`"},
    {"map f(1) \"x\" {grad0=silu, grad0=0}", "line 1: grad0 is given twice"},
    {"map f(1) \"x\" {grad0 silu}", "line 1: expected `=` before `silu}`"},
    {"map f(1) \"x\" {grad0=}", "line 1: expected a map, 0 or 1 before `}`"},
    {"map f(1) \"x\" {grad0=silu", "line 1: expected `}` before ``"},
    {"map f(1) \"x\" {grad0=2}", "line 1: map f: grad[0] is `2`, which is no map of this graph, nor 0 or 1"},
    {"map f(1) \"x\" {grad1=0}", "line 1: map f: grad[1] is `0`, but it has 1 operands"},
    {"map f(99999999999) \"x\"", "line 1: map f: 99 inputs; must be 1..4"},
    {"map f(1; 5) \"x\"", "line 1: map f: 5 params; must be 0..4"},
    {"map add(1) \"x\"", "line 1: map add: the name is taken"},
    {"map matmul(1) \"x\"", "line 1: map matmul: the name is taken"},
    {"map f(1) \"x\"\nmap f(1) \"x\"", "line 2: map f: the name is taken"},
    {"map f(1) \"x\" y", "line 1: trailing text `y`"},
    {"map 1f(1) \"x\"", "line 1: map: `1f` is no identifier of at most 63 characters"},
    {"\x01", "line 1: expected `%`, `dim`, `map` or `output` before `\\x01`"},
};

START_TEST(mistake)
{
    coda_graph *g = (coda_graph *)1;
    ck_assert_int_eq(coda_graph_parse(&g, mistakes[_i].text), CODA_E_INVALID);
    ck_assert_str_eq(mistake_plain(coda_error()), mistakes[_i].message);
    ck_assert_ptr_null(g);
}
END_TEST

START_TEST(many_operands)
{
    struct text t = {0}, again = {0};
    text_append(&t, "%x = input f32[2]\n%1 = concat %x");
    for (int i = 1; i < 1000; i++) text_append(&t, ", %x");
    text_append(&t, "  ; f32[2000]\n");
    graph *g = graph_parse(text_str(&t));
    ck_assert_msg(g, "%s", coda_error());
    graph_print(g, &again);
    ck_assert_str_eq(text_str(&t), text_str(&again));
    graph_free(g);
    text_free(&t);
    text_free(&again);
}
END_TEST

START_TEST(public_print)
{
    coda_graph *g;
    const char *text = "%x = input f32[2]\n";
    char buf[8] = "?", whole[64];
    ck_assert_int_eq(coda_graph_parse(&g, text), CODA_OK);
    ck_assert_int_eq(coda_graph_print(g, NULL, 0), (int64_t)strlen(text));
    ck_assert_int_eq(coda_graph_print(g, buf, sizeof buf), (int64_t)strlen(text));
    ck_assert_str_eq(buf, "%x = in");
    coda_graph_print(g, whole, sizeof whole);
    ck_assert_str_eq(whole, text);
    ck_assert_int_eq(coda_graph_print(g, NULL, 8), CODA_E_INVALID);
    ck_assert_int_eq(coda_graph_print(NULL, buf, sizeof buf), CODA_E_INVALID);
    coda_matmul(g, CODA_NONE, CODA_NONE);
    ck_assert_int_gt(coda_graph_print(g, buf, sizeof buf), (int64_t)strlen(text));
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_str_eq(mistake_plain(coda_error()), "matmul: operand 0 (x) is CODA_NONE");
    coda_graph_free(g);
    ck_assert_int_eq(coda_graph_parse(&g, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "graph parse: text is NULL");
    ck_assert_int_eq(coda_graph_parse(NULL, text), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "graph parse: out is NULL");
}
END_TEST

/* One line by itself, as a message quotes it. */
START_TEST(one_node)
{
    graph *g = graph_parse("%x = input f32[2,4]\n%a = sum %x\n%b = scale %a {alpha=0.25} @%a\n");
    struct text t = {0};
    node_print(g, 2, &t);
    ck_assert_str_eq(text_str(&t), "%2 = scale %1 {alpha=0x1p-2} @%1  ; f32[2,1]");
    text_free(&t);
    value_print(g, 0, &t);
    value_print(g, -1, &t);
    value_print(g, 3, &t);
    ck_assert_str_eq(text_str(&t), "%x__");
    text_free(&t);
    graph_free(g);
}
END_TEST

/* Leaves and outputs of a text by their names, as values to build on. */
START_TEST(found_by_name)
{
    coda_graph *g;
    coda_value dx;
    int64_t dims[CODA_MAX_RANK];
    ck_assert_int_eq(
        coda_graph_parse(&g, "dim %T = 1..8\n%x = input f32[T,4]\n%w = weight f32[4]\n%p = mul %x, %w\n"
                             "%l = reshape %p {rank=1, d0=4*T}\noutput %y = %p\noutput %logits = %l\n"),
        CODA_OK);
    coda_value x = coda_graph_find(g, "x"), w = coda_graph_find(g, "w"), y = coda_graph_find(g, "y");
    coda_value z = coda_graph_find(g, "logits");
    ck_assert_uint_eq(x.id, 1);
    ck_assert_uint_eq(w.id, 2);
    ck_assert_uint_eq(y.id, 3);
    ck_assert_uint_eq(z.id, 4);
    ck_assert_int_eq(coda_value_shape(g, z, dims, NULL), 1);
    coda_grad(g, &y, &x, 1, &w, 1, &dx, NULL);
    ck_assert_int_eq(coda_graph_status(g), CODA_OK);
    ck_assert_int_eq(coda_value_shape(g, dx, dims, NULL), 1);
    ck_assert_int_eq(dims[0], 4);
    ck_assert_uint_eq(coda_graph_find(g, "T").id, 0);
    ck_assert_str_eq(coda_error(), "graph_find: none of 4 leaves and outputs is called \"T\"");
    ck_assert_uint_eq(coda_graph_find(g, "logit").id, 0);
    ck_assert_str_eq(coda_error(),
                     "graph_find: none of 4 leaves and outputs is called \"logit\"; do you mean logits?");
    ck_assert_uint_eq(coda_graph_find(g, "p").id, 0);
    ck_assert_uint_eq(coda_graph_find(g, NULL).id, 0);
    ck_assert_str_eq(coda_error(), "graph_find: name is NULL");
    ck_assert_uint_eq(coda_graph_find(NULL, "x").id, 0);
    ck_assert_str_eq(coda_error(), "graph_find: the graph is NULL");
    ck_assert_int_eq(coda_graph_status(g), CODA_OK);
    coda_graph_free(g);
}
END_TEST

TESTS(text, EACH(form, ARRAY_SIZE(forms)), ONE(fixed_point), ONE(floats), ONE(debuggers_see_graphs),
      EACH(mistake, ARRAY_SIZE(mistakes)), ONE(many_operands), ONE(public_print), ONE(one_node),
      ONE(found_by_name));
