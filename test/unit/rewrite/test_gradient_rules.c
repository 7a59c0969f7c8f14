/*
 * test_gradient_rules.c -- the rules for backward passes: where each fires and where it must not, what the
 * graph then computes in fp64, and that any two of them end, whichever comes first.
 *
 * The formulas are those of a norm before a product: n = x r gain, r = 1 / rms(x), z = n W^T; with b in
 * place of dz, dn = b W, a dot product sum(dn gain x), a gain's gradient and a weight's. Each rule is an
 * identity for any b.
 */
#include "check_rules.h" /* before check.h, which has a macro called fail */

#include "eval.h"
#include "util_random.h"
#include "util_scale.h"
#include "walk.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Where they fire ---- */

#define NORMED                                                                                               \
    "%x = input bf16[6,32]\n%g = weight bf16[32]\n%w = weight bf16[48,32]\n%ct = input bf16[6,48]\n"         \
    "%s = input f32[6,1]\n%ss = sum_sq %x\n%r = rsqrt_mean %ss {inv_n=0.03125, eps=1e-5}\n"                  \
    "%xr = mul %x, %r\n%n = mul %xr, %g\n%z = matmul %n, %w\n%t = tanh %z\noutput %t = %t\n"
#define OF_Z "%b = mul %ct, %t\n"
#define DATA "%dn = matmul %b, %w {kn=1}\n"
#define DATA_OF_CT "%dn = matmul %ct, %w {kn=1}\n"
#define DOT "%dg = mul %dn, %g\n%dx = mul %dg, %x\n%dot = sum %dx\noutput %dot = %dot\n"
#define WEIGHT "%bt = transpose %b {p0=1, p1=0}\n%dw = matmul %bt, %n {kn=1, f32=1}\noutput %dw = %dw\n"

#define TWO(of)                                                                                              \
    "%v = weight bf16[48,32]\n%y = matmul %n, %v\n%u = silu %y\noutput %u = %u\n%c = mul %ct, " of "\n"      \
    "%dm = matmul %c, %v {kn=1}\n%d = add %dn, %dm\n"
#define SUM_OF_TWO "%dg = mul %d, %g\n%dx = mul %dg, %x\n%e = sum %dx\noutput %e = %e\n"

static void fires(const char *text, const char *rule)
{
    rules_expect(text, FOLD(NONE), rule, NULL);
    if (*rule != '-') rules_expect(text, PLAIN, rule[0] == '-' ? rule : "-tidy", NULL);
}

START_TEST(dots_of_rows)
{
    fires(NORMED OF_Z DATA DOT, "row_dot");
    /* the factor of the row is in the sum, too; factors stand in another order, and are widened */
    fires(NORMED OF_Z DATA
          "%d = mul %x, %r\n%e = mul %g, %dn\n%f = mul %d, %e\n%v = sum %f\noutput %v = %v\n",
          "row_dot");
    fires(NORMED OF_Z DATA
          "%dg = mul %dn, %g\n%u = cast %dg {to=f32}\n%dx = mul %u, %x\n%v = sum %dx\noutput %v = %v\n",
          "row_dot");
    /* two products read the norm; of one of them b has nothing of z */
    fires(NORMED OF_Z DATA TWO("%u") SUM_OF_TWO, "row_dot");
    fires(NORMED OF_Z DATA TWO("%ct") SUM_OF_TWO, "-row_dot");
    /* another statistic, and sums of columns; the gain is missing, or there twice; another operand */
    fires(NORMED OF_Z DATA "%dg = mul %dn, %g\n%dx = mul %dg, %x\n%v = max %dx\noutput %v = %v\n",
          "-row_dot");
    fires(NORMED OF_Z DATA "%dg = mul %dn, %g\n%dx = mul %dg, %x\n%v = sum %dx {columns=1}\noutput %v = %v\n",
          "-row_dot");
    fires(NORMED OF_Z DATA "%dx = mul %dn, %x\n%v = sum %dx\noutput %v = %v\n", "-row_dot");
    fires(NORMED OF_Z DATA "%dg = mul %dn, %g\n%dh = mul %dg, %g\n%dx = mul %dh, %x\n%v = sum %dx\n"
                           "output %v = %v\n",
          "-row_dot");
    fires(NORMED OF_Z DATA
          "%dg = mul %dn, %g\n%h = relu %x\n%dx = mul %dg, %h\n%v = sum %dx\noutput %v = %v\n",
          "-row_dot");
    /* the weight as it is, not its transpose; a factor that may be 0; b made without z; z that comes later */
    fires("%x = input bf16[6,32]\n%w = weight bf16[32,32]\n%c = input bf16[6,32]\n%z = matmul %x, %w\n"
          "%t = tanh %z\n%b = mul %c, %t\n%dn = matmul %b, %w\n%dx = mul %dn, %x\n%v = sum %dx\n"
          "output %v = %v\noutput %t = %t\n",
          "-row_dot");
    fires("%x = input bf16[6,32]\n%w = weight bf16[48,32]\n%c = input bf16[6,48]\n%s = input f32[6,1]\n"
          "%n = mul %x, %s\n%z = matmul %n, %w\n%t = tanh %z\n%b = mul %c, %t\n%dn = matmul %b, %w {kn=1}\n"
          "%dx = mul %dn, %x\n%v = sum %dx\noutput %v = %v\noutput %t = %t\noutput %n = %n\n",
          "-row_dot");
    fires(NORMED "%b = tanh %ct\n" DATA DOT, "-row_dot");
    fires(
        "%x = input bf16[6,32]\n%w = weight bf16[48,32]\n%b = input bf16[6,48]\n%dn = matmul %b, %w {kn=1}\n"
        "%dx = mul %dn, %x\n%v = sum %dx\n%z = matmul %x, %w\n%y = mul %z, %b\noutput %v = %v\noutput %y = "
        "%y\n",
        "-row_dot");
    /* a rounding in between that is not the product's own */
    fires(NORMED OF_Z DATA
          "%dg = mul %dn, %g\n%u = cast %dg {to=f16}\n%dx = mul %u, %x\n%v = sum %dx\noutput %v = %v\n",
          "-row_dot");
}
END_TEST

