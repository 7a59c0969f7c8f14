/*
 * test_optimizer.c -- optimisers as graphs, on the CPU device: 100 steps against plain loops in double, steps
 * that are not taken, text, launches, and what is refused.
 */
#include "base.h" /* before check.h, which has a macro `fail` */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { ROWS = 12, COLUMNS = 7, COUNT = ROWS * COLUMNS, STEPS = 100 };

/* ---- A step and its memory ---- */

/* What a case varies. */
struct setting {
    enum { ADAMW, SGD, MUON } kind;
    float decay, momentum;
    int nesterov;
    bool values;     /* lr, clip, update and corrections come as values */
    bool turned;     /* [COLUMNS, ROWS] */
    coda_dtype work; /* of products; of w, if it is of 16 bits */
};

struct memory {
    _Alignas(64) float grad[COUNT], p[COUNT], m[COUNT], v[COUNT];
    _Alignas(64) uint16_t w[COUNT];
    float lr, clip, update, c1, c2;
};

struct optimizer {
    const struct setting *set;
    coda_graph *g;
    coda_plan *plan;
    struct memory memory;
    void *workspace;
};

static coda_value scalar(coda_graph *g, const char *name) { return coda_scalar(g, name, CODA_F32); }

static coda_value leaf(coda_graph *g, const struct setting *set, const char *name, coda_dtype dtype,
                       bool state)
{
    const int64_t dims[] = {set->turned ? COLUMNS : ROWS, set->turned ? ROWS : COLUMNS};
    return state ? coda_state(g, name, dtype, 2, dims) : coda_input(g, name, dtype, 2, dims);
}

static void build_adamw(coda_graph *g, const struct setting *set, const coda_value *x)
{
    coda_adamw_options o = CODA_ADAMW_OPTIONS_INIT;
    o.lr = 0.01f, o.weight_decay = set->decay;
    o.correction1 = scalar(g, "c1"), o.correction2 = scalar(g, "c2");
    if (set->values) o.lr_value = scalar(g, "lr"), o.clip = scalar(g, "clip"), o.update = scalar(g, "update");
    coda_adamw(g, x[0], x[1], x[2], x[3], x[4], &o);
}

static void build_sgd(coda_graph *g, const struct setting *set, const coda_value *x)
{
    coda_sgd_options o = CODA_SGD_OPTIONS_INIT;
    o.lr = 0.01f, o.weight_decay = set->decay, o.momentum = set->momentum, o.nesterov = set->nesterov;
    if (set->values) o.lr_value = scalar(g, "lr"), o.clip = scalar(g, "clip"), o.update = scalar(g, "update");
    coda_sgd(g, x[0], x[1], x[2], x[4], &o);
}

static void build_muon(coda_graph *g, const struct setting *set, const coda_value *x)
{
    coda_muon_options o = CODA_MUON_OPTIONS_INIT;
    o.lr = 0.01f, o.weight_decay = set->decay, o.momentum = set->momentum, o.heavy_ball = !set->nesterov;
    o.products = set->work;
    if (set->values) o.lr_value = scalar(g, "lr"), o.clip = scalar(g, "clip"), o.update = scalar(g, "update");
    coda_muon(g, x[0], x[1], x[2], x[4], &o);
}

static coda_graph *build(const struct setting *set)
{
    coda_graph *g = coda_graph_new();
    bool narrow = set->work == CODA_BF16 || set->work == CODA_F16,
         without = set->kind == SGD && !set->momentum;
    coda_value x[5] = {leaf(g, set, "grad", CODA_F32, false), leaf(g, set, "p", CODA_F32, true)};
    if (!without) x[2] = leaf(g, set, "m", CODA_F32, true);
    if (set->kind == ADAMW) x[3] = leaf(g, set, "v", CODA_F32, true);
    if (narrow) x[4] = leaf(g, set, "w", set->work, true);
    (set->kind == ADAMW ? build_adamw : set->kind == SGD ? build_sgd : build_muon)(g, set, x);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    return g;
}

