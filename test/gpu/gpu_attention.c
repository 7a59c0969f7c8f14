/*
 * gpu_attention.c -- both attention kernels against fp64 on the GPU.
 *
 * Outputs start poisoned, and so is all that no query sees: keys and values past a sequence's length, queries
 * that see no key, whatever lies between rows. What is not written shows, what must not be read shows. Where
 * some queries see keys and some see none, a last run has NaN for all values: the latter must still give 0.
 * Of packed sequences one at a time gets other numbers, NaN among them: rows of others keep their bits. So do
 * rows whose neighbours' scores no longer rise by steps.
 * With P and o rounded to the dtype (unit u) and fp32 sums, an element may be off by
 * (u + small) (sum_j p_j |v_j| + |o|). Each kernel runs twice and must repeat its bits. With
 * CODA_TEST_CASE only cases run whose names contain it; "random": the random ones alone.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "gpu_case.h"
#include "util_attention.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_attention(void);

enum {
    MOST_QUERIES = 96, /* checked in each case, at random */
    RANDOM_CASES = 60,
    EMULATED_QUERIES = 16,
    EMULATED_SHARE = 16,
    EMULATED_RANDOM = 4,
    EMULATED_SIMT = 4, /* of Hopper's cases some run on the plain kernel, too: by their queries */
};

struct bench {
    const struct attention_case *c;
    struct attention_spec s;
    struct jit_device device;
    struct attention_rig rig;
    struct jit_kernel *kernel;
    const char *before; /* its text; NULL: nothing */
    void *host[ATTENTION_USES];
    void *gpu[ATTENTION_USES + 1]; /* of parts, too */
    size_t bytes[ATTENTION_USES];
    double worst; /* error in units of what is allowed */
    int64_t worst_at;
};

/* ---- Data ---- */

static int64_t length_of(const struct bench *b, int64_t batch)
{
    if (batch < 0) return 0;
    if (!b->c->lengths) return b->s.tk;
    int64_t n = ((int32_t *)b->host[ATTENTION_LENGTHS])[batch];
    return MAX(0, MIN(n, b->s.tk));
}

/* The first sequences are empty, of one key, of a whole block, and longer than there are keys. */
static void fill_lengths(struct bench *b, struct random *r)
{
    int32_t special[] = {0, 1, 128, (int32_t)b->s.tk + 100}, *to = b->host[ATTENTION_LENGTHS];
    for (int64_t i = 0; b->c->lengths && i < b->s.batch; i++)
        to[i] = i < 4 ? special[i] : (int32_t)random_below(r, b->s.tk + 1);
}

/* Sequences of no query, of one, of many; rows before the first and behind the last, which are in none. Half
 * of the cases have starts that are none: below 0, above T, below earlier ones. */
static void fill_starts(struct bench *b, struct random *r)
{
    int32_t *to = b->host[ATTENTION_STARTS], at = (int32_t)random_below(r, 3);
    bool odd = b->c->starts && random_chance(r, 50);
    for (int64_t i = 0; b->c->starts && i <= b->s.batch; i++) {
        int64_t left = b->s.tq - at, many = random_below(r, MAX(left / 2, 1) + 1);
        to[i] = at;
        if (odd && random_chance(r, 20))
            to[i] = (int32_t)(random_chance(r, 50) ? -at : at - random_below(r, 9));
        at += (int32_t)MIN(left, random_chance(r, 30) ? 0 : random_chance(r, 40) ? 1 : many);
    }
    if (odd) to[b->s.batch] = random_chance(r, 50) ? INT32_MAX : (int32_t)b->s.tq + 1;
    if (odd && random_chance(r, 50)) to[0] = INT32_MIN;
}

/* Of which sequence row i of a batch of q is, and which of its `queries`; sequence -1: of none. */
struct place {
    int64_t sequence, query, queries;
};

static struct place place_of(const struct bench *b, int64_t batch, int64_t i)
{
    const int32_t *starts = b->host[ATTENTION_STARTS];
    int64_t end = 0;
    if (!b->c->starts) return (struct place){batch, i, b->s.tq};
    for (int64_t k = 0; k <= b->s.batch; k++) {
        int64_t first = end;
        end = MAX(end, MIN(starts[k], b->s.tq));
        if (i < end) return (struct place){k - 1, i - first, end - first};
    }
    return (struct place){-1, i - end, b->s.tq - end};
}

/* Packed documents, with queries in between that see nothing, whatever, and prefixes: one kind a sequence. */
static void fill_ranges(struct bench *b, struct random *r)
{
    int32_t *to = b->host[ATTENTION_RANGES], first = 0, end = 0;
    for (int64_t i = 0; b->c->ranges && i < attention_batches(&b->s) * b->s.tq; i++, to += 2) {
        int64_t kind = i / b->s.tq % 3, at = i % b->s.tq;
        if (at == 0) first = end = 0;
        if (kind == 0 && at >= end) first = end, end += 1 + (int32_t)random_below(r, b->s.tk / 3 + 1);
        if (kind == 1) first = (int32_t)random_below(r, b->s.tk + 1) - 3;
        if (kind == 1) end = first + (int32_t)random_below(r, b->s.tk / 2 + 1);
        if (kind == 2) end = (int32_t)(b->s.tk * (at + 1) / b->s.tq);
        to[0] = first, to[1] = random_below(r, 9) ? end : first;
    }
}

