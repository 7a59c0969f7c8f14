/*
 * mlp.c -- the first program of coda.h: a gated MLP with its norm and residual, run on the CPU.
 *
 * New calls: coda_graph_new, coda_input, coda_weight, coda_matmul, coda_rms_norm, coda_swiglu, coda_add,
 * coda_output, coda_compile, coda_bind, coda_plan_workspace, coda_run, coda_plan_find, coda_evaluate,
 * coda_error.
 */
#include "tensor.h"
#include "usage.h"

enum { TOKENS = 64, D = 256, F = 688 };

/* y = x + swiglu(rms_norm(x) w) d: two GEMMs, everything else in their epilogues. */
static coda_graph *mlp(void)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){TOKENS, D});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){2 * F, D}); /* gate rows, then up */
    coda_value d = coda_weight(g, "d", CODA_BF16, 2, (int64_t[]){D, F});
    coda_value h = coda_rms_norm(g, x, CODA_NONE, 1e-5f);
    coda_value a = coda_swiglu(g, coda_matmul(g, h, w), CODA_STACKED);
    coda_output(g, "y", coda_add(g, coda_matmul(g, a, d), x));
    return g;
}

static int failed(void) { return fprintf(stderr, "mlp: %s\n", coda_error()), 1; }

int main(int argc, char **argv)
{
    (void)argc;
    int wrong = usage_read(
        argv, "mlp", "usage: mlp\nA gated MLP on the CPU device, and its error against fp64.", NULL, NULL);
    if (wrong >= 0) return wrong;
    coda_graph *g = mlp();
    coda_plan *p;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU; /* without this line: the GPU, and device pointers below */
    if (coda_compile(&p, g, &opt) != CODA_OK) return failed();

    static uint16_t x[TOKENS * D], w[2 * F * D], d[D * F], y[TOKENS * D];
    static double exact[TOKENS * D];
    uint64_t seed = 1;
    for (int i = 0; i < TOKENS * D; i++) x[i] = bf16_of_float((float)normal(&seed));
    for (int i = 0; i < 2 * F * D; i++) w[i] = bf16_of_float((float)(normal(&seed) / 16));
    for (int i = 0; i < D * F; i++) d[i] = bf16_of_float((float)(normal(&seed) / 26));

    void *args[4], *workspace = host_scratch(coda_plan_workspace(p));
    const coda_binding list[] = {
        {"x", x, sizeof x}, {"w", w, sizeof w}, {"d", d, sizeof d}, {"y", y, sizeof y}};
    if (coda_bind(args, p, list, 4, NULL) != CODA_OK) return failed();
    if (coda_run(p, args, NULL, workspace, NULL) != CODA_OK) return failed();

    int out = coda_plan_find(p, "y");
    coda_arg_info info = CODA_ARG_INFO_INIT;
    coda_plan_arg(p, out, &info);
    args[out] = exact; /* the same formula in fp64, never rounded */
    if (coda_evaluate(g, args) != CODA_OK) return failed();
    double error = tensor_error(&info, y, exact);
    printf("mlp: relative error against fp64 %.2e\n", error);
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
    return !(error <= 1e-2);
}
