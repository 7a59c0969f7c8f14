/*
 * test_rules.c -- each rewrite fires on its pattern, and does not where it must not.
 *
 * A case is a graph as text and the operations that must be left, in order: what has been moved where
 * is then plain to see. `-` before a rule's name: it must not fire.
 */
#include "check_rules.h" /* before check.h, which has a macro called fail */

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAVES                                                                                               \
    "%x = input bf16[6,64]\n"                                                                                \
    "%g = weight bf16[64]\n"                                                                                 \
    "%b = weight bf16[64]\n"                                                                                 \
    "%w = weight bf16[4,64]\n"                                                                               \
    "%v = weight bf16[64,64]\n"

#define NORM "sum_sq rsqrt_mean "
#define LAYER "mean m2 rsqrt_mean "

/* ---- Lowering, which also happens without fusion ---- */

START_TEST(lowers)
{
    rules_expect(LEAVES "%n = rms_norm %x, %g {eps=1e-5}\noutput %y = %n", PLAIN, "lower_norm",
                 NORM "mul mul");
    rules_expect(LEAVES "%n = rms_norm %x {eps=1e-5}\noutput %y = %n", PLAIN, "lower_norm", NORM "mul");
    rules_expect(LEAVES "%n = layer_norm %x, %g, %b {eps=1e-5}\noutput %y = %n", PLAIN, "lower_norm",
                 "mean sub m2 rsqrt_mean mul mul add");
    rules_expect(LEAVES "%n = layer_norm %x, _, %b {eps=1e-5}\noutput %y = %n", PLAIN, "lower_norm",
                 "mean sub m2 rsqrt_mean mul add");
    rules_expect(LEAVES "%n = softmax %x\noutput %y = %n", PLAIN, "lower_softmax",
                 "exp_max exp_sum rcp exp_sub mul");
}
END_TEST

START_TEST(lowers_loss)
{
    const char *loss = "%x = input bf16[6,8]\n%t = input i32[6]\n"
                       "%l = cross_entropy %x, %t {ignore=-100, reduction=",
               *end = "}\noutput %y = %l";
    static const char *const want[] = {
        "reshape nll nll_loss reshape",
        "reshape nll nll_loss valid reshape sum reshape scale scale reshape sum reshape div",
        "reshape nll nll_loss reshape sum reshape"};
    for (int reduction = 0; reduction < 3; reduction++) {
        char text[256];
        snprintf(text, sizeof text, "%s%d%s", loss, reduction, end);
        rules_expect(text, PLAIN, "lower_loss", want[reduction]);
    }
}
END_TEST

/* Nodes of one lowered operation share its origin, and nothing else fires. */
START_TEST(lowering_keeps_origins)
{
    graph *r =
        rules_check(LEAVES "%n = rms_norm %x, %g {eps=1e-5}\n%1 = matmul %n, %w\n%2 = scale %1 {alpha=1}\n"
                           "output %y = %2",
                    PLAIN, "-tidy", NORM "mul mul matmul scale");
    for (int i = 5; i < 9; i++) ck_assert_int_eq(r->node[i].origin, r->node[5].origin);
    ck_assert_int_ne(r->node[9].origin, r->node[5].origin);
    graph_free(r);
}
END_TEST

/* ---- carry_row_scale ---- */

/* A norm of some columns of a product, before another one. */
#define OF_RANGE(columns, slice, end)                                                                        \
    "%x = input bf16[6,64]\n%v = weight bf16[" columns                                                       \
    ",64]\n%g = weight bf16[64]\n%w = weight bf16[4,64]\n"                                                   \
    "%a = matmul %x, %v\n%s = slice %a {" slice "}\n%n = rms_norm %s, %g {eps=1e-5}\n%c = matmul %n, %w\n"   \
    "output %y = %c\n" end

/* No epilogue writes the gained columns beside the others, and their statistic; but of a half it does. */
START_TEST(leaves_norms_of_ranges)
{
    const char *rows =
        "%x = input bf16[6,64]\n%v = weight bf16[64,64]\n%g = weight bf16[64]\n%a = matmul %x, "
        "%v\n%s = slice %a {axis=0,stop=3,step=1}\n%n = rms_norm %s, %g {eps=1e-5}\n"
        "%c = matmul %n, %v\noutput %y = %c\noutput %z = %a\n";
    rules_expect(OF_RANGE("72", "axis=1,stop=64,step=1", "output %z = %a"), FOLD(NONE), "-carry_row_scale",
                 NULL);
    rules_expect(OF_RANGE("192", "axis=1,start=64,stop=128,step=1", ""), FOLD(NONE), "-carry_row_scale",
                 NULL);
    rules_expect(OF_RANGE("128", "axis=1,start=1,stop=128,step=2", ""), FOLD(NONE), "-carry_row_scale", NULL);
    rules_expect(OF_RANGE("128", "axis=1,start=64,stop=128,step=1", ""), FOLD(NONE), "carry_row_scale", NULL);
    rules_expect(rows, FOLD(NONE), "-carry_row_scale", NULL);
}
END_TEST

/* What moves is a number for each row and reader: less than the row, if that is not of few columns. */
START_TEST(leaves_norms_of_few_columns)
{
    const char *three = "%x = input bf16[6,3]\n%w = weight bf16[4,3]\n%n = rms_norm %x {eps=1e-5}\n"
                        "%c = matmul %n, %w\noutput %y = %c\n",
               *four = "%x = input bf16[6,4]\n%w = weight bf16[4,4]\n%n = rms_norm %x {eps=1e-5}\n"
                       "%c = matmul %n, %w\noutput %y = %c\n",
               *twice = "%x = input bf16[6,4]\n%w = weight bf16[4,4]\n%n = rms_norm %x {eps=1e-5}\n"
                        "%c = matmul %n, %w\n%d = matmul %n, %w {kn=1}\noutput %y = %c\noutput %z = %d\n";
    rules_expect(three, FOLD(NONE), "-carry_row_scale", NULL);
    rules_expect(four, FOLD(NONE), "carry_row_scale", NULL);
    rules_expect(twice, FOLD(NONE), "-carry_row_scale", NULL);
}
END_TEST

