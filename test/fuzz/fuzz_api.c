/*
 * fuzz_api.c -- every public call in any order: fuzz_api SECONDS [SEED].
 *
 * Some graphs, plans and caches live at a time; calls get them, or NULL, values of others, names and numbers
 * that nobody should give, and structs in heap blocks of exactly the size that they say. Kernels are printed,
 * compiled and launched by the fake NVRTC and driver beside this program, and really run on the CPU device.
 * build/test/calls.h lists what coda.h declares: a call without a function here does not link.
 *
 * A failure leaves one line; success leaves the last failure's line alone. Run it under sanitizers; what they
 * find is preceded by the seed of the sequence, which as SEED begins with it.
 */
#include "fuzz_arguments.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Calls: each returns a coda_status, 1 if it says nothing ---- */

#define CALL(name) static int call_##name(void);
#include "calls.h"
#undef CALL

#include "fuzz_symbols.h"

/* A builder's value: none is a failure, on a graph without a mistake. */
static int built(const coda_graph *g, coda_value v)
{
    if (v.id) return CODA_OK;
    return !g ? CODA_E_INVALID : SILENT;
}
#define BUILD(name, ...)                                                                                     \
    static int call_##name(void)                                                                             \
    {                                                                                                        \
        coda_graph *g = graph_any();                                                                         \
        return built(g, name(g, __VA_ARGS__));                                                               \
    }
#define UNARY(name) BUILD(name, value())
#define BINARY(name) BUILD(name, value(), value())
#define GATED(name) BUILD(name, value(), (coda_layout)below(chance(98) ? 2 : 5))

/* clang-format off */
BUILD(coda_input, name(), dtype(), rank(), numbers())
BUILD(coda_input_strided, name(), dtype(), rank(), numbers(), numbers())
BUILD(coda_weight, name(), dtype(), rank(), numbers())
BUILD(coda_weight_strided, name(), dtype(), rank(), numbers(), numbers())
BUILD(coda_state, name(), dtype(), rank(), numbers())
BUILD(coda_state_strided, name(), dtype(), rank(), numbers(), numbers())
BUILD(coda_assign, value(), value())
BUILD(coda_constant, dtype(), real())
BUILD(coda_scalar, name(), dtype())
BINARY(coda_matmul) BINARY(coda_matmul_kn) BINARY(coda_add) BINARY(coda_sub) BINARY(coda_mul)
BINARY(coda_div) BINARY(coda_bias) BINARY(coda_embedding)
UNARY(coda_relu) UNARY(coda_relu2) UNARY(coda_gelu_erf) UNARY(coda_gelu_tanh) UNARY(coda_gelu_quick)
UNARY(coda_silu) UNARY(coda_tanh) UNARY(coda_sigmoid) UNARY(coda_softplus) UNARY(coda_softmax)
UNARY(coda_log_softmax)
UNARY(coda_exp) UNARY(coda_log) UNARY(coda_sqrt) UNARY(coda_rsqrt) UNARY(coda_reciprocal) UNARY(coda_neg)
UNARY(coda_abs) UNARY(coda_sign) UNARY(coda_floor) UNARY(coda_ceil) UNARY(coda_round) UNARY(coda_logical_not)
BINARY(coda_minimum) BINARY(coda_maximum) BINARY(coda_equal) BINARY(coda_not_equal) BINARY(coda_less)
BINARY(coda_less_equal) BINARY(coda_greater) BINARY(coda_greater_equal) BINARY(coda_logical_and)
BINARY(coda_logical_or)
BUILD(coda_clip, value(), (float)real(), (float)real())
BUILD(coda_where, value(), value(), value())
BUILD(coda_scaled_matmul, value(), value(), value(), value())
UNARY(coda_row_sum) UNARY(coda_row_max) UNARY(coda_row_mean) UNARY(coda_log_sum_exp)
GATED(coda_swiglu) GATED(coda_geglu) GATED(coda_reglu) GATED(coda_glu) GATED(coda_geglu_erf)
BUILD(coda_swiglu_clamped, value(), (coda_layout)below(2), (float)real(), (float)real())
BUILD(coda_scale, value(), (float)real())
BUILD(coda_rms_norm, value(), maybe(), (float)real())
BUILD(coda_layer_norm, value(), maybe(), maybe(), (float)real())
BUILD(coda_reduce, chance(95) ? prim_table[below(prim_count)].name : name(), value(), maybe())
BUILD(coda_reduce_columns, chance(95) ? prim_table[below(prim_count)].name : name(), value())
BUILD(coda_row_sums, value(), value(), number())
BUILD(coda_cast, value(), dtype())
BUILD(coda_slice, value(), (int)below(3), number() / 4, number(), 1 + number() / 8)
BUILD(coda_concat, (int)below(2), (coda_value[]){value(), value(), value()}, (int)below(4))
BUILD(coda_interleave, (int)below(2), (coda_value[]){value(), value(), value()}, (int)below(4))
BUILD(coda_reshape, value(), rank(), numbers())
BUILD(coda_transpose, value(), chance(98) ? (int[]){1, 0, 2, 3, 4, 5} : NULL)
    /* clang-format on */

    static int call_coda_apply(void)
{
    coda_graph *g = graph_any();
    const struct prim *p = &prim_table[below(prim_count)];
    coda_value in[4] = {value(), value(), value(), value()};
    float params[4] = {(float)real(), 1, 2, 3};
    return built(g, coda_apply(g, chance(80) ? p->name : name(), chance(99) ? in : NULL,
                               chance(95) ? p->inputs : (int)number() % 5, chance(95) ? params : NULL));
}

