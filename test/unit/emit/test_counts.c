/* test_counts.c -- kernels count in 32 bits: a plan of more sequences, products or columns than these hold is
 * refused, or its kernel does not compile; none counts modulo 2^32. */
#include "executable.h"

#include <stdio.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* N in each is the number. */
static const char *const counted[] = {
    "%x = input bf16[N,1,4]\n%w = weight bf16[4,4]\n%y = conv1d %x, %w, _, _, _\n",
    "%x = input bf16[N,1,8]\n%a = weight f32[8]\n%b = input bf16[N,1,4]\n"
    "%y = scan %x, %x, %a, %b, %b, _, _, _, _, _\n",
    "%k = input bf16[N,1,8]\n%d = input f32[N,1,1]\n%y = delta %k, %k, %k, %d, %d, _, _ {heads=1}\n",
    "%x = input bf16[N,1,16]\n%w = input bf16[N,8,16]\n%y = matmul %x, %w\n",
    "%q = input bf16[N,1,8]\n%y = attention %q, %q, %q\n",
    "%x = input bf16[N,16]\n%w = weight bf16[16,16]\n%y = matmul %x, %w\n",
    "%x = input bf16[1,16]\n%w = weight bf16[N,16]\n%y = matmul %x, %w\n",
    "%x = input bf16[4,N]\n%w = weight bf16[8,N]\n%y = matmul %x, %w\n"};
static const char *const constant[] = {
    "%x = input bf16[2,N]\n%w = weight bf16[N,4]\n%y = conv1d %x, %w, _, _, _\n",
    "%x = input bf16[2,N]\n%a = weight f32[N]\n%b = input bf16[2,4]\n"
    "%y = scan %x, %x, %a, %b, %b, _, _, _, _, _\n"};

static coda_status plan(coda_plan **out, const char *formula, int64_t n)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct text t = {0};
    opt.device = CODA_DEVICE_NONE, opt.flags = CODA_PLAN_ONLY, opt.arch = "sm_90a";
    for (const char *c = formula; *c; c++) {
        if (*c == 'N') text_printf(&t, "%lld", (long long)n);
        else text_printf(&t, "%c", *c);
    }
    text_append(&t, "output %y = %y\n");
    graph *g = graph_parse(text_str(&t));
    ck_assert_msg(g, "%s%s", text_str(&t), coda_error());
    coda_status status = coda_compile(out, g, &opt);
    graph_free(g);
    text_free(&t);
    return status;
}

START_TEST(numbers_are_refused)
{
    static const int64_t many[] = {((int64_t)1 << 31) + 1, ((int64_t)1 << 32) + 1, ((int64_t)1 << 33) + 3};
    coda_plan *p = NULL;
    ck_assert_msg(!plan(&p, counted[_i], 100), "%s%s", counted[_i], coda_error());
    coda_plan_free(p);
    for (int i = 0; i < ARRAY_SIZE(many); i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)many[i]);
        coda_status status = plan(&p, counted[_i], many[i]);
        ck_assert_msg(status == CODA_E_UNSUPPORTED && strstr(coda_error(), number), "%s of %s: %d %s",
                      counted[_i], number, status, status ? coda_error() : "");
    }
}
END_TEST

START_TEST(constants_do_not_compile)
{
    coda_plan *p = NULL;
    coda_kernel_info k = CODA_KERNEL_INFO_INIT;
    for (int i = 0; i < 2; i++) {
        coda_status status = plan(&p, constant[_i], i ? ((int64_t)1 << 32) + 8 : 4096);
        if (i && status == CODA_E_UNSUPPORTED) return;
        ck_assert_msg(!status && !coda_plan_kernel(p, 0, &k), "%s%s", constant[_i], coda_error());
        ck_assert_msg(i == !!strstr(k.source, "static_assert"), "%s", k.source);
        coda_plan_free(p);
    }
}
END_TEST

TESTS(counts, EACH(numbers_are_refused, ARRAY_SIZE(counted)),
      EACH(constants_do_not_compile, ARRAY_SIZE(constant)));