START_TEST(carries_row_scale)
{
    /* no gain: x is read directly, and the matmul does not wait */
    graph *r = rules_check(LEAVES "%n = rms_norm %x {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c",
                           FOLD(NONE), "carry_row_scale", NORM "matmul mul");
    rules_expect_line(r, "matmul", "%7 = matmul %x, %w");
    rules_expect_line(r, "mul", "%8 = mul %7, %6");
    graph_free(r);
    /* with a gain, which the epilogue of the GEMM that writes x applies */
    r = rules_check(LEAVES "%a = matmul %x, %v\n%n = rms_norm %a, %g {eps=1e-5}\n%c = matmul %n, %w\n"
                           "output %y = %c",
                    FOLD(NONE), "carry_row_scale", "matmul " NORM "mul matmul mul");
    rules_expect_line(r, "mul", "%8 = mul %5, %g");
    graph_free(r);
    rules_expect(LEAVES "%c = scale %x {alpha=0.5}\n%d = matmul %c, %w\noutput %y = %d", FOLD(NONE),
                 "carry_row_scale", "matmul scale");
    rules_expect(LEAVES "%m = max %x\n%c = div %x, %m\n%d = matmul %c, %w\noutput %y = %d", FOLD(NONE),
                 "carry_row_scale", "max matmul div");
    rules_expect(LEAVES "%s = input bf16[1]\n%c = mul %x, %s\n%d = matmul %c, %v {kn=1}\n"
                        "output %y = %d",
                 FOLD(NONE), "carry_row_scale", "matmul mul");
    /* two matmuls, each with a weight for every batch */
    rules_expect(
        "%x = input f32[3,6,8]\n%w = weight f32[3,4,8]\n%n = rms_norm %x {eps=1e-5}\n%c = matmul %n, %w\n"
        "%d = matmul %n, %w\n%e = relu %d\noutput %y = %c\noutput %z = %e",
        FOLD(NONE), "carry_row_scale", NORM "matmul mul relu");
}
END_TEST

/* A residual has it computed again in its product's epilogue. */
START_TEST(carries_past_a_residual)
{
    rules_expect(LEAVES "%n = rms_norm %x {eps=1e-5}\n%c = matmul %n, %v\n%d = add %c, %n\n"
                        "output %y = %d",
                 FOLD(COPY), "carry_row_scale", NORM "mul matmul mul add");
}
END_TEST

START_TEST(keeps_row_scale)
{
    /* the normalised value is needed anyway: as an output, as the other operand, by another reader */
    rules_expect(LEAVES "%n = rms_norm %x {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c\n"
                        "output %z = %n",
                 FOLD(NONE), "-carry_row_scale", NORM "mul matmul");
    rules_expect(LEAVES "%n = rms_norm %x {eps=1e-5}\n%c = matmul %n, %n\noutput %y = %c", FOLD(NONE),
                 "-carry_row_scale", NORM "mul matmul");
    rules_expect(LEAVES "%n = rms_norm %x {eps=1e-5}\n%c = matmul %n, %v\n%d = mul %c, %n\n"
                        "output %y = %d",
                 FOLD(COPY), "-carry_row_scale", NORM "mul matmul mul");
    rules_expect(LEAVES "%n = rms_norm %x {eps=1e-5}\n%c = matmul %n, %v\n%d = add %c, %n\n"
                        "output %y = %d\noutput %z = %c",
                 FOLD(COPY), "-carry_row_scale", NORM "mul matmul add");
    rules_expect(LEAVES "%n = rms_norm %x {eps=1e-5}\n%c = matmul %v, %n\noutput %y = %c", FOLD(NONE),
                 "-carry_row_scale", NORM "mul matmul");
    /* with a gain of a leaf or of an attention one rows kernel does it all */
    rules_expect(LEAVES "%n = rms_norm %x, %g {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c", FOLD(NONE),
                 "-carry_row_scale", NORM "mul mul matmul");
    rules_expect(LEAVES "%a = attention %x, %x, %x\n%n = rms_norm %a, %g {eps=1e-5}\n%c = matmul %n, %w\n"
                        "output %y = %c",
                 FOLD(NONE), "-carry_row_scale", "attention " NORM "mul mul matmul");
    /* the producer's epilogue scales for free */
    rules_expect(LEAVES "%a = matmul %x, %v\n%c = scale %a {alpha=0.5}\n%d = matmul %c, %w\noutput %y = %d",
                 FOLD(NONE), "-carry_row_scale", "matmul scale matmul");
    /* f32 times bf16 is f32: the matmul would change its type */
    rules_expect(LEAVES "%m = max %x\n%c = mul %m, %x\n%d = matmul %c, %w\noutput %y = %d", FOLD(NONE),
                 "-carry_row_scale", NULL);
    /* LayerNorm: its mean must be taken off first, so nothing is gained */
    rules_expect(LEAVES "%n = layer_norm %x {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c", FOLD(NONE),
                 "-carry_row_scale", "mean sub m2 rsqrt_mean mul matmul");
}
END_TEST

/* ---- Folding ---- */

START_TEST(carries_col_scale)
{
    const char *text = LEAVES "%n = rms_norm %x, %g {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c";
    graph *r = rules_check(text, FOLD(COPY), "carry_col_scale", NORM "mul matmul mul");
    rules_expect_line(r, "mul", "%7 = mul %w, %g");
    rules_expect_line(r, "matmul", "%8 = matmul %x, %7");
    graph_free(r);
    rules_expect(text, FOLD(IN_PLACE), "carry_col_scale", NORM "mul matmul mul");
    rules_expect(text, FOLD(NONE), "-carry_col_scale", NULL);
    r = rules_check(LEAVES "%c = mul %x, %g\n%d = matmul %c, %v {kn=1}\noutput %y = %d", FOLD(COPY),
                    "carry_col_scale", "reshape mul matmul");
    rules_expect_line(r, "reshape", "%5 = reshape %g {d0=64, d1=1, rank=2}");
    graph_free(r);
    /* not constant: the weight, the gain */
    rules_expect(LEAVES "%i = input bf16[4,64]\n%c = mul %x, %g\n%d = matmul %c, %i\noutput %y = %d",
                 FOLD(COPY), "-carry_col_scale", "mul matmul");
    rules_expect(LEAVES "%i = input bf16[64]\n%c = mul %x, %i\n%d = matmul %c, %w\noutput %y = %d",
                 FOLD(COPY), "-carry_col_scale", "mul matmul");
    /* one weight of two is not: then the gained value is written, and neither folds */
    rules_expect(LEAVES "%i = input bf16[4,64]\n%c = mul %x, %g\n%d = matmul %c, %i\n%e = matmul %c, %w\n"
                        "output %y = %d\noutput %z = %e",
                 FOLD(COPY), "-carry_col_scale", "mul matmul matmul");
    /* needed by others, or free in an epilogue */
    rules_expect(LEAVES "%c = mul %x, %g\n%d = matmul %c, %w\noutput %y = %d\noutput %z = %c", FOLD(COPY),
                 "-carry_col_scale", "mul matmul");
    rules_expect(LEAVES "%a = matmul %x, %v\n%c = mul %a, %g\n%d = matmul %c, %w\noutput %y = %d", FOLD(COPY),
                 "-carry_col_scale", "matmul mul matmul");
}
END_TEST

