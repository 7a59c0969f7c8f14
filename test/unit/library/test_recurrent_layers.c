/* test_recurrent_layers.c -- layers of Mamba and Mamba-2 as graphs, against what transformers makes of them
 * in fp64 (recurrent_layers.py): evaluated, on the CPU device, and there as a prompt and steps whose states
 * go on. */
#include "recurrent_layers.h"
#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <string.h>

enum { TOKENS = 7, WIDTH = 8, INNER = 16, TAPS = 4 };

/* A weight by its name. */
struct number {
    const char *name;
    const float *at;
    int rank;
    int64_t dim[2];
};

#define NUMBER(model, what, ...)                                                                             \
    {                                                                                                        \
#what, model##_##what, ARRAY_SIZE(((int64_t[]){__VA_ARGS__})), { __VA_ARGS__ }                       \
    }
static const struct number of_mamba[] = {
    NUMBER(mamba, in_proj_weight, 32, 8), NUMBER(mamba, conv1d_weight, 16, 4),
    NUMBER(mamba, conv1d_bias, 16),       NUMBER(mamba, x_proj_weight, 11, 16),
    NUMBER(mamba, dt_proj_weight, 16, 3), NUMBER(mamba, dt_proj_bias, 16),
    NUMBER(mamba, A_log, 16, 4),          NUMBER(mamba, D, 16),
    NUMBER(mamba, out_proj_weight, 8, 16)};
static const struct number of_mamba2[] = {NUMBER(mamba2, in_proj_weight, 60, 8),
                                          NUMBER(mamba2, conv1d_weight, 40, 4),
                                          NUMBER(mamba2, conv1d_bias, 40),
                                          NUMBER(mamba2, dt_bias, 4),
                                          NUMBER(mamba2, A_log, 4),
                                          NUMBER(mamba2, D, 4),
                                          NUMBER(mamba2, norm_weight, 16),
                                          NUMBER(mamba2, out_proj_weight, 8, 16)};

/* One of the two, of so many tokens; `keeps`: with a window of rows and states that go from run to run. */
struct layer {
    const struct number *number;
    int numbers;
    const float *x;
    const double *y;
    void (*build)(const struct layer *l, graph *g, coda_value x);
    bool keeps;
    int64_t tokens;
};

static coda_value weight(const struct layer *l, graph *g, const char *name)
{
    for (int i = 0; i < l->numbers; i++)
        if (!strcmp(l->number[i].name, name))
            return coda_weight(g, name, CODA_F32, l->number[i].rank, l->number[i].dim);
    ck_abort_msg("no weight %s", name);
    return CODA_NONE;
}

static coda_value columns(graph *g, coda_value x, int64_t from, int64_t n)
{
    return coda_slice(g, x, 1, from, from + n, 1);
}

static coda_value convolve(const struct layer *l, graph *g, coda_value x, int64_t n)
{
    coda_value before = CODA_NONE, after, w = weight(l, g, "conv1d_weight"),
               bias = weight(l, g, "conv1d_bias");
    if (l->keeps) before = coda_state(g, "window", CODA_F32, 2, (int64_t[]){TAPS - 1, n});
    coda_value y = coda_conv1d(g, x, w, bias, before, CODA_NONE, l->keeps ? &after : NULL);
    if (l->keeps) coda_assign(g, before, after);
    return coda_silu(g, y);
}

static coda_value scan(const struct layer *l, graph *g, coda_value x, coda_value dt, coda_value b,
                       coda_value c, int64_t states, coda_scan_options o)
{
    coda_value a = coda_neg(g, coda_exp(g, weight(l, g, "A_log"))), state = CODA_NONE, after;
    o.softplus = 1, o.skip = weight(l, g, "D");
    if (l->keeps) state = coda_state(g, "state", CODA_F32, 2, (int64_t[]){INNER, states});
    coda_value y = coda_scan(g, x, dt, a, b, c, state, CODA_NONE, &o, l->keeps ? &after : NULL);
    if (l->keeps) coda_assign(g, state, after);
    return y;
}

static void build_mamba(const struct layer *l, graph *g, coda_value x)
{
    enum { STATES = 4, RANK = 3 };
    coda_scan_options o = CODA_SCAN_OPTIONS_INIT;
    coda_value p = coda_matmul(g, x, weight(l, g, "in_proj_weight"));
    coda_value u = convolve(l, g, columns(g, p, 0, INNER), INNER);
    coda_value q = coda_matmul(g, u, weight(l, g, "x_proj_weight"));
    coda_value dt = coda_matmul(g, columns(g, q, 0, RANK), weight(l, g, "dt_proj_weight"));
    o.dt_bias = weight(l, g, "dt_proj_bias"), o.gate = columns(g, p, INNER, INNER);
    coda_value y =
        scan(l, g, u, dt, columns(g, q, RANK, STATES), columns(g, q, RANK + STATES, STATES), STATES, o);
    coda_output(g, "y", coda_matmul(g, y, weight(l, g, "out_proj_weight")));
}

