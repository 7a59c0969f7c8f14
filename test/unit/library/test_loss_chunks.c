/* test_loss_chunks.c -- coda_linear_cross_entropy: what it and its gradients are, beside the loss of all
 * logits at once and formulas; and what a plan of them keeps: the logits of one chunk. */
#include "graph.h" /* before check.h, which has a macro called fail */

#include "check_plan.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t m, d, v, chunk;
};

static coda_linear_cross_entropy_options options(int64_t rows, coda_reduction reduction, float softcap)
{
    coda_linear_cross_entropy_options o = CODA_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
    o.rows = rows;
    o.reduction = reduction;
    o.softcap = softcap;
    return o;
}

/* The loss and the gradients of x and w; of losses of rows with a cotangent. */
static coda_graph *make(const struct shape *s, coda_dtype t, const coda_linear_cross_entropy_options *o,
                        bool adds)
{
    coda_graph *g = coda_graph_new();
    coda_value x[2] = {coda_input(g, "x", t, 2, (int64_t[]){s->m, s->d}),
                       coda_weight(g, "w", t, 2, (int64_t[]){s->v, s->d})};
    coda_value target = coda_input(g, "target", CODA_I32, 1, &s->m), dx[2], dy = CODA_NONE;
    coda_value loss = coda_linear_cross_entropy(g, x[0], x[1], target, o);
    if (o->reduction == CODA_REDUCE_NONE) dy = coda_input(g, "dy", CODA_F32, 1, &s->m);
    coda_grad(g, &loss, &dy, 1, x, 2, dx, NULL);
    coda_output(g, "loss", loss);
    coda_output(g, "dx", dx[0]);
    (adds ? coda_output_add : coda_output)(g, "dw", dx[1]);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    return g;
}

/* ---- What a plan keeps ---- */

static const struct plan_case {
    struct shape shape;
    bool adds;
    float softcap;
    int launches;
    double chunks; /* the workspace, over the logits of one chunk */
} plans[] = {
    {{16384, 4096, 32768, 4096}, false, 0, 28, 1.05},  {{16384, 4096, 32768, 4096}, true, 0, 28, 1.05},
    {{16384, 4096, 128256, 4096}, false, 0, 28, 1.05}, {{16384, 4096, 128256, 4096}, true, 0, 28, 1.05},
    {{16384, 4096, 128256, 1024}, true, 0, 103, 1.05}, {{16384, 4096, 32768, 4096}, false, 30, 28, 2.05},
};

START_TEST(one_chunk_is_kept)
{
    const struct plan_case *c = &plans[_i];
    const coda_linear_cross_entropy_options o = options(c->shape.chunk, CODA_REDUCE_MEAN, c->softcap);
    coda_graph *g = make(&c->shape, CODA_BF16, &o, c->adds);
    size_t workspace;
    coda_plan_stats s = plan_stats_of(g, &workspace);
    double logits = 2.0 * (double)c->shape.chunk * (double)c->shape.v;
    ck_assert_msg((double)workspace <= c->chunks * logits, "%.1f MB; a chunk's logits are %.1f",
                  (double)workspace / 1e6, logits / 1e6);
    ck_assert_msg(s.launches <= c->launches, "%d launches", s.launches);
    /* three products, none of them twice */
    double products = 3.0 * 2 * (double)c->shape.m * (double)c->shape.v * (double)c->shape.d;
    ck_assert_double_eq_tol(s.flops, products, 1e-6 * products);
    coda_graph_free(g);
}
END_TEST

/* Behind layers of a model, whose kept values are most of the workspace. */
static coda_graph *model(const struct shape *s, int layers)
{
    enum { MOST = 32 };
    const int64_t f = 11 * s->d / 4;
    coda_graph *g = coda_graph_new();
    coda_value w[MOST], dw[MOST], h = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){s->m, s->d});
    char name[16];
    int n = 0;
    for (int i = 0; i < layers; i++) {
        const int64_t rows[] = {2 * f, s->d}, columns[] = {s->d, f};
        coda_value norm = coda_rms_norm(g, h, CODA_NONE, 1e-5f);
        for (int k = 0; k < 2; k++, n++) {
            snprintf(name, sizeof name, "w%d", n);
            w[n] = coda_weight(g, name, CODA_BF16, 2, (int64_t[]){rows[k], columns[k]});
        }
        coda_value y = coda_swiglu(g, coda_matmul(g, norm, w[n - 2]), CODA_STACKED);
        h = coda_add(g, coda_matmul(g, y, w[n - 1]), h);
    }
    w[n++] = coda_weight(g, "head", CODA_BF16, 2, (int64_t[]){s->v, s->d});
    const coda_linear_cross_entropy_options o = options(s->chunk, CODA_REDUCE_MEAN, 0);
    coda_value target = coda_input(g, "target", CODA_I32, 1, &s->m);
    coda_value loss = coda_linear_cross_entropy(g, h, w[n - 1], target, &o);
    coda_grad(g, &loss, NULL, 1, w, n, dw, NULL);
    coda_output(g, "loss", loss);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "d%d", i);
        coda_output_add(g, name, dw[i]);
    }
    return g;
}