/* LayerNorm deferred: sig (x W' - s mu) + W b, with all of the weights' side constant. */
START_TEST(carries_shifts)
{
    const char *text = LEAVES "%n = layer_norm %x, %g, %b {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c";
    graph *r = rules_check(text, FOLD(COPY), "carry_row_shift",
                           LAYER "cast mul sum reshape mul sum reshape mul matmul sub mul add");
    rules_expect_line(r, "matmul", "%16 = matmul %x, %12");
    for (int i = 0; i < r->nodes; i++) /* the vectors over N are f32 */
        if (r->node[i].op == OP_RESHAPE) ck_assert_int_eq(r->node[i].type.dtype, CODA_F32);
    graph_free(r);
    rules_expect(text, FOLD(COPY), "carry_col_shift", NULL);
    rules_expect(text, FOLD(NONE), "-carry_row_shift", "mean sub m2 rsqrt_mean mul mul add matmul");
    rules_expect(text, FOLD(NONE), "-carry_col_shift", NULL);
    rules_expect(LEAVES "%n = layer_norm %x {eps=1e-5}\n%c = matmul %n, %v {kn=1}\noutput %y = %c",
                 FOLD(COPY), "carry_row_shift", LAYER "transpose sum reshape mul matmul sub mul");
    /* a gain that cannot fold stays above the mean: nothing moves */
    rules_expect(LEAVES "%i = input bf16[64]\n%n = layer_norm %x, %i, %b {eps=1e-5}\n%c = matmul %n, %w\n"
                        "output %y = %c",
                 FOLD(COPY), "-carry_row_scale", "mean sub m2 rsqrt_mean mul mul add matmul");
    /* the weight is no constant */
    rules_expect(LEAVES
                 "%i = input bf16[4,64]\n%n = layer_norm %x {eps=1e-5}\n%c = matmul %n, %i\noutput %y = %c",
                 FOLD(COPY), "-carry_row_shift", "mean sub m2 rsqrt_mean mul matmul");
}
END_TEST

#define SAMPLES(kind)                                                                                        \
    "%x = input bf16[2,3,64]\n%w = weight bf16[4,1280]\n%v = weight bf16[1280,64]\n%a = " kind               \
    " bf16[2,1,1280]\n%s = " kind " bf16[2,1,1280]\n%h = matmul %x, %v\n%n = layer_norm %h {eps=1e-5}\n"
#define MODULATED "%m = mul %n, %a\n%t = add %m, %s\n"

/* A norm with vectors of each sample goes whole, or not at all. */
START_TEST(carries_samples)
{
    const char *y = "%c = matmul %t, %w\noutput %y = %c";
    char text[1024];
#define TEXT(...) (snprintf(text, sizeof text, "%s%s%s", __VA_ARGS__), text)
    graph *r = rules_check(TEXT(SAMPLES("weight"), MODULATED, y), FOLD(COPY), "carry_samples",
                           "matmul " LAYER "cast mul matmul mul sum reshape mul sub mul cast mul sum reshape "
                           "add");
    rules_expect_line(r, "sub", "%16 = sub %11, %15");
    for (int i = 0; i < r->nodes; i++) /* sums over K are f32, and of W as it is */
        if (r->node[i].op == OP_RESHAPE) ck_assert_int_eq(r->node[i].type.dtype, CODA_F32);
    graph_free(r);
    /* each run would have to compute the sums */
    rules_expect(TEXT(SAMPLES("weight"), MODULATED, y), FOLD(NONE), "-carry_samples", NULL);
    rules_expect(TEXT(SAMPLES("input"), MODULATED, y), FOLD(COPY), "-carry_samples",
                 "matmul mean sub m2 rsqrt_mean mul mul add matmul");
    /* a gain alone has none */
    const char *gain = "%r = rms_norm %h {eps=1e-5}\n%t = mul %a, %r\n";
    rules_expect(TEXT(SAMPLES("input"), gain, y), FOLD(NONE), "carry_samples",
                 "matmul " NORM "mul matmul mul");
    /* a shift alone has no gain to leave behind */
    rules_expect(TEXT(SAMPLES("weight"), "%t = sub %n, %s\n", y), FOLD(COPY), "carry_samples", NULL);
    rules_expect(TEXT(SAMPLES("weight"), "%t = sub %s, %n\n", y), FOLD(COPY), "-carry_samples", NULL);
    /* somebody else reads what is modulated; the value below is in memory already; the weight is none */
    rules_expect(TEXT(SAMPLES("weight"), MODULATED "output %t = %t\n", y), FOLD(COPY), "-carry_samples",
                 NULL);
    rules_expect(
        TEXT(SAMPLES("weight"),
             "%z = input bf16[2,3,1280]\n%n2 = layer_norm %z {eps=1e-5}\n%m = mul %n2, %a\n%t = add %m, %s\n",
             y),
        FOLD(COPY), "-carry_samples", NULL);
    rules_expect(
        TEXT(SAMPLES("weight"), "%i = input bf16[4,1280]\n" MODULATED, "%c = matmul %t, %i\noutput %y = %c"),
        FOLD(COPY), "-carry_samples", NULL);
#undef TEXT
}
END_TEST

START_TEST(carries_samples_but_not_in_f16)
{
    const char *text = "%x = input f16[2,3,64]\n%w = weight f16[4,1280]\n%v = weight f16[1280,64]\n"
                       "%a = weight f16[2,1,1280]\n%h = matmul %x, %v\n%n = rms_norm %h {eps=1e-5}\n"
                       "%m = mul %n, %a\n%c = matmul %m, %w\noutput %y = %c";
    rules_expect(text, FOLD(COPY), "-carry_samples", "matmul " NORM "mul mul matmul");
    rules_expect(text, FAST(COPY), "-carry_samples", "matmul " NORM "mul mul matmul");
}
END_TEST

START_TEST(carries_cast)
{
    const char *from = "%x = input f32[6,8]\n%v = weight f32[8,8]\n%w = weight bf16[4,8]\n";
    char text[512];
    snprintf(text, sizeof text,
             "%s%%a = matmul %%x, %%v\n%%n = rms_norm %%a {eps=1e-5}\n"
             "%%h = cast %%n {to=bf16}\n%%c = matmul %%h, %%w\noutput %%y = %%c",
             from);
    rules_expect(text, FOLD(NONE), "carry_cast", "matmul " NORM "cast matmul mul");
    snprintf(text, sizeof text,
             "%s%%n = rms_norm %%x {eps=1e-5}\n%%h = cast %%n {to=bf16}\n"
             "%%c = matmul %%h, %%w\noutput %%y = %%c",
             from);
    rules_expect(text, FOLD(NONE), "-carry_cast", NORM "mul cast matmul");
}
END_TEST

