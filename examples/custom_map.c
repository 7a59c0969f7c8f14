/*
 * custom_map.c -- an operation that libcoda does not have, fused into a GEMM like its own.
 *
 *     y = leaky(x w; 0.1),   leaky(v; a) = v > 0 ? v : a v
 *
 * New calls: coda_define_map, coda_apply, coda_plan_kernels, coda_plan_kernel.
 */
#include "tensor.h"
#include "usage.h"

enum { M = 48, N = 96, K = 64 };

/* The same function twice: for the GPU as text, for the CPU device as C. */
static const char source[] = "DEV static float apply(float v, float a) { return v > 0.0f ? v : a * v; }";
static double reference(const double *in, const double *params)
{
    return in[0] > 0 ? in[0] : params[0] * in[0];
}

static int failed(void) { return fprintf(stderr, "custom_map: %s\n", coda_error()), 1; }

static coda_graph *build(void)
{
    coda_graph *g = coda_graph_new();
    coda_map_def leaky = CODA_MAP_DEF_INIT;
    leaky.name = "leaky";
    leaky.params = 1;
    leaky.source = source;
    leaky.reference = reference;
    coda_define_map(g, &leaky);
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){M, K});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){N, K});
    coda_value v = coda_matmul(g, x, w);
    coda_output(g, "y", coda_apply(g, "leaky", &v, 1, (float[]){0.1f}));
    return g;
}

int main(int argc, char **argv)
{
    (void)argc;
    int wrong = usage_read(argv, "custom_map",
                           "usage: custom_map\nAn elementwise function of one's own in a product's epilogue.",
                           NULL, NULL);
    if (wrong >= 0) return wrong;
    coda_graph *g = build();
    coda_plan *p;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    if (coda_compile(&p, g, &opt) != CODA_OK) return failed();

    static float x[M * K], w[N * K], y[M * N];
    uint64_t seed = 1;
    for (int i = 0; i < M * K; i++) x[i] = (float)normal(&seed);
    for (int i = 0; i < N * K; i++) w[i] = (float)normal(&seed);
    void *args[3], *workspace = host_scratch(coda_plan_workspace(p));
    const coda_binding list[] = {{"x", x, sizeof x}, {"w", w, sizeof w}, {"y", y, sizeof y}};
    if (coda_bind(args, p, list, 3, NULL) != CODA_OK) return failed();
    if (coda_run(p, args, NULL, workspace, NULL) != CODA_OK) return failed();

    double worst = 0;
    for (int i = 0; i < M * N; i++) {
        double v = 0;
        for (int k = 0; k < K; k++) v += (double)x[i / N * K + k] * w[i % N * K + k];
        worst = fmax(worst, fabs(y[i] - reference(&v, (double[]){0.1f})));
    }
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_plan_stats_get(p, &stats);
    printf("custom_map: %d launch instead of %d, largest error %.1e\n", stats.launches,
           stats.launches_unfused, worst);
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
    return !(worst <= 1e-4);
}
