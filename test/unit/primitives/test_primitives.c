/*
 * test_primitives.c -- every primitive's own .cuh source against its reference, on the host through the
 * shim, and by NVRTC where there is one. Driven by the table: a new primitive is tested with no edit.
 */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit.h"
#include "prim.h"
#include "shim/shim.h"
#include "util_primitives.h"
#include "util_random.h"
#include "util_scale.h"

static const struct shim_map *shim_map(const char *name)
{
    for (const struct shim_map *m = shim_maps; m->name; m++)
        if (!strcmp(m->name, name)) return m;
    return NULL;
}

static const struct shim_reduce *shim_reduce(const char *name)
{
    for (const struct shim_reduce *r = shim_reduces; r->name; r++)
        if (!strcmp(r->name, name)) return r;
    return NULL;
}

static const struct prim_file *find_file(const char *path)
{
    for (int i = 0; path && i < prim_file_count; i++)
        if (!strcmp(prim_files[i].path, path)) return &prim_files[i];
    return NULL;
}

/* Prints the worst relative error if $CODA_TEST_VERBOSE is set, for the accuracy table in README.md. */
static void tell_error(const char *name, double error)
{
    if (getenv("CODA_TEST_VERBOSE")) printf("%-12s %.1e\n", name, error);
}

/* ---- The table ---- */

START_TEST(table_is_sorted_and_complete)
{
    for (int i = 0; i < prim_count; i++) {
        const struct prim *p = &prim_table[i];
        bool map = p->kind == PRIM_MAP;
        ck_assert_msg(i == 0 || strcmp(prim_table[i - 1].name, p->name) < 0, "%s is out of order", p->name);
        ck_assert_ptr_eq(prim_find(p->name), p);
        ck_assert_ptr_nonnull(find_file(p->header));
        ck_assert_ptr_null(p->source);
        ck_assert(map == (p->reference != NULL) && map == (p->reduce == NULL));
        ck_assert(p->facts.dtype >= 0 && p->facts.dtype < p->inputs);
        ck_assert(map ? p->state == 0 : p->state >= 1 && p->state <= PRIM_MAX_STATE && p->params == 0);
        for (int k = 0; k < PRIM_MAX_PARAMS; k++) ck_assert((k < p->params) == (p->param_name[k] != NULL));
    }
    ck_assert_ptr_null(prim_find("no_such_map"));
    ck_assert_ptr_null(prim_find(""));
    ck_assert_ptr_null(prim_find("zzz"));
}
END_TEST

START_TEST(table_has_the_names_that_rewrites_use)
{
    static const struct {
        const char *name;
        int inputs, params, state;
    } want[] = {{"add", 2, 0, 0},      {"sub", 2, 0, 0},     {"mul", 2, 0, 0},        {"div", 2, 0, 0},
                {"scale", 1, 1, 0},    {"silu", 1, 0, 0},    {"swiglu", 2, 0, 0},     {"exp_sub", 2, 0, 0},
                {"nll_loss", 2, 2, 0}, {"valid", 1, 1, 0},   {"rsqrt_mean", 1, 2, 0}, {"sum", 1, 0, 1},
                {"sum_sq", 1, 0, 1},   {"exp_max", 1, 0, 2}, {"exp_sum", 1, 0, 2},    {"m2", 1, 0, 3},
                {"mean", 1, 0, 3},     {"nll", 2, 0, 3},     {"rcp", 1, 0, 0}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        const struct prim *p = prim_find(want[i].name);
        ck_assert_msg(p != NULL, "%s is missing", want[i].name);
        ck_assert_int_eq(p->inputs, want[i].inputs);
        ck_assert_int_eq(p->params, want[i].params);
        ck_assert_int_eq(p->state, want[i].state);
    }
}
END_TEST

