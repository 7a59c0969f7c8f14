/* util_attention_grad.c -- graphs of an attention and its gradients. */
#include "util_attention_grad.h"

#include "coda.h"
#include "util_device.h"
#include "util_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F32 CODA_F32
#define BF16 CODA_BF16
#define F16 CODA_F16

const struct attention_grad_case attention_grad_cases[] = {
    {"plain", F32, 2, 70, 70, 2, 2, 64, .options = 0},
    {"causal", F32, 2, 100, 100, 4, 2, 64, .options = GRAD_CAUSAL},
    {"causal bf16", BF16, 1, 130, 130, 4, 1, 128, .options = GRAD_CAUSAL},
    {"causal f16", F16, 2, 65, 65, 2, 2, 80, .options = GRAD_CAUSAL},
    {"blocks", BF16, 1, 300, 300, 2, 1, 128, .options = GRAD_CAUSAL},
    {"blocks f16", F16, 2, 200, 330, 6, 2, 64, .options = 0},
    {"blocks of more keys", F16, 1, 140, 333, 2, 2, 128, .options = GRAD_CAUSAL | GRAD_DLSE},
    {"blocks from start", BF16, 2, 333, 140, 2, 1, 72, .options = GRAD_CAUSAL | GRAD_PADDED,
     .align = CODA_ALIGN_START},
    {"blocks in a window", BF16, 1, 390, 390, 2, 2, 64, .options = GRAD_CAUSAL, .window = 100},
    {"blocks ahead", F16, 1, 300, 280, 2, 1, 128, .options = 0, .window = 150, .ahead = 90,
     .align = CODA_ALIGN_START},
    {"blocks of sinks", BF16, 1, 130, 130, 2, 1, 64, .options = GRAD_CAUSAL | GRAD_SINKS, .results = 7},
    {"blocks of lengths", BF16, 2, 130, 130, 4, 1, 128, .options = GRAD_CAUSAL | GRAD_LENGTHS},
    {"one query", BF16, 3, 1, 90, 4, 2, 64, .options = GRAD_CAUSAL},
    {"one key", F32, 2, 40, 1, 2, 2, 64, .options = 0},
    {"more keys", BF16, 1, 33, 150, 2, 1, 96, .options = GRAD_CAUSAL},
    {"more queries", F32, 1, 150, 40, 2, 2, 72, .options = GRAD_CAUSAL},
    {"head 256", BF16, 1, 50, 70, 2, 1, 256, .options = GRAD_CAUSAL},
    {"head 256 f32", F32, 1, 40, 33, 1, 1, 256, .options = 0},
    {"head 320", F16, 1, 40, 50, 2, 2, 320, .options = GRAD_CAUSAL},
    {"head 5", BF16, 2, 50, 45, 3, 3, 5, .options = GRAD_CAUSAL},
    {"head 1000", F32, 1, 20, 30, 1, 1, 1000, .options = 0},
    {"padded", BF16, 2, 60, 60, 4, 4, 64, .options = GRAD_CAUSAL | GRAD_PADDED},
    {"window", F32, 1, 150, 150, 2, 1, 64, .options = GRAD_CAUSAL, .window = 40},
    {"window ahead", BF16, 1, 120, 120, 2, 2, 64, .options = 0, .window = 20, .ahead = 15},
    {"lengths", F32, 4, 50, 70, 2, 2, 64, .options = GRAD_LENGTHS},
    {"lengths causal", BF16, 4, 50, 70, 2, 2, 64, .options = GRAD_LENGTHS | GRAD_CAUSAL,
     .align = CODA_ALIGN_LENGTH},
    {"from start", F32, 1, 60, 90, 2, 2, 64, .options = GRAD_CAUSAL, .align = CODA_ALIGN_START},
    {"ranges", F32, 2, 80, 100, 2, 2, 64, .options = GRAD_RANGES},
    {"ranges causal", BF16, 2, 90, 90, 2, 1, 64, .options = GRAD_RANGES | GRAD_CAUSAL},
    {"starts", F32, 5, 120, 60, 4, 2, 64, .options = GRAD_STARTS},
    {"starts causal", BF16, 7, 100, 50, 2, 1, 64,
     .options = GRAD_STARTS | GRAD_CAUSAL | GRAD_LENGTHS | GRAD_DLSE, .align = CODA_ALIGN_LENGTH},
    {"starts of none", F32, 40, 30, 20, 2, 2, 32, .options = GRAD_STARTS},
    {"softcap", F32, 1, 70, 70, 2, 2, 64, .options = GRAD_CAUSAL | GRAD_SOFTCAP},
    {"sinks", F32, 2, 70, 70, 4, 2, 64, .options = GRAD_CAUSAL | GRAD_SINKS},
    {"sinks dlse", BF16, 2, 70, 70, 4, 2, 64, .options = GRAD_CAUSAL | GRAD_SINKS | GRAD_DLSE},
    {"slopes", F32, 2, 70, 90, 4, 4, 64, .options = GRAD_SLOPES},
    {"bias", F32, 2, 45, 70, 2, 1, 64, .options = 0, .bias_rank = 4, .bias = BIAS_OF_ALL},
    {"bias of heads", BF16, 3, 50, 60, 4, 2, 64, .options = GRAD_CAUSAL, .bias_rank = 3,
     .bias = BIAS_OF_HEADS | BIAS_OF_QUERIES | BIAS_OF_KEYS, .bias16 = true},
    {"bias of keys", F32, 2, 50, 100, 4, 2, 64, .options = 0, .bias_rank = 4,
     .bias = BIAS_OF_BATCH | BIAS_OF_KEYS},
    {"bias of queries", F32, 2, 70, 33, 2, 2, 64, .options = 0, .bias_rank = 2, .bias = BIAS_OF_QUERIES},
    {"bias of one", F32, 2, 40, 40, 2, 2, 32, .options = GRAD_CAUSAL, .bias_rank = 1},
    {"all", F32, 2, 70, 70, 4, 2, 48,
     GRAD_CAUSAL | GRAD_LENGTHS | GRAD_RANGES | GRAD_SOFTCAP | GRAD_SLOPES | GRAD_SINKS | GRAD_DLSE |
         GRAD_PADDED,
     .window = 50, .align = CODA_ALIGN_END, .bias_rank = 3,
     .bias = BIAS_OF_HEADS | BIAS_OF_QUERIES | BIAS_OF_KEYS},
    {"all bf16", BF16, 3, 60, 75, 4, 2, 64,
     GRAD_CAUSAL | GRAD_LENGTHS | GRAD_SOFTCAP | GRAD_SLOPES | GRAD_SINKS | GRAD_DLSE | GRAD_PADDED,
     .align = CODA_ALIGN_LENGTH, .bias_rank = 4, .bias = BIAS_OF_ALL, .bias16 = true},
    {"all packed", F32, 6, 90, 60, 4, 2, 64,
     GRAD_CAUSAL | GRAD_LENGTHS | GRAD_STARTS | GRAD_SLOPES | GRAD_SINKS | GRAD_DLSE | GRAD_RANGES,
     .align = CODA_ALIGN_LENGTH, .bias_rank = 3, .bias = BIAS_OF_HEADS | BIAS_OF_QUERIES | BIAS_OF_KEYS},
    {"score", F32, 2, 60, 60, 2, 1, 64, .options = GRAD_CAUSAL, .score = GRAD_SCORE_SOFTCAP},
    {"score bf16", BF16, 2, 60, 70, 2, 1, 64, .options = GRAD_CAUSAL | GRAD_SINKS, .score = GRAD_SCORE_SILU},
    {"score of position", F32, 1, 20, 20, 2, 2, 32, .options = GRAD_CAUSAL, .score = GRAD_SCORE_MUL},
    {"score and bias", F32, 1, 40, 40, 2, 2, 32, .options = GRAD_SLOPES | GRAD_SOFTCAP, .bias_rank = 3,
     .bias = BIAS_OF_HEADS | BIAS_OF_QUERIES | BIAS_OF_KEYS, .score = GRAD_SCORE_SUB},
    {"dq alone", BF16, 1, 70, 70, 2, 1, 64, .options = GRAD_CAUSAL, .results = 1},
    {"dk alone", F32, 1, 70, 70, 2, 1, 64, .options = GRAD_CAUSAL, .results = 2},
    {"dv alone", F32, 1, 70, 70, 2, 1, 64, .options = GRAD_CAUSAL, .results = 4},
    {"dk alone f16", F16, 1, 150, 150, 2, 1, 64, .options = GRAD_CAUSAL, .results = 2},
    {"dq and dv", BF16, 1, 150, 150, 2, 1, 128, .options = 0, .results = 5},
    {"dsinks alone", F32, 2, 70, 70, 2, 1, 64, .options = GRAD_SINKS, .results = 8},
    {"no keys", F32, 2, 30, 0, 2, 2, 32, .options = 0},
    {"no queries", F32, 2, 0, 30, 2, 2, 32, .options = 0},
    {"no batch", F32, 1, 30, 30, 2, 2, 32, .options = 0, .bias_rank = 4,
     .bias = BIAS_OF_HEADS | BIAS_OF_KEYS},
};
const int attention_grad_case_count = ARRAY_SIZE(attention_grad_cases);

