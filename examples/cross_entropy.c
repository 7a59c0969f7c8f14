/*
 * cross_entropy.c -- a language model's loss from hidden states, without ever storing the logits.
 *
 *     loss = mean over tokens of log_sum_exp(logits) - logits[target],   logits = rms_norm(h) E'
 *
 * New calls: coda_cross_entropy, coda_plan_stats_get, coda_plan_print.
 */
#include "tensor.h"
#include "usage.h"

enum { TOKENS = 96, D = 128, VOCABULARY = 1000 };

static int failed(void) { return fprintf(stderr, "cross_entropy: %s\n", coda_error()), 1; }

static coda_graph *loss(void)
{
    coda_graph *g = coda_graph_new();
    coda_cross_entropy_options opt = CODA_CROSS_ENTROPY_OPTIONS_INIT; /* mean; -100 is ignored */
    coda_value h = coda_input(g, "h", CODA_BF16, 2, (int64_t[]){TOKENS, D});
    coda_value targets = coda_input(g, "targets", CODA_I32, 1, (int64_t[]){TOKENS});
    coda_value e = coda_weight(g, "e", CODA_BF16, 2, (int64_t[]){VOCABULARY, D});
    coda_value logits = coda_matmul(g, coda_rms_norm(g, h, CODA_NONE, 1e-5f), e);
    coda_output(g, "loss", coda_cross_entropy(g, logits, targets, &opt));
    return g;
}

int main(int argc, char **argv)
{
    (void)argc;
    int wrong =
        usage_read(argv, "cross_entropy",
                   "usage: cross_entropy\nA loss whose logits are never stored, and its plan.", NULL, NULL);
    if (wrong >= 0) return wrong;
    coda_graph *g = loss();
    coda_plan *p;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    if (coda_compile(&p, g, &opt) != CODA_OK) return failed();

    static uint16_t h[TOKENS * D], e[VOCABULARY * D];
    static int32_t targets[TOKENS];
    _Alignas(16) float y; /* as every argument */
    double exact;
    uint64_t seed = 1;
    for (int i = 0; i < TOKENS * D; i++) h[i] = bf16_of_float((float)normal(&seed));
    for (int i = 0; i < VOCABULARY * D; i++) e[i] = bf16_of_float((float)(normal(&seed) / 8));
    for (int i = 0; i < TOKENS; i++) targets[i] = i % 7 ? (int32_t)(uniform(&seed) * VOCABULARY) : -100;

    void *args[4], *workspace = host_scratch(coda_plan_workspace(p));
    const coda_binding list[] = {
        {"h", h, sizeof h}, {"e", e, sizeof e}, {"targets", targets, sizeof targets}, {"loss", &y, sizeof y}};
    if (coda_bind(args, p, list, 4, NULL) != CODA_OK) return failed();
    if (coda_run(p, args, NULL, workspace, NULL) != CODA_OK) return failed();
    args[coda_plan_find(p, "loss")] = &exact;
    if (coda_evaluate(g, args) != CODA_OK) return failed();

    char *plan = plan_text(p, CODA_TEXT_PLAN);
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_plan_stats_get(p, &stats);
    printf("%s\ncross_entropy: loss %.6f, in fp64 %.6f; %d launches instead of %d\n", plan ? plan : "", y,
           exact, stats.launches, stats.launches_unfused);
    free(plan);
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
    return !(fabs(y - exact) <= 1e-3 * fabs(exact));
}
