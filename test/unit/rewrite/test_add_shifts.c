/* test_add_shifts.c -- a bias that a norm leaves behind a product, and the product's own, are one vector. */
#include "check_rules.h" /* before check.h, which has a macro called fail */

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>

#define NORM "mean m2 rsqrt_mean cast mul sum "
#define REST "mul sum reshape mul matmul sub mul "

/* A norm, its product, and the sum of that and %o. */
static void expect(const char *o, const char *sum, coda_fold fold, const char *rule, const char *want)
{
    char text[512];
    snprintf(
        text, sizeof text,
        "%%x = input bf16[6,64]\n%%g = weight bf16[64]\n%%b = weight bf16[64]\n%%w = weight bf16[4,64]\n"
        "%%o = %s\n%%n = layer_norm %%x, %%g, %%b {eps=1e-5}\n%%c = matmul %%n, %%w\n%s\noutput %%y = %%y",
        o, sum);
    rules_expect(text, (struct rewrite_options){.fuse = true, .fold = fold}, rule, want);
}

START_TEST(adds_constants)
{
    const char *sum = "%y = add %c, %o", *bias = "weight bf16[4]";
    expect(bias, sum, CODA_FOLD_COPY, "add_shifts", NORM REST "reshape cast add reshape add");
    expect("weight f32[4]", sum, CODA_FOLD_COPY, "add_shifts", NORM REST "reshape add reshape add");
    expect(bias, sum, CODA_FOLD_NONE, "-add_shifts", NULL);
}
END_TEST

START_TEST(adds_what_is_no_sum_of_rows)
{
    rules_expect("%x = input bf16[6,64]\n%w = weight bf16[4,64]\n%o = weight f32[4]\n%p = weight bf16[4]\n"
                 "%c = matmul %x, %w\n%d = add %c, %o\n%y = add %d, %p\noutput %y = %y",
                 FOLD(COPY), "add_shifts", "matmul cast add add");
}
END_TEST

/* What is no constant, differs from row to row or is subtracted; and a sum that others read. */
START_TEST(leaves_others)
{
    const char *sum = "%y = add %c, %o", *left = NORM "reshape " REST "add add", *bias = "weight bf16[4]";
    expect("input bf16[4]", sum, CODA_FOLD_COPY, "-add_shifts", left);
    expect("weight bf16[6,4]", sum, CODA_FOLD_COPY, "-add_shifts", left);
    expect(bias, "%y = sub %c, %o", CODA_FOLD_COPY, "-add_shifts", NORM "reshape " REST "add sub");
    expect(bias, "%z = add %c, %o\n%y = mul %z, %c", CODA_FOLD_COPY, "-add_shifts",
           NORM "reshape " REST "add add mul");
}
END_TEST

/* 1e5 behind a sum of f16, in f32: added before its cast, it would be infinite in f16. */
START_TEST(keeps_f32)
{
    rules_expect("%x = input f16[6,64]\n%w = weight f16[4,64]\n%a = weight f32[4]\n%b = weight f32[4]\n"
                 "%c = matmul %x, %w\n%d = add %c, %a\n%e = cast %d {to=f32}\n%y = add %e, %b\n"
                 "output %y = %y",
                 FOLD(COPY), "-add_shifts", "matmul add cast add");
}
END_TEST

TESTS(add_shifts, ONE(adds_constants), ONE(adds_what_is_no_sum_of_rows), ONE(leaves_others), ONE(keeps_f32));