static void fill_of_heads(struct bench *b, struct random *r)
{
    float *slopes = b->host[ATTENTION_SLOPES], *sinks = b->host[ATTENTION_SINKS];
    for (int64_t h = 0; h < b->s.heads; h++) {
        if (b->c->slopes) slopes[h] = (float)ldexp(1, -(int)(1 + random_below(r, 8)));
        if (b->c->sinks) sinks[h] = (float)random_normal(r) * 3;
    }
    for (int i = ATTENTION_K_SCALE; i <= ATTENTION_V_SCALE; i++)
        for (int64_t h = 0; h < attention_case_elements(b->c, i); h++)
            ((float *)b->host[i])[h] = (float)(0.5 + fabs(random_normal(r)));
}

static int64_t bias_at(const struct bench *b, int64_t batch, int64_t h, int64_t i, int64_t j)
{
    const int64_t *stride = b->s.use[ATTENTION_BIAS].stride;
    return b->s.use[ATTENTION_BIAS].offset + batch * stride[0] + h * stride[1] + i * stride[2] +
           j * stride[3];
}

static double bias_of(const struct bench *b, int64_t batch, int64_t h, int64_t i, int64_t j)
{
    return dtype_load(b->s.use[ATTENTION_BIAS].dtype, b->host[ATTENTION_BIAS], bias_at(b, batch, h, i, j));
}

static int64_t position_of(const struct bench *b, int64_t batch, int64_t i)
{
    struct place at = place_of(b, batch, i);
    if (b->s.align == CODA_ALIGN_START) return at.query;
    int64_t end = b->s.align == CODA_ALIGN_LENGTH ? length_of(b, at.sequence) : b->s.tk;
    return at.query + end - at.queries;
}

/* The keys that query i sees, as the manual says it. */
struct range {
    int64_t first, end;
};

static struct range visible(const struct bench *b, int64_t batch, int64_t i)
{
    const struct attention_spec *s = &b->s;
    int64_t keys = length_of(b, place_of(b, batch, i).sequence), position = position_of(b, batch, i);
    struct range r = {0, keys};
    bool placed = s->causal || s->window || s->ahead || attention_is_placed(s);
    if (s->causal || s->ahead) r.end = MIN(keys, position + s->ahead + 1);
    if (s->window) r.first = MAX(0, position - s->window + 1);
    if (s->align == CODA_ALIGN_LENGTH && placed && position < 0) r.end = 0;
    if (!b->c->ranges) return r;
    const int32_t *own = (int32_t *)b->host[ATTENTION_RANGES] + 2 * (batch * s->tq + i);
    r.first = MAX(r.first, own[0]), r.end = MIN(r.end, own[1]);
    return r;
}

/* Whether some query sees row t of k and v. */
static bool key_is_seen(const struct bench *b, int64_t batch, int64_t t) { return t < length_of(b, batch); }

static bool query_sees(const struct bench *b, int64_t batch, int64_t i)
{
    struct range r = visible(b, batch, i);
    return r.first < r.end;
}

/* Pages of the pool in disorder; where a sequence has no key, whatever. */
static void fill_table(struct bench *b, struct random *r)
{
    if (!b->c->page) return;
    int32_t *to = b->host[ATTENTION_TABLE], pages = (int32_t)(b->s.slots / b->c->page);
    int64_t each = b->s.tk / b->c->page, n = b->s.batch * each;
    int32_t *all = malloc(sizeof *all * (size_t)pages);
    for (int32_t i = 0; all && i < pages; i++) {
        int64_t k = random_below(r, i + 1); /* Fisher and Yates, from the inside out */
        all[i] = all[k], all[k] = i;
    }
    for (int64_t i = 0; all && i < n; i++)
        to[i] = i % each * b->c->page < length_of(b, i / each) ? all[i] : (int32_t)random_next(r);
    free(all);
}

/* Where row t of a sequence's keys is, but for the head's columns. */
static int64_t key_at(const struct bench *b, const struct tensor_use *v, int64_t batch, int64_t t)
{
    if (!b->c->page || v->buffer == ATTENTION_Q || v->buffer == ATTENTION_O)
        return v->offset + batch * v->batch + t * v->time;
    const int32_t *table = b->host[ATTENTION_TABLE];
    int64_t page = table[batch * (b->s.tk / b->c->page) + t / b->c->page];
    return v->offset + page * v->batch + t % b->c->page * v->time;
}

/* Of what some query sees, the same wherever it is read; one in eight hides its key, and some rows have only
 * such. What nobody sees is poison. */
static void fill_bias(struct bench *b)
{
    const struct attention_spec *s = &b->s;
    int64_t rows = attention_batches(s) * s->heads * s->tq;
    for (int64_t e = 0; e < rows && b->c->bias; e++) {
        int64_t i = e % s->tq, h = e / s->tq % s->heads, batch = e / s->tq / s->heads;
        struct range r = visible(b, batch, i);
        for (int64_t j = r.first; j < r.end; j++) {
            int64_t at = bias_at(b, batch, h, i, j);
            struct random element = {(uint64_t)at};
            bool hides = random_chance(&element, 12) || (s->use[ATTENTION_BIAS].stride[2] && i % 61 == 60);
            dtype_store(s->use[ATTENTION_BIAS].dtype, b->host[ATTENTION_BIAS], at,
                        hides ? -INFINITY : 2 * random_normal(&element));
        }
    }
}