#define TURNED                                                                                               \
    "%z = input bf16[6,32]\n%y = input bf16[6,32]\n%p = input i32[6]\n%g = weight bf16[32]\n"                \
    "%r = input f32[6,1]\n"
#define TURN(of, more) "rope %" of ", %p {head_dim=16, half=1" more "}\n"
#define OUT_OF(product) product "%v = sum %m\noutput %v = %v\noutput %q = %q\noutput %b = %b\n"

START_TEST(dots_of_turns)
{
    graph *g =
        rules_check(TURNED "%q = " TURN("z", "") "%b = " TURN("y", ", inverse=1") OUT_OF("%m = mul %z, %b\n"),
                    FOLD(NONE), "turn_dot", "rope rope mul sum");
    rules_expect_line(g, "mul", "%7 = mul %5, %y");
    graph_free(g);
    fires(TURNED "%q = " TURN("z", ", scale=2") "%b = " TURN("y", ", inverse=1, scale=2")
              OUT_OF("%m = mul %b, %z\n"),
          "turn_dot");
    /* one way; other angles, scales, positions; a factor within the pairs; no partner, two; a late turn */
    fires(TURNED "%q = " TURN("z", ", inverse=1") "%b = " TURN("y", "") OUT_OF("%m = mul %z, %b\n"),
          "-turn_dot");
    fires(TURNED "%q = " TURN("z", ", base=500") "%b = " TURN("y", ", inverse=1") OUT_OF("%m = mul %z, %b\n"),
          "-turn_dot");
    fires(TURNED "%q = " TURN("z", ", scale=2") "%b = " TURN("y", ", inverse=1") OUT_OF("%m = mul %z, %b\n"),
          "-turn_dot");
    fires(TURNED "%q = rope %z {head_dim=16, half=1}\n%b = " TURN("y", ", inverse=1")
              OUT_OF("%m = mul %z, %b\n"),
          "-turn_dot");
    fires(TURNED "%q = " TURN("z", "") "%b = " TURN("y", ", inverse=1")
              OUT_OF("%n = mul %z, %b\n%m = mul %n, %g\n"),
          "-turn_dot");
    fires(TURNED "%q = " TURN("z", "") "%b = " TURN("y", ", inverse=1") OUT_OF("%m = mul %b, %b\n"),
          "-turn_dot");
    fires(TURNED "%q = " TURN("z", "") "%b = " TURN("y", ", inverse=1")
              OUT_OF("%n = mul %z, %b\n%m = mul %n, %z\n"),
          "-turn_dot");
    fires(TURNED "%q = " TURN("z", "") "%b = " TURN("y", ", inverse=1") OUT_OF("%m = div %z, %b\n"),
          "-turn_dot");
    fires(TURNED "%b = " TURN("y", ", inverse=1") "%m = mul %z, %b\n%v = sum %m\n%q = " TURN(
              "z", "") "output %v = %v\noutput %q = %q\noutput %b = %b\n",
          "-turn_dot");
    /* of the rows they may differ */
    fires(TURNED "%q = " TURN("z", "") "%b = " TURN("y", ", inverse=1")
              OUT_OF("%n = mul %z, %r\n%m = mul %n, %b\n"),
          "turn_dot");
}
END_TEST