/* What reads another one's state must fill it with the same bits. */
START_TEST(states_are_shared)
{
    const struct prim *p = &prim_table[_i], *of = p->of ? prim_find(p->of) : NULL;
    static struct row_case row;
    if (!p->of) return;
    ck_assert(of && of->kind == PRIM_REDUCE && !of->of && of->state == p->state && of->inputs == p->inputs);
    ck_assert(prim_states_equal(p, of) && prim_states_equal(of, p));
    for (int i = 0; i < ROW_CASES; i++) {
        float a[PRIM_MAX_STATE], b[PRIM_MAX_STATE];
        double x[PRIM_MAX_STATE], y[PRIM_MAX_STATE];
        row_case(&row, i, random_seed());
        shim_reduce(p->name)->init(a), shim_reduce(of->name)->init(b);
        p->reduce->init(x), of->reduce->init(y);
        for (int c = 0; c < row.n; c++) {
            shim_reduce(p->name)->push(a, row.x[c], c, row.key), p->reduce->push(x, row.x[c], c, row.key);
            shim_reduce(of->name)->push(b, row.x[c], c, row.key), of->reduce->push(y, row.x[c], c, row.key);
        }
        ck_assert_int_eq(memcmp(a, b, sizeof *a * (size_t)p->state), 0);
        ck_assert_int_eq(memcmp(x, y, sizeof *x * (size_t)p->state), 0);
    }
}
END_TEST

/* ---- Facts: what a map's line declares is true of its reference ---- */

enum { FACT_CALLS = 1000 };

static double call_map(const struct prim *p, const double *args)
{
    return p->reference(args, args + p->inputs);
}

static void draw_arguments(struct random *r, double args[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS])
{
    for (int i = 0; i < PRIM_MAX_INPUTS + PRIM_MAX_PARAMS; i++) args[i] = random_normal(r);
}

/* f(a u + b v) = a f(u) + b f(v), where u and v differ in the operands of `set`. */
static bool is_linear(const struct prim *p, unsigned set)
{
    struct random r = {random_seed()};
    for (int k = 0; k < FACT_CALLS; k++) {
        double u[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS], v[ARRAY_SIZE(u)], both[ARRAY_SIZE(u)];
        double a = random_normal(&r), b = random_normal(&r);
        draw_arguments(&r, u), draw_arguments(&r, v);
        for (int i = 0; i < ARRAY_SIZE(u); i++) {
            if (!(set >> i & 1)) v[i] = u[i];
            both[i] = set >> i & 1 ? a * u[i] + b * v[i] : u[i];
        }
        double x = a * call_map(p, u), y = b * call_map(p, v), got = call_map(p, both);
        if (!(fabs(got - (x + y)) <= 1e-9 * (fabs(x) + fabs(y) + fabs(got)))) return false;
    }
    return true;
}

/* f(x + d) = f(x) + d, x operand i. */
static bool is_shift(const struct prim *p, int i)
{
    struct random r = {random_seed()};
    for (int k = 0; k < FACT_CALLS; k++) {
        double u[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS], d = random_normal(&r);
        draw_arguments(&r, u);
        double want = call_map(p, u) + d, size = fabs(want) + fabs(d) + fabs(u[i]);
        u[i] += d;
        if (!(fabs(call_map(p, u) - want) <= 1e-9 * size)) return false;
    }
    return true;
}

/* f is its first operand, to the bit, where argument `of` (from 1) is `value`: the map's own code, too. */
static bool is_identity(const struct prim *p, int of, float value)
{
    const float odd[] = {0, -0.0f, INFINITY, -INFINITY, 3.4e38f, -1e-30f};
    struct random r = {random_seed()};
    for (int k = 0; k < FACT_CALLS; k++) {
        double u[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS];
        float args[ARRAY_SIZE(u)];
        draw_arguments(&r, u);
        u[0] = k < ARRAY_SIZE(odd) ? odd[k] : (double)(float)u[0];
        u[of - 1] = value;
        for (int i = 0; i < p->inputs + p->params; i++) args[i] = (float)u[i];
        double want = call_map(p, u);
        float got = shim_map(p->name)->apply(args);
        if (memcmp(&want, &u[0], sizeof want) != 0 || memcmp(&got, &args[0], sizeof got) != 0) return false;
    }
    return true;
}

