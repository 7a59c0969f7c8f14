/* gpu_stream.c -- weights of few bits that stream past few rows: every code of 8 bits is what it is on the
 * host, bit for bit; packed ones against fp64, in all formats. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "codes.h"
#include "gpu_case.h"
#include "graph.h"
#include "util_device.h"
#include "util_packed.h"
#include "util_random.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_stream(void);

/* Every code of 8 bits, beside three rows and beside one, whose products have segments of K. */
static int try_codes(coda_dtype t, coda_dtype of)
{
    return gpu_codes(&(struct codes_case){"stream", 3, 48, NULL}, t, of) +
           gpu_codes(&(struct codes_case){"stream", 1, 48, NULL}, t, of);
}

/* ---- Packed ---- */

/* Shares that begin within blocks of records, K that ends within a chunk, a run or a record, more rows than a
 * block has; batches, as a layer's experts are; chunks of eight runs, as a block has one or two tiles. */
static const struct packed_sizes sizes[] = {
    {8, 304, 768, 0, CODA_BF16}, {3, 48, 328, 0, CODA_F16},     {16, 512, 1280, 0, CODA_F16},
    {1, 16, 256, 0, CODA_BF16},  {12, 1040, 520, 0, CODA_BF16}, {2, 13, 104, 0, CODA_F16},
    {5, 205, 328, 3, CODA_BF16}, {3, 90, 2664, 0, CODA_BF16},   {10, 117, 2048, 0, CODA_F16}};

static bool emulated;

/* So few columns of bytes cost as little otherwise, where there are many SMs: then the price decides. */
static bool may_do_otherwise(const struct packed_sizes *s) { return !emulated && s->n < 128 && s->k > 2048; }

static bool streams(const graph *g, unsigned flags, const char *loop)
{
    char text[16384] = "";
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.flags = CODA_PLAN_ONLY | flags;
    if (coda_compile(&p, g, &opt) == CODA_OK) coda_plan_print(p, CODA_TEXT_PLAN, text, sizeof text);
    coda_plan_free(p);
    return strstr(text, loop ? loop : "stream_mma") != NULL;
}

static int try_packed(const char *word, const struct packed_sizes *s)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_pack_format_find(word, &f);
    graph *g = packed_graph(&f, 0, s, false);
    void **want = run_reference(g, 5);
    double error = want ? run_on_gpu(g, 5, &opt, want) : -1;
    bool good = error >= 0 && error <= 3e-5 && (streams(g, 0, NULL) || may_do_otherwise(s));
    random_args_free(g, want);
    graph_free(g);
    return gpu_case(good, "stream", "%s times %s, %d x %d x %d of %d: error %.2e %s", word,
                    dtype_name(s->dtype), (int)s->m, (int)s->n, (int)s->k, (int)s->batch, error,
                    good ? "" : coda_error());
}

/* Columns that meet in a thread: halves of a block of records each, or rows of one in turns; shares that end
 * within what they have in common. */
#define PACKED_ROWS(rows, format, bytes, n, k)                                                               \
    "%x = input bf16[" #rows "," #k "]\n%p = weight u8[" #bytes "]\n%w = unpack %p {format=" format          \
    ",d0=" #n ",d1=" #k ",rank=2,to=bf16}\n%a = matmul %x, %w\n"
#define PACKED(format, bytes, n, k) PACKED_ROWS(5, format, bytes, n, k)
#define EXPERTS(format, bytes, m, n, k)                                                                      \
    "%x = input bf16[3," #m "," #k "]\n%p = weight u8[" #bytes "]\n%w = unpack %p {format=" format           \
    ",d0=3,d1=" #n ",d2=" #k ",rank=3,to=bf16}\n%a = matmul %x, %w\n%b = weight bf16[3,1," #n                \
    "]\n%c = add %a, %b\n"
