/*
 * test_rewrite.c -- a graph and what the rewriter makes of it compute the same, over random graphs.
 *
 * Every graph is evaluated in fp64 before and after, in each mode of folding and without fusion: equal
 * to 1e-12 of the largest value of each output, and bit for bit if only exact rules fired. The seed is
 * printed; CODA_SEED=... repeats a run.
 */
#include "eval.h"
#include "rewrite.h" /* before check.h, which has a macro called fail */
#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one SM, products have few tiles, and what they leave of a row is little beside short rows, too. */
static const struct target one_sm = {.sms = 1};

static const struct rewrite_options mode[] = {{.fuse = false},
                                              {.fuse = true},
                                              {.fuse = true, .fold = CODA_FOLD_COPY},
                                              {.fuse = true, .fold = CODA_FOLD_IN_PLACE},
                                              {.fuse = true, .fold = CODA_FOLD_COPY, .fast_f16 = true},
                                              {.fuse = true, .fold = CODA_FOLD_COPY, .target = &one_sm}};

static const struct {
    const char *name;
    enum pass_when when;
} rule[] = {
#define PASS(name, when) {#name, PASS_##when},
#include "passes.def"
#undef PASS
};

/* What a run has seen, so that a test which proves nothing is noticed. */
struct tally {
    int graphs;
    int strict; /* graphs whose outputs are all equal to 1e-12 */
    int exact;  /* rewrites by exact rules alone */
    int fired[ARRAY_SIZE(mode)][ARRAY_SIZE(rule)];
    bool elsewhere[ARRAY_SIZE(rule)]; /* it wants several ranks, which library/test_spmd.c has */
};

static int leaves(const graph *g)
{
    int n = 0;
    for (int i = 0; i < g->nodes; i++) n += op_is_leaf(g->node[i].op);
    return n;
}

/* The largest value of a that is finite, and the largest difference; a NaN equals a NaN only. */
static double size(const double *a, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(a[i])) most = fmax(most, fabs(a[i]));
    return most;
}

static double difference(const double *a, const double *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(a[i]) != isnan(b[i])) return INFINITY;
        if (a[i] != b[i] && !isnan(a[i])) most = fmax(most, fabs(a[i] - b[i]));
    }
    return most;
}

/* ---- Condition: what relative noise of size NOISE on every value does to the outputs ---- */

/* 32 roundings of fp64. It is not larger, to be scaled down: norms of rows that are nearly constant amplify
 * their noise by 1 / sqrt(eps) = 316 each, until it is all of the row; larger noise gets there earlier. */
#define NOISE 0x1p-48

/* g, lowered, with every float value v as v + v * a leaf `noise.N` of its shape. */
static graph *noisy_graph(const graph *given)
{
    graph *g = rewrite(given, &mode[0], NULL), *out = graph_like(g);
    int *map = calloc((size_t)g->nodes + 1, sizeof *map);
    for (int i = 0; i < g->nodes; i++) {
        char name[32];
        map[i] = graph_copy_node(out, g, i, map);
        struct node leaf = {.op = OP_INPUT, .type = g->node[i].type, .name = name, .origin = -1};
        if (!dtype_is_float(leaf.type.dtype)) continue;
        snprintf(name, sizeof name, "noise.%d", i);
        leaf.type.dtype = CODA_F32;
        dense_strides(&leaf.type, leaf.stride);
        int noise = graph_map(out, "mul", map[i], graph_append(out, &leaf), NULL);
        map[i] = graph_map(out, "add", map[i], noise, NULL);
    }
    graph_copy_outputs(out, g, map);
    graph_free(g);
    free(map);
    return out;
}

/* How far noise moves output `index` of g from what args hold. */
static double sensitivity(const graph *g, void **args, int index, uint64_t seed)
{
    graph *n = noisy_graph(g);
    struct random r = {seed};
    void **noise = random_args(n, seed, true), **own = calloc((size_t)(n->nodes + n->outputs), sizeof *own);
    int count = 0, given = 0;
    for (int i = 0; i < n->nodes; i++) {
        const struct node *leaf = &n->node[i];
        if (!op_is_leaf(leaf->op)) continue;
        bool ours = !strncmp(leaf->name, "noise.", 6);
        for (int64_t e = 0; e < type_elements(&leaf->type) && ours; e++)
            ((float *)noise[count])[e] = random_chance(&r, 50) ? (float)NOISE : -(float)NOISE;
        own[count] = ours ? noise[count] : args[given++];
        count++;
    }
    memcpy(own + count, noise + count, sizeof *own * (size_t)n->outputs);
    ck_assert_int_eq(graph_evaluate(n, own), CODA_OK);
    double moved = difference(args[leaves(g) + index], own[count + index],
                              type_elements(&g->node[g->output[index].value].type));
    random_args_free(n, noise);
    free(own);
    graph_free(n);
    return moved;
}