static void fill_rows(struct bench *b, const struct tensor_use *v, int64_t batches, int64_t rows,
                      int64_t heads, bool (*used)(const struct bench *, int64_t, int64_t), struct random *r)
{
    for (int64_t batch = 0; batch < batches; batch++)
        for (int64_t t = 0; t < rows; t++)
            for (int64_t h = 0; h < heads && used(b, batch, t); h++)
                for (int64_t d = 0; d < b->s.head_dim; d++)
                    dtype_store(v->dtype, b->host[v->buffer], key_at(b, v, batch, t) + h * v->head + d,
                                random_normal(r));
}

enum { STEPS = 9, STEP_KEYS = 128, STEP_COLUMNS = 17, COMMON = 16, ALONE = 5, ALONE_COLUMN = 15 };

/* What a row's scores are in a block of keys beside others, as a power of 2 of their weights. Blocks are
 * visited last one first: seen from there rows rise by steps below and above 2^8, beyond what fp32 holds,
 * fall, are far off in one block, as far as fp32's scores have the digits of a result, or up and down. The
 * last ones have scores of 2^28 and, of a key in the block that is visited last, of 96 more: where products
 * with a rounded largest score say 2^13.6 for heads of 64 columns, the weight is 2^17.3: f16 holds less. */
static double step_of(const struct bench *b, int64_t row, int64_t block, int64_t blocks)
{
    const double far = b->s.use[ATTENTION_Q].dtype == CODA_BF16 ? 11000 : 1000;
    const int64_t visited = blocks - 1 - block;
    switch (row % STEPS) {
    case 1: return 6.0 * (double)visited;
    case 2: return 9.0 * (double)visited;
    case 3: return 170.0 * (double)visited;
    case 4: return -60.0 * (double)visited;
    case 5: return visited == 2 ? far / 4 : 0;
    case 6: return block == 0 ? far : 0;
    case 7: return block == ALONE_COLUMN ? 300 : visited % 2 ? 40 : -40;
    default: return 0;
    }
}

/* What a query with scores of 2^28 has in a column. */
static double large_at(int64_t column) { return column == COMMON ? 19216 : column == ALONE_COLUMN ? 24 : 0; }

/* Keys say in the first columns of which block they are, and one that it is ALONE, and have one number in
 * COMMON; queries what they score there: all of them, or of every STEPS only the one that is `left`, with the
 * others at 0. */
static void fill_steps(struct bench *b, int64_t left)
{
    const struct attention_spec *s = &b->s;
    const struct tensor_use *q = &s->use[ATTENTION_Q], *k = &s->use[ATTENTION_K];
    const int64_t blocks = CEIL_DIV(s->tk, STEP_KEYS);
    const double one = 4, unit = log(2) / s->scale / one;
    for (int64_t e = 0; e < s->batch * s->tk * s->kv_heads * STEP_COLUMNS; e++) {
        int64_t d = e % STEP_COLUMNS, h = e / STEP_COLUMNS % s->kv_heads,
                row = e / STEP_COLUMNS / s->kv_heads;
        int64_t to = key_at(b, k, row / s->tk, row % s->tk) + h * k->head + d;
        bool is = d < ALONE_COLUMN ? row % s->tk / STEP_KEYS == d : row % s->tk == ALONE;
        dtype_store(k->dtype, b->host[k->buffer], to, d == COMMON ? 23552 : is ? one : 0);
    }
    for (int64_t e = 0; e < s->batch * s->tq * s->heads * s->head_dim; e++) {
        int64_t d = e % s->head_dim, h = e / s->head_dim % s->heads, row = e / s->head_dim / s->heads;
        int64_t i = row % s->tq, to = key_at(b, q, row / s->tq, i) + h * q->head + d;
        const bool large = i % STEPS == STEPS - 1, alone = d == ALONE_COLUMN && i % STEPS == 7;
        if (d >= STEP_COLUMNS && !large) continue;
        double value = large ? large_at(d) : d < blocks || alone ? unit * step_of(b, i, d, blocks) : 0;
        dtype_store(q->dtype, b->host[q->buffer], to, left < 0 || i % STEPS == left ? value : 0);
    }
}

static bool make_data(struct bench *b, uint64_t seed)
{
    struct random r = {seed};
    for (int i = 0; i < ATTENTION_USES; i++) {
        int64_t n = attention_case_elements(b->c, i);
        bool keys = i == ATTENTION_K || i == ATTENTION_V, bias = i == ATTENTION_BIAS;
        coda_dtype t = keys   ? b->s.use[ATTENTION_K].dtype
                       : bias ? b->s.use[ATTENTION_BIAS].dtype
                              : b->s.use[ATTENTION_Q].dtype;
        b->bytes[i] = (size_t)n * (i >= ATTENTION_LENGTHS && !bias ? 4 : (size_t)dtype_bytes(t, 1));
        b->host[i] = malloc(b->bytes[i] + 1);
        b->gpu[i] = device_alloc(b->bytes[i]);
        if (!b->host[i] || !b->gpu[i]) return false;
        for (int64_t e = 0; e < n && (i < ATTENTION_O || bias); e++)
            dtype_store(t, b->host[i], e, e % 3 ? NAN : INFINITY);
    }
    fill_lengths(b, &r);
    fill_starts(b, &r);
    fill_ranges(b, &r);
    fill_table(b, &r);
    fill_of_heads(b, &r);
    fill_bias(b);
    fill_rows(b, &b->s.use[ATTENTION_Q], attention_batches(&b->s), b->s.tq, b->s.heads, query_sees, &r);
    fill_rows(b, &b->s.use[ATTENTION_K], b->s.batch, b->s.tk, b->s.kv_heads, key_is_seen, &r);
    fill_rows(b, &b->s.use[ATTENTION_V], b->s.batch, b->s.tk, b->s.kv_heads, key_is_seen, &r);
    if (b->c->stepped) fill_steps(b, -1);
    for (int i = 0; i < ATTENTION_USES; i++)
        if (i != ATTENTION_O && !device_upload(b->gpu[i], b->host[i], b->bytes[i])) return false;
    return true;
}