static double first(const double *in, const double *params) { return (void)params, in[0]; }
static int call_coda_define_map(void)
{
    coda_map_def d = {0,
                      name(),
                      (int)below(3),
                      (int)below(3),
                      chance(95) ? "DEV static float apply(float x) { return x; }" : NULL,
                      chance(60) ? first : NULL,
                      {NULL}};
    for (int i = 0; i < 4; i++) d.grad[i] = chance(10) ? name() : chance(10) ? "0" : NULL;
    return coda_define_map(graph_any(), BOXED(d));
}

static int call_coda_rope(void)
{
    coda_rope_options o = {0,
                           number(),
                           2 * (number() / 2),
                           number(),
                           100 * (float)real(),
                           (coda_rope_style)below(2),
                           CODA_NONE,
                           chance(80) ? 0 : (float)real(),
                           (int)below(2),
                           {0},
                           chance(10)};
    coda_graph *g = graph_any();
    o.frequencies = maybe();
    for (int i = 0; i < 4 && chance(30); i++) o.sections[i] = number();
    if (chance(60)) o.head_dim = o.rotary = o.heads = 0;
    return built(g, coda_rope(g, value(), maybe(), BOXED(o)));
}
static coda_attention_options attention_options(void)
{
    coda_attention_options o = {.heads = chance(70) ? 0 : number(),
                                .window = below(2) * number(),
                                .causal = (int)below(2),
                                .scale = (float)real(),
                                .align = (coda_attention_align)below(5),
                                .ahead = chance(80) ? 0 : number(),
                                .softcap = chance(80) ? 0 : (float)real(),
                                .page = chance(80) ? 0 : number(),
                                .layout = (coda_cache_layout)(chance(70) ? 0 : below(3))};
    if (chance(20)) o.ranges = value();
    if (chance(20)) o.slopes = value();
    if (chance(20)) o.k_scale = value();
    if (chance(20)) o.v_scale = value();
    if (chance(20)) o.sinks = value();
    if (chance(20)) o.table = value();
    if (chance(20)) o.starts = value();
    if (chance(20)) o.bias = value();
    if (chance(20)) o.score = chance(80) ? prim_table[below(prim_count)].name : name();
    for (int i = 0; i < 4 && chance(20); i++) o.score_params[i] = (float)real();
    return o;
}
static int call_coda_attention(void)
{
    coda_graph *g = graph_any();
    coda_attention_options o = attention_options();
    coda_value x = value();
    return built(g, coda_attention(g, x, chance(80) ? x : value(), x, maybe(), BOXED(o)));
}
static int call_coda_attention_lse(void)
{
    coda_graph *g = graph_any();
    coda_attention_options o = attention_options();
    coda_value x = value(), lse = CODA_NONE;
    coda_attention_lse(g, x, chance(80) ? x : value(), x, maybe(), BOXED(o), chance(90) ? &lse : NULL);
    return built(g, lse);
}
static int call_coda_cross_entropy(void)
{
    coda_cross_entropy_options o = {0, (int32_t)number(), (coda_reduction)below(4), (int)below(2)};
    coda_graph *g = graph_any();
    return built(g, coda_cross_entropy(g, value(), value(), BOXED(o)));
}

