/*
 * test_attention.c -- attention of random shapes and masks, by the evaluator and the CPU device, against the
 * manual's formula, key by key in fp64.
 *
 * Whatever no query may see is garbage: rows past a length, queries that see nothing, the space between
 * strided rows and around the tensors. Rows inside a sequence hold NaN and inf, too: a row that sees none of
 * them must be what it is without. CODA_TEST_CASES sets how many cases are drawn.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { CASES = 300, SLACK = 64, MOST_ARGS = 10 };

/* Maps of scores, by name: of a graph, but for the library's own softcap. */
enum { NO_MAP, MAP_BIAS, MAP_DISTANCE, MAP_STRIPES, MAP_SOFTCAP, MAPS };

struct tensor {
    int64_t batch, time, columns, pitch, block; /* pitch: from row to row, block: from batch to batch */
    unsigned char *memory;
    void *at;
};

/* What is added to scores: some of [batch, heads, tq, tk], the last ones, each 1 or whole, by strides. */
struct bias {
    int rank; /* 0: none */
    coda_dtype dtype;
    int64_t dim[4], stride[4];
    unsigned char *memory;
};

struct attention_case {
    coda_dtype dtype;
    int64_t batch, tq, tk, heads, kv_heads, dim, window;
    int causal, align;
    bool lengths, flat; /* flat: one sequence, without the dimension of the batch */
    float scale, softcap;
    int map;
    int64_t ahead;
    int32_t *length;       /* [batch], as the caller stores them */
    int32_t *range;        /* [batch][tq][2]; NULL: none, as the next two */
    float *slopes, *sinks; /* [heads] */
    float *sums;           /* [batch][heads][tq], a second result; NULL: none */
    double *evaluated_sums;
    struct bias bias;
    struct tensor q, k, v, y;
};

static char *describe(const struct attention_case *c)
{
    static char text[300];
    snprintf(text, sizeof text,
             "%s b%d q%d k%d h%d/%d d%d window %d%s align %d%s ahead %d%s%s%s%s map %d bias %d",
             c->dtype == CODA_F32 ? "f32" : "16", (int)c->batch, (int)c->tq, (int)c->tk, (int)c->heads,
             (int)c->kv_heads, (int)c->dim, (int)c->window, c->causal ? " causal" : "", c->align,
             c->lengths ? " lengths" : "", (int)c->ahead, c->softcap > 0 ? " softcap" : "",
             c->range ? " ranges" : "", c->slopes ? " slopes" : "", c->sinks ? " sinks" : "", c->map,
             c->bias.rank);
    return text;
}

/* ---- Maps of scores ---- */

/* By the keys' distance, from 3 keys behind to 2 ahead; each head more than the one before. */
static double bias_map(const double *in, const double *params)
{
    return in[0] + params[1] * (in[3] + 1) * fmin(fmax(in[2] - in[1], -params[0]), 2);
}
static double distance_map(const double *in, const double *params)
{
    return in[0] - params[0] * log(1 + fabs(in[1] - in[2]));
}
static double stripes_map(const double *in, const double *params)
{
    (void)params;
    return fmod(in[2] + in[3], 3) == 1 ? -INFINITY : in[0];
}
static const coda_map_def map_def[MAPS] = {
    [MAP_BIAS] = {sizeof(coda_map_def), "bias", 4, 2, "of no use on a CPU", bias_map, {NULL}},
    [MAP_DISTANCE] = {sizeof(coda_map_def), "distance", 3, 1, "of no use on a CPU", distance_map, {NULL}},
    [MAP_STRIPES] = {sizeof(coda_map_def), "stripes", 4, 0, "of no use on a CPU", stripes_map, {NULL}},
};
static const float map_param[MAPS][4] = {
    [MAP_BIAS] = {3, 0.25f}, [MAP_DISTANCE] = {0.5f}, [MAP_SOFTCAP] = {1.5f}};

/* The same, as the caller thinks of it. */
static double mapped(int map, double s, int64_t position, int64_t key, int64_t head)
{
    int64_t ahead = key - position;
    switch (map) {
    case MAP_BIAS: return s + 0.25 * (double)((head + 1) * (ahead < -3 ? -3 : ahead > 2 ? 2 : ahead));
    case MAP_DISTANCE: return s - 0.5 * log((double)(ahead < 0 ? 1 - ahead : 1 + ahead));
    case MAP_STRIPES: return (key + head) % 3 == 1 ? -INFINITY : s;
    case MAP_SOFTCAP: return 1.5 * tanh(s / 1.5);
    default: return s;
    }
}

/* ---- The manual ---- */