#define PARTS                                                                                                \
    "%x = input bf16[6,32]\n%w = weight bf16[16,32]\n%z = input bf16[6,32]\n%s = input f32[6,1]\n"           \
    "%p = matmul %x, %w\n%a = relu %p\n%b = tanh %p\n"

START_TEST(sums_of_parts)
{
    fires(PARTS "%c = concat %a, %b {axis=1}\n%m = mul %c, %z\n%v = sum %m\noutput %v = %v\n", "sum_concat");
    fires(PARTS "%c = concat %a, %b {axis=-1, interleave=1}\n%v = sum %c\noutput %v = %v\n", "sum_concat");
    rules_expect(PARTS "%c = concat %a, %b {axis=1}\n%m = mul %z, %c\n%n = div %m, %s\n%v = sum %n\n"
                       "output %v = %v\n",
                 FOLD(NONE), "sum_concat", "matmul relu tanh slice mul slice mul add sum div");
    /* along rows; another statistic; of columns; divided by; parts that are in memory */
    fires(PARTS "%c = concat %a, %b {axis=0}\n%v = sum %c\noutput %v = %v\n", "-sum_concat");
    fires(PARTS "%c = concat %a, %b {axis=1}\n%v = sum_sq %c\noutput %v = %v\n", "-sum_concat");
    fires(PARTS "%c = concat %a, %b {axis=1}\n%v = sum %c {columns=1}\noutput %v = %v\n", "-sum_concat");
    fires(PARTS "%c = concat %a, %b {axis=1}\n%m = div %z, %c\n%v = sum %m\noutput %v = %v\n", "-sum_concat");
    fires(PARTS "%c = concat %a, %x {axis=1}\n%v = sum %c\noutput %v = %v\n", "-sum_concat");
}
END_TEST

START_TEST(scales_of_parts)
{
    fires(PARTS "%c = concat %a, %b {axis=1}\n%m = mul %c, %s\noutput %m = %m\n", "concat_map");
    fires(PARTS "%c = concat %a, %x {axis=1, interleave=0}\n%m = div %c, %s\noutput %m = %m\n", "concat_map");
    /* others read it; along rows; a factor of the columns; a statistic of the whole; parts in memory */
    fires(PARTS "%c = concat %a, %b {axis=1}\n%m = mul %c, %s\noutput %m = %m\noutput %c = %c\n",
          "-concat_map");
    fires(PARTS "%c = concat %a, %b {axis=1}\n%m = mul %c, %s\n%t = max %c\noutput %m = %m\noutput %t = %t\n",
          "-concat_map");
    fires(PARTS "%c = concat %a, %b {axis=0}\n%m = scale %c {alpha=2}\noutput %m = %m\n", "-concat_map");
    fires(PARTS "%c = concat %a, %b {axis=1}\n%m = mul %c, %z\noutput %m = %m\n", "-concat_map");
    fires(PARTS "%c = concat %a, %b {axis=1}\n%t = max %c\n%m = mul %c, %t\noutput %m = %m\n", "-concat_map");
    fires(PARTS "%c = concat %z, %x {axis=1}\n%m = mul %c, %s\noutput %m = %m\n", "-concat_map");
}
END_TEST

