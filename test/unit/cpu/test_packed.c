/*
 * test_packed.c -- attention of sequences whose queries lie packed in one matrix, by the evaluator and
 * the CPU device, against the manual's formula, key by key in fp64.
 *
 * Starts are drawn with empty sequences, of one query and of many, rows of no sequence, and starts that are
 * none: negative, beyond the end, below earlier ones. Whatever nobody may read is garbage: rows of q that see
 * nothing, keys past a length, pages that no sequence has, table entries past it. Outputs begin poisoned,
 * and have a margin that stays.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { CASES = 300, MARGIN = 64, MOST_DIM = 64, SPARE_PAGES = 3 };

struct packed_case {
    coda_dtype dtype, keys; /* of q, of k and v */
    int64_t batch, rows, tk, heads, kv_heads, dim, window, ahead, page;
    int causal, align;
    bool by_heads, lengths;
    float scale;
    int32_t *start, *length, *table, *range; /* range NULL: none, as the next three */
    float *k_scale, *v_scale;                /* [kv_heads] */
    float *bias;                             /* [heads][rows][tk], of which each may be 1 */
    int64_t bias_dim[3];
    float *sums;         /* [heads][rows], and its margin */
    void *q, *k, *v, *y; /* y has a margin */
};

static const char *describe(const struct packed_case *c)
{
    static char text[320];
    int n =
        snprintf(text, sizeof text, "%s/%s b%d rows %d k%d h%d/%d d%d window %d%s ahead %d align %d page %d",
                 dtype_name(c->dtype), dtype_name(c->keys), (int)c->batch, (int)c->rows, (int)c->tk,
                 (int)c->heads, (int)c->kv_heads, (int)c->dim, (int)c->window, c->causal ? " causal" : "",
                 (int)c->ahead, c->align, (int)c->page);
    n += snprintf(text + n, sizeof text - (size_t)n, "%s%s%s starts", c->by_heads ? " hnd" : "",
                  c->lengths ? " lengths" : "", c->range ? " ranges" : "");
    if (c->bias)
        n += snprintf(text + n, sizeof text - (size_t)n, " bias %d,%d,%d", (int)c->bias_dim[0],
                      (int)c->bias_dim[1], (int)c->bias_dim[2]);
    for (int64_t b = 0; b <= c->batch && n < 300; b++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %d", (int)c->start[b]);
    return text;
}

/* ---- The manual ---- */

/* What start b counts as. */
static int64_t start_of(const struct packed_case *c, int64_t b)
{
    int64_t most = 0;
    for (int64_t k = 0; k <= b; k++) most = MAX(most, MIN(c->start[k], c->rows));
    return most;
}

/* -1: of none. */
static int64_t sequence_of(const struct packed_case *c, int64_t row)
{
    for (int64_t b = 0; b < c->batch; b++)
        if (start_of(c, b) <= row && row < start_of(c, b + 1)) return b;
    return -1;
}

static int64_t keys_of(const struct packed_case *c, int64_t b)
{
    return c->lengths ? MAX(0, MIN(c->length[b], c->tk)) : c->tk;
}

static bool sees(const struct packed_case *c, int64_t row, int64_t j)
{
    int64_t b = sequence_of(c, row);
    if (b < 0 || j >= keys_of(c, b)) return false;
    if (c->range && (j < c->range[2 * row] || j >= c->range[2 * row + 1])) return false;
    int64_t query = row - start_of(c, b), queries = start_of(c, b + 1) - start_of(c, b);
    int64_t end = c->align == CODA_ALIGN_LENGTH ? keys_of(c, b) : c->tk;
    int64_t position = c->align == CODA_ALIGN_START ? query : query + end - queries;
    bool masked = c->causal || c->window || c->ahead;
    if (c->align == CODA_ALIGN_LENGTH && masked && position < 0) return false;
    if (c->causal && j > position) return false;
    if (c->ahead && j > position + c->ahead) return false;
    return c->window == 0 || j > position - c->window;
}

static bool sees_any(const struct packed_case *c, int64_t row)
{
    for (int64_t j = 0; j < c->tk; j++)
        if (sees(c, row, j)) return true;
    return false;
}

static int64_t lots(const struct packed_case *c)
{
    return c->page ? c->batch * (c->tk / c->page) + SPARE_PAGES : c->batch;
}

/* Where element 0 of key j of sequence b is. */
static int64_t key_at(const struct packed_case *c, int64_t b, int64_t j, int64_t kv)
{
    int64_t lot = c->page ? c->table[b * (c->tk / c->page) + j / c->page] : b,
            row = c->page ? j % c->page : j;
    int64_t keys = c->page ? c->page : c->tk;
    return (c->by_heads ? (lot * c->kv_heads + kv) * keys + row : (lot * keys + row) * c->kv_heads + kv) *
           c->dim;
}

static int64_t bias_at(const struct packed_case *c, int64_t h, int64_t row, int64_t j)
{
    const int64_t *n = c->bias_dim;
    return ((n[0] == 1 ? 0 : h) * n[1] + (n[1] == 1 ? 0 : row)) * n[2] + (n[2] == 1 ? 0 : j);
}

/* One row of one head into `out`, the sum of p |v| into `size`; log sum e^score. */
static double attend(const struct packed_case *c, int64_t row, int64_t h, double *out, double *size)
{
    int64_t kv = h / (c->heads / c->kv_heads), b = sequence_of(c, row);
    double *score = calloc((size_t)c->tk + 1, sizeof *score), top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < c->tk; j++) {
        if (!sees(c, row, j)) continue;
        for (int64_t d = 0; d < c->dim; d++)
            score[j] += dtype_load(c->dtype, c->q, (row * c->heads + h) * c->dim + d) *
                        dtype_load(c->keys, c->k, key_at(c, b, j, kv) + d);
        score[j] *= c->scale * (c->k_scale ? c->k_scale[kv] : 1);
        if (c->bias) score[j] += c->bias[bias_at(c, h, row, j)];
        top = fmax(top, score[j]);
    }
    for (int64_t d = 0; d < c->dim; d++) out[d] = size[d] = 0;
    for (int64_t j = 0; j < c->tk; j++) {
        if (!sees(c, row, j)) continue;
        double p = exp(score[j] - top), times = c->v_scale ? c->v_scale[kv] : 1;
        sum += p;
        for (int64_t d = 0; d < c->dim; d++) {
            double v = times * dtype_load(c->keys, c->v, key_at(c, b, j, kv) + d);
            out[d] += p * v, size[d] += p * fabs(v);
        }
    }
    for (int64_t d = 0; d < c->dim && sum > 0; d++) out[d] /= sum, size[d] /= sum;
    free(score);
    return sum > 0 ? top + log(sum) : -INFINITY;
}