static void begin(struct optimizer *o, const struct setting *set, struct random *r)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    memset(o, 0, sizeof *o);
    o->set = set;
    o->g = build(set);
    ck_assert_msg(coda_compile(&o->plan, o->g, &opt) == CODA_OK, "%s", coda_error());
    o->workspace = aligned_alloc(256, (coda_plan_workspace(o->plan) / 256 + 1) * 256);
    memset(o->workspace, 0xff, coda_plan_workspace(o->plan));
    for (int i = 0; i < COUNT; i++) o->memory.p[i] = (float)random_normal(r);
    o->memory.lr = 0.01f, o->memory.clip = o->memory.update = o->memory.c1 = o->memory.c2 = 1;
}

static void end(struct optimizer *o)
{
    coda_plan_free(o->plan);
    coda_graph_free(o->g);
    free(o->workspace);
}

static void run(struct optimizer *o)
{
    struct memory *m = &o->memory;
    const struct {
        const char *name;
        void *at;
    } known[] = {{"grad", m->grad}, {"p", m->p},    {"m", m->m},        {"v", m->v},
                 {"w", m->w},       {"lr", &m->lr}, {"clip", &m->clip}, {"update", &m->update},
                 {"c1", &m->c1},    {"c2", &m->c2}};
    void *args[ARRAY_SIZE(known)] = {NULL};
    for (int i = 0; i < coda_plan_args(o->plan); i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        ck_assert_int_eq(coda_plan_arg(o->plan, i, &info), CODA_OK);
        for (int k = 0; k < ARRAY_SIZE(known); k++)
            if (!strcmp(known[k].name, info.name)) args[i] = known[k].at;
        ck_assert_ptr_nonnull(args[i]);
    }
    ck_assert_msg(coda_run(o->plan, args, NULL, o->workspace, NULL) == CODA_OK, "%s", coda_error());
}

/* ---- The same in double, element by element ---- */

struct expected {
    double p[COUNT], m[COUNT], v[COUNT];
};

static void expect_adamw(struct expected *e, const double *g, const struct setting *set, double lr, int t)
{
    const double b1 = 0.9f, b2 = 0.999f, eps = 1e-8f;
    for (int i = 0; i < COUNT; i++) {
        e->m[i] = b1 * e->m[i] + (1 - b1) * g[i];
        e->v[i] = b2 * e->v[i] + (1 - b2) * g[i] * g[i];
        double m = e->m[i] / (1 - pow(b1, t)), v = e->v[i] / (1 - pow(b2, t));
        e->p[i] -= lr * (m / (sqrt(v) + eps) + (double)set->decay * e->p[i]);
    }
}

static void follow(struct expected *e, const double *g, const struct setting *set, double *u)
{
    const double mu = set->momentum;
    for (int i = 0; i < COUNT; i++) {
        e->m[i] = mu * e->m[i] + g[i];
        u[i] = set->nesterov ? g[i] + mu * e->m[i] : e->m[i];
    }
}

static void expect_sgd(struct expected *e, const double *g, const struct setting *set, double lr)
{
    double decayed[COUNT], u[COUNT];
    for (int i = 0; i < COUNT; i++) decayed[i] = g[i] + (double)set->decay * e->p[i];
    follow(e, decayed, set, u);
    for (int i = 0; i < COUNT; i++) e->p[i] -= lr * u[i];
}

/* x, [rows, columns], becomes a x + (b A + c A A) x, A = x x^T, five times, after a division by its norm. */
static void newton_schulz(double *x, int rows, int columns)
{
    const double a = 3.4445, b = -4.775, c = 2.0315;
    double norm = 0, A[ROWS][ROWS], B[ROWS][ROWS], y[COUNT];
    for (int i = 0; i < COUNT; i++) norm += x[i] * x[i];
    for (int i = 0; i < COUNT; i++) x[i] /= sqrt(norm) + 1e-7;
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < rows; j++) {
                A[i][j] = 0;
                for (int k = 0; k < columns; k++) A[i][j] += x[i * columns + k] * x[j * columns + k];
            }
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < rows; j++) {
                B[i][j] = b * A[i][j];
                for (int k = 0; k < rows; k++) B[i][j] += c * A[i][k] * A[k][j];
            }
        for (int i = 0; i < rows; i++)
            for (int k = 0; k < columns; k++) {
                y[i * columns + k] = a * x[i * columns + k];
                for (int j = 0; j < rows; j++) y[i * columns + k] += B[i][j] * x[j * columns + k];
            }
        memcpy(x, y, sizeof y);
    }
}