/* ---- Cases ---- */

static bool is_packed(const struct attention_grad_case *c) { return c->options & GRAD_STARTS; }
static int64_t sequences(const struct attention_grad_case *c) { return MAX(c->batch, 1); }
static bool q_is_flat(const struct attention_grad_case *c) { return !c->batch || is_packed(c); }

struct attention_grad_case attention_grad_draw(uint64_t seed, coda_dtype dtype)
{
    struct random r = {seed ^ 0xa77e};
    struct attention_grad_case c = {.name = "random", .dtype = dtype};
    c.batch = random_below(&r, 4);
    c.kv_heads = 1 + random_below(&r, 2);
    c.heads = c.kv_heads * (1 + random_below(&r, 3));
    c.head_dim = 1 + random_below(&r, 9);
    c.tq = random_chance(&r, 20) ? 1 : 1 + random_below(&r, random_chance(&r, 20) ? 70 : 14);
    c.tk = random_chance(&r, 50) ? c.tq : 1 + random_below(&r, random_chance(&r, 20) ? 140 : 14);
    for (int bit = GRAD_CAUSAL; bit <= GRAD_PADDED; bit *= 2)
        if (random_chance(&r, bit == GRAD_STARTS ? 15 : 35)) c.options |= bit;
    if (is_packed(&c)) c.batch = 1 + random_below(&r, 5);
    if (random_chance(&r, 35)) c.window = 1 + random_below(&r, c.tk + 2);
    if (!(c.options & GRAD_CAUSAL) && random_chance(&r, 35)) c.ahead = 1 + random_below(&r, c.tk + 2);
    c.align = 1 + (int)random_below(&r, 3);
    if (random_chance(&r, 50)) c.bias_rank = 1 + (int)random_below(&r, q_is_flat(&c) ? 3 : 4);
    c.bias = (int)random_below(&r, BIAS_OF_ALL + 1) & (BIAS_OF_ALL - (1 << (4 - c.bias_rank)) + 1);
    c.bias16 = random_chance(&r, 50);
    if (random_chance(&r, 40)) c.score = 1 + (int)random_below(&r, GRAD_SCORES - 1);
    if (c.score == GRAD_SCORE_MUL) c.tq = MIN(c.tq, 6), c.tk = MIN(c.tk, 6); /* times the position */
    if (dtype != F32 && random_chance(&r, 50)) { /* what wgmma takes, but for queries that see nothing */
        c.options &= GRAD_CAUSAL | GRAD_DLSE | GRAD_PADDED;
        c.bias_rank = c.score = 0;
        c.head_dim = 8 * (1 + random_below(&r, 16));
        c.tq = 1 + random_below(&r, 200), c.tk = random_chance(&r, 50) ? c.tq : 1 + random_below(&r, 300);
    }
    return c;
}