/* ---- Launch ---- */

static bool map(const struct bench *b, const struct map_spec *m, struct jit_map *out, char *err)
{
    struct jit_map_shape shape = {.dtype = m->dtype, .rank = m->rank, .swizzle = m->swizzle};
    memcpy(shape.dim, m->dim, sizeof shape.dim);
    memcpy(shape.stride, m->stride, sizeof shape.stride);
    memcpy(shape.box, m->box, sizeof shape.box);
    char *address = b->gpu[m->buffer];
    return !jit_map_encode(out, &shape, address + m->offset * dtype_bytes(m->dtype, 1), err);
}

static bool launch(const struct bench *b, char *err)
{
    const struct kernel *k = &b->rig.k;
    struct {
        struct jit_map map[KERNEL_MAX_MAPS];
        void *pointer[KERNEL_MAX_POINTERS];
    } params = {0};
    for (int i = 0; i < k->maps; i++)
        if (!map(b, &k->map[i], &params.map[i], err)) return false;
    void **pointer = (void **)&params.map[k->maps];
    for (int i = 0; i < k->pointers; i++)
        pointer[i] = (char *)b->gpu[k->pointer[i].buffer] + k->pointer[i].bytes;
    uint32_t *number = (uint32_t *)(pointer + k->pointers);
    for (int i = 0; i < k->scalars; i++) number[i] = k->scalar[i].number;
    int64_t grid = kernel_blocks(&k->launch, b->device.sms);
    struct jit_launch l = {.grid = (unsigned)grid,
                           .threads = (unsigned)k->launch.threads,
                           .shared_bytes = (unsigned)k->launch.shared_bytes};
    return !jit_launch(b->kernel, &l, &params, (size_t)(128 * k->maps + 8 * k->pointers + 4 * k->scalars),
                       NULL, err);
}

static bool build(struct bench *b, bool sm90, char *err)
{
    struct jit_cubin cubin;
    struct text text = {0};
    if (attention_emit(&b->rig, b->c, sm90)) return snprintf(err, 512, "%s", coda_error()), false;
    size_t parts = (size_t)b->rig.s.parts_bytes;
    if (parts && !b->gpu[ATTENTION_USES]) b->gpu[ATTENTION_USES] = device_alloc(parts);
    if (parts && !device_fill(b->gpu[ATTENTION_USES], 0xff, parts))
        return snprintf(err, JIT_ERROR_SIZE, "no memory for parts"), false;
    const struct kernel *k = &b->rig.k;
    struct jit_options opt = {.arch = b->device.arch};
    text_printf(&text, "%s%s", b->before ? b->before : "", k->text);
    coda_status status = jit_compile(&cubin, k->symbol, text_str(&text), &opt, err);
    text_free(&text);
    if (status) return false;
    status = jit_load(&b->kernel, &cubin, k->symbol, k->launch.shared_bytes, &b->device, NULL, err);
    jit_cubin_free(&cubin);
    return !status;
}

static bool run(struct bench *b, void *out, char *err)
{
    void *lse = b->host[ATTENTION_LSE];
    size_t sums = b->bytes[ATTENTION_LSE];
    if (!device_fill(b->gpu[ATTENTION_O], 0xff, b->bytes[ATTENTION_O]) ||
        !device_fill(b->gpu[ATTENTION_LSE], 0xff, sums) || !launch(b, err))
        return false;
    if (device_wait() && device_download(lse, b->gpu[ATTENTION_LSE], sums) &&
        device_download(out, b->gpu[ATTENTION_O], b->bytes[ATTENTION_O]))
        return true;
    return snprintf(err, JIT_ERROR_SIZE, "the kernel failed"), false;
}

/* ---- Check ---- */

static double at(const struct bench *b, const struct tensor_use *v, int64_t batch, int64_t t, int64_t h,
                 int64_t d)
{
    return dtype_load(v->dtype, b->host[v->buffer], key_at(b, v, batch, t) + h * v->head + d);
}

static double unit(coda_dtype t) { return t == CODA_BF16 ? 0x1p-8 : t == CODA_F16 ? 0x1p-11 : 0; }

static double scale_of(const struct bench *b, int buffer, int64_t kv)
{
    return b->c->scales ? ((float *)b->host[buffer])[b->c->scales == 2 ? kv : 0] : 1;
}

static double slope_of(const struct bench *b, int64_t h) { return ((float *)b->host[ATTENTION_SLOPES])[h]; }