/* f(x, y) y = x, y operand i. */
static bool is_quotient(const struct prim *p, int i)
{
    struct random r = {random_seed()};
    for (int k = 0; k < FACT_CALLS; k++) {
        double u[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS];
        draw_arguments(&r, u);
        if (!(fabs(call_map(p, u) * u[i] - u[0]) <= 1e-9 * fabs(u[0]))) return false;
    }
    return true;
}

/* f is not 0, also where an argument is large, or small. */
static bool is_nonzero(const struct prim *p)
{
    struct random r = {random_seed()};
    for (int k = 0; k < FACT_CALLS; k++) {
        double u[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS];
        draw_arguments(&r, u);
        u[random_below(&r, p->inputs + p->params)] *= pow(10, random_below(&r, 60) - 30);
        if (call_map(p, u) == 0) return false;
    }
    return true;
}

/* NULL, or the fact that does not hold. */
static const char *false_fact(const struct prim *p, const struct prim_facts *f)
{
    for (int i = 0; i < PRIM_MAX_INPUTS; i++) {
        if (f->linear >> i & 1 && !is_linear(p, 1u << i)) return "linear";
        if (f->shift >> i & 1 && !is_shift(p, i)) return "shift";
        if (f->quotient >> i & 1 && !is_quotient(p, i)) return "quotient";
    }
    if (f->nonzero && !is_nonzero(p)) return "nonzero";
    if (f->jointly && !is_linear(p, f->jointly)) return "jointly linear";
    if (f->identity && !is_identity(p, f->identity, f->identity_at)) return "identity";
    return NULL;
}

START_TEST(facts_are_true)
{
    const struct prim *p = &prim_table[_i];
    if (p->kind != PRIM_MAP) return;
    const char *wrong = false_fact(p, &p->facts);
    ck_assert_msg(!wrong, "%s declares a fact that is not true: %s", p->name, wrong);
}
END_TEST

/* What a mistaken line might say is found out. */
START_TEST(false_facts_are_found)
{
    static const struct {
        const char *map, *fact;
        struct prim_facts claim;
    } wrong[] = {{"relu", "linear", {.linear = 1}},
                 {"tanh", "linear", {.linear = 1}},
                 {"swiglu", "linear", {.linear = 1}},
                 {"add", "linear", {.linear = 1}},
                 {"div", "linear", {.linear = 2}},
                 {"mul", "jointly linear", {.jointly = 3}},
                 {"div", "jointly linear", {.jointly = 3}},
                 {"relu", "shift", {.shift = 1}},
                 {"scale", "shift", {.shift = 1}},
                 {"sub", "shift", {.shift = 2}},
                 {"mul", "shift", {.shift = 1}},
                 {"mul", "quotient", {.quotient = 2}},
                 {"relu", "nonzero", {.nonzero = true}},
                 {"exp", "nonzero", {.nonzero = true}},
                 {"add", "identity", {.identity = 2, .identity_at = 0}}, /* -0 + 0 is 0 */
                 {"sub", "identity", {.identity = 2, .identity_at = 1}},
                 {"mul", "identity", {.identity = 2, .identity_at = 1.0000001f}},
                 {"scale", "identity", {.identity = 2, .identity_at = -1}}};
    for (int i = 0; i < ARRAY_SIZE(wrong); i++) {
        const char *found = false_fact(prim_find(wrong[i].map), &wrong[i].claim);
        ck_assert_msg(found != NULL, "%s passes for %s", wrong[i].map, wrong[i].fact);
        ck_assert_str_eq(found, wrong[i].fact);
    }
    ck_assert(!false_fact(prim_find("swiglu"), &(struct prim_facts){.linear = 2})); /* silu(gate) up */
}
END_TEST