/* Of a matrix with more rows than columns, on its transpose; [rows, columns] is what the graph has. */
static void expect_muon(struct expected *e, const double *g, const struct setting *set, double lr)
{
    int rows = set->turned ? COLUMNS : ROWS, columns = set->turned ? ROWS : COLUMNS;
    double u[COUNT], x[COUNT], scale = rows > columns ? sqrt((double)rows / columns) : 1;
    follow(e, g, set, u);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < columns; k++)
            x[rows > columns ? k * rows + i : i * columns + k] = u[i * columns + k];
    newton_schulz(x, rows > columns ? columns : rows, rows > columns ? rows : columns);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < columns; k++) {
            double *p = &e->p[i * columns + k], o = x[rows > columns ? k * rows + i : i * columns + k];
            *p -= lr * (scale * o + (double)set->decay * *p);
        }
}

/* ---- 100 steps ---- */

static void draw_step(struct optimizer *o, struct random *r, int t)
{
    struct memory *m = &o->memory;
    for (int i = 0; i < COUNT; i++) m->grad[i] = (float)(random_normal(r) + sin(i));
    m->c1 = (float)(1 / (1 - pow(0.9f, t))), m->c2 = (float)(1 / (1 - pow(0.999f, t)));
    if (o->set->values) m->lr = (float)(0.02 / t), m->clip = (float)fmin(1, 2 / (1 + fabs(random_normal(r))));
}

static void expect(struct expected *e, const struct optimizer *o, int t)
{
    const struct memory *m = &o->memory;
    double g[COUNT], lr = m->lr;
    for (int i = 0; i < COUNT; i++) g[i] = (double)m->grad[i] * m->clip;
    if (o->set->kind == ADAMW) expect_adamw(e, g, o->set, lr, t);
    else if (o->set->kind == SGD) expect_sgd(e, g, o->set, lr);
    else expect_muon(e, g, o->set, lr);
}

/* Beside the largest of the state: single elements pass through 0. */
static void compare(const char *name, const float *got, const double *want, double allowed)
{
    double most = 0;
    for (int i = 0; i < COUNT; i++) most = fmax(most, fabs(want[i]));
    for (int i = 0; i < COUNT; i++)
        ck_assert_msg(fabs(got[i] - want[i]) <= allowed * most, "%s[%d] is %.9g, not %.9g; the largest is %g",
                      name, i, got[i], want[i], most);
}

static void check_weight(const struct optimizer *o)
{
    for (int i = 0; i < COUNT && (o->set->work == CODA_BF16 || o->set->work == CODA_F16); i++) {
        uint16_t want[1];
        dtype_store(o->set->work, want, 0, o->memory.p[i]);
        ck_assert_uint_eq(o->memory.w[i], want[0]);
    }
}

static const struct setting settings[] = {
    {.kind = ADAMW, .work = CODA_BF16},
    {.kind = ADAMW, .decay = 0.1f, .work = CODA_F16, .values = true},
    {.kind = ADAMW, .decay = 0.1f},
    {.kind = SGD},
    {.kind = SGD, .decay = 0.01f, .momentum = 0.9f, .work = CODA_BF16},
    {.kind = SGD, .momentum = 0.5f, .nesterov = 1, .values = true},
    {.kind = MUON, .momentum = 0.95f, .nesterov = 1, .work = CODA_F32},
    {.kind = MUON, .momentum = 0.95f, .turned = true, .work = CODA_F32, .decay = 0.1f, .values = true},
    {.kind = MUON, .momentum = 0.95f, .nesterov = 1, .work = CODA_BF16, .values = true},
};

