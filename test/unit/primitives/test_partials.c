/*
 * test_partials.c -- derivatives of maps and reductions, as their lines declare them: against difference
 * quotients of the references, away from kinks; at kinks and limits, against what is written down here.
 */
#include "base.h" /* before check.h, which has a macro `fail` */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prim.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { CALLS = 2000, ROW = 24, ARGUMENTS = PRIM_MAX_INPUTS + PRIM_MAX_PARAMS };

/* ---- Quotients ---- */

/* A function of one number, all else held. */
struct function {
    double (*at)(const struct function *f, double x);
    const struct prim *p;
    double args[ARGUMENTS]; /* of a map */
    double row[ROW], key;   /* of a reduction: a row of n */
    int operand, n;         /* the argument, or the column, that is x */
};

static double at_map(const struct function *f, double x)
{
    double args[ARGUMENTS];
    memcpy(args, f->args, sizeof args);
    args[f->operand] = x;
    return f->p->reference(args, args + f->p->inputs);
}

static double at_row(const struct function *f, double x)
{
    double state[PRIM_MAX_STATE] = {0};
    f->p->reduce->init(state);
    for (int c = 0; c < f->n; c++) f->p->reduce->push(state, c == f->operand ? x : f->row[c], c, f->key);
    return f->p->reduce->finish(state);
}

/* Five points, whose error is of the order h^4 (Abramowitz & Stegun 25.3.6). */
static double five_points(const struct function *f, double x, double h)
{
    double near = f->at(f, x + h) - f->at(f, x - h), far = f->at(f, x + 2 * h) - f->at(f, x - 2 * h);
    return (8 * near - far) / (12 * h);
}

/* False where there is none: two steps, or the two sides, disagree, as they do next to a kink or a jump. */
static bool quotient(const struct function *f, double x, double *out)
{
    double h = 0x1p-9 * fmax(fabs(x), 0x1p-4), a = five_points(f, x, h), b = five_points(f, x, h / 2);
    double centre = f->at(f, x), left = (centre - f->at(f, x - h)) / h,
           right = (f->at(f, x + h) - centre) / h;
    double size = fabs(a) + fabs(b) + 1e-3 * fabs(centre);
    *out = b;
    return fabs(a - b) <= 1e-8 * size && fabs(left - right) <= 0.1 * size;
}

/* Is `got` the quotient's value? Rounding of f is in it, too. */
static bool is_close(const struct function *f, double x, double want, double got)
{
    double noise = 1e-13 * fabs(f->at(f, x)) / (0x1p-10 * fmax(fabs(x), 0x1p-4));
    return fabs(got - want) <= 1e-7 * (fabs(want) + fabs(got)) + noise;
}

/* ---- What the line says ---- */

/* By operand `i` of a map, as who reads the facts has to take them. */
static double partial(const struct prim *p, int i, const double *args)
{
    double own[ARGUMENTS];
    const double *params = args + p->inputs;
    memcpy(own, args, sizeof own);
    switch (prim_partial(p, i)) {
    case PRIM_PARTIAL_ZERO: return 0;
    case PRIM_PARTIAL_ONE: return 1;
    case PRIM_PARTIAL_MAP: return p->facts.grad[i]->reference(args, params);
    case PRIM_PARTIAL_LINEAR:
        for (int k = 0; k < p->inputs; k++)
            if (!(p->facts.linear >> i & 1) && p->facts.jointly >> k & 1) own[k] = 0;
        own[i] = 1;
        return p->reference(own, params);
    case PRIM_PARTIAL_NONE: break;
    }
    return NAN;
}

static double partial_of_row(const struct prim *p, const struct function *f)
{
    double args[] = {f->row[f->operand], f->at(f, f->row[f->operand]), f->key, 0};
    switch (prim_partial(p, 0)) {
    case PRIM_PARTIAL_ZERO: return 0;
    case PRIM_PARTIAL_ONE: return 1;
    case PRIM_PARTIAL_MAP: return p->facts.grad[0]->reference(args, NULL);
    default: return NAN;
    }
}