START_TEST(files_are_whole)
{
    for (int i = 0; i < prim_file_count; i++) {
        ck_assert_uint_eq(strlen(prim_files[i].text), prim_files[i].length);
        ck_assert(i == 0 || strcmp(prim_files[i - 1].path, prim_files[i].path) < 0);
    }
    ck_assert_ptr_nonnull(find_file("types.cuh"));
}
END_TEST

/* ---- One primitive: _i is its place in the table ---- */

/* In loops of many cases there is no ck_assert: each tells Check by a system call that it was reached. */
static void try_map(const struct prim *p)
{
    const struct shim_map *m = shim_map(p->name);
    int count, n = p->inputs + p->params;
    double worst = 0, worst_narrow = 0, error;
    char why[512];
    ck_assert_msg(m && m->floats == n, "apply of %s does not take the %d floats of its line", p->name, n);
    ck_assert_msg(p->narrow == (m->narrow != NULL), "%s: its line and its struct differ about narrow()",
                  p->name);
    float *args = map_cases(p, random_seed(), &count);
    for (int c = 0; c < count; c++) {
        float got = m->apply(args + c * n);
        if (!map_close(p, args + c * n, got, &error, why, sizeof why)) ck_abort_msg("%s", why);
        worst = MAX(worst, error);
        if (!p->narrow) continue;
        got = m->narrow(args + c * n);
        if (!map_close_narrow(p, args + c * n, got, &error, why, sizeof why)) ck_abort_msg("narrow: %s", why);
        worst_narrow = MAX(worst_narrow, error);
    }
    free(args);
    tell_error(p->name, worst);
    if (p->narrow) tell_error("  narrow", worst_narrow);
}

/* The row in `parts` states: contiguous runs of columns, or every parts-th one; merged left to right or
 * as a tree. Some parts are empty when there are more of them than columns. */
static float reduce_in_parts(const struct shim_reduce *r, const struct row_case *row, int parts, bool strided,
                             bool tree)
{
    float state[16][PRIM_MAX_STATE];
    for (int k = 0; k < parts; k++) {
        int per = CEIL_DIV(row->n, parts);
        r->init(state[k]);
        for (int c = 0; c < row->n; c++)
            if ((strided ? c % parts : c / per) == k) r->push(state[k], row->x[c], c, row->key);
    }
    if (tree)
        for (int d = 1; d < parts; d *= 2)
            for (int k = 0; k + d < parts; k += 2 * d) r->merge(state[k], state[k + d]);
    else
        for (int k = 1; k < parts; k++) r->merge(state[0], state[k]);
    return r->finish(state[0]);
}

/* The same number, but that a NaN is as good as any. */
static bool same_bits(float a, float b) { return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a); }

static void try_reduce(const struct prim *p)
{
    float whole[ROW_CASES];
    bool inexact = false;
    static const int parts[] = {1, 2, 3, 8, 16};
    static struct row_case row;
    const struct shim_reduce *r = shim_reduce(p->name);
    double worst = 0, error;
    char why[512];
    ck_assert_msg(r && r->state == p->state, "%s does not have the %d floats of its line", p->name, p->state);
    for (int i = 0; i < ROW_CASES * 4 * ARRAY_SIZE(parts); i++) {
        bool needed = !p->exact && !p->of && !inexact; /* until one differs from the first ones, below */
        if (i >= ROW_CASES && !needed && !scale_takes(i, true)) continue;
        row_case(&row, i % ROW_CASES, random_seed());
        int way = i / ROW_CASES;
        float got = reduce_in_parts(r, &row, parts[way / 4], way & 1, way & 2);
        ck_assert_msg(row_close(p, &row, CEIL_DIV(row.n, parts[way / 4]), got, &error, why, sizeof why),
                      "%s (%d parts)", why, parts[way / 4]);
        worst = MAX(worst, error);
        if (i < ROW_CASES) whole[i] = got;
        ck_assert_msg(!p->exact || same_bits(got, whole[i % ROW_CASES]), "%s of %s is %a, in %d parts %a",
                      p->name, row.what, (double)whole[i % ROW_CASES], parts[way / 4], (double)got);
        inexact = inexact || !same_bits(got, whole[i % ROW_CASES]);
    }
    ck_assert_msg(p->exact || p->of || inexact, "%s is as exact as those that say so", p->name);
    tell_error(p->name, worst);
}