/* With CODA_NO_DEFERRAL a norm, whatever of it could move, is made ahead of its products. */
START_TEST(defers_nothing)
{
    const struct rewrite_options opt = {.fuse = true, .fold = CODA_FOLD_COPY, .no_deferral = true};
    static const char *const rule[] = {"-carry_col_shift", "-carry_col_scale", "-carry_row_shift",
                                       "-carry_row_scale"};
    char text[1024];
    for (int i = 0; i < ARRAY_SIZE(rule); i++)
        rules_expect(LEAVES "%n = layer_norm %x, %g, %b {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c", opt,
                     rule[i], "mean sub m2 rsqrt_mean mul mul add matmul");
    rules_expect(LEAVES "%n = rms_norm %x {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c", opt,
                 "-carry_row_scale", NORM "mul matmul");
    snprintf(text, sizeof text, "%s%s%%c = matmul %%t, %%w\noutput %%y = %%c", SAMPLES("weight"), MODULATED);
    rules_expect(text, opt, "-carry_samples", "matmul mean sub m2 rsqrt_mean mul mul add matmul");
    snprintf(text, sizeof text,
             "%%x = input f32[6,8]\n%%v = weight f32[8,8]\n%%w = weight bf16[4,8]\n"
             "%%a = matmul %%x, %%v\n%%n = rms_norm %%a {eps=1e-5}\n%%h = cast %%n {to=bf16}\n"
             "%%c = matmul %%h, %%w\noutput %%y = %%c");
    rules_expect(text, opt, "-carry_cast", "matmul " NORM "mul cast matmul");
}
END_TEST

/* ---- concat_rope ---- */

START_TEST(turns_parts_of_concats)
{
    static const struct {
        const char *text, *want; /* NULL: it stays */
    } cases[] = {{"%c = concat %a, %b {axis=0}\n%y = rope %c, %p {head_dim=16}\n",
                  "matmul matmul slice rope slice rope concat"},
                 {"%c = concat %a, %x {axis=0}\n%y = rope %c, %p6 {head_dim=16}\n",
                  "matmul slice rope slice rope concat"},
                 {"%c = concat %a, %b {axis=0}\n%y = rope %c, %s {head_dim=16,section0=4,section1=4}\n",
                  "matmul matmul slice rope slice rope concat"},
                 /* rows by their numbers; other readers; nobody computes a part; along columns; in turns */
                 {"%c = concat %a, %b {axis=0}\n%y = rope %c {head_dim=16}\n", NULL},
                 {"%c = concat %a, %b {axis=0}\n%t = rope %c, %p {head_dim=16}\n%y = add %t, %c\n", NULL},
                 {"%c = concat %x, %z {axis=0}\n%y = rope %c, %p {head_dim=16}\n", NULL},
                 {"%c = concat %a, %x {axis=1}\n%y = rope %c, %p3 {head_dim=16}\n", NULL},
                 {"%c = concat %a, %x {axis=0,interleave=1}\n%y = rope %c, %p6 {head_dim=16}\n", NULL}};
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[1024];
        snprintf(
            text, sizeof text,
            "%%x = input bf16[3,16]\n%%z = input bf16[5,16]\n%%w = weight bf16[16,16]\n%%p = input "
            "i32[8]\n%%p6 = input i32[6]\n%%p3 = input i32[3]\n%%s = input i32[8,2]\n%%a = matmul %%x, %%w\n"
            "%%b = matmul %%z, %%w\n%soutput %%y = %%y",
            cases[i].text);
        rules_expect(text, FOLD(NONE), cases[i].want ? "concat_rope" : "-concat_rope", cases[i].want);
    }
}
END_TEST

/* ---- narrow ---- */

/* 16-bit values stay what they are; what is fp32 by itself is not rounded. */
/* A scale of a small weight's rows, of all of it, or of its columns if the product has these. */
START_TEST(scales_of_small_weights_come_behind)
{
    static const struct {
        const char *text, *want; /* NULL: it stays */
    } cases[] = {
        {"%q = cast %c {to=bf16}\n%v = mul %q, %s\n%y = matmul %x, %v\n", "matmul reshape mul"},
        {"%q = cast %c {to=f32}\n%v = mul %q, %s\n%y = matmul %x, %v\n", "matmul reshape mul"},
        {"%q = cast %c {to=bf16}\n%v = div %q, %s\n%y = matmul %x, %v\n", "matmul reshape div"},
        {"%q = cast %c {to=bf16}\n%v = mul %q, %one\n%y = matmul %x, %v\n", "matmul mul"},
        {"%q = cast %c {to=bf16}\n%v = scale %q {alpha=2}\n%y = matmul %x, %v\n", "matmul scale"},
        {"%q = cast %c {to=bf16}\n%v = mul %q, %g\n%y = matmul %z, %v {kn=1}\n", "matmul mul"},
        {"%v = mul %u, %s\n%y = matmul %x, %v\n", "unpack matmul reshape mul"},
        {"%t = slice %u {axis=0, start=0, stop=2, step=1}\n%r = slice %s {axis=0, start=0, stop=2, step=1}\n"
         "%v = mul %t, %r\n%y = matmul %x, %v\n",
         "unpack slice slice matmul reshape mul"},
        {"%q = cast %c {to=bf16}\n%v = mul %q, %g\n%y = matmul %x, %v\n", NULL}, /* of K */
        {"%v = mul %w, %s\n%y = matmul %x, %v\n", NULL}};                        /* folds */
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[1024];
        snprintf(
            text, sizeof text,
            "%%x = input bf16[6,8]\n%%z = input bf16[6,4]\n%%c = weight i8[4,8]\n%%w = weight bf16[4,8]\n"
            "%%s = weight f32[4,1]\n%%g = weight f32[8]\n%%one = weight f32[1]\n%%p = weight u8[1056]\n"
            "%%u = unpack %%p {format=int4_g128_f16, d0=4, d1=8, rank=2, to=bf16}\n%soutput %%o = %%y",
            cases[i].text);
        rules_expect(text, FOLD(COPY), cases[i].want ? "carry_weight_scale" : "-carry_weight_scale",
                     cases[i].want);
    }
}
END_TEST