static void build_mamba2(const struct layer *l, graph *g, coda_value x)
{
    enum { STATES = 6, GROUPS = 2, HEADS = 4, BOTH = GROUPS * STATES, CONVOLVED = INNER + 2 * BOTH };
    coda_scan_options o = CODA_SCAN_OPTIONS_INIT;
    coda_value p = coda_matmul(g, x, weight(l, g, "in_proj_weight"));
    coda_value u = convolve(l, g, columns(g, p, INNER, CONVOLVED), CONVOLVED);
    o.groups = GROUPS, o.dt_bias = weight(l, g, "dt_bias"), o.gate = columns(g, p, 0, INNER);
    coda_value y = scan(l, g, columns(g, u, 0, INNER), columns(g, p, INNER + CONVOLVED, HEADS),
                        columns(g, u, INNER, BOTH), columns(g, u, INNER + BOTH, BOTH), STATES, o);
    y = coda_reshape(g, y, 3, (int64_t[]){l->tokens, GROUPS, INNER / GROUPS}); /* each group by itself */
    y = coda_reshape(g, coda_rms_norm(g, y, CODA_NONE, 1e-5f), 2, (int64_t[]){l->tokens, INNER});
    y = coda_mul(g, y, weight(l, g, "norm_weight"));
    coda_output(g, "y", coda_matmul(g, y, weight(l, g, "out_proj_weight")));
}

static const struct layer layers[] = {
    {of_mamba, ARRAY_SIZE(of_mamba), mamba_x, mamba_y, build_mamba, false, TOKENS},
    {of_mamba2, ARRAY_SIZE(of_mamba2), mamba2_x, mamba2_y, build_mamba2, false, TOKENS}};

static graph *graph_of(const struct layer *l)
{
    graph *g = coda_graph_new();
    l->build(l, g, coda_input(g, "x", CODA_F32, 2, (int64_t[]){l->tokens, WIDTH}));
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    return g;
}

/* x from token `first` on, weights by their names, `window` and `state`, then y. */
static void find_args(const struct layer *l, const graph *g, int64_t first, float *window, float *state,
                      void *y, void **args)
{
    for (int i = 0; i < g->leaves; i++) {
        const char *name = g->node[g->leaf[i]].name;
        args[i] = !strcmp(name, "x")       ? (void *)(l->x + first * WIDTH)
                  : !strcmp(name, "state") ? state
                                           : window;
        for (int k = 0; k < l->numbers; k++)
            if (!strcmp(l->number[k].name, name)) args[i] = (void *)l->number[k].at;
    }
    args[g->leaves] = y;
}

static double worst(const struct layer *l, const double *y)
{
    double off = 0;
    for (int i = 0; i < TOKENS * WIDTH; i++) off = fmax(off, fabs(y[i] - l->y[i]) / (0.1 + fabs(l->y[i])));
    return off;
}

START_TEST(is_transformers)
{
    const struct layer *l = &layers[_i];
    double y[TOKENS * WIDTH];
    void *args[24];
    graph *g = graph_of(l);
    find_args(l, g, 0, NULL, NULL, y, args);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s", coda_error());
    ck_assert_double_lt(worst(l, y), 5e-6); /* norms and decays are fp32 there */
    graph_free(g);
}
END_TEST

/* Tokens from `first` on, in a plan of their own. */
static void run(const struct layer *l, int64_t first, float *window, float *state, float *y)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct run_buffers b;
    coda_plan *p;
    void *args[24];
    graph *g = graph_of(l);
    opt.device = CODA_DEVICE_CPU;
    find_args(l, g, first, window, state, y + first * WIDTH, args);
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    bool ran = run_upload(&b, g, p, args, false) && run_prepare(&b, p) && run_plan(&b, p);
    ck_assert_msg(ran, "%s", coda_error());
    run_release(&b);
    coda_plan_free(p);
    graph_free(g);
}

/* The whole at once; a prompt of four and steps; one that is empty, and one of two. */
static const int64_t cuts[][TOKENS] = {{7}, {4, 1, 1, 1}, {0, 2, 5}};

START_TEST(goes_on_from_run_to_run)
{
    struct layer l = layers[_i % ARRAY_SIZE(layers)];
    const int64_t *cut = cuts[_i / ARRAY_SIZE(layers)];
    float y[TOKENS * WIDTH], window[(TAPS - 1) * 40] = {0}, state[INNER * 6] = {0};
    double got[TOKENS * WIDTH];
    l.keeps = true;
    for (int64_t i = 0, first = 0; first < TOKENS; first += cut[i++]) {
        l.tokens = cut[i];
        run(&l, first, window, state, y);
    }
    for (int i = 0; i < TOKENS * WIDTH; i++) got[i] = (double)y[i];
    ck_assert_double_lt(worst(&l, got), 1e-5);
}
END_TEST

TESTS(recurrent_layers, EACH(is_transformers, ARRAY_SIZE(layers)),
      EACH(goes_on_from_run_to_run, ARRAY_SIZE(cuts) * ARRAY_SIZE(layers)));
