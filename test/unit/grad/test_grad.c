/* test_grad.c -- the derivative of each operation and option, beside difference quotients. */
#include "util_grad.h"
#include "util_scale.h"

#include <math.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

#define X "%x = input f32 [3,8]\n"
#define XY X "%z = input f32 [3,8]\n"
#define QKV "%q = input f32 [2,4,8]\n%k = input f32 [2,4,8]\n%v = input f32 [2,4,8]\n"
#define Y "output %y = %r\n"
static const char *const cases[] = {
    /* Products. */
    X "%w = weight f32 [5,8]\n%r = matmul %x, %w\n" Y,
    X "%w = weight f32 [8,5]\n%r = matmul %x, %w {kn=1}\n" Y,
    X "%w = weight f32 [5,8]\n%c = cast %x {to=bf16}\n%d = cast %w {to=bf16}\n%r = matmul %c, %d\n" Y,
    X "%w = weight f32 [5,8]\n%c = cast %x {to=bf16}\n%d = cast %w {to=bf16}\n%r = matmul %c, %d {f32=1}\n" Y,
    "%x = input f32 [2,3,8]\n%w = weight f32 [5,8]\n%r = matmul %x, %w\n" Y,
    "%x = input f32 [2,3,8]\n%w = weight f32 [2,5,8]\n%r = matmul %x, %w\n" Y,
    "%x = input f32 [2,3,8]\n%w = input f32 [2,8,5]\n%r = matmul %x, %w {kn=1}\n" Y,
    "%x = input f32 [4,4]\n%r = matmul %x, %x\n" Y,
    "%x = input f32 [1,4]\n%w = weight f32 [1,4]\n%r = matmul %x, %w\n" Y,
    "%x = input f32 [0,4]\n%w = weight f32 [3,4]\n%b = input f32 [3]\n%p = matmul %x, %w\n%r = add %p, "
    "%b\n" Y,
    X "%w = weight f32 [5,8] stride=[1,5]\n%r = matmul %x, %w\n" Y,
    /* Broadcasting. */
    XY "%r = add %x, %z\n" Y,
    XY "%r = sub %x, %z\n" Y,
    XY "%r = mul %x, %z\n" Y,
    XY "%p = abs %z\n%q = exp %p\n%r = div %x, %q\n" Y,
    X "%c = input i32 [3,1]\n%z = input f32 [8]\n%r = where %c, %x, %z\n" Y,
    X "%z = input f32 [8]\n%r = mul %x, %z\n" Y,
    X "%z = input f32 [3,1]\n%r = mul %x, %z\n" Y,
    X "%z = input f32 [1]\n%r = mul %x, %z\n" Y,
    X "%z = input f32 [1,1]\n%r = mul %z, %x\n" Y,
    X "%z = scalar f32\n%r = mul %x, %z\n" Y,
    "%x = input f32 [2,3,4,5]\n%z = input f32 [3,1,5]\n%r = mul %x, %z\n" Y,
    "%x = input f32 [2,3,4,5]\n%z = input f32 [2,1,4,1]\n%r = mul %x, %z\n" Y,
    "%x = input f32 [2,1,4,1]\n%z = input f32 [1,3,1,5]\n%r = mul %x, %z\n" Y,
    "%x = input f32 [0,5]\n%z = input f32 [5]\n%r = mul %x, %z\n" Y,
    "%x = input f32 [3,0]\n%z = input f32 [3,1]\n%r = mul %x, %z\n" Y,
    X "%r = scale %x {alpha=-1.5}\n" Y,
    X "%r = mul %x, %x\n" Y,
    /* Maps. */
    X "%r = relu %x\n" Y,
    X "%r = relu2 %x\n" Y,
    X "%r = gelu_erf %x\n" Y,
    X "%r = gelu_tanh %x\n" Y,
    X "%r = gelu_quick %x\n" Y,
    X "%r = silu %x\n" Y,
    X "%r = tanh %x\n" Y,
    X "%r = sigmoid %x\n" Y,
    X "%r = softplus %x\n" Y,
    X "%r = exp %x\n" Y,
    X "%r = abs %x\n" Y,
    X "%p = softplus %x\n%r = log %p\n" Y,
    X "%p = softplus %x\n%r = sqrt %p\n" Y,
    X "%p = softplus %x\n%r = rsqrt %p\n" Y,
    X "%p = softplus %x\n%r = rcp %p\n" Y,
    X "%r = clip %x {low=-0.5, high=0.7}\n" Y,
    X "%r = softcap %x {cap=2}\n" Y,
    XY "%r = minimum %x, %z\n" Y,
    XY "%r = maximum %x, %z\n" Y,
    X "%l = log_sum_exp %x\n%r = exp_sub %x, %l\n" Y,
    X "%s = sum_sq %x\n%r = rsqrt_mean %s {inv_n=0.125, eps=1e-3}\n" Y,
    XY "%r = swiglu %x, %z\n" Y,
    XY "%r = geglu %x, %z\n" Y,
    XY "%r = geglu_erf %x, %z\n" Y,
    XY "%r = reglu %x, %z\n" Y,
    XY "%r = glu %x, %z\n" Y,
    XY "%r = swiglu_clamped %x, %z {alpha=1.702, limit=0.7}\n" Y,
    XY "%c = less %x, %z\n%r = where %c, %x, %z\n" Y,
    XY "%r = keep %x, %z, %z\n" Y,
    /* Statistics of rows and columns. */
    X "%r = sum %x\n" Y,
    X "%r = mean %x\n" Y,
    X "%r = sum_sq %x\n" Y,
    X "%r = m2 %x\n" Y,
    X "%r = max %x\n" Y,
    X "%r = log_sum_exp %x\n" Y,
    X "%k = input i32 [3]\n%r = select %x, %k\n" Y,
    X "%k = input i32 [3]\n%r = nll %x, %k\n" Y,
    X "%r = sum %x {columns=1}\n" Y,
    X "%r = mean %x {columns=1}\n" Y,
    X "%r = m2 %x {columns=1}\n" Y,
    X "%r = sum_sq %x {columns=1}\n" Y,
    X "%r = max %x {columns=1}\n" Y,
    X "%s = sum %x\n%m = mul %x, %s\n%r = sum %m {columns=1}\n" Y,
    X "%c = scale %x {alpha=0}\n%m = max %c\n%r = mul %m, %x\n" Y,
    X "%a = slice %x {axis=1, start=0, stop=1, step=1}\n%b = concat %a, %a, %a {axis=1}\n%r = max %b\n" Y,
    /* Norms and softmaxes. */
    X "%g = weight f32 [8]\n%r = rms_norm %x, %g {eps=1e-3}\n" Y,
    X "%r = rms_norm %x {eps=1e-3}\n" Y,
    "%x = input f32 [2,3,8]\n%g = weight f32 [8]\n%r = rms_norm %x, %g {eps=1e-3}\n" Y,
    X "%g = weight f32 [8]\n%b = weight f32 [8]\n%r = layer_norm %x, %g, %b {eps=1e-3}\n" Y,
    X "%b = weight f32 [8]\n%r = layer_norm %x, _, %b {eps=1e-3}\n" Y,
    X "%r = layer_norm %x {eps=1e-3}\n" Y,
    X "%r = softmax %x\n" Y,
    X "%r = log_softmax %x\n" Y,
    X "%r = top_k %x {k=3}\n" Y,
    X "%c = cast %x {to=bf16}\n%g = weight f32 [8]\n%r = rms_norm %c, %g {eps=1e-3}\n" Y,
    /* Losses. */
    X "%t = input i32 [3]\n%r = cross_entropy %x, %t {ignore=-100}\n" Y,
    X "%t = input i32 [3]\n%r = cross_entropy %x, %t {ignore=-100, reduction=1}\n" Y,
    X "%t = input i32 [3]\n%r = cross_entropy %x, %t {ignore=1, reduction=2}\n" Y,
    "%x = input f32 [2,3,8]\n%t = input i64 [2,3]\n%r = cross_entropy %x, %t {ignore=2, reduction=1}\n" Y,
    /* Rows by id. */
    "%t = weight f32 [5,8]\n%i = input i32 [7]\n%r = embedding %t, %i\n" Y,
    "%t = input f32 [4,3]\n%i = input i64 [2,3]\n%e = embedding %t, %i\n%r = sum %e\n" Y,
    "%t = weight f32 [5,8]\n%i = input i32 [3]\n%c = cast %t {to=bf16}\n%e = embedding %c, %i\n"
    "%p = matmul %e, %c\n%r = softmax %p\n" Y,
    X "%i = input i32 [3]\n%s = row_sums %x, %i {rows=4}\n%r = mul %s, %s\n" Y,
    "%x = input f32 [2,3,8]\n%i = input i64 [2,3]\n%s = row_sums %x, %i {rows=2}\n%r = sum %s\n" Y,
    /* Rotations. */
    "%x = input f32 [4,32]\n%p = input i32 [4]\n%r = rope %x, %p {base=10000, head_dim=16, half=1}\n" Y,
    "%x = input f32 [4,32]\n%r = rope %x {head_dim=16, rotary=8, heads=1, scale=0.5}\n" Y,
    "%x = input f32 [4,32]\n%r = rope %x {head_dim=16, half=1, inverse=1}\n" Y,
    /* Rows by ids. */
    "%t = weight f32 [7,8]\n%i = input i32 [2,5]\n%r = embedding %t, %i\n" Y,
    "%x = input f32 [2,5,8]\n%i = input i32 [2,5]\n%r = row_sums %x, %i {rows=4}\n" Y,
    /* Attention. */
    QKV "%r = attention %q, %k, %v {heads=2}\n" Y,
    QKV "%r = attention %q, %k, %v {heads=2, causal=1}\n" Y,
    QKV "%r = attention %q, %k, %v {heads=2, causal=1, window=2}\n" Y,
    QKV "%r = attention %q, %k, %v {heads=2, window=3, ahead=1}\n" Y,
    QKV "%r = attention %q, %k, %v {heads=2, causal=1, softcap=1.5}\n" Y,
    QKV "%s = input f32 [2]\n%r = attention %q, %k, %v, _, _, _, %s {heads=2, causal=1}\n" Y,
    QKV "%s = input f32 [2]\n%r = attention %q, %k, %v, _, _, %s {heads=2, causal=1}\n" Y,
    QKV "%b = input f32 [2,2,4,4]\n%r = attention %q, %k, %v, _, _, _, _, _, _, _, _, %b {heads=2}\n" Y,
    QKV "%b = input f32 [1,1,1,4]\n%r = attention %q, %k, %v, _, _, _, _, _, _, _, _, %b {heads=2}\n" Y,
    QKV "%l = input i32 [2]\n%r = attention %q, %k, %v, %l {heads=2, align=1}\n" Y,
    QKV "%o = attention %q, %k, %v {heads=2, causal=1}\n"
        "%l = attention %q, %k, %v {heads=2, causal=1, lse=1} @%o\noutput %y = %o\noutput %l = %l\n",
    QKV "%l = attention %q, %k, %v {heads=2, causal=1, lse=1}\noutput %l = %l\n",
    "%q = input f32 [3,24]\n%k = input f32 [5,8]\n%v = input f32 [5,8]\n"
    "%r = attention %q, %k, %v {heads=6, kv_heads=2, causal=1, align=2}\n" Y,
    "%x = input f32 [2,4,24]\n%q = slice %x {axis=2, start=0, stop=8, step=1}\n"
    "%k = slice %x {axis=2, start=8, stop=16, step=1}\n%v = slice %x {axis=2, start=16, stop=24, step=1}\n"
    "%r = attention %q, %k, %v {heads=2, causal=1}\n" Y,
    /* What moves data. */
    X "%r = slice %x {axis=1, start=2, stop=6, step=1}\n" Y,
    X "%r = slice %x {axis=0, start=1, stop=3, step=1}\n" Y,
    X "%r = slice %x {axis=1, start=1, stop=8, step=3}\n" Y,
    X "%a = slice %x {axis=1, start=0, stop=8, step=2}\n%b = slice %x {axis=1, start=1, stop=8, step=2}\n"
      "%r = mul %a, %b\n" Y,
    X "%a = slice %x {axis=1, start=0, stop=4, step=1}\n%b = slice %x {axis=1, start=4, stop=8, step=1}\n"
      "%r = mul %a, %b\n" Y,
    X "%a = slice %x {axis=1, start=0, stop=5, step=1}\n%b = slice %x {axis=1, start=3, stop=8, step=1}\n"
      "%c = slice %x {axis=1, start=0, stop=8, step=2}\n%d = slice %x {axis=0, start=0, stop=1, step=1}\n"
      "%e = mul %a, %b\noutput %u = %e\noutput %y = %c\noutput %v = %d\n",
    X "%a = slice %x {axis=1, start=2, stop=2, step=1}\n%b = slice %x {axis=1, start=0, stop=8, step=1}\n"
      "output %u = %a\noutput %y = %b\n",
    XY "%r = concat %x, %z {axis=0}\n" Y,
    XY "%r = concat %x, %z {axis=1, interleave=1}\n" Y,
    XY "%r = concat %x, %x, %z {axis=-1}\n" Y,
    X "%r = reshape %x {rank=3, d0=2, d1=3, d2=4}\n" Y,
    "%x = input f32 [2,3,8]\n%r = transpose %x {p0=2, p1=0, p2=1}\n" Y,
    "%x = input f32 [3,8] stride=[16,2]\n%r = mul %x, %x\n" Y,
    X "%c = cast %x {to=f16}\n%r = mul %c, %x\n" Y,
    /* Several ways to one leaf, and outputs on the way to others. */
    X "%a = sum %x\n%b = mul %x, %a\n%c = softmax %b\n%d = add %c, %x\noutput %u = %b\noutput %y = %d\n",
    X "%w = weight f32 [8,8]\n%g = weight f32 [8]\n%n = rms_norm %x, %g {eps=1e-5}\n%p = matmul %n, %w\n"
      "%s = add %x, %p\n%m = rms_norm %s, %g {eps=1e-5}\n%q = matmul %m, %w\n%r = add %s, %q\n" Y,
};

START_TEST(operations_have_their_derivatives)
{
    graph *g = grad_loss(cases[_i]);
    ck_assert_msg(g != NULL, "%s%s", cases[_i], coda_error());
    int smooth = 0, n = 4;
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + (uint64_t)n; s++) {
        struct grad_check c;
        ck_assert_msg(grad_compare(g, s, &c), "%s%s", cases[_i], coda_error());
        bool says = c.smooth && c.error < 1e-5 * (1 + c.scale);
        ck_assert_msg(!says || fabs(c.gradient - c.difference) <= c.error + 1e-7 * c.scale,
                      "seed %llu: %.12g, by differences %.12g +- %.1e, of terms of %.3g\n%s",
                      (unsigned long long)s, c.gradient, c.difference, c.error, c.scale, cases[_i]);
        smooth += says && c.leaves > 1;
    }
    ck_assert_msg(smooth, "%s: not smooth at %d places from seed %llu", cases[_i], n,
                  (unsigned long long)seed);
    graph_free(g);
}
END_TEST

TESTS(grad, EACH(operations_have_their_derivatives, ARRAY_SIZE(cases)));
