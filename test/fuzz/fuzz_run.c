/*
 * fuzz_run.c -- graphs from random builder calls, most of them wrong; what is good must compile and run.
 *
 *     fuzz_run SECONDS [SEED]
 *
 * Values of other graphs, absent operands, negative and huge dimensions, wrong dtypes, bad names and
 * options. A graph must stay poisoned once it is, with a message; one that is not must verify, print,
 * parse back, plan, be emitted and run, and what is not finite must be so in fp64, too. One graph in five
 * has dimensions of 0 and 1 alone, one in five huge ones: those are planned, fused or not, and not run.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util_run.h"

enum { MOST_VALUES = 48 };

static struct random r;
static enum mood { USUAL, EMPTY, HUGE_DIMS } mood; /* of the graph in the making */
static coda_value value[MOST_VALUES];
static int values;

static int64_t number(void)
{
    static const int64_t odd[] = {0, 1, -1, 2, 7, 64, INT32_MAX, INT64_MAX, INT64_MIN, 1 << 20, -100};
    return random_chance(&r, 85) ? random_below(&r, 5) * random_below(&r, 5)
                                 : odd[random_below(&r, ARRAY_SIZE(odd))];
}

/* Few values, so that shapes often fit each other. */
static int64_t size(void)
{
    static const int64_t common[] = {1, 4, 4, 8, 8, 12}, empty[] = {0, 0, 1, 1, 2, 4};
    static const int64_t huge[] = {1, 4, 8, 1 << 20, INT32_MAX, INT64_C(1) << 32, INT64_C(1) << 60};
    if (mood == EMPTY && random_chance(&r, 90)) return empty[random_below(&r, ARRAY_SIZE(empty))];
    if (mood == HUGE_DIMS && random_chance(&r, 90)) return huge[random_below(&r, ARRAY_SIZE(huge))];
    return random_chance(&r, 97) ? common[random_below(&r, 6)] : number();
}

static coda_value any(void)
{
    if (random_chance(&r, 1)) return CODA_NONE;
    if (random_chance(&r, 1)) return (coda_value){(uint32_t)random_next(&r)};
    return values ? value[random_below(&r, values)] : CODA_NONE;
}

static coda_value maybe(void) { return random_chance(&r, 50) ? CODA_NONE : any(); }
static coda_dtype dtype(void)
{
    static const coda_dtype usual[] = {CODA_F32, CODA_BF16, CODA_F16, CODA_I32, CODA_I64};
    return random_chance(&r, 97) ? usual[random_below(&r, ARRAY_SIZE(usual))] : (coda_dtype)number();
}

static const char *name(char buf[32])
{
    static const char *const odd[] = {"", "x", "a b", "9", "%x", "input", "\n", NULL};
    if (random_chance(&r, 4)) return odd[random_below(&r, ARRAY_SIZE(odd))];
    snprintf(buf, 32, "v%u", (unsigned)random_next(&r));
    return buf;
}

static coda_value leaf(coda_graph *g)
{
    int64_t dims[CODA_MAX_RANK], strides[CODA_MAX_RANK];
    int rank = random_chance(&r, 97) ? 1 + (int)random_below(&r, 3) : (int)number();
    char buf[32];
    for (int d = 0; d < CODA_MAX_RANK; d++) dims[d] = size(), strides[d] = number();
    const int64_t *shape = random_chance(&r, 99) ? dims : NULL;
    switch (random_below(&r, 7)) {
    case 5: return coda_state(g, name(buf), dtype(), rank, shape);
    case 6: return coda_state_strided(g, name(buf), dtype(), rank, shape, strides);
    case 4: return coda_scalar(g, name(buf), dtype());
    case 0: return coda_input_strided(g, name(buf), dtype(), rank, shape, strides);
    case 1: return coda_weight(g, name(buf), dtype(), rank, shape);
    case 2: return coda_weight_strided(g, name(buf), dtype(), rank, shape, strides);
    default: return coda_input(g, name(buf), dtype(), rank, shape);
    }
}

static coda_value unary(coda_graph *g)
{
    typedef coda_value call(coda_graph *, coda_value);
    static call *const f[] = {coda_relu,    coda_relu2,   coda_gelu_erf, coda_gelu_tanh,  coda_gelu_quick,
                              coda_silu,    coda_tanh,    coda_sigmoid,  coda_softplus,   coda_softmax,
                              coda_row_sum, coda_row_max, coda_row_mean, coda_log_sum_exp};
    return f[random_below(&r, ARRAY_SIZE(f))](g, any());
}

