/* gpu_stream.c -- every code of weights of 8 bits on the GPU is what it is on the host, bit for bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "gpu_case.h"
#include "graph.h"
#include "util_device.h"
#include "util_random.h"
#include "util_run.h"

int gpu_stream(void);

enum { CODES = 256, K = 48, ROWS = 3 };

/* A row of weights for each code, zeros but for that, times rows of ones. */
static void fill(void **arg, coda_dtype t)
{
    for (int i = 0; i < ROWS * K; i++) dtype_store(t, arg[0], i, 1);
    memset(arg[1], 0, CODES * K);
    for (int code = 0; code < CODES; code++)
        ((unsigned char *)arg[1])[code * K + code % K] = (unsigned char)code;
}

static bool is_right(const void *y, coda_dtype t, coda_dtype of, const void *weights, int *code)
{
    for (int i = 0; i < ROWS * CODES; i++) {
        *code = i % CODES;
        double got = dtype_load(t, y, i), want = dtype_load(of, weights, *code * K + *code % K);
        if (!(got == want || (isnan(got) && isnan(want)))) return false;
    }
    return true;
}

static int try_codes(coda_dtype t, coda_dtype of)
{
    char text[256];
    struct run_buffers b;
    coda_plan *p = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    int code = -1;
    snprintf(text, sizeof text,
             "%%x = input %s[%d,%d]\n%%w = weight %s[%d,%d]\n%%y = matmul %%x, %%w\noutput %%y = %%y\n",
             dtype_name(t), ROWS, K, dtype_name(of), CODES, K);
    graph *g = graph_parse(text);
    void **arg = g ? random_args(g, 1, false) : NULL;
    if (arg) fill(arg, t);
    bool ran = arg && coda_compile(&p, g, &opt) == CODA_OK && run_upload(&b, g, p, arg, true);
    bool good = ran && run_prepare(&b, p) && run_plan(&b, p);
    good = good && (device_dry() || is_right(b.host[2], t, of, arg[1], &code));
    int failed = gpu_case(good, "stream", "all codes of %s times %s%s: %s", dtype_name(of), dtype_name(t),
                          good ? "" : ", to code", good ? "as they are" : coda_error());
    if (!good) printf("       code %d\n", code);
    if (ran) run_release(&b);
    if (arg) random_args_free(g, arg);
    coda_plan_free(p);
    graph_free(g);
    return failed;
}

int gpu_stream(void)
{
    static const coda_dtype types[] = {CODA_F8E4M3, CODA_F8E5M2, CODA_I8};
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "stream", "%s", err);
    for (int i = 0; i < ARRAY_SIZE(types); i++)
        failed += try_codes(CODA_BF16, types[i]) + try_codes(CODA_F16, types[i]);
    return failed;
}
