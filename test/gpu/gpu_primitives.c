/* gpu_primitives.c -- every primitive on the device against its reference, with the inputs and bounds of
 * the host test: this is where the real ex2, rcp and rsqrt are. Driven by the table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "gpu_case.h"
#include "prim.h"
#include "util_device.h"
#include "util_primitives.h"
#include "util_random.h"
#include "util_scale.h"

/* Every kernel here takes this one struct. */
struct params {
    const float *in;
    float *out;
    int count;
};
#define PARAMS                                                                                               \
    "struct Params { const float *in; float *out; int count; };\n"                                           \
    "extern \"C\" __global__ void probe(const __grid_constant__ Params p)\n{\n"                              \
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    (void)i;\n"

static struct jit_device device;
static char err[JIT_ERROR_SIZE], why[512];

static coda_status launch(const char *text, struct jit_launch shape, struct params *params)
{
    struct jit_cubin cubin = {0};
    struct jit_kernel *kernel = NULL;
    coda_status s = jit_compile(&cubin, "probe", text, &(struct jit_options){.arch = device.arch}, err);
    if (s == CODA_OK) s = jit_load(&kernel, &cubin, "probe", 0, &device, NULL, err);
    if (s == CODA_OK) s = jit_launch(kernel, &shape, params, sizeof *params, NULL, err);
    if (s == CODA_OK && !device_wait()) s = CODA_E_DEVICE, snprintf(err, sizeof err, "the kernel failed");
    jit_unload(kernel);
    jit_cubin_free(&cubin);
    return s;
}

/* Runs `text` over `threads` threads in blocks of `block`, from in[ins] to out[outs]; outputs start as
 * 0xFF. True if it ran; else `err` says why not. */
static bool run(const char *text, int threads, int block, const float *in, size_t ins, float *out,
                size_t outs)
{
    void *from = device_alloc(ins * sizeof *in), *to = device_alloc(outs * sizeof *out);
    _Alignas(JIT_PARAMS_ALIGN) struct params p = {from, to, threads};
    struct jit_launch shape = {(unsigned)CEIL_DIV(threads, block), (unsigned)block, 0, false};
    snprintf(err, sizeof err, "no device memory");
    bool ok = from && to && device_upload(from, in, ins * sizeof *in) &&
              device_fill(to, 0xff, outs * sizeof *out) && launch(text, shape, &p) == CODA_OK &&
              device_download(out, to, outs * sizeof *out);
    device_free(from);
    device_free(to);
    return ok;
}

static int try_map(const struct prim *p, bool narrow)
{
    struct text t = {0};
    int count, n = p->inputs + p->params, bad = 0;
    float *args = map_cases(p, random_seed(), &count), *out = malloc(sizeof *out * (size_t)count);
    double worst = 0, error;
    text_printf(&t, "#include \"%s\"\n" PARAMS "    if (i >= p.count) return;\n", p->header);
    text_printf(&t, "    const float *x = p.in + %d * i;\n    p.out[i] = coda::map::%s::%s(", n, p->name,
                narrow ? "narrow" : "apply");
    for (int i = 0; i < n; i++) text_printf(&t, "%sx[%d]", i ? ", " : "", i);
    text_append(&t, ");\n}\n");
    bool ran = run(text_str(&t), count, 256, args, (size_t)(count * n), out, (size_t)count);
    snprintf(why, sizeof why, "%s", err);
    for (int c = 0; ran && c < count; c++) {
        bad += !(narrow ? map_close_narrow : map_close)(p, args + c * n, out[c], &error, why, sizeof why);
        worst = MAX(worst, error);
    }
    if (ran && !bad) snprintf(why, sizeof why, "%d calls, relative error %.1e", count, worst);
    text_free(&t);
    free(args);
    free(out);
    return gpu_case(ran && !bad, p->name, "%s%s", narrow ? "narrow, " : "", why);
}