void attention_grad_describe(const struct attention_grad_case *c, struct text *t)
{
    text_printf(t, "%s: %s b%d q%d k%d h%d/%d d%d options %x window %d ahead %d align %d bias %d %x score %d",
                c->name, dtype_name(c->dtype), (int)c->batch, (int)c->tq, (int)c->tk, (int)c->heads,
                (int)c->kv_heads, (int)c->head_dim, (unsigned)c->options, (int)c->window, (int)c->ahead,
                c->align, c->bias_rank, (unsigned)c->bias, c->score);
}

/* ---- Texts ---- */

/* A leaf of rows; B is there if `batch` is no 0. */
static void leaf(const char *name, coda_dtype dtype, int64_t batch, int64_t rows, int64_t columns,
                 bool padded, struct text *t)
{
    int64_t pitch = columns + (padded ? 8 : 0);
    text_printf(t, "%%%s = input %s [", name, dtype_name(dtype));
    if (batch) text_printf(t, "%lld,", (long long)batch);
    text_printf(t, "%lld,%lld]", (long long)rows, (long long)columns);
    if (padded) text_append(t, " stride=[");
    if (padded && batch) text_printf(t, "%lld,", (long long)(pitch * MAX(rows, 1)));
    if (padded) text_printf(t, "%lld,1]", (long long)pitch);
    text_append(t, "\n");
}