/* By one of these a rounding may become a NaN, or 0 may become 1, so that fp64 is no judge. */
static coda_value jumpy(coda_graph *g)
{
    typedef coda_value one(coda_graph *, coda_value);
    typedef coda_value two(coda_graph *, coda_value, coda_value);
    static one *const f[] = {coda_exp,   coda_log,  coda_sqrt,  coda_rsqrt, coda_reciprocal,
                             coda_floor, coda_ceil, coda_round, coda_sign,  coda_logical_not};
    static two *const h[] = {coda_equal,   coda_not_equal,     coda_less,        coda_less_equal,
                             coda_greater, coda_greater_equal, coda_logical_and, coda_logical_or};
    switch (random_below(&r, 3)) {
    case 0: return f[random_below(&r, ARRAY_SIZE(f))](g, any());
    case 1: return h[random_below(&r, ARRAY_SIZE(h))](g, any(), any());
    default: return coda_where(g, any(), any(), any());
    }
}

/* And by these not. */
static coda_value steady(coda_graph *g)
{
    switch (random_below(&r, 5)) {
    case 0: return coda_abs(g, any());
    case 1: return coda_neg(g, any());
    case 2: return coda_clip(g, any(), -(float)number(), (float)number());
    case 3: return coda_minimum(g, any(), any());
    default: return coda_maximum(g, any(), any());
    }
}

static coda_value binary(coda_graph *g)
{
    typedef coda_value call(coda_graph *, coda_value, coda_value);
    static call *const f[] = {coda_add,  coda_sub,    coda_mul,       coda_div,
                              coda_bias, coda_matmul, coda_matmul_kn, coda_embedding};
    coda_value also;
    if (random_chance(&r, 10)) return coda_row_sums(g, any(), any(), number());
    if (random_chance(&r, 10))
        return coda_conv1d(g, any(), any(), CODA_NONE, random_chance(&r, 50) ? any() : CODA_NONE, CODA_NONE,
                           &also);
    if (random_chance(&r, 10)) {
        coda_value x = any(), b = any();
        return coda_scan(g, x, random_chance(&r, 50) ? x : any(), any(), b, b,
                         random_chance(&r, 50) ? any() : CODA_NONE, CODA_NONE, NULL, &also);
    }
    return f[random_below(&r, ARRAY_SIZE(f))](g, any(), any());
}

static coda_value gated(coda_graph *g)
{
    typedef coda_value call(coda_graph *, coda_value, coda_layout);
    static call *const f[] = {coda_swiglu, coda_geglu, coda_reglu, coda_glu, coda_geglu_erf};
    int64_t i = random_below(&r, ARRAY_SIZE(f) + 1);
    coda_layout layout = (coda_layout)random_below(&r, 3);
    return i < ARRAY_SIZE(f) ? f[i](g, any(), layout)
                             : coda_swiglu_clamped(g, any(), layout, 1.702f, (float)random_below(&r, 9));
}

static coda_value top_k(coda_graph *g)
{
    coda_value best = CODA_NONE, which = CODA_NONE;
    coda_top_k(g, any(), number(), random_chance(&r, 70) ? &best : NULL,
               random_chance(&r, 70) ? &which : NULL);
    return best.id ? best : which;
}

static coda_value draw(coda_graph *g)
{
    coda_sample_options o = CODA_SAMPLE_OPTIONS_INIT;
    coda_value logprob;
    if (random_chance(&r, 30)) o.temperature = any(), o.top_p = any();
    if (random_chance(&r, 30)) o.top_k = any(), o.bias = any();
    if (random_chance(&r, 30)) return coda_iota(g, number());
    if (random_chance(&r, 50)) return coda_nucleus(g, any(), maybe(), maybe(), maybe(), maybe());
    return coda_sample(g, any(), any(), any(), &o, random_chance(&r, 50) ? &logprob : NULL);
}