/* ---- Maps ---- */

/* Normal, but now and then 0, a small integer, or the same as the one before: conditions, targets and bounds
 * are met so. The operand that is varied is always normal. */
static void draw(struct random *r, double args[ARGUMENTS])
{
    for (int i = 0; i < ARGUMENTS; i++) {
        int64_t kind = random_below(r, 12);
        args[i] = random_normal(r) * 2;
        if (kind == 0) args[i] = 0;
        if (kind < 3) args[i] = (double)random_below(r, 5);
        if (kind == 3 && i) args[i] = args[i - 1];
    }
}

/* How many of CALLS could be compared; -1 with *wrong set if one differs. */
static int try_map(const struct prim *p, int i, double wrong[ARGUMENTS])
{
    struct random r = {random_seed()};
    struct function f = {.at = at_map, .p = p, .operand = i};
    int compared = 0;
    for (int k = 0; k < CALLS; k++) {
        double want;
        draw(&r, f.args);
        double x = f.args[i] = random_normal(&r) * 2;
        if (!quotient(&f, x, &want)) continue;
        memcpy(wrong, f.args, sizeof f.args);
        if (!is_close(&f, x, want, partial(p, i, f.args))) return -1;
        compared++;
    }
    return compared;
}

/* A rounding is a staircase; its gradient is that of a cast, which passes it. */
static bool is_rounding(const struct prim *p)
{
    return !strcmp(p->name, "to_bf16") || !strcmp(p->name, "to_f16");
}

START_TEST(roundings_pass_gradients)
{
    int found = 0;
    for (int i = 0; i < prim_count; i++) {
        if (!is_rounding(&prim_table[i])) continue;
        ck_assert_int_eq(prim_partial(&prim_table[i], 0), PRIM_PARTIAL_ONE);
        found++;
    }
    ck_assert_int_eq(found, 2);
}
END_TEST

START_TEST(maps_have_their_quotients)
{
    const struct prim *p = &prim_table[_i];
    if (is_rounding(p)) return;
    for (int i = 0; p->kind == PRIM_MAP && i < p->inputs; i++) {
        double at[ARGUMENTS];
        if (prim_partial(p, i) == PRIM_PARTIAL_NONE) continue;
        int compared = try_map(p, i, at);
        ck_assert_msg(compared >= 0, "%s: the derivative by operand %d is not %g at (%g, %g, %g, %g)",
                      p->name, i, partial(p, i, at), at[0], at[1], at[2], at[3]);
        ck_assert_msg(compared >= CALLS / 20, "%s: only %d calls say what the derivative by operand %d is",
                      p->name, compared, i);
    }
}
END_TEST

/* Nothing is forgotten: these have none, each for a reason. */
START_TEST(maps_without_are_known)
{
    static const char *const none[] = {"to_f8e4m3",
                                       "to_f8e5m2", /* roundings that a cast has no gradient of */
                                       "gumbel",    /* by e and t: what is drawn has none */
                                       "gelu_erf_grad",
                                       "gelu_quick_grad",
                                       "gelu_tanh_grad",
                                       "geglu_erf_grad_gate",
                                       "geglu_grad_gate",
                                       "glu_grad_gate",
                                       "rcp_grad",
                                       "relu2_grad",
                                       "rsqrt_grad",
                                       "rsqrt_mean_grad",
                                       "sigmoid_grad",
                                       "silu_grad",
                                       "softcap_grad",
                                       "sqrt_grad",
                                       "swiglu_clamped_grad_gate",
                                       "swiglu_clamped_grad_up",
                                       "swiglu_grad_gate",
                                       "tanh_grad",
                                       "div_grad_y"}; /* second derivatives */
    for (int i = 0; i < prim_count; i++) {
        const struct prim *p = &prim_table[i];
        bool listed = false, whole = true;
        for (int k = 0; k < ARRAY_SIZE(none); k++) listed |= !strcmp(none[k], p->name);
        for (int k = 0; k < p->inputs; k++) whole &= prim_partial(p, k) != PRIM_PARTIAL_NONE;
        if (p->kind == PRIM_MAP)
            ck_assert_msg(whole != listed, "%s: %s", p->name, whole ? "has them all" : "an operand has none");
    }
}
END_TEST