/* A row is x[ROW_MOST], n, key; a block of two warps folds each one. */
static int try_reduce(const struct prim *p)
{
    static struct row_case row[ROW_CASES];
    static float in[ROW_CASES][ROW_MOST + 2], out[ROW_CASES][64];
    struct text t = {0};
    double worst = 0, error;
    bool good = true;
    for (int i = 0; i < ROW_CASES; i++) {
        row_case(&row[i], i, random_seed());
        memcpy(in[i], row[i].x, sizeof row[i].x);
        in[i][ROW_MOST] = (float)row[i].n;
        in[i][ROW_MOST + 1] = row[i].key;
    }
    text_printf(&t, "#include \"%s\"\n#include \"block/fold.cuh\"\n" PARAMS, p->header);
    text_printf(&t, "    using R = coda::reduce::%s;\n    __shared__ float room[2 * R::state];\n", p->name);
    text_printf(&t, "    const float *x = p.in + blockIdx.x * %d;\n", ROW_MOST + 2);
    text_printf(&t,
                "    R::State s;\n    R::init(s);\n    for (int c = threadIdx.x; c < (int)x[%d]; c += 64)\n",
                ROW_MOST);
    text_printf(&t, "        R::push(s, x[c], c, x[%d]);\n    coda::block::fold_warps<R, 2>(s, room);\n",
                ROW_MOST + 1);
    text_append(&t, "    p.out[i] = R::finish(s);\n}\n");
    bool ran =
        run(text_str(&t), ROW_CASES * 64, 64, in[0], sizeof in / sizeof(float), out[0], ROW_CASES * 64);
    snprintf(why, sizeof why, "%s", err);
    for (int i = 0; ran && good && i < ROW_CASES; i++) {
        good = row_close(p, &row[i], CEIL_DIV(row[i].n, 64), out[i][0], &error, why, sizeof why);
        worst = MAX(worst, error);
        for (int k = 1; good && k < 64; k++) good = memcmp(&out[i][0], &out[i][k], sizeof(float)) == 0;
    }
    if (ran && good) snprintf(why, sizeof why, "%d rows, relative error %.1e", ROW_CASES, worst);
    text_free(&t);
    return gpu_case(ran && good, p->name, "%s", why);
}

/* Arguments a, b, position, high, low; results a', b'. */
static int try_rope(void)
{
    enum { COUNT = 1 << 16 };
    static float in[COUNT][5], out[COUNT][2];
    static double want[COUNT][2];
    static const double bases[] = {10000, 500000, 1e6, 1};
    struct random r = {random_seed()};
    double worst = 0;
    for (int c = 0; c < COUNT; c++) {
        int rotary = 2 << random_below(&r, 8), i = (int)random_below(&r, rotary / 2);
        double base = bases[random_below(&r, 4)];
        for (int k = 0; k < 2; k++) in[c][k] = (float)random_normal(&r);
        in[c][2] = (float)(random_next(&r) >> (44 + random_below(&r, 20)));
        rope_frequency(base, rotary, i, &in[c][3], &in[c][4]);
        rope_reference(want[c], in[c][0], in[c][1], in[c][2], base, rotary, i);
    }
    bool ran =
        run("#include \"pair/rope.cuh\"\n#include \"port/turn.cuh\"\n" PARAMS
            "    const float *x = p.in + 5 * i;\n"
            "    coda::Pair r = coda::pair::rope::apply(x[0], x[1], coda::port::turn(x[2], x[3], x[4]));\n"
            "    p.out[2 * i] = r.a;\n    p.out[2 * i + 1] = r.b;\n}\n",
            COUNT, 256, in[0], sizeof in / sizeof(float), out[0], sizeof out / sizeof(float));
    for (int c = 0; c < COUNT; c++)
        for (int k = 0; k < 2; k++)
            worst = fmax(worst, fabs(out[c][k] - want[c][k]) / (fabs(in[c][0]) + fabs(in[c][1])));
    if (!ran) return gpu_case(false, "rope", "%s", err);
    return gpu_case(worst < 1e-6, "rope", "%d pairs, error %.1e of |a| + |b|", COUNT, worst);
}