START_TEST(steps_are_those_of_plain_loops)
{
    const struct setting *set = &settings[_i];
    struct random r = {random_seed()};
    struct optimizer o;
    static struct expected e;
    begin(&o, set, &r);
    memset(&e, 0, sizeof e);
    for (int i = 0; i < COUNT; i++) e.p[i] = o.memory.p[i];
    bool rounds = set->kind == MUON && set->work == CODA_BF16; /* in every product */
    const double once = STEPS * 0x1p-24;                       /* in each step, at worst the same way */
    for (int t = 1; t <= STEPS; t++) {
        draw_step(&o, &r, t);
        expect(&e, &o, t);
        run(&o);
        compare("p", o.memory.p, e.p, rounds ? 5e-3 : once);
        if (set->kind != SGD || set->momentum) compare("m", o.memory.m, e.m, once);
        if (set->kind == ADAMW) compare("v", o.memory.v, e.v, once);
        check_weight(&o);
    }
    end(&o);
}
END_TEST

/* Each matrix of a stack has a norm, and products, of its own. */
START_TEST(stacks_are_matrices)
{
    static const struct setting set = {.kind = MUON, .momentum = 0.95f, .nesterov = 1, .work = CODA_F32};
    static _Alignas(64) float data[3][2 * COUNT]; /* grad, p, m */
    static struct expected e[2];
    const int64_t dims[] = {2, ROWS, COLUMNS};
    struct random r = {random_seed()};
    coda_graph *g = coda_graph_new();
    coda_muon_options o = CODA_MUON_OPTIONS_INIT;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *plan;
    o.products = CODA_F32;
    opt.device = CODA_DEVICE_CPU;
    coda_value x = coda_input(g, "grad", CODA_F32, 3, dims), p = coda_state(g, "p", CODA_F32, 3, dims);
    coda_muon(g, x, p, coda_state(g, "m", CODA_F32, 3, dims), CODA_NONE, &o);
    ck_assert_msg(coda_compile(&plan, g, &opt) == CODA_OK, "%s", coda_error());
    void *workspace = aligned_alloc(256, (coda_plan_workspace(plan) / 256 + 1) * 256);
    for (int i = 0; i < 2 * COUNT; i++) {
        data[0][i] = (float)(random_normal(&r) * (i < COUNT ? 1 : 100));
        e[i / COUNT].p[i % COUNT] = data[1][i] = (float)random_normal(&r);
    }
    ck_assert_int_eq(coda_run(plan, (void *[]){data[0], data[1], data[2]}, NULL, workspace, NULL), CODA_OK);
    for (int k = 0; k < 2; k++) {
        double gradient[COUNT];
        for (int i = 0; i < COUNT; i++) gradient[i] = data[0][k * COUNT + i];
        expect_muon(&e[k], gradient, &set, 0.02f);
        compare("p", data[1] + k * COUNT, e[k].p, 1e-6);
        compare("m", data[2] + k * COUNT, e[k].m, 1e-6);
    }
    free(workspace);
    coda_plan_free(plan);
    coda_graph_free(g);
}
END_TEST

/* ---- Steps that are not taken ---- */

/* Whatever the gradient holds, and where the weight is not the parameter's rounded, too. */
START_TEST(a_step_that_is_not_taken_changes_no_bit)
{
    const struct setting *set = &settings[_i];
    struct random r = {random_seed()};
    struct optimizer o;
    if (!set->values) return;
    begin(&o, set, &r);
    for (int t = 1; t <= 3; t++) draw_step(&o, &r, t), run(&o);
    o.memory.p[3] = -0.0f, o.memory.m[5] = 1e-42f;
    for (int i = 0; i < COUNT; i++) o.memory.w[i] = (uint16_t)(0x3f00 + i);
    o.memory.update = 0;
    for (int i = 0; i < COUNT; i++) o.memory.grad[i] = i % 3 ? INFINITY : NAN;
    for (int round = 0; round < 2; round++) {
        struct memory before = o.memory;
        run(&o);
        ck_assert_int_eq(memcmp(&before, &o.memory, sizeof before), 0);
        o.memory.clip = NAN;
    }
    for (int i = 0; i < COUNT; i++) o.memory.grad[i] = 1;
    struct memory before = o.memory;
    o.memory.update = o.memory.clip = 1;
    run(&o);
    ck_assert_int_ne(memcmp(before.p, o.memory.p, sizeof before.p), 0);
    end(&o);
}
END_TEST

