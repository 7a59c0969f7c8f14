/* gpu_packed.c -- packed weights on the GPU against fp64: all formats, parts of records, all views; and plain
 * weights of 8 bits. */
#include <stdio.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_packed.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_packed(void);

static int run(const char *word, int reader, const struct packed_sizes *s)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_pack_format_find(word, &f);
    graph *g = packed_graph(&f, reader, s, false);
    void **want = run_reference(g, 5);
    opt.fold = CODA_FOLD_COPY;
    double error = want ? run_on_gpu(g, 5, &opt, want) : -1;
    bool good = error >= 0 && error <= 3e-5;
    random_args_free(g, want);
    graph_free(g);
    return gpu_case(good, "packed", "%s of %s, %s, %d x %d x %d of %d: error %.2e %s",
                    packed_readers[reader].name, word, dtype_name(s->dtype), (int)s->m, (int)s->n, (int)s->k,
                    (int)s->batch, error, good ? "" : coda_error());
}

/* Plain weights of 8 bits, beside more rows than streaming loops take, whole and in part. */
static int small(coda_dtype t, int way)
{
    static const char *const graphs[] = {
        "%%x = input bf16[37,72]\n%%w = weight %s[50,72]\n%%y = matmul %%x, %%w {f32=1}\noutput %%o = %%y\n",
        "%%x = input f16[37,50]\n%%w = weight %s[50,72]\n%%y = matmul %%x, %%w {kn=1, f32=1}\noutput %%o = "
        "%%y\n",
        "%%x = input f16[37,51]\n%%v = weight %s[50,77]\n%%w = slice %%v {axis=1, start=9, stop=60, step=1}\n"
        "%%y = matmul %%x, %%w {f32=1}\noutput %%o = %%y\n",
        "%%x = input bf16[3,37,72]\n%%w = weight %s[3,50,72]\n%%y = matmul %%x, %%w {f32=1}\n"
        "%%g = slice %%y {axis=2, start=0, stop=25, step=1}\n%%u = slice %%y {axis=2, start=25, stop=50, "
        "step=1}\n"
        "%%z = mul %%g, %%u\noutput %%o = %%z\n"};
    char text[1024];
    snprintf(text, sizeof text, graphs[way], dtype_name(t));
    graph *g = graph_parse(text);
    void **want = g ? run_reference(g, 5) : NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    double error = want ? run_on_gpu(g, 5, &opt, want) : -1;
    bool good = error >= 0 && error <= 3e-5;
    random_args_free(g, want);
    graph_free(g);
    return gpu_case(good, "packed", "%s, way %d: error %.2e %s", dtype_name(t), way, error,
                    good ? "" : coda_error());
}

static int smalls(bool emulated)
{
    static const coda_dtype dtypes[] = {CODA_F8E4M3, CODA_F8E5M2, CODA_I8, CODA_U8};
    int failed = 0;
    for (int i = 0; i < 4 * ARRAY_SIZE(dtypes); i++)
        if (gpu_mine(i) && (!emulated || i / 4 == i % 4)) failed += small(dtypes[i / 4], i % 4);
    return failed;
}

/* All sizes and dtypes of each format and way are ten minutes of NVRTC: a seeded sixth, unless the run is
 * full. The emulator compiles slowly: of a third of the formats one way to read it, which differs. */
int gpu_packed(void)
{
    static const coda_dtype dtypes[] = {CODA_BF16, CODA_F16, CODA_F32};
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    int failed = 0, n = 0;
    if (!device_open(&dev, err)) return gpu_case(false, "packed", "%s", err);
    for (int i = 0; i < packed_format_count; i++)
        for (int reader = 0; reader < packed_reader_count; reader++)
            for (int k = 0; k < 3 * packed_size_count; k++) {
                struct packed_sizes s = packed_sizes[k / 3];
                s.dtype = dtypes[k % 3];
                bool some = (i + reader) % packed_reader_count == k % 3 && k / 3 == i % packed_size_count &&
                            scale_takes_one_in(3, i);
                if (packed_readers[reader].rounds && s.dtype != CODA_F32) continue;
                if (device_emulated(&dev) ? !some : !scale_takes_one_in(6, i + reader + k)) continue;
                if (gpu_mine(n++)) failed += run(packed_formats[i], reader, &s);
            }
    return failed + smalls(device_emulated(&dev));
}
