/* util_invisible.c -- graphs of which some rows must not notice what other rows hold. */
#include "util_invisible.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOSS(reduction)                                                                                      \
    "%x = input $t[37,100] stride=[104,1]\n%t = input i32[37]\n"                                             \
    "%y = cross_entropy %x, %t {ignore=-100, reduction=" reduction "}\noutput %y = %y"
#define FUSED_LOSS(reduction)                                                                                \
    "%x = input $t[70,64]\n%w = weight $t[200,64]\n%t = input i32[70]\n%n = rms_norm %x {eps=1e-5}\n"        \
    "%l = matmul %n, %w\n%y = cross_entropy %l, %t {ignore=-100, reduction=" reduction "}\noutput %y = %y"

const struct invisible_case invisible_cases[] = {
    {"product",
     "%x = input $t[37,41] stride=[48,1]\n%w = weight $t[29,41] stride=[48,1]\n"
     "%y = matmul %x, %w\noutput %y = %y stride=[32,1]",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"batches of transposes",
     "%x = input $t[5,24,16]\n%t = transpose %x {p0=0, p1=2, p2=1}\n"
     "%w = weight $t[8,24]\n%y = matmul %t, %w\noutput %y = %y",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"epilogue",
     "%x = input $t[70,64]\n%w = weight $t[72,64]\n%b = weight $t[72]\n%r = input $t[70,72]\n"
     "%y = matmul %x, %w\n%z = add %y, %b\n%g = gelu_tanh %z\n%s = add %g, %r\noutput %s = %s",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"residual",
     "%x = input $t[70,64]\n%w = weight $t[72,64]\n%r = input $t[70,72]\n%y = matmul %x, %w\n"
     "%s = add %y, %r\n%n = rms_norm %s {eps=1e-5}\n%v = weight $t[40,72]\n%z = matmul %n, %v\n"
     "output %z = %z\noutput %s = %s",
     2,
     -1,
     0,
     {0},
     false,
     false},
    {"a few rows",
     "%x = input $t[5,512]\n%w = weight $t[64,512]\n%y = matmul %x, %w\n%s = silu %y\n"
     "output %y = %s",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"two rows",
     "%x = input $t[2,256]\n%w = weight $t[48,256]\n%n = layer_norm %x {eps=1e-5}\n"
     "%y = matmul %n, %w\noutput %y = %y",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"sixteen rows",
     "%x = input $t[13,256]\n%w = weight $t[96,256]\n%y = matmul %x, %w\n%s = sum %y\n"
     "output %s = %s\noutput %y = %y",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"batches",
     "%x = input $t[5,9,24]\n%w = input $t[5,17,24]\n%y = matmul %x, %w\noutput %y = %y",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"batches of weights",
     "%x = input $t[5,9,24]\n%w = input $t[5,24,16]\n%y = matmul %x, %w {kn=1}\n"
     "output %y = %y",
     1,
     -1,
     0,
     {0},
     false,
     false},
    {"norms",
     "%x = input $t[37,75] stride=[80,1]\n%g = weight $t[75]\n%n = rms_norm %x, %g {eps=1e-5}\n"
     "%l = layer_norm %n, %g, %g {eps=1e-5}\n%s = softmax %l\noutput %s = %s",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"statistics",
     "%x = input $t[37,75] stride=[80,1]\n%w = weight $t[150,75] stride=[80,1]\n"
     "%m = max %x\n%l = log_sum_exp %x\n%y = matmul %x, %w\n%k = log_sum_exp %y\n%s = sum %y\n"
     "output %m = %m\noutput %l = %l\noutput %k = %k\noutput %s = %s",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"gates",
     "%x = input $t[70,64]\n%w = weight $t[96,64]\n%y = matmul %x, %w\n"
     "%g = slice %y {axis=1, stop=48, step=1}\n%u = slice %y {axis=1, start=48, stop=96, step=1} @%g\n"
     "%s = swiglu %g, %u @%g\noutput %s = %s",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"rope",
     "%x = input $t[40,64]\n%w = weight $t[96,64]\n%y = matmul %x, %w\n"
     "%r = rope %y {base=10000, head_dim=32, heads=2, half=1}\noutput %r = %r",
     0,
     -1,
     0,
     {0},
     false,
     false},
    {"attention",
     "%q = input $t[5,20,32]\n%k = input $t[5,20,32]\n%v = input $t[5,20,32]\n"
     "%a = attention %q, %k, %v {heads=2, causal=1}\noutput %a = %a",
     2,
     -1,
     0,
     {0},
     false,
     false},
    {"keys",
     "%q = input $t[5,20,32]\n%k = input $t[5,33,32]\n%v = input $t[5,33,32]\n"
     "%a = attention %q, %k, %v {heads=2, window=7}\noutput %a = %a",
     1,
     -1,
     0,
     {0},
     false,
     false},
    {"empty sequences",
     "%q = input $t[5,20,32]\n%k = input $t[5,33,32]\n%v = input $t[5,33,32]\n"
     "%n = input i32[5]\n%a = attention %q, %k, %v, %n {heads=2}\noutput %a = %a",
     2,
     3,
     33,
     {0, -7},
     false,
     true},
    {"ignored losses", LOSS("0"), 0, 1, 100, {-100, -100}, false, true},
    {"ignored losses, mean", LOSS("1"), 0, 1, 100, {-100, -100}, false, true},
    {"ignored losses, sum", LOSS("2"), 0, 1, 100, {-100, -100}, false, true},
    {"ignored losses of a product", FUSED_LOSS("0"), 0, 2, 200, {-100, -100}, false, true},
    {"ignored losses of a product, mean", FUSED_LOSS("1"), 0, 2, 200, {-100, -100}, false, true},
    {"selected",
     "%x = input $t[37,100]\n%t = input i32[37]\n%s = select %x, %t\noutput %s = %s",
     0,
     1,
     100,
     {5, 7},
     false,
     false},
    {"a table",
     "%e = weight $t[50,72]\n%i = input i32[40]\n%y = embedding %e, %i\noutput %y = %y",
     0,
     1,
     49,
     {-1, 50},
     true,
     true},
    {"a table's rows in a product",
     "%e = weight $t[50,64]\n%i = input i32[40]\n%w = weight $t[48,64]\n"
     "%y = embedding %e, %i\n%n = rms_norm %y {eps=1e-5}\n%z = matmul %n, %w\n"
     "%s = add %z, %z\noutput %z = %s",
     0,
     1,
     49,
     {-3, 1 << 23},
     true,
     true},
    {"a table's rows in an epilogue",
     "%e = weight $t[50,72]\n%i = input i32[40]\n%x = input $t[40,64]\n"
     "%w = weight $t[72,64]\n%y = matmul %x, %w\n%z = embedding %e, %i\n"
     "%s = add %y, %z\noutput %s = %s",
     0,
     1,
     49,
     {-1, 50},
     true,
     true},
};
const int invisible_case_count = ARRAY_SIZE(invisible_cases);