/* ---- Norms ---- */

START_TEST(norms_are_of_all_elements)
{
    static const int64_t dims[][3] = {{5, 7, 3}, {4, 6, 0}, {9, 0, 0}, {0, 0, 0}};
    coda_graph *g = coda_graph_new();
    coda_value x[5];
    _Alignas(64) float data[5][128];
    _Alignas(64) float norm = NAN;
    char name[] = "x0";
    double want = 0;
    struct random r = {random_seed()};
    void *args[6] = {data[0], data[1], data[2], data[3], data[4], &norm};
    for (int i = 0; i < 4; i++, name[1]++) x[i] = coda_input(g, name, CODA_F32, 3 - i, dims[i]);
    x[4] = coda_input(g, "empty", CODA_F32, 2, (int64_t[]){0, 8});
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 128; k++) {
            data[i][k] = (float)random_normal(&r);
            const int count[] = {105, 24, 9, 1, 0};
            if (k < count[i]) want += (double)data[i][k] * data[i][k];
        }
    coda_value n2 = coda_norm_squared(g, x, 5);
    const struct type *t = &g->node[n2.id - 1].type;
    ck_assert_msg(t->rank == 1 && t->dim[0] == 1 && t->dtype == CODA_F32, "%s", coda_error());
    coda_output(g, "norm", n2);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    void *workspace = aligned_alloc(256, (coda_plan_workspace(p) / 256 + 1) * 256);
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    ck_assert_msg(fabs(norm - want) <= 1e-6 * want, "%.9g, not %.9g", norm, want);
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* A number of rows that is symbolic, as the gradient of an activation has it. */
START_TEST(norms_of_symbols)
{
    coda_graph *g = coda_graph_new(), *bound;
    int64_t rows = coda_symbol(g, "T", 1, 64, 1);
    coda_value x = coda_input(g, "x", CODA_F32, 3, (int64_t[]){rows, 3, 5});
    _Alignas(64) float data[4 * 15];
    double norm = NAN, want = 0;
    coda_output(g, "norm", coda_norm_squared(g, &x, 1));
    ck_assert_msg(coda_graph_bind(&bound, g, (int64_t[]){4}, 1) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < ARRAY_SIZE(data); i++) data[i] = (float)i / 7, want += (double)data[i] * data[i];
    ck_assert_msg(coda_evaluate(bound, (void *[]){data, &norm}) == CODA_OK, "%s", coda_error());
    ck_assert_msg(fabs(norm - want) <= 1e-12 * want, "%.17g, not %.17g", norm, want);
    coda_graph_free(g), coda_graph_free(bound);
}
END_TEST

/* So many rows together that they are added up by rows of 32, and then these. */
START_TEST(norms_of_many_rows)
{
    coda_graph *g = coda_graph_new();
    static float data[3][96 * 5];
    coda_value x[] = {coda_input(g, "a", CODA_F32, 2, (int64_t[]){96, 5}),
                      coda_input(g, "b", CODA_F32, 1, (int64_t[]){7}),
                      coda_input(g, "c", CODA_F32, 3, (int64_t[]){4, 16, 3})};
    const int count[] = {96 * 5, 7, 4 * 16 * 3};
    double norm = NAN, want = 0;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < count[i]; k++) {
            data[i][k] = (float)(k % 17 - 8 + i) / 7;
            want += (double)data[i][k] * data[i][k];
        }
    coda_output(g, "norm", coda_norm_squared(g, x, 3));
    ck_assert_msg(coda_evaluate(g, (void *[]){data[0], data[1], data[2], &norm}) == CODA_OK, "%s",
                  coda_error());
    ck_assert_msg(fabs(norm - want) <= 1e-12 * want, "%.17g, not %.17g", norm, want);
    coda_graph_free(g);
}
END_TEST

/* ---- Text ---- */

START_TEST(text_is_a_fixed_point)
{
    coda_graph *g = build(&settings[_i]), *back = NULL;
    struct text once = {0}, twice = {0};
    graph_print(g, &once);
    ck_assert_msg(coda_graph_parse(&back, text_str(&once)) == CODA_OK, "%s", coda_error());
    graph_print(back, &twice);
    ck_assert_str_eq(text_str(&twice), text_str(&once));
    text_free(&once), text_free(&twice);
    coda_graph_free(g), coda_graph_free(back);
}
END_TEST