/* ---- Data ---- */

static void *garbage(coda_dtype t, int64_t n, struct random *r)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY, 400, -400};
    void *p = aligned_alloc(64, ((size_t)(n * dtype_bytes(t, 1)) / 64 + 1) * 64);
    for (int64_t i = 0; i < n; i++) dtype_store(t, p, i, bad[random_below(r, 5)]);
    return p;
}

static void *integers(int64_t n) { return aligned_alloc(64, ((size_t)n * 4 / 64 + 1) * 64); }

static void draw_starts(struct packed_case *c, struct random *r)
{
    bool odd = random_chance(r, 40);
    int64_t at = random_chance(r, 30) ? random_below(r, 5) : 0;
    c->start = integers(c->batch + 1);
    for (int64_t b = 0; b <= c->batch; b++) {
        int64_t left = MAX(c->rows - at, 0), many = random_chance(r, 50) ? left : 1 + random_below(r, 5);
        c->start[b] = (int32_t)at;
        at += MIN(left, random_chance(r, 25) ? 0 : random_chance(r, 35) ? 1 : random_below(r, many + 1));
        if (!odd || random_chance(r, 60)) continue;
        int32_t wrong[] = {INT32_MIN, -1, (int32_t)c->rows + 1,
                           INT32_MAX, 0,  (int32_t)random_below(r, c->rows + 1)};
        c->start[b] = wrong[random_below(r, 6)];
    }
    if (!odd && random_chance(r, 60)) c->start[c->batch] = (int32_t)c->rows;
}

static void draw_table(struct packed_case *c, struct random *r)
{
    int64_t each = c->page ? c->tk / c->page : 0, pages = lots(c), n = c->batch * each;
    int32_t *all = integers(pages);
    c->table = integers(n);
    for (int32_t i = 0; i < pages && c->page; i++) {
        int64_t k = random_below(r, i + 1);
        all[i] = all[k], all[k] = i;
    }
    for (int64_t i = 0; i < n; i++)
        c->table[i] = i % each * c->page < keys_of(c, i / each) ? all[i] : (int32_t)random_next(r);
    free(all);
}