/* bf16 and f16 one by one and packed, i32: the bits of dtype.c for numbers of all sizes. */
static int try_conversions(void)
{
    enum { COUNT = 1 << 18 };
    static float in[COUNT];
    static uint32_t out[COUNT][3];
    struct random r = {random_seed()};
    int bad = 0;
    for (int c = 0; c < COUNT; c++) {
        uint32_t u = (uint32_t)random_next(&r);
        memcpy(&in[c], &u, 4);
        if (isnan(in[c]) || c % 4 == 0) in[c] = (float)random_normal(&r);
        if (c % 8 == 1)
            in[c] = (float)ldexp(1024.5 + (double)random_below(&r, 1024), -(int)random_below(&r, 36));
    }
    bool ran = run("#include \"types.cuh\"\nusing namespace coda;\n" PARAMS
                   "    u32 *out = (u32 *)p.out + 3 * i;\n    float x = p.in[i], y = p.in[i ^ 1];\n"
                   "    bf16 b[2] = {from_float<bf16>(x), from_float<bf16>(y)};\n"
                   "    f16 h[2] = {from_float<f16>(x), from_float<f16>(y)};\n"
                   "    out[0] = pack2<bf16>(x, y);\n    out[1] = pack2<f16>(x, y);\n"
                   "    out[2] = (u32)from_float<i32>(x);\n"
                   "    Pair u = unpack2<f16>(out[1]), v = unpack2<bf16>(out[0]);\n"
                   "    if (out[0] != (b[0].bits | (u32)b[1].bits << 16)) out[0] = ~0u;\n"
                   "    if (out[1] != (h[0].bits | (u32)h[1].bits << 16)) out[1] = ~0u;\n"
                   "    if (u.a != to_float(h[0]) || u.b != to_float(h[1])) out[1] = ~0u;\n"
                   "    if (v.a != to_float(b[0]) || v.b != to_float(b[1])) out[0] = ~0u;\n}\n",
                   COUNT, 256, in, COUNT, (float *)out[0], 3 * COUNT);
    for (int c = 0; ran && c < COUNT; c++) {
        uint16_t half[2][2];
        for (int k = 0; k < 2; k++) {
            dtype_store(CODA_BF16, half[0], k, in[c ^ k]);
            dtype_store(CODA_F16, half[1], k, in[c ^ k]);
        }
        int32_t whole = fabsf(in[c]) < 0x1p31f ? (int32_t)in[c] : in[c] > 0 ? INT32_MAX : INT32_MIN;
        bad += memcmp(half, out[c], 8) != 0 || out[c][2] != (uint32_t)whole;
    }
    if (!ran) return gpu_case(false, "conversions", "%s", err);
    return gpu_case(!bad, "conversions", "%d of %d numbers differ", bad, COUNT);
}

/* i64: NaN, infinities, both ends, and what lies beyond them. */
static int try_wide(void)
{
    enum { COUNT = 1 << 12 };
    static float in[COUNT];
    static uint32_t out[COUNT][3];
    struct random r = {random_seed()};
    int bad = 0;
    for (int c = 0; c < COUNT; c++) in[c] = (float)ldexp(random_normal(&r), (int)random_below(&r, 70) - 4);
    in[0] = INFINITY, in[1] = NAN, in[2] = -INFINITY, in[3] = 0x1p63f, in[4] = -0x1p63f, in[5] = 0x1p32f;
    in[6] = -0.0f, in[7] = -NAN, in[8] = 0x1.fffffep62f, in[9] = 1e30f, in[10] = -1e30f, in[11] = -100.0f;
    bool ran = run("#include \"types.cuh\"\nusing namespace coda;\n" PARAMS
                   "    u32 *out = (u32 *)p.out + 3 * i;\n    const i64 x = from_float<i64>(p.in[i]);\n"
                   "    out[0] = (u32)x, out[1] = (u32)(x >> 32), out[2] = float_bits(to_float(x));\n}\n",
                   COUNT, 256, in, COUNT, (float *)out[0], 3 * COUNT);
    for (int c = 0; ran && c < COUNT; c++) {
        int64_t want;
        dtype_store(CODA_I64, &want, 0, in[c]);
        float back = (float)want, value;
        memcpy(&value, &out[c][2], 4);
        bad += memcmp(&want, out[c], 8) != 0 || value != back;
    }
    if (!ran) return gpu_case(false, "int64", "%s", err);
    return gpu_case(!bad, "int64", "%d of %d numbers differ", bad, COUNT);
}

