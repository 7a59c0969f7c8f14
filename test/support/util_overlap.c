/* util_overlap.c -- see util_overlap.h. */
#include "util_overlap.h"

#include "base.h"

/* What is exchanged is just large enough not to be joined (bucket_exchanges). */
enum { LAYERS = 3, M = 512, D = 264, F = 64, TOKENS = 64, PIECES = 2 };

/* y = gelu(x w^T) by layers; then backward by hand, the last layer first. */
static void print_steps(struct text *t)
{
    text_printf(t, "%%tp = group {ranks=2}\n%%a0 = input bf16 [%d,%d]\n%%dy%d = input bf16 [%d,%d]\n", TOKENS,
                D, LAYERS, TOKENS, D);
    for (int i = 1; i <= LAYERS; i++) text_printf(t, "%%w%d = weight bf16 [%d,%d]\n", i, D, D);
    for (int i = 1; i <= LAYERS; i++)
        text_printf(t, "%%h%d = matmul %%a%d, %%w%d\n%%a%d = gelu_tanh %%h%d\n", i, i - 1, i, i, i);
    for (int i = LAYERS; i >= 1; i--) {
        text_printf(t, "%%g%d = gelu_tanh_grad %%h%d\n%%dh%d = mul %%dy%d, %%g%d\n", i, i, i, i, i);
        text_printf(t, "%%dht%d = transpose %%dh%d {p0=1,p1=0}\n", i, i);
        text_printf(t, "%%at%d = transpose %%a%d {p0=1,p1=0}\n", i, i - 1);
        text_printf(t, "%%dw%d = matmul %%dht%d, %%at%d\n", i, i, i);
        if (i > 1) text_printf(t, "%%dy%d = matmul %%dh%d, %%w%d {kn=1}\n", i - 1, i, i);
    }
    for (int i = LAYERS; i >= 1; i--) {
        text_printf(t, "%%s%d = all_reduce %%dw%d, %%tp", i, i);
        if (i < LAYERS) text_printf(t, ", %%s%d", i + 1);
        text_append(t, "\n");
    }
    for (int i = 2; i <= LAYERS; i++)
        text_printf(t, "%%u%d = sub %%w%d, %%s%d\noutput %%o%d = %%u%d\n", i, i, i, i, i);
    text_append(t, "output %o1 = %s1\n"); /* for which nothing of the graph waits */
}

static void print_sum(struct text *t, const char *name, const char *of, int piece, const char *before)
{
    text_printf(t, "%%%s%d = all_reduce %%%s%d, %%tp", name, piece, of, piece);
    if (before) text_printf(t, ", %%%s", before);
    text_append(t, "\n");
}

static void print_pieces(struct text *t)
{
    int rows = M / PIECES;
    text_printf(t, "%%tp = group {ranks=2}\n%%x = input bf16 [%d,%d]\n%%a = input bf16 [%d,%d]\n", M, D, M,
                D / 2);
    text_printf(t, "%%wo = weight bf16 [%d,%d]\n%%wg = weight bf16 [%d,%d]\n", D, D / 2, F, D);
    text_printf(t, "%%wu = weight bf16 [%d,%d]\n%%wd = weight bf16 [%d,%d]\n", F, D, D, F);
    for (int i = 0; i < PIECES; i++) {
        text_printf(t, "%%x%d = slice %%x {axis=0,start=%d,stop=%d,step=1}\n", i, i * rows, i * rows + rows);
        text_printf(t, "%%a%d = slice %%a {axis=0,start=%d,stop=%d,step=1}\n", i, i * rows, i * rows + rows);
        text_printf(t, "%%z%d = matmul %%a%d, %%wo\n", i, i);
        print_sum(t, "s", "z", i, i ? "s0" : NULL);
    }
    for (int i = 0; i < PIECES; i++) {
        text_printf(t, "%%h%d = add %%s%d, %%x%d\n%%n%d = rms_norm %%h%d {eps=1e-5}\n", i, i, i, i, i);
        text_printf(t, "%%g%d = matmul %%n%d, %%wg\n%%u%d = matmul %%n%d, %%wu\n", i, i, i, i);
        text_printf(t, "%%m%d = swiglu %%g%d, %%u%d\n%%v%d = matmul %%m%d, %%wd\n", i, i, i, i, i);
        print_sum(t, "t", "v", i, i ? "t0" : "s1");
    }
    for (int i = 0; i < PIECES; i++) text_printf(t, "%%y%d = add %%t%d, %%h%d\n", i, i, i);
    text_append(t, "%y = concat %y0, %y1 {axis=0}\noutput %out = %y\n");
}

void overlap_graph(char *text, size_t size, int which)
{
    struct text t = {0};
    if (which) print_pieces(&t);
    else print_steps(&t);
    text_emit(&t, text, size);
    text_free(&t);
}
