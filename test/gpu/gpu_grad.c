/* gpu_grad.c -- gradients of all leaves of blocks of models on the GPU: fused they are no farther from fp64
 * than one operation after the other. */
#include "gpu_case.h"
#include "util_device.h"
#include "util_grad_blocks.h"
#include "util_print.h"
#include "util_scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gpu_grad(void);

/* Results in the memory of arguments that may be consumed: by the epilogue of a product that has fetched
 * their tiles, two halves of one tensor, apart or in turns; by rows that are walked once, twice, and three
 * times. */
static const struct {
    const char *name, *text;
    double tolerance;
} consumed[] = {
    {"a residual",
     "%x = input bf16[200,256] {consumed=1}\n%a = input bf16[200,64]\n%w = weight bf16[256,64]\n"
     "%v = weight bf16[64,256]\n%p = matmul %a, %w\n%y = add %x, %p\n%z = matmul %y, %v\noutput %z = %z\n",
     2e-2},
    {"a SwiGLU's gradient",
     "%x = input bf16[200,256] {consumed=1}\n%d = input bf16[200,64]\n%w = weight bf16[64,128]\n"
     "%v = weight bf16[256,64]\n%dy = matmul %d, %w {kn=1}\n%g = slice %x {axis=1, stop=128, step=1}\n"
     "%u = slice %x {axis=1, start=128, stop=256, step=1}\n%s = sigmoid %g\n%a = mul %g, %s\n"
     "%dup = mul %dy, %a\n%t = mul %dy, %u\n%dg = mul %t, %s\n%dz = concat %dg, %dup {axis=1}\n"
     "%z = matmul %dz, %v {kn=1}\noutput %z = %z\n",
     2e-2},
    {"a SwiGLU's gradient, interleaved",
     "%x = input bf16[200,256] {consumed=1}\n%d = input bf16[200,64]\n%w = weight bf16[64,128]\n"
     "%v = weight bf16[256,64]\n%dy = matmul %d, %w {kn=1}\n%g = slice %x {axis=1, stop=256, step=2}\n"
     "%u = slice %x {axis=1, start=1, stop=256, step=2}\n%s = sigmoid %g\n%a = mul %g, %s\n"
     "%dup = mul %dy, %a\n%t = mul %dy, %u\n%dg = mul %t, %s\n"
     "%dz = concat %dg, %dup {axis=1, interleave=1}\n%z = matmul %dz, %v {kn=1}\noutput %z = %z\n",
     2e-2},
    {"an fp32 residual",
     "%x = input f32[70,96] {consumed=1}\n%a = input f32[70,40]\n%w = weight f32[96,40]\n"
     "%v = weight f32[24,96]\n%p = matmul %a, %w\n%y = add %x, %p\n%z = matmul %y, %v\noutput %z = %z\n",
     1e-4},
    {"a softmax of wide rows",
     "%x = input bf16[9,20000] {consumed=1}\n%y = softmax %x\n%v = weight bf16[8,20000]\n"
     "%z = matmul %y, %v\noutput %z = %z\n",
     2e-2},
    {"a softmax, and what its row is wanted for again",
     "%x = input f32[50,640] {consumed=1}\n%y = softmax %x\n%m = mul %x, %y\n%t = sum %m\n"
     "%u = minimum %x, %t\n%v = weight f32[8,640]\n%z = matmul %u, %v\n%q = matmul %y, %v\n"
     "output %z = %z\noutput %q = %q\n",
     1e-4},
};

/* Does a program of the plan store over the first argument? */
static bool stores_over_first(const graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.flags = CODA_PLAN_ONLY;
    if (coda_compile(&p, g, &opt) != CODA_OK) return false;
    char *text = printed_plan(p, CODA_TEXT_PLAN);
    bool found = false;
    for (char *at = text; at && !found && (at = strstr(at, "\n   store ")); at++)
        found = memmem(at + 1, strcspn(at + 1, "\n"), " arg0", strlen(" arg0")) != NULL;
    free(text);
    coda_plan_free(p);
    return found;
}

static bool consumed_good(int i, char *why, size_t size)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    graph *g = graph_parse(consumed[i].text);
    void **want = g ? run_reference(g, 3) : NULL;
    double e = want ? run_on_gpu(g, 3, &opt, want) : -1;
    snprintf(why, size, "error %.2e %s", e, e < 0 ? coda_error() : "");
    bool over = g && stores_over_first(g);
    if (!over) snprintf(why, size, "no result takes its place");
    if (want) random_args_free(g, want);
    graph_free(g);
    return over && e >= 0 && e <= consumed[i].tolerance;
}

int gpu_grad(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE], why[512];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "grad", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    for (int i = 0; i < grad_block_count; i++) {
        if (!gpu_mine(i) || (few && !scale_takes_one_in(6, i))) continue;
        bool good = grad_block_good(&grad_blocks[i], 7, true, why, sizeof why);
        failed += gpu_case(good, "grad", "%s: %s", grad_blocks[i].name, why);
    }
    for (int i = 0; i < ARRAY_SIZE(consumed); i++) {
        if (!gpu_mine(grad_block_count + i) || (few && !scale_takes_one_in(2, i))) continue;
        bool good = consumed_good(i, why, sizeof why);
        failed += gpu_case(good, "grad", "%s, consumed: %s", consumed[i].name, why);
    }
    return failed;
}
