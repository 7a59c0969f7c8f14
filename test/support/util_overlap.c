/* util_overlap.c -- see util_overlap.h. */
#include "util_overlap.h"

#include "base.h"

/* What is exchanged is just large enough not to be joined (bucket_exchanges). */
enum { LAYERS = 3, M = 512, D = 264, F = 64, TOKENS = 64, PIECES = 2, HALVES = 3, WIDE_D = 288 };

/* y = gelu(x w^T) by layers; then backward by hand, the last layer first. Gradients are in fp32, or not. */
static void print_steps(struct text *t, int d, bool f32)
{
    const char *wide = f32 ? " {f32=1}" : "";
    text_printf(t, "%%tp = group {ranks=2}\n%%a0 = input bf16 [%d,%d]\n%%dy%d = input bf16 [%d,%d]\n", TOKENS,
                d, LAYERS, TOKENS, d);
    for (int i = 1; i <= LAYERS; i++) text_printf(t, "%%w%d = weight bf16 [%d,%d]\n", i, d, d);
    for (int i = 1; i <= LAYERS; i++)
        text_printf(t, "%%h%d = matmul %%a%d, %%w%d\n%%a%d = gelu_tanh %%h%d\n", i, i - 1, i, i, i);
    for (int i = LAYERS; i >= 1; i--) {
        text_printf(t, "%%g%d = gelu_tanh_grad %%h%d\n%%dh%d = mul %%dy%d, %%g%d\n", i, i, i, i, i);
        text_printf(t, "%%dht%d = transpose %%dh%d {p0=1,p1=0}\n", i, i);
        text_printf(t, "%%at%d = transpose %%a%d {p0=1,p1=0}\n", i, i - 1);
        text_printf(t, "%%dw%d = matmul %%dht%d, %%at%d%s\n", i, i, i, wide);
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

/* The sum of a piece of z, which comes behind the one before. */
static void print_sum(struct text *t, int number, int piece)
{
    text_printf(t, "%%s%d = all_reduce %%z%d_%d, %%tp", number, number / PIECES, piece);
    if (number) text_printf(t, ", %%s%d", number - 1);
    text_append(t, "\n");
}

/* Of q, k and v, in place of attention, q k + v. */
static void print_attention(struct text *t, int k, int i)
{
    text_printf(t, "%%g%d_%d = matmul %%n%d_%d, %%wq\n", k, i, k, i);
    for (int p = 0; p < 3; p++)
        text_printf(t, "%%p%d_%d_%d = slice %%g%d_%d {axis=1,start=%d,stop=%d,step=1}\n", p, k, i, k, i,
                    p * D / 2, (p + 1) * D / 2);
    text_printf(t, "%%u%d_%d = mul %%p0_%d_%d, %%p1_%d_%d\n", k, i, k, i, k, i);
    text_printf(t, "%%m%d_%d = add %%u%d_%d, %%p2_%d_%d\n", k, i, k, i, k, i);
}

static void print_mlp(struct text *t, int k, int i)
{
    text_printf(t, "%%g%d_%d = matmul %%n%d_%d, %%wg\n%%u%d_%d = matmul %%n%d_%d, %%wu\n", k, i, k, i, k, i,
                k, i);
    text_printf(t, "%%m%d_%d = swiglu %%g%d_%d, %%u%d_%d\n", k, i, k, i, k, i);
}

/* h += s, of which piece i of half k is sum k PIECES + i; then halves by turns. */
static void print_half(struct text *t, int k, int i)
{
    text_printf(t, "%%h%d_%d = add %%s%d, %%h%d_%d\n", k, i, (k - 1) * PIECES + i, k - 1, i);
    text_printf(t, "%%n%d_%d = rms_norm %%h%d_%d, %%gain {eps=1e-5}\n", k, i, k, i);
    if (k % 2) print_mlp(t, k, i);
    else print_attention(t, k, i);
    text_printf(t, "%%z%d_%d = matmul %%m%d_%d, %%w%s\n", k, i, k, i, k % 2 ? "d" : "o");
    print_sum(t, k * PIECES + i, i);
}

static void print_pieces(struct text *t)
{
    int rows = M / PIECES;
    text_printf(t, "%%tp = group {ranks=2}\n%%x = input bf16 [%d,%d]\n%%a = input bf16 [%d,%d]\n", M, D, M,
                D / 2);
    text_printf(t, "%%wo = weight bf16 [%d,%d]\n%%wg = weight bf16 [%d,%d]\n", D, D / 2, F, D);
    text_printf(t, "%%wq = weight bf16 [%d,%d]\n%%gain = weight bf16 [%d]\n", D / 2 * 3, D, D);
    text_printf(t, "%%wu = weight bf16 [%d,%d]\n%%wd = weight bf16 [%d,%d]\n", F, D, D, F);
    for (int i = 0; i < PIECES; i++) {
        text_printf(t, "%%h0_%d = slice %%x {axis=0,start=%d,stop=%d,step=1}\n", i, i * rows,
                    i * rows + rows);
        text_printf(t, "%%a%d = slice %%a {axis=0,start=%d,stop=%d,step=1}\n", i, i * rows, i * rows + rows);
        text_printf(t, "%%z0_%d = matmul %%a%d, %%wo\n", i, i);
        print_sum(t, i, i);
    }
    for (int k = 1; k < HALVES; k++)
        for (int i = 0; i < PIECES; i++) print_half(t, k, i);
    for (int i = 0; i < PIECES; i++)
        text_printf(t, "%%y%d = add %%s%d, %%h%d_%d\n", i, (HALVES - 1) * PIECES + i, HALVES - 1, i);
    text_append(t, "%y = concat %y0, %y1 {axis=0}\noutput %out = %y\n");
}

void overlap_graph(char *text, size_t size, int which)
{
    struct text t = {0};
    if (which == 1) print_pieces(&t);
    else if (which) print_steps(&t, WIDE_D, which == 2);
    else print_steps(&t, D, false);
    text_emit(&t, text, size);
    text_free(&t);
}