START_TEST(factors_of_weights)
{
    rules_expect(NORMED OF_Z DATA WEIGHT "output %dn = %dn\n", FOLD(NONE), "factor_k",
                 "sum_sq rsqrt_mean mul mul matmul tanh mul mul matmul div transpose matmul mul");
    /* without a data gradient; with readers in its epilogue */
    fires(NORMED OF_Z WEIGHT, "factor_k");
    fires(NORMED OF_Z DATA WEIGHT DOT "%db = sum %b {columns=1}\noutput %db = %db\n", "factor_k");
    /* others want b, or n: as an output, a whole operation, an operand that is not multiplied */
    fires(NORMED OF_Z DATA WEIGHT "output %b = %b\n", "-factor_k");
    fires(NORMED OF_Z DATA WEIGHT "%o = concat %b, %ct {axis=0}\noutput %o = %o\n", "-factor_k");
    fires(NORMED OF_Z DATA WEIGHT "%o = matmul %ct, %b\noutput %o = %o\n", "-factor_k");
    fires(NORMED OF_Z DATA WEIGHT "output %n = %n\n", "-factor_k");
    fires(NORMED OF_Z DATA WEIGHT "%o = relu %n\noutput %o = %o\n", "-factor_k");
    /* b is in memory; the factor may be 0, or is of one element of x; two weights that want other factors */
    fires(NORMED "%bt = transpose %ct {p0=1, p1=0}\n%dw = matmul %bt, %n {kn=1}\noutput %dw = %dw\n",
          "-factor_k");
    fires(
        NORMED OF_Z
        "%xs = mul %x, %s\n%bt = transpose %b {p0=1, p1=0}\n%dw = matmul %bt, %xs {kn=1}\noutput %dw = %dw\n",
        "-factor_k");
    fires(NORMED OF_Z "%xx = mul %xr, %x\n%bt = transpose %b {p0=1, p1=0}\n%dw = matmul %bt, %xx {kn=1}\n"
                      "output %dw = %dw\n",
          "-factor_k");
    fires(NORMED OF_Z WEIGHT "%m = mul %xr, %r\n%dv = matmul %bt, %m {kn=1}\noutput %dv = %dv\n",
          "-factor_k");
    fires(NORMED OF_Z WEIGHT "%dv = matmul %bt, %x {kn=1}\noutput %dv = %dv\n", "-factor_k");
    /* the deviation from a mean is in no memory but the norm's */
    fires("%x = input bf16[6,32]\n%ct = input bf16[6,48]\n%mu = mean %x\n%d = sub %x, %mu\n%q = m2 %x\n"
          "%r = rsqrt_mean %q {inv_n=0.03125, eps=1e-5}\n%n = mul %d, %r\n%b = tanh %ct\n%bt = transpose %b "
          "{p0=1, "
          "p1=0}\n%dw = matmul %bt, %n {kn=1}\noutput %dw = %dw\n",
          "-factor_k");
    /* f16 may underflow */
    const char *half = "%x = input f16[6,32]\n%ct = input f16[6,48]\n%ss = sum_sq %x\n"
                       "%r = rsqrt_mean %ss {inv_n=0.03125, eps=1e-5}\n%n = mul %x, %r\n%b = tanh %ct\n"
                       "%bt = transpose %b {p0=1, p1=0}\n%dw = matmul %bt, %n {kn=1}\noutput %dw = %dw\n";
    fires(half, "-factor_k");
    rules_expect(half, FAST(NONE), "factor_k", NULL);
}
END_TEST

#define GAIN "%dx = mul %dn, %x\n%dr = mul %dx, %r\n%dg = sum %dr {columns=1}\noutput %dg = %dg\n"

START_TEST(sums_of_columns)
{
    rules_expect(NORMED OF_Z DATA WEIGHT GAIN, FOLD(NONE), "column_dot",
                 "sum_sq rsqrt_mean mul mul matmul tanh mul mul transpose matmul mul mul sum");
    /* b in memory, whose products have the factor with n; rows and columns of the weight exchanged */
    fires(NORMED DATA_OF_CT
          "%bt = transpose %ct {p0=1, p1=0}\n%dw = matmul %bt, %xr {kn=1}\noutput %dw = %dw\n" GAIN,
          "column_dot");
    fires("%x = input bf16[6,32]\n%w = weight bf16[32,48]\n%b = input bf16[6,48]\n%dn = matmul %b, %w\n"
          "%xt = transpose %x {p0=1, p1=0}\n%dw = matmul %xt, %b {kn=1, f32=1}\n%dx = mul %dn, %x\n"
          "%dg = sum %dx {columns=1}\noutput %dg = %dg\noutput %dw = %dw\n",
          "column_dot");
    /* the data's gradient is wanted; no weight's is; a gain that only the weight's has; other rows */
    fires(NORMED OF_Z DATA WEIGHT GAIN "output %dn = %dn\n", "-column_dot");
    fires(NORMED OF_Z DATA WEIGHT GAIN "%o = mul %dn, %g\noutput %o = %o\n", "-column_dot");
    fires(NORMED OF_Z DATA GAIN, "-column_dot");
    fires(NORMED DATA_OF_CT
          "%bt = transpose %ct {p0=1, p1=0}\n%dw = matmul %bt, %n {kn=1}\noutput %dw = %dw\n"
          "output %n = %n\n" GAIN,
          "-column_dot");
    fires(NORMED DATA_OF_CT
          "%bt = transpose %ct {p0=1, p1=0}\n%dw = matmul %bt, %x {kn=1}\noutput %dw = %dw\n" GAIN,
          "-column_dot");
}
END_TEST