static const struct {
    const char *name, *text;
    unsigned flags;
    const char *loop; /* NULL: stream_mma */
} pairs[] = {
    {.name = "experts, gate and up in turns",
     .text = EXPERTS("mxfp4", 261120, 5, 640, 256) "%g = slice %c {axis=2,start=0,stop=639,step=2}\n"
                                                   "%u = slice %c {axis=2,start=1,stop=640,step=2}\n"
                                                   "%y = swiglu %g, %u\noutput %y = %y\n"},
    {.name = "experts, gate and up stacked",
     .text = EXPERTS("q8_0", 522240, 12, 640, 256) "%g = slice %c {axis=2,start=0,stop=320,step=1}\n"
                                                   "%u = slice %c {axis=2,start=320,stop=640,step=1}\n"
                                                   "%y = swiglu %g, %u\noutput %y = %y\n"},
    {.name = "experts, a residual and a norm",
     .text = EXPERTS("int4_g128_f16", 253440, 20, 640, 256) "%r = input bf16[3,20,640]\n%y = add %c, %r\n"
                                                            "output %y = %y\n%z = rms_norm %y {eps=1e-5}\n"
                                                            "output %z = %z\n",
     .flags = CODA_BATCH_INVARIANT}, /* or so many rows would be wgmma's, by the price of some GPUs */
    {.name = "bytes times numbers of any size",
     .text = "%i = input bf16[5,272]\n%s = scale %i {alpha=15}\n%x = exp %s\n%w = weight f8e4m3[200,272]\n"
             "%y = matmul %x, %w\noutput %y = %y\n"},
    {.name = "a row of bytes, numbers of any size, halves of heads",
     .text = "%i = input bf16[1,4112]\n%s = scale %i {alpha=15}\n%x = exp %s\n%w = weight f8e4m3[256,4112]\n"
             "%a = matmul %x, %w\n%y = rope %a {base=10000,head_dim=64,rotary=64,heads=4,half=1}\n"
             "output %y = %y\n",
     .loop = "sm90_gemv"},
    {.name = "a row of bytes in two pieces, gate and up stacked",
     .text =
         "%x = input bf16[1,13840]\n%w = weight i8[160,13840]\n%a = matmul %x, %w\n"
         "%g = slice %a {axis=1,start=0,stop=80,step=1}\n%u = slice %a {axis=1,start=80,stop=160,step=1}\n"
         "%y = swiglu %g, %u\noutput %y = %y\n",
     .loop = "sm90_gemv"},
    {.name = "experts of bytes, with factors of rows",
     .text = "%x = input bf16[3,5,272]\n%w = weight f8e4m3[3,200,272]\n%r = input f32[3,5,1]\n%a = matmul "
             "%x, %w\n"
             "%y = mul %a, %r\noutput %y = %y\n"},
    {.name = "gate and up stacked",
     .text = PACKED("int4_g128_f16", 337920, 1280,
                    512) "%g = slice %a {axis=1,start=0,stop=640,step=1}\n%u = slice "
                         "%a {axis=1,start=640,stop=1280,step=1}\n"
                         "%y = swiglu %g, %u\noutput %y = %y\n"},
    {.name = "gate and up stacked, a row by digits",
     .text = PACKED_ROWS(1, "int4_g128_f16", 337920, 1280,
                         512) "%g = slice %a {axis=1,start=0,stop=640,step=1}\n%u = slice "
                              "%a {axis=1,start=640,stop=1280,step=1}\n"
                              "%y = swiglu %g, %u\noutput %y = %y\n"},
    {.name = "gate and up stacked, two rows by digits",
     .text = PACKED_ROWS(2, "q4_k", 368640, 2560,
                         256) "%g = slice %a {axis=1,start=0,stop=1280,step=1}\n%u = slice "
                              "%a {axis=1,start=1280,stop=2560,step=1}\n"
                              "%y = swiglu %g, %u\noutput %y = %y\n"},
    {.name = "gate and up stacked, 6 bits of scales",
     .text = PACKED("q4_k", 368640, 2560, 256) "%g = slice %a {axis=1,start=0,stop=1280,step=1}\n%u = slice "
                                               "%a {axis=1,start=1280,stop=2560,step=1}\n"
                                               "%y = swiglu %g, %u\noutput %y = %y\n"},
    {.name = "gate and up stacked, 8 bits of scales",
     .text = PACKED_ROWS(12, "q6_k", 537600, 2560,
                         256) "%g = slice %a {axis=1,start=0,stop=1280,step=1}\n%u = slice "
                              "%a {axis=1,start=1280,stop=2560,step=1}\n"
                              "%y = swiglu %g, %u\noutput %y = %y\n"},
    {.name = "gate and up in turns",
     .text =
         PACKED("q4_k", 184320, 1280, 256) "%g = slice %a {axis=1,start=0,stop=1279,step=2}\n%u = slice %a "
                                           "{axis=1,start=1,stop=1280,step=2}\n"
                                           "%y = swiglu %g, %u\noutput %y = %y\n"},
    {.name = "experts, gate and up stacked, eight runs",
     .text = EXPERTS("q4_k", 110592, 12, 32, 2048) "%g = slice %c {axis=2,start=0,stop=16,step=1}\n"
                                                   "%u = slice %c {axis=2,start=16,stop=32,step=1}\n"
                                                   "%y = swiglu %g, %u\noutput %y = %y\n"},
    {.name = "halves of heads, eight runs",
     .text =
         PACKED("int4_g128_f16", 135168, 128,
                2048) "%y = rope %a {base=10000,head_dim=128,rotary=128,heads=1,half=1}\noutput %y = %y\n"},
    {.name = "a row, eight runs of three chunks",
     .text = PACKED_ROWS(1, "int4_g128_f16_zeros", 180096, 128, 2688) "output %y = %a\n"},
    {.name = "a row, halves of heads, eight runs of three chunks",
     .text = PACKED_ROWS(
         1, "int4_g128_f16", 177408, 128,
         2688) "%y = rope %a {base=10000,head_dim=128,rotary=128,heads=1,half=1}\noutput %y = %y\n"},
    {.name = "halves of heads",
     .text =
         PACKED("int4_g128_f16", 168960, 640,
                512) "%y = rope %a {base=10000,head_dim=128,rotary=128,heads=4,half=1}\noutput %y = %y\n"},
    {.name = "halves of a part of heads",
     .text = PACKED("q8_0", 208896, 384,
                    512) "%y = rope %a {base=10000,head_dim=64,rotary=32,heads=4,half=1}\noutput %y = %y\n"},
    {.name = "neighbours in heads",
     .text = PACKED("mxfp4", 174080, 640,
                    512) "%y = rope %a {base=10000,head_dim=64,rotary=64,heads=8,half=0}\noutput %y = %y\n"},
};

