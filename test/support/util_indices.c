/* util_indices.c -- graphs whose integers are int64, one for each place that takes them. */
#include "util_indices.h"

const struct index_case index_cases[] = {
    {"embedding", 1e-6,
     "%t = weight f32[40,64]\n%i = input i64[3,10]\n%y = embedding %t, %i\noutput %y = %y\n"},
    {"embedding by strided ids", 4e-3,
     "%t = weight bf16[40,63]\n%i = input i64[3,10] stride=[31,3]\n%y = embedding %t, %i\noutput %y = %y\n"},
    {"embedding by folded ids", 1e-6,
     "%t = weight f32[40,64]\n%i = weight i64[5]\n%x = input f32[5,64]\n%e = embedding %t, %i\n"
     "%y = add %e, %x\noutput %y = %y\n"},
    {"embedding behind a product", 1e-2,
     "%x = input bf16[40,64]\n%w = weight bf16[128,64]\n%t = weight bf16[9,128]\n%i = input i64[40]\n"
     "%p = matmul %x, %w\n%e = embedding %t, %i\n%y = add %p, %e\noutput %y = %y\n"},
    {"rows added by id", 1e-5,
     "%x = input f32[3,10,33]\n%i = input i64[3,10] stride=[31,3]\n%y = row_sums %x, %i {rows=7}\n"
     "output %y = %y\n"},
    {"losses of a product", 1e-2,
     "%x = input bf16[70,64]\n%w = weight bf16[300,64]\n%i = input i64[70]\n%p = matmul %x, %w\n"
     "%y = cross_entropy %p, %i\noutput %y = %y\n"},
    {"mean of losses", 1e-4,
     "%x = input f32[70,50]\n%i = input i64[70] stride=[2]\n%y = cross_entropy %x, %i {reduction=1}\n"
     "output %y = %y\n"},
    {"rope behind a product", 1e-2,
     "%x = input f16[2,33,64]\n%w = weight f16[128,64]\n%i = input i64[2,33]\n%p = matmul %x, %w\n"
     "%y = rope %p, %i {head_dim=64}\noutput %y = %y\n"},
    {"rope by sections", 1e-4,
     "%x = input f32[2,9,64]\n%i = input i64[9,3]\n"
     "%y = rope %x, %i {section0=9, section1=12, section2=11}\noutput %y = %y\n"},
    {"rope", 1e-4, "%x = input f32[2,9,32]\n%i = input i64[9]\n%y = rope %x, %i\noutput %y = %y\n"},
    {"attention with lengths", 1e-4,
     "%q = input f32[3,4,64]\n%k = input f32[3,40,32]\n%l = input i64[3] stride=[2]\n"
     "%y = attention %q, %k, %k, %l {heads=4, kv_heads=2, causal=1, align=3}\noutput %y = %y\n"},
    {"a step of attention with lengths", 1e-2,
     "%q = input bf16[3,1,256]\n%k = input bf16[3,300,128]\n%l = input i64[3]\n"
     "%y = attention %q, %k, %k, %l {heads=4, kv_heads=2}\noutput %y = %y\n"},
    {"attention in blocks with lengths", 1e-2,
     "%q = input bf16[2,130,128]\n%k = input bf16[2,200,128]\n%l = input i64[2]\n"
     "%y = attention %q, %k, %k, %l {heads=2, causal=1, align=3}\noutput %y = %y\n"},
    {"attention with ranges", 1e-2,
     "%q = input f16[70,128]\n%k = input f16[100,128]\n%r = input i64[70,2]\n"
     "%y = attention %q, %k, %k, _, %r {heads=2}\noutput %y = %y\n"},
    {"attention with pages", 1e-2,
     "%q = input bf16[3,1,128]\n%k = input bf16[128,64]\n%l = input i64[3]\n%t = input i64[3,4]\n"
     "%y = attention %q, %k, %k, %l, _, _, _, %t {heads=2, kv_heads=1, page=16}\noutput %y = %y\n"},
    {"attention with pages of mixed integers", 1e-4,
     "%q = input f32[3,1,64]\n%k = input f32[128,32]\n%l = input i32[3]\n%t = input i64[3,4]\n"
     "%y = attention %q, %k, %k, %l, _, _, _, %t {heads=2, kv_heads=1, page=16}\noutput %y = %y\n"},
    {"packed attention", 1e-2,
     "%q = input bf16[100,128]\n%k = input bf16[3,80,64]\n%l = input i64[3]\n%s = input i64[4]\n"
     "%y = attention %q, %k, %k, %l, _, _, _, _, _, _, %s {heads=2, kv_heads=1, causal=1, align=3}\n"
     "output %y = %y\n"},
    {"append", 4e-3,
     "%k = state bf16[64,32]\n%x = input bf16[2,9,32]\n%i = input i64[2,9]\n%y = append %k, %x, %i\n"},
    {"append behind a product", 1e-2,
     "%k = state bf16[64,128]\n%x = input bf16[40,64]\n%w = weight bf16[128,64]\n%i = input i64[40]\n"
     "%p = matmul %x, %w\n%y = append %k, %p, %i\n"},
    {"append by heads", 1e-5,
     "%k = state f32[4,2,8,16]\n%x = input f32[9,32]\n%i = input i64[9]\n"
     "%y = append %k, %x, %i {layout=1}\n"},
    {"keys of a reduction", 1e-5,
     "%x = input f32[20,100]\n%i = input i64[20]\n%y = select %x, %i\noutput %y = %y\n"},
    {"maps of integers", 1e-5,
     "%i = input i64[20,33]\n%j = weight i64[33]\n%x = input f32[20,33]\n%a = mul %x, %i\n%b = sub %j, %a\n"
     "output %a = %a\noutput %b = %b\n"},
    {"integers in an epilogue", 1e-2,
     "%x = input bf16[40,64]\n%w = weight bf16[96,64]\n%i = input i64[40,96]\n%j = input i64[96]\n"
     "%k = input i64[40,1]\n%p = matmul %x, %w\n%a = add %p, %i\n%b = add %a, %j\n%y = mul %b, %k\n"
     "%c = scale %p {alpha=0}\n%d = add %c, %j\n%z = cast %d {to=i64}\noutput %y = %y\noutput %z = %z\n"},
    {"casts", 0,
     "%i = input i64[20,48]\n%j = input i32[20,48]\n%x = input f32[20,48]\n%s = scale %x {alpha=1024}\n"
     "%a = cast %i {to=f32}\n%b = cast %i {to=i32}\n%c = cast %j {to=i64}\n%d = cast %s {to=i64}\n"
     "%n = cast %i {to=i64}\n%h = scale %b {alpha=0.5}\n%e = cast %h {to=i64}\n"
     "output %a = %a\noutput %b = %b\noutput %c = %c\noutput %d = %d\noutput %n = %n\noutput %e = %e\n"},
    {"moves", 0,
     "%i = input i64[20,48] stride=[1,21]\n%j = input i64[20,5]\n%t = transpose %i {p0=1, p1=0}\n"
     "%c = concat %i, %j {axis=1}\n%s = slice %i {axis=1, start=3, stop=40, step=2}\n"
     "output %o = %i\noutput %t = %t\noutput %c = %c\noutput %s = %s stride=[40,2]\n"},
    {"a state that counts", 0,
     "%s = state i64[7]\n%n = state i32[7]\n%one = constant {to=i64, value=1}\n%a = add %s, %one\n"
     "%c = cast %a {to=i64}\n%y = assign %s, %c\n%d = cast %c {to=i32}\n%z = assign %n, %d\n"},
    {"rows of integers in a state", 0,
     "%s = state i64[50,3]\n%x = input i64[7,3]\n%i = input i64[7]\n%y = append %s, %x, %i\n"},
    {"ids of the greatest", 0,
     "%x = input f32[30,200]\n%m = arg_max %x\n%i = cast %m {to=i64}\noutput %y = %i\n"},
    {"places of the greatest", 0,
     "%x = input f32[30,200]\n%k = top_k %x {k=4, indices=1}\n%j = cast %k {to=i64}\noutput %j = %j\n"},
    {"what is kept", 1e-5,
     "%x = input f32[9,200]\n%k = input i64[9,1]\n%y = nucleus %x, _, %k\noutput %y = %y\n"},
};
const int index_case_count = sizeof index_cases / sizeof *index_cases;