/* What a mistaken line might say is found out. */
START_TEST(false_derivatives_are_found)
{
    static const struct {
        const char *map, *grad; /* NULL: 0 or 1 */
        unsigned zero, one, linear, jointly;
        int operand;
    } wrong[] = {{.map = "silu", .grad = "sigmoid"},
                 {.map = "sigmoid", .grad = "silu_grad"},
                 {.map = "tanh", .grad = "sigmoid_grad"},
                 {.map = "gelu_tanh", .grad = "gelu_erf_grad"},
                 {.map = "gelu_erf", .grad = "gelu_tanh_grad"},
                 {.map = "gelu_quick", .grad = "silu_grad"},
                 {.map = "maximum", .grad = "less"},
                 {.map = "minimum", .grad = "less_equal", .operand = 1},
                 {.map = "swiglu", .grad = "swiglu_grad_gate", .operand = 1},
                 {.map = "exp_sub", .grad = "exp_sub", .operand = 1},
                 {.map = "where", .linear = 6, .operand = 2},
                 {.map = "nll_loss", .one = 1},
                 {.map = "relu", .one = 1},
                 {.map = "relu", .zero = 1},
                 {.map = "scale", .one = 1},
                 {.map = "mul", .linear = 1, .operand = 1},
                 {.map = "sub", .linear = 2, .operand = 1}};
    double at[ARGUMENTS];
    for (int i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct prim claim = *prim_find(wrong[i].map);
        claim.facts = (struct prim_facts){.zero = wrong[i].zero << wrong[i].operand,
                                          .one = wrong[i].one << wrong[i].operand,
                                          .linear = wrong[i].linear,
                                          .jointly = wrong[i].jointly};
        if (wrong[i].grad) claim.facts.grad[wrong[i].operand] = prim_find(wrong[i].grad);
        ck_assert_msg(try_map(&claim, wrong[i].operand, at) < 0 ||
                          prim_partial(&claim, wrong[i].operand) == PRIM_PARTIAL_NONE,
                      "%s passes for what it is not", wrong[i].map);
    }
}
END_TEST

/* ---- Kinks, jumps, limits ---- */

START_TEST(kinks_are_as_written_down)
{
    static const float inf = INFINITY;
    static const struct {
        const char *map;
        double x[4], want;
    } table[] = {{"relu_grad", {0}, 0},
                 {"relu_grad", {NAN}, NAN},
                 {"reglu_grad_gate", {0, 3}, 0},
                 {"relu2_grad", {0}, 0},
                 {"sign", {0}, 0},
                 {"greater_equal", {2, 2}, 1}, /* of equals, the first of maximum gets it, */
                 {"less", {2, 2}, 0},
                 {"less_equal", {2, 2}, 1}, /* and of minimum */
                 {"greater", {2, 2}, 0},
                 {"clip_grad", {-1, -1, 2}, 1}, /* the bounds are inside */
                 {"clip_grad", {2, -1, 2}, 1},
                 {"clip_grad", {3, -1, 2}, 0},
                 {"clip_grad", {1, 2, -1}, 0}, /* bounds that cross */
                 {"clip_grad", {5, NAN, NAN}, 1},
                 {"clip_grad", {NAN, 0, 1}, NAN},
                 {"gelu_erf_grad", {0}, 0.5},
                 {"gelu_tanh_grad", {0}, 0.5},
                 {"gelu_quick_grad", {0}, 0.5},
                 {"silu_grad", {0}, 0.5},
                 {"sigmoid_grad", {0}, 0.25},
                 {"tanh_grad", {0}, 1},
                 {"gelu_tanh_grad", {inf}, 1},
                 {"gelu_tanh_grad", {-inf}, 0},
                 {"tanh_grad", {-inf}, 0},
                 {"sigmoid_grad", {inf}, 0},
                 {"sqrt_grad", {0}, inf},
                 {"logical_not", {NAN}, 0},
                 {"keep_grad_y", {1, 2, 2}, 1},
                 {"keep_grad_y", {1, 1, 2}, 0}, /* -inf whatever y is */
                 {"nll_loss_grad_nll", {7, 3, 3, 10}, 0},
                 {"nll_loss_grad_nll", {7, 10, 3, 10}, NAN}};
    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        const struct prim *p = prim_find(table[i].map);
        double got = p->reference(table[i].x, table[i].x + p->inputs), want = table[i].want;
        ck_assert_msg(isnan(want) ? isnan(got) : (float)got == want, "%s(%g, %g) is %g, not %g", p->name,
                      table[i].x[0], table[i].x[1], got, want);
    }
}
END_TEST