START_TEST(narrows)
{
    const char *from = "%x = input bf16[6,8]\n%f = input f32[6,8]\n%h = input f16[6,8]\n"
                       "%w = weight bf16[4,8]\n%x32 = cast %x {to=f32}\n%w32 = cast %w {to=f32}\n"
                       "%h32 = cast %h {to=f32}\n%c = weight f8e4m3[4,8]\n%c16 = cast %c {to=bf16}\n";
    static const struct {
        const char *line, *want, *printed;
    } to[] = {
        {"%y = matmul %x32, %w", "matmul", "%5 = matmul %x, %w {f32=1}  ; f32[6,4]"},
        {"%y = matmul %x, %w32", "matmul", "%5 = matmul %x, %w  ; bf16[6,4]"},
        {"%y = matmul %x32, %w32", "matmul", "%5 = matmul %x, %w {f32=1}  ; f32[6,4]"},
        {"%y = matmul %x, %c16", "matmul", "%5 = matmul %x, %c  ; bf16[6,4]"},
        {"%y = matmul %f, %w32", "cast matmul", "%6 = matmul %f, %5  ; f32[6,4]"},
        {"%y = matmul %h32, %w", "cast matmul", "%6 = matmul %5, %w  ; f32[6,4]"},
        {"%y = matmul %f, %w", "matmul", "%5 = matmul %f, %w  ; f32[6,4]"},
        {"%d = silu %x32\n%y = matmul %d, %w", "cast silu matmul", "%7 = matmul %6, %w  ; f32[6,4]"},
    };
    for (int i = 0; i < ARRAY_SIZE(to); i++) {
        char text[512];
        bool fires = !strcmp(to[i].want, "matmul") && !strstr(to[i].line, "%f");
        snprintf(text, sizeof text, "%s%s\noutput %%y = %%y", from, to[i].line);
        graph *r = rules_check(text, FOLD(NONE), fires ? "narrow" : "-narrow", to[i].want);
        rules_expect_line(r, "matmul", to[i].printed);
        graph_free(r);
    }
}
END_TEST

/* ---- What fp16 may hold ---- */

#define HALVES                                                                                               \
    "%x = input f16[6,64]\n%g = weight f16[64]\n%v = weight f16[64,64]\n%w = weight f16[4,64]\n%a = matmul " \
    "%x, "                                                                                                   \
    "%v\n"

START_TEST(keeps_f16_in_range)
{
    /* x g is not stored without the norm's factor, unless it may be */
    const char *gained = HALVES "%n = rms_norm %a, %g {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c";
    rules_expect(gained, FOLD(NONE), "-carry_row_scale", "matmul " NORM "mul mul matmul");
    rules_expect(gained, FAST(NONE), "carry_row_scale", "matmul " NORM "mul matmul mul");
    /* a product that is scaled later is f32 until then */
    graph *r =
        rules_check(HALVES "%n = rms_norm %a {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c\noutput %z = %a",
                    FOLD(NONE), "carry_row_scale", "matmul " NORM "matmul mul cast");
    rules_expect_line(r, "mul", "%8 = mul %7, %6");
    ck_assert_int_eq(r->node[7].type.dtype, CODA_F32);
    graph_free(r);
    /* the folded weight has rows of mean square 1, and the product their roots */
    r = rules_check(HALVES
                    "%n = rms_norm %a, %g {eps=1e-5}\n%c = matmul %n, %w\noutput %y = %c\noutput %z = %a",
                    FOLD(COPY), "carry_col_scale", NULL);
    rules_expect_line(r, "cast", "%7 = cast %w {to=f32}");
    int casts = 0;
    for (int i = 0; i < r->nodes; i++) casts += r->node[i].op == OP_CAST && r->node[i].type.dtype == CODA_F16;
    ck_assert_int_eq(casts, 2); /* the weight, the result */
    graph_free(r);
    rules_expect(gained, FAST(COPY), "carry_row_scale", NULL);
}
END_TEST

START_TEST(keeps_casts_in_range)
{
    const char *from = "%x = input f32[6,8]\n%v = weight f32[8,8]\n%a = matmul %x, %v\n";
    char text[512];
    snprintf(text, sizeof text,
             "%s%%w = weight f16[4,8]\n%%n = rms_norm %%a {eps=1e-5}\n%%h = cast %%n {to=f16}\n"
             "%%c = matmul %%h, %%w\noutput %%y = %%c",
             from);
    rules_expect(text, FOLD(NONE), "-carry_cast", "matmul " NORM "mul cast matmul");
    rules_expect(text, FAST(NONE), "carry_cast", "matmul " NORM "cast matmul mul");
    /* a cast to fewer bits does not go before a mean, but undoes one to more */
    snprintf(text, sizeof text,
             "%s%%w = weight bf16[4,8]\n%%n = layer_norm %%a {eps=1e-5}\n%%h = cast %%n {to=bf16}\n"
             "%%c = matmul %%h, %%w\noutput %%y = %%c",
             from);
    rules_expect(text, FOLD(COPY), "-carry_cast", "matmul mean sub m2 rsqrt_mean mul cast matmul");
    rules_expect(LEAVES "%a = matmul %x, %v\n%u = cast %a {to=f32}\n%n = layer_norm %u {eps=1e-5}\n"
                        "%h = cast %n {to=bf16}\n%c = matmul %h, %w\noutput %y = %c\noutput %z = %a",
                 FOLD(COPY), "carry_row_shift", NULL);
}
END_TEST

/* ---- merge_rope ---- */

#define ROPED                                                                                                \
    "%x = input bf16[5,8]\n%p = input i32[5]\n%w = weight bf16[16,8]\n%c = matmul %x, %w\n"                  \
    "%a = slice %c {axis=1,start=0,stop=8,step=1}\n%b = slice %c {axis=1,start=8,stop=12,step=1}\n"          \
    "%d = slice %c {axis=1,start=12,stop=16,step=1}\n%q = rope %a, %p {base=10000,head_dim=4}\n"
#define KEY(base, dim) "%k = rope %b, %p {base=" base ",head_dim=" dim "}\n"
#define ENDS "output %y = %q\noutput %z = %k\noutput %v = %d\n"

/* Heads of 12 columns, whose halves lie where no thread of a product has both; those of two batches. */
#define ODD_HEADS(weight, made)                                                                              \
    "%x = input bf16[5,8]\n%r = input bf16[5,64]\n%p = input i32[5]\n%w = weight bf16[" weight               \
    "]\n%c = " made "\n%a = slice %c {axis=1,start=0,stop=24,step=1}\n"                                      \
    "%b = slice %c {axis=1,start=24,stop=48,step=1}\n%q = rope %a, %p {head_dim=12,half=1}\n"                \
    "%k = rope %b, %p {head_dim=12,half=1}\n"
