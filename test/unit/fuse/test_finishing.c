/* test_finishing.c -- statistics of columns, and maps of them, that one launch finishes, and where it must
 * not: what a later program reads, what waits for that, several matrices. On the CPU device, against fp64. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

#include "../library/check_plan.h"
#include "util_scale.h"

/* ---- Which become one ---- */

#define TWO "%x = input f32[40,96]\n%y = input f32[40,24]\n%s = sum %x {columns=1}\n%t = sum %y {columns=1}\n"
#define OUTPUTS "output %s = %s\noutput %t = %t\n"
#define SUM(i)                                                                                               \
    "%x" #i " = input f32[20,1" #i "]\n%s" #i " = sum %x" #i " {columns=1}\noutput %s" #i " = %s" #i "\n"

static const struct launch_case graphs[] = {
    {"two widths", TWO OUTPUTS, 3},
    {"... behind reshapes, and maps of vectors",
     TWO "%g = weight f32[96]\n%b = weight f32[24,1]\n%u = reshape %s {d0=96, rank=1}\n%m = mul %u, %g\n"
         "%v = reshape %t {d0=24, d1=1, rank=2}\n%n = add %v, %b\noutput %m = %m\noutput %n = %n\n",
     3},
    {"... of which a number is made, too",
     TWO
     "%r = scalar f32\n%u = reshape %s {d0=96, rank=1}\n%m = mul %u, %r\noutput %m = %m\noutput %t = %t\n",
     3},
    {"one as it is and as a map",
     TWO "%u = reshape %s {d0=96, rank=1}\n%m = relu %u\noutput %m = %m\n" OUTPUTS, 3},
    {"a map of two statistics of other programs",
     TWO "%z = input f32[8,96]\n%w = max %z {columns=1}\n%m = add %w, %s\noutput %m = %m\noutput %t = %t\n",
     4},
    {"as many as a program has ranges", SUM(1) SUM(2) SUM(3) SUM(4) SUM(5) SUM(6) SUM(7) SUM(8), 9},
    {"... and one more", SUM(0) SUM(1) SUM(2) SUM(3) SUM(4) SUM(5) SUM(6) SUM(7) SUM(8) SUM(9), 12},
    {"one that a pass reads, ahead of which it is finished",
     TWO "%d = sub %x, %s\n%q = sum_sq %d {columns=1}\noutput %q = %q\noutput %t = %t\n", 5},
    {"... whose map it reads",
     TWO "%h = scale %s {alpha=0.5}\n%d = sub %x, %h\n%q = sum_sq %d {columns=1}\n%r = rsqrt %q\n"
         "%o = relu %t\noutput %r = %r\noutput %o = %o\n",
     5},
    {"one that a product reads, whose columns are summed",
     TWO "%w = weight f32[32,96]\n%h = abs %s\n%p = matmul %h, %w\n%e = add %p, %p\n%q = sum %e {columns=1}\n"
         "%o = relu %t\noutput %q = %q\noutput %o = %o\n",
     -1},
    {"a part of one",
     TWO "%c = slice %s {axis=1, start=8, stop=32, step=1}\n%m = mul %c, %t\noutput %m = %m\n", 4},
    {"two that are one tensor's parts",
     TWO "%a = relu %s\n%b = relu %t\n%c = concat %a, %b {axis=1}\noutput %c = %c\n", 3},
    {"of a tensor with one column",
     TWO "%z = input f32[40,1]\n%o = sum %z {columns=1}\noutput %o = %o\n" OUTPUTS, 5},
    {"of several matrices",
     "%x = input f32[3,40,24]\n%y = input f32[40,24]\n%s = sum %x {columns=1}\n%t = sum %y "
     "{columns=1}\n" OUTPUTS,
     4},
    {"of weights, which is done once",
     "%x = weight f32[40,24]\n%y = input f32[40,24]\n%s = sum %x {columns=1}\n%t = sum %y "
     "{columns=1}\n" OUTPUTS,
     -1},
    {"of a sum and of what is added to it",
     TWO
     "%w = weight f32[96,24]\n%p = matmul %y, %w\n%q = sum %p {columns=1}\n%a = add %q, %s\noutput %a = %a\n"
     "output %q = %q\noutput %t = %t\n",
     4},
};

START_TEST(statistics_are_finished_together) { plan_check_case(&graphs[_i]); }
END_TEST