/* e4m3, by the words of types.cuh and by the instructions. */
static int try_narrow(void)
{
    enum { COUNT = 1 << 12 };
    static float in[COUNT];
    static uint32_t out[COUNT][3];
    struct random r = {random_seed()};
    int bad = 0;
    for (int c = 0; c < COUNT; c++) in[c] = (float)ldexp(random_normal(&r), (int)random_below(&r, 24) - 14);
    in[0] = INFINITY, in[1] = NAN, in[2] = -449, in[3] = 0x1p-10f;
    bool ran = run("#include \"ptx/matrix.cuh\"\nusing namespace coda;\n" PARAMS
                   "    u32 *out = (u32 *)p.out + 3 * i;\n    float x = p.in[i], y = p.in[i ^ 1];\n"
                   "    out[0] = round_e4m3x2(x, y) | (u32)from_float<f8e4m3>(x).bits << 16;\n"
                   "    out[1] = float_bits(to_float(f8e4m3{(u8)i}));\n"
                   "    out[2] = ptx::widen_e4m3((u32)i % 256 | ((u32)i * 7 + 3) % 256 << 8);\n}\n",
                   COUNT, 256, in, COUNT, (float *)out[0], 3 * COUNT);
    for (int c = 0; ran && c < COUNT; c++) {
        unsigned char want[3], all[2] = {(unsigned char)c, (unsigned char)(7 * c + 3)};
        float value;
        for (int k = 0; k < 3; k++) dtype_store(CODA_F8E4M3, want, k, in[k == 1 ? c ^ 1 : c]);
        memcpy(&value, &out[c][1], 4);
        double exact = dtype_load(CODA_F8E4M3, all, 0);
        bad += memcmp(want, out[c], 3) != 0 || !(isnan(exact) ? isnan(value) : value == exact);
        for (int k = 0; k < 2; k++) {
            double wide = dtype_load(CODA_F16, out[c] + 2, k), as = dtype_load(CODA_F8E4M3, all, k);
            bad += !(isnan(as) ? isnan(wide) : wide == as);
        }
    }
    if (!ran) return gpu_case(false, "conversions of 8 bits", "%s", err);
    return gpu_case(!bad, "conversions of 8 bits", "%d differ", bad);
}

/* Of NaN the bits are any. */
static bool is_quotient(uint32_t bits, float x, float y)
{
    float want = x / y;
    return isnan(want) ? (bits & 0x7fffffff) > 0x7f800000 : memcmp(&want, &bits, 4) == 0;
}

/* A row's quotients are those of `/`, bit for bit, one by one and eight at a time: numbers of all sizes,
 * divisors whose mantissa is all ones or nearly, numerators of 16 bits; eights of usual numbers, and with one
 * that is not. */
static int try_quotients(void)
{
    enum { COUNT = 1 << 18 };
    static float in[COUNT];
    static uint32_t out[2 * COUNT];
    struct random r = {random_seed()};
    int bad = 0;
    for (int c = 0; c < COUNT; c++) {
        uint32_t u = (uint32_t)random_next(&r), ones = 0x7fffff - (uint32_t)random_below(&r, 4);
        if (c % 8 == 1) u = (u & 0xff800000) | ones;
        if (c % 8 == 2) u &= 0xffff0000;
        memcpy(&in[c], &u, 4);
        if (c % 8 > 2 || c / 16 % 2) in[c] = (float)ldexp(random_normal(&r), (int)random_below(&r, 60) - 30);
    }
    bool ran = run("#include \"tile/rows.cuh\"\nusing namespace coda;\n" PARAMS
                   "    const rows::Quotient by(p.in[i ^ 1]), of(p.in[i / 8 * 8 ^ 8]);\n"
                   "    float x[8], y[8];\n    for (int k = 0; k < 8; k++) x[k] = p.in[i / 8 * 8 + k];\n"
                   "    of.of(y, x);\n    ((u32 *)p.out)[2 * i] = float_bits(by.of(p.in[i]));\n"
                   "    ((u32 *)p.out)[2 * i + 1] = float_bits(y[i % 8]);\n}\n",
                   COUNT, 256, in, COUNT, (float *)out, 2 * COUNT);
    for (int c = 0; ran && c < COUNT; c++)
        bad += !is_quotient(out[2 * c], in[c], in[c ^ 1]) +
               !is_quotient(out[2 * c + 1], in[c], in[c / 8 * 8 ^ 8]);
    if (!ran) return gpu_case(false, "quotients", "%s", err);
    return gpu_case(!bad, "quotients", "%d of %d differ", bad, 2 * COUNT);
}

int gpu_primitives(void);
int gpu_primitives(void)
{
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "primitives", "%s", err);
    for (int i = 0; i < prim_count; i++) {
        const struct prim *p = &prim_table[i];
        if (device_emulated(&device) && !(scale_takes_one_in(3, i) && scale_takes_half(i / 3))) continue;
        failed += p->kind == PRIM_MAP ? try_map(p, false) : try_reduce(p);
        if (p->narrow) failed += try_map(p, true);
    }
    return failed + try_rope() + try_conversions() + try_narrow() + try_wide() + try_quotients();
}
