/* gpu_mixed.c -- weights of few bits beside more rows than streams take, multiplied by wgmma, which has them
 * from registers: every code of 8 bits is what it is on the host, bit for bit; packed ones against fp64, in
 * all formats; pairs of columns, and what an epilogue reads and writes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "codes.h"
#include "executable.h"
#include "gpu_case.h"
#include "graph.h"
#include "pack.h"
#include "schedule.h"
#include "util_device.h"
#include "util_packed.h"
#include "util_random.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_mixed(void);

/* Does the plan, on this machine, have the main loop? Streams may be cheaper where rows are few. */
static bool is_mixed(const graph *g)
{
    char text[16384] = "";
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.flags = CODA_PLAN_ONLY;
    if (coda_compile(&p, g, &opt) == CODA_OK) coda_plan_print(p, CODA_TEXT_PLAN, text, sizeof text);
    coda_plan_free(p);
    return strstr(text, "sm90_mixed") != NULL;
}

/* Every code of 8 bits. */
static int try_codes(coda_dtype t, coda_dtype of)
{
    return gpu_codes(&(struct codes_case){"mixed", 70, 272, is_mixed}, t, of);
}

/* ---- Random weights ---- */

/* mixed: it should have this main loop. */
static int try_graph(graph *g, const char *what, double most, bool mixed)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void **want = g ? run_reference(g, 5) : NULL;
    double error = want ? run_on_gpu(g, 5, &opt, want) : -1;
    bool same = want && is_mixed(g) == mixed, good = error >= 0 && error <= most && same;
    if (want) random_args_free(g, want);
    graph_free(g);
    return gpu_case(good, "mixed", "%s: error %.2e %s", what, error,
                    good   ? ""
                    : same ? coda_error()
                           : "has another main loop");
}

/* Rows that fill a tile or not, of one or several blocks; columns that end within a block of records, and
 * within what the consumers of a block have together; K that ends within a slot, a record, a product;
 * batches, as a layer's experts are. */
static const struct packed_sizes sizes[] = {{70, 304, 768, 0, CODA_BF16},   {300, 48, 328, 0, CODA_F16},
                                            {90, 1040, 1280, 0, CODA_BF16}, {130, 13, 104, 0, CODA_F16},
                                            {140, 205, 520, 0, CODA_BF16},  {257, 256, 256, 0, CODA_BF16},
                                            {150, 205, 328, 3, CODA_BF16}};

/* Weights with minima become two of 16 bits in bf16 alone, which has the range. */
static int try_packed(const char *word, const struct packed_sizes *s)
{
    char what[128];
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_pack_format_find(word, &f);
    snprintf(what, sizeof what, "%s times %s, %d x %d x %d of %d", word, dtype_name(s->dtype), (int)s->m,
             (int)s->n, (int)s->k, (int)s->batch);
    bool split = f.zeros == CODA_ZEROS_MINIMUM;
    return try_graph(packed_graph(&f, 0, s, false), what, 3e-5, !split || s->dtype == CODA_BF16);
}

static int try_bytes(coda_dtype of, const struct packed_sizes *s)
{
    char text[256], what[128];
    int k = (int)s->k / 16 * 16, batch = s->batch ? (int)s->batch : 1;
    snprintf(
        text, sizeof text,
        "%%x = input %s[%d,%d,%d]\n%%w = weight %s[%d,%d,%d]\n%%y = matmul %%x, %%w {f32=1}\noutput %%o = "
        "%%y\n",
        dtype_name(s->dtype), batch, (int)s->m, k, dtype_name(of), batch, (int)s->n, k);
    snprintf(what, sizeof what, "%s times %s, %d x %d x %d of %d", dtype_name(of), dtype_name(s->dtype),
             (int)s->m, (int)s->n, k, batch);
    return try_graph(graph_parse(text), what, 3e-5, true);
}

/* ---- Epilogues ---- */

#define PACKED(format, bytes, n, k)                                                                          \
    "%x = input bf16[150," #k "]\n%p = weight u8[" #bytes "]\n%w = unpack %p {format=" format ",d0=" #n      \
    ",d1=" #k ",rank=2,to=bf16}\n%a = matmul %x, %w\n"