/* ---- Random graphs ---- */

enum { MOST_SUMS = 12, ROWS = 24 };

struct draw {
    coda_graph *g;
    struct random r;
    coda_value sum[MOST_SUMS];
    int64_t width[MOST_SUMS];
    int sums, leaves;
};

static const char *name(struct draw *d, char text[8])
{
    snprintf(text, 8, "x%d", d->leaves++);
    return text;
}

/* Rows of a width: the caller's, a product's, or some less a statistic of columns that there is. */
static coda_value rows_of(struct draw *d, int64_t width)
{
    char text[8];
    coda_value x = coda_input(d->g, name(d, text), CODA_F32, 2, (int64_t[]){ROWS, width});
    int before = d->sums ? (int)random_below(&d->r, d->sums) : 0;
    bool reads = d->sums && d->width[before] == width;
    if (reads && random_chance(&d->r, 40)) return coda_sub(d->g, x, d->sum[before]);
    if (!random_chance(&d->r, 40)) return random_chance(&d->r, 50) ? coda_tanh(d->g, x) : x;
    coda_value w = coda_weight(d->g, name(d, text), CODA_F32, 2, (int64_t[]){width, width});
    return coda_matmul(d->g, x, w);
}

/* A vector of the width, in a shape that is drawn. */
static coda_value shaped(struct draw *d, coda_value v, int64_t width)
{
    switch (random_below(&d->r, 3)) {
    case 0: return coda_reshape(d->g, v, 1, (int64_t[]){width});
    case 1: return coda_reshape(d->g, v, 2, (int64_t[]){width, 1});
    default: return coda_reshape(d->g, v, 2, (int64_t[]){1, width});
    }
}

static coda_value mapped(struct draw *d, coda_value v, int64_t width)
{
    char text[8];
    coda_value x = shaped(d, v, width), other;
    switch (random_below(&d->r, 4)) {
    case 0: return coda_tanh(d->g, x);
    case 1:
        other = coda_weight(d->g, name(d, text), CODA_F32, 1, &width);
        return coda_mul(d->g, coda_reshape(d->g, x, 1, &width), other);
    case 2: return coda_mul(d->g, x, coda_scalar(d->g, name(d, text), CODA_F32));
    default: return x;
    }
}

static void put(struct draw *d, coda_value v)
{
    char text[8];
    if (random_chance(&d->r, 20)) coda_output_add(d->g, name(d, text), v);
    else coda_output(d->g, name(d, text), v);
}

static void add_sum(struct draw *d)
{
    static const int64_t widths[] = {1, 2, 24, 40, 64, 200};
    static const char *const reduction[] = {"sum", "max", "sum_sq", "mean"};
    int64_t width = widths[random_below(&d->r, 6)];
    coda_value s = coda_reduce_columns(d->g, reduction[random_below(&d->r, 4)], rows_of(d, width));
    int before = d->sums ? (int)random_below(&d->r, d->sums) : 0;
    bool adds = d->sums && d->width[before] == width && random_chance(&d->r, 40);
    coda_value v = adds ? coda_add(d->g, s, d->sum[before]) : s;
    d->sum[d->sums] = random_chance(&d->r, 30) ? v : s;
    d->width[d->sums++] = width;
    for (int i = (int)random_below(&d->r, 3); i >= 0; i--) put(d, mapped(d, v, width));
}

START_TEST(random_statistics)
{
    uint64_t seed = random_seed();
    for (int i = 0; i < scaled(300); i++) {
        struct draw d = {.g = coda_graph_new()};
        d.r.state = seed + (uint64_t)i;
        for (int n = 1 + (int)random_below(&d.r, MOST_SUMS); n > 0; n--) add_sum(&d);
        ck_assert_msg(coda_graph_status(d.g) == CODA_OK, "seed %llu: %s", (unsigned long long)seed + i,
                      coda_error());
        ck_assert_int_le(plan_launches((graph *)d.g, 0), plan_launches((graph *)d.g, CODA_NO_FUSION));
        plan_check_modes((graph *)d.g, seed + (uint64_t)i);
        coda_graph_free(d.g);
    }
}
END_TEST

TESTS(finishing, EACH(statistics_are_finished_together, ARRAY_SIZE(graphs)), ONE(random_statistics));