static void print_case(uint64_t seed, const graph *g, const graph *r, const struct rewrite_log *log)
{
    struct text t = {0};
    graph_print(g, &t);
    text_append(&t, "==>\n");
    for (int i = 0; i < log->events; i++) text_printf(&t, "%s: %s\n", log->event[i].rule, log->event[i].text);
    if (r) graph_print(r, &t);
    fprintf(stderr, "seed %llu\n%s", (unsigned long long)seed, text_str(&t));
    text_free(&t);
}

/* ---- Comparison ---- */

/* LOOSE: the graph itself is so ill-conditioned that fp64 loses more than 1e-12, and the difference is no
 * more than between two that noise has moved. */
enum verdict { DIFFERENT, LOOSE, STRICT };

static enum verdict compare_output(uint64_t seed, const graph *g, int index, void **args, const double *got,
                                   bool exact)
{
    const double *want = args[leaves(g) + index];
    int64_t n = type_elements(&g->node[g->output[index].value].type);
    double d = difference(want, got, n), noise = 0;
    if (d <= (exact ? 0 : 1e-12 * size(want, n))) return STRICT;
    for (uint64_t i = 0; i < 3; i++) noise = fmax(noise, sensitivity(g, args, index, seed + i));
    if (!exact && d <= 2 * noise) return LOOSE;
    fprintf(stderr, "output %d differs by %.3g of %.3g; by noise: %.3g%s\n", index, d, size(want, n), noise,
            exact ? "; all rules are exact" : "");
    return DIFFERENT;
}

/* Evaluates r on the leaves of args and compares its outputs with those in args. */
static enum verdict compare(uint64_t seed, const graph *g, const graph *r, void **args, bool exact)
{
    int first = leaves(g);
    enum verdict v = STRICT;
    ck_assert_int_eq(leaves(r), first);
    ck_assert_int_eq(r->outputs, g->outputs);
    void **again = random_args(r, seed, true), **own = malloc(sizeof *own * (size_t)(first + r->outputs));
    memcpy(own, args, sizeof *own * (size_t)first);
    memcpy(own + first, again + first, sizeof *own * (size_t)r->outputs);
    ck_assert_int_eq(graph_evaluate(r, own), CODA_OK);
    for (int i = 0; i < g->outputs; i++) {
        ck_assert(type_equal(&g->node[g->output[i].value].type, &r->node[r->output[i].value].type));
        v = MIN(v, compare_output(seed, g, i, args, own[first + i], exact));
    }
    random_args_free(r, again);
    free(own);
    return v;
}

static bool is_exact(const struct rewrite_log *log)
{
    for (int i = 0; i < log->events; i++)
        if (!log->event[i].exact) return false;
    return true;
}

static void count(struct tally *t, int m, const struct rewrite_log *log)
{
    for (int i = 0; i < log->events; i++) {
        int k = 0;
        while (strcmp(rule[k].name, log->event[i].rule) != 0) k++;
        t->fired[m][k]++;
    }
}

static void check_graph(uint64_t seed, const graph *g, struct tally *t)
{
    enum verdict worst = STRICT;
    ck_assert_msg(g->status == CODA_OK, "seed %llu: %s", (unsigned long long)seed, coda_error());
    void **args = random_args(g, seed, true);
    ck_assert_int_eq(graph_evaluate(g, args), CODA_OK);
    for (int m = 0; m < ARRAY_SIZE(mode); m++) {
        struct rewrite_log log = {0};
        graph *r = rewrite(g, &mode[m], &log);
        ck_assert_msg(r != NULL, "seed %llu: %s", (unsigned long long)seed, coda_error());
        enum verdict v = compare(seed, g, r, args, is_exact(&log));
        if (v == DIFFERENT) print_case(seed, g, r, &log);
        ck_assert_int_ne(v, DIFFERENT);
        worst = MIN(worst, v);
        count(t, m, &log);
        t->exact += is_exact(&log) && log.events > 0;
        graph_free(r);
        rewrite_log_free(&log);
    }
    t->graphs++;
    t->strict += worst == STRICT;
    random_args_free(g, args);
}

static void check_many(int n, uint64_t stream, const struct random_options *opt, struct tally *t)
{
    struct random r = {random_seed() + stream};
    for (int i = 0; i < n; i++) {
        uint64_t seed = random_next(&r);
        graph *g = random_graph(seed, opt);
        check_graph(seed, g, t);
        graph_free(g);
    }
}