/* Adds p_j v_j and p_j |v_j| over the keys that query i sees; returns the sum of p_j. */
static double reference(const struct bench *b, int64_t batch, int64_t i, int64_t h, double *o, double *size,
                        double *largest)
{
    const struct attention_spec *s = &b->s;
    struct range r = visible(b, batch, i);
    int64_t kv = h / (s->heads / s->kv_heads), first = r.first, end = r.end;
    int64_t of = place_of(b, batch, i).sequence;
    double top = -INFINITY, sum = 0, *score = calloc((size_t)s->tk + 1, sizeof *score);
    for (int64_t j = first; j < end; j++) {
        for (int64_t d = 0; d < s->head_dim; d++)
            score[j] +=
                at(b, &s->use[ATTENTION_Q], batch, i, h, d) * at(b, &s->use[ATTENTION_K], of, j, kv, d);
        score[j] *= s->scale * scale_of(b, ATTENTION_K_SCALE, kv);
        if (s->softcap > 0) score[j] = s->softcap * tanh(score[j] / s->softcap);
        if (b->c->slopes) score[j] -= slope_of(b, h) * fabs((double)(position_of(b, batch, i) - j));
        if (b->c->bias) score[j] += bias_of(b, batch, h, i, j);
        if (b->c->score)
            score[j] = attention_scores[b->c->score].formula(score[j], (double)position_of(b, batch, i),
                                                             (double)j, (double)h);
        top = fmax(top, score[j]);
    }
    if (b->c->sinks && first < end) top = fmax(top, ((float *)b->host[ATTENTION_SINKS])[h]);
    *largest = top;
    memset(o, 0, sizeof *o * (size_t)s->head_dim);
    memset(size, 0, sizeof *size * (size_t)s->head_dim);
    for (int64_t j = first; j < end; j++) {
        double p = exp(score[j] - top);
        sum += p;
        for (int64_t d = 0; d < s->head_dim; d++) {
            double v = at(b, &s->use[ATTENTION_V], of, j, kv, d) * scale_of(b, ATTENTION_V_SCALE, kv);
            o[d] += p * v;
            size[d] += p * fabs(v);
        }
    }
    free(score);
    return sum + (b->c->sinks && first < end ? exp(((float *)b->host[ATTENTION_SINKS])[h] - top) : 0);
}

/* log sum e^s, -inf of no key; fp32 has it to some ulps of the largest score. */
static void check_sum(struct bench *b, int64_t at, double want)
{
    double got = ((float *)b->host[ATTENTION_LSE])[at], error = fabs(got - want) / (2e-6 * fabs(want) + 2e-5);
    if (isinf(want)) error = got == want ? 0 : INFINITY;
    if (!(error <= b->worst)) b->worst = error, b->worst_at = at;
}

static void check_query(struct bench *b, int64_t batch, int64_t i, int64_t h)
{
    const struct attention_spec *s = &b->s;
    double *o = malloc(sizeof *o * 2 * (size_t)s->head_dim), *size = o + s->head_dim;
    double top, sum = reference(b, batch, i, h, o, size, &top), u = unit(s->use[ATTENTION_O].dtype);
    bool hidden = query_sees(b, batch, i) && top == -INFINITY; /* the bias hides all: no number */
    if (b->c->lse) check_sum(b, (batch * s->heads + h) * s->tq + i, hidden ? top : top + log(sum));
    for (int64_t d = 0; d < s->head_dim; d++) {
        double want = sum > 0 ? o[d] / sum : 0, scale = sum > 0 ? size[d] / sum + fabs(want) : 0;
        double tiny = s->use[ATTENTION_O].dtype == CODA_F16 ? 0x1p-23 : 1e-30;
        double got = at(b, &s->use[ATTENTION_O], batch, i, h, d),
               error = fabs(got - want) / ((u + 1e-5) * scale + tiny);
        if (hidden) error = isnan(got) ? 0 : INFINITY;
        if (!(error <= b->worst)) b->worst = error, b->worst_at = (batch * s->heads + h) * s->tq + i;
    }
    free(o);
}

static void check(struct bench *b, uint64_t seed)
{
    const struct attention_spec *s = &b->s;
    int64_t most = device_emulated(&b->device) && !b->c->starts ? EMULATED_QUERIES : MOST_QUERIES;
    int64_t queries = attention_batches(s) * s->tq * s->heads, n = MIN(queries, most);
    struct random r = {seed};
    for (int64_t e = 0; e < n; e++) {
        int64_t q = queries <= n ? e : random_below(&r, queries);
        check_query(b, q / s->heads / s->tq, q / s->heads % s->tq, q % s->heads);
    }
}

/* No element of the output may still be poison, and none outside of it may have been written. */
static int64_t misplaced(const struct bench *b)
{
    const struct attention_spec *s = &b->s;
    size_t size = (size_t)dtype_bytes(s->use[ATTENTION_O].dtype, 1);
    int64_t poisoned = 0, inside = attention_batches(s) * s->tq * s->heads * s->head_dim;
    int64_t all = attention_case_elements(b->c, ATTENTION_O);
    const char *o = b->host[ATTENTION_O];
    for (int64_t e = 0; e < all; e++) poisoned += !memcmp(o + (size_t)e * size, "\xff\xff\xff\xff", size);
    return poisoned - (all - inside);
}