#define EXPERTS(format, bytes, n, k)                                                                         \
    "%x = input bf16[3,150," #k "]\n%p = weight u8[" #bytes "]\n%w = unpack %p {format=" format              \
    ",d0=3,d1=" #n ",d2=" #k ",rank=3,to=bf16}\n%a = matmul %x, %w\n%b = weight bf16[3,1," #n                \
    "]\n%c = add %a, %b\n"
#define BYTES(n, k)                                                                                          \
    "%x = input bf16[150," #k "]\n%w = weight f8e4m3[" #n "," #k "]\n%s = weight f32[" #n                    \
    "]\n%m = matmul %x, %w\n%a = mul %m, %s\n"
#define GATED                                                                                                \
    "%g = slice %a {axis=1,start=0,stop=640,step=1}\n%u = slice %a {axis=1,start=640,stop=1280,step=1}\n"    \
    "%y = swiglu %g, %u\noutput %y = %y\n"
#define IN_TURNS                                                                                             \
    "%g = slice %a {axis=1,start=0,stop=1279,step=2}\n%u = slice %a {axis=1,start=1,stop=1280,step=2}\n"     \
    "%y = swiglu %g, %u\noutput %y = %y\n"
#define ROPE(head, rotary, heads, half)                                                                      \
    "%y = rope %a {base=10000,head_dim=" #head ",rotary=" #rotary ",heads=" #heads ",half=" #half            \
    "}\noutput %y = %y\n"
static const struct {
    const char *name, *text;
} epilogues[] = {
    {"gate and up stacked", PACKED("int4_g128_f16", 337920, 1280, 512) GATED},
    {"gate and up in turns", PACKED("q4_k", 184320, 1280, 256) IN_TURNS},
    {"gate and up of bytes", BYTES(1280, 272) GATED},
    {"gate and up of bytes in turns", BYTES(1280, 272) IN_TURNS},
    {"halves of heads", PACKED("int4_g128_f16", 168960, 640, 512) ROPE(128, 128, 4, 1)},
    {"halves of a part of heads", PACKED("q8_0", 208896, 384, 512) ROPE(64, 32, 4, 1)},
    {"neighbours in heads", PACKED("mxfp4", 174080, 640, 512) ROPE(64, 64, 8, 0)},
    {"halves of heads, of bytes",
     "%x = input bf16[150,272]\n%w = weight f8e4m3[640,272]\n%a = matmul %x, %w\n" ROPE(128, 128, 4, 1)},
    {"bias, residual and norm",
     PACKED("int4_g128_f16", 168960, 640, 512) "%b = weight bf16[640]\n%r = input bf16[150,640]\n"
                                               "%c = add %a, %b\n%y = add %c, %r\noutput %y = %y\n"
                                               "%z = rms_norm %y {eps=1e-5}\noutput %z = %z\n"},
    {"in fp32, with scales of columns", BYTES(200, 272) "output %y = %a\n"},
    {"experts, gate and up in turns",
     EXPERTS("mxfp4", 261120, 640, 256) "%g = slice %c {axis=2,start=0,stop=639,step=2}\n"
                                        "%u = slice %c {axis=2,start=1,stop=640,step=2}\n"
                                        "%y = swiglu %g, %u\noutput %y = %y\n"},
    {"experts, gate and up stacked",
     EXPERTS("q8_0", 522240, 640, 256) "%g = slice %c {axis=2,start=0,stop=320,step=1}\n"
                                       "%u = slice %c {axis=2,start=320,stop=640,step=1}\n"
                                       "%y = swiglu %g, %u\noutput %y = %y\n"},
    {"experts, a residual and a norm",
     EXPERTS("int4_g128_f16", 253440, 640,
             256) "%r = input bf16[3,150,640]\n%y = add %c, %r\n"
                  "output %y = %y\n%z = rms_norm %y {eps=1e-5}\noutput %z = %z\n"},
};

static int try_epilogue(int i)
{
    return try_graph(graph_parse(epilogues[i].text), epilogues[i].name, 0.02, true);
}

/* ---- Any format, by any main loop ---- */