static int call_coda_top_k(void)
{
    coda_graph *g = graph_any();
    coda_value best[2] = {CODA_NONE, CODA_NONE};
    coda_top_k(g, value(), number(), chance(80) ? &best[0] : NULL, chance(80) ? &best[1] : NULL);
    return built(g, best[0].id ? best[0] : best[1]);
}

static int call_coda_conv1d(void)
{
    coda_graph *g = graph_any();
    coda_value after = CODA_NONE;
    return built(g, coda_conv1d(g, value(), value(), maybe(), maybe(), maybe(), chance(80) ? &after : NULL));
}

static int call_coda_scan(void)
{
    coda_scan_options o = {0, number(), (int)below(2), maybe(), maybe(), maybe()};
    coda_graph *g = graph_any();
    coda_value after = CODA_NONE;
    return built(g, coda_scan(g, value(), value(), value(), value(), value(), maybe(), maybe(), BOXED(o),
                              chance(80) ? &after : NULL));
}

static int call_coda_delta(void)
{
    coda_delta_options o = {.heads = below(4), .key_heads = below(3), .norm = below(2), .eps = (float)real()};
    coda_graph *g = graph_any();
    coda_value after = CODA_NONE;
    return built(g, coda_delta(g, value(), value(), value(), value(), value(), maybe(), maybe(), BOXED(o),
                               chance(80) ? &after : NULL));
}

#include "fuzz_gradients.h"
#include "fuzz_quant.h"

static int call_coda_iota(void) { return coda_iota(graph_any(), number()), SILENT; }
static int call_coda_nucleus(void)
{
    coda_graph *g = graph_any();
    return built(g, coda_nucleus(g, value(), maybe(), maybe(), maybe(), maybe()));
}

static int call_coda_quantize_rows(void)
{
    static const coda_dtype t[] = {CODA_F8E4M3, CODA_F8E5M2, CODA_BF16, CODA_I8};
    coda_value scale;
    coda_graph *g = graph_any();
    return built(g, coda_quantize_rows(g, value(), t[below(4)], chance(50) ? 0 : number(), BOXED(scale)));
}

static int call_coda_sample(void)
{
    coda_sample_options o = {.temperature = maybe(), .top_k = maybe(), .top_p = maybe(), .bias = maybe()};
    coda_value logprob;
    coda_graph *g = graph_any();
    return built(g, coda_sample(g, value(), value(), value(), BOXED(o), chance(50) ? &logprob : NULL));
}

static int call_coda_append(void)
{
    coda_append_options o = {.layout = (coda_cache_layout)(chance(70) ? 0 : below(3)), .scale = maybe()};
    coda_graph *g = graph_any();
    return built(g, coda_append(g, value(), value(), value(), BOXED(o)));
}

static int call_coda_scope_push(void)
{
    const char *word = name();
    coda_graph *g = graph_any();
    return (chance(20) ? coda_scope_push(g, "n.%d", (int)below(9))
                       : coda_scope_push(g, "%s", word ? word : "")),
           SILENT;
}
static int call_coda_scope_pop(void)
{
    coda_graph *g = graph_any(); /* seldom one too many, which poisons the graph */
    return (!g || g->depth || chance(5) ? coda_scope_pop(g) : (void)0), SILENT;
}
static int call_coda_output(void) { return coda_output(graph_any(), name(), value()), SILENT; }
static int call_coda_output_add(void) { return coda_output_add(graph_any(), name(), value()), SILENT; }
static int call_coda_output_add_strided(void)
{
    return coda_output_add_strided(graph_any(), name(), value(), numbers()), SILENT;
}
static int call_coda_output_strided(void)
{
    return coda_output_strided(graph_any(), name(), value(), numbers()), SILENT;
}
static int call_coda_value_shape(void)
{
    int64_t dims[CODA_MAX_RANK];
    coda_dtype t;
    coda_graph *g = graph_any();
    return sign(coda_value_shape(g, value(), chance(50) ? dims : NULL, chance(50) ? &t : NULL));
}
static int call_coda_graph_status(void) { return coda_graph_status(graph_any()); }
static int call_coda_graph_args(void) { return sign(coda_graph_args(graph_any())); }
static int call_coda_graph_arg(void)
{
    return coda_graph_arg(graph_any(), (int)number(), filled(sizeof(coda_arg_info)));
}
static int call_coda_graph_print(void)
{
    size_t size;
    char *buf = buffer(&size);
    return sign(coda_graph_print(graph_any(), buf, size));
}

