/* test_lines.c -- programs with a few numbers each become one launch, where no state and no third program
 * keeps them apart; what they compute is what it was. On the CPU device. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <string.h>

#include "../library/check_plan.h"
#include "util_lines.h"
#include "util_scale.h"

/* ---- Which become one ---- */

#define STEPS "%one = constant {to=i32, value=1}\n%p = state i32[4]\n%l = state i32[4,1]\n"

static const struct {
    const char *text;
    int launches;
} lines[] = {
    /* two states that nothing connects, in shapes of their own */
    {STEPS "%a = add %p, %one\n%b = cast %a {to=i32}\n%p1 = assign %p, %b\n%c = add %l, %one\n"
           "%d = cast %c {to=i32}\n%l1 = assign %l, %d\n",
     1},
    /* one counts on by the other, as it was */
    {STEPS "%f = reshape %l {d0=4, rank=1}\n%a = add %p, %f\n%b = cast %a {to=i32}\n%p1 = assign %p, %b\n"
           "%c = add %l, %one\n%d = cast %c {to=i32}\n%l1 = assign %l, %d\n",
     1},
    /* ... and as it is from then on: a thread has what it stores */
    {STEPS "%c = add %l, %one\n%d = cast %c {to=i32}\n%l1 = assign %l, %d\n%f = reshape %l1 {d0=4, rank=1}\n"
           "%a = add %p, %f\n%b = cast %a {to=i32}\n%p1 = assign %p, %b\n",
     1},
    /* a table's rows, found by what is counted here, and rows of a state by what is found */
    {STEPS
     "%t = input i32[9,1]\n%k = state i32[20,1]\n%a = add %p, %one\n%b = cast %a {to=i32}\n"
     "%e = embedding %t, %b\n%s = reshape %e {d0=4, rank=1}\n%k1 = append %k, %l, %s\n%p1 = assign %p, %s\n",
     1},
    /* rows of the state itself, which another thread may have written */
    {STEPS "%i = input i32[4]\n%e = embedding %l, %i\n%l1 = assign %l, %e\n", 2},
    {STEPS "%i = input i32[4]\n%e = embedding %l, %i\n%t = cast %e {to=f32}\n%c = add %l, %one\n"
           "%d = cast %c {to=i32}\n%l1 = assign %l, %d\noutput %t = %t\n",
     2},
    /* rows of what is computed, and a scale that is: both are looked up in memory */
    {"%x = input f32[4,1]\n%i = input i32[4]\n%t = tanh %x\n%e = embedding %t, %i\n%f = tanh %e\n"
     "output %f = %f\n",
     2},
    {"%k = state f8e4m3[6,1]\n%r = input f32[1,1]\n%i = input i32[1]\n%x = input f32[1]\n%s = sigmoid %x\n"
     "%t = tanh %r\n%k1 = append %k, %t, %i, %s\n",
     2},
    /* a part of a state, as it was */
    {STEPS "%z = slice %p {stop=1, step=1}\n%a = add %l, %z\n%b = cast %a {to=i32}\n%l1 = assign %l, %b\n"
           "%c = add %p, %one\n%d = cast %c {to=i32}\n%p1 = assign %p, %d\n",
     2},
    /* rows of the cache, before it is appended to, and after */
    {STEPS "%k = state i32[20,1]\n%i = input i32[4]\n%e = embedding %k, %p\n%k1 = append %k, %l, %i\n"
           "%f = embedding %k1, %p\noutput %e = %e\noutput %f = %f\n",
     3},
    /* a state that is written twice */
    {STEPS "%a = add %p, %one\n%b = cast %a {to=i32}\n%p1 = assign %p, %b\n%c = add %p1, %one\n"
           "%d = cast %c {to=i32}\n%p2 = assign %p1, %d\n",
     2},
    /* a program between: it reads the first one's sum, and the last one reads its own */
    {STEPS "%x = input f32[4,64]\n%c = add %l, %one\n%y = mul %x, %c\n%s = sum %y\n%t = add %s, %l\n"
           "output %t = %t\noutput %c = %c\n",
     2},
    /* ... but what does not wait for it is computed beside the last one */
    {STEPS
     "%x = input f32[4,64]\n%s = sum %x\n%i = cast %s {to=i32}\n%l1 = assign %l, %i\n%a = add %p, %one\n"
     "%b = cast %a {to=i32}\n%p1 = assign %p, %b\n",
     2},
    /* a statistic in parts, which is finished where it is counted with; and of columns, which only
       programs of their own kind finish: these become one */
    {"%x = input bf16[4,64]\n%w = weight bf16[256,64]\n%l = state i32[4]\n%y = matmul %x, %w\n"
     "%s = sum_sq %y\n%r = rsqrt_mean %s {inv_n=0.25, eps=0.25}\n%i = cast %r {to=i32}\n"
     "%j = reshape %i {d0=4, rank=1}\n%l1 = assign %l, %j\n",
     2},
    {"%x = input f32[256,64]\n%z = input f32[256,64]\n%a = sum %x {columns=1}\n%b = sum_sq %z {columns=1}\n"
     "%v = input f32[32,64]\n%e = max %v {columns=1}\n%f = tanh %e\noutput %f = %f\n"
     "%c = tanh %a\n%d = tanh %b\noutput %c = %c\noutput %d = %d\n",
     4},
    /* of other sizes, and of many elements */
    {STEPS "%x = input f32[5]\n%y = tanh %x\n%a = add %p, %one\noutput %y = %y\noutput %a = %a\n", 2},
    {"%x = input f32[4097]\n%z = input f32[4097]\n%y = tanh %x\n%a = silu %z\noutput %y = %y\noutput %a = "
     "%a\n",
     2},
    {"%x = input f32[4096]\n%z = input f32[4096]\n%y = tanh %x\n%a = silu %z\noutput %y = %y\noutput %a = "
     "%a\n",
     1},
};

START_TEST(small_programs_become_one)
{
    coda_graph *g = NULL;
    ck_assert_msg(coda_graph_parse(&g, lines[_i].text) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(plan_launches(g, 0), lines[_i].launches);
    plan_check_modes(g, 3);
    coda_graph_free(g);
}
END_TEST

/* ---- Random ones ---- */

START_TEST(random_lines_are_what_they_mean)
{
    int fewer = 0, n = scaled(150);
    uint64_t seed = random_seed();
    for (int i = 0; i < n; i++) {
        graph *g = random_lines(seed + (uint64_t)i);
        ck_assert_msg(coda_graph_status(g) == CODA_OK, "seed %llu: %s",
                      (unsigned long long)seed + (uint64_t)i, coda_error());
        int fused = plan_launches(g, 0), apart = plan_launches(g, CODA_NO_FUSION);
        ck_assert_int_le(fused, apart);
        fewer += 2 * fused <= apart;
        plan_check_modes(g, seed + (uint64_t)i);
        coda_graph_free(g);
    }
    ck_assert_int_ge(fewer, n / 3);
}
END_TEST

TESTS(lines, EACH(small_programs_become_one, ARRAY_SIZE(lines)), ONE(random_lines_are_what_they_mean));