static int64_t keys_of(const struct attention_case *c, int64_t b)
{
    if (!c->lengths || c->length[b] > c->tk) return c->tk;
    return c->length[b] < 0 ? 0 : c->length[b];
}

static bool masked(const struct attention_case *c)
{
    return c->causal || c->window > 0 || c->ahead > 0 || c->slopes || map_def[c->map].inputs > 1;
}

static int64_t position_of(const struct attention_case *c, int64_t b, int64_t i)
{
    if (c->align == CODA_ALIGN_START) return i;
    return i + (c->align == CODA_ALIGN_LENGTH ? keys_of(c, b) : c->tk) - c->tq;
}

static bool sees(const struct attention_case *c, int64_t b, int64_t i, int64_t j)
{
    int64_t position = position_of(c, b, i);
    const int32_t *range = c->range ? c->range + 2 * (b * c->tq + i) : NULL;
    if (range && (j < range[0] || j >= range[1])) return false;
    if (j >= keys_of(c, b)) return false;
    if (c->align == CODA_ALIGN_LENGTH && masked(c) && position < 0) return false;
    if (c->causal && j > position) return false;
    if (c->ahead && j > position + c->ahead) return false;
    return c->window == 0 || j > position - c->window;
}

/* What the default alignment must refuse. */
static bool ambiguous(const struct attention_case *c)
{
    return c->align == 0 && c->lengths && masked(c) && c->tq != c->tk &&
           (c->tq != 1 || c->window || c->ahead || c->slopes || map_def[c->map].inputs > 1);
}

static double element(const struct attention_case *c, const struct tensor *t, int64_t b, int64_t row,
                      int64_t column)
{
    return dtype_load(c->dtype, t->at, b * t->block + row * t->pitch + column);
}

/* Where it is for a batch, a head, a query and a key. */
static int64_t bias_at(const struct bias *t, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t index[] = {b, h, i, j}, at = 0;
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] > 1) at += index[4 - t->rank + d] * t->stride[d];
    return at;
}

/* One query of one head into `out`, and the sum of p |v| into `size`; log sum e^score, NaN if a score is no
 * number. */
static double attend(const struct attention_case *c, int64_t b, int64_t i, int64_t h, double *out,
                     double *size)
{
    int64_t shared = h / (c->heads / c->kv_heads);
    double *score = calloc((size_t)c->tk + 1, sizeof *score), top = -INFINITY, sum = 0;
    bool any = false, finite = true;
    for (int64_t d = 0; d < c->dim; d++) out[d] = size[d] = 0;
    for (int64_t j = 0; j < c->tk; j++) {
        if (!sees(c, b, i, j)) continue;
        for (int64_t d = 0; d < c->dim; d++)
            score[j] +=
                element(c, &c->q, b, i, h * c->dim + d) * element(c, &c->k, b, j, shared * c->dim + d);
        score[j] *= c->scale;
        if (c->softcap > 0) score[j] = c->softcap * tanh(score[j] / c->softcap);
        if (c->slopes) score[j] -= c->slopes[h] * fabs((double)(position_of(c, b, i) - j));
        if (c->bias.rank)
            score[j] += dtype_load(c->bias.dtype, c->bias.memory, bias_at(&c->bias, b, h, i, j));
        score[j] = mapped(c->map, score[j], position_of(c, b, i), j, h);
        top = fmax(top, score[j]);
        any = true;
        finite = finite && isfinite(score[j]);
    }
    if (c->sinks) top = fmax(top, c->sinks[h]), sum = exp(c->sinks[h] - top);
    for (int64_t j = 0; j < c->tk; j++) {
        if (!sees(c, b, i, j)) continue;
        double p = exp(score[j] - top);
        sum += p;
        for (int64_t d = 0; d < c->dim; d++) {
            double v = element(c, &c->v, b, j, shared * c->dim + d);
            out[d] += p * v;
            size[d] += p * fabs(v);
        }
    }
    for (int64_t d = 0; d < c->dim && any; d++) out[d] /= sum, size[d] /= sum;
    free(score);
    return !finite ? NAN : any ? top + log(sum) : -INFINITY;
}

/* ---- Data ---- */

static void garbage(struct tensor *t, coda_dtype dtype, size_t bytes, struct random *r)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, 6e4, -6e4};
    for (size_t i = 0; i < bytes / (size_t)dtype_bytes(dtype, 1); i++)
        dtype_store(dtype, t->memory, (int64_t)i, bad[random_below(r, 5)]);
}