static double workspace_of(coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.arch = "sm_90a";
    opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    double bytes = (double)coda_plan_workspace(p);
    coda_plan_free(p);
    coda_graph_free(g);
    return bytes;
}

START_TEST(one_chunk_is_kept_behind_layers)
{
    const struct shape whole = {8192, 2048, 32768, 8192}, chunks = {8192, 2048, 32768, 2048};
    double saved = workspace_of(model(&whole, 8)) - workspace_of(model(&chunks, 8));
    double logits = 2.0 * (double)whole.v * (double)(whole.chunk - chunks.chunk);
    ck_assert_msg(saved >= 0.9 * logits, "chunks save %.0f of %.0f MB", saved / 1e6, logits / 1e6);
}
END_TEST

/* ---- What it computes ---- */

static const struct number_case {
    struct shape shape;
    coda_dtype dtype;
    coda_reduction reduction;
    float softcap;
    bool adds;
    double tolerance;
} numbers[] = {
    {{64, 32, 96, 16}, CODA_F32, CODA_REDUCE_MEAN, 0, false, 1e-5},
    {{64, 32, 96, 16}, CODA_F32, CODA_REDUCE_SUM, 0, true, 1e-5},
    {{50, 32, 96, 16}, CODA_F32, CODA_REDUCE_NONE, 0, false, 1e-5}, /* the last chunk has 2 rows */
    {{64, 32, 96, 16}, CODA_F32, CODA_REDUCE_MEAN, 2, true, 1e-5},
    {{64, 32, 96, 64}, CODA_F32, CODA_REDUCE_MEAN, 2, false, 1e-5}, /* one chunk */
    {{64, 64, 512, 16}, CODA_BF16, CODA_REDUCE_MEAN, 0, true, 3e-2},
    {{64, 64, 512, 16}, CODA_F16, CODA_REDUCE_SUM, 0, false, 1e-2},
    {{65, 64, 200, 32}, CODA_BF16, CODA_REDUCE_MEAN, 5, false, 3e-2},
};

/* In each mode, on other bytes each time. */
START_TEST(as_fp64_has_it)
{
    const struct number_case *c = &numbers[_i];
    const coda_linear_cross_entropy_options o = options(c->shape.chunk, c->reduction, c->softcap);
    coda_graph *g = make(&c->shape, c->dtype, &o, c->adds);
    void **want = run_reference(g, 3);
    ck_assert_msg(want != NULL, "%s", coda_error());
    for (int m = 0; m < RUN_MODES; m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU;
        opt.flags = run_modes[m].flags;
        opt.fold = run_modes[m].fold;
        double e = run_on_cpu(g, 3, &opt, want);
        ck_assert_msg(e >= 0 && e <= c->tolerance, "%s: %g, %s", run_modes[m].name, e, coda_error());
    }
    random_args_free(g, want);
    coda_graph_free(g);
}
END_TEST

/* Chunks change nothing but the order of sums. */
START_TEST(as_without_chunks)
{
    const struct number_case *c = &numbers[_i];
    coda_linear_cross_entropy_options o = options(c->shape.chunk, c->reduction, c->softcap);
    coda_graph *chunks = make(&c->shape, c->dtype, &o, c->adds);
    o.rows = c->shape.m;
    coda_graph *whole = make(&c->shape, c->dtype, &o, c->adds);
    void **a = run_reference(chunks, 7), **b = random_args(whole, 7, true);
    ck_assert_msg(a && b, "%s", coda_error());
    for (int i = 0; i < whole->leaves; i++) {
        const struct node *n = &whole->node[whole->leaf[i]];
        memcpy(b[i], a[i], random_arg_bytes(&n->type, n->stride));
    }
    ck_assert_msg(coda_evaluate(whole, b) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < whole->outputs; i++) {
        const double *x = a[chunks->leaves + i], *y = b[whole->leaves + i];
        int64_t n = type_elements(&whole->node[whole->output[i].value].type);
        for (int64_t e = 0; e < n; e++) ck_assert_double_eq_tol(x[e], y[e], 1e-12 * (1 + fabs(y[e])));
    }
    random_args_free(chunks, a), random_args_free(whole, b);
    coda_graph_free(chunks), coda_graph_free(whole);
}
END_TEST

