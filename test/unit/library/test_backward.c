/*
 * test_backward.c -- backward passes as the goldens have them: what they compute against difference quotients
 * of the forward pass in plain loops, and their plans on the CPU device against fp64.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_run.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

static const char *const golden[] = {"swiglu_backward", "swiglu_backward_interleaved",
                                     "norm_backward",   "take_in",
                                     "kept_maps",       "loaded_maps",
                                     "layer_backward",  "head_backward",
                                     "sum_of_products", "adamw",
                                     "adamw_lerp",      "adamw_states",
                                     "rope_backward",   "rows_and_columns"};

static graph *load(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "test/golden/%s.coda", name);
    graph *g = run_load(path);
    ck_assert_msg(g != NULL, "%s: %s", path, coda_error());
    return g;
}

/* ---- In fp64: a golden whose leaves are all f32, so that they hold what the quotients are of ---- */

struct case64 {
    graph *g;
    void **args; /* leaves in f32, outputs in fp64 */
};

static struct case64 case_new(const char *name)
{
    graph *half = load(name);
    struct text t = {0};
    graph_print(half, &t);
    for (char *at = (char *)text_str(&t); (at = strstr(at, "bf16[")); at++) memcpy(at, " f32", 4);
    struct case64 c = {.g = graph_parse(text_str(&t))};
    ck_assert_msg(c.g != NULL, "%s: %s", name, coda_error());
    c.args = random_args(c.g, 5, true);
    text_free(&t);
    graph_free(half);
    return c;
}

static void evaluate(const struct case64 *c)
{
    ck_assert_msg(coda_evaluate(c->g, c->args) == CODA_OK, "%s", coda_error());
}

static void case_free(struct case64 *c)
{
    random_args_free(c->g, c->args);
    graph_free(c->g);
}

static float *leaf(const struct case64 *c, const char *name, const struct type **t)
{
    for (int i = 0; i < c->g->leaves; i++)
        if (!strcmp(c->g->node[c->g->leaf[i]].name, name)) {
            if (t) *t = &c->g->node[c->g->leaf[i]].type;
            return c->args[i];
        }
    ck_abort_msg("no leaf is called %s", name);
    return NULL;
}

static double *output(const struct case64 *c, const char *name)
{
    for (int i = 0; i < c->g->outputs; i++)
        if (!strcmp(c->g->output[i].name, name)) return c->args[c->g->leaves + i];
    ck_abort_msg("no output is called %s", name);
    return NULL;
}

static void expect(const char *what, int64_t m, int64_t n, double got, double want, double tolerance)
{
    ck_assert_msg(fabs(got - want) <= tolerance * (1 + fabs(want)), "%s[%lld,%lld] is %.12g, not %.12g", what,
                  (long long)m, (long long)n, got, want);
}

/* Five points: right to the fourth power of the step. */
static double quotient(double (*f)(void *ctx, double by), void *ctx)
{
    double h = 1e-3;
    return (8 * (f(ctx, h) - f(ctx, -h)) - (f(ctx, 2 * h) - f(ctx, -2 * h))) / (12 * h);
}

static double swiglu(double gate, double up) { return gate / (1 + exp(-gate)) * up; }

/* ---- SwiGLU ---- */

struct gate {
    double gate, up;
    bool at_up; /* which of them moves */
};

static double gated(void *ctx, double by)
{
    const struct gate *s = ctx;
    return swiglu(s->gate + (s->at_up ? 0 : by), s->up + (s->at_up ? by : 0));
}

/* Column f of gate or up in a row of 2 F. */
static int64_t place(int64_t f, int64_t width, bool up, bool turns)
{
    return turns ? 2 * f + up : f + (up ? width : 0);
}

START_TEST(gradient_of_swiglu)
{
    struct case64 c = case_new(golden[_i]);
    const struct type *wide, *narrow;
    const float *z = leaf(&c, "z", &wide), *dx = leaf(&c, "dx", &narrow), *w2 = leaf(&c, "w2", NULL);
    const float *r = leaf(&c, "r", NULL);
    int64_t rows = wide->dim[0], width = wide->dim[1] / 2, depth = narrow->dim[1];
    evaluate(&c);
    for (int64_t m = 0; m < rows; m++) {
        double sum = 0;
        for (int64_t f = 0; f < width; f++) {
            double dy = 0, part[2], want[2];
            for (int64_t k = 0; k < depth; k++) dy += (double)dx[m * depth + k] * w2[k * width + f];
            for (int up = 0; up < 2; up++) part[up] = z[2 * m * width + place(f, width, up, _i)];
            for (int up = 0; up < 2; up++) {
                struct gate at = {part[0], part[1], up};
                int64_t column = place(f, width, up, _i);
                want[up] = dy * quotient(gated, &at);
                expect("dz", m, column, output(&c, "dz")[2 * m * width + column], want[up] * r[m], 1e-8);
            }
            sum += part[0] * want[0] + part[1] * want[1];
            expect("y", m, f, output(&c, "y")[m * width + f], swiglu(part[0], part[1]), 1e-12);
        }
        expect("t", m, 0, output(&c, "t")[m], sum, 1e-7);
    }
    case_free(&c);
}
END_TEST