static bool some_query(const struct bench *b, bool sees)
{
    for (int64_t batch = 0; batch < attention_batches(&b->s); batch++)
        for (int64_t i = 0; i < b->s.tq; i++)
            if (query_sees(b, batch, i) == sees) return true;
    return false;
}

/* Does the bias hide all keys that the query sees? */
static bool all_hidden(const struct bench *b, int64_t batch, int64_t h, int64_t i)
{
    struct range r = visible(b, batch, i);
    for (int64_t j = r.first; b->c->bias && j < r.end; j++)
        if (bias_of(b, batch, h, i, j) > -INFINITY) return false;
    return b->c->bias != 0;
}

/* Rows that are not what they should be when all values are NaN: 0 if the query sees no key, else NaN. */
static int64_t touched_by_nan(struct bench *b, char *err)
{
    const struct attention_spec *s = &b->s;
    int64_t wrong = 0;
    if (!some_query(b, true) || !some_query(b, false)) return 0;
    for (int64_t e = 0; e < s->batch * s->tk * s->kv_heads * s->head_dim; e++) {
        int64_t d = e % s->head_dim, h = e / s->head_dim % s->kv_heads, row = e / s->head_dim / s->kv_heads;
        if (b->c->page && !key_is_seen(b, row / s->tk, row % s->tk)) continue;
        int64_t to =
            key_at(b, &s->use[ATTENTION_V], row / s->tk, row % s->tk) + h * s->use[ATTENTION_V].head + d;
        dtype_store(s->use[ATTENTION_V].dtype, b->host[s->use[ATTENTION_V].buffer], to, NAN);
    }
    if (!device_upload(b->gpu[s->use[ATTENTION_V].buffer], b->host[s->use[ATTENTION_V].buffer],
                       b->bytes[s->use[ATTENTION_V].buffer]))
        return -1;
    if (!run(b, b->host[ATTENTION_O], err)) return -1;
    for (int64_t e = 0; e < attention_batches(s) * s->tq * s->heads; e++) {
        int64_t h = e % s->heads, i = e / s->heads % s->tq, batch = e / s->heads / s->tq;
        double got = at(b, &s->use[ATTENTION_O], batch, i, h, s->head_dim - 1);
        bool sees = query_sees(b, batch, i), good = sees ? isnan(got) : got == 0;
        if (sees && all_hidden(b, batch, h, i)) continue; /* by a kernel's way, NaN or what a sink leaves */
        if (!good && !wrong++)
            snprintf(err, JIT_ERROR_SIZE,
                     "(first: query %lld of sequence %lld, head %lld, which sees %s, is %g)", (long long)i,
                     (long long)batch, (long long)h, sees ? "keys" : "none", got);
    }
    return wrong;
}

/* Gives a packed sequence other queries, keys and values, NaN among them. */
static void change_sequence(struct bench *b, int64_t sequence, struct random *r)
{
    const struct tensor_use *of[] = {&b->s.use[ATTENTION_Q], &b->s.use[ATTENTION_K], &b->s.use[ATTENTION_V]};
    for (int t = 0; t < 3; t++)
        for (int64_t i = 0; i < (t ? length_of(b, sequence) : b->s.tq); i++)
            for (int64_t e = 0; e < (t ? b->s.kv_heads : b->s.heads) * b->s.head_dim; e++) {
                if (t == 0 && place_of(b, 0, i).sequence != sequence) continue;
                int64_t at = key_at(b, of[t], t ? sequence : 0, i) + e / b->s.head_dim * of[t]->head;
                double x = random_chance(r, 1) ? NAN : random_normal(r);
                dtype_store(of[t]->dtype, b->host[of[t]->buffer], at + e % b->s.head_dim, x);
            }
}

/* Rows of `now` that are not what they were when only other sequences were different. */
static int64_t changed_rows(const struct bench *b, const void *was, const void *now, int64_t sequence)
{
    const struct tensor_use *o = &b->s.use[ATTENTION_O];
    size_t size = (size_t)dtype_bytes(o->dtype, 1), row = (size_t)b->s.head_dim * size;
    int64_t wrong = 0;
    for (int64_t i = 0; i < b->s.tq; i++)
        for (int64_t h = 0; h < b->s.heads && place_of(b, 0, i).sequence != sequence; h++) {
            size_t at = (size_t)(o->offset + i * o->time + h * o->head) * size;
            wrong += memcmp((const char *)was + at, (const char *)now + at, row) != 0;
        }
    return wrong;
}

/* A sequence that has queries, and then another one, are changed: what the rest's rows are then. */
static int64_t touched_by_others(struct bench *b, char *err)
{
    struct random r = {23};
    int64_t wrong = 0, of[2] = {-1, -1};
    if (!b->c->starts) return 0;
    for (int64_t i = 0; i < b->s.tq; i++) {
        int64_t sequence = place_of(b, 0, i).sequence;
        if (sequence >= 0 && of[0] < 0) of[0] = sequence;
        if (sequence != of[0]) of[1] = sequence;
    }
    void *was = malloc(b->bytes[ATTENTION_O] + 1);
    for (int k = 0; k < 2 && was; k++) {
        if (of[k] < 0) continue;
        memcpy(was, b->host[ATTENTION_O], b->bytes[ATTENTION_O]);
        change_sequence(b, of[k], &r);
        for (int t = ATTENTION_Q; t <= ATTENTION_V; t++)
            if (!device_upload(b->gpu[t], b->host[t], b->bytes[t])) wrong = -1;
        if (wrong < 0 || !run(b, b->host[ATTENTION_O], err)) break;
        wrong += changed_rows(b, was, b->host[ATTENTION_O], of[k]);
    }
    free(was);
    return err[0] ? -1 : wrong;
}

