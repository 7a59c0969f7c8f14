/* test_spmd.c -- random graphs that are split over ranks, against the whole graph in fp64: as they are, as
 * they are rewritten, as plans of the CPU device, and their gradients against differences of the whole. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rewrite.h"
#include "util_differences.h"
#include "util_scale.h"
#include "util_spmd.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { STEPS = 14, PARTS = 8 };
static const int counts[] = {1, 2, 3, 4, 8};
static const double exact = 1e-11, single = 2e-4;

/* 2,000 in a full run, by turns of each number of ranks; a test has every PARTS-th of them. */
static int graphs(void) { return scaled(200); }

static void draw(struct spmd *s, int i)
{
    spmd_make(s, random_seed() + (uint64_t)i * 7919, counts[i % ARRAY_SIZE(counts)], STEPS);
    ck_assert_msg(!s->failed, "no room for graph %d", i);
}

static coda_graph *parsed(const char *text)
{
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s\n%s", text, coda_error());
    return g;
}

/* The outputs of the whole. */
static void **evaluated(const struct spmd *s)
{
    coda_graph *g = parsed(s->whole);
    void **args = spmd_whole_args(s, false);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s\n%s", s->whole, coda_error());
    coda_graph_free(g);
    return args;
}

static double *const *outputs_of(const struct spmd *s, void **args)
{
    int n = 0;
    for (int i = 0; i < s->leaves; i++) n += s->leaf[i].lies != SPMD_FIRST;
    return (double *const *)(void *)(args + n);
}

static void compare(const struct spmd *s, const coda_graph *g, const coda_plan *p, double *const *want,
                    const char *what)
{
    void *out[SPMD_RANKS][SPMD_OUTPUTS];
    bool good = spmd_run(s, g, p, out);
    ck_assert_msg(good, "%s, %d ranks: %s\n%s", what, s->ranks, good ? "" : fail_message(), s->split);
    for (int i = 0; i < s->outputs; i++) {
        double off = spmd_distance(s, i, want[i], out, p != NULL);
        ck_assert_msg(off <= (p ? single : exact), "%s, %d ranks: %s is off by %.2e\n%s\n%s", what, s->ranks,
                      s->output[i].name, off, s->whole, s->split);
    }
    ck_assert_msg(spmd_agree(s, out, p != NULL), "%s: %d ranks have other bits\n%s", what, s->ranks,
                  s->split);
    spmd_out_free(s, out);
}

/* Passes that are for exchanges alone. */
static const char *const own[] = {"pair_exchanges", "sum_exchanges", "map_gathers", "gathered_rows",
                                  "bucket_exchanges"};

static void count(const struct rewrite_log *log, int *fired)
{
    for (int i = 0; i < log->events; i++)
        for (int k = 0; k < ARRAY_SIZE(own); k++) fired[k] += !strcmp(log->event[i].rule, own[k]);
}

/* As it is, and as passes leave it. */
START_TEST(split_graphs_are_the_whole)
{
    int fired[ARRAY_SIZE(own)] = {0}, all = graphs();
    for (int i = _i; i < graphs(); i += PARTS) {
        struct spmd s;
        struct rewrite_log log = {0};
        draw(&s, i);
        void **whole = evaluated(&s);
        coda_graph *g = parsed(s.split);
        compare(&s, g, NULL, outputs_of(&s, whole), "the graph");
        struct rewrite_options opt = {.fuse = true, .fold = i % 3 ? CODA_FOLD_NONE : CODA_FOLD_COPY};
        graph *r = rewrite(g, &opt, &log);
        ck_assert_msg(r, "%s\n%s", s.split, coda_error());
        compare(&s, r, NULL, outputs_of(&s, whole), "rewritten");
        count(&log, fired);
        rewrite_log_free(&log);
        graph_free(r);
        coda_graph_free(g);
        spmd_args_free(&s, whole);
        spmd_free(&s);
    }
    for (int k = 0; k < ARRAY_SIZE(own) && scale_is_full(); k++)
        ck_assert_msg(fired[k] >= all / PARTS / 125, "%s fired %d times in %d graphs", own[k], fired[k],
                      all / PARTS);
}
END_TEST

START_TEST(plans_are_the_whole)
{
    for (int i = _i; i < graphs() / 4; i += PARTS) {
        struct spmd s;
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan *p;
        draw(&s, i);
        void **whole = evaluated(&s);
        coda_graph *g = parsed(s.split);
        opt.device = CODA_DEVICE_CPU;
        opt.flags = i / PARTS % 2 ? CODA_OVERLAP : 0; /* in another order, if it has one group */
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s\n%s", s.split, coda_error());
        compare(&s, NULL, p, outputs_of(&s, whole), "the plan");
        coda_plan_free(p);
        coda_graph_free(g);
        spmd_args_free(&s, whole);
        spmd_free(&s);
    }
}
END_TEST

/* ---- Gradients ---- */