/* ---- Bad input ---- */

static coda_graph *bad;
static coda_value x32, x16, xi, p32, m32, v32, w16, odd, pair;

static void no_grad(void) { coda_adamw(bad, CODA_NONE, p32, m32, v32, w16, NULL); }
static void int_grad(void) { coda_sgd(bad, xi, p32, m32, w16, NULL); }
static void one_number(void) { coda_sgd(bad, coda_scalar(bad, "s", CODA_F32), p32, m32, w16, NULL); }
static void no_p(void) { coda_adamw(bad, x32, CODA_NONE, m32, v32, w16, NULL); }
static void p_input(void) { coda_adamw(bad, x32, x32, m32, v32, w16, NULL); }
static void m_shape(void) { coda_adamw(bad, x32, p32, odd, v32, w16, NULL); }
static void v_dtype(void) { coda_adamw(bad, x32, p32, m32, w16, CODA_NONE, NULL); }
static void w_dtype(void) { coda_adamw(bad, x32, p32, m32, v32, m32, NULL); }
static void twice(void) { coda_adamw(bad, x32, p32, m32, m32, w16, NULL); }
static void foreign(void) { coda_adamw(bad, x32, p32, m32, (coda_value){999}, w16, NULL); }
static void adamw(const coda_adamw_options *o) { coda_adamw(bad, x32, p32, m32, v32, w16, o); }
static void beta(void) { adamw(&(coda_adamw_options){sizeof(coda_adamw_options), .lr = 1, .beta1 = 1}); }
static void rate(void) { adamw(&(coda_adamw_options){sizeof(coda_adamw_options), .lr = -1}); }
static void rate_nan(void) { adamw(&(coda_adamw_options){sizeof(coda_adamw_options), .lr = NAN}); }
static void eps(void) { adamw(&(coda_adamw_options){sizeof(coda_adamw_options), .eps = INFINITY}); }
static void clip(void) { adamw(&(coda_adamw_options){sizeof(coda_adamw_options), .clip = pair}); }
static void update(void) { adamw(&(coda_adamw_options){sizeof(coda_adamw_options), .update = xi}); }
static void size(void) { adamw(&(coda_adamw_options){.size = 12}); }
static void no_m(void)
{
    coda_sgd(bad, x32, p32, CODA_NONE, w16, &(coda_sgd_options){sizeof(coda_sgd_options), .momentum = 0.9f});
}
static void momentum(void)
{
    coda_sgd(bad, x32, p32, m32, w16, &(coda_sgd_options){sizeof(coda_sgd_options), .momentum = 1.5f});
}
static void nesterov(void)
{
    coda_sgd(bad, x32, p32, m32, w16, &(coda_sgd_options){sizeof(coda_sgd_options), .nesterov = 2});
}
static void flat(void)
{
    coda_value f = coda_reshape(bad, x32, 1, (int64_t[]){32}),
               s = coda_state(bad, "s", CODA_F32, 1, (int64_t[]){32});
    coda_muon(bad, f, s, coda_state(bad, "t", CODA_F32, 1, (int64_t[]){32}), CODA_NONE, NULL);
}
static void steps(void)
{
    coda_muon(bad, x32, p32, m32, w16, &(coda_muon_options){sizeof(coda_muon_options), .products = CODA_I32});
}
static void heavy_ball(void)
{
    coda_muon(bad, x32, p32, m32, w16, &(coda_muon_options){sizeof(coda_muon_options), .heavy_ball = -1});
}
static void norm_none(void) { coda_norm_squared(bad, &x32, 0); }
static void norm_null(void) { coda_norm_squared(bad, NULL, 1); }
static void norm_int(void) { coda_norm_squared(bad, (coda_value[]){x32, xi}, 2); }