#define STORED "output %y = %q\noutput %z = %k\n"
#define MULTIPLIED                                                                                           \
    "%u = weight bf16[8,24]\n%m = matmul %q, %u\n%n = matmul %k, %u\noutput %y = %m\noutput %z = %n\n"
#define PLAIN_END "%d = slice %c {axis=1,start=48,stop=60,step=1}\noutput %v = %d\n"
#define BATCHES(positions)                                                                                   \
    "%x = input bf16[2,5,8]\n%p = input i32[" positions "]\n%w = weight bf16[48,8]\n%c = matmul %x, %w\n"    \
    "%a = slice %c {axis=2,start=0,stop=16,step=1}\n%b = slice %c {axis=2,start=16,stop=32,step=1}\n"        \
    "%d = slice %c {axis=2,start=32,stop=48,step=1}\n%q = rope %a, %p {head_dim=16,half=1}\n"                \
    "%k = rope %b, %p {head_dim=16,half=1}\noutput %y = %q\noutput %z = %k\noutput %v = %d\n"

/* What a product's epilogue does before it rotates. */
#define BEHIND(maps)                                                                                         \
    "%x = input bf16[5,8]\n%r = input bf16[5,48]\n%b = weight bf16[48]\n%s = weight f32[1,48]\n"             \
    "%w = weight bf16[48,8]\n%m = matmul %x, %w\n" maps                                                      \
    "%1 = slice %c {axis=1,start=0,stop=16,step=1}\n%2 = slice %c {axis=1,start=16,stop=32,step=1}\n"        \
    "%3 = slice %c {axis=1,start=32,stop=48,step=1}\n%q = rope %1 {head_dim=16,half=1}\n"                    \
    "%k = rope %2 {head_dim=16,half=1}\noutput %y = %q\noutput %z = %k\noutput %v = %3\n"

START_TEST(merges_rope_behind_maps_of_columns)
{
    graph_free(rules_check(BEHIND("%c = add %m, %b\n"), FOLD(NONE), "merge_rope",
                           "matmul add rope slice slice slice"));
    graph_free(rules_check(BEHIND("%t = mul %m, %s\n%c = add %b, %t\n"), FOLD(NONE), "merge_rope",
                           "matmul mul add rope slice slice slice"));
    graph_free(rules_check(BEHIND("%c = silu %m\n"), FOLD(NONE), "merge_rope",
                           "matmul silu rope slice slice slice"));
    /* another tensor, and a product that is stored, too */
    rules_expect(BEHIND("%c = add %m, %r\n"), FOLD(NONE), "-merge_rope", NULL);
    rules_expect(BEHIND("%c = add %m, %b\n") "output %u = %m\n", FOLD(NONE), "-merge_rope", NULL);
}
END_TEST

START_TEST(merges_rope)
{
    graph *r =
        rules_check(ROPED KEY("10000", "4") ENDS, FOLD(NONE), "merge_rope", "matmul rope slice slice slice");
    rules_expect_line(r, "rope", "%4 = rope %3, %p {base=0x1.388p+13, head_dim=4, rotary=4, heads=3}");
    graph_free(r);
    rules_expect(ROPED KEY("10000", "4") ENDS, PLAIN, "-merge_rope", NULL);
    /* other options, other positions, another reader of the projection or of a slice */
    rules_expect(ROPED KEY("500000", "4") ENDS, FOLD(NONE), "-merge_rope", NULL);
    rules_expect(ROPED KEY("10000", "2") ENDS, FOLD(NONE), "-merge_rope", NULL);
    rules_expect(ROPED "%k = rope %b {base=10000,head_dim=4}\n" ENDS, FOLD(NONE), "-merge_rope", NULL);
    rules_expect(ROPED KEY("10000", "4") ENDS "%r = relu %c\noutput %u = %r", FOLD(NONE), "-merge_rope",
                 NULL);
    rules_expect(ROPED KEY("10000", "4") ENDS "output %u = %c", FOLD(NONE), "-merge_rope", NULL);
    rules_expect(ROPED KEY("10000", "4") ENDS "%r = relu %a\noutput %u = %r", FOLD(NONE), "-merge_rope",
                 NULL);
    /* what is stored twice would be copied twice */
    rules_expect(ROPED KEY("10000", "4") ENDS "output %u = %q", FOLD(NONE), "-merge_rope", NULL);
    /* ranges of whole blocks, which an epilogue stores where they are wanted */
    rules_expect(
        "%x = input bf16[5,8]\n%w = weight bf16[192,8]\n%c = matmul %x, %w\n"
        "%a = slice %c {axis=1,start=0,stop=128,step=1}\n%b = slice %c {axis=1,start=128,stop=192,step=1}\n"
        "%q = rope %a {head_dim=64,half=1}\n%k = rope %b {head_dim=64,half=1}\n" STORED,
        FOLD(NONE), "-merge_rope", "matmul slice slice rope rope");
    /* frequencies of other axes */
    rules_expect(
        "%x = input bf16[5,8]\n%p = input i32[5,2]\n%w = weight bf16[8,8]\n%c = matmul %x, %w\n"
        "%a = slice %c {axis=1,start=0,stop=4,step=1}\n%b = slice %c {axis=1,start=4,stop=8,step=1}\n"
        "%q = rope %a, %p {section0=1,section1=1}\n%k = rope %b, %p {section0=1,section1=1}\n"
        "output %y = %q\noutput %z = %k",
        FOLD(NONE), "merge_rope", "matmul rope slice slice");
    rules_expect(
        "%x = input bf16[5,8]\n%p = input i32[5,2]\n%w = weight bf16[16,8]\n%c = matmul %x, %w\n"
        "%a = slice %c {axis=1,start=0,stop=8,step=1}\n%b = slice %c {axis=1,start=8,stop=16,step=1}\n"
        "%q = rope %a, %p {section0=1,section1=3}\n%k = rope %b, %p {section0=2,section1=2}\n"
        "output %y = %q\noutput %z = %k",
        FOLD(NONE), "-merge_rope", NULL);
    /* a rotated range after one that is not; one that is rotated twice */
    rules_expect(ROPED "%k = rope %d, %p {base=10000,head_dim=4}\noutput %y = %q\noutput %z = %k\n"
                       "output %v = %b\n",
                 FOLD(NONE), "-merge_rope", NULL);
    rules_expect(ROPED KEY("10000", "4") ENDS "%m = rope %a, %p {base=100,head_dim=4}\noutput %u = %m",
                 FOLD(NONE), "-merge_rope", NULL);
    rules_expect(ROPED KEY("10000", "4") ENDS "%e = slice %c {axis=1,start=4,stop=6,step=1}\noutput %u = %e",
                 FOLD(NONE), "-merge_rope", NULL);
    /* what no product rotates: a kernel of its own would move the last columns, too, if there are any */
    rules_expect(ODD_HEADS("60,8", "matmul %x, %w") MULTIPLIED PLAIN_END, FOLD(NONE), "-merge_rope", NULL);
    rules_expect(ODD_HEADS("48,8", "matmul %x, %w") MULTIPLIED, FOLD(NONE), "merge_rope",
                 "matmul rope slice slice matmul matmul");
    rules_expect(ODD_HEADS("48,8", "matmul %x, %w") STORED, FOLD(NONE), "-merge_rope", NULL);
    rules_expect(ODD_HEADS("60,8", "relu %r") STORED PLAIN_END, FOLD(NONE), "-merge_rope", NULL);
    rules_expect(BATCHES("2,5"), FOLD(NONE), "merge_rope", NULL);
    rules_expect(BATCHES("5"), FOLD(NONE), "-merge_rope", NULL);
    rules_expect(BATCHES("2,5] stride=[1,2"), FOLD(NONE), "-merge_rope", NULL);
    /* a range behind the rotated ones may have other readers */
    rules_expect(ROPED KEY("10000", "4") ENDS "%r = relu %b\noutput %u = %r", FOLD(NONE), "merge_rope",
                 "matmul rope slice slice slice rope relu");
    /* slices of a leaf are views already */
    rules_expect("%c = input bf16[5,8]\n%a = slice %c {axis=1,start=0,stop=4,step=1}\n"
                 "%q = rope %a {base=10}\n"
                 "output %y = %q",
                 FOLD(NONE), "-merge_rope", "slice rope");
}
END_TEST

