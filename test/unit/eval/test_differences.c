/* test_differences.c -- central differences against derivatives that textbooks have; and random losses. */
#include "util_differences.h"
#include "util_scale.h"

#include <math.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { ROWS = 3, COLUMNS = 5, OTHERS = 4 };

/* The loss is the sum of what is named, times r. */
#define SUM                                                                                                  \
    "%a = mul %y, %r\n%b = sum %a\n%c = reshape %b {rank=2, d0=1, d1=3}\n%d = sum %c\noutput %l = %d\n"
#define LEAVES "%x = input f32 [3,5]\n%r = input f32 "

struct known {
    const char *name, *text;
    double (*derivative)(void **leaf, double **direction);
};

/* Element i of an argument and of its direction. */
static double at(void **leaf, int argument, int i) { return (double)((float *)leaf[argument])[i]; }

static double of_square(void **leaf, double **d)
{
    double sum = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        double x = at(leaf, 0, i);
        sum += 2 * x * d[0][i] * at(leaf, 1, i) + x * x * d[1][i];
    }
    return sum;
}

static double of_exp(void **leaf, double **d)
{
    double sum = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        sum += exp(at(leaf, 0, i)) * (d[0][i] * at(leaf, 1, i) + d[1][i]);
    return sum;
}

/* y = x w^T; x [3,5], r [3,4], w [4,5]. */
static double of_matmul(void **leaf, double **d)
{
    double sum = 0;
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < OTHERS; n++)
            for (int k = 0; k < COLUMNS; k++) {
                double x = at(leaf, 0, m * COLUMNS + k), w = at(leaf, 2, n * COLUMNS + k);
                double r = at(leaf, 1, m * OTHERS + n);
                sum += r * (d[0][m * COLUMNS + k] * w + x * d[2][n * COLUMNS + k]) +
                       d[1][m * OTHERS + n] * x * w;
            }
    return sum;
}

/* dp_i = p_i (dx_i - sum_j p_j dx_j). */
static double of_softmax(void **leaf, double **d)
{
    double sum = 0;
    for (int m = 0; m < ROWS; m++) {
        double p[COLUMNS], all = 0, mean = 0;
        for (int k = 0; k < COLUMNS; k++) all += p[k] = exp(at(leaf, 0, m * COLUMNS + k));
        for (int k = 0; k < COLUMNS; k++) mean += (p[k] /= all) * d[0][m * COLUMNS + k];
        for (int k = 0; k < COLUMNS; k++) {
            int i = m * COLUMNS + k;
            sum += at(leaf, 1, i) * p[k] * (d[0][i] - mean) + d[1][i] * p[k];
        }
    }
    return sum;
}

static const struct known known[] = {
    {"x^2", LEAVES "[3,5]\n%y = mul %x, %x\n" SUM, of_square},
    {"exp", LEAVES "[3,5]\n%y = exp %x\n" SUM, of_exp},
    {"matmul", LEAVES "[3,4]\n%w = weight f32 [4,5]\n%y = matmul %x, %w\n" SUM, of_matmul},
    {"softmax", LEAVES "[3,5]\n%y = softmax %x\n" SUM, of_softmax},
};

START_TEST(derivatives_are_known)
{
    const struct known *k = &known[_i];
    graph *g = graph_parse(k->text);
    ck_assert_msg(g != NULL, "%s: %s", k->name, coda_error());
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct difference d;
        void **leaf = differences_args(g, seed);
        double **direction = differences_direction(g, seed);
        ck_assert_msg(difference_along(g, leaf, direction, &d), "%s: %s", k->name, coda_error());
        double want = k->derivative(leaf, direction);
        ck_assert_msg(d.smooth && fabs(d.value - want) <= d.error, "%s: %.12g +- %.1e, but it is %.12g",
                      k->name, d.value, d.error, want);
        ck_assert_msg(d.error < 1e-6 * (1 + fabs(want)), "%s: the error may be %.1e", k->name, d.error);
        differences_direction_free(g, direction);
        random_args_free(g, leaf);
    }
    graph_free(g);
}
END_TEST

/* A kink where the leaves are, one on the way of the larger steps, and a jump. */
START_TEST(kinks_and_jumps_are_seen)
{
    static const struct {
        const char *map;
        float x;
    } rough[] = {{"relu", 0}, {"abs", 0}, {"relu", 0x1p-11f}, {"round", 0.5f}};
    for (int i = 0; i < ARRAY_SIZE(rough); i++) {
        struct text t = {0};
        struct difference d;
        text_printf(&t, "%%x = input f32 [1,1]\n%%y = %s %%x\noutput %%l = %%y\n", rough[i].map);
        graph *g = graph_parse(text_str(&t));
        ck_assert_msg(g != NULL, "%s", coda_error());
        float x = rough[i].x;
        double loss, one = 1, *direction[] = {&one};
        ck_assert(difference_along(g, (void *[]){&x, &loss}, direction, &d));
        ck_assert_msg(!d.smooth, "%s at %g: %g +- %.1e", rough[i].map, (double)x, d.value, d.error);
        graph_free(g);
        text_free(&t);
    }
}
END_TEST

/* Along twice and minus the direction; most of them are smooth, or nothing is said. */
START_TEST(random_losses_have_derivatives)
{
    static const struct random_options o = {.patterns = 3, .most_dim = 6, .dtype = CODA_F32, .loss = true};
    int smooth = 0, n = scaled(400);
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + (uint64_t)n; s++) {
        graph *g = random_graph(s, &o);
        struct difference once, back;
        void **leaf = differences_args(g, s);
        double **direction = differences_direction(g, s);
        ck_assert_msg(difference_along(g, leaf, direction, &once), "%llu: %s", (unsigned long long)s,
                      coda_error());
        for (int i = 0; i < g->leaves; i++)
            for (int64_t e = 0; direction[i] && e < type_elements(&g->node[g->leaf[i]].type); e++)
                direction[i][e] *= -2;
        ck_assert(difference_along(g, leaf, direction, &back));
        bool both = once.smooth && back.smooth,
             agree = fabs(-2 * once.value - back.value) <= 2 * once.error + back.error;
        ck_assert_msg(!both || agree, "seed %llu: %.12g +- %.1e, but %.12g +- %.1e", (unsigned long long)s,
                      once.value, once.error, back.value, back.error);
        smooth += once.smooth && once.error < 1e-3 * (1 + fabs(once.value));
        differences_direction_free(g, direction);
        random_args_free(g, leaf);
        graph_free(g);
    }
    ck_assert_msg(2 * smooth > n, "%d of %d random losses are smooth", smooth, n);
}
END_TEST

TESTS(differences, EACH(derivatives_are_known, ARRAY_SIZE(known)), ONE(kinks_and_jumps_are_seen),
      ONE(random_losses_have_derivatives));