static coda_value with_options(coda_graph *g)
{
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    coda_attention_options attention = CODA_ATTENTION_OPTIONS_INIT;
    coda_cross_entropy_options loss = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    if (random_chance(&r, 60)) rope.head_dim = number(), rope.rotary = number(), rope.heads = number();
    if (random_chance(&r, 60))
        attention.heads = number(), attention.kv_heads = number(), attention.window = number();
    rope.style = (coda_rope_style)random_below(&r, 3);
    if (random_chance(&r, 10)) rope.frequencies = maybe();
    for (int i = 0; i < 4 && random_chance(&r, 30); i++) rope.sections[i] = number();
    rope.interleave_sections = random_chance(&r, 10);
    rope.inverse = random_chance(&r, 20);
    attention.causal = (int)random_below(&r, 2);
    attention.align = (coda_attention_align)random_below(&r, 5);
    if (random_chance(&r, 20)) attention.starts = any();
    if (random_chance(&r, 20)) attention.bias = any();
    attention.layout = (coda_cache_layout)(random_chance(&r, 80) ? 0 : random_below(&r, 3));
    loss.reduction = (coda_reduction)random_below(&r, 4);
    if (random_chance(&r, 3)) rope.size = attention.size = loss.size = (size_t)random_below(&r, sizeof loss);
    if (random_chance(&r, 3)) rope.base = attention.scale = -1.0f;
    switch (random_below(&r, 3)) {
    case 0: return coda_rope(g, any(), maybe(), random_chance(&r, 90) ? &rope : NULL);
    case 1: return coda_attention(g, any(), any(), any(), maybe(), random_chance(&r, 90) ? &attention : NULL);
    default: return coda_cross_entropy(g, any(), any(), random_chance(&r, 90) ? &loss : NULL);
    }
}

static coda_value movement(coda_graph *g)
{
    int64_t dims[CODA_MAX_RANK];
    int perm[CODA_MAX_RANK], rank = 1 + (int)random_below(&r, 3);
    coda_value in[4] = {any(), any(), any(), any()};
    for (int d = 0; d < CODA_MAX_RANK; d++)
        dims[d] = size(), perm[d] = (int)(random_chance(&r, 95) ? (d + 1) % rank : number());
    switch (random_below(&r, 5)) {
    case 0:
        return coda_slice(g, any(), (int)random_below(&r, 3), random_below(&r, 3), number(),
                          1 + random_below(&r, 2));
    case 1:
        return (random_chance(&r, 50) ? coda_concat : coda_interleave)(g, (int)random_below(&r, 3), in,
                                                                       (int)random_below(&r, 5));
    case 2: return coda_reshape(g, any(), rank, dims);
    case 3: return coda_transpose(g, any(), perm);
    default: return coda_cast(g, any(), dtype());
    }
}

/* By slots that are a leaf, which random arguments make distinct. */
static coda_value write(coda_graph *g)
{
    coda_value state = any(), rows = any();
    coda_dtype t;
    char buf[32];
    int64_t dims[CODA_MAX_RANK];
    int rank = coda_value_shape(g, rows, dims, &t);
    if (rank < 1 || random_chance(&r, 30)) return coda_assign(g, state, random_chance(&r, 50) ? state : rows);
    coda_append_options o = CODA_APPEND_OPTIONS_INIT;
    int64_t shape[CODA_MAX_RANK];
    if (coda_value_shape(g, state, shape, &t) == 4 && random_chance(&r, 70)) o.layout = CODA_LAYOUT_HND;
    coda_dtype whole = random_chance(&r, 50) ? CODA_I32 : CODA_I64;
    return coda_append(g, state, rows, coda_input(g, name(buf), whole, rank - 1, dims), &o);
}

static coda_value apply(coda_graph *g)
{
    static const char *const map[] = {"leaky", "swiglu",  "add",        "rcp", "scale",
                                      "sum",   "nothing", "rsqrt_mean", NULL};
    static const char *const source[] = {"DEV static float apply(float x) { return x; }", "", NULL};
    coda_value in[4] = {any(), any(), any(), any()};
    float params[4] = {1, 0.5f, 2, -1};
    if (random_chance(&r, 20)) {
        coda_map_def def = CODA_MAP_DEF_INIT;
        char buf[32];
        def.name = random_chance(&r, 50) ? "leaky" : name(buf);
        def.inputs = (int)random_below(&r, 6);
        def.params = (int)random_below(&r, 6);
        def.source = source[random_below(&r, 3)];
        coda_define_map(g, random_chance(&r, 99) ? &def : NULL);
    }
    return coda_apply(g, map[random_below(&r, ARRAY_SIZE(map))], in, (int)random_below(&r, 6),
                      random_chance(&r, 80) ? params : NULL);
}

/* By one value that has an element and another of any shape; most of them do not go together. */
static coda_value gradient(coda_graph *g)
{
    coda_value y = any(), x = any(), dy = maybe(), dx;
    coda_grad(g, &y, &dy, 1, &x, 1, &dx, NULL);
    return dx;
}