/* Words of formats are drawn until one is a format. */
static coda_pack_format draw_format(struct random *r, char *word, size_t room)
{
    static const char *const codes[] = {"int4", "int5", "int6", "int8", "e2m1", "e4m3", "e5m2"},
                             *const groups[] = {"row", "g16", "g32", "g40", "g64", "g100", "g128", "g256"},
                             *const scales[] = {"f32", "bf16", "f16", "e8m0", "e4m3"},
                             *const zeros[] = {"", "", "_zeros", "_min"};
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    do
        snprintf(word, room, "%s_%s_%s%s", codes[random_below(r, ARRAY_SIZE(codes))],
                 groups[random_below(r, ARRAY_SIZE(groups))], scales[random_below(r, ARRAY_SIZE(scales))],
                 zeros[random_below(r, ARRAY_SIZE(zeros))]);
    while (coda_pack_format_find(word, &f) != CODA_OK);
    return f;
}

/* Rows of each main loop, and of the first and last of its tiles. */
static int try_drawn(struct random *r)
{
    static const int rows[] = {1, 2, 9, 16, 17, 33, 64, 65, 80, 96, 97, 128, 129, 200, 256, 257, 300},
                     columns[] = {16, 48, 205, 304, 1040, 2080},
                     depths[] = {128, 256, 328, 512, 520, 640, 768, 1000, 1280, 2048};
    char word[64], what[128];
    const coda_pack_format f = draw_format(r, word, sizeof word);
    const struct packed_sizes s = {.m = rows[random_below(r, ARRAY_SIZE(rows))],
                                   .n = columns[random_below(r, ARRAY_SIZE(columns))],
                                   .k = depths[random_below(r, ARRAY_SIZE(depths))],
                                   .dtype = random_chance(r, 50) ? CODA_BF16 : CODA_F16};
    graph *g = packed_graph(&f, 0, &s, false);
    bool mixed = is_mixed(g);
    snprintf(what, sizeof what, "drawn, %s times %s, %d x %d x %d", word, dtype_name(s.dtype), (int)s.m,
             (int)s.n, (int)s.k);
    return try_graph(g, what, 3e-5, mixed);
}

static int try_all_drawn(bool emulated)
{
    enum { DRAWN = 100, EMULATED = 12 };
    struct random r = {random_seed()};
    int failed = 0;
    for (int i = 0; i < (emulated ? scaled(EMULATED) : DRAWN); i++) failed += try_drawn(&r);
    return failed;
}

/* ---- 65 to 112 rows ---- */

/* A tile of 128 rows, of which a product has those that there are, by 16, and up to 96 three consumers: ends
 * and beginnings of such sixteens, where an SM has columns for three; with scales that promote, with those
 * that fold, and without. */
static int try_some_rows(const char *word, int rows)
{
    const struct packed_sizes s = {rows, 1040, 640, 0, CODA_BF16};
    return word ? try_packed(word, &s) : try_bytes(CODA_F8E4M3, &s);
}

/* The same with an epilogue, whose tensors have fewer rows than its tile. */
static int try_some_rows_epilogue(int i, const char *rows)
{
    char text[1024] = "", what[128];
    const char *from = epilogues[i].text, *at;
    for (; (at = strstr(from, "150,")) && strlen(text) < 512; from = at + 3) {
        strncat(text, from, (size_t)(at - from));
        strcat(text, rows);
    }
    strcat(text, from);
    snprintf(what, sizeof what, "%s, %s rows", epilogues[i].name, rows);
    return try_graph(graph_parse(text), what, 0.02, true);
}

static int try_all_some_rows(bool all)
{
    static const char *const words[] = {"int4_g128_bf16", NULL, "mxfp4", "q4_0", "int4_g256_f32"};
    static const int rows[] = {96, 65, 80, 95, 112};
    int failed = 0;
    for (int i = 0; i < ARRAY_SIZE(words); i++)
        for (int k = 0; k < ARRAY_SIZE(rows); k++)
            if (all || (i == k && scale_takes_half(i))) failed += try_some_rows(words[i], rows[k]);
    /* codes of 4 bits that are no integers, with a scale for each slot: by three consumers, in place */
    failed += try_some_rows("e2m1_g128_bf16", 80) + try_some_rows("e2m1_g128_bf16", 200);
    for (int i = 0; i < ARRAY_SIZE(epilogues); i++)
        if (all || (i % 4 == 0 && scale_takes_half(i / 4)))
            failed += try_some_rows_epilogue(i, i % 8 ? "96" : "75");
    return failed;
}

