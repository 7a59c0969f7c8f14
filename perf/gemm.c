/*
 * gemm.c -- plain products: libcoda's own kernel against cuBLASLt's best.
 *
 *     gemm      y [M,N] = x [M,K] w [N,K]', the products of a layer, bf16
 *     layout    every way for x and w to lie in memory, bf16 and fp16, 4096 squared. As BLAS says it: n is
 *               [M,K] and [K,N], t is [K,M] and [N,K]
 *
 * The other side is the same graph with CODA_CUBLASLT: the top of cuBLASLt's heuristic list, 64 MB
 * workspace.
 */
#include <stdlib.h>

#include "bench.h"

enum { TOKENS = 16384, VOCABULARY = 32768, WIDTH = 4096 };
enum { X_T = 1, W_N = 2, F16 = 4 }; /* bits of a variant; 0: nt in bf16 */

static coda_graph *build(const struct figure *f, int side)
{
    if (side > 1) return NULL;
    coda_graph *g = coda_graph_new();
    coda_dtype t = f->variant & F16 ? CODA_F16 : CODA_BF16;
    bool x_t = f->variant & X_T, w_n = f->variant & W_N;
    coda_value x = coda_input(g, "x", t, 2, x_t ? (int64_t[]){f->k, f->m} : (int64_t[]){f->m, f->k});
    coda_value w = coda_weight(g, "w", t, 2, w_n ? (int64_t[]){f->k, f->n} : (int64_t[]){f->n, f->k});
    if (x_t) x = coda_transpose(g, x, (int[]){1, 0});
    coda_output(g, "y", w_n ? coda_matmul_kn(g, x, w) : coda_matmul(g, x, w));
    return g;
}

/* ---- Expectations ---- */

static void expect(struct figure *f, int64_t row, const double *product)
{
    figure_judge(f, "y", row, product);
}

struct sums { /* of one row of y */
    const struct figure *f;
    const struct tensor *x, *w;
    int64_t row;
    double *out;
};

static void sum_column(void *ctx, int64_t j)
{
    const struct sums *s = ctx;
    const struct figure *f = s->f;
    int64_t x_row = f->variant & X_T ? 1 : f->k, x_k = f->variant & X_T ? f->m : 1;
    int64_t w_row = f->variant & W_N ? 1 : f->k, w_k = f->variant & W_N ? f->n : 1;
    double sum = 0;
    for (int64_t i = 0; i < f->k; i++)
        sum += tensor_at(s->x, s->row * x_row + i * x_k) * tensor_at(s->w, j * w_row + i * w_k);
    s->out[j] = sum;
}

static void check(struct figure *f)
{
    struct sums s = {f, figure_tensor(f, "x"), figure_tensor(f, "w"), 0, NULL};
    must(!(s.out = malloc((size_t)f->n * sizeof *s.out)), "malloc");
    for (int i = 0; i < ROWS; i++) {
        s.row = i * (f->m - 1) / (ROWS - 1);
        in_parallel(f->n, sum_column, &s);
        figure_judge(f, "y", s.row, s.out);
    }
    free(s.out);
}

/* ---- Figures ---- */

static int add_layer_products(struct figure *to)
{
    static const int64_t d[] = {2048, 4096, 8192}, f[] = {5632, 11008, 22016};
    int count = 0;
    for (int i = 0; i < 3; i++) {
        const struct {
            const char *name;
            int64_t n, k;
        } shape[] = {{"DxD", d[i], d[i]},
                     {"Dx2F", 2 * f[i], d[i]},
                     {"FxD", d[i], f[i]},
                     {"Dx3D", 3 * d[i], d[i]},
                     {"DxV", VOCABULARY, d[i]}};
        for (int j = 0; j < 5; j++, count++) {
            to[count] = (struct figure){
                .m = TOKENS, .n = shape[j].n, .k = shape[j].k, .build = build, .expect = expect};
            snprintf(to[count].name, sizeof to->name, "gemm/%s/%d", shape[j].name, (int)d[i]);
        }
    }
    return count;
}

static int add_layouts(struct figure *to)
{
    int count = 0;
    for (int v = 0; v < 8; v++, count++) {
        to[v] = (struct figure){
            .m = TOKENS, .n = WIDTH, .k = WIDTH, .variant = v, .build = build, .check = check};
        snprintf(to[v].name, sizeof to->name, "layout/%s/%c%c", v & F16 ? "f16" : "bf16", v & X_T ? 't' : 'n',
                 v & W_N ? 'n' : 't');
    }
    return count;
}

int main(int argc, char **argv)
{
    static struct figure figure[23];
    int count = add_layer_products(figure);
    count += add_layouts(figure + count);
    return bench_main(argc, argv, "gemm", figure, count);
}