static int renew(coda_graph *old)
{
    coda_graph *g = coda_graph_new();
    coda_graph_free(old);
    w.g[w.at] = g;
    return CODA_OK;
}
static int call_coda_graph_new(void) { return w.at = (int)below(SLOTS), renew(w.g[w.at]); }
static int call_coda_graph_free(void) { return coda_graph_free(NULL), call_coda_graph_new(); }
static int call_coda_graph_parse(void)
{
    coda_graph *g = NULL;
    char *text = w.good[below(SLOTS)];
    text = strdup(text ? text : "%x = input f32[2]\n");
    if (chance(60) && *text) text[below((int64_t)strlen(text))] = (char)below(128);
    int status = coda_graph_parse(chance(99) ? &g : NULL, chance(99) ? text : NULL);
    coda_graph_free(g);
    return free(text), status;
}
static int call_coda_evaluate(void)
{
    coda_graph *g = graph_any();
    bool good = g && g->status == CODA_OK;
    if (good && !random_is_small(g)) return SILENT;
    void **args = good && !coda_graph_symbols(g) ? random_args(g, w.r.state, true) : NULL;
    int status = coda_evaluate(g, args);
    if (args) random_args_free(g, args);
    return status;
}

/* ---- Plans ---- */

static int call_coda_compile(void)
{
    struct plan_slot *s = &w.plan[below(SLOTS)];
    coda_graph *g = graph_any();
    int cache = chance(50) ? -1 : (int)below(SLOTS);
    coda_compile_options o = {.device = (coda_device)(chance(50) ? 1 : below(chance(98) ? 3 : 5)),
                              .fold = (coda_fold)below(chance(98) ? 3 : 5),
                              .arch = chance(90)   ? NULL
                                      : chance(80) ? "sm_80"
                                                   : name(),
                              .flags =
                                  chance(40) ? 0 : (unsigned)below(16) | (chance(2) ? 1u << below(32) : 0)};
    if (chance(20)) o.flags |= CODA_FAST_FP16;
    if (chance(20)) o.flags |= CODA_NO_DEFERRAL;
    if (chance(20)) o.flags |= CODA_BATCH_INVARIANT;
    if (chance(50)) o.shapes = (int)below(4) - chance(2), o.policy = (coda_policy)(chance(5) ? below(4) : 0);
    o.cache = cache < 0 ? NULL : w.cache[cache];
    if (g && chance(80)) coda_output(g, name(), value());
    coda_compile_options *box = BOXED(o);
    coda_plan *p = NULL;
    int status = coda_compile(chance(99) ? &p : NULL, g, box);
    if (status) return status;
    coda_plan_free(s->p);
    bool cpu = box && o.device == CODA_DEVICE_CPU && !(o.flags & CODA_PLAN_ONLY);
    *s = (struct plan_slot){p, o.cache ? cache : -1, cpu};
    return CODA_OK;
}
static int call_coda_plan_free(void)
{
    struct plan_slot *s = &w.plan[below(SLOTS)];
    coda_plan_free(s->p);
    *s = (struct plan_slot){0};
    return CODA_OK;
}

