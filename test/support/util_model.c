/* util_model.c -- models as text for any number of rows. */
#include "util_model.h"
#include "util_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct model models[] = {
    {"llama",
     "%x = input f32[M,32]\n%g1 = weight f32[32]\n%qkv = weight f32[96,32]\n%o = weight f32[32,32]\n"
     "%g2 = weight f32[32]\n%gu = weight f32[96,32]\n%d = weight f32[32,48]\n"
     "%n = rms_norm %x, %g1 {eps=1e-5}\n%p = matmul %n, %qkv\n"
     "%r = rope %p {base=10000,head_dim=8,rotary=8,heads=8,half=1}\n"
     "%q = slice %r {axis=1,start=0,stop=32,step=1}\n%k = slice %r {axis=1,start=32,stop=64,step=1}\n"
     "%v = slice %r {axis=1,start=64,stop=96,step=1}\n"
     "%a = attention %q, %k, %v {heads=4,kv_heads=4,causal=1}\n%ao = matmul %a, %o\n%h = add %ao, %x\n"
     "%n2 = rms_norm %h, %g2 {eps=1e-5}\n%m = matmul %n2, %gu\n"
     "%gate = slice %m {axis=1,start=0,stop=48,step=1}\n%up = slice %m {axis=1,start=48,stop=96,step=1}\n"
     "%s = swiglu %gate, %up\n%e = matmul %s, %d\n%f = add %e, %h\noutput %y = %f\n"},
    {"gpt2",
     "%x = input f32[M,32]\n%g1 = weight f32[32]\n%b1 = weight f32[32]\n%w1 = weight f32[64,32]\n"
     "%c1 = weight f32[64]\n%w2 = weight f32[32,64]\n%c2 = weight f32[32]\n%g2 = weight f32[32]\n"
     "%b2 = weight f32[32]\n%head = weight f32[40,32]\n%n = layer_norm %x, %g1, %b1 {eps=1e-5}\n"
     "%u = matmul %n, %w1\n%ub = add %u, %c1\n%a = gelu_tanh %ub\n%d = matmul %a, %w2\n%db = add %d, %c2\n"
     "%h = add %db, %x\n%f = layer_norm %h, %g2, %b2 {eps=1e-5}\n%l = matmul %f, %head\noutput %y = %l\n"},
    {"bert",
     "%x = input f32[M,32]\n%w = weight f32[32,32]\n%g = weight f32[32]\n%b = weight f32[32]\n"
     "%w2 = weight f32[48,32]\n%p = matmul %x, %w\n%h = add %p, %x\n%n = layer_norm %h, %g, %b {eps=1e-5}\n"
     "%q = matmul %n, %w2\noutput %n_out = %n\noutput %y = %q\n"},
    {"vit", "%x = input f32[M,32]\n%patch = weight f32[32,32]\n%cls = weight f32[1,32]\n%g = weight f32[32]\n"
            "%w = weight f32[48,32]\n%e = matmul %x, %patch\n%h = concat %cls, %e {axis=0}\n"
            "%n = rms_norm %h, %g {eps=1e-5}\n%p = matmul %n, %w\noutput %y = %p\n"},
    {"batches", "%x = input f32[2,M,32]\n%g = weight f32[32]\n%w = weight f32[32,48]\n%b = weight f32[32]\n"
                "%n = layer_norm %x, %g, %b {eps=1e-5}\n%p = matmul %n, %w {kn=1}\noutput %y = %p\n"},
    {"gated gain", "%x = input f32[M,32]\n%z = input f32[M,32]\n%g = weight f32[32]\n%w = weight f32[48,32]\n"
                   "%a = mul %x, %z\n%b = mul %a, %g\n%p = matmul %b, %w\noutput %y = %p\n"},
    {"gated bias", "%x = input f32[M,32]\n%z = input f32[M,32]\n%g = weight f32[32]\n%w = weight f32[48,32]\n"
                   "%a = add %x, %g\n%b = mul %a, %z\n%p = matmul %b, %w\noutput %y = %p\n"},
    {"parallel",
     "%x = input bf16[M,32]\n%g = weight bf16[32]\n%w = weight bf16[48,32]\n%v = weight bf16[48,32]\n"
     "%n = rms_norm %x, %g {eps=1e-5}\n%p = matmul %n, %w\n%q = matmul %n, %v\n%r = silu %p\n"
     "%s = mul %r, %q\noutput %y = %s\n"},
};
const int model_count = ARRAY_SIZE(models);

graph *model_graph(const char *text, int64_t rows)
{
    struct text t = {0};
    for (const char *s = text; *s; s++) {
        bool row = (s[0] == 'M') && s > text && (s[-1] == '[' || s[-1] == ',');
        if (row && s[1] == '+') {
            text_printf(&t, "%lld", (long long)rows + strtol(s + 2, NULL, 10));
            s += 1 + strspn(s + 2, "0123456789");
        } else if (row) text_printf(&t, "%lld", (long long)rows);
        else text_printf(&t, "%c", *s);
    }
    graph *g = graph_parse(text_str(&t));
    text_free(&t);
    return g;
}

/* ---- Random ---- */

struct stack {
    struct random r;
    struct text leaves, nodes;
    int n, rows; /* values; rows beyond M */
    int columns;
    const char *dtype, *lead; /* dimensions before M */
    struct {
        int rows, columns;
    } shape[32]; /* of values */
};