static void fill_sequence(struct packed_case *c, int64_t b, struct random *r)
{
    for (int64_t i = 0; i < c->rows; i++)
        for (int64_t e = 0; e < c->heads * c->dim && sequence_of(c, i) == b && sees_any(c, i); e++)
            dtype_store(c->dtype, c->q, i * c->heads * c->dim + e, random_normal(r));
    for (int64_t j = 0; j < keys_of(c, b); j++)
        for (int64_t e = 0; e < c->kv_heads * c->dim; e++) {
            int64_t at = key_at(c, b, j, e / c->dim) + e % c->dim;
            dtype_store(c->keys, c->k, at, random_normal(r));
            dtype_store(c->keys, c->v, at, random_normal(r));
        }
}

/* Numbers where some row sees the key. */
static void draw_bias(struct packed_case *c, struct random *r)
{
    int64_t whole[] = {c->heads, c->rows, c->tk}, n = 1;
    for (int d = 0; d < 3; d++) n *= c->bias_dim[d] = random_chance(r, 30) ? 1 : whole[d];
    c->bias = garbage(CODA_F32, n, r);
    for (int64_t e = 0; e < c->heads * c->rows * c->tk; e++) {
        int64_t row = e / c->tk % c->rows, j = e % c->tk;
        if (sees(c, row, j)) c->bias[bias_at(c, e / c->tk / c->rows, row, j)] = (float)random_normal(r);
    }
}

static struct packed_case draw(struct random *r)
{
    static const coda_dtype dtype[] = {CODA_F32, CODA_BF16, CODA_F16};
    struct packed_case c = {.dtype = dtype[random_below(r, 3)], .scale = 0.3f};
    c.keys = random_chance(r, 25) ? CODA_F8E4M3 : c.dtype;
    c.batch = random_below(r, random_chance(r, 15) ? 80 : 7);
    c.rows = random_below(r, random_chance(r, 30) ? 200 : 40);
    c.kv_heads = 1 + random_below(r, 3), c.heads = c.kv_heads * (1 + random_below(r, 3));
    c.dim = 1 + random_below(r, random_chance(r, 20) ? MOST_DIM : 10);
    c.page = random_chance(r, 50) ? 1 << random_below(r, 5) : 0;
    c.tk = random_below(r, random_chance(r, 30) ? 200 : 40);
    if (c.page) c.tk = CEIL_DIV(c.tk, c.page) * c.page;
    c.by_heads = random_chance(r, 50), c.lengths = c.page || random_chance(r, 70);
    c.causal = random_chance(r, 60), c.window = random_chance(r, 40) ? 1 + random_below(r, c.tk + 3) : 0;
    c.ahead = !c.causal && random_chance(r, 30) ? 1 + random_below(r, c.tk + 3) : 0;
    c.align = 1 + (int)random_below(r, 3);
    c.length = integers(c.batch);
    for (int64_t b = 0; b < c.batch; b++) {
        int32_t special[] = {0, INT32_MIN, INT32_MAX, -1, (int32_t)c.tk, 1};
        c.length[b] = random_chance(r, 40) ? special[random_below(r, 6)] : (int32_t)random_below(r, c.tk + 1);
    }
    draw_starts(&c, r);
    draw_table(&c, r);
    if (random_chance(r, 25)) c.range = integers(2 * c.rows);
    for (int64_t i = 0; i < 2 * c.rows && c.range; i++) c.range[i] = (int32_t)random_below(r, c.tk + 6) - 3;
    if (c.keys != c.dtype) c.k_scale = integers(c.kv_heads), c.v_scale = integers(c.kv_heads);
    for (int64_t h = 0; h < c.kv_heads && c.k_scale; h++) c.k_scale[h] = 0.5f, c.v_scale[h] = 2.0f + (float)h;
    int64_t keys = lots(&c) * (c.page ? c.page : c.tk) * c.kv_heads * c.dim;
    c.q = garbage(c.dtype, c.rows * c.heads * c.dim, r);
    c.k = garbage(c.keys, keys, r), c.v = garbage(c.keys, keys, r);
    c.y = garbage(c.dtype, c.rows * c.heads * c.dim + MARGIN, r);
    if (random_chance(r, 50)) c.sums = garbage(CODA_F32, c.rows * c.heads + MARGIN, r);
    for (int64_t b = 0; b < c.batch; b++) fill_sequence(&c, b, r);
    if (random_chance(r, 30)) draw_bias(&c, r);
    return c;
}