START_TEST(source_agrees_with_reference)
{
    const struct prim *p = &prim_table[_i];
    if (p->kind == PRIM_MAP) try_map(p);
    else try_reduce(p);
}
END_TEST

/* The references must agree with themselves, whether a row is pushed whole or its parts are merged. The
 * bound is fp64's noise, relative to the row's magnitude or, where the result cancels (the loss of a key
 * that holds nearly all of the mass), to how far noise of 2^-48 in the row moves it. */
START_TEST(reference_merges)
{
    const struct prim *p = &prim_table[_i];
    static struct row_case row;
    double state[2][PRIM_MAX_STATE], error;
    char why[512];
    for (int i = 0; p->kind == PRIM_REDUCE && i < ROW_CASES; i++) {
        row_case(&row, i, random_seed());
        for (int half = 0; half < 2; half++) {
            p->reduce->init(state[half]);
            for (int c = half ? row.n / 3 : 0; c < (half ? row.n : row.n / 3); c++)
                p->reduce->push(state[half], row.x[c], c, row.key);
        }
        p->reduce->merge(state[0], state[1]);
        double got = p->reduce->finish(state[0]), want = row_reference(p, &row);
        ck_assert_msg(row_close(p, &row, 0, got, &error, why, sizeof why), "%s: %s", row.what, why);
        ck_assert_msg(error < 1e-12 || fabs(got - want) <= row_noise(p, &row, 0x1p-48),
                      "%s of %s in two parts is %.17g, but %.17g in one", p->name, row.what, got, want);
    }
}
END_TEST

START_TEST(folds_agree_in_all_threads)
{
    const struct prim *p = &prim_table[_i];
    static struct row_case row;
    float out[64];
    double error;
    char why[512];
    for (int i = 0; p->kind == PRIM_REDUCE && i < ROW_CASES; i++) {
        if (!scale_takes_one_in(12, i) || !scale_takes(i, true)) continue;
        row_case(&row, i, random_seed());
        shim_reduce(p->name)->fold(out, row.x, row.n, row.key, 0);
        ck_assert_msg(row_close(p, &row, CEIL_DIV(row.n, 64), out[0], &error, why, sizeof why), "%s", why);
        for (int t = 1; t < 64; t++)
            if (memcmp(&out[0], &out[t], sizeof *out))
                ck_abort_msg("%s: thread %d has other bits", row.what, t);
    }
}
END_TEST

/* Lane t of a fold along a column holds what lanes t, t + 4, ... of its warp pushed. */
START_TEST(fold_along_columns)
{
    float x[64], out[64];
    for (int t = 0; t < 64; t++) x[t] = (float)(1 << (t % 32 / 4));
    for (int t = 0; t < 64; t++) x[t] *= t % 4 == 2 ? 3 : 1;
    shim_reduce("sum")->fold(out, x, 64, 0, 4);
    for (int t = 0; t < 64; t++) ck_assert_float_eq(out[t], t % 4 == 2 ? 765 : 255);
}
END_TEST

/* ---- Rope ---- */

static const double bases[] = {10000, 500000, 1e6, 100, 1};