START_TEST(factors_that_meet)
{
    rules_expect(NORMED "%d = div %ct, %r\n%e = mul %d, %r\noutput %e = %e\n", FOLD(NONE), "cancel", NULL);
    fires(NORMED "%rr = mul %r, %r\n%d = div %ct, %r\n%e = mul %rr, %d\noutput %e = %e\n", "cancel");
    fires(NORMED "%d = mul %ct, %r\n%h = mul %d, %z\n%e = div %h, %r\noutput %e = %e\n", "cancel");
    /* behind a sum; a sum of one that is not divided, or by another */
    fires(NORMED "%d = div %ct, %r\n%h = div %t, %r\n%f = add %d, %h\n%e = mul %f, %r\noutput %e = %e\n",
          "cancel");
    fires(NORMED "%d = div %ct, %r\n%f = add %d, %t\noutput %f = %f\n", "-cancel");
    fires(NORMED "%d = div %ct, %r\n%h = div %t, %s\n%f = add %d, %h\noutput %f = %f\n", "-cancel");
    /* what may be 0; another factor; nothing that is divided by; nothing left but a vector */
    fires(NORMED "%d = div %ct, %s\n%e = mul %d, %s\noutput %e = %e\n", "-cancel");
    fires(NORMED "%d = div %ct, %r\n%e = mul %d, %s\noutput %e = %e\n", "-cancel");
    fires(NORMED "%d = div %ct, %r\n%e = div %d, %r\noutput %e = %e\n", "-cancel");
    fires("%x = input f32[6,32]\n%c = input f32[1]\n%ss = sum_sq %x\n"
          "%r = rsqrt_mean %ss {inv_n=0.03125, eps=1e-5}\n%d = div %c, %r\n%e = mul %d, %r\noutput %e = %e\n",
          "-cancel");
    /* it is rounded before they meet */
    fires(NORMED "%d = div %ct, %r\n%h = cast %d {to=f16}\n%e = mul %h, %r\noutput %e = %e\n", "-cancel");
}
END_TEST

/* The same text with 1 row in place of 6. */
static char *of_one_row(const char *text)
{
    char *one = strdup(text);
    for (char *at = one; (at = strstr(at, "[6,")); at++) at[1] = '1';
    return one;
}

/* A row is rewritten alike alone and among others: a batch-invariant plan has the same programs for both. */
START_TEST(rows_do_not_matter)
{
    static const char *const text[] = {
        NORMED OF_Z DATA WEIGHT DOT, NORMED OF_Z DATA WEIGHT GAIN,
        TURNED "%q = rope %z {head_dim=16, half=1}\n%b = rope %y {head_dim=16, half=1, inverse=1}\n" OUT_OF(
            "%m = mul %z, %b\n"),
        PARTS "%c = concat %a, %b {axis=1}\n%m = mul %c, %z\n%v = sum %m\noutput %v = %v\n",
        PARTS "%c = concat %a, %b {axis=1}\n%m = mul %c, %s\noutput %m = %m\n"};
    for (int i = 0; i < ARRAY_SIZE(text); i++) {
        char *one = of_one_row(text[i]);
        struct rewrite_log log[2] = {{.events = 0}, {.events = 0}};
        graph *g[2] = {graph_parse(text[i]), graph_parse(one)}, *r[2];
        for (int k = 0; k < 2; k++) r[k] = rewrite(g[k], &FOLD(NONE), &log[k]);
        ck_assert_msg(r[0] && r[1], "%s", coda_error());
        ck_assert_int_eq(log[0].events, log[1].events);
        for (int e = 0; e < log[0].events; e++) ck_assert_str_eq(log[0].event[e].text, log[1].event[e].text);
        ck_assert_int_gt(log[0].events, 0);
        for (int k = 0; k < 2; k++) graph_free(g[k]), graph_free(r[k]), rewrite_log_free(&log[k]);
        free(one);
    }
}
END_TEST

/* ---- Random formulas around the patterns ---- */

static const char *const own[] = {"row_dot", "turn_dot",   "sum_concat", "factor_k",
                                  "cancel",  "column_dot", "concat_map"};

/* v = the product of the values, in an order and with brackets that are drawn. Their names are letters. */
static void chain(struct text *t, struct random *r, const char *v, const char *values)
{
    char left[32];
    int n = 0, at = 0;
    for (const char *p = values; *p; p++) left[n++] = *p;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)random_below(r, i + 1);
        char c = left[i];
        left[i] = left[j], left[j] = c;
    }
    /* The first is one that has all columns, so that the product has its dtype. */
    for (int i = 0; i < n; i++)
        if (strchr("xdn", left[i])) {
            char c = left[0];
            left[0] = left[i], left[i] = c;
            break;
        }
    text_printf(t, "%%%s0 = scale %%%c {alpha=1}\n", v, left[0]);
    for (int i = 1; i < n; i++, at++)
        text_printf(t, "%%%s%d = mul %%%s%d, %%%c\n", v, at + 1, v, at, left[i]);
    text_printf(t, "%%%s = scale %%%s%d {alpha=1}\n", v, v, at);
}