/* ---- Reductions ---- */

static int try_reduction(const struct prim *p)
{
    struct random r = {random_seed()};
    struct function f = {.at = at_row, .p = p};
    int compared = 0;
    for (int k = 0; k < CALLS; k++) {
        double want;
        f.n = 1 + (int)random_below(&r, ROW);
        f.operand = (int)random_below(&r, f.n);
        f.key = (double)random_below(&r, f.n);
        for (int c = 0; c < f.n; c++) f.row[c] = random_normal(&r) * 2;
        if (!quotient(&f, f.row[f.operand], &want)) continue;
        if (!is_close(&f, f.row[f.operand], want, partial_of_row(p, &f))) return -1;
        compared++;
    }
    return compared;
}

START_TEST(reductions_have_their_quotients)
{
    const struct prim *p = &prim_table[_i];
    if (p->kind != PRIM_REDUCE || prim_partial(p, 0) == PRIM_PARTIAL_NONE) return;
    int compared = try_reduction(p);
    ck_assert_msg(compared >= CALLS / 4, "%s: its derivative %s", p->name,
                  compared < 0 ? "is another one" : "is seldom to be seen");
}
END_TEST

START_TEST(false_derivatives_of_reductions_are_found)
{
    static const char *const wrong[][2] = {
        {"max", "sign"}, {"log_sum_exp", "exp"}, {"sum_sq", "abs"}, {"sum", "equal"}, {"mean", "sign"}};
    for (int i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct prim claim = *prim_find(wrong[i][0]);
        claim.facts = (struct prim_facts){.grad[0] = prim_find(wrong[i][1])};
        ck_assert_msg(try_reduction(&claim) < 0, "%s passes for that of %s", wrong[i][1], wrong[i][0]);
    }
}
END_TEST

/* Those whose derivative is no map of the element, the statistic and the key. */
START_TEST(reductions_without_are_known)
{
    static const char *const none[] = {"mean",    "m2",
                                       "exp_sum", "log_exp_sum", /* N, the mean, the maximum */
                                       "select",  "nll"};        /* the column */
    for (int i = 0; i < prim_count; i++) {
        const struct prim *p = &prim_table[i];
        bool listed = false;
        if (p->kind != PRIM_REDUCE) continue;
        for (int k = 0; k < ARRAY_SIZE(none); k++) listed |= !strcmp(none[k], p->name);
        ck_assert_msg(listed == (prim_partial(p, 0) == PRIM_PARTIAL_NONE), "%s", p->name);
        for (int k = 1; k < p->inputs; k++) ck_assert_int_eq(prim_partial(p, k), PRIM_PARTIAL_ZERO);
    }
}
END_TEST

TESTS(partials, ONE(roundings_pass_gradients), EACH(maps_have_their_quotients, prim_count),
      ONE(maps_without_are_known), ONE(false_derivatives_are_found), ONE(kinks_are_as_written_down),
      EACH(reductions_have_their_quotients, prim_count), ONE(false_derivatives_of_reductions_are_found),
      ONE(reductions_without_are_known));