/* Positions made after the slices, as a caller may well write it. */
START_TEST(merges_rope_with_late_positions)
{
    rules_expect(
        "%x = input bf16[5,8]\n%w = weight bf16[8,8]\n%c = matmul %x, %w\n"
        "%a = slice %c {axis=1,start=0,stop=4,step=1}\n%b = slice %c {axis=1,start=4,stop=8,step=1}\n"
        "%p = input i32[5]\n%q = rope %a, %p {base=10000}\noutput %y = %q\noutput %z = %b",
        FOLD(NONE), "merge_rope", "matmul rope slice slice");
}
END_TEST

/* ---- The exact ones ---- */

START_TEST(tidies)
{
    rules_expect(LEAVES "%c = scale %x {alpha=1}\n%d = relu %c\noutput %y = %d", FOLD(NONE), "tidy", "relu");
    rules_expect(LEAVES "%c = scale %x {alpha=2}\noutput %y = %c", FOLD(NONE), "-tidy", "scale");
    rules_expect(LEAVES "%c = cast %x {to=f32}\n%d = cast %c {to=bf16}\noutput %y = %d", FOLD(NONE), "tidy",
                 "");
    rules_expect(LEAVES "%c = cast %x {to=f32}\n%d = cast %c {to=f16}\noutput %y = %d", FOLD(NONE), "tidy",
                 "cast");
    rules_expect(LEAVES "%c = cast %x {to=f16}\n%d = cast %c {to=bf16}\noutput %y = %d", FOLD(NONE), "-tidy",
                 "cast cast");
    rules_expect(LEAVES
                 "%c = reshape %x {d0=384,rank=1}\n%d = reshape %c {d0=6,d1=64,rank=2}\noutput %y = %d",
                 FOLD(NONE), "tidy", "");
    rules_expect(LEAVES "%c = transpose %x {p0=1,p1=0}\n%d = transpose %c {p0=1,p1=0}\noutput %y = %d",
                 FOLD(NONE), "tidy", "");
    rules_expect(LEAVES "%c = slice %x {axis=1,start=0,stop=64,step=1}\noutput %y = %c", FOLD(NONE), "tidy",
                 "");
    graph *r = rules_check(LEAVES "%c = slice %x {axis=1,start=1,stop=8,step=2}\n"
                                  "%d = slice %c {axis=1,start=1,stop=4,step=2}\n"
                                  "output %y = %d",
                           FOLD(NONE), "tidy", "slice");
    rules_expect_line(r, "slice", "%5 = slice %x {axis=1, start=3, stop=8, step=4}");
    graph_free(r);
    rules_expect(LEAVES "%c = slice %x {axis=1,start=1,stop=8,step=2}\n"
                        "%d = slice %c {axis=0,start=1,stop=4,step=2}\n"
                        "output %y = %d",
                 FOLD(NONE), "-tidy", "slice slice");
}
END_TEST

START_TEST(shares)
{
    rules_expect(LEAVES "%c = relu %x\n%d = relu %x\n%e = add %c, %d\n"
                        "output %y = %e",
                 FOLD(NONE), "cse", "relu add");
    rules_expect(LEAVES "%c = scale %x {alpha=2}\n%d = scale %x {alpha=3}\n%e = add %c, %d\noutput %y = %e",
                 FOLD(NONE), "-cse", "scale scale add");
    rules_expect(LEAVES "%c = sub %x, %g\n%d = sub %g, %x\n%e = add %c, %d\noutput %y = %e", FOLD(NONE),
                 "-cse", "sub sub add");
    rules_expect(LEAVES "%c = matmul %x, %v\n%d = matmul %x, %v {kn=1}\n%e = add %c, %d\n"
                        "output %y = %e",
                 FOLD(NONE), "-cse", "matmul matmul add");
    /* the statistics of two norms with different gains */
    rules_expect(LEAVES "%c = rms_norm %x, %g {eps=1e-5}\n%d = rms_norm %x, %b {eps=1e-5}\noutput %y = %c\n"
                        "output %z = %d",
                 FOLD(NONE), "cse", NORM "mul mul mul");
}
END_TEST

START_TEST(drops_the_dead)
{
    graph *r = rules_check(LEAVES "%c = relu %x\n%d = tanh %c\noutput %y = %c", PLAIN, "dead", "relu");
    ck_assert_int_eq(r->nodes, 6); /* five leaves stay, read or not */
    graph_free(r);
}
END_TEST

/* ---- Whole blocks ---- */

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    ck_assert_msg(f != NULL, "%s: cannot be read", path);
    ck_assert_uint_lt(fread(text, 1, (1 << 16) - 1, f), (1 << 16) - 1);
    fclose(f);
    return text;
}

static void expect_block(const char *path, struct rewrite_options opt, const char *want)
{
    char *text = read_text(path);
    rules_expect(text, opt, NULL, want);
    free(text);
}