struct drawn {
    int64_t rows, batch, k, n;
    bool kn, gain, turns, two; /* two: another product reads the norm */
    int kind;
    const char *type;
};

static void dims(struct text *t, const struct drawn *d, int64_t columns)
{
    if (d->batch) text_printf(t, "[%d,%d,%d]\n", (int)d->batch, (int)d->rows, (int)columns);
    else text_printf(t, "[%d,%d]\n", (int)d->rows, (int)columns);
}

static void draw_leaf(struct text *t, const struct drawn *d, const char *name, const char *type,
                      int64_t columns)
{
    text_printf(t, "%%%s = input %s", name, type);
    dims(t, d, columns);
}

/* b, in place of the gradient of z. */
static void draw_b(struct text *t, struct random *r, const struct drawn *d)
{
    int axis = 1 + (d->batch > 0);
    int64_t half = d->n / 2, first = d->kind == 2 ? half + 8 : half;
    if (d->kind == 0) text_append(t, "%tz = tanh %z\n%b = mul %ct, %tz\noutput %tz = %tz\n");
    if (d->kind == 1)
        text_printf(
            t, "%%q = rope %%z {head_dim=8%s}\n%%b = rope %%ct {head_dim=8, inverse=1%s}\noutput %%q = %%q\n",
            d->turns ? ", half=1" : "", d->turns ? ", half=1" : "");
    if (d->kind == 2 || d->kind == 3) {
        int step = d->kind == 3 && d->turns ? 2 : 1;
        text_printf(t, "%%z1 = slice %%z {axis=%d, start=0, stop=%d, step=%d}\n", axis,
                    (int)(step == 2 ? d->n : first), step);
        text_printf(t, "%%z2 = slice %%z {axis=%d, start=%d, stop=%d, step=%d}\n", axis,
                    (int)(step == 2 ? 1 : first), (int)d->n, step);
        text_printf(t, "%%b1 = tanh %%z1\n%%b2 = silu %%z2\n%%b = concat %%b1, %%b2 {axis=%d%s}\n", axis,
                    step == 2 ? ", interleave=1" : "");
        text_append(t, "output %z = %z\n");
    }
    if (d->kind == 4) text_append(t, "%b = scale %ct {alpha=0.5}\noutput %z = %z\n");
    if (random_chance(r, 10)) text_append(t, "output %b = %b\n");
}

/* The gradient of the weight; of the second one, too. */
static void draw_weight(struct text *t, struct random *r, const struct drawn *d)
{
    const char *b = "b", *n = "n";
    if (d->two && !d->batch)
        text_printf(t,
                    "%%turned2 = transpose %%%s {p0=1, p1=0}\n%%dw2 = matmul %%turned2, %%%s {kn=1}\n"
                    "output %%dw2 = %%dw2\n",
                    d->kn ? "n" : "bb", d->kn ? "bb" : "n");
    if (d->batch) {
        int64_t rows = d->batch * d->rows;
        text_printf(t, "%%bj = reshape %%b {rank=2, d0=%d, d1=%d}\n", (int)rows, (int)d->n);
        text_printf(t, "%%nj = reshape %%n {rank=2, d0=%d, d1=%d}\n", (int)rows, (int)d->k);
        b = "bj", n = "nj";
    }
    text_printf(t, "%%turned = transpose %%%s {p0=1, p1=0}\n%%dw = matmul %%turned, %%%s {kn=1%s}\n",
                d->kn ? n : b, d->kn ? b : n, random_chance(r, 50) ? ", f32=1" : "");
    text_append(t, "output %dw = %dw\n");
}

/* That of the norm's operand. */
static void draw_data(struct text *t, struct random *r, const struct drawn *d)
{
    chain(t, r, "m", random_chance(r, 70) ? (d->gain ? "dgx" : "dx") : (d->gain ? "dgxr" : "dxr"));
    text_append(t, "%dot = sum %m\n%c1 = mul %dot, %r\n%c2 = mul %c1, %r\n%c3 = mul %c2, %r\n");
    chain(t, r, "e", d->gain ? "dgr" : "dr");
    text_append(t, "%xc = mul %x, %c3\n%dx = sub %e, %xc\noutput %dx = %dx\n");
    if (random_chance(r, 20)) text_append(t, "output %d = %d\n");
}