static void bias_leaf(const struct attention_grad_case *c, struct text *t)
{
    int64_t whole[] = {is_packed(c) ? 1 : sequences(c), c->heads, c->tq, c->tk};
    text_printf(t, "%%bias = input %s [", dtype_name(c->bias16 ? c->dtype : F32));
    for (int d = 4 - c->bias_rank; d < 4; d++)
        text_printf(t, "%lld%s", (long long)(c->bias >> d & 1 ? whole[d] : 1), d < 3 ? "," : "]\n");
}

static void leaves(const struct attention_grad_case *c, struct text *t)
{
    int64_t batch = q_is_flat(c) ? 0 : c->batch, width = c->heads * c->head_dim;
    int64_t kv_width = c->kv_heads * c->head_dim;
    bool padded = c->options & GRAD_PADDED;
    leaf("q", c->dtype, batch, c->tq, width, padded, t);
    leaf("k", c->dtype, c->batch, c->tk, kv_width, padded, t);
    leaf("v", c->dtype, c->batch, c->tk, kv_width, padded, t);
    leaf("do", c->dtype, batch, c->tq, width, padded, t);
    if (c->options & GRAD_DLSE) leaf("dlse", F32, batch, c->heads, c->tq, false, t);
    if (c->options & GRAD_LENGTHS) text_printf(t, "%%lengths = input i32 [%lld]\n", (long long)sequences(c));
    if (c->options & GRAD_RANGES) leaf("ranges", CODA_I32, batch, c->tq, 2, false, t);
    if (c->options & GRAD_SLOPES) text_printf(t, "%%slopes = input f32 [%lld]\n", (long long)c->heads);
    if (c->options & GRAD_SINKS) text_printf(t, "%%sinks = input f32 [%lld]\n", (long long)c->heads);
    if (is_packed(c)) text_printf(t, "%%starts = input i32 [%lld]\n", (long long)c->batch + 1);
    if (c->bias_rank) bias_leaf(c, t);
}

static void operand(bool there, const char *name, struct text *t)
{
    text_printf(t, there ? ", %%%s" : ", _", name);
}