/* Rows that are not what they were when their neighbours' scores no longer rise by steps. */
static int64_t touched_by_steps(struct bench *b, char *err)
{
    const struct attention_spec *s = &b->s;
    const struct tensor_use *q = &s->use[ATTENTION_Q], *o = &s->use[ATTENTION_O];
    const size_t size = (size_t)dtype_bytes(o->dtype, 1);
    int64_t wrong = 0;
    char *was = b->c->stepped ? malloc(b->bytes[ATTENTION_O] + 1) : NULL;
    if (was) memcpy(was, b->host[ATTENTION_O], b->bytes[ATTENTION_O]);
    for (int64_t left = 0; was && left < STEPS; left += device_emulated(&b->device) ? 5 : 1) {
        fill_steps(b, left);
        if (!device_upload(b->gpu[q->buffer], b->host[q->buffer], b->bytes[q->buffer]) ||
            !run(b, b->host[ATTENTION_O], err)) {
            wrong = -1;
            break;
        }
        for (int64_t e = 0; e < s->batch * s->tq * s->heads; e++) {
            int64_t h = e % s->heads, i = e / s->heads % s->tq, batch = e / s->heads / s->tq;
            size_t at = (size_t)(o->offset + batch * o->batch + i * o->time + h * o->head) * size;
            if (i % STEPS == left)
                wrong += memcmp(was + at, (char *)b->host[ATTENTION_O] + at, (size_t)s->head_dim * size) != 0;
        }
    }
    free(was);
    return wrong;
}

static void close_bench(struct bench *b)
{
    if (b->kernel) jit_unload(b->kernel);
    for (int i = 0; i < ATTENTION_USES; i++) {
        free(b->host[i]);
        if (b->gpu[i]) device_free(b->gpu[i]);
    }
    if (b->gpu[ATTENTION_USES]) device_free(b->gpu[ATTENTION_USES]);
    arena_free(&b->rig.plan.arena);
}

static int only_built(struct bench *b, const char *name, bool sm90)
{
    char err[JIT_ERROR_SIZE] = "";
    bool built = build(b, sm90, err);
    close_bench(b);
    return gpu_case(built, name, "%s", err);
}

static int run_case(const struct jit_device *device, const struct attention_case *c, bool sm90)
{
    char name[128], err[JIT_ERROR_SIZE] = "";
    snprintf(name, sizeof name, "attention %s, %s", sm90 ? "sm90" : "simt", c->name);
    struct bench b = {.c = c, .device = *device};
    attention_case_spec(c, &b.s);
    if (device_dry()) return only_built(&b, name, sm90);
    bool ran = make_data(&b, 7) && build(&b, sm90, err);
    void *again = ran ? malloc(b.bytes[ATTENTION_O] + 1) : NULL;
    ran = again && run(&b, again, err) && run(&b, b.host[ATTENTION_O], err);
    int failed;
    if (!ran) failed = gpu_case(false, name, "%s", err[0] ? err : "no memory");
    else {
        bool same = !memcmp(again, b.host[ATTENTION_O], b.bytes[ATTENTION_O]);
        int64_t stray = misplaced(&b);
        check(&b, 11);
        int64_t others = touched_by_others(&b, err) + touched_by_steps(&b, err),
                touched = touched_by_nan(&b, err);
        failed =
            gpu_case(same && !stray && !others && !touched && b.worst <= 1, name,
                     "error %.2f of what is allowed (row %lld)%s, %lld misplaced, %lld touched by others, "
                     "%lld touched by NaN %s",
                     b.worst, (long long)b.worst_at, same ? "" : ", NOT REPEATED", (long long)stray,
                     (long long)others, (long long)touched, err);
    }
    free(again);
    close_bench(&b);
    return failed;
}

int attention_repeats(const struct jit_device *device, const struct attention_case *c, const char *before,
                      int runs)
{
    char err[JIT_ERROR_SIZE] = "";
    struct bench b = {.c = c, .device = *device, .before = before};
    attention_case_spec(c, &b.s);
    if (device_dry()) return only_built(&b, c->name, true);
    bool ran = make_data(&b, 7) && build(&b, true, err);
    size_t o = b.bytes[ATTENTION_O], lse = b.bytes[ATTENTION_LSE];
    char *first = ran ? malloc(o + lse + 1) : NULL;
    int others = 0;
    ran = first && run(&b, first, err);
    if (ran)
        memcpy(first + o, b.host[ATTENTION_LSE], lse), memcpy(b.host[ATTENTION_O], first, o), check(&b, 11);
    for (int i = 1; i < runs && ran; i++) {
        ran = run(&b, b.host[ATTENTION_O], err);
        others += memcmp(first, b.host[ATTENTION_O], o) || memcmp(first + o, b.host[ATTENTION_LSE], lse);
    }
    int failed = gpu_case(ran && !others && b.worst <= 1, c->name,
                          "blocks of clusters of %d: %d of %d runs have other bits, error %.2f %s",
                          b.rig.k.launch.cluster, others, runs, b.worst, err);
    free(first);
    close_bench(&b);
    return failed;
}