struct memory {
    const coda_plan *p;
    void **args, *prepared, *work;
    uint64_t seed;
    int n, status;
    bool broken;
};
static void *block(size_t align, size_t bytes)
{
    void *p = NULL;
    return posix_memalign(&p, align, MAX(bytes, 1)) ? NULL : p;
}
/* A group of one rank, the argument of all groups: its handle is all that is read of these. */
static coda_group *lone;
static bool is_handle(const coda_plan *p, int arg)
{
    coda_arg_info a = CODA_ARG_INFO_INIT;
    if (!lone) coda_group_local(&lone, 1, NULL);
    return coda_plan_arg(p, arg, &a) == CODA_OK && a.kind == CODA_ARG_GROUP;
}
/* Arguments of random bytes; false if they are large. */
static bool remember(struct memory *m, const coda_plan *p, uint64_t seed)
{
    struct random r = {seed};
    size_t total = coda_plan_prepared(p) + coda_plan_workspace(p);
    coda_arg_info a = CODA_ARG_INFO_INIT;
    *m = (struct memory){.p = p, .seed = seed, .n = coda_plan_args(p)};
    for (int i = 0; i < m->n; i++)
        if (coda_plan_arg(p, i, &a) == CODA_OK && (total += a.bytes) > ROOM) return false;
    if (total > ROOM) return false;
    m->prepared = block(256, coda_plan_prepared(p));
    m->work = block(256, coda_plan_workspace(p));
    m->args = calloc((size_t)m->n + 1, sizeof *m->args);
    for (int i = 0; i < m->n; i++) {
        coda_plan_arg(p, i, &a);
        if (is_handle(p, i)) {
            m->args[i] = lone;
            continue;
        }
        unsigned char *at = m->args[i] = block(16, a.bytes);
        for (size_t k = 0; k < a.bytes; k++) at[k] = (unsigned char)random_next(&r);
    }
    return true;
}
static void forget(struct memory *m)
{
    for (int i = 0; i < m->n && m->args; i++)
        if (m->args[i] != lone) free(m->args[i]);
    free(m->args), free(m->prepared), free(m->work);
}
static void *run_one(void *ctx)
{
    struct memory *m = ctx;
    char text[256];
    m->status = coda_prepare(m->p, m->args, m->prepared, m->work, NULL);
    if (!m->status) m->status = coda_run(m->p, m->args, m->prepared, m->work, NULL);
    coda_plan_print(m->p, CODA_TEXT_PLAN, text, sizeof text);
    coda_plan_print(m->p, CODA_TEXT_REASONS, text, sizeof text);
    coda_plan_print(m->p, CODA_TEXT_STAGES, text, sizeof text);
    if (m->status && (!*coda_error() || strchr(coda_error(), '\n'))) m->broken = true;
    return NULL;
}
/* A plan in several threads, each with memory of its own: the same bits. */
static int run_shared(const coda_plan *p)
{
    enum { THREADS = 3 };
    struct memory m[THREADS];
    pthread_t thread[THREADS];
    coda_arg_info a = CODA_ARG_INFO_INIT;
    uint64_t seed = random_next(&w.r);
    bool small = true;
    coda_prepare_forget(NULL, 0); /* what was remembered of memory that is allocated again */
    for (int i = 0; i < THREADS; i++) small = remember(&m[i], p, seed) && small;
    for (int i = 0; i < THREADS && small; i++) pthread_create(&thread[i], NULL, run_one, &m[i]);
    for (int i = 0; i < THREADS && small; i++) pthread_join(thread[i], NULL);
    for (int i = 1; i < THREADS && small; i++) {
        if (m[i].broken || m[i].status != m[0].status) stop("coda_run", "threads disagree");
        for (int k = 0; !m[0].status && k < m[0].n; k++)
            if (!coda_plan_arg(p, k, &a) && memcmp(m[0].args[k], m[i].args[k], a.bytes))
                stop("coda_run", "other bits");
    }
    for (int i = 0; i < THREADS; i++) forget(&m[i]);
    w.runs += small ? THREADS : 0;
    return SILENT;
}
static size_t room_for(const coda_plan *p, int arg)
{
    coda_arg_info a = CODA_ARG_INFO_INIT;
    return coda_plan_arg(p, arg, &a) == CODA_OK ? a.bytes : 0;
}
static int call_with(int (*call)(const struct memory *m))
{
    const coda_plan *p = plan_any();
    struct memory m = {0};
    if (p && !remember(&m, p, random_next(&w.r))) return SILENT;
    m.p = p;
    if (m.n && chance(3)) {
        int i = (int)below(m.n);
        if (m.args[i] != lone) free(m.args[i]);
        m.args[i] = NULL;
    }
    if (chance(2)) free(m.work), m.work = NULL;
    if (chance(2)) free(m.prepared), m.prepared = NULL;
    void *own = NULL;
    int twin = m.n > 1 && chance(10) ? (int)below(m.n) : -1, with = twin < 0 ? 0 : (int)below(m.n);
    if (twin >= 0) own = m.args[twin], m.args[twin] = m.args[with]; /* may be short: refused, or a leaf */
    bool fits = twin < 0 || (room_for(p, with) >= room_for(p, twin) && !is_handle(p, twin));
    int status = fits ? call(&m) : SILENT;
    if (twin >= 0) m.args[twin] = own;
    if (chance(50)) coda_prepare_forget(m.args && m.n ? m.args[0] : NULL, room_for(p, 0));
    forget(&m);
    w.runs++;
    return status;
}
static int prepare(const struct memory *m) { return coda_prepare(m->p, m->args, m->prepared, m->work, NULL); }
/* What a plan folds must be prepared, which is forgotten now and then. */
static int run(const struct memory *m)
{
    if (chance(90) && prepare(m)) return CODA_E_INVALID;
    return coda_run(m->p, m->args, m->prepared, m->work, NULL);
}
static int adopt(const struct memory *m) { return coda_prepare_adopt(m->p, m->args, m->prepared); }
static int call_coda_prepare(void) { return call_with(prepare); }
static int call_coda_prepare_adopt(void) { return call_with(adopt); }
static int call_coda_prepare_forget(void)
{
    return coda_prepare_forget(chance(50) ? NULL : keep(malloc(64)), (size_t)number()), CODA_OK;
}
static int call_coda_plan_prepared_id(void) { return coda_plan_prepared_id(plan_any()), SILENT; }
static int call_coda_run(void)
{
    struct plan_slot *s = &w.plan[below(SLOTS)];
    return s->cpu && chance(10) ? run_shared(s->p) : call_with(run);
}