/* Behind the operands that both have. Attention has a table and scales, too. */
static void beside(const struct attention_grad_case *c, bool forward, struct text *t)
{
    operand(c->options & GRAD_LENGTHS, "lengths", t);
    operand(c->options & GRAD_RANGES, "ranges", t);
    operand(c->options & GRAD_SLOPES, "slopes", t);
    operand(c->options & GRAD_SINKS, "sinks", t);
    if (forward) text_append(t, ", _, _, _");
    operand(is_packed(c), "starts", t);
    operand(c->bias_rank > 0, "bias", t);
}

static const char *const score[GRAD_SCORES] = {[GRAD_SCORE_SOFTCAP] = "softcap {cap=2}",
                                               [GRAD_SCORE_MUL] = "mul",
                                               [GRAD_SCORE_SUB] = "sub",
                                               [GRAD_SCORE_SILU] = "silu"};

static void attributes(const struct attention_grad_case *c, struct text *t)
{
    text_printf(t, " {heads=%d, kv_heads=%d", (int)c->heads, (int)c->kv_heads);
    if (c->options & GRAD_CAUSAL) text_append(t, ", causal=1");
    if (c->window) text_printf(t, ", window=%d", (int)c->window);
    if (c->ahead) text_printf(t, ", ahead=%d", (int)c->ahead);
    if (c->align) text_printf(t, ", align=%d", c->align);
    if (c->options & GRAD_SOFTCAP) text_append(t, ", softcap=1.5");
    if (c->score) text_printf(t, ", score=%s", score[c->score]);
}

static void forward(const struct attention_grad_case *c, struct text *t)
{
    for (int lse = 0; lse < 2; lse++) {
        text_printf(t, "%%%s = attention %%q, %%k, %%v", lse ? "l" : "o");
        beside(c, true, t);
        attributes(c, t);
        text_append(t, lse ? ", lse=1} @%o\n" : "}\n");
    }
}

/* Behind all other leaves. */
static void forward_leaves(const struct attention_grad_case *c, struct text *t)
{
    int64_t batch = q_is_flat(c) ? 0 : c->batch;
    leaf("o", c->dtype, batch, c->tq, c->heads * c->head_dim, c->options & GRAD_PADDED, t);
    leaf("l", F32, batch, c->heads, c->tq, false, t);
}

static graph *parsed(struct text *t)
{
    coda_graph *g = NULL;
    coda_graph_parse(&g, text_str(t));
    text_free(t);
    return g;
}

enum { RESULTS = ATTENTION_GRAD_USES - ATTENTION_GRAD_OPERANDS };

static bool has_result(const struct attention_grad_case *c, int result)
{
    bool there[RESULTS] = {true, true, true, c->options & GRAD_SINKS, c->bias_rank, c->options & GRAD_SLOPES};
    return there[result] && (!c->results || c->results >> result & 1);
}

graph *attention_grad_graph(const struct attention_grad_case *c, bool joint)
{
    struct text t = {0};
    int first = -1;
    leaves(c, &t);
    if (joint) forward(c, &t);
    else forward_leaves(c, &t);
    if (joint) text_append(&t, "output %o = %o\noutput %l = %l\n");
    for (int i = 0; i < RESULTS; i++) {
        if (!has_result(c, i)) continue;
        text_printf(&t, "%%d%d = attention_grad %%q, %%k, %%v, %%o, %%l, %%do", i);
        operand(c->options & GRAD_DLSE, "dlse", &t);
        beside(c, false, &t);
        attributes(c, &t);
        text_printf(&t, ", of=%d}", i);
        if (first >= 0) text_printf(&t, " @%%d%d", first);
        text_printf(&t, "\noutput %%d%d = %%d%d\n", i, i);
        if (first < 0) first = i;
    }
    return parsed(&t);
}

/* The sum of all elements of a value of this rank. */
static void whole_sum(const char *name, const char *of, int64_t elements, struct text *t)
{
    text_printf(t, "%%%s_row = reshape %%%s {rank=2, d0=1, d1=%lld}\n%%%s = sum %%%s_row\n", name, of,
                (long long)elements, name, name);
}