static bool is_poisoned(int64_t row) { return row % 3 == 1; }

graph *invisible_graph(const struct invisible_case *c, coda_dtype t)
{
    char text[2048], *to = text;
    for (const char *from = c->text; *from; from++) {
        const char *word = *from == '$' ? dtype_name(t) : NULL;
        if (word) strcpy(to, word), to += strlen(word), from++;
        else *to++ = *from;
    }
    *to = 0;
    coda_graph *g;
    return coda_graph_parse(&g, text) == CODA_OK ? g : NULL;
}

static void poison_row(const coda_arg_info *a, void *base, int64_t row, struct random *r)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, NAN};
    int64_t n = 1;
    for (int d = 1; d < a->rank; d++) n *= a->dims[d];
    for (int64_t e = 0; e < n; e++) {
        int64_t at = row * a->strides[0], rest = e;
        for (int d = a->rank - 1; d > 0; rest /= a->dims[d--]) at += rest % a->dims[d] * a->strides[d];
        dtype_store(a->dtype, base, at, bad[random_below(r, 4)]);
    }
}

void **invisible_args(const struct invisible_case *c, const graph *g, bool poison, bool evaluate)
{
    void **args = random_args(g, 5, evaluate);
    struct random r = {9};
    coda_arg_info a = CODA_ARG_INFO_INIT;
    if (c->ids >= 0) {
        coda_graph_arg(g, c->ids, &a);
        int lowest = c->table;
        for (int64_t i = 0; i < a.dims[0]; i++)
            ((int32_t *)args[c->ids])[i] =
                is_poisoned(i) ? c->bad[i / 3 % 2] : lowest + (int32_t)random_below(&r, c->most - lowest);
    }
    coda_graph_arg(g, c->poisoned, &a);
    for (int64_t i = 0; i < a.dims[0] && poison; i++)
        if (c->table ? i == 0 || i + 1 == a.dims[0] : is_poisoned(i))
            poison_row(&a, args[c->poisoned], i, &r);
    return args;
}

static int64_t compare_row(const coda_arg_info *a, const void *x, const void *y, int64_t row, bool evaluate)
{
    int64_t n = 1, wrong = 0;
    for (int d = 1; d < a->rank; d++) n *= a->dims[d];
    for (int64_t e = 0; e < n; e++) {
        int64_t at = row * a->strides[0], rest = e;
        for (int d = a->rank - 1; d > 0; rest /= a->dims[d--]) at += rest % a->dims[d] * a->strides[d];
        double p = evaluate ? ((const double *)x)[row * n + e] : dtype_load(a->dtype, x, at);
        double q = evaluate ? ((const double *)y)[row * n + e] : dtype_load(a->dtype, y, at);
        wrong += !isfinite(p) || p != q;
    }
    return wrong;
}

int64_t invisible_difference(const struct invisible_case *c, const graph *g, void **clean, void **poisoned,
                             bool evaluate)
{
    int64_t wrong = 0;
    for (int i = coda_graph_args(g) - g->outputs; i < coda_graph_args(g); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_graph_arg(g, i, &a);
        for (int64_t row = 0; row < a.dims[0]; row++)
            if (c->whole || !is_poisoned(row)) wrong += compare_row(&a, clean[i], poisoned[i], row, evaluate);
    }
    return wrong;
}