static void draw_gradients(struct text *t, struct random *r, const struct drawn *d)
{
    const char *kn = d->kn ? "" : " {kn=1}";
    bool first = random_chance(r, 50);
    text_printf(t, "%%%s = matmul %%b, %%w%s\n", d->two ? "d1" : "d", kn);
    if (d->two) text_printf(t, "%%d2 = matmul %%bb, %%w2%s\n%%d = add %%d1, %%d2\n", kn);
    if (first) draw_weight(t, r, d);
    if (random_chance(r, 70)) draw_data(t, r, d);
    chain(t, r, "h", "dxr");
    if (d->batch)
        text_printf(t, "%%hj = reshape %%h {rank=2, d0=%d, d1=%d}\n", (int)(d->batch * d->rows), (int)d->k);
    text_printf(t, "%%dg = sum %%%s {columns=1}\noutput %%dg = %%dg\n", d->batch ? "hj" : "h");
    if (!first) draw_weight(t, r, d);
    if (random_chance(r, 10)) text_append(t, "output %n = %n\n");
}

static char *draw(uint64_t seed)
{
    struct random r = {seed};
    struct text t = {0};
    struct drawn d = {.rows = 1 + random_below(&r, 6),
                      .k = 2 + random_below(&r, 30),
                      .n = 16 * (1 + random_below(&r, 3)),
                      .kn = random_chance(&r, 30),
                      .gain = random_chance(&r, 70),
                      .turns = random_chance(&r, 50),
                      .kind = (int)random_below(&r, 5),
                      .type = random_chance(&r, 60) ? "bf16" : "f32"};
    d.two = random_chance(&r, 30);
    d.batch = random_chance(&r, 40) ? 1 + random_below(&r, 3) : 0;
    draw_leaf(&t, &d, "x", d.type, d.k);
    draw_leaf(&t, &d, "ct", d.type, d.n);
    text_printf(&t, "%%g = weight %s[%d]\n", d.type, (int)d.k);
    text_printf(&t, "%%w = weight %s[%d,%d]\n", d.type, (int)(d.kn ? d.k : d.n), (int)(d.kn ? d.n : d.k));
    text_printf(&t, "%%ss = sum_sq %%x\n%%r = rsqrt_mean %%ss {inv_n=%.9g, eps=1e-5}\n", 1.0 / (double)d.k);
    chain(&t, &r, "n", d.gain ? "xrg" : "xr");
    text_printf(&t, "%%z = matmul %%n, %%w%s\n", d.kn ? " {kn=1}" : "");
    draw_b(&t, &r, &d);
    if (d.two)
        text_printf(&t,
                    "%%w2 = weight %s[%d,%d]\n%%zz = matmul %%n, %%w2%s\n%%tt = silu %%zz\n"
                    "%%bb = mul %%ct, %%tt\noutput %%tt = %%tt\n",
                    d.type, (int)(d.kn ? d.k : d.n), (int)(d.kn ? d.n : d.k), d.kn ? " {kn=1}" : "");
    draw_gradients(&t, &r, &d);
    char *text = strdup(text_str(&t));
    text_free(&t);
    return text;
}

/* ---- What they compute ---- */

/* The largest difference of an output, over its largest element. */
static double difference(const graph *g, void **want, void **got)
{
    double worst = 0;
    for (int i = 0; i < g->outputs; i++) {
        const double *a = want[g->leaves + i], *b = got[g->leaves + i];
        int64_t n = type_elements(&g->node[g->output[i].value].type);
        double most = 1e-300, d = 0;
        for (int64_t k = 0; k < n; k++) {
            most = fmax(most, fabs(a[k]));
            d = isfinite(a[k]) && isfinite(b[k]) ? fmax(d, fabs(a[k] - b[k])) : INFINITY;
        }
        worst = fmax(worst, d / most);
    }
    return worst;
}

static void compare(uint64_t seed, const char *text, struct rewrite_options opt, int fired[ARRAY_SIZE(own)])
{
    struct rewrite_log log = {0};
    graph *g = graph_parse(text);
    ck_assert_msg(g != NULL, "%s\n%s", coda_error(), text);
    graph *r = rewrite(g, &opt, &log);
    ck_assert_msg(r != NULL, "%s\n%s", coda_error(), text);
    void **want = random_args(g, seed, true), **got = random_args(r, seed, true);
    ck_assert_int_eq(graph_evaluate(g, want), CODA_OK);
    /* The leaves of one, the results of the other. */
    void **same = malloc(sizeof *same * (size_t)(g->leaves + g->outputs));
    ck_assert_int_eq(r->leaves, g->leaves);
    memcpy(same, want, sizeof *same * (size_t)g->leaves);
    memcpy(same + g->leaves, got + g->leaves, sizeof *same * (size_t)g->outputs);
    ck_assert_int_eq(graph_evaluate(r, same), CODA_OK);
    free(same);
    double d = difference(g, want, got);
    ck_assert_msg(d <= 1e-12, "seed %llu: outputs differ by %g of their largest element:\n%s",
                  (unsigned long long)seed, d, text);
    for (int i = 0; i < ARRAY_SIZE(own) && fired; i++) fired[i] += rules_fired(&log, own[i]) > 0;
    random_args_free(g, want);
    random_args_free(r, got);
    graph_free(g);
    graph_free(r);
    rewrite_log_free(&log);
}