#include "fuzz_shapes.h"
#include "fuzz_group.h"
#include "fuzz_profile.h"

static int call_coda_plan_workspace(void) { return coda_plan_workspace(plan_any()), SILENT; }
static int call_coda_plan_prepared(void) { return coda_plan_prepared(plan_any()), SILENT; }
static int call_coda_plan_args(void) { return coda_plan_args(plan_any()), SILENT; }
static int call_coda_plan_kernels(void) { return coda_plan_kernels(plan_any()), SILENT; }
static int call_coda_plan_arg(void)
{
    return coda_plan_arg(plan_any(), (int)number(), filled(sizeof(coda_arg_info)));
}
static int call_coda_plan_kernel(void)
{
    const coda_plan *p = plan_any();
    coda_kernel_info k = CODA_KERNEL_INFO_INIT;
    for (int i = 0; i < coda_plan_kernels(p); i++)
        if (coda_plan_kernel(p, i, &k) || !strstr(k.source, k.name)) stop("coda_plan_kernel", "no source");
    return coda_plan_kernel(p, (int)number(), filled(sizeof k));
}
static int call_coda_plan_stats_get(void)
{
    return coda_plan_stats_get(plan_any(), filled(sizeof(coda_plan_stats)));
}
static int call_coda_plan_print(void)
{
    size_t size;
    char *buf = buffer(&size);
    return sign(coda_plan_print(plan_any(), (coda_text)(chance(98) ? below(6) : number()), buf, size));
}

/* ---- Caches and bundles ---- */

static void free_cache(int i)
{
    for (int k = 0; k < SLOTS; k++)
        if (w.plan[k].p && w.plan[k].cache == i)
            coda_plan_free(w.plan[k].p), w.plan[k] = (struct plan_slot){0};
    coda_cache_free(w.cache[i]);
    free(w.bundle[i]);
    w.cache[i] = w.bundle[i] = NULL;
}