static coda_value step(coda_graph *g)
{
    switch (random_below(&r, 16)) {
    case 15: return gradient(g);
    case 14: return steady(g);
    case 13: return mood == EMPTY ? steady(g) : jumpy(g);
    case 12: return write(g);
    case 0:
    case 1: return leaf(g);
    case 11: return random_chance(&r, 50) ? top_k(g) : draw(g);
    case 10: return coda_constant(g, dtype(), random_chance(&r, 90) ? (double)number() : 0.3);
    case 2: return unary(g);
    case 3:
    case 4: return binary(g);
    case 5: return gated(g);
    case 6: return with_options(g);
    case 7: return movement(g);
    case 8: return apply(g);
    default:
        return random_chance(&r, 50) ? coda_rms_norm(g, any(), maybe(), 1e-5f)
                                     : coda_layer_norm(g, any(), maybe(), maybe(), 1e-5f);
    }
}

/* ---- What must hold ---- */

static void die(const char *what, const coda_graph *g)
{
    static char text[1 << 16];
    coda_graph_print(g, text, sizeof text);
    printf("fuzz_run: %s: %s\n%s", what, coda_error(), text);
    fflush(stdout);
    abort();
}

static void check_text(const coda_graph *g)
{
    static char once[1 << 18];
    coda_graph *again;
    int64_t n = coda_graph_print(g, once, sizeof once);
    if (n < 0) die("a good graph does not print", g);
    if (n >= (int64_t)sizeof once) return;
    if (coda_graph_parse(&again, once) != CODA_OK) die("its text does not parse", g);
    coda_graph_free(again);
}

/* Text of kernels for either kind of GPU, and what explains the plan. */
static void check_plan(const coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY | (random_chance(&r, 30) ? CODA_NO_FUSION : 0);
    opt.fold = (coda_fold)random_below(&r, 3);
    opt.arch = random_chance(&r, 30) ? "sm_80" : NULL;
    coda_status status = coda_compile(&p, g, &opt);
    if (status && status != CODA_E_UNSUPPORTED && status != CODA_E_MEMORY) die("a good graph has no plan", g);
    if (!status && coda_plan_print(p, CODA_TEXT_PLAN, NULL, 0) <= 0) die("a plan does not print", g);
    coda_plan_free(p);
}

/* What is NaN or infinite by the plan is so by the formula: rows without columns, products without a sum. */
static coda_status run_small(const coda_graph *g, const coda_compile_options *opt)
{
    void **want = mood == EMPTY ? run_reference(g, r.state) : NULL;
    double error = run_on_cpu(g, r.state, opt, want);
    if (isinf(error)) die("another value than in fp64 is not finite", g);
    if (want) random_args_free(g, want);
    return error < 0 ? fail_status() : CODA_OK;
}

static void check_run(const coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = random_chance(&r, 30) ? CODA_NO_FUSION : 0;
    opt.fold = (coda_fold)random_below(&r, 3);
    coda_status status = coda_compile(&p, g, &opt);
    coda_plan_free(p);
    if (!status && random_is_small(g)) status = run_small(g, &opt);
    if (status && status != CODA_E_UNSUPPORTED && status != CODA_E_MEMORY)
        die("a good graph does not compile or run", g);
}

/* True if the graph came out good. */
static bool attempt(void)
{
    char buf[32];
    coda_graph *g = coda_graph_new();
    coda_status before = CODA_OK;
    mood = random_chance(&r, 60) ? USUAL : random_chance(&r, 50) ? EMPTY : HUGE_DIMS;
    values = 0;
    for (int64_t n = 1 + random_below(&r, 14); n >= 0; n--) {
        coda_value v = step(g);
        coda_status now = coda_graph_status(g);
        if (before && now != before) die("a poisoned graph changed its mind", g);
        if (now && (!*coda_error() || strchr(coda_error(), '\n'))) die("not one line of message", g);
        if (v.id && coda_value_shape(g, v, NULL, NULL) >= 0 && values < MOST_VALUES) value[values++] = v;
        if (now && random_chance(&r, 80)) break;
        before = now;
    }
    if (values) coda_output(g, name(buf), any());
    bool good = coda_graph_status(g) == CODA_OK && coda_graph_args(g) > 0 && values;
    if (good) {
        check_text(g);
        check_plan(g);
        if (mood != HUGE_DIMS) check_run(g);
    }
    coda_graph_free(g);
    return good;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    r.state = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    time_t end = time(NULL) + (time_t)seconds;
    long tried = 0, good = 0;
    printf("fuzz_run: seed %llu\n", (unsigned long long)r.state);
    fflush(stdout);
    for (; time(NULL) < end; tried++) good += attempt();
    printf("fuzz_run: %ld graphs, %ld of them good\n", tried, good);
    return good == 0;
}