START_TEST(blocks)
{
    /* the first norm is of a leaf; the second's gain is written beside the residual stream */
    expect_block("examples/graphs/llama_small.coda", FOLD(NONE),
                 NORM "mul mul matmul rope slice slice slice attention matmul add " NORM
                      "mul matmul mul slice slice swiglu matmul add");
    expect_block("examples/graphs/llama_small.coda", FOLD(COPY),
                 NORM "mul matmul mul rope slice slice slice attention matmul add " NORM
                      "mul matmul mul slice slice swiglu matmul add");
    expect_block("examples/graphs/gpt2_small.coda", FOLD(NONE),
                 "mean sub m2 rsqrt_mean mul mul add matmul add slice slice slice attention "
                 "matmul add add "
                 "mean sub m2 rsqrt_mean mul mul add matmul add gelu_tanh matmul add add");
    expect_block("examples/graphs/gpt2_small.coda", FOLD(COPY),
                 LAYER "cast transpose mul sum reshape mul transpose sum reshape mul matmul "
                       "sub mul reshape cast add reshape "
                       "add slice slice slice attention matmul add add " LAYER
                       "cast transpose mul sum reshape mul transpose sum reshape mul matmul "
                       "sub mul reshape cast add reshape "
                       "add gelu_tanh matmul add add");
    /* post-norm: the normalised value is the residual stream, whose product computes it again */
    expect_block("examples/graphs/bert_small.coda", FOLD(NONE),
                 "matmul add slice slice slice attention matmul add add mean sub m2 rsqrt_mean "
                 "mul mul add "
                 "matmul add gelu_erf matmul add add mean sub m2 rsqrt_mean mul mul add");
    expect_block("examples/graphs/bert_small.coda", FOLD(COPY),
                 "matmul add slice slice slice attention matmul add add mean sub m2 rsqrt_mean "
                 "mul mul add "
                 "cast mul sum mul sum reshape mul matmul sub mul reshape cast add reshape add gelu_erf "
                 "matmul add add mean sub m2 rsqrt_mean mul mul add");
}
END_TEST

/* ---- Products of one input ---- */

#define GATE(a, b, mul)                                                                                      \
    "%x = input f32[4,8]\n%w = weight f32[6,8]\n%v = weight f32[6,8]\n%p = matmul %x, " a                    \
    "\n%q = matmul %x, " b "\n%s = silu %p\n%y = " mul "\noutput %y = %y\n"
#define QKV(type, columns)                                                                                   \
    "%x = input " type "[4,64]\n%a = weight " type "[64,64]\n%b = weight " type "[" columns ",64]\n"         \
    "%c = weight " type "[" columns ",64]\n%q = matmul %x, %a\n%k = matmul %x, %b\n%v = matmul %x, %c\n"

START_TEST(joins_products)
{
    rules_expect(GATE("%w", "%v", "mul %s, %q"), FOLD(NONE), "join_products",
                 "concat matmul slice slice silu mul");
    rules_expect(GATE("%w", "%v", "mul %q, %s"), FOLD(COPY), "join_products",
                 "concat matmul slice slice silu mul");
    rules_expect(QKV("f32", "32") "%o = attention %q, %k, %v {heads=2,kv_heads=1}\noutput %o = %o\n",
                 FOLD(NONE), "join_products", "concat matmul slice slice slice attention");
    /* a map of q is computed in its product's epilogue, of which all columns are whole blocks */
    rules_expect(
        QKV("f32", "32") "%r = silu %q\n%o = attention %r, %k, %v {heads=2,kv_heads=1}\noutput %o = %o\n",
        FOLD(NONE), "join_products", "matmul concat matmul slice slice silu attention");
    /* what it is folded into in place is a weight by itself; and one weight is read once */
    rules_expect(GATE("%w", "%v", "mul %s, %q"), FOLD(IN_PLACE), "-join_products", "matmul matmul silu mul");
    rules_expect(GATE("%w", "%w", "mul %s, %q"), FOLD(NONE), "-join_products", "matmul silu mul");
    /* others read the product, or nobody reads both */
    rules_expect(GATE("%w", "%v", "mul %s, %q") "output %q = %q\n", FOLD(NONE), "-join_products",
                 "matmul matmul silu mul");
    rules_expect(GATE("%w", "%v", "mul %s, %s") "output %q = %q\n", FOLD(NONE), "-join_products",
                 "matmul matmul silu mul");
    /* no columns of whole blocks of a tile */
    rules_expect(QKV("bf16", "32") "%o = attention %q, %k, %v {heads=2,kv_heads=1}\noutput %o = %o\n",
                 FOLD(NONE), "-join_products", "matmul matmul matmul attention");
}
END_TEST

/* ---- The runner ---- */

START_TEST(refuses_a_poisoned_graph)
{
    graph *g = graph_new();
    graph_poison(g, CODA_E_INVALID, "no good");
    ck_assert_ptr_null(rewrite(g, &FOLD(COPY), NULL));
    ck_assert_str_eq(coda_error(), "no good");
    graph_free(g);
}
END_TEST

/* Many layers are carried round by round; past the bound the graph is left as it is, and right. */
START_TEST(deep_stack)
{
    struct text t = {0};
    text_append(&t, "%x = input f32[2,8]\n%w = weight f32[4,8]\n%s0 = scale %x {alpha=0.5}\n");
    for (int i = 0; i < 200; i++) text_printf(&t, "%%s%d = scale %%s%d {alpha=0.5}\n", i + 1, i);
    text_append(&t, "%y = matmul %s200, %w\noutput %y = %y");
    graph *r = rules_check(text_str(&t), FOLD(COPY), "carry_row_scale", NULL);
    ck_assert_int_eq(r->nodes, 2 + 202);
    graph_free(r);
    text_free(&t);
}
END_TEST

TESTS(rules, ONE(lowers), ONE(lowers_loss), ONE(lowering_keeps_origins), ONE(carries_row_scale),
      ONE(leaves_norms_of_ranges), ONE(leaves_norms_of_few_columns), ONE(carries_past_a_residual),
      ONE(keeps_row_scale), ONE(carries_col_scale), ONE(carries_shifts), ONE(carries_samples),
      ONE(carries_samples_but_not_in_f16), ONE(defers_nothing), ONE(turns_parts_of_concats),
      ONE(carries_cast), ONE(keeps_f16_in_range), ONE(keeps_casts_in_range), ONE(merges_rope),
      ONE(merges_rope_behind_maps_of_columns), ONE(merges_rope_with_late_positions), ONE(tidies), ONE(shares),
      ONE(scales_of_small_weights_come_behind), ONE(narrows), ONE(drops_the_dead), ONE(blocks),
      ONE(joins_products), ONE(refuses_a_poisoned_graph), ONE(deep_stack));
