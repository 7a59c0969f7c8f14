/* test_short_columns.c -- columns of a few rows, folded in registers, and states that are such columns, which
 * the program that reads them shifts and writes. And where that must not be. On the CPU device. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */

#include "../library/check_plan.h"

#define WINDOW "%s = state f32[6,4,24]\n%x = input f32[6,24]\n%w = weight f32[4,24]\n"
#define SHIFTED                                                                                              \
    "%o = slice %s {axis=1,start=1,stop=4,step=1}\n%r = reshape %x {d0=6,d1=1,d2=24,rank=3}\n"               \
    "%c = concat %o, %r {axis=1}\n%s1 = assign %s, %c\n"
#define SHIFT WINDOW SHIFTED
#define FOLD "%m = mul %s1, %w\n%f = sum %m {columns=1}\noutput %f = %f\n"

static const struct launch_case graphs[] = {
    {"a state's window, shifted", SHIFT FOLD, 1},
    {"... of one sequence",
     "%s = state f32[1,4,24]\n%x = input f32[1,24]\n%w = weight f32[4,24]\n"
     "%o = slice %s {axis=1,start=1,stop=4,step=1}\n%r = reshape %x {d0=1,d1=1,d2=24,rank=3}\n"
     "%c = concat %o, %r {axis=1}\n%s1 = assign %s, %c\n%m = mul %s1, %w\n%f = sum %m {columns=1}\n"
     "%g = reshape %f {d0=1,d1=24,rank=2}\n%y = silu %g\noutput %y = %y\n",
     1},
    {"... whose sum more is made of",
     SHIFT
     "%m = mul %s1, %w\n%f = sum %m {columns=1}\n%b = input f32[24]\n%g = reshape %f {d0=6,d1=24,rank=2}\n"
     "%h = add %g, %b\n%y = silu %h\n%n = rms_norm %y\noutput %y = %y\noutput %n = %n\n",
     1},
    {"... which is read as it was, too, in other programs",
     WINDOW "%a = max %s {columns=1}\n%t = tanh %s\n" SHIFTED FOLD "output %a = %a\noutput %t = %t\n", -1},
    {"... and as it is from then on", SHIFT FOLD "%t = tanh %s1\noutput %t = %t\n", 2},
    {"... of which the parts are wanted, too", SHIFT FOLD "%t = tanh %c\noutput %t = %t\n", -1},
    {"one whose new row is the last of what it was",
     "%s = state f32[5,24]\n%o = slice %s {axis=0,start=0,stop=4,step=1}\n"
     "%l = slice %s {axis=0,start=4,stop=5,step=1}\n%c = concat %l, %o {axis=0}\n%s1 = assign %s, %c\n"
     "%f = max %s1 {columns=1}\noutput %f = %f\n",
     1},
    {"one whose new row is made of a statistic of it",
     "%s = state f32[6,4,24]\n%a = mean %s {columns=1}\n%o = slice %s {axis=1,start=1,stop=4,step=1}\n"
     "%c = concat %o, %a {axis=1}\n%s1 = assign %s, %c\n%f = sum %s1 {columns=1}\noutput %f = %f\n",
     -1},
    {"one that a product's epilogue reads beside the sum",
     WINDOW
     "%l = slice %s {axis=1,start=3,stop=4,step=1}\n%k = reshape %l {d0=6,d1=24,rank=2}\n"
     "%v = weight f32[24,24]\n%p = matmul %x, %v\n%q = add %p, %k\n" SHIFTED
     "%m = mul %s1, %w\n%f = sum %m {columns=1}\n%g = reshape %f {d0=6,d1=24,rank=2}\n%z = mul %q, %g\n"
     "output %z = %z\n",
     -1},
    {"one that a product reads, whose result the sum is of",
     SHIFT "%v = weight f32[24,24]\n%p = matmul %s1, %v\n%m = mul %s1, %p\n%f = sum %m {columns=1}\n"
           "output %f = %f\n",
     -1},
    {"... some columns of it",
     SHIFT "%v = weight f32[48,24]\n%p = matmul %s1, %v\n%q = slice %p {axis=2,start=3,stop=27,step=1}\n"
           "%m = mul %s1, %q\n%f = sum %m {columns=1}\noutput %f = %f\n",
     -1},
    {"a sum of columns of three rows, and what follows",
     "%x = input f32[7,3,40]\n%y = input f32[7,3,40]\n%w = input f32[7,1,40]\n%a = mul %x, %y\n%b = add %a, "
     "%w\n"
     "%f = mean %b {columns=1}\n%t = tanh %f\noutput %t = %t\n",
     1},
    {"... of numbers of rows, too",
     "%x = input f32[7,3,40]\n%y = input f32[7,3,1]\n%a = mul %x, %y\n%f = sum %a {columns=1}\noutput %f = "
     "%f\n",
     1},
    {"... of a tensor that another program walks",
     "%x = input f32[7,3,40]\n%y = softmax %x\n%f = sum %x {columns=1}\noutput %f = %f\noutput %y = %y\n", 2},
    {"... of a concat",
     "%x = input f32[7,3,40]\n%y = input f32[7,2,40]\n%t = tanh %y\n%c = concat %x, %t {axis=1}\n"
     "%f = sum %c {columns=1}\noutput %f = %f\n",
     1},
    {"... of 17 rows", "%x = input f32[17,40]\n%t = tanh %x\n%f = sum %t {columns=1}\noutput %f = %f\n", 2},
    {"... of 16", "%x = input f32[16,40]\n%t = tanh %x\n%f = sum %t {columns=1}\noutput %f = %f\n", 1},
    {"... in columns of one",
     "%x = input f32[5,3,1]\n%t = tanh %x\n%f = sum %t {columns=1}\noutput %f = %f\n", -1},
    {"... of a matrix that lies across",
     "%x = input f32[6,40] stride=[1,6]\n%t = tanh %x\n%f = max %t {columns=1}\noutput %f = %f\n", 1},
    {"... with no column", "%x = input f32[6,0]\n%t = tanh %x\n%f = max %t {columns=1}\noutput %f = %f\n",
     -1},
};

START_TEST(columns_of_few_rows) { plan_check_case(&graphs[_i]); }
END_TEST

TESTS(short_columns, EACH(columns_of_few_rows, ARRAY_SIZE(graphs)));
