/*
 * gpu_attention_grad.c -- the gradients of attention on the GPU against fp64: the cases of
 * util_attention_grad.c, random ones, and whole graphs in which attention is, too. Every run is repeated, in
 * memory that begins as other bytes, and must leave the same bits. With CODA_TEST_CASE only cases run whose
 * names contain it; "random": the random ones alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coda.h"
#include "gpu_case.h"
#include "util_attention_grad.h"
#include "util_device.h"
#include "util_scale.h"

int gpu_attention_grad(void);

enum { RANDOM_CASES = 60, EMULATED_SHARE = 6, EMULATED_RANDOM = 4 };

static int run(const struct attention_grad_case *c, uint64_t seed)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct text t = {0};
    opt.device = CODA_DEVICE_GPU;
    double error = attention_grad_error(c, seed, &opt);
    attention_grad_describe(c, &t);
    int failed =
        gpu_case(error >= 0 && error <= 1, "attention_grad", "%s, seed %llu: %.2f of what is allowed %s",
                 text_str(&t), (unsigned long long)seed, error, error < 0 ? coda_error() : "");
    text_free(&t);
    return failed;
}

static bool is_wanted(const char *name)
{
    const char *wanted = getenv("CODA_TEST_CASE");
    return !wanted || strstr(name, wanted);
}

int gpu_attention_grad(void)
{
    static const coda_dtype dtype[] = {CODA_F32, CODA_BF16, CODA_F16};
    char err[JIT_ERROR_SIZE] = "";
    struct jit_device device;
    if (!device_open(&device, err)) return gpu_case(false, "attention_grad", "%s", err);
    bool emulated = device_emulated(&device);
    uint64_t seed = random_seed();
    int failed = 0, random = emulated ? scaled(EMULATED_RANDOM) : RANDOM_CASES;
    for (int i = 0; i < attention_grad_case_count; i++) {
        bool named = getenv("CODA_TEST_CASE") != NULL;
        if (!is_wanted(attention_grad_cases[i].name)) continue;
        if (!emulated || named || scale_takes_one_in(EMULATED_SHARE, i))
            failed += run(&attention_grad_cases[i], seed + (uint64_t)i);
    }
    for (uint64_t s = seed; s < seed + (uint64_t)random && is_wanted("random"); s++) {
        struct attention_grad_case c = attention_grad_draw(s, dtype[s % 3]);
        failed += run(&c, s);
    }
    return failed;
}