static void release(struct packed_case *c)
{
    free(c->start), free(c->length), free(c->table), free(c->range), free(c->k_scale), free(c->v_scale);
    free(c->bias), free(c->sums), free(c->q), free(c->k), free(c->v), free(c->y);
}

/* ---- Graph ---- */

static coda_value keys_input(coda_graph *g, const struct packed_case *c, const char *name)
{
    int64_t n = lots(c), keys = c->page ? c->page : c->tk, columns = c->kv_heads * c->dim;
    if (c->by_heads) return coda_input(g, name, c->keys, 4, (int64_t[]){n, c->kv_heads, keys, c->dim});
    if (c->page) return coda_input(g, name, c->keys, 2, (int64_t[]){n * keys, columns});
    return coda_input(g, name, c->keys, 3, (int64_t[]){n, keys, columns});
}

static coda_graph *build(const struct packed_case *c)
{
    coda_graph *g = coda_graph_new();
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = c->heads, o.kv_heads = c->kv_heads, o.window = c->window, o.causal = c->causal;
    o.scale = c->scale, o.align = (coda_attention_align)c->align, o.ahead = c->ahead, o.page = c->page;
    o.layout = c->by_heads ? CODA_LAYOUT_HND : CODA_LAYOUT_NHD;
    coda_value q = coda_input(g, "q", c->dtype, 2, (int64_t[]){c->rows, c->heads * c->dim});
    coda_value k = keys_input(g, c, "k"), v = keys_input(g, c, "v"), n = CODA_NONE, sums;
    o.starts = coda_input(g, "starts", CODA_I32, 1, (int64_t[]){c->batch + 1});
    if (c->lengths) n = coda_input(g, "n", CODA_I32, 1, &c->batch);
    if (c->page) o.table = coda_input(g, "t", CODA_I32, 2, (int64_t[]){c->batch, c->tk / c->page});
    if (c->range) o.ranges = coda_input(g, "r", CODA_I32, 2, (int64_t[]){c->rows, 2});
    if (c->k_scale) o.k_scale = coda_input(g, "ks", CODA_F32, 1, &c->kv_heads);
    if (c->v_scale) o.v_scale = coda_input(g, "vs", CODA_F32, 1, &c->kv_heads);
    if (c->bias) o.bias = coda_input(g, "bias", CODA_F32, 3, c->bias_dim);
    coda_output(g, "y",
                c->sums ? coda_attention_lse(g, q, k, v, n, &o, &sums) : coda_attention(g, q, k, v, n, &o));
    if (c->sums) coda_output(g, "sums", sums);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s: %s", describe(c), coda_error());
    return g;
}

static void **arguments(const struct packed_case *c, void *y, void *sums)
{
    static void *args[13];
    int n = 0;
    args[n++] = c->q, args[n++] = c->k, args[n++] = c->v, args[n++] = c->start;
    if (c->lengths) args[n++] = c->length;
    if (c->page) args[n++] = c->table;
    if (c->range) args[n++] = c->range;
    if (c->k_scale) args[n++] = c->k_scale, args[n++] = c->v_scale;
    if (c->bias) args[n++] = c->bias;
    args[n++] = y, args[n++] = sums;
    return args;
}

static void *poison(size_t bytes, int byte)
{
    void *p = aligned_alloc(256, (bytes / 256 + 1) * 256);
    return memset(p, byte, (bytes / 256 + 1) * 256);
}

static void run(const struct packed_case *c, const coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", describe(c), coda_error());
    void *workspace = poison(coda_plan_workspace(p), 0xff);
    coda_status s = coda_run(p, arguments(c, c->y, c->sums), NULL, workspace, NULL);
    ck_assert_msg(s == CODA_OK, "%s: %s", describe(c), coda_error());
    free(workspace);
    coda_plan_free(p);
}

static double unit(coda_dtype t) { return t == CODA_BF16 ? 0x1p-8 : t == CODA_F16 ? 0x1p-10 : 1e-5; }