static void make_tensor(struct tensor *t, coda_dtype dtype, int64_t batch, int64_t time, int64_t columns,
                        struct random *r)
{
    t->batch = batch, t->time = time, t->columns = columns;
    t->pitch = columns + (random_chance(r, 50) ? random_below(r, 9) : 0);
    t->block = MAX(time, 1) * t->pitch + (random_chance(r, 50) ? random_below(r, 40) : 0);
    size_t size = (size_t)dtype_bytes(dtype, 1), bytes = (size_t)(batch * t->block + 2 * SLACK) * size;
    t->memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    t->at = t->memory + SLACK * size;
    garbage(t, dtype, bytes, r);
}

static void fill_row(const struct attention_case *c, struct tensor *t, int64_t b, int64_t row,
                     struct random *r)
{
    for (int64_t d = 0; d < t->columns; d++)
        dtype_store(c->dtype, t->at, b * t->block + row * t->pitch + d, random_normal(r));
}

/* What is used gets numbers; some rows of k and v get a number that is none. */
static void fill(struct attention_case *c, struct random *r)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY};
    for (int64_t b = 0; b < c->batch; b++) {
        for (int64_t i = 0; i < c->tq; i++) {
            bool any = false;
            for (int64_t j = 0; j < c->tk; j++) any = any || sees(c, b, i, j);
            if (any) fill_row(c, &c->q, b, i, r);
        }
        for (int64_t j = 0; j < keys_of(c, b); j++) {
            struct tensor *t = random_chance(r, 50) ? &c->k : &c->v;
            fill_row(c, &c->k, b, j, r);
            fill_row(c, &c->v, b, j, r);
            if (random_chance(r, 4))
                dtype_store(c->dtype, t->at, b * t->block + j * t->pitch + random_below(r, t->columns),
                            odd[random_below(r, 3)]);
        }
    }
}

static void make_bias(struct attention_case *c, struct random *r)
{
    struct bias *t = &c->bias;
    int64_t whole[] = {c->batch, c->heads, c->tq, c->tk}, elements = 1;
    t->rank = 1 + (int)random_below(r, c->flat ? 3 : 4);
    t->dtype = random_chance(r, 50) ? CODA_F32 : c->dtype;
    for (int d = 0; d < t->rank; d++) t->dim[d] = random_chance(r, 30) ? 1 : whole[4 - t->rank + d];
    bool turned = t->rank > 1 && random_chance(r, 25); /* the last two dimensions */
    for (int d = t->rank - 1; d >= 0; d--) {
        int axis = turned && d >= t->rank - 2 ? 2 * t->rank - 3 - d : d;
        t->stride[axis] = elements;
        elements = elements * MAX(t->dim[axis], 1) + (random_chance(r, 30) ? random_below(r, 4) : 0);
    }
    size_t bytes = (size_t)elements * (size_t)dtype_bytes(t->dtype, 1);
    t->memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    memset(t->memory, 0xff, (bytes + 64) / 64 * 64);
}