START_TEST(rope_turns_pairs)
{
    struct random r = {random_seed()};
    double worst = 0;
    for (int k = 0; k < scaled(200000); k++) {
        float a = (float)random_normal(&r), b = (float)random_normal(&r), high, low, out[2];
        int rotary = 2 << random_below(&r, 8), i = (int)random_below(&r, rotary / 2);
        double base = bases[random_below(&r, ARRAY_SIZE(bases))], want[2];
        double position = (double)(random_next(&r) >> (43 + random_below(&r, 21)));
        if (random_chance(&r, 10)) position = -position;
        rope_frequency(base, rotary, i, &high, &low);
        rope_reference(want, a, b, position, base, rotary, i);
        shim_rope(out, a, b, (float)position, high, low);
        for (int e = 0; e < 2; e++) {
            double error = fabs(out[e] - want[e]) / (fabs(a) + fabs(b));
            if (!(error < 1e-6))
                ck_abort_msg("rope(%g, %g) at %g, pair %d of %d, base %g: %g, but %g", a, b, position, i,
                             rotary, base, out[e], want[e]);
            worst = MAX(worst, error);
        }
    }
    tell_error("rope", worst);
}
END_TEST

/* What primitives/README.md promises of cos and sin, and of their sum with those of 8 positions. */
START_TEST(rope_turns_are_close)
{
    struct random r = {random_seed()};
    double worst[2] = {0, 0};
    for (int k = 0; k < scaled(400000); k++) {
        float high, low, turn[2], below[2];
        int rotary = 2 << random_below(&r, 8), i = (int)random_below(&r, rotary / 2);
        double base = bases[random_below(&r, ARRAY_SIZE(bases))], near[2], far[2];
        double position = (double)(random_next(&r) >> (44 + random_below(&r, 20)));
        rope_frequency(base, rotary, i, &high, &low);
        rope_reference(near, 1, 0, position, base, rotary, i);
        rope_reference(far, 1, 0, position + 8, base, rotary, i);
        shim_turn(turn, (float)position, high, low);
        shim_turn_below(below, (float)position, high, low);
        for (int e = 0; e < 2; e++) {
            worst[0] = MAX(worst[0], fabs(turn[e] - near[e]));
            worst[1] = MAX(worst[1], fabs(below[e] - far[e]));
        }
    }
    tell_error("rope turn", worst[0]), tell_error("rope below", worst[1]);
    ck_assert_msg(worst[0] < 3e-7 && worst[1] < 5e-7, "errors %g, below %g", worst[0], worst[1]);
}
END_TEST

START_TEST(rope_turns_far_away_too)
{
    struct random r = {random_seed()};
    double worst = 0;
    for (int k = 0; k < scaled(100000); k++) {
        float high, low, turn[2];
        int rotary = 2 << random_below(&r, 8), i = (int)random_below(&r, rotary / 2);
        double base = bases[random_below(&r, ARRAY_SIZE(bases))], want[2];
        double position = (double)(random_next(&r) >> 41);
        rope_frequency(base, rotary, i, &high, &low);
        rope_reference(want, 1, 0, position, base, rotary, i);
        shim_turn(turn, (float)position, high, low);
        for (int e = 0; e < 2; e++) worst = MAX(worst, fabs(turn[e] - want[e]));
    }
    ck_assert_msg(worst < 1.5e-5, "error %g", worst);
}
END_TEST

/* Of frequencies in radians: exact to a whole number of turns, and no worse than those of a base. Above one
 * radian the lower float moves the angle out of the polynomial's range, by 2^-24 of a turn each position. */
START_TEST(half_turns_of_radians)
{
    struct random r = {random_seed()};
    double split = 0, worst = 0;
    for (int k = 0; k < scaled(200000); k++) {
        float radians = (float)ldexp(random_normal(&r) / 6, (int)random_below(&r, 24) - 12), f[2], turn[2];
        double position = (double)(random_next(&r) >> (44 + random_below(&r, 20)));
        shim_half_turns(f, radians);
        double exact = radians / M_PI, turns_off = remainder((double)f[0] + f[1] - exact, 2);
        split = fmax(split, fabs(turns_off) / fmax(fabs(exact), 1e-30));
        double most = 1 + 0x1p-23 * fabs(exact); /* next to half a turn what was rounded off goes past it */
        if (!(fabs(f[0]) <= most && fabs(f[1]) <= 0x1p-24 * fabs(f[0]) + 1e-30))
            ck_abort_msg("%g radians: %g and %g half turns", radians, f[0], f[1]);
        shim_turn(turn, (float)position, f[0], f[1]);
        double error = fmax(fabs(turn[0] - cos(position * radians)), fabs(turn[1] - sin(position * radians)));
        if (fabs(radians) <= 1) worst = fmax(worst, error);
        if (!(error < 3e-7 + fabs(radians) * position * 0x1p-43))
            ck_abort_msg("%g at %g: error %g", radians, position, error);
    }
    tell_error("half turns", split), tell_error("turn of radians", worst);
    ck_assert_msg(split < 0x1p-46 && worst < 3e-7, "errors %g, %g", split, worst);
    float none[2];
    shim_half_turns(none, 0.0f);
    ck_assert(none[0] == 0 && none[1] == 0);
}
END_TEST