static bool is_near(double got, double want, double slack)
{
    return got == want || fabs(got - want) <= slack;
}

static void compare(const struct packed_case *c, const double *y, const double *sums)
{
    double want[MOST_DIM], size[MOST_DIM];
    for (int64_t e = 0; e < c->rows * c->heads; e++) {
        int64_t row = e / c->heads, h = e % c->heads, at = h * c->rows + row;
        double sum = attend(c, row, h, want, size);
        if (c->sums)
            ck_assert_msg(is_near(sums[at], sum, 1e-11) && is_near(c->sums[at], sum, 2e-5),
                          "%s: sum of row %d is %g, evaluated %g, not %g", describe(c), (int)row, c->sums[at],
                          sums[at], sum);
        for (int64_t d = 0; d < c->dim; d++) {
            double got = dtype_load(c->dtype, c->y, e * c->dim + d);
            ck_assert_msg(is_near(y[e * c->dim + d], want[d], 1e-11), "%s: evaluate [%d,%d,%d] %g, not %g",
                          describe(c), (int)row, (int)h, (int)d, y[e * c->dim + d], want[d]);
            ck_assert_msg(is_near(got, want[d], unit(c->dtype) * (size[d] + 1e-3)),
                          "%s: run [%d,%d,%d] %g, not %g", describe(c), (int)row, (int)h, (int)d, got,
                          want[d]);
        }
    }
}

static void check_case(const struct packed_case *c)
{
    coda_graph *g = build(c);
    int64_t rows = c->rows * c->heads, n = rows * c->dim;
    size_t size = (size_t)dtype_bytes(c->dtype, 1), past = MARGIN * size;
    double *y = malloc(sizeof *y * (size_t)(n + 1)), *sums = malloc(sizeof *sums * (size_t)(rows + 1));
    void *margin = malloc(past);
    memcpy(margin, (char *)c->y + (size_t)n * size, past);
    ck_assert_msg(coda_evaluate(g, arguments(c, y, sums)) == CODA_OK, "%s: %s", describe(c), coda_error());
    run(c, g);
    compare(c, y, sums);
    ck_assert_msg(!memcmp(margin, (char *)c->y + (size_t)n * size, past), "%s: written past the end",
                  describe(c));
    free(margin), free(y), free(sums);
    coda_graph_free(g);
}

START_TEST(random_starts)
{
    for (int i = 0; i < scaled(CASES); i++) {
        struct random r = {random_seed() * 1000003u + (uint64_t)i};
        struct packed_case c = draw(&r);
        check_case(&c);
        release(&c);
    }
}
END_TEST

/* ---- By hand: values are 1, 2, 3, ..., keys all alike, so a row is a mean ---- */

enum { SEQUENCES = 3, ROWS = 8, KEYS = 16 };

static void means_of(int align, int window, const int32_t *starts, const int32_t *lengths, const double *want)
{
    struct packed_case c = {.dtype = CODA_F32,
                            .keys = CODA_F32,
                            .batch = SEQUENCES,
                            .rows = ROWS,
                            .tk = KEYS,
                            .heads = 1,
                            .kv_heads = 1,
                            .dim = 1,
                            .window = window,
                            .causal = 1,
                            .align = align,
                            .lengths = true,
                            .scale = 1};
    static _Alignas(64) float q[ROWS], k[SEQUENCES * KEYS], v[SEQUENCES * KEYS], y[ROWS];
    static _Alignas(64) int32_t start[SEQUENCES + 1], length[SEQUENCES];
    c.q = q, c.k = k, c.v = v, c.y = y, c.start = start, c.length = length;
    memcpy(start, starts, sizeof start);
    memcpy(length, lengths, sizeof length);
    for (int j = 0; j < SEQUENCES * KEYS; j++)
        v[j] = j % KEYS < length[j / KEYS] ? (float)(j % KEYS + 1) : NAN;
    memset(y, 0xff, sizeof y);
    coda_graph *g = build(&c);
    run(&c, g);
    for (int i = 0; i < ROWS; i++)
        ck_assert_msg(fabs(y[i] - want[i]) < 1e-6, "%s: row %d is %g, not %g", describe(&c), i, y[i],
                      want[i]);
    coda_graph_free(g);
}
#define INTS(...)                                                                                            \
    (const int32_t[]) { __VA_ARGS__ }