graph *attention_grad_loss(const struct attention_grad_case *c)
{
    struct text t = {0};
    int64_t batches = q_is_flat(c) ? 1 : c->batch;
    leaves(c, &t);
    forward(c, &t);
    text_append(&t, "%a = mul %o, %do\n");
    whole_sum("by_o", "a", batches * c->tq * c->heads * c->head_dim, &t);
    if (c->options & GRAD_DLSE) {
        text_append(&t, "%least = constant {to=f32, value=-10000}\n%m = maximum %l, %least\n"
                        "%b = mul %m, %dlse\n");
        whole_sum("by_l", "b", batches * c->tq * c->heads, &t);
        text_append(&t, "%loss = add %by_o, %by_l\noutput %loss = %loss\n");
    } else {
        text_append(&t, "output %loss = %by_o\n");
    }
    return parsed(&t);
}

/* ---- Arguments ---- */

static void fill_ranges(const struct attention_grad_case *c, int64_t rows, int32_t *to, struct random *r)
{
    for (int64_t i = 0; i < rows; i++) {
        to[2 * i] = (int32_t)random_below(r, c->tk / 2 + 1) - (random_chance(r, 10) ? 3 : 0);
        to[2 * i + 1] = random_chance(r, 5) ? INT32_MAX : (int32_t)random_below(r, c->tk + 4);
        if (random_chance(r, 70)) to[2 * i + 1] = MAX(to[2 * i + 1], to[2 * i] + 1 + (int32_t)(c->tk / 3));
    }
}

void **attention_grad_joint_args(const struct attention_grad_case *c, const graph *joint, uint64_t seed,
                                 bool evaluate)
{
    struct random r = {seed ^ 0x5107e5};
    void **args = random_args(joint, seed, evaluate);
    for (int i = 0; args && i < joint->leaves && !device_dry(); i++) {
        const struct node *n = &joint->node[joint->leaf[i]];
        int64_t elements = type_elements(&n->type);
        float *x = args[i];
        if (!strcmp(n->name, "ranges")) fill_ranges(c, elements / 2, args[i], &r);
        for (int64_t e = 0; e < elements && !strcmp(n->name, "slopes"); e++) x[e] = rintf(x[e] * 64) / 1024;
    }
    return args;
}

/* Rounds dense doubles into a leaf, between whose rows lies what nobody reads. */
static void *rounded(const struct node *leaf, const double *from)
{
    size_t bytes = random_arg_bytes(&leaf->type, leaf->stride);
    void *to = malloc(bytes + 1);
    if (to) memset(to, 0xff, bytes);
    for (int64_t e = 0; to && e < type_elements(&leaf->type); e++) {
        int64_t at = 0, rest = e;
        for (int d = leaf->type.rank - 1; d >= 0; rest /= leaf->type.dim[d--])
            at += rest % leaf->type.dim[d] * leaf->stride[d];
        dtype_store(leaf->type.dtype, to, at, from[e]);
    }
    return to;
}

/* Those of the graph g of gradients: the joint one's, o and lse, and outputs that are poisoned. */
static void **grad_args(const struct attention_grad_case *c, const graph *g, uint64_t seed, bool evaluate)
{
    graph *joint = attention_grad_graph(c, true);
    void **from = joint ? attention_grad_joint_args(c, joint, seed, true) : NULL;
    void **args = calloc((size_t)(g->leaves + g->outputs) + 1, sizeof *args);
    bool ok = from && args && (device_dry() || coda_evaluate(joint, from) == CODA_OK);
    for (int i = 0; ok && i < joint->leaves; i++) args[i] = from[i], from[i] = NULL;
    for (int i = 0; ok && i < 2; i++)
        args[joint->leaves + i] = rounded(&g->node[g->leaf[joint->leaves + i]], from[joint->leaves + i]);
    for (int i = 0; ok && i < g->outputs; i++) {
        const struct type *t = &g->node[g->output[i].value].type;
        size_t bytes = (size_t)(evaluate ? 8 * type_elements(t) : dtype_bytes(t->dtype, type_elements(t)));
        if ((args[g->leaves + i] = malloc(bytes + 1))) memset(args[g->leaves + i], 0xff, bytes);
    }
    if (from) random_args_free(joint, from);
    graph_free(joint);
    if (!ok) free(args);
    return ok ? args : NULL;
}