static bool has_ranks(const graph *g)
{
    for (int v = 0; v < g->nodes; v++)
        if (g->node[v].op == OP_GROUP && g->node[v].attr.group.ranks > 1) return true;
    return false;
}

/* A pass that random graphs seldom need has a graph of its own: that of the golden with its name. */
static void check_own(struct tally *t)
{
    for (int k = 0; k < ARRAY_SIZE(rule); k++) {
        char path[256], text[8192];
        snprintf(path, sizeof path, "test/golden/%s.coda", rule[k].name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        size_t n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        text[n] = '\0';
        char *start = strstr(text, "# >>> graph"), *end = start ? strstr(start + 1, "# >>>") : NULL;
        ck_assert_msg(end != NULL, "%s: no graph, or one of more than %zu bytes", path, sizeof text);
        *end = '\0';
        graph *g = graph_parse(start);
        ck_assert_msg(g != NULL, "%s: %s", path, coda_error());
        t->elsewhere[k] = has_ranks(g);
        if (!t->elsewhere[k]) check_graph(random_seed(), g, t);
        graph_free(g);
    }
}

enum { MANY = 100 }; /* graphs, of which a share says something */

/* Every rule fires, in the modes where it may, and nowhere else. */
START_TEST(small_graphs)
{
    struct tally t = {0};
    check_own(&t);
    check_many(scaled(2200), 1, &(struct random_options){.patterns = 8, .most_dim = 40}, &t);
    ck_assert_msg(t.graphs < MANY || t.strict >= t.graphs * 10 / 11,
                  "only %d of %d graphs are equal to 1e-12", t.strict, t.graphs);
    for (int k = 0; k < ARRAY_SIZE(rule) && t.graphs >= 1000; k++) {
        enum pass_when when = rule[k].when;
        if (t.elsewhere[k]) continue;
        bool unfused = when == PASS_LOWER || when == PASS_ALWAYS;
        int plain = t.fired[0][k], fused = t.fired[1][k], folded = t.fired[2][k];
        ck_assert_msg((plain > 0) == unfused, "%s without fusion: %d", rule[k].name, plain);
        ck_assert_msg((fused > 0) == (when != PASS_FOLD), "%s without folding: %d", rule[k].name, fused);
        ck_assert_msg(folded > 0, "%s with folding: %d", rule[k].name, folded);
    }
}
END_TEST

START_TEST(large_graphs)
{
    struct tally t = {0};
    check_many(scaled(200), 2, &(struct random_options){.patterns = 20, .most_dim = 300}, &t);
    ck_assert_msg(t.graphs < MANY || t.strict >= t.graphs * 3 / 4, "only %d of %d graphs are equal to 1e-12",
                  t.strict, t.graphs);
}
END_TEST

/* Graphs that only exact rules touch: every bit stays. */
START_TEST(exact_graphs)
{
    struct tally t = {0};
    check_many(scaled(300), 3, &(struct random_options){.patterns = 10, .most_dim = 64, .exact = true}, &t);
    if (t.graphs >= MANY) ck_assert_int_gt(t.exact, 2 * t.graphs);
}
END_TEST

/* Rows whose columns are all sigmoid(3.3), normed again and again: the difference of a column from its row's
 * mean is rounding, and each norm makes 316 times as much of it, until nothing else is left. */
START_TEST(norms_of_constant_rows)
{
    struct tally t = {0};
    for (int norms = 1; norms <= 8; norms++) {
        graph *g = coda_graph_new();
        coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){24, 40});
        x = coda_sigmoid(g, coda_add(g, coda_sub(g, x, x), coda_constant(g, CODA_F32, 3.3)));
        for (int i = 0; i < norms; i++) {
            char name[16];
            snprintf(name, sizeof name, "w%d", i);
            x = i % 2 ? coda_rms_norm(g, x, CODA_NONE, 1e-5f)
                      : coda_layer_norm(g, x, CODA_NONE, CODA_NONE, 1e-5f);
            x = coda_matmul(g, x, coda_weight(g, name, CODA_BF16, 2, (int64_t[]){40, 40}));
        }
        coda_output(g, "y", x);
        for (uint64_t seed = 1; seed <= (SANITIZED ? 1 : 4); seed++) check_graph(seed, g, &t);
        graph_free(g);
    }
    ck_assert_int_eq(t.strict, 0);
}
END_TEST

static coda_value vector_of(graph *g, struct random *r, int i)
{
    bool samples = random_chance(r, 70);
    int64_t dim[] = {2, 1, 128};
    char name[16];
    snprintf(name, sizeof name, "v%d", i);
    return coda_weight(g, name, random_chance(r, 50) ? CODA_BF16 : CODA_F32, samples ? 3 : 1,
                       samples ? dim : dim + 2);
}