static void leaf(struct stack *s, const char *op, const char *dims)
{
    text_printf(&s->leaves, "%%l%d = %s %s%s\n", s->n, op, s->dtype, dims);
}

/* A factor or a shift of any shape, constant or not. */
static void meet(struct stack *s, int x)
{
    static const char *const by[] = {"mul", "mul", "add", "sub", "div"};
    const char *op = by[random_below(&s->r, 5)];
    bool weight = random_chance(&s->r, 60);
    char dims[64];
    switch (random_below(&s->r, weight ? 3 : 5)) {
    case 0: snprintf(dims, sizeof dims, "[%d]", s->columns); break;
    case 1: snprintf(dims, sizeof dims, "[1,%d]", s->columns); break;
    case 2: snprintf(dims, sizeof dims, "[1,1]"); break;
    case 3: snprintf(dims, sizeof dims, "[%sM+%d,1]", s->lead, s->rows); break;
    default: snprintf(dims, sizeof dims, "[%sM+%d,%d]", s->lead, s->rows, s->columns); break;
    }
    leaf(s, weight ? "weight" : "input", dims);
    text_printf(&s->nodes, "%%v%d = %s %%v%d, %%l%d\n", s->n, op, x, s->n);
}

/* With an earlier value of the same shape: a residual, a gate. */
static void meet_earlier(struct stack *s, int x)
{
    int with = (int)random_below(&s->r, x + 1);
    bool same = s->shape[with].rows == s->rows && s->shape[with].columns == s->columns;
    text_printf(&s->nodes, "%%v%d = %s %%v%d, %%v%d\n", s->n, random_chance(&s->r, 50) ? "add" : "mul", x,
                same ? with : x);
}

static void multiply(struct stack *s, int x)
{
    char dims[64];
    bool kn = random_chance(&s->r, 30);
    int out = 8 * (1 + (int)random_below(&s->r, 4));
    snprintf(dims, sizeof dims, "[%d,%d]", kn ? s->columns : out, kn ? out : s->columns);
    leaf(s, "weight", dims);
    text_printf(&s->nodes, "%%v%d = matmul %%v%d, %%l%d%s\n", s->n, x, s->n, kn ? " {kn=1}" : "");
    s->columns = out;
}

static void normalise(struct stack *s, int x)
{
    char dims[64];
    snprintf(dims, sizeof dims, "[%d]", s->columns);
    leaf(s, "weight", dims);
    if (random_chance(&s->r, 50)) {
        text_printf(&s->leaves, "%%m%d = weight %s%s\n", s->n, s->dtype, dims);
        text_printf(&s->nodes, "%%v%d = layer_norm %%v%d, %%l%d, %%m%d {eps=1e-5}\n", s->n, x, s->n, s->n);
    } else text_printf(&s->nodes, "%%v%d = rms_norm %%v%d, %%l%d {eps=1e-5}\n", s->n, x, s->n);
}

static void prefix(struct stack *s, int x)
{
    char dims[64];
    int more = 1 + (int)random_below(&s->r, 2);
    snprintf(dims, sizeof dims, "[%s%d,%d]", s->lead, more, s->columns);
    leaf(s, "weight", dims);
    text_printf(&s->nodes, "%%v%d = concat %%l%d, %%v%d {axis=%d}\n", s->n, s->n, x, *s->lead != 0);
    s->rows += more;
}

char *model_random(uint64_t seed)
{
    static const char *const map[] = {"silu", "relu", "gelu_tanh"};
    static const char *const dtype[] = {"f32", "bf16", "f16"}, *const lead[] = {"", "", "1,", "3,"};
    struct stack s = {.r = {seed}, .columns = 16};
    s.dtype = dtype[random_below(&s.r, 3)];
    s.lead = lead[random_below(&s.r, 4)];
    text_printf(&s.leaves, "%%v0 = input %s[%sM,%d]\n", s.dtype, s.lead, s.columns);
    for (int64_t n = 3 + random_below(&s.r, 12); n > 0; n--) {
        int x = s.n++;
        s.shape[x].rows = s.rows;
        s.shape[x].columns = s.columns;
        switch (random_below(&s.r, 12)) {
        case 0:
        case 1:
        case 2:
        case 3: meet(&s, x); break;
        case 4:
        case 5: multiply(&s, x); break;
        case 6: normalise(&s, x); break;
        case 7: text_printf(&s.nodes, "%%v%d = %s %%v%d\n", s.n, map[random_below(&s.r, 3)], x); break;
        case 8: text_printf(&s.nodes, "%%v%d = scale %%v%d {alpha=0.5}\n", s.n, x); break;
        case 9: prefix(&s, x); break;
        default: meet_earlier(&s, x); break;
        }
        if (random_chance(&s.r, 10)) text_printf(&s.nodes, "output %%o%d = %%v%d\n", s.n, s.n);
    }
    int last = s.n++;
    multiply(&s, last);
    text_printf(&s.nodes, "output %%y = %%v%d\n", s.n);
    struct text all = {0};
    text_printf(&all, "%s%s", text_str(&s.leaves), text_str(&s.nodes));
    text_free(&s.leaves);
    text_free(&s.nodes);
    return all.str;
}