/* ---- Errors ---- */

/* Of the root of the mean of squares: what sums in fp32 may leave, and weights that tensor cores multiply,
 * which are rounded first. Of an element itself: it is rounded, and so is a weight that is most of it. */
struct allowance {
    double rms, element;
};
static struct allowance allowed(const struct attention_grad_case *c, bool on_gpu)
{
    double unit = c->dtype == BF16 ? 0x1p-8 : 0x1p-11;
    double mapped = c->score ? 3 : 1; /* a derivative of a map near its ends is small beside what rounds */
    if (c->dtype == F32) return (struct allowance){mapped * 2e-5, mapped * 2e-6};
    return on_gpu ? (struct allowance){5 * unit, 2 * unit} : (struct allowance){unit / 4, unit};
}

/* The root of the mean of squares. */
static double rms_of(const double *x, int64_t n)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += isfinite(x[i]) ? x[i] * x[i] : 0;
    return sqrt(squares / (double)MAX(n, 1));
}

/* The worst element of a dense output, whose rows may be of other sizes: of sequences that are short, say.
 * What is infinite has to be. Where all cancels, numbers of size 1 did: of a sum over pairs of queries and
 * keys thousands of them. */
enum { MANY = 10 };
static double output_error(const struct type *t, struct allowance of, const void *got, const double *want,
                           double smallest)
{
    int64_t n = type_elements(t), columns = MAX(type_columns(t), 1);
    double worst = 0, all = rms_of(want, n), row = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = dtype_load(t->dtype, got, i);
        if (i % columns == 0) row = rms_of(want + i, columns);
        if (x == want[i]) continue;
        double allow = of.rms * fmax(all, row) + of.element * fabs(want[i]) + smallest;
        worst = fmax(worst, isfinite(x) && isfinite(want[i]) ? fabs(x - want[i]) / allow : INFINITY);
    }
    return worst;
}

static bool is_sum(const graph *g, int output)
{
    return node_result(&g->node[g->output[output].value]) > ATTENTION_GRAD_DV - ATTENTION_GRAD_OPERANDS;
}

static bool run(const graph *g, const coda_compile_options *opt, void **args)
{
    struct run_buffers b;
    coda_plan *p;
    if (coda_compile(&p, g, opt) != CODA_OK) return false;
    bool ok =
        run_upload(&b, g, p, args, opt->device == CODA_DEVICE_GPU) && run_prepare(&b, p) && run_plan(&b, p);
    run_release(&b);
    coda_plan_free(p);
    return ok;
}

double attention_grad_error(const struct attention_grad_case *c, uint64_t seed,
                            const coda_compile_options *opt)
{
    graph *g = attention_grad_graph(c, false);
    void **want = g ? grad_args(c, g, seed, true) : NULL, **got = g ? grad_args(c, g, seed, false) : NULL;
    bool ok = want && got && run(g, opt, got);
    if (ok && !device_dry()) ok = coda_evaluate(g, want) == CODA_OK;
    double worst = 0;
    const struct allowance of = allowed(c, opt->device == CODA_DEVICE_GPU);
    for (int i = 0; ok && i < g->outputs && !device_dry(); i++)
        worst = fmax(worst, output_error(&g->node[g->output[i].value].type, of, got[g->leaves + i],
                                         want[g->leaves + i], is_sum(g, i) ? MANY * 1e-5 : 1e-5));
    if (want) random_args_free(g, want);
    if (got) random_args_free(g, got);
    graph_free(g);
    return ok ? worst : -1;
}