/* Of what is seen it has numbers, now and then one that is none or hides the key; else NaN. */
static void fill_bias(struct attention_case *c, struct random *r)
{
    static const double odd[] = {NAN, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    int64_t pairs = c->batch * c->heads * c->tq * c->tk;
    int often = random_chance(r, 50) ? 0 : 4;
    for (int64_t e = 0; e < pairs; e++) {
        int64_t j = e % c->tk, i = e / c->tk % c->tq, h = e / c->tk / c->tq % c->heads;
        int64_t b = e / c->tk / c->tq / c->heads;
        if (sees(c, b, i, j))
            dtype_store(c->bias.dtype, c->bias.memory, bias_at(&c->bias, b, h, i, j),
                        random_chance(r, often) ? odd[random_below(r, 5)] : random_normal(r));
    }
}

static struct attention_case draw(struct random *r)
{
    static const coda_dtype dtype[] = {CODA_F32, CODA_BF16, CODA_F16};
    struct attention_case c = {.dtype = dtype[random_below(r, 3)]};
    c.flat = random_chance(r, 15);
    c.batch = c.flat ? 1 : random_below(r, 4);
    c.kv_heads = 1 + random_below(r, 3);
    c.heads = c.kv_heads * (1 + random_below(r, 3));
    c.dim = 1 + random_below(r, random_chance(r, 20) ? 70 : 12);
    c.tq = random_chance(r, 30) ? 1 : random_below(r, random_chance(r, 20) ? 150 : 40);
    c.tk = random_chance(r, 30) ? c.tq : random_below(r, random_chance(r, 30) ? 300 : 40);
    c.causal = random_chance(r, 60);
    c.window = random_chance(r, 50) ? 1 + random_below(r, random_chance(r, 50) ? 6 : MAX(c.tk, c.tq) + 3) : 0;
    c.align = (int)random_below(r, 4);
    c.lengths = random_chance(r, 65);
    c.scale = 0.3f;
    c.length = malloc(sizeof *c.length * (size_t)(c.batch + 1));
    for (int64_t b = 0; b < c.batch; b++) {
        int32_t special[] = {0, INT32_MIN, INT32_MAX, -1, (int32_t)c.tk, (int32_t)c.tk + 1, 1, (int32_t)c.tq};
        c.length[b] = random_chance(r, 40) ? special[random_below(r, 8)] : (int32_t)random_below(r, c.tk + 1);
    }
    c.ahead = !c.causal && random_chance(r, 30) ? 1 + random_below(r, c.tk + 3) : 0;
    c.softcap = random_chance(r, 20) ? 2.0f : 0;
    c.map = random_chance(r, 35) ? 1 + (int)random_below(r, MAPS - 1) : NO_MAP;
    if (random_chance(r, 30)) c.range = malloc(sizeof *c.range * (size_t)(2 * c.batch * c.tq + 1));
    if (random_chance(r, 40)) {
        size_t sums = (size_t)(c.batch * c.heads * c.tq + 8);
        c.sums = aligned_alloc(64, (sums * sizeof *c.sums + 63) / 64 * 64);
        c.evaluated_sums = malloc(sums * sizeof *c.evaluated_sums);
    }
    if (random_chance(r, 20)) c.slopes = aligned_alloc(16, 64);
    if (random_chance(r, 20)) c.sinks = aligned_alloc(16, 64);
    for (int64_t i = 0; c.range && i < c.batch * c.tq; i++) {
        c.range[2 * i] = (int32_t)random_below(r, c.tk + 6) - 5;
        c.range[2 * i + 1] = random_chance(r, 5) ? INT32_MAX : (int32_t)random_below(r, c.tk + 6);
    }
    for (int64_t h = 0; h < c.heads; h++) {
        if (c.slopes)
            c.slopes[h] = (float)ldexp(1, -3 - (int)random_below(r, 8)); /* no weight is 0 in fp32 */
        if (c.sinks) c.sinks[h] = (float)random_normal(r);
    }
    make_tensor(&c.q, c.dtype, c.batch, c.tq, c.heads * c.dim, r);
    make_tensor(&c.k, c.dtype, c.batch, c.tk, c.kv_heads * c.dim, r);
    make_tensor(&c.v, c.dtype, c.batch, c.tk, c.kv_heads * c.dim, r);
    make_tensor(&c.y, c.dtype, c.batch, c.tq, c.heads * c.dim, r);
    fill(&c, r);
    if (random_chance(r, 40)) make_bias(&c, r), fill_bias(&c, r);
    return c;
}

static void release(struct attention_case *c)
{
    free(c->q.memory), free(c->k.memory), free(c->v.memory), free(c->y.memory), free(c->length);
    free(c->range), free(c->slopes), free(c->sinks), free(c->bias.memory);
    free(c->sums), free(c->evaluated_sums);
}

/* ---- Graph ---- */

static coda_value leaf(coda_graph *g, const struct attention_case *c, const char *name,
                       const struct tensor *t)
{
    int64_t dims[] = {t->batch, t->time, t->columns}, strides[] = {t->block, t->pitch, 1};
    return coda_input_strided(g, name, c->dtype, 3 - c->flat, dims + c->flat, strides + c->flat);
}

static coda_graph *build(const struct attention_case *c)
{
    coda_graph *g = coda_graph_new();
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = c->heads, o.kv_heads = c->kv_heads, o.window = c->window;
    o.causal = c->causal, o.scale = c->scale, o.align = (coda_attention_align)c->align;
    coda_value q = leaf(g, c, "q", &c->q), k = leaf(g, c, "k", &c->k), v = leaf(g, c, "v", &c->v);
    coda_value n = c->lengths ? coda_input(g, "n", CODA_I32, 1, &c->batch) : CODA_NONE;
    o.ahead = c->ahead, o.softcap = c->softcap;
    if (map_def[c->map].name) ck_assert_int_eq(coda_define_map(g, &map_def[c->map]), CODA_OK);
    if (c->map) o.score = c->map == MAP_SOFTCAP ? "softcap" : map_def[c->map].name;
    memcpy(o.score_params, map_param[c->map], sizeof o.score_params);
    if (c->range)
        o.ranges = coda_input(g, "r", CODA_I32, 3 - c->flat, ((int64_t[]){c->batch, c->tq, 2}) + c->flat);
    if (c->slopes) o.slopes = coda_input(g, "s", CODA_F32, 1, &c->heads);
    if (c->sinks) o.sinks = coda_input(g, "z", CODA_F32, 1, &c->heads);
    if (c->bias.rank)
        o.bias = coda_input_strided(g, "bias", c->bias.dtype, c->bias.rank, c->bias.dim, c->bias.stride);
    int64_t strides[] = {c->y.block, c->y.pitch, 1};
    coda_value sums = {0};
    coda_value y = c->sums ? coda_attention_lse(g, q, k, v, n, &o, &sums) : coda_attention(g, q, k, v, n, &o);
    coda_output_strided(g, "y", y, strides + c->flat);
    if (c->sums) coda_output(g, "sums", sums);
    return g;
}

static void arguments(const struct attention_case *c, void **args, void *out)
{
    int n = 0;
    args[n++] = c->q.at, args[n++] = c->k.at, args[n++] = c->v.at;
    if (c->lengths) args[n++] = c->length;
    if (c->range) args[n++] = c->range;
    if (c->slopes) args[n++] = c->slopes;
    if (c->sinks) args[n++] = c->sinks;
    if (c->bias.rank) args[n++] = c->bias.memory;
    args[n++] = out;
    if (c->sums) args[n] = out == c->y.at ? (void *)c->sums : (void *)c->evaluated_sums;
}

static bool equal(double got, double want, double slack)
{
    if (isnan(want)) return isnan(got);
    return got == want || fabs(got - want) <= slack;
}

static double unit(coda_dtype t) { return t == CODA_BF16 ? 0x1p-8 : t == CODA_F16 ? 0x1p-10 : 1e-5; }

static void compare_sum(const struct attention_case *c, int64_t b, int64_t i, int64_t h, double want)
{
    int64_t at = (b * c->heads + h) * c->tq + i;
    double run = c->sums[at], evaluated = c->evaluated_sums[at];
    if (isnan(want)) return; /* inf among what it sees */
    ck_assert_msg(equal(evaluated, want, 1e-11), "%s: evaluate's sum %g, not %g", describe(c), evaluated,
                  want);
    ck_assert_msg(equal(run, want, 2e-5), "%s: run's sum %g, not %g", describe(c), run, want);
}

/* `evaluated` is dense; the CPU device's result is in y. */
static void compare(const struct attention_case *c, const double *evaluated)
{
    double want[128], size[128];
    ck_assert_int_le(c->dim, 128);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0; i < c->tq; i++)
            for (int64_t h = 0; h < c->heads; h++) {
                double sum = attend(c, b, i, h, want, size);
                if (c->sums) compare_sum(c, b, i, h, sum);
                for (int64_t d = 0; d < c->dim; d++) {
                    double y = element(c, &c->y, b, i, h * c->dim + d);
                    double e = evaluated[((b * c->tq + i) * c->heads + h) * c->dim + d];
                    ck_assert_msg(equal(e, want[d], 1e-11), "%s: evaluate [%d,%d,%d,%d] %g, not %g",
                                  describe(c), (int)b, (int)i, (int)h, (int)d, e, want[d]);
                    ck_assert_msg(equal(y, want[d], unit(c->dtype) * (size[d] + 1e-3)),
                                  "%s: run [%d,%d,%d,%d] %g, not %g", describe(c), (int)b, (int)i, (int)h,
                                  (int)d, y, want[d]);
                }
            }
}