/* One more layer over x: a factor or a shift, of rows, columns or samples, on either side. */
static coda_value layer_over(graph *g, struct random *r, coda_value h, coda_value x, int i, bool shifts)
{
    coda_value v = random_chance(r, 60) ? vector_of(g, r, i) : CODA_NONE;
    if (!v.id && shifts && random_chance(r, 50)) return coda_sub(g, x, coda_row_mean(g, h));
    coda_value squares = v.id ? v : coda_row_sum(g, coda_mul(g, h, h));
    if (!v.id) return coda_mul(g, x, coda_apply(g, "rsqrt_mean", &squares, 1, (float[]){1 / 128.0f, 1e-3f}));
    switch (random_below(r, 2) + 2 * (shifts && random_chance(r, 50))) {
    case 3: return coda_add(g, v, x);
    case 2: return coda_sub(g, x, v);
    case 1: return coda_mul(g, coda_add(g, v, coda_constant(g, CODA_F32, 1)), x);
    default: return coda_mul(g, x, v);
    }
}

/* Stacks of layers in any order between a product and one or two others. */
static graph *random_stack(uint64_t seed)
{
    struct random r = {seed};
    graph *g = coda_graph_new();
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){128, 24});
    coda_value h = coda_matmul(g, coda_input(g, "x", CODA_F32, 3, (int64_t[]){2, 5, 24}), w), x = h;
    bool shifts = random_chance(&r, 70);
    for (int64_t i = 0, n = 2 + random_below(&r, 5); i < n; i++) x = layer_over(g, &r, h, x, (int)i, shifts);
    coda_output(g, "y", coda_matmul(g, x, coda_weight(g, "a", CODA_F32, 2, (int64_t[]){40, 128})));
    if (random_chance(&r, 50))
        coda_output(g, "z", coda_matmul_kn(g, x, coda_weight(g, "b", CODA_F32, 2, (int64_t[]){128, 9})));
    if (random_chance(&r, 50)) coda_output(g, "h", h);
    return g;
}

START_TEST(random_stacks)
{
    struct tally t = {0};
    struct random s = {random_seed() + 6};
    int k = 0, graphs = MAX(scaled(800), 150), last = ARRAY_SIZE(mode) - 1;
    while (strcmp(rule[k].name, "carry_samples") != 0) k++;
    for (int i = 0; i < graphs; i++) {
        uint64_t seed = random_next(&s);
        graph *g = random_stack(seed);
        check_graph(seed, g, &t);
        graph_free(g);
    }
    ck_assert_int_gt(t.fired[last][k], graphs / 3);
    ck_assert_int_gt(t.fired[1][k], graphs / 50); /* the mean is an eighth */
}
END_TEST

/* The same graph gives the same text and the same derivation. */
START_TEST(deterministic)
{
    struct random s = {random_seed() + 4};
    for (int i = 0; i < scaled(50); i++) {
        struct text t[2] = {{0}, {0}};
        graph *g = random_graph(random_next(&s), NULL);
        for (int k = 0; k < 2; k++) {
            struct rewrite_log log = {0};
            graph *r = rewrite(g, &mode[2], &log);
            graph_print(r, &t[k]);
            for (int e = 0; e < log.events; e++) text_append(&t[k], log.event[e].text);
            graph_free(r);
            rewrite_log_free(&log);
        }
        ck_assert_str_eq(text_str(&t[0]), text_str(&t[1]));
        text_free(&t[0]);
        text_free(&t[1]);
        graph_free(g);
    }
}
END_TEST

/* What comes out is in normal form: rewriting it again changes nothing but names of origins. */
START_TEST(fixed_point)
{
    struct random s = {random_seed() + 5};
    for (int i = 0; i < scaled(200); i++) {
        uint64_t seed = random_next(&s);
        struct rewrite_log log = {0}, again = {0};
        graph *g = random_graph(seed, NULL), *r = rewrite(g, &mode[i % 3 + 1], &log);
        graph *q = rewrite(r, &mode[i % 3 + 1], &again);
        if (again.events) print_case(seed, r, q, &again);
        ck_assert_int_eq(again.events, 0);
        graph_free(g);
        graph_free(r);
        graph_free(q);
        rewrite_log_free(&log);
        rewrite_log_free(&again);
    }
}
END_TEST

TESTS(rewrite, ONE(small_graphs), ONE(large_graphs), ONE(exact_graphs), ONE(norms_of_constant_rows),
      ONE(random_stacks), ONE(deterministic), ONE(fixed_point));