/* Anything goes, but head_dim is a multiple of 8 in two cases of three, so that both kernels get work. */
static struct attention_case random_case(struct random *r)
{
    static const coda_dtype dtypes[] = {CODA_BF16, CODA_F16, CODA_F32};
    struct attention_case c = {.name = "random", .dtype = dtypes[random_below(r, 8) * 3 / 8]};
    c.batch = 1 + random_below(r, 3);
    c.kv_heads = 1 + random_below(r, 3);
    c.heads = c.kv_heads * (1 + random_below(r, 4));
    c.head_dim = random_below(r, 3) ? 8 * (1 + random_below(r, 32)) : 1 + random_below(r, 300);
    c.tq = 1 + random_below(r, 400);
    c.layout = (enum attention_layout)random_below(r, 3);
    c.tk = c.layout == LAYOUT_PACKED || random_chance(r, 40) ? c.tq : 1 + random_below(r, 700);
    c.causal = random_chance(r, 60);
    c.window = random_chance(r, 30) ? 1 + random_below(r, c.tk) : 0;
    c.lengths = random_chance(r, 40);
    c.align = (int)random_below(r, 4);
    c.pad = random_chance(r, 30) ? random_below(r, 3) * 8 : 0;
    c.ahead = !c.causal && random_chance(r, 20) ? 1 + random_below(r, c.tk) : 0;
    c.softcap = random_chance(r, 20) ? 1 + (float)random_below(r, 20) : 0;
    c.ranges = random_chance(r, 20);
    c.slopes = random_chance(r, 20);
    c.sinks = random_chance(r, 20);
    c.lse = random_chance(r, 20);
    if (random_chance(r, 25)) c.score = 1 + (int)random_below(r, SCORE_CAP); /* none that may hide all keys */
    if (random_chance(r, 30)) c.bias = 1 + (int)random_below(r, BIASES - 1), c.bias16 = random_chance(r, 50);
    bool paged = c.layout != LAYOUT_PACKED && random_chance(r, 40);
    if (paged) c.page = 1 << random_below(r, 7), c.lengths = true, c.tk = CEIL_DIV(c.tk, c.page) * c.page;
    if (c.layout != LAYOUT_PACKED && random_chance(r, 25)) {
        c.keys = CODA_F8E4M3, c.scales = (int)random_below(r, 3);
        if (random_chance(r, 60)) c.tq = 1 + random_below(r, 4), c.head_dim = 16 * (1 + random_below(r, 8));
    }
    if (c.layout != LAYOUT_PACKED && random_chance(r, 20)) c.starts = true, c.batch += random_below(r, 40);
    return c;
}

static int run_both(const struct jit_device *device, const struct attention_case *c)
{
    struct attention_spec s;
    attention_case_spec(c, &s);
    bool hopper = attention_fits_sm90(&s, &attention_target);
    int failed = hopper ? run_case(device, c, true) : 0;
    if (hopper && device_emulated(device) && s.tq % EMULATED_SIMT) return failed;
    return failed + run_case(device, c, false);
}

static int run_random(const struct jit_device *device)
{
    struct random r = {random_seed()};
    int failed = 0;
    int n = device_emulated(device) ? scaled(EMULATED_RANDOM) : RANDOM_CASES;
    for (int i = 0; i < n; i++) {
        char name[180];
        struct attention_case c = random_case(&r);
        snprintf(name, sizeof name,
                 "%s%s b%d q%d k%d h%d/%d d%d w%d%s%s align %d layout %d pad %d ahead %d cap %d page "
                 "%d%s%s%s%s%s score %d bias %d%s",
                 dtype_name(c.dtype), c.keys ? " fp8" : "", (int)c.batch, (int)c.tq, (int)c.tk, (int)c.heads,
                 (int)c.kv_heads, (int)c.head_dim, (int)c.window, c.causal ? " causal" : "",
                 c.lengths ? " lengths" : "", c.align, (int)c.layout, (int)c.pad, (int)c.ahead,
                 (int)c.softcap, (int)c.page, c.ranges ? " ranges" : "", c.slopes ? " slopes" : "",
                 c.sinks ? " sinks" : "", c.lse ? " lse" : "", c.starts ? " starts" : "", c.score, c.bias,
                 c.bias16 ? " 16" : "");
        c.name = name;
        if (gpu_mine(i)) failed += run_both(device, &c);
    }
    return failed;
}

int gpu_attention(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&device, err)) return gpu_case(false, "attention", "%s", err);
    int failed = 0;
    const char *named = getenv("CODA_TEST_CASE");
    for (int i = 0; i < attention_case_count; i++) {
        if (!gpu_mine(i) || (named && !strstr(attention_cases[i].name, named))) continue;
        if (device_emulated(&device) && !named && !scale_takes_one_in(EMULATED_SHARE, i)) continue;
        if ((attention_cases[i].batch || attention_cases[i].starts) && attention_cases[i].tq > 0)
            failed += run_both(&device, &attention_cases[i]);
    }
    bool random = !named || !strcmp(named, "random");
    return random ? failed + run_random(&device) : failed;
}