/* ---- Ignored rows ---- */

enum { ROWS = 12, DEPTH = 8, CLASSES = 10, CHUNK = 4 };

struct memory {
    _Alignas(256) float x[ROWS * DEPTH], w[CLASSES * DEPTH], loss[1], dx[ROWS * DEPTH], dw[CLASSES * DEPTH];
    _Alignas(256) int32_t target[ROWS];
    _Alignas(256) char work[1 << 16];
};

static bool is_ignored(int row) { return row % 3 == 1; }

/* Logits of ignored rows are as large as floats are, and more; or NaN. */
static void fill(struct memory *m, bool nan)
{
    const float large = nan ? NAN : 3e38f;
    memset(m, 0x7f, sizeof *m);
    for (int i = 0; i < CLASSES * DEPTH; i++) m->w[i] = (float)(i * 7 % 11 - 5) / 4;
    for (int r = 0; r < ROWS; r++) {
        m->target[r] = is_ignored(r) ? -100 : r * 3 % CLASSES;
        for (int k = 0; k < DEPTH; k++)
            m->x[r * DEPTH + k] = is_ignored(r) ? (k % 2 ? large : -large) : (float)((r + 2 * k) % 5 - 2) / 3;
    }
}

/* The textbook's: the mean over rows that count of log sum exp(z) - z[t]; dz = (softmax - one hot) / count */
static void reference(const struct memory *m, double cap, double *loss, double *dx, double *dw)
{
    int count = 0;
    *loss = 0;
    memset(dx, 0, sizeof *dx * ROWS * DEPTH), memset(dw, 0, sizeof *dw * CLASSES * DEPTH);
    for (int r = 0; r < ROWS; r++) count += !is_ignored(r);
    for (int r = 0; r < ROWS; r++) {
        double z[CLASSES], raw[CLASSES], sum = 0;
        if (is_ignored(r)) continue;
        for (int c = 0; c < CLASSES; c++) {
            raw[c] = 0;
            for (int k = 0; k < DEPTH; k++)
                raw[c] += (double)m->x[r * DEPTH + k] * (double)m->w[c * DEPTH + k];
            z[c] = cap > 0 ? cap * tanh(raw[c] / cap) : raw[c];
            sum += exp(z[c]);
        }
        *loss += (log(sum) - z[m->target[r]]) / count;
        for (int c = 0; c < CLASSES; c++) {
            double dz = (exp(z[c]) / sum - (c == m->target[r])) / count;
            if (cap > 0) dz *= 1 - pow(tanh(raw[c] / cap), 2);
            for (int k = 0; k < DEPTH; k++) {
                dx[r * DEPTH + k] += dz * (double)m->w[c * DEPTH + k];
                dw[c * DEPTH + k] += dz * (double)m->x[r * DEPTH + k];
            }
        }
    }
}

/* Of NaN times 0, which the gradient of w then has, nothing is asked. */
static void check(const struct memory *m, double cap, bool nan)
{
    static double loss, dx[ROWS * DEPTH], dw[CLASSES * DEPTH];
    reference(m, cap, &loss, dx, dw);
    ck_assert_double_eq_tol((double)m->loss[0], loss, 1e-5);
    for (int i = 0; i < ROWS * DEPTH; i++) {
        if (is_ignored(i / DEPTH)) ck_assert_msg(m->dx[i] == 0, "dx[%d] is %g", i, (double)m->dx[i]);
        ck_assert_double_eq_tol((double)m->dx[i], dx[i], 1e-5);
    }
    for (int i = 0; i < CLASSES * DEPTH && !nan; i++) ck_assert_double_eq_tol((double)m->dw[i], dw[i], 1e-5);
}

START_TEST(ignored_rows_are_zero)
{
    static struct memory m;
    float cap = _i & 1 ? 2 : 0;
    bool nan = _i & 4;
    const struct shape s = {ROWS, DEPTH, CLASSES, _i & 2 ? ROWS : CHUNK};
    const coda_linear_cross_entropy_options o = options(s.chunk, CODA_REDUCE_MEAN, cap);
    coda_graph *g = make(&s, CODA_F32, &o, false);
    void *args[] = {m.x, m.w, m.target, m.loss, m.dx, m.dw};
    for (int mode = 0; mode < 2; mode++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan *p;
        opt.device = CODA_DEVICE_CPU;
        opt.flags = mode ? 0 : CODA_NO_FUSION;
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
        ck_assert_uint_le(coda_plan_workspace(p), sizeof m.work);
        fill(&m, nan);
        ck_assert_msg(coda_run(p, args, NULL, m.work, NULL) == CODA_OK, "%s", coda_error());
        check(&m, (double)cap, nan);
        coda_plan_free(p);
    }
    coda_graph_free(g);
}
END_TEST