static int64_t get_nothing(void *ctx, const char *n, void *buf, size_t size)
{
    return (void)ctx, (void)n, (void)buf, (void)size, -1;
}
static int put_nothing(void *ctx, const char *n, const void *data, size_t size)
{
    return (void)ctx, (void)n, (void)data, (void)size, ENOSPC;
}
static int call_coda_cache_open(void)
{
    coda_cache_store s = {0,    NULL, chance(90) ? get_nothing : NULL, chance(50) ? put_nothing : NULL, NULL,
                          NULL, NULL};
    coda_cache_options o = {.dir = chance(70) ? w.folder : file(),
                            .overlays = chance(80) ? "" : file(),
                            .limit = chance(70) ? 0 : number(),
                            .flags = chance(60) ? 0 : (unsigned)below(16) | (chance(2) ? 1u << below(32) : 0),
                            .wait_ms = 1,
                            .helper = "/nonexistent",
                            .record = chance(90) ? NULL : file()};
    if (chance(15)) o.store = BOXED(s);
    int i = (int)below(SLOTS);
    coda_cache *c = NULL;
    int status = coda_cache_open(chance(99) ? &c : NULL, BOXED(o));
    if (status) return status;
    free_cache(i);
    w.cache[i] = c;
    return CODA_OK;
}
static int call_coda_cache_free(void) { return free_cache((int)below(SLOTS)), CODA_OK; }
static int call_coda_cache_dir(void) { return coda_cache_dir(cache_any()) ? SILENT : -99; }
static int call_coda_cache_problem(void) { return coda_cache_problem(cache_any()) ? SILENT : -99; }
static int call_coda_cache_forget(void) { return coda_cache_forget(cache_any()), CODA_OK; }
static int call_coda_cache_seal(void) { return coda_cache_seal(cache_any(), (int)below(2)), CODA_OK; }
static int call_coda_cache_stats_get(void)
{
    return coda_cache_stats_get(cache_any(), filled(sizeof(coda_cache_stats)));
}
static int call_coda_cache_stats_print(void)
{
    size_t size;
    char *buf = buffer(&size);
    return sign(coda_cache_stats_print(cache_any(), buf, size));
}
static int visit(void *left, const coda_cache_entry *e) { return e->size >= sizeof *e && --*(int *)left > 0; }
static int call_coda_cache_list(void)
{
    int left = (int)below(20);
    return coda_cache_list(cache_any(), chance(98) ? visit : NULL, &left);
}
static int call_coda_bundle_list(void)
{
    int left = (int)below(20);
    return coda_bundle_list(file(), chance(98) ? visit : NULL, &left);
}
static int call_coda_cache_prune(void)
{
    coda_cache_prune_options o = {0, number(), number(), (int)below(2), (int)below(2), chance(10)};
    return coda_cache_prune(cache_any(), BOXED(o), filled(sizeof(coda_cache_pruned)));
}
static int call_coda_cache_export(void)
{
    const coda_plan *plans[2] = {plan_any(), plan_any()};
    coda_export_options o = {0,
                             chance(50) ? plans : NULL,
                             (int)below(3),
                             chance(90) ? NULL : file(),
                             chance(90) ? NULL : "sm_90a",
                             chance(90) ? NULL : name()};
    return coda_cache_export(cache_any(), file(), BOXED(o), filled(sizeof(coda_bundle_report)));
}
static int call_coda_cache_import(void)
{
    return coda_cache_import(cache_any(), file(), filled(sizeof(coda_bundle_report)));
}
static int call_coda_bundle_print(void)
{
    size_t size;
    char *buf = buffer(&size);
    return sign(coda_bundle_print(file(), buf, size));
}
/* A bundle with a byte changed, or none. */
static int call_coda_cache_add_bundle(void)
{
    int i = (int)below(SLOTS), fd = -1;
    const char *path = file();
    if (!w.cache[i] || w.bundle[i]) return SILENT;
    char *data = w.bundle[i] = calloc(1, 1 << 16);
    if (path) fd = open(path, O_RDONLY | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, data, 1 << 16);
    if (fd >= 0) close(fd);
    if (n > 0 && chance(50)) data[below(n)] ^= 1;
    return coda_cache_add_bundle(w.cache[i], chance(98) ? data : NULL,
                                 n > 0 ? (size_t)n : (size_t)below(100));
}

/* ---- The rest ---- */

static int call_coda_error(void) { return coda_error() ? SILENT : -99; }
static int call_coda_version(void) { return coda_version() ? SILENT : -99; }
static int call_coda_status_name(void) { return coda_status_name((coda_status)number()) ? SILENT : -99; }
static int call_coda_info_print(void)
{
    size_t size;
    char *buf = buffer(&size);
    return chance(95) ? SILENT : sign(coda_info_print(buf, size));
}
static int call_coda_words(void) { return coda_words() > 0 ? SILENT : CODA_E_INVALID; }
static int call_coda_word(void)
{
    int index = chance(90) ? (int)below(coda_words()) : (int)number();
    return coda_word(index, filled(sizeof(coda_word_info)));
}
static int call_coda_word_find(void)
{
    coda_word_info known = CODA_WORD_INFO_INIT;
    if (coda_word((int)below(coda_words()), &known) != CODA_OK) stop("coda_word", "fails");
    return sign(coda_word_find(chance(50) ? known.name : name()));
}
static int call_coda_word_example(void)
{
    size_t size;
    char *buf = buffer(&size);
    return sign(coda_word_example(chance(90) ? (int)below(coda_words()) : (int)number(), buf, size));
}
/* In a process of its own, for it asks to end with its parent. */
static int call_coda_compile_worker(void)
{
    int status;
    if (chance(95)) return SILENT;
    pid_t child = fork();
    if (child == 0)
        _exit(coda_compile_worker(open("/dev/zero", O_RDONLY), open("/dev/null", O_WRONLY)) ? 3 : 0);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) stop("coda_compile_worker", "died");
    return SILENT;
}

/* ---- Sequences ---- */

#define CALL(name) {#name, call_##name},
static const struct {
    const char *name;
    int (*call)(void);
} calls[] = {
#include "calls.h"
};
#undef CALL

static long good[ARRAY_SIZE(calls)]; /* of each call: no failures */