static int try_pairs(int i)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.flags = pairs[i].flags;
    graph *g = graph_parse(pairs[i].text);
    void **want = g ? run_reference(g, 5) : NULL;
    double error = want ? run_on_gpu(g, 5, &opt, want) : -1;
    bool good = error >= 0 && error <= 0.02 && streams(g, pairs[i].flags, pairs[i].loop);
    if (want) random_args_free(g, want);
    int failed =
        gpu_case(good, "stream", "packed, %s: error %.2e %s", pairs[i].name, error, good ? "" : coda_error());
    graph_free(g);
    return failed;
}

/* The emulator compiles slowly: of half of the formats, by the seed, a size. */
static int try_all_packed(const struct jit_device *device)
{
    int failed = 0;
    for (int i = 0; i < packed_whole_count; i++)
        for (int k = 0; k < ARRAY_SIZE(sizes); k++) {
            bool some = scale_is_full() || (i % ARRAY_SIZE(sizes) == k && scale_takes_half(i));
            if (!device_emulated(device) || some) failed += try_packed(packed_formats[i], &sizes[k]);
        }
    return failed;
}

/* In a thinned run of what is listed a half or less, by the seed. */
static bool is_taken(int i) { return !emulated || !scale_is_thinned() || scale_takes_half(i); }

/* A row or two times codes of 4 bits, by digits but where groups are too short: K that ends within a group
 * or a run, several passes. Blocks have as many tiles as that takes, of a card's many SMs no less. */
static int try_digits(void)
{
    static const char *const words[] = {
        "q4_0",          "q4_1",          "q4_k",           "int4_g128_f16_zeros",
        "int4_g64_bf16", "int4_g256_f32", "int4_g128_bf16", "int4_g16_f16"};
    static const struct packed_sizes few[] = {{1, 517, 1320, 0, CODA_BF16}, {1, 1040, 2664, 0, CODA_F16},
                                              {1, 800, 3176, 3, CODA_BF16}, {1, 2000, 264, 0, CODA_F16},
                                              {2, 1013, 1320, 0, CODA_F16}, {2, 900, 2120, 3, CODA_BF16}},
                                     many[] = {{1, 16400, 2664, 0, CODA_BF16}, {2, 23000, 2664, 0, CODA_F16}};
    int failed = 0;
    for (int i = 0; i < ARRAY_SIZE(words); i++) {
        for (int k = 0; k < ARRAY_SIZE(few) && is_taken(i); k++)
            if (emulated && (scale_is_full() || k == (random_seed() / 6 % 2 ? i % 4 : 4 + i / 2 % 2)))
                failed += try_packed(words[i], &few[k]);
        for (int k = 0; k < ARRAY_SIZE(many) && !emulated; k++) failed += try_packed(words[i], &many[k]);
    }
    return failed;
}

int gpu_stream(void)
{
    static const coda_dtype types[] = {CODA_F8E4M3, CODA_F8E5M2, CODA_I8};
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "stream", "%s", err);
    emulated = device_emulated(&device);
    for (int i = 0; i < 2 * ARRAY_SIZE(types); i++)
        if (is_taken(i)) failed += try_codes(i % 2 ? CODA_F16 : CODA_BF16, types[i / 2]);
    for (int i = 0; i < ARRAY_SIZE(pairs); i++)
        if (is_taken(i)) failed += try_pairs(i);
    /* In the last one blocks have ten tiles or eleven, of four SMs and of an H200's. */
    const struct packed_sizes many[] = {{13, 528, 1280, 0, CODA_BF16},
                                        {16, 80, 264, 3, CODA_F16},
                                        {16, emulated ? 672 : 22016, 1024, 0, CODA_BF16}};
    for (int i = 0; i < ARRAY_SIZE(many); i++) failed += try_packed("q4_k", &many[i]);
    return failed + try_digits() + try_all_packed(&device);
}