static const struct {
    void (*call)(void);
    const char *message;
} refused[] = {
    {no_grad, "adamw: grad is CODA_NONE; it must be f32, bf16 or f16, of a dimension or more"},
    {int_grad, "sgd: grad is i32[4,8]; it must be f32, bf16 or f16, of a dimension or more"},
    {one_number, "sgd: grad is f32[]; it must be f32, bf16 or f16, of a dimension or more"},
    {no_p, "adamw: grad is [4,8] but p is CODA_NONE; it must be a state of f32 [4,8]"},
    {p_input, "adamw: grad is [4,8] but p is f32[4,8], no state; it must be a state of f32 [4,8]"},
    {m_shape, "adamw: grad is [4,8] but m is f32[8,4]; it must be a state of f32 [4,8]"},
    {v_dtype, "adamw: grad is [4,8] but v is bf16[4,8]; it must be a state of f32 [4,8]"},
    {w_dtype, "adamw: grad is [4,8] but w is f32[4,8]; it must be a state of bf16 or f16 [4,8]"},
    {twice, "adamw: m and v are the same state, m"},
    {foreign, "adamw: value 999 is of another graph"},
    {beta, "adamw: beta1 is 1; it must be 0 or more, and less than 1"},
    {rate, "adamw: lr is -1; it must be 0 or more, and finite"},
    {heavy_ball, "muon: heavy_ball is -1; must be 0 or 1"},
    {rate_nan, "adamw: lr is nan; it must be 0 or more, and finite"},
    {eps, "adamw: eps is inf; it must be 0 or more, and finite"},
    {clip, "adamw: clip is f32[2]; it must be f32 of one element"},
    {update, "adamw: update is i32[4,8]; it must be f32 of one element"},
    {size, "adamw: the size of a coda_adamw_options is 12; INIT sets"},
    {no_m, "sgd: grad is [4,8] but m is CODA_NONE; it must be a state of f32 [4,8]"},
    {momentum, "sgd: momentum is 1.5; it must be 0 or more, and less than 1"},
    {nesterov, "sgd: nesterov is 2; must be 0 or 1"},
    {flat, "muon: grad is [32]; it must be [.., N, K], where N and K are numbers"},
    {steps, "muon: there are 5 steps of products of dtype"},
    {norm_none, "norm_squared %9: there are none; must be 1 or more values"},
    {norm_null, "norm_squared %9: x is NULL; must be 1 or more values"},
    {norm_int, "norm_squared %11: x[1] is i32[4,8]; it must be f32, bf16 or f16"},
};

START_TEST(bad_input_is_refused)
{
    const int64_t dims[] = {4, 8, 4};
    bad = coda_graph_new();
    x32 = coda_input(bad, "x32", CODA_F32, 2, dims), x16 = coda_input(bad, "x16", CODA_BF16, 2, dims);
    xi = coda_input(bad, "xi", CODA_I32, 2, dims),
    pair = coda_input(bad, "pair", CODA_F32, 1, (int64_t[]){2});
    p32 = coda_state(bad, "p", CODA_F32, 2, dims), m32 = coda_state(bad, "m", CODA_F32, 2, dims);
    v32 = coda_state(bad, "v", CODA_F32, 2, dims), odd = coda_state(bad, "odd", CODA_F32, 2, dims + 1);
    w16 = coda_state(bad, "w", CODA_BF16, 2, dims);
    refused[_i].call();
    ck_assert_int_eq(coda_graph_status(bad), CODA_E_INVALID);
    ck_assert_msg(!strncmp(coda_error(), refused[_i].message, strlen(refused[_i].message)) &&
                      !strchr(coda_error(), '\n'),
                  "%s\ninstead of\n%s", coda_error(), refused[_i].message);
    coda_graph_free(bad);
}
END_TEST

TESTS(optimizer, EACH(steps_are_those_of_plain_loops, ARRAY_SIZE(settings)), ONE(stacks_are_matrices),
      EACH(a_step_that_is_not_taken_changes_no_bit, ARRAY_SIZE(settings)), ONE(norms_are_of_all_elements),
      ONE(norms_of_symbols), ONE(norms_of_many_rows), EACH(text_is_a_fixed_point, ARRAY_SIZE(settings)),
      EACH(bad_input_is_refused, ARRAY_SIZE(refused)));