/* ---- Scales of sums that are scaled in place ---- */

/* Scales of a row that are 0, negative, subnormal, far from those beside them. */
static void set_scales(const struct pack_format *f, int64_t records, uint8_t *packed)
{
    static const float factor[] = {1, 0, -1, 0x1p-30f, 3, -0x1p-140f, 1, 0, -0x1.8p20f};
    const struct pack_record p = pack_record(f);
    for (int64_t i = 0; i < records; i++)
        for (int row = 0; row < PACK_ROWS; row++) {
            const float x = 0.01f * factor[(i + row) % ARRAY_SIZE(factor)];
            struct pack_scales s;
            pack_get_scales(f, &p, packed + i * p.bytes, row, &s);
            memcpy(s.scale, &x, sizeof x);
            pack_put_scales(f, &p, packed + i * p.bytes, row, &s);
        }
}

static struct pack_format format_of(const graph *g)
{
    int i = 0;
    while (g->node[i].op != OP_UNPACK) i++;
    return node_format(&g->node[i]);
}

static int try_scales(int sms)
{
    enum { WEIGHTS = 0 }; /* the argument */
    const struct packed_sizes s = {250, 160 * sms, 2048, 0, CODA_BF16};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_pack_format word = CODA_PACK_FORMAT_INIT;
    struct run_buffers b = {0};
    coda_plan *p = NULL;
    coda_pack_format_find("int4_g128_f32", &word);
    graph *g = packed_graph(&word, 0, &s, false);
    const struct pack_format f = format_of(g);
    void **arg[] = {random_args(g, 7, true), random_args(g, 7, false)};
    for (int i = 0; i < 2; i++) set_scales(&f, pack_records(&f, s.k) * (s.n / PACK_ROWS), arg[i][WEIGHTS]);
    opt.device = CODA_DEVICE_GPU;
    bool good = coda_evaluate(g, arg[0]) == CODA_OK && coda_compile(&p, g, &opt) == CODA_OK &&
                run_upload(&b, g, p, arg[1], true) && run_prepare(&b, p) && run_plan(&b, p);
    double error = good ? run_worst_error(g, arg[1], arg[0]) : -1;
    int rows = p ? p->plan.schedule[0].tile.bm : 0;
    int failed = gpu_case(good && rows == 256 && error <= 3e-5, "mixed", "scales, %d rows: error %.2e %s",
                          rows, error, good ? "" : coda_error());
    run_release(&b);
    coda_plan_free(p);
    for (int i = 0; i < 2; i++) random_args_free(g, arg[i]);
    graph_free(g);
    return failed;
}

/* The emulator compiles slowly: of half of the formats, by the seed, a size. */
int gpu_mixed(void)
{
    static const coda_dtype types[] = {CODA_F8E4M3, CODA_F8E5M2, CODA_I8};
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "mixed", "%s", err);
    bool all = !device_emulated(&device) || scale_is_full();
    for (int i = 0; i < ARRAY_SIZE(types); i++) {
        if (all || scale_takes_half(i)) failed += try_codes(CODA_BF16, types[i]);
        if (all) failed += try_codes(CODA_F16, types[i]);
        for (int k = 0; k < ARRAY_SIZE(sizes); k++)
            if (all || k == 2 * i) failed += try_bytes(types[i], &sizes[k]);
    }
    for (int i = 0; i < packed_whole_count; i++)
        for (int k = 0; k < ARRAY_SIZE(sizes); k++)
            if (all || (i % ARRAY_SIZE(sizes) == k && scale_takes_half(i)))
                failed += try_packed(packed_formats[i], &sizes[k]);
    for (int i = 0; i < ARRAY_SIZE(epilogues); i++)
        if (all || scale_takes_half(i)) failed += try_epilogue(i);
    return failed + try_all_some_rows(all) + try_scales(device.sms) + try_all_drawn(device_emulated(&device));
}