/* ---- Shapes and mistakes ---- */

START_TEST(rows_of_several_dimensions)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 3, (int64_t[]){2, 24, 16});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){40, 16});
    coda_value t = coda_input(g, "t", CODA_I32, 2, (int64_t[]){2, 24});
    const coda_linear_cross_entropy_options rows = options(20, CODA_REDUCE_NONE, 0),
                                            mean = options(20, CODA_REDUCE_MEAN, 0);
    coda_output(g, "rows", coda_linear_cross_entropy(g, x, w, t, &rows));
    coda_output(g, "mean", coda_linear_cross_entropy(g, x, w, t, &mean));
    coda_output(g, "all", coda_linear_cross_entropy(g, x, w, t, NULL)); /* one chunk */
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    const struct type *of_rows = &g->node[g->output[0].value].type;
    ck_assert(of_rows->rank == 2 && of_rows->dim[0] == 2 && of_rows->dim[1] == 24);
    void **want = run_reference(g, 1);
    const double *mean_loss = want[g->leaves + 1], *all = want[g->leaves + 2];
    ck_assert_double_eq_tol(*mean_loss, *all, 1e-12 * fabs(*all));
    random_args_free(g, want);
    coda_graph_free(g);
}
END_TEST

static const struct mistake {
    int64_t d, rows;
    coda_reduction reduction;
    int ignore_index, ignore_zero;
    float softcap;
    const char *message;
} mistakes[] = {
    {8, -1, CODA_REDUCE_MEAN, 0, 0, 0, "a chunk has -1 rows; must be 0 or more"},
    {8, 4, (coda_reduction)3, 0, 0, 0, "reduction is 3; must be 0..2"},
    {8, 4, CODA_REDUCE_MEAN, 7, 1, 0, "ignore_zero is set, but ignore_index is 7"},
    {8, 4, CODA_REDUCE_MEAN, 0, 0, -1, "softcap is -1; must be finite, and 0 or more"},
    {8, 4, CODA_REDUCE_MEAN, 0, 0, INFINITY, "softcap is inf; must be finite, and 0 or more"},
    {9, 4, CODA_REDUCE_MEAN, 0, 0, 0, "x is [16,8] but w is [10,9]"},
};

/* At once: a chunk for each of so many rows would take minutes and all memory. */
START_TEST(more_chunks_than_can_be)
{
    coda_graph *g = coda_graph_new();
    int64_t rows = 1 << 30;
    coda_linear_cross_entropy_options o = options(1, CODA_REDUCE_MEAN, 0);
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){rows, 8});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){10, 8});
    ck_assert_uint_eq(coda_linear_cross_entropy(g, x, w, coda_input(g, "t", CODA_I32, 1, &rows), &o).id, 0);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "x has 1073741824 rows, 1073741824 chunks of 1; the most are 1024"),
                  "%s", coda_error());
    coda_graph_free(g);
}
END_TEST

START_TEST(mistakes_are_refused)
{
    const struct mistake *m = &mistakes[_i];
    coda_graph *g = coda_graph_new();
    coda_linear_cross_entropy_options o = options(m->rows, m->reduction, m->softcap);
    o.ignore_index = m->ignore_index, o.ignore_zero = m->ignore_zero;
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){16, 8});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){10, m->d});
    coda_value t = coda_input(g, "t", CODA_I32, 1, (int64_t[]){16});
    ck_assert_uint_eq(coda_linear_cross_entropy(g, x, w, t, &o).id, 0);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), m->message) != NULL, "%s", coda_error());
    coda_graph_free(g);
}
END_TEST

TESTS(loss_chunks, SECONDS(120), EACH(one_chunk_is_kept, ARRAY_SIZE(plans)),
      ONE(one_chunk_is_kept_behind_layers), EACH(as_fp64_has_it, ARRAY_SIZE(numbers)),
      EACH(as_without_chunks, ARRAY_SIZE(numbers)), EACH(ignored_rows_are_zero, 8),
      ONE(rows_of_several_dimensions), ONE(more_chunks_than_can_be),
      EACH(mistakes_are_refused, ARRAY_SIZE(mistakes)));