START_TEST(rope_of_frequency_0_is_nothing)
{
    static const float v[] = {0.0f, -0.0f, 1e-45f, 1.5f, -3e38f, INFINITY, -INFINITY, NAN};
    for (int i = 0; i < ARRAY_SIZE(v); i++)
        for (int j = 0; j < ARRAY_SIZE(v); j++) {
            float in[2] = {v[i], v[j]}, out[2];
            shim_rope(out, in[0], in[1], 1048575, 0, 0);
            ck_assert_int_eq(memcmp(in, out, sizeof in), 0);
        }
}
END_TEST

/* ---- Types and ports: dtype.c is the other opinion ---- */

static float random_bits(struct random *r)
{
    uint32_t u = (uint32_t)random_next(r);
    float x;
    memcpy(&x, &u, 4);
    return random_chance(r, 50) ? x : (float)random_normal(r) * 100;
}

START_TEST(ports_round_as_the_cpu_does)
{
    struct random r = {random_seed()};
    static const coda_dtype dtypes[] = {CODA_F32, CODA_BF16, CODA_F16, CODA_I32, CODA_I64};
    _Alignas(16) unsigned char mine[128], theirs[128];
    for (int k = 0; k < 25000; k++) {
        coda_dtype t = dtypes[k % 5];
        enum shim_way way = (enum shim_way)(k / 5 % 4);
        bool whole = way == SHIM_PIECE || way == SHIM_PAIRS;
        int64_t stride = whole ? 1 : random_below(&r, 2) + 1, count = whole ? 8 : random_below(&r, 9);
        float x[8], back[8];
        memset(mine, 0xff, sizeof mine), memset(theirs, 0xff, sizeof theirs);
        float size = t == CODA_I64 ? 4e18f : 1e6f; /* some do not fit */
        for (int i = 0; i < 8; i++)
            x[i] = dtype_is_index(t) ? (float)random_normal(&r) * size : random_bits(&r);
        for (int i = 0; i < 8; i++)
            if (isnan(x[i])) x[i] = 1; /* payloads may differ */
        for (int i = 0; i < count; i++) dtype_store(t, theirs, i * stride, x[i]);
        shim_store((int)t, way, mine, x, stride, count);
        if (memcmp(mine, theirs, sizeof mine)) ck_abort_msg("%s stored way %d", dtype_name(t), way);
        shim_load((int)t, way, back, mine, stride, count);
        for (int i = 0; i < 8; i++) {
            float want = i < count ? (float)dtype_load(t, theirs, i * stride) : 0;
            if (back[i] != want)
                ck_abort_msg("%s loaded way %d: %g, but %g", dtype_name(t), way, back[i], want);
        }
    }
}
END_TEST

START_TEST(every_16_bit_number_survives)
{
    for (uint32_t u = 0; u < 0x10000; u++)
        for (int t = CODA_BF16; t <= CODA_F16; t++) {
            float x[2];
            uint16_t bits = (uint16_t)u;
            double want = dtype_load((coda_dtype)t, &bits, 0);
            shim_unpack(t, x, u | 0x12340000);
            bool same =
                isnan(want) ? isnan(x[0]) : x[0] == want && shim_pack(t, x[0], x[1]) == (u | 0x12340000);
            if (!same) ck_abort_msg("%s 0x%04x: %g, but %g", dtype_name((coda_dtype)t), u, x[0], want);
        }
}
END_TEST