static void *poison(size_t bytes, int byte)
{
    void *p = aligned_alloc(256, (bytes / 256 + 1) * 256);
    return memset(p, byte, (bytes / 256 + 1) * 256);
}

/* Two products of `dim` multiply-adds for each pair of query and key; sequences count as full. */
static double flops(struct attention_case c)
{
    int64_t pairs = 0;
    c.lengths = false, c.range = NULL;
    for (int64_t i = 0; i < c.tq; i++)
        for (int64_t j = 0; j < c.tk; j++) pairs += sees(&c, 0, i, j);
    return 4.0 * (double)(pairs * c.batch * c.heads * c.dim);
}

static void run_on_cpu(const struct attention_case *c, const coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    void *args[MOST_ARGS];
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", describe(c), coda_error());
    arguments(c, args, c->y.at);
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
    ck_assert_msg(stats.flops == flops(*c), "%s: %g flops, not %g", describe(c), stats.flops, flops(*c));
    for (int again = 0; again < 2; again++) {
        void *workspace = poison(coda_plan_workspace(p), again ? 0x7f : 0xff);
        ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s: %s", describe(c),
                      coda_error());
        free(workspace);
    }
    coda_plan_free(p);
}

static void check_case(struct attention_case *c)
{
    coda_graph *g = build(c);
    void *args[MOST_ARGS];
    if (ambiguous(c)) {
        ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
        ck_assert_ptr_nonnull(strstr(coda_error(), "CODA_ALIGN_LENGTH"));
    } else {
        double *evaluated = malloc(sizeof *evaluated * (size_t)(c->batch * c->tq * c->heads * c->dim + 1));
        arguments(c, args, evaluated);
        ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s: %s", describe(c), coda_error());
        run_on_cpu(c, g);
        compare(c, evaluated);
        free(evaluated);
    }
    coda_graph_free(g);
}

