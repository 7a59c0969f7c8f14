/* codes.c -- see codes.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "gpu_case.h"
#include "graph.h"
#include "codes.h"
#include "util_device.h"
#include "util_random.h"
#include "util_run.h"

enum { CODES = 256 };

/* A row of weights for each code, zeros but for that, times rows of ones. */
static void fill(const struct codes_case *c, void **arg, coda_dtype t)
{
    for (int i = 0; i < c->rows * c->k; i++) dtype_store(t, arg[0], i, 1);
    memset(arg[1], 0, (size_t)(CODES * c->k));
    for (int code = 0; code < CODES; code++)
        ((unsigned char *)arg[1])[code * c->k + code % c->k] = (unsigned char)code;
}

static bool is_right(const struct codes_case *c, const void *y, coda_dtype t, coda_dtype of,
                     const void *weights, int *code)
{
    for (int i = 0; i < c->rows * CODES; i++) {
        *code = i % CODES;
        double got = dtype_load(t, y, i), want = dtype_load(of, weights, *code * c->k + *code % c->k);
        if (!(got == want || (isnan(got) && isnan(want)))) return false;
    }
    return true;
}

int gpu_codes(const struct codes_case *c, coda_dtype t, coda_dtype of)
{
    char text[256];
    struct run_buffers b;
    coda_plan *p = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    int code = -1;
    snprintf(text, sizeof text,
             "%%x = input %s[%d,%d]\n%%w = weight %s[%d,%d]\n%%y = matmul %%x, %%w\noutput %%y = %%y\n",
             dtype_name(t), c->rows, c->k, dtype_name(of), CODES, c->k);
    graph *g = graph_parse(text);
    void **arg = g ? random_args(g, 1, false) : NULL;
    if (arg) fill(c, arg, t);
    bool ran = arg && (!c->takes || c->takes(g)) && coda_compile(&p, g, &opt) == CODA_OK &&
               run_upload(&b, g, p, arg, true);
    bool good = ran && run_prepare(&b, p) && run_plan(&b, p);
    good = good && (device_dry() || is_right(c, b.host[2], t, of, arg[1], &code));
    int failed = gpu_case(good, c->test, "all codes of %s times %s%s: %s", dtype_name(of), dtype_name(t),
                          good ? "" : ", to code", good ? "as they are" : coda_error());
    if (!good) printf("       code %d\n", code);
    if (ran) run_release(&b);
    if (arg) random_args_free(g, arg);
    coda_plan_free(p);
    graph_free(g);
    return failed;
}