START_TEST(partials_are_finished_in_order)
{
    /* (2^24 + 3) + (1 - 2^24) is 5 rounded so, 4 from left to right, 3 if every other one goes first. */
    float room[16], x[8] = {0x1p24f, 3, 1, -0x1p24f, 1, 2, 4, 8};
    for (int i = 0; i < 16; i++) room[i] = NAN;
    ck_assert_float_eq(shim_partials(room, x), 20);
    for (int i = 0; i < 8; i++) ck_assert_float_nan(room[i]);
}
END_TEST

/* ---- NVRTC ---- */

static void compile(const char *symbol, const char *text)
{
    struct jit_cubin cubin = {0};
    char err[JIT_ERROR_SIZE] = "";
    coda_status status = jit_compile(&cubin, symbol, text, &(struct jit_options){"sm_90a", NULL, true}, err);
    ck_assert_msg(status == CODA_OK, "%s: %s", symbol, err);
    ck_assert_msg(cubin.spill_bytes <= 0, "%s spills %d bytes", symbol, cubin.spill_bytes);
    jit_cubin_free(&cubin);
}

static bool has_nvrtc(void)
{
    char line[256];
    return jit_nvrtc_info(line, sizeof line);
}

START_TEST(primitive_compiles_by_itself)
{
    const struct prim *p = &prim_table[_i];
    struct text t = {0};
    if (!scale_takes_one_in(3, _i) || !has_nvrtc()) return;
    text_printf(&t, "#include \"%s\"\nextern \"C\" __global__ void probe(float *p)\n{\n", p->header);
    if (p->kind == PRIM_MAP) {
        text_printf(&t, "    p[0] = coda::map::%s::apply(", p->name);
        for (int i = 0; i < p->inputs + p->params; i++) text_printf(&t, "%sp[%d]", i ? ", " : "", i);
        text_append(&t, ");\n}\n");
    } else {
        text_printf(&t, "    using R = coda::reduce::%s;\n    R::State s, o;\n", p->name);
        text_append(&t, "    R::init(s);\n    R::init(o);\n    R::push(s, p[0], threadIdx.x, p[1]);\n"
                        "    R::push(o, p[2], threadIdx.x, p[3]);\n    R::merge(s, o);\n"
                        "    p[4] = R::finish(s);\n}\n");
    }
    compile("probe", text_str(&t));
    text_free(&t);
}
END_TEST

START_TEST(header_stands_alone)
{
    struct text t = {0};
    if (!scale_takes_one_in(3, _i) || !has_nvrtc()) return;
    text_printf(&t, "#include \"%s\"\nextern \"C\" __global__ void alone() {}\n", prim_files[_i].path);
    compile("alone", text_str(&t));
    text_free(&t);
}
END_TEST

TESTS(primitives, ONE(table_is_sorted_and_complete), ONE(table_has_the_names_that_rewrites_use),
      ONE(files_are_whole), EACH(facts_are_true, prim_count), ONE(false_facts_are_found), CASE("host"),
      SOME(source_agrees_with_reference, prim_count), EACH(reference_merges, prim_count),
      EACH(states_are_shared, prim_count), EACH(folds_agree_in_all_threads, prim_count),
      ONE(fold_along_columns), ONE(rope_turns_pairs), ONE(rope_turns_are_close), ONE(rope_turns_far_away_too),
      ONE(half_turns_of_radians), ONE(rope_of_frequency_0_is_nothing), ONE(ports_round_as_the_cpu_does),
      ONE(every_16_bit_number_survives), ONE(partials_are_finished_in_order), CASE("nvrtc"), TAG("nvrtc"),
      EACH(primitive_compiles_by_itself, prim_count), EACH(header_stands_alone, prim_file_count));
