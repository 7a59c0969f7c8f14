/* test_grad_adapters.c -- adapters of low rank on packed weights, y = x W^T + s (x A^T) B^T: gradients by A,
 * B and x, through the packed W, beside difference quotients in fp64. */
#include "util_grad.h"
#include "util_packed.h"
#include "util_random.h"
#include "util_scale.h"

#include <math.h>
#include <stdio.h>

#include "tests.h" /* last: Check has a macro named fail */

/* A graph on its way: experts as a leading dimension, or none. */
struct adapted {
    graph *g;
    struct random *r;
    int64_t experts, rows;
    int products; /* so far */
};

static coda_value leaf(struct adapted *a, const char *what, int64_t rows, int64_t columns)
{
    char name[32];
    int64_t dim[] = {a->experts, rows, columns};
    snprintf(name, sizeof name, "%s%d", what, a->products);
    return coda_weight(a->g, name, CODA_F32, a->experts ? 3 : 2, a->experts ? dim : dim + 1);
}

static coda_value base(struct adapted *a, int64_t rows, int64_t columns)
{
    char name[32];
    int64_t dim[] = {a->experts, rows, columns};
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    const char *word = packed_formats[random_below(a->r, packed_format_count)];
    ck_assert_msg(!coda_pack_format_find(word, &f), "%s", coda_error());
    snprintf(name, sizeof name, "w%d", a->products);
    return coda_weight_packed(a->g, name, &f, a->experts ? 3 : 2, a->experts ? dim : dim + 1, CODA_F32);
}

/* One product and its adapter; half of the bases are stored [K, N]. */
static coda_value adapt(struct adapted *a, coda_value x, int64_t k, int64_t n)
{
    graph *g = a->g;
    int64_t rank = 1 + random_below(a->r, 5);
    bool kn = random_chance(a->r, 50);
    coda_value w = kn ? base(a, k, n) : base(a, n, k);
    coda_value y = kn ? coda_matmul_kn(g, x, w) : coda_matmul(g, x, w);
    coda_value low = coda_matmul(g, x, leaf(a, "a", rank, k));
    coda_value high = coda_matmul(g, low, leaf(a, "b", n, rank));
    a->products++;
    return coda_add(g, y, coda_scale(g, high, 0.5f));
}

static coda_value bend(struct adapted *a, coda_value y)
{
    switch (random_below(a->r, 4)) {
    case 0: return coda_silu(a->g, y);
    case 1: return coda_tanh(a->g, y);
    case 2: return coda_rms_norm(a->g, y, CODA_NONE, 1e-3f);
    default: return y;
    }
}

static graph *draw(struct random *r)
{
    struct adapted a = {coda_graph_new(), r, random_chance(r, 30) ? 2 : 0, 1 + random_below(r, 5), 0};
    int64_t k = 8 + random_below(r, 60), n, dim[] = {a.experts, a.rows, k};
    coda_value x = coda_input(a.g, "x", CODA_F32, a.experts ? 3 : 2, a.experts ? dim : dim + 1);
    for (int64_t i = 1 + random_below(r, 3); i; i--, k = n) {
        n = 8 + random_below(r, 60);
        x = bend(&a, adapt(&a, x, k, n));
    }
    coda_output(a.g, "y", x);
    return a.g;
}

START_TEST(adapters_have_their_gradients)
{
    int n = scaled(60), compared = 0;
    for (int i = 0; i < n || (3 * compared <= n && i < 10 * n); i++) { /* of one or two it may be none */
        struct random r = {random_seed() * 131 + (uint64_t)i};
        struct text t = {0};
        struct grad_check c;
        graph *g = draw(&r);
        graph_print(g, &t);
        graph *loss = grad_loss(text_str(&t));
        ck_assert_msg(loss != NULL, "%s: %s", text_str(&t), coda_error());
        ck_assert_msg(grad_compare(loss, (uint64_t)i, &c), "%s: %s", text_str(&t), coda_error());
        if (c.smooth && c.error < 1e-5 * (1 + c.scale)) {
            ck_assert_msg(fabs(c.gradient - c.difference) <= c.error + 1e-7 * c.scale,
                          "%.12g, by differences %.12g +- %.1e, of terms of %.3g\n%s", c.gradient,
                          c.difference, c.error, c.scale, text_str(&t));
            ck_assert_int_ge(c.leaves, 3); /* x, A and B */
            compared++;
        }
        text_free(&t);
        graph_free(loss);
        graph_free(g);
    }
    ck_assert_msg(3 * compared > n, "%d of %d were smooth", compared, n);
}
END_TEST

TESTS(grad_adapters, ONE(adapters_have_their_gradients));