/* Outputs of g become gradients by its float leaves: of a leaf that all ranks have alike each has a part. */
static coda_graph *gradients(const struct spmd *s, struct spmd *of)
{
    coda_graph *g = parsed(s->split);
    coda_value y[SPMD_OUTPUTS], dy[SPMD_OUTPUTS], x[SPMD_LEAVES], dx[SPMD_LEAVES];
    int leaf[SPMD_LEAVES], n = 0, cot = s->leaves - s->outputs;
    for (int i = 0; i < s->outputs; i++) {
        y[i] = coda_graph_find(g, s->output[i].name);
        dy[i] = coda_graph_find(g, s->leaf[cot + i].name);
    }
    for (int i = 0; i < cot; i++)
        if (!s->leaf[i].ids && s->leaf[i].lies != SPMD_FIRST)
            leaf[n] = i, x[n++] = coda_graph_find(g, s->leaf[i].name);
    coda_grad(g, y, dy, s->outputs, x, n, dx, NULL);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s\n%s", s->split, coda_error());
    *of = *s;
    for (int i = 0; i < n; i++) {
        char name[32];
        if (!dx[i].id) continue;
        snprintf(name, sizeof name, "d%.12s", s->leaf[leaf[i]].name);
        coda_output(g, name, dx[i]);
        struct spmd_tensor *t = &of->output[of->outputs++];
        *t = s->leaf[leaf[i]];
        if (t->lies == SPMD_SAME || t->lies == SPMD_SUM)
            t->lies = t->lies == SPMD_SAME ? SPMD_SUM : SPMD_SAME; /* an addend's is that of the sum */
    }
    return g;
}

/* The derivative of the whole's loss along one leaf, and what all ranks' gradients say of it. */
static void compare_leaf(const struct spmd *s, const struct spmd *of, int output, const graph *loss,
                         void **args, double **direction, void *out[][SPMD_OUTPUTS])
{
    double *along[SPMD_LEAVES] = {NULL};
    struct difference d;
    int k = 0;
    const char *name = of->output[output].name;
    while (strcmp(loss->node[loss->leaf[k]].name, name)) k++;
    along[k] = direction[k];
    ck_assert_msg(difference_along(loss, args, along, &d), "%s\n%s", s->loss, coda_error());
    double got = spmd_product(of, output, direction[k], out);
    if (d.smooth)
        ck_assert_msg(fabs(got - d.value) <= d.error + 1e-6 * (1 + fabs(d.value)),
                      "%d ranks: the derivative along %s is %.9g, not %.9g +- %.1e\n%s\n%s", s->ranks, name,
                      got, d.value, d.error, s->whole, s->split);
}

START_TEST(gradients_add_up_to_the_whole_one)
{
    for (int i = _i; i < graphs() / 4; i += PARTS) {
        struct spmd s, of;
        void *out[SPMD_RANKS][SPMD_OUTPUTS];
        draw(&s, i);
        coda_graph *g = gradients(&s, &of), *loss = parsed(s.loss);
        void **args = spmd_whole_args(&s, true);
        double **direction = differences_direction(loss, random_seed() + (uint64_t)i);
        bool good = spmd_run(&of, g, NULL, out);
        ck_assert_msg(good, "%s\n%s", s.split, good ? "" : coda_error());
        for (int k = s.outputs; k < of.outputs; k++) compare_leaf(&s, &of, k, loss, args, direction, out);
        spmd_out_free(&of, out);
        differences_direction_free(loss, direction);
        spmd_args_free(&s, args);
        coda_graph_free(loss);
        coda_graph_free(g);
        spmd_free(&s);
    }
}
END_TEST

/* Rank by rank, whatever is a part of a sum. */
static void compare_each(const struct spmd *of, void *exact_out[][SPMD_OUTPUTS], void *out[][SPMD_OUTPUTS])
{
    for (int i = 0; i < of->outputs; i++) {
        const struct spmd_tensor *t = &of->output[i];
        bool part = t->lies == SPMD_ROWS || t->lies == SPMD_COLUMNS;
        int64_t n = (t->dim[0] ? t->dim[0] : 1) * t->dim[1] / (part ? of->ranks : 1);
        for (int r = 0; r < of->ranks; r++) {
            double size = 1;
            for (int64_t k = 0; k < n; k++) size = fmax(size, fabs(((double *)exact_out[r][i])[k]));
            for (int64_t k = 0; k < n; k++) {
                double a = ((double *)exact_out[r][i])[k], b = (double)((float *)out[r][i])[k];
                ck_assert_msg(fabs(a - b) <= single * size, "rank %d of %d: %s is %.9g, not %.9g\n%s", r,
                              of->ranks, t->name, b, a, of->split);
            }
        }
    }
}

START_TEST(plans_of_gradients)
{
    for (int i = _i; i < graphs() / 4; i += PARTS) {
        struct spmd s, of;
        void *exact_out[SPMD_RANKS][SPMD_OUTPUTS], *out[SPMD_RANKS][SPMD_OUTPUTS];
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan *p;
        draw(&s, i);
        coda_graph *g = gradients(&s, &of);
        opt.device = CODA_DEVICE_CPU;
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s\n%s", s.split, coda_error());
        bool good = spmd_run(&of, g, NULL, exact_out) && spmd_run(&of, NULL, p, out);
        ck_assert_msg(good, "%s\n%s", s.split, good ? "" : coda_error());
        compare_each(&of, exact_out, out);
        spmd_out_free(&of, exact_out);
        spmd_out_free(&of, out);
        coda_plan_free(p);
        coda_graph_free(g);
        spmd_free(&s);
    }
}
END_TEST

