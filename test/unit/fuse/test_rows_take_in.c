/* test_rows_take_in.c -- maps that a program of rows computes ahead of their reader, or beside it, and where
 * it must not: what waits for them, states that are written over. On the CPU device, against fp64. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <string.h>

#include "../library/check_plan.h"

#define FOUR                                                                                                 \
    "%a = input f32[40,96]\n%b = input f32[40,96]\n%c = input f32[40,96]\n%d = input f32[40,96]\n"           \
    "%ab = mul %a, %b\n"
#define GIVEN                                                                                                \
    "%r = scalar f32\n%t1 = input f32[1]\n%one = constant {to=f32, value=1}\n%h1 = sub %one, %r\n"           \
    "%h2 = mul %h1, %t1\n%h3 = tanh %h2\n%h4 = add %h3, %one\n%h5 = rcp %h4\n%h6 = minimum %h5, %one\n"      \
    "%k = mul %h6, %r\n"
#define PARTS                                                                                                \
    "%a = input f32[40,96]\n%w = weight f32[96,96]\n%p = matmul %a, %w\n%s = sum_sq %p\n"                    \
    "%r = rsqrt_mean %s {inv_n=0.01, eps=0.01}\n%q = mul %p, %r\n"
#define LATER                                                                                                \
    "%a = input f32[40,96]\n%c = input f32[40,96]\n%w = weight f32[96,96]\n%m = mean %a\n%x = sub %a, %m\n"  \
    "%n = mul %x, %c\n%p = matmul %n, %w\n%q = softmax %p\n"
#define BATCH "%x = input f32[2,20,96]\n%n = softmax %x\n"
#define STATES "%m = state f32[40,96]\n%v = state f32[40,96]\n%g = input f32[40,96]\n"

static const struct launch_case graphs[] = {
    {"a map of other tensors, and what that is a map of",
     FOUR "%r = relu %d\n%cr = mul %c, %r\n%y = add %ab, %cr\noutput %y = %y\n", 1},
    {"one that others read too",
     FOUR "%cd = mul %c, %d\n%y = add %ab, %cd\n%t = transpose %cd {p0=1,p1=0}\n%w = weight f32[24,40]\n"
          "%z = matmul %t, %w\noutput %y = %y\noutput %z = %z\n",
     2},
    {"rows' values, of which each element takes one",
     FOUR "%h = input f32[40,1]\n%s = sqrt %h\n%u = abs %s\n%y = mul %ab, %u\noutput %y = %y\n", 1},
    {"... in two programs, from the caller's numbers",
     FOUR "%h = input f32[40,1]\n%s = tanh %h\n%u = mul %s, %h\n%y = mul %ab, %u\n%e = input f32[40,64]\n"
          "%z = mul %e, %u\noutput %y = %y\noutput %z = %z\n",
     2},
    {"... that is an output, too",
     FOUR "%h = input f32[40,1]\n%s = tanh %h\n%u = mul %s, %h\n%y = mul %ab, %u\n%e = input f32[40,64]\n"
          "%z = mul %e, %u\noutput %y = %y\noutput %z = %z\noutput %u = %u\n",
     2},
    {"a map beside another one of the same tensor", FOUR "%n = mul %a, %c\noutput %x = %ab\noutput %n = %n\n",
     1},
    {"... in the program of what comes later, which loads the same",
     FOUR "%w = weight f32[96,96]\n%p = matmul %c, %w\n%t = softmax %p\n%n = mul %a, %t\noutput %x = %ab\n"
          "output %n = %n\n",
     2},
    {"what the program waits for, through a product",
     FOUR "%cd = mul %c, %d\n%s = softmax %cd\n%w = weight f32[96,96]\n%p = matmul %s, %w\n%q = softmax %p\n"
          "%e = mul %ab, %q\n%y = add %e, %cd\noutput %y = %y\n",
     3},
    {"what comes ahead of the product that the reader waits for",
     FOUR "%cd = mul %c, %d\n%s = softmax %cd\n%w = weight f32[96,96]\n%p = matmul %s, %w\n%q = softmax %p\n"
          "%e = add %ab, %cd\n%y = mul %e, %q\noutput %y = %y\n",
     3},
    {"two states, of which each becomes what the other was",
     STATES
     "%mg = mul %m, %g\n%vg = mul %v, %g\n%z = add %mg, %vg\n%m1 = assign %m, %vg\n%v1 = assign %v, %mg\n"
     "output %z = %z\n",
     1},
    {"a state that is read in another order",
     STATES
     "%s = input f32[96,40]\n%x = scale %m {alpha=0.5}\n%y = add %x, %g\n%t = transpose %m {p0=1,p1=0}\n"
     "%z = mul %t, %s\n%m1 = assign %m, %y\noutput %z = %z\n",
     2},
    {"... by a map of what follows, once its writer has joined",
     "%m = state f32[40,40]\n%g = input f32[40,40]\n%s = input f32[40,40]\n%x = mul %g, %m\n"
     "%t = transpose %m {p0=1,p1=0}\n%r = mul %t, %s\n%m1 = assign %m, %x\n%y = add %x, %r\n"
     "output %y = %y\n",
     2},
    {"a state that is folded, and written over",
     STATES "%x = scale %m {alpha=0.5}\n%y = add %g, %x\n%s = sum %m\n%z = mul %v, %s\n%m1 = assign %m, %y\n"
            "output %z = %z\n",
     1},
    {"two states, one of which the other's value is made of",
     STATES "%x = scale %m {alpha=0.5}\n%y = add %g, %x\n%u = mul %y, %v\n%r = relu %v\n%z = sub %r, %y\n"
            "%m1 = assign %m, %z\n%v1 = assign %v, %u\n",
     1},
    {"what has been written, read again",
     STATES
     "%x = scale %m {alpha=0.5}\n%y = add %g, %x\n%m1 = assign %m, %y\n%z = mul %m1, %g\n%t = relu %v\n"
     "%u = add %z, %t\noutput %u = %u\n",
     1},
    {"... by a statistic, and what follows it",
     STATES
     "%x = scale %m {alpha=0.5}\n%y = add %g, %x\n%m1 = assign %m, %y\n%n = rms_norm %m1\n%s = sum %m1\n"
     "%z = mul %v, %s\noutput %n = %n\noutput %z = %z\n",
     1},
    {"... in another order",
     "%m = state f32[40,40]\n%g = input f32[40,40]\n%y = add %g, %m\n%m1 = assign %m, %y\n"
     "%t = transpose %m1 {p0=1,p1=0}\n%z = mul %t, %g\noutput %z = %z\n",
     2},
    {"a state that is wanted behind a statistic, as it was",
     STATES "%s = max %m\n%x = sub %m, %s\n%y = mul %m, %g\n%m1 = assign %m, %y\n%z = mul %x, %v\n"
            "%v1 = assign %v, %z\noutput %x = %x\n",
     1},
    {"a state's map that an output is, behind its writer's",
     STATES "%o = relu %m\n%x = tanh %g\n%m1 = assign %m, %x\n%y = mul %x, %o\noutput %y = %y\n", 1},
    {"what is stored for a program that the writer waits for",
     STATES "%w = weight f32[96,96]\n%x = mul %g, %v\n%h = relu %m\n%p = matmul %h, %w\n%q = mul %m, %p\n"
            "%y = add %x, %h\n%m1 = assign %m, %x\noutput %q = %q\noutput %y = %y\n",
     3},
    {"a turn of pairs beside a map of the same tensor",
     FOUR "%s = sum %ab\n%t = rope %b {base=100,head_dim=24,heads=3,half=1,inverse=1}\n%u = mul %t, %c\n"
          "output %s = %s\noutput %u = %u\n",
     1},
    {"one that a reader wants, by positions",
     FOUR "%i = input i32[40]\n%t = rope %c, %i {base=100,head_dim=32,heads=3}\n%y = add %ab, %t\noutput %y "
          "= %y\n",
     1},
    {"two turns",
     FOUR "%t = rope %a {base=100,head_dim=32,heads=3}\n%u = rope %b {base=100,head_dim=32,heads=3}\n"
          "%v = add %ab, %t\n%y = mul %v, %u\noutput %y = %y\n",
     2},
    {"a turn of what is computed",
     FOUR "%t = rope %ab {base=100,head_dim=32,heads=3}\n%y = add %t, %a\noutput %y = %y\n", 1},
    {"... by a norm, of halves of a head, that is wanted, too",
     FOUR
     "%g = weight f32[96]\n%n = rms_norm %ab, %g\n%i = input i32[40]\n"
     "%t = rope %n, %i {base=100,head_dim=24,rotary=16,heads=3,half=1}\noutput %n = %n\noutput %t = %t\n",
     1},
    {"... of three columns of a position, and of heads without pieces",
     FOUR "%n = layer_norm %ab\n%i = input i32[40,3]\n%f = input f32[3]\n"
          "%t = rope %n, %i, %f {head_dim=6,heads=15,section0=1,section1=1,section2=1}\noutput %t = %t\n",
     1},
    {"... by many maps",
     FOUR "%e = exp %ab\n%s = sigmoid %e\n%m = mul %s, %c\n%r = relu %m\n%n = add %r, %d\n%q = tanh %n\n"
          "%u = mul %q, %c\n%v = tanh %u\n%t = rope %v {base=100,head_dim=32,heads=3}\noutput %t = %t\n",
     2},
    {"... of a column's number",
     FOUR "%i = iota {n=96}\n%j = cast %i {to=f32}\n%k = scale %j {alpha=0.01}\n%x = mul %ab, %k\n"
          "%t = rope %x {base=100,head_dim=32,heads=3}\noutput %t = %t\n",
     2},
    {"... beside a fold of its columns",
     FOUR "%s = sum %ab {columns=1}\n%t = rope %ab {base=100,head_dim=32,heads=3,half=1}\noutput %s = %s\n"
          "output %t = %t\n",
     -1},
    {"... over a state that it reads",
     STATES "%n = rms_norm %m\n%t = rope %n {base=100,head_dim=32,heads=3,half=1}\n%m1 = assign %m, %t\n"
            "output %t = %t\n",
     2},
    {"a turn beside a fold of columns",
     FOUR "%s = sum %ab {columns=1}\n%t = rope %b {base=100,head_dim=32,heads=3}\noutput %s = %s\noutput %t "
          "= %t\n",
     3},
    {"rows and columns of one tensor",
     FOUR
     "%s = sum %ab\n%t = sum %ab {columns=1}\n%u = sub %ab, %s\n%v = sum_sq %u {columns=1}\noutput %s = %s\n"
     "output %t = %t\noutput %v = %v\n",
     2},
    {"... and a statistic of columns that is larger than two floats",
     FOUR "%s = sum %ab\n%t = m2 %ab {columns=1}\noutput %s = %s\noutput %t = %t\n", 3},
    {"... and a state that is written over",
     STATES "%x = mul %m, %g\n%s = sum %x\n%t = sum %x {columns=1}\n%m1 = assign %m, %x\noutput %s = %s\n"
            "output %t = %t\n",
     2},
    {"a factor of the caller's numbers alone", FOUR GIVEN "%y = mul %ab, %k\noutput %y = %y\n", 1},
    {"... over a vector, and in another program",
     FOUR GIVEN "%y = mul %ab, %k\n%u = input f32[300]\n%z = mul %u, %k\noutput %y = %y\noutput %z = %z\n",
     2},
    {"... that is an output, too", FOUR GIVEN "%y = mul %ab, %k\noutput %y = %y\noutput %k = %k\n", 2},
    {"... of which a product is one",
     FOUR GIVEN "%t = input f32[1,40]\n%u = weight f32[1,40]\n%p = matmul %t, %u\n%q = mul %p, %k\n"
                "%y = mul %ab, %q\noutput %y = %y\n",
     2},
    {"a softmax of a vector, whose sum is none", "%x = input f32[300]\n%y = softmax %x\noutput %y = %y\n", 1},
    {"columns of what a program further on walks",
     FOUR "%s = sum %c {columns=1}\n%n = softmax %ab\n%y = mul %n, %c\noutput %s = %s\noutput %y = %y\n", 2},
    {"... which wants them, too",
     FOUR "%s = sum %c {columns=1}\n%n = softmax %ab\n%y = mul %n, %c\n%z = mul %y, %s\noutput %z = %z\n", 3},
    {"statistics that a product leaves in parts, stored by the program that finishes them",
     PARTS "%t = softmax %q\noutput %t = %t\noutput %r = %r\noutput %s = %s\n", 2},
    {"... but not ahead of a product that reads one",
     PARTS "%v = weight f32[96,1]\n%o = matmul %r, %v\n%c = softmax %o\n%t = softmax %q\n%y = add %t, %c\n"
           "output %y = %y\noutput %r = %r\n",
     4},
    {"... and behind one",
     PARTS "%v = weight f32[96,1]\n%o = matmul %r, %v\n%t = softmax %q\noutput %t = %t\noutput %o = %o\n", 3},
    {"a map that another program would store for this one", LATER "%y = mul %q, %x\noutput %y = %y\n", 3},
    {"... and for a third",
     LATER "%y = mul %q, %x\n%v = matmul %y, %w\n%k = softmax %v\n%z = mul %k, %x\noutput %z = %z\n", 5},
    {"... of a chain",
     LATER "%e = exp %x\n%f = mul %e, %m\n%y = mul %q, %f\noutput %y = %y\noutput %f = %f\n", 3},
    {"... which turns its pairs",
     LATER "%y = rope %x {base=100,head_dim=32,heads=3}\n%z = mul %q, %y\noutput %z = %z\n", 3},
    {"... which looks its rows up",
     LATER "%i = input i32[40]\n%y = embedding %x, %i\n%z = mul %q, %y\noutput %z = %z\n", 4},
    {"... and of whose rows a statistic is folded",
     LATER
     "%s = sum_sq %x\n%h = rsqrt %s\n%d = mul %x, %h\n%y = mul %q, %x\noutput %y = %y\noutput %d = %d\n",
     3},
    {"... of a state that is written over in between",
     "%u = state f32[40,96]\n%c = input f32[40,96]\n%w = weight f32[96,96]\n%m = mean %u\n%x = sub %u, %m\n"
     "%n = mul %x, %c\n%u1 = assign %u, %n\n%p = matmul %n, %w\n%q = softmax %p\n%y = mul %q, %x\noutput %y "
     "= %y\n",
     -1},
    {"a number of each head, seen as a value of its matrix' rows",
     "%h = input f32[3,5]\n%b = input f32[5]\n%s = input f32[3,5,8,16]\n%hb = add %h, %b\n%e = exp %hb\n"
     "%r = reshape %e {d0=3,d1=5,d2=1,d3=1,rank=4}\n%t = tanh %r\n%y = mul %s, %t\n%z = mul %y, %r\n"
     "output %z = %z\n",
     1},
    {"... as one of rows and, behind, of columns",
     "%h = input f32[12]\n%s = input f32[12,12]\n%e = exp %h\n%r = reshape %e {d0=12,d1=1,rank=2}\n"
     "%c = reshape %e {d0=1,d1=12,rank=2}\n%y = mul %s, %r\n%z = mul %y, %c\noutput %z = %z\n",
     -1},
    {"... that an output is, too",
     "%h = input f32[3,5]\n%s = input f32[3,5,8]\n%e = exp %h\n%r = reshape %e {d0=3,d1=5,d2=1,rank=3}\n"
     "%y = mul %s, %r\noutput %y = %y\noutput %e = %e\n",
     2},
    {"... that a product reads, too",
     "%h = input f32[3,5]\n%s = input f32[3,5,8]\n%w = weight f32[7,5]\n%e = exp %h\n"
     "%r = reshape %e {d0=3,d1=5,d2=1,rank=3}\n%y = mul %s, %r\n%p = matmul %e, %w\noutput %y = %y\n"
     "output %p = %p\n",
     -1},
    {"... of a product's columns",
     "%a = input f32[6,96]\n%w = weight f32[20,96]\n%p = matmul %a, %w\n%q = slice %p "
     "{axis=1,start=3,stop=8,step=1}\n%e = exp %q\n%u = reshape %e {d0=6,d1=5,d2=1,rank=3}\n"
     "%s = input f32[6,5,8]\n%y = mul %s, %u\noutput %y = %y\n",
     2},
    {"... through two reshapes",
     "%q = input f32[6,5]\n%e = exp %q\n%r = reshape %e {d0=3,d1=10,d2=1,rank=3}\n%t = tanh %r\n"
     "%u = reshape %t {d0=6,d1=5,d2=1,rank=3}\n%s = input f32[6,5,8]\n%y = mul %s, %u\noutput %y = %y\n",
     1},
    {"... of rows that no stride joins",
     "%z = input f32[6,9]\n%q = slice %z {axis=1,start=0,stop=5,step=1}\n%e = exp %q\n"
     "%r = reshape %e {d0=3,d1=10,d2=1,rank=3}\n%s = input f32[3,10,8]\n%y = mul %s, %r\noutput %y = %y\n",
     2},
    {"a state, a fold of its columns, and what is made of both",
     STATES
     "%x = mul %m, %g\n%f = sum %x {columns=1}\n%y = mul %v, %f\n%z = add %x, %y\n%m1 = assign %m, %z\n"
     "%u = mul %m1, %g\n%w = sum %u {columns=1}\noutput %w = %w\n",
     4},
    {"... which another program reads before",
     STATES "%x = mul %m, %g\n%f = sum %x {columns=1}\n%c = input f32[40,40]\n%t = matmul %c, %x {kn=1}\n"
            "%y = mul %v, %f\n%z = add %x, %y\n%m1 = assign %m, %z\noutput %t = %t\n",
     -1},
    {"a turn of a state that is written over",
     STATES
     "%x = mul %m, %g\n%t = rope %m {base=100,head_dim=32,heads=3}\n%m1 = assign %m, %x\noutput %t = %t\n",
     2},
    {"... that a reader wants, once the writer has joined",
     STATES
     "%x = mul %m, %g\n%t = rope %m {base=100,head_dim=32,heads=3}\n%m1 = assign %m, %x\n%y = add %x, %t\n"
     "output %y = %y\n",
     2},
    {"a map that a product computes again, whose reader waits for the product",
     FOUR
     "%h = input f32[40,1]\n%w = weight f32[96,96]\n%x = sub %a, %h\n%p = matmul %c, %w\n%q = mul %p, %x\n"
     "%s = sum %q\n%y = mul %x, %s\noutput %y = %y\n",
     2},
    {"columns of all rows of a batch",
     BATCH "%f = reshape %n {d0=40,d1=96,rank=2}\n%s = sum %f {columns=1}\noutput %n = %n\noutput %s = %s\n",
     2},
    {"... of what is loaded",
     BATCH "%f = reshape %x {d0=40,d1=96,rank=2}\n%s = sum %f {columns=1}\noutput %n = %n\noutput %s = %s\n",
     2},
    {"... and of each matrix",
     BATCH "%f = reshape %n {d0=40,d1=96,rank=2}\n%s = sum %f {columns=1}\n%t = sum %n {columns=1}\n"
           "output %n = %n\noutput %s = %s\noutput %t = %t\n",
     4},
    {"... of a map with a value of each sample",
     BATCH "%g = input f32[2,1,96]\n%m = mul %n, %g\n%f = reshape %m {d0=40,d1=96,rank=2}\n"
           "%s = sum %f {columns=1}\noutput %m = %m\noutput %s = %s\n",
     3},
    {"... of some rows of each matrix",
     "%z = input f32[2,30,96]\n%x = slice %z {axis=1,start=3,stop=23,step=1}\n%n = softmax %x\n"
     "%f = reshape %n {d0=40,d1=96,rank=2}\n%s = sum %f {columns=1}\noutput %n = %n\noutput %s = %s\n",
     3},
    {"a map of rows that are grouped otherwise, and a number of each",
     BATCH
     "%z = input f32[4,10,96]\n%f = reshape %n {d0=4,d1=10,d2=96,rank=3}\n%m = mul %f, %z\n%h = max %x\n"
     "%i = reshape %h {d0=4,d1=10,d2=1,rank=3}\n%y = mul %m, %i\noutput %y = %y\n",
     1},
    {"... whose columns are others",
     BATCH "%z = input f32[80,48]\n%f = reshape %n {d0=80,d1=48,rank=2}\n%y = mul %f, %z\noutput %y = %y\n",
     2},
    {"... behind which a turn of pairs stays apart",
     BATCH "%z = input f32[40,96]\n%f = reshape %n {d0=40,d1=96,rank=2}\n%y = mul %f, %z\n"
           "%t = rope %z {base=100,head_dim=32,heads=3}\n%u = add %y, %t\noutput %u = %u\n",
     2},
};

START_TEST(maps_are_taken_in) { plan_check_case(&graphs[_i]); }
END_TEST

TESTS(rows_take_in, SOME(maps_are_taken_in, ARRAY_SIZE(graphs)));