START_TEST(gradients_keep_their_meaning)
{
    int fired[ARRAY_SIZE(own)] = {0}, graphs = 4 * scaled(500);
    struct random r = {random_seed()};
    for (int i = 0; i < graphs; i++) {
        uint64_t seed = random_next(&r);
        char *text = draw(seed);
        compare(seed, text, i % 4 == 3 ? FOLD(COPY) : FOLD(NONE), fired);
        free(text);
    }
    for (int i = 0; i < ARRAY_SIZE(own) && graphs >= 100; i++)
        ck_assert_msg(fired[i] >= graphs / 80, "%s fires in %d of %d graphs", own[i], fired[i], graphs);
}
END_TEST

/* ---- Any two of them end ---- */

static const struct {
    const char *name;
    rewrite_pass *run;
    enum pass_when when;
} pass[] = {
#define PASS(name, when) {#name, name, PASS_##when},
#include "passes.def"
#undef PASS
};
enum { MOST_TURNS = 40 };

static graph *apply(int i, graph *g, struct rewrite_log *log)
{
    graph *next = pass[i].run(g, &FOLD(COPY), log);
    ck_assert_msg(next != NULL, "%s: %s", pass[i].name, coda_error());
    if (next != g) graph_free(g);
    return next;
}

/* Both in turn until neither finds anything. */
static void expect_end(const graph *lowered, int a, int b)
{
    struct rewrite_log log = {0};
    graph *g = graph_copy(lowered, "test");
    int turns = 0;
    for (int before = -1; before != log.events; turns++) {
        before = log.events;
        g = apply(b, apply(a, g, &log), &log);
        ck_assert_msg(turns < MOST_TURNS, "%s and %s do not end", pass[a].name, pass[b].name);
    }
    ck_assert_int_eq(graph_verify(g), CODA_OK);
    graph_free(g);
    rewrite_log_free(&log);
}

START_TEST(any_two_end)
{
    struct random r = {random_seed() + 1};
    for (int i = 0; i < scaled(40); i++) {
        char *text = draw(random_next(&r));
        graph *g = graph_parse(text);
        for (int a = 0; a < ARRAY_SIZE(pass); a++)
            for (int b = 0; b < ARRAY_SIZE(pass); b++)
                if (pass[a].when != PASS_LOWER && pass[b].when != PASS_LOWER) expect_end(g, a, b);
        graph_free(g);
        free(text);
    }
}
END_TEST

/* What has been rewritten has no match left, and its text is a fixed point. */
START_TEST(gradients_are_left_alone)
{
    struct random s = {random_seed() + 2};
    for (int i = 0; i < scaled(200); i++) {
        struct rewrite_log log = {0};
        struct text once = {0}, twice = {0};
        char *text = draw(random_next(&s));
        graph *g = graph_parse(text), *r = rewrite(g, &FOLD(NONE), NULL), *q = rewrite(r, &FOLD(NONE), &log);
        ck_assert_msg(log.events == 0, "%s fires again on\n%s", log.events ? log.event[0].rule : "", text);
        graph_print(r, &once);
        graph *again = graph_parse(text_str(&once));
        ck_assert_msg(again != NULL, "%s", coda_error());
        graph_print(again, &twice);
        ck_assert_str_eq(text_str(&once), text_str(&twice));
        text_free(&once), text_free(&twice);
        graph_free(g), graph_free(r), graph_free(q), graph_free(again);
        rewrite_log_free(&log);
        free(text);
    }
}
END_TEST

TESTS(gradient_rules, ONE(dots_of_rows), ONE(dots_of_turns), ONE(sums_of_parts), ONE(scales_of_parts),
      ONE(factors_of_weights), ONE(sums_of_columns), ONE(factors_that_meet), ONE(rows_do_not_matter),
      ONE(gradients_keep_their_meaning), ONE(any_two_end), ONE(gradients_are_left_alone));