#define WANT(...)                                                                                            \
    (const double[]) { __VA_ARGS__ }

START_TEST(starts_by_hand)
{
    const int32_t n[] = {5, 2, 16};
    const int length = CODA_ALIGN_LENGTH;
    /* One query, none, many; the last two rows are in no sequence. */
    means_of(length, 0, INTS(0, 1, 1, 6), n, WANT(3, 6.5, 7, 7.5, 8, 8.5, 0, 0));
    means_of(length, 2, INTS(0, 1, 1, 6), n, WANT(4.5, 11.5, 12.5, 13.5, 14.5, 15.5, 0, 0));
    /* More queries than keys: the first ones are no rows of the sequence. */
    means_of(length, 0, INTS(2, 4, 8, 8), n, WANT(0, 0, 2.5, 3, 0, 0, 1, 1.5));
    means_of(CODA_ALIGN_START, 0, INTS(0, 3, 6, 8), n, WANT(1, 1.5, 2, 1, 1.5, 1.5, 1, 1.5));
    means_of(CODA_ALIGN_END, 0, INTS(0, 3, 6, 8), INTS(16, 16, 16), WANT(7.5, 8, 8.5, 7.5, 8, 8.5, 8, 8.5));
    /* A start below an earlier one counts as that one: sequence 1 has no query, sequence 2 begins at 4. */
    means_of(length, 0, INTS(0, 4, 2, 8), n, WANT(1.5, 2, 2.5, 3, 7, 7.5, 8, 8.5));
    /* Below 0 as 0, above all rows as all: sequence 0 has them. */
    means_of(CODA_ALIGN_START, 0, INTS(-3, 9, 5, INT32_MIN), n, WANT(1, 1.5, 2, 2.5, 3, 3, 3, 3));
    means_of(length, 0, INTS(INT32_MAX, 0, 3, 8), n, WANT(0, 0, 0, 0, 0, 0, 0, 0));
    means_of(length, 0, INTS(INT32_MIN, INT32_MIN, INT32_MIN, INT32_MAX), n,
             WANT(5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5));
}
END_TEST

/* ---- Work: as of sequences that have as many queries each ---- */

START_TEST(work_is_that_of_equal_shares)
{
    struct packed_case c = {.dtype = CODA_BF16,
                            .keys = CODA_BF16,
                            .batch = 5,
                            .rows = 20,
                            .tk = 64,
                            .heads = 4,
                            .kv_heads = 2,
                            .dim = 8,
                            .causal = 1,
                            .align = CODA_ALIGN_LENGTH,
                            .lengths = true,
                            .scale = 1,
                            .start = (int32_t[6]){0}};
    coda_graph *g = build(&c);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
    double pairs = 5 * (61 + 62 + 63 + 64); /* of 4 queries each, the last of which sees all keys */
    ck_assert_msg(stats.flops == 4 * pairs * 4 * 8, "%g", stats.flops);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- No row notices what another sequence holds ---- */

START_TEST(sequences_do_not_notice_each_other)
{
    struct random r = {random_seed() * 31 + (uint64_t)_i};
    struct packed_case c = draw(&r);
    while (!c.batch || !c.rows || sequence_of(&c, c.rows / 2) < 0) release(&c), c = draw(&r);
    coda_graph *g = build(&c);
    int64_t changed = sequence_of(&c, c.rows / 2);
    size_t row = (size_t)(c.heads * c.dim * dtype_bytes(c.dtype, 1)), all = (size_t)c.rows * row;
    run(&c, g);
    char *was = malloc(all);
    memcpy(was, c.y, all);
    fill_sequence(&c, changed, &r);
    for (int64_t j = 0; j < keys_of(&c, changed); j++)
        dtype_store(c.keys, c.v, key_at(&c, changed, j, 0), j % 2 ? NAN : 100);
    run(&c, g);
    for (int64_t i = 0; i < c.rows; i++)
        if (sequence_of(&c, i) != changed)
            ck_assert_msg(!memcmp(was + (size_t)i * row, (char *)c.y + (size_t)i * row, row), "%s: row %d",
                          describe(&c), (int)i);
    free(was);
    coda_graph_free(g);
    release(&c);
}
END_TEST

TESTS(packed, ONE(starts_by_hand), ONE(random_starts), ONE(work_is_that_of_equal_shares),
      EACH(sequences_do_not_notice_each_other, 20));