/* ---- Forward and backward apart ---- */

static const struct spmd_tensor *find(const struct spmd_tensor *t, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(t[i].name, name)) return &t[i];
    return NULL;
}

/* The leaves that g has, of those that `all` has; its outputs, each with a row for each rank. */
static void arguments(const coda_graph *g, const struct spmd *all, struct spmd *to)
{
    *to = (struct spmd){.ranks = all->ranks, .alone = true};
    for (int i = 0; i < coda_graph_args(g); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        ck_assert_int_eq(coda_graph_arg(g, i, &a), CODA_OK);
        const struct spmd_tensor *leaf = find(all->leaf, all->leaves, a.name);
        ck_assert_msg(leaf || a.kind == CODA_ARG_GROUP || a.kind == CODA_ARG_OUTPUT, "%s", a.name);
        if (leaf) to->leaf[to->leaves++] = *leaf;
        if (a.kind == CODA_ARG_GROUP) to->alone = false;
        if (a.kind != CODA_ARG_OUTPUT) continue;
        struct spmd_tensor *t = &to->output[to->outputs++];
        *t = (struct spmd_tensor){.lies = SPMD_ROWS, .dim = {all->ranks, (int64_t)(a.bytes / 4)}};
        snprintf(t->name, sizeof t->name, "%.15s", a.name);
    }
}

/* What ranks have of each output becomes a leaf of that name. */
static void add_leaves(struct spmd *all, const struct spmd *of, void *out[][SPMD_OUTPUTS])
{
    for (int i = 0; i < of->outputs; i++) {
        struct spmd_tensor *t = &all->leaf[all->leaves++];
        *t = of->output[i];
        t->values = calloc((size_t)(t->dim[0] * t->dim[1]), sizeof *t->values);
        for (int64_t k = 0; k < t->dim[0] * t->dim[1]; k++)
            t->values[k] = (float)((const double *)out[k / t->dim[1]][i])[k % t->dim[1]];
    }
}

static void check_cut(const struct spmd *s, coda_keep keep)
{
    struct spmd of, all = *s, part[2];
    void *out[3][SPMD_RANKS][SPMD_OUTPUTS];
    coda_graph *g = gradients(s, &of), *cut[2];
    coda_split_options opt = CODA_SPLIT_OPTIONS_INIT;
    opt.keep = keep;
    bool good = spmd_run(&of, g, NULL, out[2]);
    ck_assert_msg(good && coda_split(g, s->outputs, &opt, &cut[0], &cut[1]) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < 2; i++) {
        arguments(cut[i], &all, &part[i]);
        good = spmd_run(&part[i], cut[i], NULL, out[i]);
        ck_assert_msg(good, "%s: %s\n%s", i ? "backward" : "forward", good ? "" : coda_error(), s->split);
        if (!i) add_leaves(&all, &part[0], out[0]);
    }
    for (int k = s->outputs; k < of.outputs; k++) {
        char name[32];
        snprintf(name, sizeof name, "d%.12s", of.output[k].name);
        const struct spmd_tensor *t = find(part[1].output, part[1].outputs, name);
        ck_assert_msg(t, "backward has no %s", name);
        for (int64_t e = 0; e < t->dim[0] * t->dim[1]; e++) {
            int64_t r = e / t->dim[1], at = e % t->dim[1];
            double a = ((double *)out[2][r][k])[at], b = ((double *)out[1][r][t - part[1].output])[at];
            ck_assert_msg(fabs(a - b) <= single * (1 + fabs(a)), "%s: %.9g in one, %.9g apart\n%s", name, a,
                          b, s->split);
        }
    }
    spmd_out_free(&of, out[2]);
    for (int i = 0; i < 2; i++) spmd_out_free(&part[i], out[i]), coda_graph_free(cut[i]);
    for (int i = s->leaves; i < all.leaves; i++) free(all.leaf[i].values);
    coda_graph_free(g);
}

START_TEST(backward_by_itself)
{
    for (int i = _i; i < graphs() / 4; i += PARTS) {
        struct spmd s;
        draw(&s, i);
        check_cut(&s, i % 3 == 0 ? CODA_KEEP_LEAST : i % 3 == 1 ? CODA_KEEP_PRODUCTS : CODA_KEEP_MORE);
        spmd_free(&s);
    }
}
END_TEST

TESTS(spmd, SECONDS(300), EACH(split_graphs_are_the_whole, PARTS), EACH(plans_are_the_whole, PARTS),
      EACH(gradients_add_up_to_the_whole_one, PARTS), EACH(plans_of_gradients, PARTS),
      EACH(backward_by_itself, PARTS));
