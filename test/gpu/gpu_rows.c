/*
 * gpu_rows.c -- rows kernels on the GPU against the CPU device.
 *
 * All buffers are compared, so a store to a wrong place shows. Both sides compute in float and round once
 * for each store: they may differ by a rounding of the dtype and by the order of sums. Each kernel runs
 * twice and must repeat its bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "gpu_case.h"
#include "util_device.h"
#include "util_rows.h"
#include "util_scale.h"

int gpu_rows(void);

struct bench {
    struct rig rig;
    struct jit_device device;
    struct jit_kernel *kernel;
    void *gpu[RIG_BUFFERS], *first[RIG_BUFFERS], *second[RIG_BUFFERS];
    double worst;
};

static size_t bytes_of(const struct bench *b, int buffer) { return (size_t)b->rig.buffer[buffer].bytes; }

static bool upload(struct bench *b)
{
    for (int i = 0; i < b->rig.plan.buffers; i++) {
        b->gpu[i] = device_alloc(bytes_of(b, i));
        b->first[i] = malloc(bytes_of(b, i) + 1);
        b->second[i] = malloc(bytes_of(b, i) + 1);
        if (!b->gpu[i] || !b->first[i] || !b->second[i]) return false;
        if (!device_upload(b->gpu[i], b->rig.args[i], bytes_of(b, i))) return false;
    }
    return true;
}

static bool build(struct bench *b, char *err)
{
    struct jit_cubin cubin;
    struct kernel *k = &b->rig.k;
    if (rig_emit(&b->rig, &rows_target)) return snprintf(err, 256, "%s", coda_error()), false;
    struct jit_options opt = {.arch = b->device.arch};
    if (jit_compile(&cubin, k->symbol, k->text, &opt, err)) return false;
    coda_status status = jit_load(&b->kernel, &cubin, k->symbol, 0, &b->device, NULL, err);
    jit_cubin_free(&cubin);
    return status == CODA_OK;
}

static bool run(struct bench *b, void **result, char *err)
{
    const struct kernel *k = &b->rig.k;
    void *pointer[KERNEL_MAX_POINTERS];
    for (int i = 0; i < k->pointers; i++)
        pointer[i] = (char *)b->gpu[k->pointer[i].buffer] + k->pointer[i].bytes;
    char *scalar = (char *)(pointer + k->pointers);
    for (int i = 0; i < k->scalars; i++) {
        const struct scalar_spec *s = &k->scalar[i];
        memcpy(scalar + 4 * i, s->buffer == SCALAR_NUMBER ? (const void *)&s->number : b->rig.args[s->buffer],
               4);
    }
    struct jit_launch l = {.grid = (unsigned)k->launch.grid, .threads = (unsigned)k->launch.threads};
    size_t bytes = 8 * (size_t)k->pointers + 4 * (size_t)k->scalars;
    if (k->launch.grid && jit_launch(b->kernel, &l, pointer, bytes, NULL, err)) return false;
    if (!device_wait()) return snprintf(err, 256, "the kernel failed"), false;
    for (int i = 0; i < b->rig.plan.buffers; i++)
        if (!device_download(result[i], b->gpu[i], bytes_of(b, i))) return false;
    return true;
}

/* In units of what is allowed. */
static double error_of(coda_dtype t, double got, double want)
{
    double allowed = t == CODA_BF16 ? 0x1p-7 : t == CODA_F16 ? 0x1p-10 : t == CODA_F32 ? 2e-5 : 0;
    if (got == want || (isnan(got) && isnan(want))) return 0;
    if (!(fabs(got - want) < INFINITY) || !allowed) return INFINITY;
    return fabs(got - want) / (allowed * fmax(fabs(want), 0.01));
}

static void compare(struct bench *b)
{
    for (int i = 0; i < b->rig.plan.buffers; i++)
        for (int64_t e = 0; e < b->rig.elements[i]; e++) {
            double got = dtype_load(b->rig.dtype[i], b->first[i], e);
            b->worst = fmax(b->worst, error_of(b->rig.dtype[i], got, rig_get(&b->rig, i, e)));
        }
}

static bool repeats(const struct bench *b)
{
    for (int i = 0; i < b->rig.plan.buffers; i++)
        if (memcmp(b->first[i], b->second[i], bytes_of(b, i)) != 0) return false;
    return true;
}

static void release(struct bench *b)
{
    if (b->kernel) jit_unload(b->kernel);
    for (int i = 0; i < b->rig.plan.buffers; i++) {
        device_free(b->gpu[i]);
        free(b->first[i]);
        free(b->second[i]);
    }
    rig_free(&b->rig);
}

static int run_case(const struct rows_case *c, const struct jit_device *device)
{
    char err[JIT_ERROR_SIZE] = "out of memory";
    struct bench b = {.device = *device};
    c->build(&b.rig);
    bool ran = upload(&b) && build(&b, err) && run(&b, b.first, err) && run(&b, b.second, err);
    ran = ran && (device_dry() || rig_run(&b.rig) == CODA_OK);
    if (ran && !device_dry()) compare(&b);
    bool same = ran && repeats(&b);
    int bad = !ran ? gpu_case(false, "rows", "%s: %s", c->name, err)
                   : gpu_case(b.worst <= 1 && same, "rows", "%s: error %.3f of what is allowed%s", c->name,
                              b.worst, same ? "" : ", and other bits the second time");
    release(&b);
    return bad;
}

int gpu_rows(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&device, err)) return gpu_case(false, "rows", "%s", err);
    int bad = 0;
    for (int i = 0; i < rows_case_count; i++)
        if (!device_emulated(&device) || scale_takes_one_in(3, i)) bad += run_case(&rows_cases[i], &device);
    return bad;
}
