/*
 * gemm.c -- plain products of a layer: libcoda's own kernel against cuBLASLt's best.
 *
 *     y [M,N] = x [M,K] w [N,K]'
 *
 * The other side is the same graph with CODA_CUBLASLT: the top of cuBLASLt's heuristic list, 64 MB
 * workspace.
 */
#include "bench.h"

static coda_graph *build(const struct figure *f, int side)
{
    if (side > 1) return NULL;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){f->m, f->k});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){f->n, f->k});
    coda_output(g, "y", coda_matmul(g, x, w));
    return g;
}

static void expect(struct figure *f, int64_t row, const double *product)
{
    figure_judge(f, "y", row, product);
}

int main(int argc, char **argv)
{
    static const int64_t tokens = 16384, vocabulary = 32768, d[] = {2048, 4096, 8192},
                         f[] = {5632, 11008, 22016};
    static struct figure figure[15];
    for (int i = 0; i < 3; i++) {
        const struct {
            const char *name;
            int64_t n, k;
        } shape[] = {{"DxD", d[i], d[i]},
                     {"Dx2F", 2 * f[i], d[i]},
                     {"FxD", d[i], f[i]},
                     {"Dx3D", 3 * d[i], d[i]},
                     {"DxV", vocabulary, d[i]}};
        for (int j = 0; j < 5; j++) {
            struct figure *to = &figure[5 * i + j];
            *to = (struct figure){.m = tokens, .n = shape[j].n, .k = shape[j].k};
            to->build = build;
            to->expect = expect;
            snprintf(to->name, sizeof to->name, "gemm/%s/%d", shape[j].name, (int)d[i]);
        }
    }
    return bench_main(argc, argv, "gemm", figure, 15);
}