START_TEST(random_shapes_and_masks)
{
    const char *times = getenv("CODA_TEST_CASES");
    int cases = times ? atoi(times) : scaled(CASES);
    for (int i = 0; i < cases; i++) {
        struct random r = {random_seed() * 1000003u + (uint64_t)i};
        struct attention_case c = draw(&r);
        check_case(&c);
        release(&c);
    }
}
END_TEST

START_TEST(maps_without_a_reference_run_on_gpus_alone)
{
    coda_graph *g = coda_graph_new();
    coda_map_def def = CODA_MAP_DEF_INIT;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    float x[4] = {1, 2, 3, 4}, y[4];
    double e[4];
    def.name = "odd", def.source = "DEV static float apply(float s) { return s + 1.0f; }";
    ck_assert_int_eq(coda_define_map(g, &def), CODA_OK);
    o.score = "odd";
    coda_value v = coda_input(g, "x", CODA_F32, 2, (int64_t[]){2, 2});
    coda_output(g, "y", coda_attention(g, v, v, v, CODA_NONE, &o));
    ck_assert_int_eq(coda_evaluate(g, (void *[]){x, e}), CODA_E_UNSUPPORTED);
    ck_assert_str_eq(coda_error(), "evaluate: map odd has no reference");
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    void *workspace = poison(coda_plan_workspace(p), 0xff);
    ck_assert_int_eq(coda_run(p, (void *[]){x, y}, NULL, workspace, NULL), CODA_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(coda_error(), "map odd has no reference, so only a GPU can run it"));
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- The three alignments by hand: values are 1, 2, 3, ..., keys all alike, so a row is a mean ---- */

static void mean_of(int align, int tq, int tk, int window, int32_t length, const double *want)
{
    float q[16] = {0}, k[16] = {0}, v[16], y[16];
    _Alignas(16) int32_t n = length;
    for (int j = 0; j < 16; j++) v[j] = j < length ? (float)(j + 1) : NAN;
    coda_graph *g = coda_graph_new();
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.causal = 1, o.window = window, o.align = (coda_attention_align)align;
    coda_value vq = coda_input(g, "q", CODA_F32, 2, (int64_t[]){tq, 1});
    coda_value vk = coda_input(g, "k", CODA_F32, 2, (int64_t[]){tk, 1});
    coda_value vv = coda_input(g, "v", CODA_F32, 2, (int64_t[]){tk, 1});
    coda_value vn = coda_input(g, "n", CODA_I32, 1, (int64_t[]){1});
    coda_output(g, "y", coda_attention(g, vq, vk, vv, vn, &o));
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    coda_plan *p;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    void *workspace = poison(coda_plan_workspace(p), 0xff);
    ck_assert_int_eq(coda_run(p, (void *[]){q, k, v, &n, y}, NULL, workspace, NULL), CODA_OK);
    for (int i = 0; i < tq; i++) ck_assert_double_eq_tol(y[i], want[i], 1e-6);
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
}

START_TEST(alignments)
{
    mean_of(CODA_ALIGN_LENGTH, 1, 16, 4, 5, (double[]){3.5});      /* keys 1..4 */
    mean_of(CODA_ALIGN_LENGTH, 2, 8, 0, 5, (double[]){2.5, 3});    /* positions 3 and 4 */
    mean_of(CODA_ALIGN_LENGTH, 3, 8, 0, 2, (double[]){0, 1, 1.5}); /* -1, 0, 1 */
    mean_of(CODA_ALIGN_LENGTH, 2, 8, 2, 0, (double[]){0, 0});
    mean_of(CODA_ALIGN_START, 4, 8, 0, 3, (double[]){1, 1.5, 2, 2}); /* key 3 is past the length */
    mean_of(CODA_ALIGN_START, 6, 4, 2, 4, (double[]){1, 1.5, 2.5, 3.5, 4, 0});
    mean_of(CODA_ALIGN_END, 2, 8, 0, 7, (double[]){4, 4}); /* positions 6 and 7 */
    mean_of(CODA_ALIGN_END, 2, 8, 3, 7, (double[]){6, 6.5});
    mean_of(CODA_ALIGN_DEFAULT, 4, 4, 0, 2, (double[]){1, 1.5, 1.5, 1.5}); /* padded, beside its keys */
    mean_of(CODA_ALIGN_DEFAULT, 1, 8, 0, 5, (double[]){3});
}
END_TEST

/* ---- Masks as numbers, by hand: q is 0, so that the weight of a key is e^bias ---- */

enum { MASKED = 4 }; /* keys, whose values are 1, 2, 3, 4 */

static void masked_mean(const float *bias, int length, double want, double want_sum)
{
    _Alignas(16) float q[1] = {0}, k[MASKED] = {1, 1, 1, 1}, v[MASKED] = {1, 2, 3, 4}, b[MASKED], y[1], s[1];
    _Alignas(16) int32_t n = length;
    double e[1], es[1];
    memcpy(b, bias, sizeof b);
    coda_graph *g = coda_graph_new();
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    coda_value in[3], sums;
    for (int i = 0; i < 3; i++)
        in[i] = coda_input(g, (char[]){"qkv"[i], 0}, CODA_F32, 2, (int64_t[]){i ? MASKED : 1, 1});
    coda_value lengths = coda_input(g, "n", CODA_I32, 1, (int64_t[]){1});
    o.bias = coda_input(g, "b", CODA_F32, 1, (int64_t[]){MASKED});
    coda_output(g, "y", coda_attention_lse(g, in[0], in[1], in[2], lengths, &o, &sums));
    coda_output(g, "s", sums);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    coda_plan *p;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    void *workspace = poison(coda_plan_workspace(p), 0xff);
    ck_assert_int_eq(coda_run(p, (void *[]){q, k, v, &n, b, y, s}, NULL, workspace, NULL), CODA_OK);
    ck_assert_int_eq(coda_evaluate(g, (void *[]){q, k, v, &n, b, e, es}), CODA_OK);
    ck_assert_msg(equal(y[0], want, 1e-6) && equal(e[0], want, 1e-7), "%g and %g, not %g", y[0], e[0], want);
    double slack = isfinite(want_sum) ? fabs(want_sum) * 1e-6 : 0;
    ck_assert_msg(equal(s[0], want_sum, slack) && equal(es[0], want_sum, slack), "sums %g and %g, not %g",
                  s[0], es[0], want_sum);
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
}

START_TEST(masks_as_numbers)
{
    const float least = -FLT_MAX, ln2 = (float)log(2), inf = INFINITY;
    masked_mean((float[]){0, 0, 0, 0}, 4, 2.5, log(4));
    masked_mean((float[]){ln2, 0, 0, 0}, 4, 11 / 5.0, log(5));
    masked_mean((float[]){0, -inf, -inf, 0}, 4, 2.5, log(2));
    masked_mean((float[]){-inf, -inf, ln2, 0}, 4, 10 / 3.0, log(3));
    masked_mean((float[]){least, 0, least, least}, 4, 2, 0);
    masked_mean((float[]){least, least, least, least}, 4, 2.5, least); /* all weigh the same */
    masked_mean((float[]){-inf, -inf, -inf, -inf}, 4, NAN, -inf);
    masked_mean((float[]){0, 0, NAN, inf}, 2, 1.5, log(2)); /* what is past the length is not read */
    masked_mean((float[]){NAN, NAN, NAN, NAN}, 0, 0, -inf);
    masked_mean((float[]){0, NAN, 0, 0}, 3, NAN, NAN);
}
END_TEST

/* ---- Pages, and heads apart: as the same keys one behind the other ---- */

enum { BATCH = 3, EACH = 5, PAGE = 4, POOL = 20, QUERIES = 3, HEADS = 4, HEAD_DIM = 3, WIDTH = 12, WAYS = 5 };

static void attend_both(coda_graph *g, void *const *args, float *run, double *evaluated)
{
    enum { SIZE = BATCH * QUERIES * WIDTH };
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    void *all[8];
    int n = (int)coda_graph_args(g) - 1;
    for (int i = 0; i < n; i++) all[i] = args[i];
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    all[n] = memset(run, 0xff, SIZE * sizeof *run);
    void *workspace = poison(coda_plan_workspace(p), 0x7f);
    ck_assert_msg(coda_run(p, all, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    all[n] = memset(evaluated, 0xff, SIZE * sizeof *evaluated);
    ck_assert_msg(coda_evaluate(g, all) == CODA_OK, "%s", coda_error());
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
}

/* Rows [lots][keys][heads][HEAD_DIM] as [lots][heads][keys][HEAD_DIM]. */
static void heads_apart(const float *rows, int lots, int keys, float *out)
{
    for (int i = 0; i < lots * keys * WIDTH; i++) {
        int d = i % HEAD_DIM, h = i / HEAD_DIM % HEADS, key = i / WIDTH % keys, lot = i / WIDTH / keys;
        out[((lot * HEADS + h) * keys + key) * HEAD_DIM + d] = rows[i];
    }
}

START_TEST(pages_are_keys_in_another_place)
{
    static _Alignas(64) float q[BATCH][QUERIES][WIDTH], pool[POOL * PAGE][WIDTH],
        keys[BATCH][EACH * PAGE][WIDTH], apart[POOL * PAGE * WIDTH], together[BATCH * EACH * PAGE * WIDTH],
        halved[BATCH * EACH * PAGE * WIDTH], twice[HEADS] = {2, 2, 2, 2};
    static _Alignas(64) float y[WAYS][BATCH * QUERIES * WIDTH];
    static _Alignas(64) double e[WAYS][BATCH * QUERIES * WIDTH];
    static _Alignas(64) int32_t lengths[BATCH] = {EACH * PAGE, 7, 12}, table[BATCH][EACH];
    struct random r = {random_seed() + (uint64_t)_i};
    for (int i = 0; i < BATCH * QUERIES * WIDTH; i++) ((float *)q)[i] = (float)random_normal(&r);
    for (int i = 0; i < POOL * PAGE * WIDTH; i++) ((float *)pool)[i] = (float)random_normal(&r);
    for (int b = 0; b < BATCH; b++)
        for (int j = 0; j < EACH * PAGE; j++) {
            int32_t *page = &table[b][j / PAGE];
            if (j % PAGE == 0) *page = (int32_t)((b * 7 + j / PAGE * 3 + _i) % POOL); /* shared by some */
            if (j % PAGE == 0 && j == PAGE && b == 2) *page = _i ? -1 : POOL;         /* not there: zeros */
            bool there = *page >= 0 && *page < POOL;
            for (int d = 0; d < WIDTH; d++) keys[b][j][d] = there ? pool[*page * PAGE + j % PAGE][d] : 0;
            if (j % PAGE == PAGE - 1 && j / PAGE * PAGE >= lengths[b]) *page = (int32_t)random_next(&r);
        }
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    heads_apart(&pool[0][0], POOL, PAGE, apart);
    heads_apart(&keys[0][0][0], BATCH, EACH * PAGE, together);
    for (int i = 0; i < BATCH * EACH * PAGE * WIDTH; i++) halved[i] = (&keys[0][0][0])[i] / 2;
    o.heads = HEADS, o.kv_heads = HEADS, o.causal = 1, o.align = CODA_ALIGN_LENGTH;
    for (int way = 0; way < WAYS; way++) {
        const void *data[WAYS] = {keys, pool, together, apart, halved};
        coda_graph *g = coda_graph_new();
        coda_value vq = coda_input(g, "q", CODA_F32, 3, (int64_t[]){BATCH, QUERIES, WIDTH}), vk;
        bool paged = way % 2;
        o.layout = way < 2 || way == 4 ? CODA_LAYOUT_NHD : CODA_LAYOUT_HND;
        if (way == 0 || way == 4)
            vk = coda_input(g, "k", CODA_F32, 3, (int64_t[]){BATCH, EACH * PAGE, WIDTH});
        else if (way == 1) vk = coda_input(g, "k", CODA_F32, 2, (int64_t[]){POOL * PAGE, WIDTH});
        else if (way == 2)
            vk = coda_input(g, "k", CODA_F32, 4, (int64_t[]){BATCH, HEADS, EACH * PAGE, HEAD_DIM});
        else vk = coda_input(g, "k", CODA_F32, 4, (int64_t[]){POOL, HEADS, PAGE, HEAD_DIM});
        coda_value n = coda_input(g, "n", CODA_I32, 1, (int64_t[]){BATCH});
        o.page = paged ? PAGE : 0, o.table = CODA_NONE;
        int64_t scales = _i ? 1 : HEADS; /* by which halves are whole */
        if (way == 4) o.k_scale = o.v_scale = coda_input(g, "s", CODA_F32, 1, &scales);
        if (paged) o.table = coda_input(g, "t", CODA_I32, 2, (int64_t[]){BATCH, EACH});
        coda_output(g, "y", coda_attention(g, vq, vk, vk, n, &o));
        ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
        attend_both(g, (void *[]){q, (void *)data[way], lengths, way == 4 ? (void *)twice : (void *)table},
                    y[way], e[way]);
        ck_assert_msg(!memcmp(y[0], y[way], sizeof y[0]) && !memcmp(e[0], e[way], sizeof e[0]), "%d", way);
    }
    for (int i = 0; i < BATCH * QUERIES * WIDTH; i++) ck_assert(fabs(y[1][i] - e[1][i]) < 1e-5);
}
END_TEST

TESTS(attention, ONE(maps_without_a_reference_run_on_gpus_alone), ONE(alignments), ONE(masks_as_numbers),
      ONE(random_shapes_and_masks), EACH(pages_are_keys_in_another_place, 2));