/* ---- A norm, two products and a SwiGLU, of one row ---- */

struct row {
    int64_t depth, width, at; /* at: the element of x that moves */
    const double *x;
    const float *w1, *w2, *gain, *dx;
};

/* Preactivation j of the row. */
static double preactivation(const struct row *s, const double *x, int64_t j)
{
    double squares = 0, sum = 0;
    for (int64_t k = 0; k < s->depth; k++) squares += x[k] * x[k];
    for (int64_t k = 0; k < s->depth; k++) sum += x[k] * s->gain[k] * s->w1[j * s->depth + k];
    return sum / sqrt(squares / (double)s->depth + 1e-5);
}

/* dx . (x + swiglu(norm(x) W1) W2) */
static double loss(void *ctx, double by)
{
    const struct row *s = ctx;
    double x[256], sum = 0;
    memcpy(x, s->x, sizeof *x * (size_t)s->depth);
    x[s->at] += by;
    for (int64_t k = 0; k < s->depth; k++) sum += s->dx[k] * x[k];
    for (int64_t f = 0; f < s->width; f++) {
        double y = swiglu(preactivation(s, x, f), preactivation(s, x, s->width + f)), dy = 0;
        for (int64_t k = 0; k < s->depth; k++) dy += (double)s->dx[k] * s->w2[k * s->width + f];
        sum += y * dy;
    }
    return sum;
}

START_TEST(gradient_of_norm)
{
    struct case64 c = case_new("norm_backward");
    const struct type *wide, *narrow;
    float *z = leaf(&c, "z", &wide), *dx = leaf(&c, "dx", &narrow);
    int64_t rows = wide->dim[0], depth = narrow->dim[1];
    struct row s = {.depth = depth, .width = wide->dim[1] / 2, .gain = leaf(&c, "gain", NULL)};
    s.w1 = leaf(&c, "w1", NULL), s.w2 = leaf(&c, "w2", NULL);
    ck_assert_int_le(depth, 256);
    evaluate(&c); /* x, of which z is the preactivation */
    for (int64_t m = 0; m < rows; m += rows / 2) {
        s.x = output(&c, "x") + m * depth;
        for (int64_t j = 0; j < 2 * s.width; j++) z[2 * m * s.width + j] = (float)preactivation(&s, s.x, j);
    }
    evaluate(&c);
    for (int64_t m = 0; m < rows; m += rows / 2)
        for (s.at = m / 2 % 7; s.at < depth; s.at += 17) {
            s.x = output(&c, "x") + m * depth;
            s.dx = dx + m * depth;
            expect("gx", m, s.at, output(&c, "gx")[m * depth + s.at], quotient(loss, &s), 1e-5);
        }
    case_free(&c);
}
END_TEST

/* ---- Plans ---- */

START_TEST(plans)
{
    graph *g = load(golden[_i]);
    void **want = run_reference(g, 3);
    double unfused = 0;
    for (int m = 0; m < RUN_MODES; m++) {
        if (m && !scale_takes_one_in(SANITIZED ? 4 : 3, m + _i)) continue;
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU;
        opt.flags = run_modes[m].flags;
        opt.fold = run_modes[m].fold;
        double error = run_on_cpu(g, 3, &opt, want);
        if (m == 0) unfused = error;
        ck_assert_msg(error >= 0 && error <= 1.2 * unfused, "%s, %s: %g, unfused %g: %s", golden[_i],
                      run_modes[m].name, error, unfused, coda_error());
    }
    random_args_free(g, want);
    graph_free(g);
}
END_TEST

TESTS(backward, EACH(gradient_of_swiglu, 2), ONE(gradient_of_norm), EACH(plans, ARRAY_SIZE(golden)));