/* A graph with a mistake is mostly taken back to where it was good. */
static void mend(int i)
{
    if (w.g[i]->status == CODA_OK) {
        struct text t = {0};
        graph_print(w.g[i], &t);
        free(w.good[i]);
        w.good[i] = strdup(text_str(&t));
        text_free(&t);
    } else if (chance(90)) {
        coda_graph_free(w.g[i]);
        w.g[i] = NULL;
        if (w.good[i]) coda_graph_parse(&w.g[i], w.good[i]);
        if (!w.g[i] || w.g[i]->nodes > 40) coda_graph_free(w.g[i]), w.g[i] = coda_graph_new();
    }
}

static void step(void)
{
    char before[1100];
    static int (*const often[])(void) = {call_coda_input,
                                         call_coda_weight,
                                         call_coda_matmul,
                                         call_coda_add,
                                         call_coda_output,
                                         call_coda_output_add,
                                         call_coda_output_add_strided,
                                         call_coda_rope,
                                         call_coda_apply,
                                         call_coda_compile,
                                         call_coda_run,
                                         call_coda_run_shaped};
    int (*wanted)(void) = chance(40) ? often[below(ARRAY_SIZE(often))] : calls[below(ARRAY_SIZE(calls))].call;
    int i = 0;
    while (calls[i].call != wanted) i++;
    snprintf(before, sizeof before, "%s", coda_error());
    int status = calls[i].call();
    const char *line = coda_error();
    if (status <= 0 && (!*coda_status_name(status) || status < CODA_E_IO)) stop(calls[i].name, "no status");
    if (status == CODA_OK && strcmp(line, before)) stop(calls[i].name, "success with a line");
    if (status < 0 && (!*line || strchr(line, '\n'))) stop(calls[i].name, "a failure without one line");
    w.calls++;
    w.failures += status < 0;
    good[i] += status == CODA_OK || status == SILENT;
    while (w.boxes) free(w.box[--w.boxes]);
    for (int k = 0; k < SLOTS; k++) mend(k);
}

static void empty_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", w.folder);
    if (system(command)) stop("rm", "failed");
}

static void sequence(uint64_t seed)
{
    w.seed = w.r.state = seed;
    for (int i = 0; i < SLOTS; i++) w.g[i] = coda_graph_new();
    for (int i = 0; i < STEPS; i++) step();
    for (int i = 0; i < SLOTS; i++) {
        int last = (int)below(2); /* plans before or after their graphs */
        if (last) coda_graph_free(w.g[i]);
        coda_plan_free(w.plan[i].p);
        if (!last) coda_graph_free(w.g[i]);
        free(w.good[i]);
        w.g[i] = NULL, w.good[i] = NULL, w.plan[i] = (struct plan_slot){0};
    }
    for (int i = 0; i < SLOTS; i++) free_cache(i);
    coda_cache_seal(NULL, 0);
}

static void say_seed(void) { fprintf(stderr, "fuzz_api: seed %llu\n", (unsigned long long)w.seed); }
void __sanitizer_set_death_callback(void (*)(void)) __attribute__((weak));

/* The fakes lie beside the program. */
static void use_fakes(const char *program)
{
    char path[4096], *slash;
    char *whole = realpath(program, NULL);
    if (!whole || !(slash = strrchr(whole, '/'))) exit(2);
    *slash = 0;
    snprintf(path, sizeof path, "%s/fake", whole);
    setenv("CODA_CUDA_LIB", path, 1);
    snprintf(path, sizeof path, "%s/fake/libcuda.so.1", whole);
    setenv("CODA_LIBCUDA", path, 1);
    free(whole);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL) << 20;
    time_t begin = time(NULL);
    long sequences = 0;
    use_fakes(argv[0]);
    snprintf(w.folder, sizeof w.folder, "%s/fuzz_api.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(w.folder)) return 2;
    setenv("CODA_CACHE_DIR", w.folder, 1);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(say_seed);
    printf("fuzz_api: seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (; difftime(time(NULL), begin) < seconds; sequences++) sequence(seed + (uint64_t)sequences);
    empty_folder();
    for (int i = 0; i < ARRAY_SIZE(calls); i++)
        if (!good[i]) printf("fuzz_api: %s has never succeeded\n", calls[i].name);
    printf("fuzz_api: %ld sequences, %ld calls, %ld of them failures, %ld runs, seed %llu: ok\n", sequences,
           w.calls, w.failures, w.runs, (unsigned long long)seed);
    return 0;
}
